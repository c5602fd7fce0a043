package transport

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/session/state"
	"deepwork/session/store/local"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

// Seed 004, "Tools are discoverable".
func TestReq004_ToolsAreDiscoverable(t *testing.T) {
	s, _ := project(t, nil)
	tools := listed(t, client(t, s))
	for _, name := range []string{"list_projects", "list_repos", "list_tasks", "list_task_attempts", "get_task", "create_task", "update_task", "delete_task",
		"start_task_attempt", "follow_up"} {
		if tools[name] == nil {
			t.Errorf("%s is not listed", name)
		}
	}
	if tools["get_context"] != nil {
		t.Error("get_context is listed outside of a workspace")
	}
}

// Seed 004, "No workspace_id alias in MCP schemas".
func TestReq004_NoWorkspaceIDInSchemas(t *testing.T) {
	for _, tool := range listTools(t) {
		text := testkit.Get(json.Marshal(tool)).Must(t)
		if strings.Contains(string(text), "workspace_id") {
			t.Errorf("%s: %s", tool.Name, text)
		}
	}
}

// Seed 004, "Field docs are present"; TestAllToolsAreDescribed asks it of all tools.
func TestReq004_FieldDocsOfListTaskAttempts(t *testing.T) {
	for _, tool := range listTools(t) {
		if tool.Name != "list_task_attempts" {
			continue
		}
		described(t, "input", schemaFrom(t, tool.InputSchema))
		out := schemaFrom(t, tool.OutputSchema)
		described(t, "output", out)
		entry := out.Properties["attempts"].Items
		for _, field := range []string{"attempt_id", "workspace_branch", "created_at", "updated_at", "latest_session_id", "latest_session_executor"} {
			if entry.Properties[field] == nil {
				t.Errorf("%s is not in the schema", field)
			}
		}
		for field, format := range map[string]string{"attempt_id": "UUID", "latest_session_id": "UUID", "created_at": "RFC 3339", "updated_at": "RFC 3339"} {
			testkit.Contains(t, entry.Properties[field].Description, format, "%s does not tell its format", field)
		}
		if e := entry.Properties["state"].Enum; len(e) != 11 {
			t.Errorf("state's values: %v", e)
		}
	}
}

// repository makes the project folder a git repository with one commit on main.
func repository(t *testing.T, root string) {
	t.Helper()
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Setenv("HOME", t.TempDir())
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "idea.txt"}, {"commit", "-q", "-m", "first"}} {
		testkit.Git(t, root, args...)
	}
}

// What does not fit a schema is refused in words that name the field, and so is a
// malformed UUID, which fits it.
func TestBoardArguments(t *testing.T) {
	s, _ := project(t, nil)
	cs := client(t, s)
	const id = "3b241101-e2bb-4255-8caf-4136c566a962"
	for _, c := range []struct{ tool, args, code, says string }{
		{"get_task", `{"task_id":"7"}`, "malformed_id", `"7" is not a UUID`},
		{"get_task", `{"task_id":7}`, "invalid_argument", `"task_id": 7 is an integer; expected a string`},
		{"get_task", `{}`, "missing_argument", `"task_id"`},
		{"get_attempt", `{"workspace_id":"` + id + `"}`, "unknown_argument", `"workspace_id"`},
		{"list_tasks", `{"project_id":"` + id + `","limit":"five"}`, "invalid_argument", `"limit": "five" is a string; expected an integer`},
		{"list_tasks", `{"project_id":"` + id + `","limit":1.5}`, "invalid_argument", `"limit": 1.5 is a number; expected an integer`},
		{"list_tasks", `{"project_id":"` + id + `","limit":0}`, "out_of_range", `limit`},
		{"list_tasks", `{"project_id":"` + id + `","status":"open"}`, "unknown_status", `inreview`},
		{"list_tasks", `{"project_id":"` + id + `"}`, "unknown_project", id},
		{"follow_up", `{"attempt_id":"` + id + `","action":"push"}`, "unknown_action", `"push"`},
		{"follow_up", `{"action":"cancel"}`, "no_target", "exactly one"},
		{"follow_up", `{"workspace_id":7,"action":"cancel"}`, "invalid_argument", `"workspace_id"`},
		{"follow_up", `{"workspace_id":"` + id + `","action":"cancel"}`, "unknown_attempt", id},
		{"follow_up", `{"workspace_id":"` + id + `","session_id":"` + id + `","action":"cancel"}`, "two_targets", "exactly one"},
		{"tail_attempt", `{"attempt_id":"` + id + `","wait":"one"}`, "invalid_argument", `"wait"`},
		{"tail_attempt", `{"attempt_id":"` + id + `","wait":31}`, "out_of_range", `wait`},
		{"get_attempt_diff", `{"attempt_id":"` + id + `","paths":"a"}`, "invalid_argument", `"paths": "a" is a string`},
		{"get_attempt_diff", `{"attempt_id":"` + id + `","paths":["a",7]}`, "invalid_argument", `"paths[1]": 7 is an integer`},
		{"get_attempt_diff", `{"attempt_id":"` + id + `","paths":["../a"]}`, "bad_path", `../a`},
		{"start_task_attempt", `{"task_id":"` + id + `","executor":"X","repos":{}}`, "invalid_argument", `"repos": {} is an object`},
		{"start_task_attempt", `{"task_id":"` + id + `","executor":"X","repos":["a"]}`, "invalid_argument", `"repos[0]": "a" is a string`},
		{"start_task_attempt", `{"task_id":"` + id + `","executor":"X","repos":[{"repo_id":"a"}]}`, "missing_argument", `"target_branch"`},
		{"start_task_attempt", `{"task_id":"` + id + `","executor":"X","repos":[{"repo_id":"a","target_branch":"b","branch":"c"}]}`, "unknown_argument", `"branch"`},
		{"start_task_attempt", `{"task_id":"` + id + `","executor":"X","repos":[` + strings.Repeat(`{"repo_id":"a","target_branch":"b"},`, 50) + `{"repo_id":"a","target_branch":"b"}]}`, "argument_too_large", `want 50`},
	} {
		res := callTool(t, cs, c.tool, c.args)
		if meta := errorMetaOf(t, res); meta["code"] != c.code || meta["type"] != "ToolError" || !strings.Contains(text(res), c.says) {
			t.Errorf("%s(%s): want %s with %q, got %v: %s", c.tool, jsontext.Clip(c.args, 200), c.code, c.says, meta, jsontext.Clip(text(res), 300))
		}
	}
}

