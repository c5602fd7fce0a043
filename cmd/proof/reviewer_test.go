package main

import (
	"testing"
	"time"
)

// A reviewer does what the one file that it is given says.
func TestAssignment(t *testing.T) {
	a := assignment{token: "r1-2-x", verdict: fail, takes: 1250 * time.Millisecond}
	for task, want := range map[string]assignment{
		"Review this:\n==== a\n" + a.String() + "====\n": a,
		"Review this:\n":                  {},
		a.String() + a.String():           {},
		"proof-review r1-2-x perhaps 3\n": {},
	} {
		if got, err := assignmentIn([]byte(task)); got != want || (err == nil) != (want == a) {
			t.Errorf("%q: %+v, %v", task, got, err)
		}
	}
}
