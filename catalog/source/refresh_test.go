package source_test

import (
	"strings"
	"testing"
	"time"

	"deepwork/catalog/source"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A refresh names the sources that told nothing new, and why.
func TestReq003_4_3_RefreshTellsWhoWasSilent(t *testing.T) {
	hangs, broken, fine := &fakery{}, &fakery{}, &fakery{list: listOf(workflow("3", "fine"))}
	for _, f := range []*fakery{hangs, broken} {
		f.list = listOf(workflow("1", "known"))
	}
	r := open(t, settings(overHTTP(t, "hangs", hangs), overHTTP(t, "broken", broken), overHTTP(t, "fine", fine), command("dead", "exit")))
	r.until(t, "three sources", func(s *source.Snapshot) bool { return len(s.Tools) == 3 })
	let := make(chan struct{})
	defer close(let)
	hangs.set(func(string) *mcp.CallToolResult { <-let; return text("[]") })
	broken.set(func(string) *mcp.CallToolResult { return failure("the database is down") })
	report, err := r.Refresh(t.Context(), time.Second)
	if err != nil || len(report.Silent) != 3 {
		t.Fatalf("%+v, %v", report, err)
	}
	for i, want := range []struct{ source, why string }{
		{"hangs", "did not answer within 1s; its earlier workflows stay listed"},
		{"broken", "the database is down"},
		{"dead", "exit"},
	} {
		if got := report.Silent[i]; got.Source != want.source || !strings.Contains(got.Reason, want.why) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if len(report.Removed) != 0 {
		t.Errorf("what a silent source said before is gone: %v", report.Removed)
	}
}
