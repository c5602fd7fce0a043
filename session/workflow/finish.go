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

	"deepwork/actor"
	"deepwork/actor/durable"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/schema"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/check"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/record"
	"deepwork/session/replies"
	"deepwork/session/store"
)

// finished is the result of a finished_step.
type finished struct {
	Row      store.Session // the session after the call
	Reply    *replies.Finish
	Began    []store.Session // sessions that it has begun, for steps that are workflows
	Recorded bool            // a transition or the answer was stored; false for a repetition and for needs work

	question *decision // what the caller's client may ask its user; nil means nothing
}

// needsWork returns the reply to a call that has not finished its step.
func (a *sessionActor) needsWork(notice, feedback string) *finished {
	r := replies.NewFinish(replies.NeedsWork, notice)
	r.Feedback = &feedback
	return &finished{Row: a.row, Reply: r}
}

// A finishCall is a finished_step in progress.
type finishCall struct {
	caller
	args     FinishArgs
	until    time.Time       // the time by which the reply must be sent
	from     context.Context // the caller's context: once it ends nothing may move, since nobody gets the reply
	progress ProgressFunc    // may be nil
	conn     *Conn           // gets the transition once it is durable
	reply    actor.Reply[*finished]

	// step is the step that was current when the call arrived, if its outputs are reviewed; it stays the same
	// if the session moves on meanwhile. At first it is "".
	step string
	// joined is the digest of the outputs whose verdict the call waits, or waited, for; at first it is "".
	joined    string
	content   string                    // the digest of the outputs and criteria, once read
	outputs   outputs.Map               // validated, with the files of folders
	forPerson bool                      // a person judges the outputs, among others
	recorded  []machine.FileHash        // the step's newest recorded hand-in
	handedIn  *handedIn                 // the outputs to record for a person; nil if recorded or not for one
	schemas   map[string]*schema.Schema // schemas of the step's outputs, by name
	misfits   string                    // what is wrong with the outputs by these schemas, or ""
	subject   *check.Subject            // what the step's checks judge
	notice    string                    // about a person's override that is not for these outputs, or ""
}

func (m *finishCall) receive(ctx context.Context, a *sessionActor) {
	command[*finished]{func(ctx context.Context, a *sessionActor) (*finished, error) {
		return a.finish(ctx, m)
	}, m.reply}.receive(ctx, a)
}

// A candidate is a finished_step with valid outputs for a step that was found.
type candidate struct {
	m        *finishCall
	def      *machine.Definition
	plan     *machine.Plan
	outputs  outputs.Map // as submitted
	expanded outputs.Map // with the files of folders
	evidence *machine.Evidence
	files    []machine.FileHash // the files of the outputs, if the step has reviews or checks
	digest   string             // the digest of what is judged
	bound    string             // of that and of what the checks are about; "" without checks
	checks   []*machine.Verdict // the results of the checks, all passed
	over     []string           // the checks that a person passes over
	ended    *machine.RoundEnd  // what the program that ends the rounds said; nil means none
}

// holdGroup records in next, which is being made, that a member of a concurrent group was handed in by its
// step_id, so that the group waits for the others.
func (c *candidate) holdGroup(next *machine.State) {
	next.ReportedByStepID = next.ReportedByStepID || c.plan.ByStepID && len(c.plan.Pending) > 0
}

// finish carries out a finished_step: it finds the step, checks and reviews its outputs, and moves on in one
// durable transition (seed 000, 001.4). errLater means that a review will answer the call.
func (a *sessionActor) finish(ctx context.Context, m *finishCall) (*finished, error) {
	// A repeated call waits for what is in progress, even if its outputs no longer satisfy their schemas.
	c, done, unfit := a.prepare(ctx, m)
	if done != nil || c == nil || unfit != nil && m.args.Of == nil {
		return done, unfit
	}

	st := c.plan.Step
	var err error
	if m.schemas, err = a.schemas(c.def, st); err != nil {
		return nil, err
	}
	switch {
	case a.engine.reviewed(st), len(st.ReviewsBy(true)) > 0, len(m.schemas) > 0, len(st.Checks) > 0:
		// The call is about the step that is current when it arrives, whatever this process has cached.
		if changed, err := a.refresh(ctx); err != nil {
			return nil, err
		} else if changed {
			return nil, errOvertaken
		}

		m.step = st.ID
		m.outputs = c.expanded
		m.subject = a.subject(c)
		m.forPerson = len(st.ReviewsBy(true)) > 0
		if p := a.state.Progress(st.ID); p != nil && p.Question != nil {
			m.recorded = p.Question.Files
		} else if last := p.Newest(); last != nil {
			m.recorded = last.Files
		}
		if m.args.Of != nil {
			if f, err := a.goingOn(ctx, c); f != nil || err != nil {
				return f, err
			}
		}

		if unfit != nil {
			return nil, unfit
		}
		a.hash(m)
		return nil, errLater
	case unfit != nil:
		return nil, unfit
	case len(st.Reviews) > 0:
		c.evidence = a.evidence(c, machine.Unreviewed, "")
	}

	return a.complete(ctx, a.state, c)
}

