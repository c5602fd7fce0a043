package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"deepwork/actor/telemetry"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/check"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/record"
	"deepwork/session/store"
	"deepwork/session/work"
)

// Judging is carried out outside of the actor, as work of the process's loop: it has the programs judge, then the
// reviewers, and asks the actor to record what they say. Calls wait for it, and move the step.
//
// A submission is with programs or reviewers exactly as long as there is a row of this work, which each transition
// sees to. The row belongs to the place and the root of the engine that judges, since the files are there: when its
// server has ended, another server of that place goes on. Elsewhere, only a call takes over, with what it hands in.

// maxClaims is how often judging a submission is begun. One that ends its servers must not be begun for ever.
const maxClaims = 3

// A running is a turn of programs or reviewers with a submission, which this process carries out.
type running struct {
	row    store.WorkRow
	step   string
	id     int64 // of the submission
	look   *look
	turn   judging.Turn
	span   telemetry.Ref // of the turn
	total  int           // number of verdicts to come
	order  map[string]int
	known  []*judging.Verdict // those of this kind that the submission has already
	checks *check.Round       // for programs; there is one verdict of the gate then
	pool   *gate.Gate         // carries out the tasks
	of     gate.Submission
	tasks  []gate.Task
	task   *work.Task // of the loop

	mu   sync.Mutex    // guards the following fields
	done int           // number of verdicts
	news chan struct{} // closed when there is another one, or the turn is over
	over bool
	last *check.Content // what the checks have seen last, a moment ago; nil means nothing
}

// awaited returns what a call waits for.
func (j *running) awaited() *awaited {
	j.mu.Lock()
	defer j.mu.Unlock()
	return &awaited{j.step, j, progress{j.turn, j.done, j.total}, j.news}
}

// tell records the number of verdicts.
func (j *running) tell(done int) {
	j.task.Report(json.RawMessage(strconv.Itoa(done)))
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.over {
		j.done = done
		close(j.news)
		j.news = make(chan struct{})
	}
}

// begin stores a submission that has to be judged, and has it judged.
func (a *sessionActor) begin(ctx context.Context, c *candidate) (*result, error) {
	e, stepID := a.engine, c.plan.Step.ID
	j, err := a.toJudge(c)
	if err != nil {
		return nil, err
	}
	u := a.next(c, c.now.With)
	next := a.state.Submit(stepID, u, a.replacing(stepID), e.now())
	c.holdGroup(next)
	e.claim(j, next, u)
	if err := a.commit(c.m.MovedBy, next, &store.SessionWrite{PutWork: []store.WorkRow{j.row}}); err != nil {
		return nil, err
	}

	c.m.waited = u.ID
	e.running.Store(j.row.Key, j)
	e.Work.Run(j.row) // if the engine is closing, the call learns of that as it waits
	return &result{wait: j.awaited()}, nil
}

// claim fills in the submission that a state has handed to the judges of a turn, and the row of judging it, claimed by
// this process. It is about the number of verdicts to come; its progress is how many have.
func (e *Engine) claim(j *running, s *machine.State, u *judging.Submission) {
	j.is(s, u)
	of := store.Judging(s.SessionID, j.step)
	j.row = e.Work.Claimed(of.Kind, of.Key, json.RawMessage(strconv.Itoa(j.total)))
	j.row.Place = e.here()
}

// is fills in the submission that a state has handed to the judges of a turn.
func (j *running) is(s *machine.State, u *judging.Submission) {
	j.id = u.ID
	j.turn = u.Turn()
	j.span = tryRef(s, j.step, j.turn.With == judging.ByProgram, j.turn.At)
}

// here names the place where this engine judges.
func (e *Engine) here() string { return e.placeKey() + " " + e.Root }

// replacing returns why a submission that is judged now becomes void if another one is handed in.
func (a *sessionActor) replacing(stepID string) string {
	if a.engine.judges(a.id, stepID) != nil {
		return "other outputs were submitted while the review ran"
	}
	return lostRunner
}

// judges returns what this process judges of a step, or nil.
func (e *Engine) judges(id, stepID string) *running {
	j, _ := e.running.Load(store.Judging(id, stepID).Key)
	of, _ := j.(*running)
	return of
}

// judge is the handler of judging: it has the judges of a submission judge, one turn after the other, and records what
// they say. ctx ends if the session no longer waits for that, or another process has taken it over.
func (e *Engine) judge(ctx context.Context, t *work.Task) (none store.Outcome, err error) {
	id, stepID, _ := strings.Cut(t.Key, "/")
	j := e.judges(id, stepID)
	if j == nil || j.row.Runner != t.Runner {
		if j, err = e.takeUp(ctx, t, id, stepID); j == nil || err != nil {
			return none, err
		}
	}
	for j != nil && err == nil {
		j.task = t
		j, err = e.turn(ctx, j, id)
	}
	if err == nil {
		err = work.ErrEnded
	}
	return none, err
}

