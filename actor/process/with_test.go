package process

import (
	"slices"
	"testing"
)

func TestWithChangesAnEnvironment(t *testing.T) {
	got := With([]string{"A=1", "B=2", "C=3"}, "B", "D=4", "a=5")
	if !slices.Equal(got, []string{"A=1", "C=3", "D=4", "a=5"}) {
		t.Errorf("it is %v", got)
	}
}
