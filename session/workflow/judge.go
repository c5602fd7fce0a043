package workflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"deepwork/actor/telemetry"
	"deepwork/actor/wait"
	"deepwork/catalog/job"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/check"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/record"
	"deepwork/session/replies"
	"deepwork/session/store"
)

// Judging is carried out outside of the actor, in a goroutine for each submission: it has the programs judge, then
// the reviewers, and asks the actor to record what they say. Calls wait for it, and move the step.

// A round is a turn of programs or reviewers with a submission, to be carried out.
type round struct {
	kind   judging.Kind
	total  int // number of verdicts to come
	order  map[string]int
	known  []*judging.Verdict // those of this kind that the submission has already
	checks *check.Round       // for programs; there is one verdict of the gate then
	start  func(ctx context.Context, each func(gate.Verdict)) error
	said   chan gate.Verdict // has room for all
}

// A running is a submission that this process judges.
type running struct {
	session, step string
	id            int64 // of the submission
	look          *look
	call          *finishCall // as which the submission is handed on
	cancel        context.CancelFunc
	over          chan struct{} // closed when no judge runs any more

	mu     sync.Mutex // guards the following fields
	round  *round
	began  time.Time
	done   int            // number of verdicts of the round
	news   chan struct{}  // closed when there is another one
	last   *check.Content // what the checks have seen last, a moment ago; nil means nothing
	closed bool           // the engine is closing
}

// standing returns how far the judges are, and a channel that is closed when they are further.
func (j *running) standing() (s progress, news <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return progress{j.round.kind, j.done, j.round.total, j.began}, j.news
}

// tell records the number of verdicts of the round.
func (j *running) tell(done int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.done = done
	close(j.news)
	j.news = make(chan struct{})
}

// begins records that the judges of a round begin.
func (j *running) begins(r *round, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.round = r
	j.began = at
	j.done = 0
	if r.checks != nil {
		r.checks.Done = j.tell
	}
}

// A progress says how far the judges of a submission are.
type progress struct {
	kind        judging.Kind
	done, total int
	began       time.Time
}

func (p progress) report(to ProgressFunc, stepID string) {
	what := "quality review"
	if p.kind == judging.ByProgram {
		what = "checks"
	}
	if to != nil {
		to(p.done, p.total, fmt.Sprintf("%s of step '%s': %d of %d done", what, stepID, p.done, p.total))
	}
}

// An awaited is what a call waits for: judges here, or in another process.
type awaited struct {
	step    string
	here    *running // nil means elsewhere
	there   progress
	changed <-chan struct{} // closed when the session has moved
}

// lookEvery is how often a call looks at judges in another process when nothing wakes it.
const lookEvery = time.Second

// await waits until what a call waits for has ended, and returns what the checks have read meanwhile, if that is
// all there is to read; or it returns the reply to a call whose time is up.
func (e *Engine) await(ctx context.Context, id string, m *finishCall, w *awaited) (*Finished, *contents, error) {
	every := lookEvery
	for {
		now, news := w.there, w.changed
		if w.here != nil {
			now, news = w.here.standing()
			every = time.Until(m.until)
		}
		now.report(m.progress, w.step)
		left := time.Until(m.until)
		if left <= 0 {
			f, err := ask(ctx, e, id, func(_ context.Context, a *sessionActor) (*Finished, error) {
				return a.stillRunning(m, w.step, now), nil
			})
			return f, nil, err
		}

		var over <-chan struct{}
		if w.here != nil {
			over = w.here.over
		}
		timer := time.NewTimer(min(left, every))
		select {
		case <-over:
			timer.Stop()
			return w.here.ended(id)
		case <-e.closing:
			timer.Stop()
			return nil, nil, shuttingDown(id, w.step)
		case <-news:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case w.here == nil && time.Until(m.until) > 0:
			next, err := ask(ctx, e, id, func(ctx context.Context, a *sessionActor) (*awaited, error) {
				return a.elsewhere(ctx, w.step, m.waited)
			})
			if next == nil || err != nil {
				return nil, nil, err
			}
			w = next
		}
	}
}

func shuttingDown(id, stepID string) error {
	return session.NotNow(codes.ShuttingDown, "The server is shutting down, and the review of step '%s' was "+
		"cancelled; the try does not count. When it is back, make the same call again with session_id '%s'.",
		stepID, id).Wait(5 * time.Second)
}