// turn carries out a turn, records what its judges say, and returns the next one, or nil.
func (e *Engine) turn(ctx context.Context, j *running, id string) (next *running, err error) {
	defer func() {
		e.running.CompareAndDelete(j.row.Key, j)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.over = true
		close(j.news)
	}()
	verdicts, void, err := j.carryOut(telemetry.Under(ctx, j.span))
	if err != nil {
		return nil, err
	}
	var read *contents
	if void == nil {
		read = j.read(ctx)
	}
	return ask(context.WithoutCancel(ctx), e, id, func(ctx context.Context, a *sessionActor) (*running, error) {
		return a.judged(ctx, j, verdicts, void, read)
	})
}

// takeUp prepares the judging of a submission whose server has ended. It returns neither if nobody has to judge it,
// and work.ErrEnded if it became void.
func (e *Engine) takeUp(ctx context.Context, t *work.Task, id, stepID string) (*running, error) {
	l, err := ask(ctx, e, id, func(ctx context.Context, a *sessionActor) (*look, error) {
		u := a.state.Judged(stepID)
		switch {
		case u == nil:
			return nil, nil
		case t.Claims > maxClaims:
			return nil, a.void(t, stepID, begunTooOften(stepID))
		}
		_, l, err := a.again(ctx, stepID, u)
		return l, a.giveUp(ctx, t, stepID, err)
	})
	if session.CodeOf(err) == codes.UnknownSession {
		return nil, nil
	}
	if l == nil || err != nil {
		return nil, err
	}

	read, unread := l.read(ctx)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return ask(ctx, e, id, func(ctx context.Context, a *sessionActor) (*running, error) {
		u := a.state.Judged(stepID)
		if u == nil {
			return nil, nil
		}
		j, err := (*running)(nil), unread
		if err == nil {
			_, j, err = a.handOn(ctx, stepID, u, read)
		}
		if err != nil {
			return nil, a.giveUp(ctx, t, stepID, err)
		}
		j.is(a.state, u)
		j.row = t.WorkRow
		a.engine.running.Store(t.Key, j)
		return j, nil
	})
}

// giveUp makes a submission void that cannot be judged on for this reason, if that is not nil and does not pass.
func (a *sessionActor) giveUp(ctx context.Context, t *work.Task, stepID string, err error) error {
	if err == nil || ctx.Err() != nil || errors.Is(err, store.ErrUnavailable) {
		return err
	}
	return a.void(t, stepID, &judging.Void{
		Why:      "its server ended, and another one cannot go on: " + err.Error(),
		NotBegun: true,
	})
}

// begunTooOften says why a submission is void that may end the servers which judge it.
func begunTooOften(stepID string) *judging.Void {
	why := fmt.Sprintf("it was begun %d times, and nobody came to a verdict: perhaps it ends its server", maxClaims)
	return &judging.Void{
		Why: why,
		Refusal: session.Wrong(codes.ReviewFailed,
			"There is no verdict on these outputs of step '%s': judging them has failed, %s. Tell the user. Nothing "+
				"has moved, and the try does not count.", stepID, why).With("step_id", stepID),
	}
}

// void makes the submission void that a task judges, and ends the task's row. It returns work.ErrEnded.
func (a *sessionActor) void(t *work.Task, stepID string, void *judging.Void) error {
	at := a.engine.now()
	next := a.state.Submit(stepID, a.state.Judged(stepID).Ended(void, at), "", at)
	if err := a.commit(nil, next, ending(t.WorkRow)); err != nil {
		return err
	}
	return work.ErrEnded
}

// ending returns a write that only the runner of a row can make, which ends the row.
func ending(row store.WorkRow) *store.SessionWrite {
	return &store.SessionWrite{EndWork: []store.WorkRow{{Kind: row.Kind, Key: row.Key, Runner: row.Runner}}}
}

// read reads the content again, to hand the submission on to the next judges; nil if it cannot be read. What the
// checks have read a moment ago is not read again.
func (j *running) read(ctx context.Context) *contents {
	if j.checks != nil {
		j.mu.Lock()
		j.last = j.checks.After
		j.mu.Unlock()
	}
	if j.checks != nil && len(j.look.schemas) == 0 {
		return &contents{look: j.look, content: j.checks.After}
	}
	read, err := j.look.read(ctx)
	if err != nil {
		return nil
	}
	return read
}

