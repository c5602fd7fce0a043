package transport

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/merge"
)

// ofOthers are ids that a person, a job or another system chose.
var ofOthers = []string{"step_id", "workflow_id", "request_id", "instance_id", "source_execution_id"}

// Each field of a request or a reply has a type and says what it means, of an id that it is a UUID or 8 hexadecimal digits,
// of a time that it is RFC 3339, and of a word which ones there are (seed 004, "Schema field documentation").
func TestField24_EveryFieldSaysItsFormat(t *testing.T) {
	t.Parallel()
	id, at := regexp.MustCompile(`_ids?$|^(remove|depends_on|blocked_by)$`), regexp.MustCompile(`(_at|_until|^time|_changed)$`)
	for _, tool := range listTools(t) {
		for kind, s := range map[string]*jsonschema.Schema{"input": schemaFrom(t, tool.InputSchema), "output": schemaFrom(t, tool.OutputSchema)} {
			fieldsOf(s, tool.Name+" "+kind, func(where, name string, p *jsonschema.Schema) {
				said := p.Description
				testkit.True(t, strings.TrimSpace(said) != "", "%s is not described", where)
				testkit.True(t, name == "*" || p.Type != "" || p.Types != nil, "%s has no type", where)
				says := strings.Contains(said, "UUID") || strings.Contains(said, "8 hex") || strings.Contains(said, "32 hex")
				testkit.True(t, says || !id.MatchString(name) || slices.Contains(ofOthers, name), "%s does not say what the id looks like: %s", where, said)
				testkit.True(t, !at.MatchString(name) || strings.Contains(said, "RFC 3339"), "%s does not say how the time is written: %s", where, said)
				for _, value := range p.Enum {
					word := fmt.Sprint(value)
					testkit.True(t, value == nil || strings.Contains(word, " ") || strings.Contains(said, word) || name == "syntax_for_finished_step_tool", "%s does not say that it may be %s: %s", where, word, said)
				}
			})
		}
	}
}

// fieldsOf calls found for each property, definition and further property ("*"), at any depth.
func fieldsOf(s *jsonschema.Schema, at string, found func(where, name string, p *jsonschema.Schema)) {
	if s == nil {
		return
	}
	inside := func(where, name string, p *jsonschema.Schema) {
		if p != nil && p.Not == nil {
			found(where, name, p)
			fieldsOf(p, where, found)
		}
	}
	for name, p := range s.Properties {
		inside(at+"."+name, name, p)
	}
	for name, def := range s.Defs {
		inside(at+"#"+name, "", def)
	}
	fieldsOf(s.Items, at+"[]", found) // the list's own description says what they are
	inside(at+".*", "*", s.AdditionalProperties)
}

// anyJSON are the fields whose members are those of a source, a job or a caller.
var anyJSON = []string{"result", "input_schema", "inputSchema", "metadata", "value"}

// A walker looks for members of replies that the schemas of their tools do not name.
type walker struct {
	t  testing.TB
	of map[string]*jsonschema.Schema // by tool
}

func (w *walker) walk(at, name string, value any, s *jsonschema.Schema) {
	if s != nil && s.Ref != "" || s != nil && strings.Contains(s.Description, "fields are in start_workflow's output schema") {
		s = w.of["start_workflow"].Defs["step"]
	}
	switch value := value.(type) {
	case map[string]any:
		for key, member := range value {
			switch {
			case slices.Contains(anyJSON, name):
			case s == nil:
				w.t.Errorf("%s has members, and no schema", at)
			case s.Properties[key] != nil:
				w.walk(at+"."+key, key, member, s.Properties[key])
			default:
				if others := s.AdditionalProperties; others != nil && others.Not == nil {
					w.walk(at+".*", "", member, others)
				} else {
					w.t.Errorf("%s answers %s, which its schema does not name", at, key)
				}
			}
		}
	case []any:
		for _, item := range value {
			var of *jsonschema.Schema
			if s != nil {
				of = s.Items
			}
			w.walk(at+"[]", name, item, of)
		}
	}
}

