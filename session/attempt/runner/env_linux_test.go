package runner

import (
	"testing"

	"deepwork/session/git"
)

// A server that git has started has variables by which git would work on the main
// checkout, wherever it is called.
func TestAgentIsBoundToNoRepository(t *testing.T) {
	b := newBench(t)
	for _, name := range git.Bound {
		t.Setenv(name, "/main/.git")
	}
	t.Setenv("GIT_SSH_COMMAND", "ssh -x")
	s := b.spec("1", "")
	s.Command = []string{"sh", "-c", "env | grep -e =/main -e ^GIT_N -e ^GIT_SSH | sort"}
	s.Env = []string{"GIT_NAMESPACE=own"} // what the config says counts
	b.run(s)
	if got, want := texts(b.log(), Stdout), "GIT_NAMESPACE=own|GIT_SSH_COMMAND=ssh -x"; got != want {
		t.Errorf("the agent has %q, want %q", got, want)
	}
}
