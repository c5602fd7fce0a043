package workflow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepwork/actor/durable"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/record"
	"deepwork/session/replies"
)

// needsWork returns the reply to a call that has not finished its step.
func (a *sessionActor) needsWork(notice, feedback string) *Finished {
	r := replies.NewFinish(replies.NeedsWork, notice)
	r.Feedback = &feedback
	return &Finished{Row: a.row, Reply: r}
}

// A finishCall is a finished_step in progress. It belongs to its caller's goroutine, and to the actor while that
// applies it.
type finishCall struct {
	Caller
	args     FinishArgs
	until    time.Time       // the time by which the reply must be sent
	from     context.Context // the caller's context: once it ends nothing may move, since nobody gets the reply
	progress ProgressFunc    // may be nil
	moved    func(*Ended)    // see FinishCall

	// step is the step that was current when the call arrived, if its outputs are judged; it stays the same
	// if the session moves on meanwhile. At first it is "".
	step   string
	waited int64  // the submission that the call, or the one that it repeats, waits or waited for; 0 means none
	notice string // about a person's override that is not for these outputs, or ""

	repeats, untold bool // see FinishCall
}

// A result is how far the actor has brought a finished_step: exactly one field is set.
type result struct {
	done *Finished
	look *look    // what has to be read
	wait *awaited // what has to end
}

// finish carries out a finished_step: it finds the step, has its outputs judged, and moves on in one durable
// transition (seed 000, 001.4). It reads files and waits in the caller's goroutine: the actor only makes
// transitions.
func (e *Engine) finish(ctx context.Context, id string, m *finishCall) (*Finished, error) {
	var r *contents
	for {
		v, err := ask(ctx, e, id, func(ctx context.Context, a *sessionActor) (*result, error) {
			return a.finish(ctx, m, r)
		})
		switch {
		case err != nil:
			return nil, err
		case v.done != nil:
			return v.done, nil
		case v.wait != nil:
			var f *Finished
			if f, r, err = e.await(ctx, id, m, v.wait); f != nil || err != nil {
				return f, err
			}
		default:
			if r, err = v.look.read(ctx); err != nil {
				return nil, err
			}
		}
	}
}

// finish is one application of Engine.finish to the session's state. r is what was read, or nil.
func (a *sessionActor) finish(ctx context.Context, m *finishCall, r *contents) (*result, error) {
	if m.from.Err() != nil {
		return nil, context.Canceled // nobody would get the result
	}

	// A repeated call waits for what is in progress, even if its outputs no longer satisfy the step.
	c, done, unfit := a.prepare(ctx, m)
	if done != nil || c == nil || unfit != nil && !m.repeats {
		return &result{done: done}, unfit
	}
	if m.repeats && r == nil {
		if v, err := a.goingOn(ctx, c); v != nil || err != nil {
			return v, err
		}
	}
	if unfit != nil {
		return nil, unfit
	}

	var err error
	if c.how, err = a.pin.Reviewing(ctx, a.state); err != nil {
		return nil, err
	}
	l, err := a.look(c)
	switch {
	case err != nil:
		return nil, err
	case l == nil:
		return a.follow(ctx, c)
	case !r.fits(l):
		// The call is about the step that is current when it arrives, whatever this process has cached.
		if changed, err := a.refresh(ctx); err != nil {
			return nil, err
		} else if changed {
			return nil, errOvertaken
		}
		m.step = c.plan.Step.ID
		return &result{look: l}, nil
	}

	a.bind(c, r)
	if r.handedIn.is(c.files) {
		if err := a.keepHandIn(ctx, m.step, r.handedIn); err != nil {
			return nil, err
		}
	}
	return a.follow(ctx, c)
}

