package workflow

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/session/store"
)

// counted counts what is looked for in the folder.
type counted struct {
	*fileRecords
	lists, peeks atomic.Int64
}

func (c *counted) List() iter.Seq2[store.Info, error] {
	c.lists.Add(1)
	return c.fileRecords.List()
}

func (c *counted) Peek(id string) (*State, error) {
	c.peeks.Add(1)
	return c.fileRecords.Peek(id)
}

// A request_id that is new costs no look through the folder while this server is
// alone in it; and one that another server has seen is found all the same.
func TestARequestIsLookedForWhereAnotherServerMayHaveSeenIt(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	srv := p.open()
	records := &counted{fileRecords: srv.records.(*fileRecords)}
	srv.records = records
	c := srv.Connect("local")
	start := func(c *Conn, request string) string {
		t.Helper()
		r, err := c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", RequestID: &request})
		if err != nil {
			t.Fatal(err)
		}
		return r.BeginStep.SessionID
	}
	for n := range 20 {
		start(c, fmt.Sprintf("mine %d", n))
	}
	// Before it had entered the folder itself, and once it had.
	if n := records.lists.Load(); n > 2 {
		t.Errorf("20 requests looked through the folder %d times", n)
	}

	other := p.open()
	theirs := other.Connect("local")
	first := start(theirs, "theirs 1")
	theirs.Close()
	if got := start(c, "theirs 1"); got != first {
		t.Errorf("repeated to another server that lives, it started %s beside %s", got, first)
	}
	theirs = other.Connect("local")
	second := start(theirs, "theirs 2")
	if left := other.Close(ctx); left != nil {
		t.Fatal(left)
	}
	if got := start(c, "theirs 2"); got != second {
		t.Errorf("repeated to another server than the one that is gone, it started %s beside %s", got, second)
	}

	start(c, "mine, alone again")
	records.lists.Store(0)
	for n := range 20 {
		start(c, fmt.Sprintf("mine again %d", n))
	}
	if n := records.lists.Load(); n != 0 {
		t.Errorf("alone again, 20 requests looked through the folder %d times", n)
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
		if _, err := c.Abort(ctx, a); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(patience); srv.Stats().Awake > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("of %d sessions that have ended %d are in memory", n, srv.Stats().Awake)
		}
	}
	r, err := c.Abort(ctx, AbortArgs{Explanation: reason, RequestID: &request})
	if err != nil || r.Explanation != reason {
		t.Errorf("the first call, repeated: %s, %v", toJSON(t, r), err)
	}
	if s := p.record(first); s.Status != Aborted {
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
		if err != nil {
			t.Fatal(err)
		}
		return r.BeginStep.SessionID
	}
	first := p.open()
	want := start(first.Connect("local"), "forward")
	first.stop()
	file := filepath.Join(p.root, ".deepwork", "tmp", "session_"+want+".json")
	old := time.Now().Add(-40 * 24 * time.Hour)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
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
	if err := os.Chtimes(file, clock(), clock()); err != nil {
		t.Fatal(err)
	}
	if got := start(c, "back"); got != want {
		t.Errorf("after the clock was set back %s was begun beside %s", got, want)
	}
}

// Of many files those that were written last are kept, whatever the order.
func TestNewestFiles(t *testing.T) {
	var n newestFiles
	began := time.Now()
	for _, i := range rand.Perm(1000) {
		n.add(store.Info{ID: strconv.Itoa(i), ModTime: began.Add(-time.Duration(i) * time.Hour)})
		if len(n.files) >= 2*keptNewest {
			t.Fatalf("%d are held", len(n.files))
		}
	}
	all := n.all()
	if len(all) != keptNewest || all[0].ID != "0" || all[keptNewest-1].ID != strconv.Itoa(keptNewest-1) {
		t.Errorf("%d, from %+v to %+v", len(all), all[0], all[len(all)-1])
	}
}
