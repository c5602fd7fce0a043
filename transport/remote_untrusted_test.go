package transport

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/catalog/config"
	"deepwork/session/remote"
	"deepwork/session/state/statetest"
	"deepwork/transport/tool"
	remotetools "deepwork/transport/tools/remote"
)

// Without the user's approval a source is not available: its tools are refused by whatever name
// they are called, with what to do, and its executions are neither asked about nor cancelled there
// meanwhile, as while it is away. With the approval it is available again.
func TestASourceThatLosesItsApproval(t *testing.T) {
	env, err := statetest.Write(t.TempDir(), os.TempDir())
	must(t, err)
	for name, value := range env {
		t.Setenv(name, value)
	}
	trusted, err := os.ReadFile(config.UserFile())
	must(t, err)
	f := newFactory(standardWorkflows...)
	s, root := withSource(t, f, "  reply_within: 10ms\n")
	cs := client(t, s)
	running := into[remote.Run](t, cs, "hang", `{}`)
	if running.State != remote.Running {
		t.Fatalf("got %+v", running)
	}

	must(t, os.Remove(config.UserFile()))
	s.names(t)
	for _, call := range [][2]string{
		{"echo", `{"customer":"a"}`}, {"call_workflow_tool", `{"name":"echo","arguments":{"customer":"a"}}`}, {"refresh_workflow_tools", `{}`},
	} {
		res := callTool(t, cs, call[0], call[1])
		if got := text(res); errorMetaOf(t, res)["code"] != "untrusted" || !strings.Contains(got, "'factory' (\""+f.url+"\")") || !strings.Contains(got, "deepwork trust --path "+root) {
			t.Errorf("%v: %s", call, got)
		}
	}
	if got := text(callTool(t, cs, "call_workflow_tool", `{"name":"ehco","arguments":{}}`)); !strings.Contains(got, "There is no workflow tool 'ehco'. A source that the user has not approved may offer it: 'factory' (") {
		t.Error(got)
	}
	listed := into[remotetools.ListReply](t, cs, "list_workflow_tools", `{}`)
	if len(listed.Skipped) != 1 || listed.Skipped[0].Source != "factory" || !strings.Contains(listed.Skipped[0].Reason, "not approved") {
		t.Errorf("list_workflow_tools: %+v", listed)
	}
	status := `{"execution_id":"` + running.ExecutionID + `"}`
	f.mu.Lock()
	asked := f.runs["x-1"].looks
	f.runs["x-1"].workflow = "w-steps" // ends at the next polls
	f.mu.Unlock()
	for range 5 { // many times status_interval
		res := callTool(t, cs, "workflow_status", status)
		e := errorMetaOf(t, res)
		if run, is := e["run"].(map[string]any); e["code"] != "untrusted" || !is || run["state"] != "running" || !strings.Contains(text(res), "'factory' (\""+f.url+"\")") {
			t.Errorf("workflow_status: %s", text(res))
		}
		time.Sleep(20 * time.Millisecond)
	}
	f.mu.Lock()
	if f.cancelled != nil || f.runs["x-1"].looks > asked+1 { // one may have been under way
		t.Errorf("its source was asked %d times since, and to cancel %v", f.runs["x-1"].looks-asked, f.cancelled)
	}
	f.mu.Unlock()

	must(t, os.WriteFile(filepath.Clean(config.UserFile()), trusted, 0o600))
	s.names(t, "block", "boom", "echo", "fail", "hang", "steps")
	if res := callTool(t, cs, "echo", `{"customer":"a"}`); res.IsError || res.Meta[tool.SourceMeta] != "factory" {
		t.Error(text(res))
	}
	waitFor(t, "the end of the run", func() bool {
		return into[remote.Run](t, cs, "workflow_status", status).State == remote.Completed
	})
}