// follow does what the hand-in leads to.
func (a *sessionActor) follow(ctx context.Context, c *candidate) (*result, error) {
	stepID := c.plan.Step.ID
	past := a.state.Past(stepID)
	c.now = judging.Next(a.rules(c), past, a.handIn(c))
	if c.now.Do == judging.Await && c.now.With != judging.ByPerson {
		v, err := a.awaitOthers(ctx, c)
		if v != nil || err != nil {
			return v, err
		}

		// Nobody judges it any more: the server that did has ended.
		last := len(past.Submissions) - 1
		past.Submissions = append(past.Submissions[:last:last],
			past.Submissions[last].Ended(&judging.Void{Why: lostRunner, NotBegun: true}, a.engine.now()))
		c.now = judging.Next(a.rules(c), past, a.handIn(c))
	}
	if c.now.Others {
		c.note(fmt.Sprintf("A person has overridden the review of step '%s', but for other outputs than these: those "+
			"go on without it, these do not.", stepID))
	}
	switch c.now.Do {
	case judging.Run:
		return a.begin(ctx, c)
	case judging.Await:
		f, err := a.askPerson(ctx, c)
		return &result{done: f}, err
	case judging.Refuse:
		f, err := a.refuse(ctx, c)
		return &result{done: f}, err
	}
	f, err := a.complete(ctx, c)
	return &result{done: f}, err
}

// lostRunner is why a submission is void whose runner has ended.
const lostRunner = "no verdict was recorded before the server ended or the disk failed"

// note adds a notice to the reply.
func (c *candidate) note(notice string) {
	c.m.notice = notice
	def := *c.def
	def.Notice = strings.TrimPrefix(def.Notice+" "+notice, " ")
	c.def = &def
}

// holdGroup records in next, which is being made, that a member of a concurrent group was handed in by its
// step_id, so that the group waits for the others.
func (c *candidate) holdGroup(next *machine.State) {
	next.ReportedByStepID = next.ReportedByStepID || c.plan.ByStepID && len(c.plan.Pending) > 0
}

