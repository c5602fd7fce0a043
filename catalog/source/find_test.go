package source_test

import (
	"fmt"
	"slices"
	"testing"

	"deepwork/catalog/source"
)

func candidates(f source.Found) string {
	var names []string
	for _, t := range f.Candidates {
		names = append(names, t.Name)
	}
	return fmt.Sprint(names)
}

// A name with an id is good always; a plain one means one workflow, or none.
func TestReq003_6_4_ANameMeansOneWorkflow(t *testing.T) {
	a := &fakery{list: listOf(workflow("1", "send"), workflow("1b", "own"))}
	b := &fakery{list: listOf()}
	c := settings(overHTTP(t, "first", a), overHTTP(t, "second", b))
	c.WorkflowTools.KeepToolsFor = 0
	r := open(t, c)
	s := r.tools(t, "own", "send")
	if got := s.Find("send_1"); got.Tool == nil || got.Tool != s.Tool("send") {
		t.Errorf("the name with the id, while the plain one is listed: %+v", got)
	}
	if got := s.Find("nothing"); got.Tool != nil || got.Candidates != nil || got.Gone != nil {
		t.Errorf("got %+v", got)
	}

	b.set(listOf(workflow("2", "send")))
	r.refresh(t)
	s = r.tools(t, "own", "send_1", "send_2")
	if got := s.Find("send"); got.Tool != nil || candidates(got) != "[send_1 send_2]" {
		t.Errorf("a name that two share: %+v", got)
	}

	// The other does not take the name when the first is away.
	away := *c
	away.WorkflowTools.Sources = slices.Clone(c.WorkflowTools.Sources)
	away.WorkflowTools.Sources[0].URL = "http://127.0.0.1:1/mcp"
	r.settings.Store(&away)
	s = r.tools(t, "send_2")
	got := s.Find("send")
	if got.Tool != nil || candidates(got) != "[send_2]" || len(got.Gone) != 1 || got.Gone[0].Source != "first" {
		t.Errorf("got %+v", got)
	}
	for _, name := range []string{"own", "send_1", "own_1b"} {
		if got := s.Find(name); got.Tool != nil || len(got.Gone) != 1 || got.Gone[0].Reason == "" {
			t.Errorf("%s: got %+v", name, got)
		}
	}

	// Nor one that a name with an id was once another's.
	b.set(listOf(workflow("2", "send"), workflow("1", "send")))
	r.refresh(t)
	s = r.until(t, "two tools", func(s *source.Snapshot) bool { return len(s.Tools) == 2 })
	if s.Tool("send_1") != nil {
		t.Errorf("the name send_1 was the other source's: %s", toolNames(s))
	}
	if got := s.Find("send_1"); got.Tool != nil || len(got.Candidates) != 1 || len(got.Gone) != 1 {
		t.Errorf("got %+v", got)
	}

	// A source that is renamed, or taken out, holds no names.
	b.set(listOf(workflow("2", "send")))
	only := settings(c.WorkflowTools.Sources[1])
	r.settings.Store(only)
	r.refresh(t)
	r.tools(t, "send")
}
