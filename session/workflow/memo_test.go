package workflow

import (
	"fmt"
	"testing"

	"deepwork/session/workflow/machine"
)

func TestAMemoForgetsAtItsBound(t *testing.T) {
	const most = 10
	m := memo[int, string]{most: most}
	for range 3 { // what is known is not counted again
		for i := range most {
			m.put(i, fmt.Sprint(i))
		}
	}
	for i := range most {
		if v, ok := m.get(i); !ok || v != fmt.Sprint(i) {
			t.Fatalf("%d is forgotten below the bound: %q, %v", i, v, ok)
		}
	}
	for i := most; i < 100*most; i++ {
		m.put(i, fmt.Sprint(i))
		if v, ok := m.get(i); !ok || v != fmt.Sprint(i) {
			t.Fatalf("the newest, %d, is %q, %v", i, v, ok)
		}
		if n := m.size(); n > most {
			t.Fatalf("%d values, and %d are the most", n, most)
		}
	}
}

// size counts the values.
func (m *memo[K, V]) size() (n int) {
	m.values.Range(func(any, any) bool { n++; return true })
	return n
}

func TestDefinitionsOfAJobEditedAllDayAreForgotten(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv := p.open()
	known := &srv.definitions.known
	if known.most != maxKnown {
		t.Errorf("at most %d definitions are remembered, want %d", known.most, maxKnown)
	}
	known.most = 3
	first := srv.Connect("local")
	p.start(first, "alpha", "main")
	for i := range 10 {
		p.write(".deepwork/jobs/alpha/steps/two.md", fmt.Sprintf("Do two, in way %d.\n", i))
		c := srv.Connect("local")
		p.start(c, "alpha", "main")
		c.Close()
		if n := known.size(); n > 3 {
			t.Fatalf("after %d edits %d definitions are remembered, and 3 are the most", i+1, n)
		}
	}
	// A session whose definition is forgotten goes on.
	if r := p.finish(first, `{"outputs":{"report":"r.md"}}`); r.BeginStep == nil || r.BeginStep.Instructions != "Do two, in way 9.\n" {
		t.Errorf("reply %s", toJSON(t, r))
	}
	if r := p.finish(first, `{"outputs":{"report":"r.md"}}`); r.Status != machine.WorkflowComplete {
		t.Errorf("reply %s", toJSON(t, r))
	}
}