// ended returns what the checks have seen last, if that is all that has to be read for a call.
func (j *running) ended(id string) (*Finished, *contents, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.closed:
		return nil, nil, shuttingDown(id, j.step)
	case j.last == nil || len(j.look.schemas) > 0 || j.look.asks:
		return nil, nil, nil
	}
	return nil, &contents{look: j.look, content: j.last}, nil
}

// stillRunning is the reply to a call whose time is up before its submission is judged.
func (a *sessionActor) stillRunning(m *finishCall, stepID string, p progress) *Finished {
	what, counts := "Review running: the quality review of step '%s' is", "its verdict; it counts as the same try"
	if p.kind == judging.ByProgram {
		what, counts = "Checks running: the checks of step '%s' are", "their results"
	}
	f := a.needsWork(m.notice, fmt.Sprintf(
		what+" still running (%d of %d done, begun %s ago). Nothing is wrong so far: change nothing. Call "+
			"finished_step again with the same outputs and notes, session_id '%s' and step_id '%s' to wait for "+
			counts+".",
		stepID, p.done, p.total, a.engine.now().Sub(p.began).Round(time.Second), a.id, stepID))
	f.Reply.Going = &replies.Going{SessionID: a.id, StepID: stepID, Submission: m.waited}
	f.Reply.Waits = &session.Waiting{Code: codes.ReviewRunning, RetryAfterMS: 1000} // that call waits, too
	return f
}

// goingOn lets a repeated call wait for what is in progress, whatever the files contain now. It returns neither a
// reply nor an error if nothing is in progress any more.
func (a *sessionActor) goingOn(ctx context.Context, c *candidate) (*verge, error) {
	u := a.state.Past(c.plan.Step.ID).By(c.m.waited)
	c.now = judging.Now{Of: u, With: u.With()}
	switch {
	case u.Running():
		return a.awaitOthers(ctx, c)
	case u.With() == judging.ByPerson && len(c.plan.Step.ReviewsBy(true)) > 0:
		var err error
		if c.how, err = a.pin.Reviewing(ctx, a.state); err != nil {
			return nil, err
		}
		f, err := a.askPerson(ctx, c)
		return &verge{done: f}, err
	}
	return nil, nil
}

// awaitOthers lets a call wait for judges, here or in another process. It returns neither if nobody judges.
func (a *sessionActor) awaitOthers(ctx context.Context, c *candidate) (*verge, error) {
	u, stepID := c.now.Of, c.plan.Step.ID
	if j := a.engine.judges(a.id, stepID); j != nil && j.id == u.ID {
		c.m.waited = u.ID
		return &verge{wait: &awaited{step: stepID, here: j}}, nil
	}
	changed, err := a.refresh(ctx)
	if err == nil && changed {
		err = errOvertaken
	}
	if err != nil {
		return nil, err
	}
	w, err := a.elsewhere(ctx, stepID, u.ID)
	if w == nil || err != nil {
		return nil, err
	}
	c.m.waited = u.ID
	return &verge{wait: w}, nil
}

// elsewhere returns how far another process is that judges a submission, or nil if none does.
func (a *sessionActor) elsewhere(ctx context.Context, stepID string, id int64) (*awaited, error) {
	changed := a.engine.follower.changed(a.id)
	if _, err := a.refresh(ctx); err != nil {
		return nil, err
	}
	u := a.state.Judged(stepID)
	if u == nil || u.ID != id {
		return nil, nil
	}
	row, err := a.runs(ctx, stepID)
	if row == nil || err != nil {
		return nil, err
	}
	return &awaited{
		step:    stepID,
		there:   progress{u.With(), row.Done, row.Total, u.Turn().At},
		changed: changed,
	}, nil
}

// runs returns the judging of a step in another process, or nil. What this process began, and whose beginning was
// not confirmed, runs nowhere.
func (a *sessionActor) runs(ctx context.Context, stepID string) (*store.Review, error) {
	ctx, cancel := record.Timed(ctx)
	defer cancel()
	all, err := a.engine.records.Reviews(ctx, a.id)
	if err != nil {
		return nil, a.engine.records.Unreadable(a.id, err)
	}
	at := slices.IndexFunc(all, func(r store.Review) bool {
		return r.Step == stepID && !r.Over && r.Runner != a.engine.runner
	})
	if at < 0 {
		return nil, nil
	}
	return &all[at], nil
}

// judges returns what this process judges of a step, or nil.
func (e *Engine) judges(id, stepID string) *running {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.running[id+"/"+stepID]
}