// Each reply fits the schema of its tool, and has no field that this does not name.
func TestField24_RepliesHaveTheFieldsOfTheirSchemas(t *testing.T) {
	calls := func(cs *mcp.ClientSession, all ...string) {
		for _, call := range all {
			name, args, _ := strings.Cut(call, " ")
			accepted(t, cs, name, args)
		}
	}
	fake, _ := fakeServer(t, nil)
	replied := []*sync.Map{conforms(t, fake)}
	calls(client(t, fake), "get_workflows {}", `start_workflow {"goal":"g","job_name":"j","workflow_name":"w"}`, `finished_step {"outputs":{}}`, `get_step {}`, `abort_workflow {"explanation":"e"}`)

	remote, _ := withSource(t, newFactory(standardWorkflows...), "")
	replied = append(replied, conforms(t, remote))
	cs := client(t, remote)
	id := into[struct {
		ID string `json:"execution_id"`
	}](t, cs, "echo", `{"customer":"Ada"}`).ID
	calls(cs, "list_workflow_tools {}", `list_workflow_tools {"name":"*"}`, "refresh_workflow_tools {}", `workflow_status {"execution_id":"`+id+`"}`,
		`cancel_execution {"execution_id":"`+id+`"}`, `call_workflow_tool {"name":"echo","arguments":{"customer":"Ada"}}`)

	s, root := bareProject(t, "executors: {MINE: {command: [sh, -c, 'cat > said.txt; echo done']}}\n", func(o *Options) { o.Toolsets = config.Toolsets })
	repository(t, root)
	replied = append(replied, conforms(t, s))
	cs = client(t, s)
	run := into[struct {
		ID string `json:"execution_id"`
	}](t, cs, "workflows-execute-tool", `{"workflow_id":"trip/plan","input":{"goal":"Sea"}}`).ID
	calls(cs, "workflows-list-tool {}", `workflows-status-tool {"workflow_id":"trip/plan","execution_id":"`+run+`"}`, `get_step {"session_id":"`+run+`"}`,
		`finished_step {"session_id":"`+run+`","outputs":{"idea":"idea.txt"}}`, `go_to_step {"session_id":"`+run+`","step_id":"idea"}`,
		`workflows-cancel-tool {"workflow_id":"trip/plan","execution_id":"`+run+`"}`)
	write(t, root, map[string]string{".deepwork/jobs/items/job.yml": `{name: items, version: 1.0.0, summary: S, common_job_info_provided_to_all_steps_at_runtime: C, steps: [
  {id: list, name: L, description: D, instructions: I, reviews: [], outputs: {todo: {type: string, description: D}}},
  {id: port, name: P, description: D, instructions: I, reviews: [], outputs: {pages: {type: files, description: D, required: false}, said: {type: string, description: D}}}],
  workflows: [{name: main, summary: S, steps: [list, {for_each: todo, steps: [port]}]}]}`})
	calls(cs, `start_workflow {"goal":"g","job_name":"items","workflow_name":"main"}`, `finished_step {"outputs":{"todo":"[\"a\",{\"b\":1}]"}}`,
		`finished_step {"outputs":{"said":"s"},"step_id":"port[0]"}`, `finished_step {"outputs":{"said":"s","pages":["idea.txt"]},"step_id":"port[1]"}`)
	project := into[board.ProjectsReply](t, cs, "list_projects", `{}`).Projects[0].ProjectID
	repo := into[board.ReposReply](t, cs, "list_repos", `{"project_id":"`+project+`"}`).Repos[0].RepoID
	task := into[board.Task](t, cs, "create_task", `{"project_id":"`+project+`","title":"Plan"}`).TaskID
	other := into[board.Task](t, cs, "create_task", `{"project_id":"`+project+`","title":"Then","depends_on":["`+task+`"]}`).TaskID
	made := into[attempt.AttemptReply](t, cs, "start_task_attempt", `{"task_id":"`+task+`","executor":"MINE","repos":[{"repo_id":"`+repo+`","target_branch":"main"}]}`)
	a := `{"attempt_id":"` + made.AttemptID + `"`
	for tail := (&attempt.TailReply{}); tail.State != "completed"; {
		if tail = into[attempt.TailReply](t, cs, "tail_attempt", fmt.Sprintf(`%s,"after_index":%d,"wait":"5"}`, a, tail.NextIndex-1)); tail.State == "failed" {
			t.Fatalf("%s", text(callTool(t, cs, "get_attempt", a+`}`)))
		}
	}
	calls(cs, "tail_attempt "+a+`,"after_index":-1,"raw":true}`, "get_attempt "+a+"}", "get_attempt_diff "+a+"}", `list_tasks {"project_id":"`+project+`"}`, `list_task_attempts {"task_id":"`+task+`"}`,
		`get_task {"task_id":"`+task+`"}`, "needs_attention {}", "list_executors {}", "comment_attempt "+a+`,"comments":[{"file":"said.txt","line":"1","text":"t"}]}`,
		"rebase_attempt "+a+"}", "merge_attempt "+a+"}", "change_target "+a+`,"target_branch":"main"}`, "abort_merge "+a+"}",
		"stop_attempt "+a+"}", `update_task {"task_id":"`+task+`","status":"done"}`, `delete_task {"task_id":"`+other+`"}`)
	_ = into[merge.Reply](t, cs, "abort_merge", a+"}")
	ran := into[attempt.RunMade](t, cs, "run_workflow", `{"job_name":"trip","workflow_name":"plan","goal":"g","executor":"MINE"}`).RunID
	calls(cs, `get_run {"run_id":"`+ran+`"}`, `stop_attempt {"attempt_id":"`+ran+`"}`, `get_run {"run_id":"`+ran+`"}`, `follow_up {"action":"cancel","attempt_id":"`+made.AttemptID+`"}`)
	for _, name := range s.tools.Names() {
		has := func(seen *sync.Map) bool { _, is := seen.Load(name); return is }
		testkit.True(t, slices.ContainsFunc(replied, has) || name == "push_attempt", "no reply of %s was looked at", name) // its reply is that of merge_attempt, and it needs a remote
	}
}
