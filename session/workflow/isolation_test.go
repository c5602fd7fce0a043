package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

func TestAnotherIdentityDoesNotLearnThatASessionExists(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv, other := p.open(), p.open()
	c := srv.Connect("alice")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	said := func(mallory *Conn, id string) string {
		t.Helper()
		var all []string
		for _, call := range []func() error{
			func() error { _, err := mallory.Step(ctx, StepArgs{SessionID: &id}); return err },
			func() error { _, err := mallory.Abort(ctx, AbortArgs{Explanation: "x", SessionID: &id}); return err },
			func() error { _, err := mallory.GoTo(ctx, GoToArgs{StepID: "one", SessionID: &id}); return err },
			func() error {
				_, err := mallory.Finish(ctx, FinishArgs{Outputs: outputs("report", "r.md"), SessionID: &id})
				return err
			},
			func() error {
				_, err := mallory.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", ParentSessionID: &id})
				return err
			},
		} {
			err := call()
			refused(t, err, session.StateError, "unknown_session")
			var e *session.Error
			errors.As(err, &e)
			all = append(all, strings.ReplaceAll(err.Error()+toJSON(t, e.Details), id, "ID"))
		}
		return strings.Join(all, "\n")
	}
	for _, connect := range []func(*server) *Conn{
		func(s *server) *Conn { return s.Connect("mallory") },
		func(s *server) *Conn { return s.ConnectStateless("mallory") },
	} {
		nothing := said(connect(srv), "00000000")
		if got := said(connect(srv), id); got != nothing {
			t.Errorf("of a session that is awake:\n%s\nof none:\n%s", got, nothing)
		}
		testkit.Must(t, srv.sessions.Passivate(ctx, id))
		if got := said(connect(srv), id); got != nothing {
			t.Errorf("of a session that is asleep:\n%s", got)
		}
		if got := said(connect(other), id); got != nothing {
			t.Errorf("of a session of another server:\n%s", got)
		}
	}
	c.Close()
	if got := said(srv.Connect("mallory"), id); got != said(srv.Connect("mallory"), "00000000") {
		t.Errorf("of a session that nobody holds:\n%s", got)
	}
	if s := p.record(id); s.Revision != 0 || s.CurrentStepID != "one" || s.Status != machine.Active {
		t.Errorf("the refused calls touched the session: %s", toJSON(t, s))
	}
}

func TestWhatOneConnectionDoesIsInvisibleToTheOthersStacks(t *testing.T) {
	p := newProject(t)
	p.simple("alpha")
	p.write("r.md", "x")
	srv := p.open()
	mine, others := srv.Connect("local"), srv.Connect("local")
	own := p.start(mine, "alpha", "main").BeginStep.SessionID
	same := func(when string) {
		t.Helper()
		s := mine.stackOf(ctx, "")
		if len(s) != 1 || s[0].SessionID != own || s[0].Step != "one" {
			t.Errorf("after %s the stack is %v", when, s)
		}
		if r, err := mine.Step(ctx, StepArgs{}); err != nil || r.BeginStep.SessionID != own || len(r.Stack) != 1 {
			t.Errorf("after %s get_step gives %s, %v", when, toJSON(t, r), err)
		}
	}
	theirs := p.start(others, "alpha", "main").BeginStep.SessionID
	same("a start")
	p.finish(others, `{"outputs":{"report":"r.md"}}`)
	same("a step")
	p.start(others, "alpha", "main")
	testkit.Must(t, errOf(others.Abort(ctx, AbortArgs{Explanation: "x"})))
	same("an abort")
	p.finish(others, `{"outputs":{"report":"r.md"},"session_id":"`+theirs+`"}`)
	same("a completion")
	others.Close()
	same("the end of the connection")
}