// begin stores a submission that has to be judged, and has it judged.
func (a *sessionActor) begin(ctx context.Context, c *candidate) (*verge, error) {
	e, stepID := a.engine, c.plan.Step.ID
	r, err := a.roundOf(c, c.now.With, c.now.Verdicts)
	if err != nil {
		return nil, err
	}
	u := a.next(c, c.now.With)
	next := a.state.Submit(stepID, u, a.replacing(stepID), e.now())
	c.holdGroup(next)
	if err := a.commit(c.m.MovedBy, next, &store.SessionWrite{Began: e.rowOf(stepID, r)}); err != nil {
		return nil, err
	}

	runCtx, cancel := context.WithCancel(telemetry.Under(e.ctx, tryRef(next, stepID, r.kind == judging.ByProgram, u.Turn().At)))
	j := &running{
		session: a.id,
		step:    stepID,
		id:      u.ID,
		look:    c.read.look,
		call:    &finishCall{Caller: c.m.Caller, args: c.m.args, from: e.ctx, waited: u.ID},
		cancel:  cancel,
		over:    make(chan struct{}),
		news:    make(chan struct{}),
	}
	j.call.Call.RequestID = nil
	j.call.args.OverrideReason = nil // it is a verdict of the submission
	j.call.args.Of = &replies.Going{}
	j.begins(r, e.now())
	c.m.waited = u.ID
	if err := r.start(runCtx, r.hear(j)); err != nil {
		cancel()
		return nil, a.notBegun(stepID, u.ID, err)
	}
	if !e.runs(j, func() { e.judge(runCtx, j) }) {
		cancel()
		return nil, shuttingDown(a.id, stepID)
	}
	return &verge{wait: &awaited{step: stepID, here: j}}, nil
}

// replacing returns why a submission that is judged now becomes void if another one is handed in.
func (a *sessionActor) replacing(stepID string) string {
	if a.engine.judges(a.id, stepID) != nil {
		return "other outputs were submitted while the review ran"
	}
	return lostRunner
}

// runs adds what this process judges, and carries it out.
func (e *Engine) runs(j *running, f func()) bool {
	key := j.session + "/" + j.step
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.running[key] = j
	e.ran.Store(true)
	e.background.Go(func() {
		defer func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.running[key] == j {
				delete(e.running, key)
			}
			close(j.over)
		}()
		f()
	})
	return true
}

// cancelJudging cancels what this process judges that a state of a session no longer waits for.
func (e *Engine) cancelJudging(next *machine.State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, j := range e.running {
		if j.session == next.SessionID {
			if u := next.Judged(j.step); u == nil || u.ID != j.id {
				j.cancel()
			}
		}
	}
}

// stopJudging cancels all that this process judges, since the engine is closing.
func (e *Engine) stopJudging() {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.closing: // Close was called before
		return
	default:
		close(e.closing)
	}
	for _, j := range e.running {
		j.mu.Lock()
		j.closed = true
		j.mu.Unlock()
		j.cancel()
	}
}

// rowOf returns the row by which other processes know who judges.
func (e *Engine) rowOf(stepID string, r *round) *store.Review {
	return &store.Review{Step: stepID, Runner: e.runner, Total: r.total, Life: e.reviewLife}
}

// hear returns what takes the verdicts of a round as they come.
func (r *round) hear(j *running) func(gate.Verdict) {
	return func(v gate.Verdict) {
		r.said <- v
		if r.checks == nil {
			j.tell(len(r.said))
		}
	}
}

// notBegun records that judging could not begin, and returns the error for the call.
func (a *sessionActor) notBegun(stepID string, id int64, cause error) error {
	void := &judging.Void{Why: "it was not begun: " + cause.Error(), NotBegun: true}
	if err := a.commit(nil, a.state.End(stepID, id, void, a.engine.now()), nil); err != nil {
		a.engine.Logger.Warn("a submission could not be voided", "session", a.id, "step", stepID, "error", err)
	}
	return session.NotNow(codes.ReviewNotStarted,
		"The review of step '%s' could not be begun: %v. The try does not count; make the same call again later.",
		stepID, cause).Because(cause).Wait(10 * time.Second)
}

