package workflow

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"deepwork/actor/telemetry"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/branch"
	"deepwork/session/codes"
	"deepwork/session/definition"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/pin"
	"deepwork/session/record"
	"deepwork/session/replies"
	"deepwork/session/store"
)

// maxDepth is how deep workflows that are steps may be nested.
const maxDepth = 16

// nestedWrites are the transitions of other sessions, for steps that are workflows, that are stored together
// with a session's own.
type nestedWrites struct {
	root   string // where the sessions work
	writes []*store.SessionWrite
	states []*machine.State // the new state of each session
	before []*machine.State // the state before of each; nil for a new session
}

// written exports and counts the stored transitions.
func (o *nestedWrites) written(e *Engine) {
	for i, w := range o.writes {
		e.exports.Write(w.Session, o.states[i])
		exportEnded(o.before[i], o.states[i])
		e.records.Count(o.before[i], o.states[i])
	}
}

// began returns the new sessions.
func (o *nestedWrites) began() (rows []store.Session) {
	for _, w := range o.writes {
		if w.Before < 0 {
			rows = append(rows, w.Session)
		}
	}
	return rows
}

// beginReply has the fields of a reply that describe the steps that begin.
type beginReply struct {
	first  **replies.StepInfo
	others *[]replies.StepInfo
	group  **string
}

// noReply is for commands, whose replies do not describe steps.
func noReply() beginReply {
	r := &replies.Start{BeginStep: &replies.StepInfo{}}
	return beginReply{&r.BeginStep, &r.ConcurrentSteps, &r.ConcurrentGroup}
}

// calls begins a session for each step of next that is a workflow without one. In the reply, the first steps
// of that session replace the step. A workflow without steps to do is complete at once, and the reply says
// so. next is being made.
func (e *Engine) calls(
	ctx context.Context, how pin.Reviewing, next *machine.State, def *machine.Definition, by string, of beginReply,
	made *nestedWrites,
) error {
	for _, st := range next.DueCalls(def) {
		depth, err := e.depth(ctx, next, made)
		if err == nil && depth > maxDepth {
			err = session.NotNow(codes.TooDeep,
				"Step '%s' cannot begin, so nothing has moved: the workflow '%s' would be the %dth within another, "+
					"and %d are the most. Have the user change the jobs: they may call each other in a circle.", st.ID,
				st.Call, depth, maxDepth)
		}
		if err != nil {
			return err
		}
		child, r, w, err := e.callee(ctx, how, next, def, st.ID, made.root)
		if err != nil {
			return err
		}
		next.Called(st.ID, child.SessionID)
		at := len(made.writes)
		made.writes, made.states, made.before = append(made.writes, w), append(made.states, child),
			append(made.before, nil)
		if err := e.calls(ctx, how, child, r.def, by, beginReply{&r.BeginStep, &r.ConcurrentSteps, &r.ConcurrentGroup},
			made); err != nil {
			return err
		}
		if err := record.Fill(made.writes[at], nil, store.Session{Root: made.root, MovedBy: by}, child); err != nil {
			return err
		}

		if child.Status == machine.Completed {
			r.BeginStep = next.Describe(def, job.Entry{st.ID}, nil).First
			r.BeginStep.Instructions = fmt.Sprintf("This step is the workflow '%s', and its conditions leave nothing "+
				"to do: call finished_step with session_id '%s', step_id '%s' and outputs {}.", st.Call,
				next.SessionID, st.ID)
		}

		others := *of.others
		if first := *of.first; first.StepID == st.ID {
			r.BeginStep.Item, r.BeginStep.Round = first.Item, first.Round
			*of.first = r.BeginStep
			if len(others) == 0 && len(r.ConcurrentSteps) > 0 { // otherwise get_step of its session returns the group
				*of.others, *of.group = r.ConcurrentSteps, r.ConcurrentGroup
			}
		}

		for i := range others {
			if others[i].StepID == st.ID {
				r.BeginStep.Item = others[i].Item
				others[i] = *r.BeginStep
			}
		}
	}

	return nil
}

