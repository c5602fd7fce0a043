package workflow

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/workflow/machine"
)

// A call that is repeated to another server is not done twice, whether the first one
// lives or is gone; nor is it if the index of request ids was lost.
func TestARequestIsKnownToAnotherServer(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	c, other := p.open().Connect("local"), p.open()
	start := func(c *Conn, request string) string {
		t.Helper()
		r, err := c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", RequestID: &request})
		testkit.Must(t, err)
		return r.BeginStep.SessionID
	}
	start(c, "mine")
	theirs := other.Connect("local")
	first := start(theirs, "theirs 1")
	theirs.Close()
	if got := start(c, "theirs 1"); got != first {
		t.Errorf("repeated to another server that lives, it started %s beside %s", got, first)
	}
	theirs = other.Connect("local")
	second, third := start(theirs, "theirs 2"), start(theirs, "theirs 3")
	if left := other.Close(ctx); left != nil {
		t.Fatal(left)
	}
	if got := start(c, "theirs 2"); got != second {
		t.Errorf("repeated to another server than the one that is gone, it started %s beside %s", got, second)
	}
	testkit.Must(t, os.Remove(filepath.Join(p.state().Servers(), "requests.idx")))
	if got := start(c, "theirs 3"); got != third {
		t.Errorf("without the index, it started %s beside %s", got, third)
	}
	// What was only about to be done when its server died is done.
	key := requestKey{"local", machine.ToolStart, "never"}.digest()
	testkit.Must(t, c.engine.records.(*storedRecords).NoteRequest(ctx, key, "00000bad"))
	if got := start(c, "never"); got == "00000bad" {
		t.Error("it was taken for done")
	}
}

// Sessions that have ended leave memory, and are there when they are asked for.
func TestSessionsThatEndedDoNotStayInMemory(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	srv := p.open()
	c := srv.Connect("local")
	const n = 40
	request, reason := "stop it", "enough"
	var first string
	for i := range n {
		r := p.start(c, "alpha", "main")
		a := AbortArgs{Explanation: reason}
		if i == 0 {
			first, a.RequestID = r.BeginStep.SessionID, &request
		}
		testkit.Must(t, errOf(c.Abort(ctx, a)))
	}
	testkit.Until(t, "free of sessions that have ended", func() bool { return srv.Stats().Awake == 0 })
	r, err := c.Abort(ctx, AbortArgs{Explanation: reason, RequestID: &request})
	if err != nil || r.Explanation != reason {
		t.Errorf("the first call, repeated: %s, %v", toJSON(t, r), err)
	}
	if s := p.record(first); s.Status != machine.Aborted {
		t.Errorf("session %s is %s", first, s.Status)
	}
}

// A clock that is set forward, or back, between a call and its repetition to
// another server does not have it done twice (DESIGN "Retries").
func TestARepetitionIsKnownThoughTheClockWasSet(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	start := func(c *Conn, request string) string {
		t.Helper()
		r, err := c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", RequestID: &request})
		testkit.Must(t, err)
		return r.BeginStep.SessionID
	}
	first := p.open()
	want := start(first.Connect("local"), "forward")
	first.stop()
	file := filepath.Join(p.root, ".deepwork", "tmp", "session_"+want+".json")
	old := time.Now().Add(-40 * 24 * time.Hour)
	testkit.Must(t, os.Chtimes(file, old, old))
	var back atomic.Int64
	clock := func() time.Time { return time.Now().Add(-time.Duration(back.Load())) }
	second := p.open(func(o *Options) { o.Now = clock })
	c := second.Connect("local")
	if got := start(c, "forward"); got != want {
		t.Errorf("after the clock was set forward %s was begun beside %s", got, want)
	}

	// The second server has looked by now; the clock goes back, and another writes.
	back.Store(int64(time.Hour))
	other := p.open(func(o *Options) { o.Now = clock })
	want = start(other.Connect("local"), "back")
	if left := other.Close(ctx); left != nil {
		t.Fatal(left)
	}
	file = filepath.Join(p.root, ".deepwork", "tmp", "session_"+want+".json")
	testkit.Must(t, os.Chtimes(file, clock(), clock()))
	if got := start(c, "back"); got != want {
		t.Errorf("after the clock was set back %s was begun beside %s", got, want)
	}
}
