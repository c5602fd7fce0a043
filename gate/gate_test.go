package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// gated opens a gate whose reviewers end when the test says so.
func (p *project) gated(capacity int) (*Gate, *testkit.Hub) {
	h := testkit.NewHub(p.t)
	return p.gate(always(Settings{Command: command("gated", h.Addr().String()), MaxConcurrent: capacity})), h
}

// files makes n of them and plans a review of each.
func (p *project) files(n int) (Submission, []Task) {
	var paths []string
	for i := range n {
		paths = append(paths, fmt.Sprintf("doc%03d.md", i))
		p.write(paths[i], "text\n")
	}
	s := p.submission("docs").submit("docs", paths...)
	return s, p.plan(s)
}

// settle waits until the gate is as wanted.
func settle(t *testing.T, g *Gate, what string, ok func(Stats) bool) {
	t.Helper()
	testkit.Until(t, what, func() bool { return ok(g.Stats()) })
}

func TestSessionsTakeTurns(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	g, h := p.gated(1)
	many, tasks := p.files(40)
	var mu sync.Mutex
	var order []string
	note := func(session string) func(Verdict) {
		return func(v Verdict) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, session)
		}
	}
	done := make(chan Verdict, 41)
	both := func(session string) func(Verdict) {
		n := note(session)
		return func(v Verdict) { n(v); done <- v }
	}
	testkit.Must(t, g.Run(t.Context(), "A", many, tasks, both("A")))
	next := h.Next() // one of A's runs, 39 wait
	one := p.submission("step")
	testkit.Must(t, g.Run(t.Context(), "B", one, p.plan(one), both("B")))
	if s := g.Stats(); s.Running != 1 || s.Queued != 40 || s.Capacity != 1 {
		t.Errorf("%+v", s)
	}
	for i := range 41 {
		if i > 0 {
			next = h.Next()
		}
		fmt.Fprintln(next, passes)
		if v := <-done; v.Err != nil || !v.Passed { // each is delivered before another can end
			t.Fatalf("got %+v", v)
		}
	}
	if at := slices.Index(order, "B"); at > 2 {
		t.Errorf("B came as number %d of %v", at+1, order)
	}
	settle(t, g, "idle", func(s Stats) bool { return s == Stats{Done: 41, Passed: 41, Capacity: 1} })
}

func TestNeverMoreThanTheCapacity(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	h := testkit.NewHub(t)
	g := p.gate(always(Settings{Command: command("work", h.Addr().String(), "5ms"), MaxConcurrent: 3}))
	most := count(t, h, 3)
	s, tasks := p.files(30)
	verdicts := collect(t, t.Context(), g, "a", s, tasks)
	for range tasks {
		if v := <-verdicts; v.Err != nil {
			t.Fatal(v.Err)
		}
	}
	if n := most(); n != 3 {
		t.Errorf("up to %d reviewers ran at once, want 3", n)
	}
}

// count serves working reviewers and returns how many of them were there at once;
// none begins to work before so many are there.
func count(t testing.TB, h *testkit.Hub, together int) (most func() int) {
	var now, peak atomic.Int64
	gathered := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := h.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				buf := make([]byte, 100)
				if _, err := c.Read(buf); err != nil {
					return
				}
				n := now.Add(1)
				for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
				}
				if peak.Load() >= int64(together) {
					once.Do(func() { close(gathered) })
				}
				select {
				case <-gathered:
				case <-time.After(patience): // they do not run at once: the peak shows it
				}
				c.Write([]byte("\n"))
				c.Read(buf) // "end"
				now.Add(-1)
				c.Write([]byte("\n"))
			})
		}
	})
	t.Cleanup(func() { h.Close(); wg.Wait() })
	return func() int { return int(peak.Load()) }
}

func TestSettingsTakeEffectForWhatIsNotStarted(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	h := testkit.NewHub(t)
	var now atomic.Pointer[Settings]
	now.Store(&Settings{Command: command("gated", h.Addr().String()), MaxConcurrent: 1})
	g := p.gate(func() Settings { return *now.Load() })
	s, tasks := p.files(6)
	verdicts := collect(t, t.Context(), g, "a", s, tasks)
	first := h.Next()
	if st := g.Stats(); st.Running != 1 || st.Queued != 5 {
		t.Fatalf("%+v", st)
	}
	// A larger pool is used though nothing ends.
	now.Store(&Settings{Command: command("gated", h.Addr().String()), MaxConcurrent: 3})
	second, third := h.Next(), h.Next()
	if st := g.Stats(); st.Running != 3 || st.Queued != 3 || st.Capacity != 3 {
		t.Errorf("%+v", st)
	}
	// A smaller one lets those that run end; another reviewer is for the others.
	now.Store(&Settings{Command: command("fail"), MaxConcurrent: 1})
	for _, v := range []*testkit.Visitor{first, second, third} {
		fmt.Fprintln(v, passes)
	}
	passed := 0
	for range 6 {
		v := <-verdicts
		testkit.Need(t, v.Err == nil, "%v", v.Err)
		if v.Passed {
			passed++
		}
		testkit.True(t, v.Passed == strings.Contains(v.Reviewer, "gated"), "reviewer %s, passed %v", v.Reviewer, v.Passed)
	}
	testkit.True(t, passed == 3, "%d passed", passed)
}