// beginDue begins the steps of items whose turn has come because another item waits for a person. It also
// begins the workflows of current steps to which a command has moved the session: commands begin none.
func (a *sessionActor) beginDue(ctx context.Context, def *machine.Definition) error {
	e, turns := a.engine, a.state.Turns(def)
	if e.Catalog == nil || len(turns) == 0 && len(a.state.DueCalls(def)) == 0 {
		return nil
	}

	how, err := a.pin.Reviewing(ctx, a.state)
	if err != nil {
		return err
	}

	next, made := a.state.Next(e.now()), &nestedWrites{root: a.root()}
	if len(turns) > 0 {
		if def, _, err = e.beginning(ctx, made.root, next, def, turns); err != nil {
			return err
		}
		next.TakeTurns(def, turns, next.UpdatedAt)
	}
	if err := e.calls(ctx, how, next, def, "", noReply(), made); err != nil {
		return err
	}
	w := record.Defining(def)
	w.Also = made.writes
	if err := a.commit(nil, next, w); err != nil {
		return err
	}

	made.written(e)
	return nil
}

// depth returns how deep a session that begins now would be nested, counting itself.
func (e *Engine) depth(ctx context.Context, parent *machine.State, made *nestedWrites) (n int, err error) {
	for n = 1; parent != nil && parent.CalledAs != "" && n <= maxDepth; n++ {
		id := *parent.ParentSessionID
		parent = nil
		for _, s := range made.states {
			if s.SessionID == id {
				parent = s
			}
		}
		if parent == nil {
			r, err := e.records.Read(ctx, id, nil)
			if session.CodeOf(err) == codes.UnknownSession {
				continue // the session was removed: the chain ends here
			} else if err != nil {
				return 0, err
			}
			parent = r.State
		}
	}
	return n, nil
}

// A begunCall is the reply of a session that has begun, with its definition.
type begunCall struct {
	*replies.Start
	def *machine.Definition
}

// callee makes the session of a step that is a workflow.
func (e *Engine) callee(
	ctx context.Context, how pin.Reviewing, parent *machine.State, of *machine.Definition, stepID, root string,
) (*machine.State, *begunCall, *store.SessionWrite, error) {
	st := of.Job.Step(stepID)
	refuse := func(err error) (*machine.State, *begunCall, *store.SessionWrite, error) {
		if refused, ok := err.(*session.Error); ok {
			refused.Prefix("Step '%s' is the workflow '%s', which cannot begin, so nothing has moved:", stepID, st.Call)
		}
		return nil, nil, nil, err
	}
	if e.Catalog == nil {
		return refuse(session.NotNow(codes.WorkflowNotFound,
			"only a server can begin it: have the agent finish the step, or go back to it."))
	}

	name := cmp.Or(st.Call.Job, parent.JobName)
	j, err := definition.FindJob(ctx, e.Catalog, name)
	if err != nil && of.Kept && name == parent.JobName { // the job is gone, or does not load
		j, err = of.Job, nil
	}
	if err != nil {
		return refuse(err)
	}
	if of.Kept && j.Name == parent.JobName { // an edit that the caller ignores does not apply to what it calls, either
		if kept, _ := job.Parse(j.Dir, job.FileName, of.Job.Source); kept != nil {
			j = kept
		}
	}
	if j.Name == parent.JobName {
		if j, err = e.definitions.Keeping(parent, j); err != nil {
			return refuse(err)
		}
	}
	wf := j.Workflow(st.Call.Workflow)
	if wf == nil {
		_, err := definition.FindWorkflow(j, st.Call.Workflow)
		return refuse(cmp.Or[error](err,
			session.Wrong(codes.WorkflowNotFound, "Job '%s' has no workflow '%s'.", j.Name, st.Call.Workflow)))
	}
	def := machine.Define(j, wf.Name).For(parent)
	if len(wf.Entries) == 0 {
		return refuse(machine.NoSteps(def))
	}
	inputs, err := CheckInputs(root, wf, parent.CallValues(of, st, wf))
	if refused, ok := err.(*session.Error); ok {
		refused.Steps = nil
		refused.Add("Its entry does not name them, or what it names is blank, was not handed in, or was left out by " +
			"a condition: hand that in (go_to_step leads back to their steps), or have the user correct the job, " +
			"for example with required: false.")
	}
	if err != nil {
		return refuse(err)
	}
	def, texts, err := e.first(ctx, root, def, inputs)
	if err != nil {
		return refuse(err)
	}
	child, r, err := machine.Begin(def, machine.NewSession{
		SessionID:  randomID(4),
		Goal:       parent.Goal,
		Inputs:     inputs,
		InstanceID: parent.InstanceID,
		CalledAs:   stepID,
		Parent:     &parent.SessionID,
		Isolated:   parent.Isolated,
		Shared:     parent.Shared || of.Workflow.Shared(of.Workflow.Find(stepID)),
		BranchName: branch.Name(j.Name, wf.Name, parent.InstanceID, parent.UpdatedAt),
		Branch:     replies.BranchNamed,
		Identity:   parent.Identity,
		Place:      e.Place,
		AttemptID:  parent.AttemptID,
		At:         parent.UpdatedAt,
		Call:       machine.Call{Tool: machine.ToolStart},
		Texts:      texts,
		Notice:     e.policy.Unclosable(how, def, 0),
		Pinned:     e.policy.Pin(how, def, parent.Pinned),
		Trace:      telemetry.Text(refOf(parent)),
	})
	if err != nil {
		return refuse(err)
	}
	child = child.WithSource(e.placeKey(), def.Job.Hash)
	return child, &begunCall{r, def}, record.Defining(def), nil
}

