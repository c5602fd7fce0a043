package main

import "testing"

// Runs in many processes share the slots of the project.
func TestRunManyOnFourSlots(t *testing.T) {
	const runs = 16
	p := newRunProject(t, "attempts: {max_concurrent: 4}\n", runJob("NAME", "[a, b]", "a outputs: {}", "b outputs: {}"))
	var all []*runProcess
	for range runs {
		all = append(all, p.begin())
	}
	for _, r := range all {
		r.exits(0)
	}
	if n := p.most(); n > 4 || n < 2 {
		t.Errorf("%d agents at once", n)
	}
	if n := len(p.recorded("begin", "")); n != 2*runs {
		t.Errorf("%d agents", n)
	}
	p.clean()
}