// judged records what the judges of a turn say, unless another process has meanwhile taken over: a verdict counts
// once. It hands the submission on to the next judges, whose turn it returns, if its content is as it was; what follows
// then is up to the calls that wait.
func (a *sessionActor) judged(
	ctx context.Context, j *running, verdicts []*judging.Verdict, void *judging.Void, read *contents,
) (then *running, err error) {
	at, kind := a.engine.now(), j.turn.With
	u := a.state.Judged(j.step)
	if u == nil || u.ID != j.id || u.With() != kind {
		return nil, store.ErrWorkTaken
	}
	w := ending(j.row)
	var next *machine.State
	if void != nil {
		if verdicts != nil { // of those that did come to one
			u = new(*u)
			u.Verdicts = with(u.Verdicts, kind, verdicts)
		}
		next = a.state.Submit(j.step, u.Ended(void, at), "", at)
	} else {
		said := u.To("", with(u.Verdicts, kind, verdicts), at)
		var c *candidate
		if said.EndedAt == nil && read != nil {
			c, then, err = a.handOn(ctx, j.step, said, read)
		}
		if c == nil || err != nil {
			then = nil
			next = a.state.Submit(j.step, said, "", at)
		} else {
			said = a.next(c, c.now.With)
			next = a.state.Submit(j.step, said, "", at)
			next.Definition = c.def.Ref
			w.Define = record.Defining(c.def).Define
			if then != nil {
				a.engine.claim(then, next, said)
				then.row.Runner = j.row.Runner
				w.PutWork = []store.WorkRow{then.row}
			}
		}
	}
	if err := a.commit(nil, next, w); err != nil {
		return nil, err
	}
	if then != nil {
		a.engine.running.Store(then.row.Key, then)
	}
	return then, nil
}

// with returns the verdicts of a submission with those of a kind replaced.
func with(all []*judging.Verdict, kind judging.Kind, new []*judging.Verdict) []*judging.Verdict {
	rest := slices.DeleteFunc(slices.Clone(all), func(v *judging.Verdict) bool { return v.Kind == kind })
	return append(rest, new...)
}

// again returns a submission as if its caller handed it in again, and what has to be read for that.
func (a *sessionActor) again(ctx context.Context, stepID string, u *judging.Submission) (*candidate, *look, error) {
	given, err := json.Marshal(outputs.Plain(u.Outputs))
	if err != nil {
		return nil, nil, err
	}
	c, done, err := a.prepare(ctx, &finishCall{
		Caller: Caller{
			Identity: u.Identity,
			Channel:  u.Channel,
			Anywhere: true,
			Call:     machine.Call{Tool: machine.ToolFinish, ID: u.Call},
		},
		args:    FinishArgs{StepID: &stepID, Outputs: given, Notes: u.Notes, Merged: true},
		waited:  u.ID,
		repeats: true,
	})
	if err == nil && done == nil {
		c.how, err = a.pin.Reviewing(ctx, a.state)
	}
	if err != nil {
		return nil, nil, err
	}
	if done == nil {
		if l, err := a.look(c); l != nil || err != nil {
			return c, l, err
		}
	}
	return nil, nil, errNobody
}

// handOn finds out who judges a submission now, without its caller: the judges with whom it is or reviewers, in the
// turn that it returns, or a person. It returns an error if nobody does, or if the next call has to decide.
func (a *sessionActor) handOn(
	ctx context.Context, stepID string, u *judging.Submission, read *contents,
) (*candidate, *running, error) {
	c, l, err := a.again(ctx, stepID, u)
	if err != nil {
		return nil, nil, err
	}
	if read.fits(l) {
		a.bind(c, read)
	}
	if c.digest != u.Content || c.bound != u.Bound {
		return nil, nil, errors.New("what was handed in has changed since")
	}

	past := a.state.Past(stepID)
	past.Submissions = slices.Clone(past.Submissions)
	past.Submissions[len(past.Submissions)-1] = u
	rules := a.rules(c)
	c.now = judging.Next(rules, past, a.handIn(c))
	by, runs := c.now.With, c.now.Do == judging.Run
	switch {
	case c.now.Of != u, !runs && c.now.Do != judging.Await, runs && by == judging.ByProgram,
		by == judging.ByReviewer && (a.engine.Gate == nil || !rules.External || rules.Refused != nil):
		return nil, nil, errNobody
	case by == judging.ByPerson:
		c.def, err = a.engine.definitions.Keep(c.def, nil) // the person sees the step's criteria
		return c, nil, err
	}
	if !runs {
		c.now.Verdicts = u.Verdicts
	}
	j, err := a.toJudge(c)
	return c, j, err
}

// errNobody is why a submission is not handed on: the rules have changed, or the next call has to decide.
var errNobody = errors.New("it is not for the same judges any more")
