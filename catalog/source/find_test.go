package source_test

import (
	"fmt"
	"slices"
	"testing"

	"deepwork/catalog/source"
)

// found returns the candidates for a name, and the sources that are away and had it.
func found(s *source.Snapshot, name string) string {
	var names, sources []string
	candidates, gone := s.Find(name)
	for _, t := range candidates {
		names = append(names, t.Name)
	}
	for _, g := range gone {
		sources = append(sources, g.Source)
	}
	return fmt.Sprint(names, sources)
}

// A name that is shared, or whose source is away, means no workflow.
func TestReq003_6_4_ANameMeansOneWorkflow(t *testing.T) {
	a := &fakery{list: listOf(workflow("1", "send"), workflow("1b", "own"))}
	b := &fakery{list: listOf()}
	c := settings(overHTTP(t, "first", a), overHTTP(t, "second", b))
	c.WorkflowTools.KeepToolsFor = 0
	r := open(t, c)
	r.tools(t, "own", "send")
	b.set(listOf(workflow("2", "send")))
	r.refresh(t)
	s := r.tools(t, "own", "send_1", "send_2")
	for name, want := range map[string]string{"send": "[send_1 send_2] []", "nothing": "[] []"} {
		if got := found(s, name); got != want {
			t.Errorf("%s means %s, want %s", name, got, want)
		}
	}

	// The other does not take the name when the first is away, nor one that a name with an id was once
	// another's.
	away := *c
	away.WorkflowTools.Sources = slices.Clone(c.WorkflowTools.Sources)
	away.WorkflowTools.Sources[0].URL = "http://127.0.0.1:1/mcp"
	r.settings.Store(&away)
	s = r.tools(t, "send_2")
	for name, want := range map[string]string{"send": "[send_2] [first]", "own": "[] [first]", "send_1": "[] [first]"} {
		if got := found(s, name); got != want {
			t.Errorf("%s means %s, want %s", name, got, want)
		}
	}
	b.set(listOf(workflow("2", "send"), workflow("1", "send")))
	r.refresh(t)
	s = r.until(t, "two tools", func(s *source.Snapshot) bool { return len(s.Tools) == 2 })
	if s.Tool("send_1") != nil {
		t.Errorf("the name send_1 was the other source's: %s", toolNames(s))
	}

	// A source that is renamed, or taken out, holds no names.
	b.set(listOf(workflow("2", "send")))
	only := settings(c.WorkflowTools.Sources[1])
	r.settings.Store(only)
	r.refresh(t)
	r.tools(t, "send")
}