// TestTwoServersUnderConcurrentCalls has agents start, finish, abort, close and
// resume at random, over two servers of one project: no call is refused that one server would
// carry out, and the records have exactly what was acknowledged.
func TestTwoServersUnderConcurrentCalls(t *testing.T) {
	p := newProject(t)
	const steps = 400
	var list []testStep
	var ids []string
	for i := range steps {
		ids = append(ids, "s"+strconv.Itoa(i))
		list = append(list, testStep{id: ids[i]})
	}
	p.job("alpha", list, map[string]string{"main": "[" + strings.Join(ids, ", ") + "]"})
	servers := []*server{p.open(), p.open()}
	var l ledger
	agents, calls := 8, 60
	if testing.Short() {
		calls = 20
	}
	var wg sync.WaitGroup
	for range agents {
		wg.Go(func() {
			for calls := calls; calls > 0; {
				n := min(1+rand.IntN(12), calls)
				calls -= n
				srv := servers[rand.IntN(2)]
				if rand.IntN(4) == 0 {
					l.agent(t, srv.ConnectStateless("local"), n)
					continue
				}
				c := srv.Connect("local")
				l.agent(t, c, n)
				c.Close()
			}
		})
	}
	wg.Wait()
	finished, taken := 0, 0
	for id, e := range l.sessions {
		s := p.record(id)
		done := 0
		for _, pr := range s.StepProgress {
			if pr.Value.CompletedAt != nil {
				done++
			}
		}
		if done != len(e.finished) {
			t.Errorf("session %s: %d steps were acknowledged, %d are recorded", id, len(e.finished), done)
		}
		if (s.Status == machine.Aborted) != e.aborted {
			t.Errorf("session %s is %s; abort acknowledged: %v", id, s.Status, e.aborted)
		}
		finished += done
		taken += e.taken
	}
	if finished == 0 || taken == 0 {
		t.Errorf("%d steps were finished, and sessions taken up %d times: nothing was tried", finished, taken)
	}
	t.Logf("%d sessions, %d steps, taken up %d times, refused %d times", len(l.sessions), finished, taken, l.refused)
}

// A ledger is what was acknowledged.
type ledger struct {
	mu       sync.Mutex
	sessions map[string]*account
	refused  int
}

// An account is one session's.
type account struct {
	finished map[string]bool // the step that each reply began
	aborted  bool
	taken    int
}

// agent makes n calls on a connection.
func (l *ledger) agent(t *testing.T, c *Conn, n int) {
	for range n {
		id := l.pick()
		switch k := rand.IntN(20); {
		case k == 0 || id == "":
			r, err := c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main"})
			if err != nil {
				t.Errorf("start_workflow: %v", err)
				return
			}
			l.note(r.BeginStep.SessionID, func(a *account) {})
		case k == 1:
			_, err := c.Abort(ctx, AbortArgs{Explanation: fmt.Sprint(rand.Int()), SessionID: &id})
			if l.refusal(t, "abort_workflow", err) {
				continue
			}
			l.note(id, func(a *account) {
				if a.aborted {
					t.Errorf("session %s was aborted twice", id)
				}
				a.aborted = true
			})
		case k < 6:
			_, err := c.Step(ctx, StepArgs{SessionID: &id})
			if !l.refusal(t, "get_step", err) {
				l.note(id, func(a *account) { a.taken++ })
			}
		default:
			r, err := c.Finish(ctx, FinishArgs{Outputs: json.RawMessage("{}"), SessionID: &id})
			if l.refusal(t, "finished_step", err) {
				continue
			}
			l.note(id, func(a *account) {
				if a.finished[r.BeginStep.StepID] {
					t.Errorf("session %s: two calls began step %s", id, r.BeginStep.StepID)
				}
				a.finished[r.BeginStep.StepID] = true
			})
		}
	}
}

func (l *ledger) pick() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, a := range l.sessions { // any: the map's order is random
		if !a.aborted || rand.IntN(10) == 0 {
			return id
		}
	}
	return ""
}

func (l *ledger) note(id string, f func(*account)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions == nil {
		l.sessions = map[string]*account{}
	}
	if l.sessions[id] == nil {
		l.sessions[id] = &account{finished: map[string]bool{}}
	}
	f(l.sessions[id])
}

// refusal reports whether a call was refused, for a reason there may be.
func (l *ledger) refusal(t *testing.T, tool string, err error) bool {
	if err == nil {
		return false
	}
	switch session.CodeOf(err) {
	case "session_ended":
	default:
		t.Errorf("%s: %v", tool, err)
	}
	l.mu.Lock()
	l.refused++
	l.mu.Unlock()
	return true
}