// prepare determines the step of a finished_step. done is the reply if the call repeats an earlier one. An
// error about the outputs comes with a candidate.
func (a *sessionActor) prepare(ctx context.Context, m *finishCall) (c *candidate, done *Finished, err error) {
	if r, err := a.repetition(m.Caller); err != nil {
		return nil, nil, err
	} else if r != nil {
		done, err = a.repeatReply(ctx, r, m.Caller)
		return nil, done, err
	}

	same := func(have outputs.Map) bool { return outputs.Same(m.args.Outputs, have) }
	c = &candidate{m: m}
	if a.state.Status == machine.Active {
		if err = a.branched(ctx, m.Caller); err != nil {
			return nil, nil, err
		}
		if c.def, err = a.pin.Definition(ctx, a.state); err != nil {
			return nil, nil, err
		}
	}
	c.plan, err = a.state.PlanFinish(c.def, m.args.StepID, same)

	var replay *machine.StoredReply
	switch {
	case m.step != "" && (err != nil || c.plan.Replay != nil || c.plan.Step.ID != m.step):
		// The step was current when the call arrived, and another call has finished it since.
		if replay = a.state.Replay(m.step, same); replay == nil {
			return nil, nil, a.movedOn(m.step)
		}
	case err != nil:
		return nil, nil, err
	default:
		replay = c.plan.Replay
	}
	if replay != nil {
		done, err = a.repeatReply(ctx, replay, m.Caller)
		return nil, done, err
	}
	barred, err := a.barred(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	if job.IsMerge(c.plan.Step.ID) && !m.args.Merged && a.state.ImportedAt == nil {
		return nil, nil, session.NotNow(codes.StepNotCurrent,
			"Step '%s' is the merge of its item, which the run does: if you are to resolve conflicts, commit, and end.",
			c.plan.Step.ID).With("step_id", c.plan.Step.ID)
	}

	// another item waits for a person
	if _, _, item := job.SplitItem(c.plan.Step.ID); item && a.state.Progress(c.plan.Step.ID) == nil {
		return nil, nil, session.NotNow(codes.StepNotCurrent,
			"It is the turn of step '%s' of session '%s', but nobody was told what to do in it: call get_step with "+
				"that session_id, which begins it.", c.plan.Step.ID, a.id).With("step_id", c.plan.Step.ID)
	}
	if c.plan.Step.Call != nil {
		c.outputs, err = a.calledOutputs(ctx, c.plan.Step.ID) // nobody judges its files
		return c, nil, err
	}
	c.outputs, c.expanded, err = checkOutputs(a.state.RootOf(a.engine.Root, c.plan.Step.ID), c.plan.Step,
		m.args.Outputs)
	if err != nil {
		return c, nil, a.elsewhereThen(a.repeated(err, same))
	}
	if err = a.state.CheckRoom(c.outputs); err != nil {
		return nil, nil, err
	}
	if barred == judging.NoAccount {
		return c, a.askForAccount(c), nil
	}
	return c, nil, nil
}

// movedOn refuses a call whose step another call has meanwhile finished, begun again, or ended with its
// session.
func (a *sessionActor) movedOn(stepID string) error {
	e := session.NotNow(codes.StepMovedOn,
		"Step '%s' of session '%s' has moved on while this call was under way; nothing was done. get_step says where "+
			"the session is.", stepID, a.id)
	if ended, ok := errors.AsType[*session.Error](a.state.Ended()); ok && a.state.Status != machine.Active {
		e.Message, e.Steps = ended.Message, ended.Steps
		e.Prefix("While this call was under way, another one ended the session; nothing was done.")
	}
	return e.With("step_id", stepID)
}

// root returns the folder that holds the session's files on this machine.
func (a *sessionActor) root() string { return a.engine.exports.RootOf(a.row) }

// complete finishes the step.
func (a *sessionActor) complete(ctx context.Context, c *candidate) (*Finished, error) {
	e, base := a.engine, a.state
	f := machine.FinishInput{
		Call:    c.m.Call,
		At:      e.now(),
		Outputs: c.outputs,
		Notes:   c.m.args.Notes,
		Over:    c.now.Over,
		Ended:   c.now.Ends,
	}
	if len(c.now.Verdicts) > 0 {
		f.With = a.next(c, "")
		f.With.Identity, f.With.Channel = c.m.Identity, c.m.Channel
	}

	var err error
	if f.Weakened, err = a.pin.Weakened(ctx, a.state, c.def); err != nil {
		return nil, err
	}
	if base.Ends(c.def, c.plan, f) {
		f.Lost = a.lost(c.plan.Step.ID)
	}
	next, r, def, err := e.advance(ctx, base, c.def, c.plan, f, a.root())
	if err != nil {
		return nil, err
	}
	made := &nestedWrites{root: a.root()}
	if r.BeginStep != nil && len(next.DueCalls(def)) > 0 {
		how, herr := e.Reviewing(ctx)
		if err = herr; err == nil {
			err = e.calls(ctx, how, next, def, *cmp.Or(c.m.MovedBy, new("")),
				beginReply{&r.BeginStep, &r.ConcurrentSteps, &r.ConcurrentGroup}, made)
		}
	}
	if err == nil {
		err = a.resume(ctx, next, def, c.m.MovedBy, r, made)
	}
	if err != nil {
		return nil, err
	}

	var over *Ended
	if next.Status != machine.Active || len(made.writes) > 0 {
		over = &Ended{SessionID: a.id, Step: c.plan.Step.ID, Outputs: c.outputs}
	}
	c.m.moved(over) // before it is stored: meanwhile the caller may leave and repeat the call

	w := record.Defining(def)
	w.Also = made.writes
	if err := a.commit(c.m.MovedBy, next, w); err != nil {
		return nil, err
	}

	made.written(e)
	return &Finished{Row: a.row, Reply: r, Recorded: true, Began: made.began()}, nil
}

// advance makes the transition of a finished step, with the definition to store with it.
func (e *Engine) advance(
	ctx context.Context, base *machine.State, def *machine.Definition, plan *machine.Plan, f machine.FinishInput,
	root string,
) (*machine.State, *replies.Finish, *machine.Definition, error) {
	var err error
	// those of other steps were checked before they were judged
	f.Lists, err = lists(root, def, plan.Step, f.Outputs)
	if err == nil && plan.Step.Call != nil {
		err = base.CheckRoom(f.Outputs)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	begins := base.Begins(def, plan, f)
	if begins != nil {
		if f.Texts, err = e.definitions.Texts(def, begins); err != nil {
			return nil, nil, nil, err
		}
		if def, err = e.protect(ctx, root, base, def, begins); err != nil {
			return nil, nil, nil, err
		}
	}
	if begins != nil || plan.Pending != nil {
		if def, err = e.definitions.Keep(def, f.Texts); err != nil {
			return nil, nil, nil, err
		}
	}
	next, r := base.In(e.Place).Finish(def, plan, f)
	return next, r, def, nil
}

// lists reads the outputs of a step that later entries iterate over.
func lists(
	root string, def *machine.Definition, st *job.Step, outputs outputs.Map,
) (all map[string][]json.RawMessage, err error) {
	for _, want := range machine.Lists(def, st) {
		v, given := outputs.Get(want.Output)
		if !given {
			continue
		}

		raw := []byte(nil)
		switch o := st.Output(want.Output); {
		case v.Text != nil:
			raw = []byte(*v.Text)
		case o.Type == job.File && len(v.Paths) == 1:
			raw, err = readList(root, want.Output, v.Paths[0])
		default:
			raw, err = jsontext.Encode(append([]string{}, v.Paths...)) // never null
		}
		if err != nil {
			return nil, err
		}

		if all == nil {
			all = map[string][]json.RawMessage{}
		}
		if all[want.Output], err = machine.ParseItems(want.Output, raw, want.Most); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// readList reads the file of a list of items. Its size is checked when it is parsed.
func readList(root, output, path string) ([]byte, error) {
	data, err := durable.ReadIn(root, path, machine.ListBytes)
	if err != nil {
		return nil, session.Wrong(codes.BadList,
			"Output '%s' is the list of items of a later entry, and cannot be read: %v.", output, err).With("output",
			output).Because(err)
	}
	return data, nil
}

// lost names the submitted files of the finished steps, except the given one, that no longer exist. Files of
// other machines are not checked.
func (a *sessionActor) lost(except string) (lost []string) {
	root, err := filepath.EvalSymlinks(a.root())
	if err != nil {
		return nil // the check of the outputs reports it
	}
	for _, p := range a.state.StepProgress {
		if p.Key == except || !p.Value.Done() || !a.state.In(a.engine.Place).Reaches(p.Value) {
			continue
		}

		for _, o := range p.Value.Outputs {
			for _, path := range o.Value.Paths {
				if _, info, err := durable.Locate(root, path); err != nil && (info == nil || !info.IsDir()) {
					lost = append(lost, fmt.Sprintf("'%s' (output '%s' of step '%s')", path, o.Key, p.Key))
				}
			}
		}
	}
	return lost
}

// repeatReply returns a stored reply, and also stores it under this call's request_id.
func (a *sessionActor) repeatReply(ctx context.Context, stored *machine.StoredReply, c Caller) (*Finished, error) {
	if next := a.state.Alias(stored, c.Call); next != a.state {
		if err := a.commit(c.MovedBy, next, nil); err != nil {
			return nil, err
		}
	}

	r, err := machine.ReplyOf[replies.Finish](stored)
	if err != nil {
		return nil, err
	}
	if len(r.PendingConcurrentSteps) > 0 {
		pending := a.pending(ctx)
		if !slices.Equal(r.PendingConcurrentSteps, pending[:min(len(pending), machine.ShownItems)]) {
			r.Outdated()
		}
	}

	return &Finished{Row: a.row, Reply: r}, nil
}

// pending returns the unfinished steps of the current group, or nil.
func (a *sessionActor) pending(ctx context.Context) (pending []string) {
	if def, err := a.pin.Definition(ctx, a.state); err == nil && a.state.Status == machine.Active {
		_, _, pending = a.state.Position(def)
	}
	return pending
}