// Without a place for the state a server starts and serves what needs none; calls that
// write are refused, say what to set, and leave nothing behind.
func TestWithoutAPlaceForTheState(t *testing.T) {
	s, root := project(t, func(o *Options) { t.Setenv(state.Env, filepath.Join(o.ProjectRoot, "state")) })
	cs := client(t, s)
	if res := callTool(t, cs, "get_workflows", `{}`); res.IsError {
		t.Error(text(res))
	}
	for tool, args := range map[string]string{"start_workflow": `{"goal":"g","job_name":"trip","workflow_name":"plan","request_id":"r"}`, "list_projects": `{}`} {
		res := callTool(t, cs, tool, args)
		testkit.Equal(t, errorMetaOf(t, res)["code"], "no_state_folder", "%s", tool)
		testkit.Contains(t, text(res), state.Env, "%s", tool)
	}
	for _, name := range []string{".deepwork/tmp", "state"} {
		if _, err := os.Stat(filepath.Join(root, name)); !os.IsNotExist(err) {
			t.Errorf("%s was made: %v", name, err)
		}
	}
}

// A project that never uses the board has none.
func TestBoardIsOpenedWhenItIsUsed(t *testing.T) {
	s, root := project(t, nil)
	cs := client(t, s)
	file := state.Of(root).Database()
	callTool(t, cs, "get_workflows", `{}`)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("there is a board: %v", err)
	}
	callTool(t, cs, "list_projects", `{}`)
	testkit.Works(t, testkit.Get(os.Stat(file)).Err())
}

// Sessions that ended longer ago than sessions.keep_ended are removed beside a server that runs;
// younger and active ones stay.
func TestEndedSessionsAreRemoved(t *testing.T) {
	s, root := project(t, nil)
	cs := client(t, s)
	into[machine.StartReply](t, cs, "start_workflow", `{"goal":"ended","job_name":"trip","workflow_name":"dream"}`)
	into[machine.AbortReply](t, cs, "abort_workflow", `{"explanation":"enough"}`)
	active := into[machine.StartReply](t, cs, "start_workflow", `{"goal":"active","job_name":"trip","workflow_name":"dream"}`).BeginStep.SessionID

	folder := testkit.Get(state.Find(root)).Must(t)
	stores := local.Stores(folder, false, slog.New(slog.DiscardHandler))
	engine := testkit.Get(workflow.Open(t.Context(), workflow.Options{Root: root, State: folder, Stores: stores})).Must(t)
	defer func() {
		noError(t, errors.Join(notStopped(engine.Close(context.Background())), stores.Close(context.Background())))
	}()
	p := &pruner{engine, config.Open(root).Current, slog.New(slog.DiscardHandler)}
	for _, tt := range []struct {
		config string
		after  time.Duration
		left   int
	}{
		{"", 9999 * time.Hour, 2},
		{"sessions: {keep_ended: 2h}\n", time.Hour, 2},
		{"sessions: {keep_ended: 2h}\n", 3 * time.Hour, 1},
	} {
		write(t, root, map[string]string{".deepwork/config.yml": "version: \"1.0\"\n" + tt.config})
		p.prune(t.Context(), time.Now().Add(tt.after))
		left, err := engine.List(t.Context())
		if err != nil || len(left) != tt.left || left[0].ID != active {
			t.Errorf("%q after %v: %d sessions are left, %v", tt.config, tt.after, len(left), err)
		}
	}
	into[machine.AbortReply](t, cs, "abort_workflow", `{"explanation":"its definition is still there"}`)
}