// first returns the definition with which a session of the workflow begins, and the texts of its first steps.
func (e *Engine) first(
	ctx context.Context, root string, def *machine.Definition, inputs outputs.Map,
) (*machine.Definition, machine.Instructions, error) {
	if err := e.definitions.CheckSchemas(def); err != nil {
		return nil, nil, err
	}
	return e.beginning(ctx, root, nil, def, machine.First(def, inputs))
}

// beginning returns the definition with which the steps of an entry begin, and their texts. s is nil in a new session.
func (e *Engine) beginning(
	ctx context.Context, root string, s *machine.State, def *machine.Definition, entry job.Entry,
) (*machine.Definition, machine.Instructions, error) {
	texts, err := e.definitions.Texts(def, entry)
	if err == nil {
		def, err = e.protect(ctx, root, s, def, entry)
	}
	if err == nil {
		def, err = e.definitions.Keep(def, texts)
	}
	return def, texts, err
}

// resume goes on with the session that called the one that is complete in next. The reply to the completing
// call says how. Both transitions are stored together.
func (a *sessionActor) resume(
	ctx context.Context, next *machine.State, def *machine.Definition, by *string, r *replies.Finish,
	made *nestedWrites,
) error {
	e := a.engine
	if next.Status != machine.Completed || next.CalledAs == "" {
		return nil
	}

	parent, err := e.records.Read(ctx, *next.ParentSessionID, nil)
	if session.CodeOf(err) == codes.UnknownSession {
		return nil // the session was removed
	} else if err != nil {
		return err
	}

	// use its rules for this transition
	p := pin.Session{Policy: e.policy}
	pdef, err := p.Definition(ctx, parent.State)
	if err != nil {
		r.Notice = replies.Notice(r.Notice,
			fmt.Sprintf("The workflow that this one is a step of cannot go on: %v", err))
		return nil
	}
	plan := parent.State.PlanCall(pdef, next.CalledAs, next.SessionID)
	if plan == nil {
		return nil // the parent has gone on without this session
	}

	how, err := e.Reviewing(ctx)
	if err != nil {
		return err
	}

	f := machine.FinishInput{
		Call:    machine.Call{Tool: machine.ToolFinish},
		At:      next.UpdatedAt,
		Outputs: next.Results(def),
	}
	if f.Weakened, err = p.Weakened(ctx, parent.State, pdef); err != nil {
		return err
	}
	if why := parent.State.Exhausted(pdef, plan, f.Outputs); why != "" {
		r.Notice = replies.Notice(r.Notice,
			fmt.Sprintf("The workflow that this one is a step of waits for a person: %s. Call finished_step with "+
				"session_id '%s' and step_id '%s': the reply says how they may let it go on.",
				why, parent.State.SessionID, next.CalledAs))
		return nil
	}
	pnext, pr, pdef, err := e.advance(ctx, parent.State, pdef, plan, f, e.exports.RootOf(parent.Row))
	if err != nil {
		return err
	}
	pnext = e.sourced(parent.State, pnext)
	row := parent.Row
	if by != nil {
		row.MovedBy = *by
	}

	w := record.Defining(pdef)
	made.writes, made.states, made.before = append(made.writes, w), append(made.states, pnext),
		append(made.before, parent.State)
	if pr.BeginStep != nil && e.Catalog != nil { // otherwise see beginDue
		err := e.calls(ctx, how, pnext, pdef, row.MovedBy,
			beginReply{&pr.BeginStep, &pr.ConcurrentSteps, &pr.ConcurrentGroup}, made)
		if err != nil {
			return err
		}
	}
	if err := record.Fill(w, parent.State, row, pnext); err != nil {
		return err
	}
	r.BeginStep, r.ConcurrentSteps, r.ConcurrentGroup, r.Notice = pr.BeginStep, pr.ConcurrentSteps, pr.ConcurrentGroup,
		replies.Notice(r.Notice, pdef.Notice)
	r.Feedback = pr.Feedback
	if pnext.Status == machine.Completed {
		r.Closing = strings.TrimSpace(r.Closing + "\n\n" + pr.Closing)
		r.Notice = replies.Notice(r.Notice, "The workflow that it is a step of is complete, too. "+*pr.Summary)
		return a.resume(ctx, pnext, pdef, by, r, made)
	}

	return nil
}