// roundOf returns the turn of the judges of a kind that have not judged the content yet.
func (a *sessionActor) roundOf(c *candidate, kind judging.Kind, have []*judging.Verdict) (*round, error) {
	r := &round{kind: kind, order: map[string]int{}}
	for _, v := range have {
		if v.Kind == kind {
			r.known = append(r.known, v)
		}
	}
	if kind == judging.ByProgram {
		return r, a.checking(c, r)
	}

	var todo []gate.Task
	for i, t := range c.tasks {
		r.order[t.Key] = i
		if !slices.ContainsFunc(r.known, func(v *judging.Verdict) bool { return v.Key == t.Key }) {
			todo = append(todo, t)
		}
	}
	r.total = len(todo)
	r.said = make(chan gate.Verdict, r.total)
	sub := a.submission(c)
	r.start = func(ctx context.Context, each func(gate.Verdict)) error {
		return a.engine.Gate.Run(ctx, a.id, sub, todo, each)
	}
	return r, nil
}

// checking fills in the turn of the checks.
func (a *sessionActor) checking(c *candidate, r *round) error {
	e, stepID := a.engine, c.plan.Step.ID
	if e.Checks == nil {
		return session.NotNow(codes.CheckNotRun,
			"Step '%s' has checks, and this process does not run any. Call a server of the project.", stepID)
	}

	checks := c.read.subject.Checks
	r.checks = &check.Round{
		Subject: c.read.subject,
		Before:  c.read.content,
		Known:   make([]*judging.Verdict, len(checks)),
		Over:    make([]bool, len(checks)),
	}
	for i := range checks {
		key := check.Key(&checks[i])
		r.checks.Over[i] = slices.Contains(c.now.Over, checks[i].Name)
		if at := slices.IndexFunc(r.known, func(v *judging.Verdict) bool { return v.Key == key }); at >= 0 {
			r.checks.Known[i] = r.known[at]
		}
		if !r.checks.Over[i] {
			r.total++
		}
	}
	r.said = make(chan gate.Verdict, 1)
	task := gate.Task{
		Key:     "checks",
		RunEach: "step",
		Do:      func(ctx context.Context) error { return e.Checks.Run(ctx, r.checks) },
	}
	sub := gate.Submission{SessionID: a.id, Job: c.def.Job, Workflow: c.def.Workflow.Name, Step: c.plan.Step}
	r.start = func(ctx context.Context, each func(gate.Verdict)) error {
		return e.Checks.Pool.Run(ctx, a.id, sub, []gate.Task{task}, each)
	}
	return nil
}

