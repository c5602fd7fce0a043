package main

import (
	"flag"
	"os"
	"testing"

	"deepwork/actor/testkit"
)

var runsTime = flag.Duration("runs.time", 0, "how long processes of TestRuns are killed; 0 skips it")

// TestRuns kills leaders, servers, shims and agents of runs at any moment: each run is completed, and no
// step is finished twice or has two agents at once.
func TestRuns(t *testing.T) {
	t.Parallel()
	if *runsTime == 0 {
		t.Skip("-runs.time=3s runs it")
	}
	seed := seedOf()
	self := testkit.Get(os.Executable()).Must(t)
	r := newRuns(t.TempDir(), seed, *runsTime)
	testkit.Must(t, os.MkdirAll(r.root, 0o755))
	testkit.Must(t, r.layOut(t.Context(), self))
	testkit.Must(t, r.live(t.Context()))
	t.Log(r)
	_, what := r.history.found()
	testkit.True(t, what == "" && r.attempts > 0,
		"%s\nTo repeat it (timing may differ, so perhaps more than once): go test ./cmd/proof -run '^TestRuns$' "+
			"-runs.time=%v -sim.seed=%d", what, *runsTime, seed)
}
