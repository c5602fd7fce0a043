package transport

import (
	"strings"
	"testing"
	"time"

	"deepwork/catalog/source"
	remotetools "deepwork/transport/tools/remote"
)

// refreshed asks for a refresh, and returns what it says of a source's state, or of
// the config's where source is "".
func refreshed(skipped []source.Skipped, source string) string {
	for _, s := range skipped {
		if s.Source == source && s.Workflow == "" {
			return s.Reason
		}
	}
	return ""
}

func TestReq003_4_3_ARefreshTellsOfASourceThatHangs(t *testing.T) {
	f := newFactory(standardWorkflows...)
	s, _ := withSource(t, f, "")
	cs := client(t, s)
	if most := s.remote.Patience; most > 25*time.Second {
		t.Errorf("a refresh may take %v; clients give up on a call after a minute, some before", most)
	}
	s.remote.Patience = 300 * time.Millisecond
	f.mu.Lock() // its list tool waits for this
	got := into[remotetools.RefreshReply](t, cs, "refresh_workflow_tools", `{}`)
	f.mu.Unlock()
	if why := refreshed(got.Skipped, "factory"); !strings.Contains(why, "did not answer within 300ms") || len(got.Removed) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestReq003_4_4_ARefusedEditIsToldOf(t *testing.T) {
	f := newFactory(standardWorkflows...)
	s, root := withSource(t, f, "")
	cs := client(t, s)
	if got := into[remotetools.RefreshReply](t, cs, "refresh_workflow_tools", `{}`); len(got.Skipped) != 0 {
		t.Errorf("got %+v", got)
	}
	write(t, root, map[string]string{".deepwork/config.yml": "version: \"1.0\"\nworkflow_tools:\n  enabled: maybe\n"})
	refresh := into[remotetools.RefreshReply](t, cs, "refresh_workflow_tools", `{}`)
	list := into[remotetools.ListReply](t, cs, "list_workflow_tools", `{}`)
	for name, got := range map[string][]source.Skipped{"refresh": refresh.Skipped, "list": list.Skipped} {
		if why := refreshed(got, ""); !strings.Contains(why, "config.yml:3:12: workflow_tools.enabled") || !strings.Contains(why, "stays in use") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if len(list.Tools) != 6 {
		t.Errorf("%d tools", len(list.Tools))
	}
}

func TestReq003_4_1_ThatItIsDisabledIsSaid(t *testing.T) {
	const want = "workflow_tools.enabled is false"
	s, _ := bareProject(t, "workflow_tools: {enabled: false}\n", nil)
	cs := client(t, s)
	if got := into[remotetools.RefreshReply](t, cs, "refresh_workflow_tools", `{}`); !strings.Contains(refreshed(got.Skipped, ""), want) {
		t.Errorf("got %+v", got)
	}
	if got := into[remotetools.ListReply](t, cs, "list_workflow_tools", `{}`); !strings.Contains(refreshed(got.Skipped, ""), want) {
		t.Errorf("got %+v", got)
	}
	if got := refusedWith(t, cs, "call_workflow_tool", `{"name":"echo"}`, "StateError"); !strings.Contains(got, want) || strings.Contains(got, "no source of workflows is connected, or") {
		t.Error(got)
	}
}
