package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"deepwork/session/workflow"
)

// The parts of the sessions with which something out of the ordinary is done.
const (
	partAborted  = 0.05
	partBack     = 0.04 // of those, a step is gone back to
	partRead     = 0.10 // get_step is called
	partListed   = 0.02 // get_workflows is called
	partVanished = 0.01 // the client crashes, and takes its work up again
	partMoved    = 0.05 // the work is taken up on the other server
	partNamed    = 0.50 // of the calls, those that name their session
	partRequest  = 0.50 // of the calls of finished_step, those with a request_id
	partSpot     = 0.02 // of the transitions, those whose file is looked at at once
)

// callWithin is how long a call may take before it counts as failed.
const callWithin = 30 * time.Second

const (
	// mostFailures is after how many rounds in a row that failed an agent gives up.
	mostFailures = 10
	// afterFailure is how long it waits after one.
	afterFailure = 100 * time.Millisecond
)

// errOver ends an agent's work: the time is over.
var errOver = errors.New("the time is over")

// An agent is one client with its stack of sessions, one nested in the other.
type agent struct {
	*run
	index  int
	client *client
	stack  []*account
	took   latencies
	rounds int
	// crashed is when the client crashed last. Its server does not know: until its
	// connection was idle for too long it keeps the sessions from the other one.
	crashed time.Time

	mu   sync.Mutex // the members of a group are parallel
	rng  *rand.Rand
	next int // number of calls
}

func newAgent(r *run, index int) *agent {
	return &agent{run: r, index: index, rng: rand.New(rand.NewPCG(r.Seed, uint64(index)))}
}

// chance is true in this part of the cases.
func (a *agent) chance(part float64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rng.Float64() < part
}

func (a *agent) below(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rng.IntN(n)
}

// number is unlike that of any other call of the run.
func (a *agent) number() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next++
	return fmt.Sprintf("%x-%d-%d", a.Seed, a.index, a.next)
}

// work builds stack after stack until the time is over. What goes wrong is noted,
// and the work begun anew on a fresh connection.
func (a *agent) work(ctx context.Context) {
	defer func() {
		if a.client != nil {
			if err := a.client.leave(); err != nil {
				a.wrong.add("a connection that did not end", err.Error())
			}
		}
	}()
	for failed := 0; failed < mostFailures && !a.over(ctx); {
		err := a.round(ctx)
		if err == nil {
			failed = 0
			continue
		}
		failed++
		if errors.Is(err, errOver) || ctx.Err() != nil {
			return
		}
		kind := "a call that failed"
		if code := refusedWith(err); code != "" {
			kind = "a call that was refused: " + code
		} else if w, ok := errors.AsType[*wrongReply](err); ok {
			kind = w.kind
		} else if errors.Is(err, errHeldUp) {
			kind = ""
			a.heldUp.Add(1)
		}
		if kind != "" {
			a.wrong.add(kind, err.Error())
		}
		a.stack = nil
		if a.client != nil {
			a.client.vanish()
			a.client = nil
		}
		if wait(ctx, afterFailure) != nil {
			return
		}
	}
}

// round builds one stack, and takes it down.
func (a *agent) round(ctx context.Context) error {
	if a.client == nil {
		c, err := connect(ctx, a.servers[a.index%len(a.servers)], a.Stateless)
		if err != nil {
			return err
		}
		a.client = c
	}
	a.rounds++
	return a.nest(ctx, 0)
}

// nest works a session, and in the middle of it one that is nested in it.
func (a *agent) nest(ctx context.Context, level int) error {
	if !a.another() {
		return errOver
	}
	s, err := a.start(ctx, level)
	if err != nil {
		return err
	}
	if a.chance(partListed) {
		if err := a.list(ctx); err != nil {
			return err
		}
	}
	if err := a.finish(ctx, s, stepPlan); err != nil {
		return err
	}
	if a.over(ctx) {
		return errOver
	}
	if err := a.disturb(ctx, s); err != nil {
		return err
	}
	if level+1 < a.Depth {
		if err := a.nest(ctx, level+1); err != nil {
			return err
		}
	}
	if a.over(ctx) {
		return errOver
	}
	if err := a.finishGroup(ctx, s); err != nil {
		return err
	}
	if a.chance(partBack) {
		if err := a.goBack(ctx, s); err != nil {
			return err
		}
		if err := a.finish(ctx, s, stepPlan); err != nil {
			return err
		}
		if err := a.finishGroup(ctx, s); err != nil {
			return err
		}
	}
	if a.chance(partAborted) {
		return a.abort(ctx, s)
	}
	return a.finish(ctx, s, stepWrap)
}

// disturb does now and then what connections do: they crash, they move, and
// agents lose what they have read.
func (a *agent) disturb(ctx context.Context, s *account) error {
	switch {
	case !a.Stateless && len(a.servers) > 1 && time.Since(a.crashed) > forgottenAfter && a.chance(partMoved):
		return a.move(ctx, s)
	case !a.Stateless && a.chance(partVanished):
		return a.comeBack(ctx, s)
	case a.chance(partRead):
		_, err := a.read(ctx, s, false)
		return err
	}
	return nil
}

// finishGroup finishes the members of the group, all at once.
func (a *agent) finishGroup(ctx context.Context, s *account) error {
	m, err := s.model(a.Group, nil)
	if err != nil {
		return wrongf(wrongDoubled, "session %s: %v", s.id, err)
	}
	members := m.open() // all, but for one that two servers were asked to finish
	errs := make([]error, len(members))
	advanced := make([]bool, len(members))
	var wg sync.WaitGroup
	for i, step := range members {
		wg.Go(func() { advanced[i], errs[i] = a.finishMember(ctx, s, step) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	n := 0
	for _, yes := range advanced {
		if yes {
			n++
		}
	}
	if n != 1 {
		return wrongf("a group that did not advance once", "session %s: %d of the %d members of its group were told that the next step begins", s.id, n, len(members))
	}
	return nil
}

// A wrongReply is a reply that must not have been given.
type wrongReply struct{ kind, text string }

func (w *wrongReply) Error() string { return w.text }

func wrongf(kind, format string, args ...any) error {
	return &wrongReply{kind, fmt.Sprintf(format, args...)}
}

// errHeldUp is of a call that failed because the machine stood still for so long: a job
// was away in the middle of a save, or a connection was idle.
var errHeldUp = errors.New("the machine has held up the load")

// misdefined is a reply that is made of a wrong definition.
func (a *agent) misdefined(m mark, format string, args ...any) error {
	if a.book.wasAway(m) {
		return errHeldUp
	}
	return wrongf(wrongDefinition, format, args...)
}

// top is the session on top of the stack, or nil.
func (a *agent) top() *account {
	if len(a.stack) == 0 {
		return nil
	}
	return a.stack[len(a.stack)-1]
}

// pop takes down the session on top, which has ended.
func (a *agent) pop() { a.stack = a.stack[:len(a.stack)-1] }

// sameStack checks that a reply tells the stack that the agent has built. A
// stateless server may have let go of what was not used for long.
func (a *agent) sameStack(got []workflow.StackEntry, want []*account) error {
	same := len(got) == len(want)
	for i := range min(len(got), len(want)) {
		same = same && got[i].SessionID == want[i].id && got[i].Workflow == jobName(want[i].job)+"/"+workflowName
	}
	if same {
		return nil
	}
	var ids []string
	for _, s := range want {
		ids = append(ids, s.id)
	}
	return wrongf("a wrong stack", "agent %d: the reply's stack is %v, and the sessions are %v", a.index, got, ids)
}