// calledOutputs returns the outputs of a complete workflow, which become those of its step, or refuses to
// finish the step before the workflow is complete.
func (a *sessionActor) calledOutputs(ctx context.Context, stepID string) (outputs.Map, error) {
	p := a.state.Progress(stepID)
	if p == nil || p.Child == "" {
		return nil, session.NotNow(codes.StepIsWorkflow,
			"Step '%s' is a workflow that has not begun: call get_step with session_id '%s', which begins it.", stepID,
			a.id).With("session_id", a.id)
	}
	child, err := a.engine.records.Read(ctx, p.Child, nil)
	if session.CodeOf(err) == codes.UnknownSession {
		return nil, a.state.CallOpen(stepID, nil)
	} else if err != nil {
		return nil, err
	}
	if child.State.Status != machine.Completed {
		return nil, a.state.CallOpen(stepID, child.State)
	}
	def, err := a.engine.definitions.Current(ctx, child.State, a.engine.placeKey())
	if session.CodeOf(err) == codes.DefinitionLost { // the session was imported
		def, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	return child.State.Results(def), nil
}

// leave ends the sessions of steps that are workflows and that were left between two states, by a go_to_step,
// an abort, or a person who dropped an item. Close waits for that. A session that is not ended, because this
// process was killed, goes on by itself.
func (a *sessionActor) leave(before, next *machine.State) {
	e := a.engine
	for _, p := range before.StepProgress {
		now, reason := next.Progress(p.Key), "The workflow that it is a step of went back to an earlier step."
		switch left := now == nil || now.Child != p.Value.Child; {
		case p.Value.Child == "" || p.Value.Done() || !left && now.Done():
			continue
		case next.Status == machine.Aborted:
			reason = "The workflow that it is a step of was aborted: " + *next.AbortReason
		case !left && now.Dropped == nil:
			continue
		case !left:
			reason = "A person has dropped its item."
		}
		e.ending(a.id, p.Value.Child, func() {
			err := e.AbortFor(e.ctx, p.Value.Child, reason)
			if err != nil && session.CodeOf(err) != codes.SessionEnded {
				e.Logger.Warn("the workflow of a step that was left is not ended", "session", p.Value.Child,
					"error", err)
			}
		})
	}
}
