package transport

import (
	"strings"
	"testing"

	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
)

// An error names the argument that is to blame, and its value, for programs too
// (DESIGN "Errors").
func TestErrorsNameTheArgumentAndItsValue(t *testing.T) {
	s, _ := project(t, func(o *Options) { o.Toolsets = config.Toolsets })
	cs := client(t, s)
	const id = "3b241101-e2bb-4255-8caf-4136c566a962"
	project := strings.SplitN(strings.SplitN(text(callTool(t, cs, "list_projects", `{}`)), `"project_id":"`, 2)[1], `"`, 2)[0]
	for _, c := range []struct {
		tool, args, code, argument string
		value                      any
	}{
		{"list_tasks", `{"project_id":"` + project + `","cursor":"x"}`, "bad_cursor", "cursor", "x"},
		{"list_repos", `{"project_id":"` + project + `","cursor":"x"}`, "bad_cursor", "cursor", "x"},
		{"list_projects", `{"cursor":"x"}`, "bad_cursor", "cursor", "x"},
		{"create_task", `{"project_id":"` + project + `","title":"t","job_name":"trip"}`, "half_a_workflow", "job_name", "trip"},
		{"create_task", `{"project_id":"` + project + `","title":"t","workflow_name":"x"}`, "half_a_workflow", "workflow_name", "x"},
		{"create_task", `{"project_id":"` + project + `","title":"t","job_name":"nojob","workflow_name":"x"}`, "job_not_found", "job_name", "nojob"},
		{"follow_up", `{"action":"cancel"}`, "no_target", "attempt_id", nil},
		{"follow_up", `{"attempt_id":"` + id + `","session_id":"` + id + `","action":"cancel"}`, "two_targets", "session_id", id},
		{"list_workflow_tools", `{"cursor":"x"}`, "invalid_argument", "cursor", "x"},
		{"list_workflow_tools", `{"name":"[a"}`, "invalid_argument", "name", "[a"},
		{"call_workflow_tool", `{"name":"nope"}`, "unknown_workflow_tool", "name", "nope"},
		{"call_workflow_tool", `{"name":"get_step"}`, "not_a_workflow_tool", "name", "get_step"},
		{"workflow_status", `{"execution_id":"x"}`, "invalid_execution_id", "execution_id", "x"},
		{"workflow_status", `{"execution_id":"` + id + `"}`, "unknown_run", "execution_id", id},
		{"cancel_execution", `{"execution_id":"` + id + `"}`, "unknown_run", "execution_id", id},
		{"workflows-list-tool", `{"cursor":"x"}`, "invalid_argument", "cursor", "x"},
		{"workflows-execute-tool", `{"workflow_id":"a/b","input":{"goal":"g"}}`, "unknown_workflow", "workflow_id", "a/b"},
		{"workflows-status-tool", `{"workflow_id":"a/b","execution_id":"x"}`, "bad_session_id", "execution_id", "x"},
	} {
		meta := errorMetaOf(t, callTool(t, cs, c.tool, c.args))
		value, told := meta["value"]
		if meta["code"] != c.code || meta["argument"] != c.argument || !told || value != c.value {
			t.Errorf("%s(%s): %v", c.tool, jsontext.Clip(c.args, 200), meta)
		}
	}
}
