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
	"deepwork/session/state"
	"deepwork/session/store/local"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

// Seed 004, "Tools are discoverable".
func TestReq004_ToolsAreDiscoverable(t *testing.T) {
	t.Parallel()
	s, _ := project(t, nil)
	tools := listed(t, client(t, s))
	for _, name := range []string{"list_projects", "list_repos", "list_tasks", "list_task_attempts", "get_task", "create_task", "update_task", "delete_task",
		"start_task_attempt", "follow_up"} {
		testkit.True(t, tools[name] != nil, "%s is not listed", name)
	}
	testkit.True(t, tools["get_context"] == nil, "get_context is listed outside of a workspace")
}

// Seed 004, "No workspace_id alias in MCP schemas".
func TestReq004_NoWorkspaceIDInSchemas(t *testing.T) {
	t.Parallel()
	for _, tool := range listTools(t) {
		text := testkit.Get(json.Marshal(tool)).Must(t)
		testkit.True(t, !strings.Contains(string(text), "workspace_id"), "%s: %s", tool.Name, text)
	}
}

// Seed 004, "Field docs are present"; TestField24_EveryFieldSaysItsFormat asks it of all tools.
func TestReq004_FieldDocsOfListTaskAttempts(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil)
	entry := schemaFrom(t, listed(t, client(t, s))["list_task_attempts"].OutputSchema).Properties["attempts"].Items
	for field, format := range map[string]string{"attempt_id": "UUID", "workspace_branch": "", "created_at": "RFC 3339", "updated_at": "RFC 3339", "latest_session_id": "UUID", "latest_session_executor": ""} {
		testkit.Contains(t, entry.Properties[field].Description, format, "%s does not tell its format", field)
	}
	testkit.Equal(t, len(entry.Properties["state"].Enum), 11, "state's values")
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

// Without a place for the state a server starts and serves what needs none; calls that
// write are refused, say what to set, and leave nothing behind.
func TestWithoutAPlaceForTheState(t *testing.T) {
	s, root := project(t, func(o *Options) { t.Setenv(state.Env, filepath.Join(o.ProjectRoot, "state")) })
	cs := client(t, s)
	accepted(t, cs, "get_workflows", `{}`)
	for tool, args := range map[string]string{"start_workflow": `{"goal":"g","job_name":"trip","workflow_name":"plan","request_id":"r"}`, "list_projects": `{}`} {
		res := callTool(t, cs, tool, args)
		testkit.Equal(t, errorMetaOf(t, res)["code"], "no_state_folder", "%s", tool)
		testkit.Contains(t, text(res), state.Env, "%s", tool)
	}
	for _, name := range []string{".deepwork/tmp", "state"} {
		testkit.FailsWith(t, testkit.Get(os.Stat(filepath.Join(root, name))).Err(), os.ErrNotExist, name)
	}
}

// A project that never uses the board has none.
func TestBoardIsOpenedWhenItIsUsed(t *testing.T) {
	t.Parallel()
	s, root := project(t, nil)
	cs := client(t, s)
	file := state.Of(root).Database()
	callTool(t, cs, "get_workflows", `{}`)
	testkit.FailsWith(t, testkit.Get(os.Stat(file)).Err(), os.ErrNotExist, "a board")
	callTool(t, cs, "list_projects", `{}`)
	testkit.Works(t, testkit.Get(os.Stat(file)).Err())
}

// Sessions that ended longer ago than sessions.keep_ended are removed beside a server that runs;
// younger and active ones stay.
func TestEndedSessionsAreRemoved(t *testing.T) {
	t.Parallel()
	s, root := project(t, nil)
	cs := client(t, s)
	into[machine.StartReply](t, cs, "start_workflow", `{"goal":"ended","job_name":"trip","workflow_name":"dream"}`)
	into[machine.AbortReply](t, cs, "abort_workflow", `{"explanation":"enough"}`)
	active := into[machine.StartReply](t, cs, "start_workflow", `{"goal":"active","job_name":"trip","workflow_name":"dream"}`).BeginStep.SessionID

	folder := testkit.Get(state.Find(root)).Must(t)
	stores := local.Stores(folder, false, slog.New(slog.DiscardHandler))
	engine := testkit.Get(workflow.Open(t.Context(), workflow.Options{Root: root, State: folder, Stores: stores})).Must(t)
	defer func() {
		testkit.Works(t, errors.Join(notStopped(engine.Close(context.Background())), stores.Close(context.Background())))
	}()
	p := &pruner{engine, config.Open(root).Current, slog.New(slog.DiscardHandler)}
	for _, tt := range []struct {
		config string
		after  time.Duration
		left   int
	}{{"", 9999 * time.Hour, 2}, {"sessions: {keep_ended: 2h}\n", time.Hour, 2}, {"sessions: {keep_ended: 2h}\n", 3 * time.Hour, 1}} {
		write(t, root, map[string]string{".deepwork/config.yml": "version: \"1.0\"\n" + tt.config})
		p.prune(t.Context(), time.Now().Add(tt.after))
		left, err := engine.List(t.Context())
		testkit.True(t, err == nil && len(left) == tt.left && left[0].ID == active, "%q after %v: %d sessions are left, %v", tt.config, tt.after, len(left), err)
	}
	into[machine.AbortReply](t, cs, "abort_workflow", `{"explanation":"its definition is still there"}`)
}