// judge has the judges of a submission judge, one round after the other, and records what they say. ctx ends if
// the session no longer waits for that, or another process has taken it over.
func (e *Engine) judge(ctx context.Context, j *running) {
	defer j.cancel()
	renewing := make(chan struct{})
	go func() {
		defer close(renewing)
		e.renew(ctx, j)
	}()
	defer func() { <-renewing }()
	defer j.cancel()

	for r := j.round; r != nil; {
		var said []gate.Verdict
		for range cap(r.said) {
			select {
			case v := <-r.said:
				said = append(said, v)
			case <-ctx.Done():
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		verdicts, void := r.results(j.step, said)
		var read *contents
		if void == nil {
			read = j.read(ctx, r)
		}

		next, err := ask(context.WithoutCancel(ctx), e, j.session,
			func(ctx context.Context, a *sessionActor) (*round, error) {
				return a.judged(ctx, j, r, verdicts, void, read)
			})
		if err != nil {
			if !errors.Is(err, store.ErrReviewTaken) {
				e.Logger.Warn("a verdict was not recorded", "session", j.session, "step", j.step, "error", err)
			}
			return
		}
		if r = next; r == nil {
			return
		}
		j.begins(r, e.now())
		if err := r.start(ctx, r.hear(j)); err != nil {
			_, _ = ask(context.WithoutCancel(ctx), e, j.session,
				func(_ context.Context, a *sessionActor) (none struct{}, _ error) {
					return none, a.notBegun(j.step, j.id, err)
				})
			return
		}
	}
}

// read reads the content again, to hand the submission on to the next judges; nil if it cannot be read. What the
// checks have read a moment ago is not read again.
func (j *running) read(ctx context.Context, r *round) *contents {
	if r.checks != nil {
		j.mu.Lock()
		j.last = r.checks.After
		j.mu.Unlock()
	}
	if r.checks != nil && len(j.look.schemas) == 0 {
		return &contents{look: j.look, content: r.checks.After}
	}
	read, err := j.look.read(ctx)
	if err != nil {
		return nil
	}
	return read
}

// judged records what the judges of a round say, unless another process has meanwhile taken over: a verdict counts
// once. It hands the submission on to the next judges, whom it returns, if its content is as it was; what follows
// then is up to the calls that wait.
func (a *sessionActor) judged(
	ctx context.Context, j *running, r *round, verdicts []*judging.Verdict, void *judging.Void, read *contents,
) (*round, error) {
	at := a.engine.now()
	u := a.state.Judged(j.step)
	if u == nil || u.ID != j.id || u.With() != r.kind {
		return nil, store.ErrReviewTaken
	}
	w := &store.SessionWrite{}
	var then *round
	var next *machine.State
	if void != nil {
		if verdicts != nil { // of those that did come to one
			u = new(*u)
			u.Verdicts = with(u.Verdicts, r.kind, verdicts)
		}
		next = a.state.Submit(j.step, u.Ended(void, at), "", at)
	} else {
		said := u.To("", with(u.Verdicts, r.kind, verdicts), at)
		var c *candidate
		if said.EndedAt == nil && read != nil {
			c, then = a.handOn(ctx, j, said, read)
		}
		if c == nil {
			next = a.state.Submit(j.step, said, "", at)
		} else {
			next = a.state.Submit(j.step, a.next(c, c.now.With), "", at)
			next.Definition = c.def.Ref
			w = record.Defining(c.def)
		}
	}
	w.Verdict = &store.Review{Step: j.step, Runner: a.engine.runner}
	if then != nil {
		w.Began = a.engine.rowOf(j.step, then)
	}
	if err := a.commit(nil, next, w); err != nil {
		return nil, err
	}
	return then, nil
}

// with returns the verdicts of a submission with those of a kind replaced.
func with(all []*judging.Verdict, kind judging.Kind, new []*judging.Verdict) []*judging.Verdict {
	rest := slices.DeleteFunc(slices.Clone(all), func(v *judging.Verdict) bool { return v.Kind == kind })
	return append(rest, new...)
}

// handOn finds out who judges a submission next, without its caller: reviewers, in the round that it returns, or a
// person. The candidate is nil if nobody does, or if the next call has to decide.
func (a *sessionActor) handOn(
	ctx context.Context, j *running, said *judging.Submission, read *contents,
) (c *candidate, r *round) {
	def, err := a.pin.Definition(ctx, a.state)
	if err != nil {
		return nil, nil
	}
	plan, err := a.state.PlanFinish(def, &j.step, func(outputs.Map) bool { return false })
	if err != nil || plan.Replay != nil {
		return nil, nil
	}
	c = &candidate{m: j.call, def: def, plan: plan, outputs: said.Outputs, expanded: j.look.outputs}
	if c.how, err = a.pin.Reviewing(ctx, a.state); err != nil {
		return nil, nil
	}
	if l, err := a.look(c); err != nil || l == nil || !read.fits(l) {
		return nil, nil
	}
	a.bind(c, read)
	if c.digest != said.Content || c.bound != said.Bound {
		return nil, nil
	}

	past := a.state.Past(j.step)
	past.Submissions = slices.Clone(past.Submissions)
	past.Submissions[len(past.Submissions)-1] = said
	c.now = judging.Next(a.rules(c), past, a.handIn(c))
	switch {
	case c.now.Of != said:
		return nil, nil
	case c.now.Do == judging.Await && c.now.With == judging.ByPerson:
		if c.def, err = a.engine.definitions.Keep(c.def, nil); err != nil { // the person sees the step's criteria
			return nil, nil
		}
		return c, nil
	case c.now.Do == judging.Run && c.now.With == judging.ByReviewer:
		if r, err = a.roundOf(c, c.now.With, c.now.Verdicts); err != nil {
			return nil, nil
		}
		return c, r
	}
	return nil, nil
}

// renew renews what this process judges until that ends. It cancels it if another process has moved the session
// on, or has taken over because this one did not renew it in time.
func (e *Engine) renew(ctx context.Context, j *running) {
	changed := e.follower.changed(j.session)
	due := time.Now().Add(e.reviewLife / 3)
	for wait.Until(ctx, time.Until(due), changed) == nil {
		select {
		case <-changed:
			changed = e.follower.changed(j.session)
			// Reading the session cancels what it no longer waits for.
			_, err := ask(ctx, e, j.session, func(ctx context.Context, a *sessionActor) (none struct{}, err error) {
				_, err = a.refresh(ctx)
				return none, err
			})
			if err != nil {
				e.Logger.Debug("a session that is judged could not be read", "session", j.session, "error", err)
			}
		default:
		}

		if time.Now().Before(due) {
			continue
		}
		due = time.Now().Add(e.reviewLife / 3)
		s, _ := j.standing()
		bounded, cancel := context.WithTimeout(ctx, e.reviewLife/3)
		kept, err := e.records.RenewReview(bounded, j.session,
			store.Review{Step: j.step, Runner: e.runner, Done: s.done, Life: e.reviewLife})
		cancel()
		if err != nil || kept {
			continue // on an error it still ends with its verdict, unless it is taken over
		}
		if ctx.Err() == nil {
			e.Logger.Warn("a review was taken up by another server", "session", j.session, "step", j.step)
		}
		j.cancel()
		return
	}
}

// leaveJudging cancels what this process judges, and gives it up, so that other servers need not wait.
func (e *Engine) leaveJudging(ctx context.Context) {
	if !e.ran.Load() {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := e.records.LeaveReviews(ctx, e.runner); err != nil {
		e.Logger.Debug("others take up the reviews of this server only when their time is over", "error", err)
	}
}

// results returns the verdicts of a round, in the order of the step's reviews or checks, and why the submission is
// void, or nil.
func (r *round) results(stepID string, said []gate.Verdict) ([]*judging.Verdict, *judging.Void) {
	if r.checks != nil {
		return r.checkResults(stepID, said[0].Err)
	}

	verdicts := slices.Clone(r.known)
	slices.SortStableFunc(said, func(a, b gate.Verdict) int {
		return cmp.Compare(r.order[a.Task.Key], r.order[b.Task.Key])
	})
	var failures []string
	for _, v := range said {
		if v.Err != nil {
			failures = append(failures, v.Err.Error())
			continue
		}
		verdicts = append(verdicts, verdictOf(v))
	}
	slices.SortStableFunc(verdicts, func(a, b *judging.Verdict) int {
		return cmp.Compare(r.order[a.Key], r.order[b.Key])
	})
	if failures == nil {
		return verdicts, nil
	}
	why := strings.Join(failures, "\n\n")
	return verdicts, &judging.Void{
		Why:     why,
		Refusal: session.Wrong(codes.ReviewFailed, "%s\nNothing has moved.", why).With("step_id", stepID),
	}
}

// checkResults returns the results of the checks, or why there are none.
func (r *round) checkResults(stepID string, err error) ([]*judging.Verdict, *judging.Void) {
	if refused, ok := errors.AsType[*session.Error](err); ok {
		return nil, &judging.Void{Why: err.Error(), Refusal: refused}
	}
	if err != nil {
		return nil, &judging.Void{Why: err.Error(), Refusal: session.NotNow(codes.CheckNotRun,
			"Step '%s': %v. Nothing counts and nothing has moved; correct that, or tell the user, and make the same "+
				"call again.", stepID, err).With("step_id", stepID).Because(err)}
	}
	if files := r.checks.Undecided; len(files) > 0 {
		return nil, &judging.Void{
			Why:       "not decided, because files went on changing: " + strings.Join(files, ", "),
			Undecided: files,
		}
	}
	return slices.DeleteFunc(slices.Clone(r.checks.Verdicts), func(v *judging.Verdict) bool { return v == nil }), nil
}

// verdictOf converts a verdict of the gate.
func verdictOf(v gate.Verdict) *judging.Verdict {
	out := &judging.Verdict{
		Kind: judging.ByReviewer, At: v.EndedAt.UTC(), By: v.Reviewer, RunEach: v.Task.RunEach,
		TargetFile: v.Task.Target, Key: v.Task.Key, Digest: v.Task.Digest, Passed: v.Passed, Feedback: v.Feedback,
		Seconds: v.EndedAt.Sub(v.StartedAt).Seconds(),
	}
	for _, f := range v.Task.Files {
		hash := judging.FileHash{Path: f.Path, SHA256: f.SHA256}
		if f.Text != nil {
			hash.Output = f.Output
		}
		out.Files = append(out.Files, hash)
	}
	for _, c := range v.Criteria {
		out.Criteria = append(out.Criteria, replies.CriterionResult{
			Criterion: questionOf(v.Task.Criteria, c.Criterion),
			Passed:    c.Passed,
			Feedback:  c.Feedback,
		})
	}
	if out.Passed && len(out.Criteria) == 0 {
		// It passed as a whole, so each of its criteria passed.
		for _, c := range v.Task.Criteria {
			out.Criteria = append(out.Criteria, replies.CriterionResult{Criterion: c.Question, Passed: true})
		}
	}
	return out
}

// questionOf returns the text of the criterion with this name (seed 001, "QualityCriteriaResult").
func questionOf(criteria []job.Criteria, name string) string {
	for _, c := range criteria {
		if c.Name == name {
			return c.Question
		}
	}
	return name
}