// prepare determines the step of a finished_step. done is the reply if the call repeats an earlier one. An
// error about the outputs comes with a candidate.
func (a *sessionActor) prepare(ctx context.Context, m *finishCall) (c *candidate, done *finished, err error) {
	if r, err := a.repetition(m.caller); err != nil {
		return nil, nil, err
	} else if r != nil {
		done, err = a.repeatReply(ctx, r, m.caller)
		return nil, done, err
	}

	same := func(have outputs.Map) bool { return outputs.Same(m.args.Outputs, have) }
	c = &candidate{m: m}
	if a.state.Status == machine.Active {
		if err = a.branched(ctx, m.caller); err != nil {
			return nil, nil, err
		}
		if c.def, err = a.definition(ctx); err != nil {
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
		done, err = a.repeatReply(ctx, replay, m.caller)
		return nil, done, err
	}
	if err = a.mayOverride(ctx, c); err != nil {
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
		c.outputs, err = a.calledOutputs(ctx, c.plan.Step.ID)
		c.expanded = c.outputs
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
	return c, a.askForAccount(c), nil
}

// askForAccount returns the reply to a call that lacks the account of the work that is to be judged, or nil.
// Such a call does not count as a try of the reviews.
func (a *sessionActor) askForAccount(c *candidate) *finished {
	st, m := c.plan.Step, c.m
	if m.args.Notes != nil && strings.TrimSpace(*m.args.Notes) != "" || m.reason() != "" ||
		a.state.Progress(st.ID).HasGrant() || !a.engine.reviewed(st) || !gate.JudgesAccount(st) {
		return nil
	}

	var b strings.Builder
	for _, r := range st.ReviewsBy(false) {
		for _, criterion := range r.Criteria {
			if r.Account {
				fmt.Fprintf(&b, "- %s: %s\n", criterion.Name, strings.TrimSpace(criterion.Question))
			}
		}
	}
	return a.needsWork(c.def.Notice,
		fmt.Sprintf("Step '%s' is reviewed also by how it was done. Call finished_step again with the same outputs, "+
			"and with notes: your account of what you did, in what order and how, by which a reviewer can judge "+
			"these requirements:\n%sNothing was reviewed, and no try was used up.", st.ID, b.String()))
}

// movedOn refuses a call whose step another call has meanwhile finished, begun again, or ended with its
// session.
func (a *sessionActor) movedOn(stepID string) error {
	e := session.NotNow(codes.StepMovedOn,
		"Step '%s' of session '%s' has moved on while this call was under way; nothing was done. get_step says where "+
			"the session is.", stepID, a.id)
	if ended, ok := errors.AsType[*session.Error](a.state.Ended()); ok && a.state.Status != machine.Active {
		e.Message = "While this call was under way, another one ended the session; nothing was done. " + ended.Message
	}
	return e.With("step_id", stepID)
}

// root returns the folder that holds the session's files on this machine.
func (a *sessionActor) root() string { return a.engine.exports.RootOf(a.row) }

// complete makes the transition from base.
func (a *sessionActor) complete(ctx context.Context, base *machine.State, c *candidate) (*finished, error) {
	e := a.engine
	f := machine.FinishInput{
		Call:     c.m.Call,
		At:       e.now(),
		Outputs:  c.outputs,
		Notes:    c.m.args.Notes,
		Evidence: c.evidence,
		Over:     c.over,
		Ended:    c.ended,
	}
	why := base.Exhausted(c.def, c.plan, f)
	if why != "" && (c.evidence == nil || c.evidence.Kind != machine.ByPerson) {
		by := a.override(c, Reviewing{Override: config.OverrideHuman})
		if by == nil || by.Kind != machine.ByPerson {
			return a.exhausted(c, why)
		}
		c.evidence = by
		f.Evidence = by
	}
	if c.checks != nil {
		if c.evidence == nil {
			c.evidence = a.evidence(c, machine.ByChecks, "")
		}
		f.Evidence = new(*c.evidence)
		f.Evidence.Checks = c.checks
	}

	var err error
	if f.Weakened, err = a.weakened(ctx, c.def); err != nil {
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

	var over *ended
	if next.Status != machine.Active || len(made.writes) > 0 {
		over = &ended{id: a.id, step: c.plan.Step.ID, outputs: c.outputs}
	}
	c.m.conn.moved(over) // before it is stored: meanwhile the caller may leave and repeat the call

	w := record.Defining(def)
	w.Also = made.writes
	if err := a.commit(c.m.MovedBy, next, w); err != nil {
		return nil, err
	}

	made.written(e)
	return &finished{Row: a.row, Reply: r, Recorded: true, Began: made.began()}, nil
}

// exhausted answers a call that would end the last round of a form although the condition for ending the
// rounds is not met: a person has to let the workflow go on.
func (a *sessionActor) exhausted(c *candidate, why string) (*finished, error) {
	st := c.plan.Step
	if was := a.state.Progress(st.ID); was == nil || was.Unfit == nil || was.Unfit.Digest != c.digest {
		next := a.state.Misfit(st.ID, machine.Shown{At: a.engine.now(), Digest: c.digest, Files: c.files, Faults: why})
		if err := a.commit(c.m.MovedBy, next, nil); err != nil {
			return nil, err
		}
	}
	return a.needsWork(c.def.Notice,
		fmt.Sprintf("Step '%s' is done, but %s. Tell the user: a person may let the workflow go on with `%s`, after "+
			"which you call finished_step again with the same outputs; go_to_step starts the steps of this round "+
			"again.",
			st.ID, why, overrideCommand(a.id, st.ID))), nil
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
func (a *sessionActor) repeatReply(ctx context.Context, stored *machine.StoredReply, c caller) (*finished, error) {
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

	return &finished{Row: a.row, Reply: r}, nil
}

// reviewFile returns the project name and the path of a self-review's instructions.
func (a *sessionActor) reviewFile(stepID string) (name, path string) {
	name = fmt.Sprintf(".deepwork/tmp/quality_review_%s_%s.md", a.id, stepID)
	path = filepath.Join(a.root(), filepath.FromSlash(name))
	if a.state.RootOf("", stepID) != "" { // the agent works in another folder
		name = path
	}
	return name, path
}

// selfReview writes the review's instructions and asks the agent to carry them out (seed 000, 001.4.10). The
// session does not move.
func (a *sessionActor) selfReview(c *candidate, how Reviewing) (*finished, error) {
	st := c.plan.Step
	closing, err := closing(how, a.id, st.ID)
	if err != nil {
		return nil, err
	}

	sub := a.submission(c)
	name, path := a.reviewFile(st.ID)
	err = session.MakeSessions(a.engine.State, a.engine.Logger) // the folder may have been removed
	if err == nil {
		err = durable.Disk{}.Put(path, []byte(gate.SelfReview(sub)), durable.PutOptions{Temp: ".review-*"})
	}
	if err != nil {
		return nil, record.NotSaved(a.id, fmt.Errorf("writing the review's instructions: %w", err))
	}

	if shown := a.state.ProgressOrNew(st.ID, a.engine.now()).Shown; shown == nil || shown.Digest != c.digest {
		next := a.state.Show(st.ID, machine.Shown{At: a.engine.now(), Digest: c.digest, Files: c.files})
		c.holdGroup(next)
		if err := a.commit(c.m.MovedBy, next, nil); err != nil {
			return nil, err
		}
	}
	return a.needsWork(c.def.Notice, fmt.Sprintf(`Quality review required for step '%s' before it is finished.

1. Spawn a subagent%s (with the Task tool, or another tool that starts one) with this prompt: "Read %s and follow `+
		`it. Report PASS or FAIL for each criterion."
   Do not review your own work yourself if you can start a subagent.
2. Correct what failed, and have it reviewed again until every criterion passes.
%s`, st.ID, reviewerAgents(gate.Due(sub)), name, closing)), nil
}

// reviewerAgents names the subagents that the reviews ask for, to follow "a subagent", or returns "".
func reviewerAgents(reviews []job.Review) string {
	var all []string
	for _, r := range reviews {
		of := fmt.Sprintf("'%s' for the review of %s", r.Agent, r.RunEach)
		if r.Agent != "" && !slices.Contains(all, of) {
			all = append(all, of)
		}
	}
	if all == nil {
		return ""
	}
	return " of the type " + strings.Join(all, ", ")
}

// pending returns the unfinished steps of the current group, or nil.
func (a *sessionActor) pending(ctx context.Context) (pending []string) {
	if def, err := a.definition(ctx); err == nil && a.state.Status == machine.Active {
		_, _, pending = a.state.Position(def)
	}
	return pending
}
