package task

import (
	"fmt"
	"slices"
	"testing"
)

func TestCycle(t *testing.T) {
	on := map[string][]string{"a": {"b", "c"}, "b": {"d"}, "c": {"d", "a"}, "d": {"e"}, "e": {"d"}}
	for id, want := range map[string][]string{"a": {"a", "c", "a"}, "b": nil, "d": {"d", "e", "d"}, "z": nil} {
		if got := Cycle(id, on); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", id, got, want)
		}
	}
	if got := Cyclic(on); got != "d" {
		t.Errorf("%q is said to be on a cycle", got)
	}
	if got := Cyclic(map[string][]string{"a": {"b"}, "b": {"d"}, "d": {"e"}, "e": {"d"}}); got != "d" {
		t.Errorf("%q is said to be on a cycle", got)
	}
	// A graph with 2^60 ways is looked at once per task.
	wide := map[string][]string{}
	for i := range 60 {
		wide[fmt.Sprint("l", i)] = []string{fmt.Sprint("r", i+1), fmt.Sprint("l", i+1)}
		wide[fmt.Sprint("r", i)] = []string{fmt.Sprint("r", i+1), fmt.Sprint("l", i+1)}
	}
	if got, on := Cycle("l0", wide), Cyclic(wide); got != nil || on != "" {
		t.Error(got, on)
	}
}