// A reviewer of a submission that is no longer allowed when its turn comes does not start; whether
// the configured one is, does not matter.
func TestAReviewerIsAllowedRightBeforeItStarts(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	h := testkit.NewHub(t)
	refusal := errors.New("it was swapped")
	g := p.gate(always(Settings{Command: command("fail"), MaxConcurrent: 1, Allowed: func() error { return refusal }}))
	s, tasks := p.files(2)
	var swapped atomic.Bool
	s.Reviewer = &Reviewer{Command: command("gated", h.Addr().String()), Allowed: func() error {
		if swapped.Load() {
			return refusal
		}
		return nil
	}}
	verdicts := collect(t, t.Context(), g, "a", s, tasks)
	first := h.Next()
	swapped.Store(true)
	fmt.Fprintln(first, passes)
	passed, refused := <-verdicts, <-verdicts // they come in any order
	if refused.Passed {
		passed, refused = refused, passed
	}
	testkit.True(t, passed.Err == nil && passed.Passed, "%+v", passed)
	if e, is := errors.AsType[*Error](refused.Err); !is || e.Code != NotStarted || !errors.Is(e, refusal) {
		t.Errorf("%+v", refused)
	}
}

func TestCancelEndsWhatRunsAndWhatWaits(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	g, h := p.gated(2)
	s, tasks := p.files(10)
	ctx, cancel := context.WithCancel(t.Context())
	mine := collect(t, ctx, g, "A", s, tasks)
	running := []*testkit.Visitor{h.Next(), h.Next()}
	other := collect(t, t.Context(), g, "A", s, tasks[:1]) // of the same session
	cancel()
	seen := make(map[string]bool)
	for range tasks {
		v := <-mine
		fault(t, v, Cancelled)
		seen[v.Task.Key] = true
	}
	testkit.True(t, len(seen) == 10, "verdicts of %d tasks", len(seen))
	for _, r := range running {
		r.Gone()
	}
	fmt.Fprintln(h.Next(), passes)
	if v := <-other; v.Err != nil || !v.Passed {
		t.Errorf("the other call's: %+v", v)
	}
	settle(t, g, "idle", func(s Stats) bool { return s == Stats{Done: 1, Passed: 1, Failed: 10, Capacity: 2} })
}

func TestQueueLimit(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	h := testkit.NewHub(t)
	g := Open(Options{Root: p.root, Settings: always(Settings{Command: command("gated", h.Addr().String()), MaxConcurrent: 1})})
	defer g.Close(t.Context())
	s, tasks := p.files(queueLimit + 3)
	// One that comes alone is taken whole, else it never would be.
	ctx, cancel := context.WithCancel(t.Context())
	first := collect(t, ctx, g, "A", s, tasks)
	h.Next()
	err := g.Run(t.Context(), "B", s, tasks[:1], func(Verdict) { t.Error("called") })
	testkit.True(t, errors.Is(err, ErrBusy) && strings.Contains(err.Error(), "1002, and 1 run; there is room for 1000"), "got %v", err)
	cancel()
	for range tasks {
		<-first
	}
	settle(t, g, "idle", func(s Stats) bool { return s.Queued+s.Running == 0 })
	second := collect(t, t.Context(), g, "B", s, tasks[:queueLimit+1])
	h.Next()
	if err := g.Run(t.Context(), "C", s, tasks[:1], nil); !errors.Is(err, ErrBusy) {
		t.Errorf("one that waits too many: %v", err)
	}
	testkit.Must(t, g.Close(t.Context()))
	for range queueLimit + 1 {
		fault(t, <-second, Cancelled, "the server is stopping")
	}
	if err := g.Run(t.Context(), "D", s, tasks[:1], nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestNoTaskIsNoCall(t *testing.T) {
	p := newProject(t)
	g := p.gate(func() Settings { t.Error("the settings were read"); return Settings{} })
	testkit.Must(t, g.Run(t.Context(), "A", p.submission("step"), nil, func(Verdict) { t.Error("called") }))
}

func TestVerdictsComeOneAtATime(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	g := p.gate(always(Settings{Command: command("pass"), MaxConcurrent: 4}))
	s, tasks := p.files(12)
	var inside atomic.Int64
	done := make(chan struct{})
	n := 0
	err := g.Run(t.Context(), "A", s, tasks, func(Verdict) {
		testkit.True(t, inside.Add(1) == 1, "two calls at once")
		defer inside.Add(-1)
		if n++; n == len(tasks) {
			close(done)
		}
		if n == 3 {
			panic("a caller that fails")
		}
	})
	testkit.Must(t, err)
	<-done
}

// A caller that does not take its verdicts holds up nobody else.
func TestSlowCallerHoldsUpNobody(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	g := p.gate(always(Settings{Command: command("pass"), MaxConcurrent: 1}))
	s, tasks := p.files(5)
	release := make(chan struct{})
	slow := make(chan Verdict, 5)
	testkit.Must(t, g.Run(t.Context(), "A", s, tasks, func(v Verdict) { <-release; slow <- v }))
	quick := collect(t, t.Context(), g, "B", s, tasks)
	for range tasks {
		if v := <-quick; v.Err != nil {
			t.Error(v.Err)
		}
	}
	close(release)
	for range tasks {
		<-slow
	}
}

func TestCloseNamesWhatDoesNotStop(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	g := Open(Options{Root: p.root, Settings: always(Settings{Command: command("pass")})})
	s, tasks := p.files(1)
	release, called := make(chan struct{}), make(chan struct{})
	testkit.Must(t, g.Run(t.Context(), "0a1b2c3d", s, tasks, func(Verdict) { close(called); <-release }))
	<-called
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := g.Close(ctx)
	testkit.True(t, errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "the delivery of verdicts to session 0a1b2c3d"), "got %v", err)
	close(release)
	testkit.Must(t, g.Close(t.Context()))
}
