package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/pin"
	"deepwork/session/record"
	"deepwork/session/replies"
	"deepwork/session/store"
)

// A decision is a person's answer about the outputs with this digest.
type decision struct {
	Step, Digest string
	Answer       machine.Answer // its time, set once, tells it from other answers
}

// askPerson answers a call whose outputs a person has to pass, once the other reviews are done or overridden.
func (a *sessionActor) askPerson(ctx context.Context, c *candidate) (*Finished, error) {
	stepID, u := c.plan.Step.ID, c.now.Of
	if u.With() != judging.ByPerson {
		var err error
		if c.def, err = a.engine.definitions.Keep(c.def, nil); err != nil { // the person sees the step's criteria
			return nil, err
		}
		u = a.next(c, judging.ByPerson)
		next := a.state.Submit(stepID, u, a.replacing(stepID), a.engine.now())
		next.Definition = c.def.Ref
		c.holdGroup(next)
		if err := a.commit(c.m.MovedBy, next, record.Defining(c.def)); err != nil {
			return nil, err
		}
	}

	what, why, how := "pass the outputs of", "", "review is needed: they look at the outputs and decide"
	if about := u.Turn().About; about != "" {
		what, why = "say how to go on after", ": "+strings.TrimSuffix(about, ".")
		how = "decision is needed: one more round, go on as it is, or stop. They decide"
	}
	f := a.needsWork(c.def.Notice, fmt.Sprintf(
		"Waiting: a person must %s step '%s', and has not answered yet%s. Tell the user that their %s with `deepwork "+
			"sessions review %s %s` at a terminal of their own, in the project, or on the session's page of the web "+
			"UI. Meanwhile change nothing. Then call finished_step again with session_id '%s', step_id '%s' and the "+
			"same outputs. This is not a failed try, and quality_review_override_reason does not skip it.",
		what, stepID, why, how, a.id, session.InShell(stepID), a.id, stepID))
	f.Reply.Going = &replies.Going{SessionID: a.id, StepID: stepID, Submission: u.ID}
	f.Reply.Waits = &session.Waiting{Code: codes.PersonAwaited, RetryAfterMS: 30_000}
	if c.how.Override == config.OverrideAgent || c.how.Override == "" {
		f.Asks = u.Content
	}
	return f, nil
}

// decide records a person's answer, which the next finished_step of the step applies.
func (a *sessionActor) decide(d decision) error {
	u := a.state.Progress(d.Step).Asked()
	if old := u.Answer(); old != nil && u.Content == d.Digest {
		if old.At.Equal(d.Answer.At) && old.By == d.Answer.Identity {
			return nil // already stored, by a commit that was not confirmed
		}
	}
	next, err := a.state.Answer(d.Step, d.Digest, d.Answer)
	if err != nil {
		return err
	}
	return a.commit(nil, next, nil)
}

// AsHandedIn returns why a person cannot decide about the outputs of a step, or nil. They cannot if the step
// does not wait for a person, if other outputs were handed in since, or if the files have changed since the
// agent handed them in. root is where the session works; digest is "" before the outputs are shown.
func AsHandedIn(ctx context.Context, root string, s *machine.State, stepID, digest string) error {
	q, err := s.ToAnswer(stepID, digest)
	if err != nil {
		return err
	}
	changed, err := Changed(ctx, s.RootOf(root, stepID), q)
	if err != nil {
		return session.NotNow(codes.OutputsChanged,
			"The outputs of step '%s' of session '%s' cannot be read here, so you cannot have judged them: %v. "+
				"Answer where the agent works or, if they were removed, have it hand them in again.", stepID,
			s.SessionID, err).Because(err)
	}
	if changed != nil {
		return session.NotNow(codes.OutputsChanged,
			"%s changed after the agent handed in the outputs of step '%s' of session '%s'. Nothing was recorded: "+
				"have the agent hand in the outputs as they are now, and look at those.", strings.Join(changed, ", "),
			stepID, s.SessionID)
	}

	return nil
}

// Changed returns the quoted names of a submission's files that have changed since they were handed in. root is
// where the session works.
func Changed(ctx context.Context, root string, q *judging.Submission) (changed []string, err error) {
	var paths []string
	for _, f := range q.Files {
		if f.Output == "" { // texts cannot change
			paths = append(paths, f.Path)
		}
	}
	hashes, err := gate.HashFiles(ctx, root, paths)
	if err != nil {
		return nil, err
	}
	for _, f := range q.Files {
		if f.Output == "" && hashes[f.Path] != f.SHA256 {
			changed = append(changed, "'"+f.Path+"'")
		}
	}
	return changed, nil
}

// What a person at a terminal or on a page does to a session, whatever its identity and root.

// A grant is a person's override of the reviews of a step.
type grant struct {
	Step     string
	Override judging.Override // without its time
}

// AbortFor ends a session for a person.
func (e *Engine) AbortFor(ctx context.Context, id, reason string) error {
	return e.actFor(ctx, id, machine.ToolAbort, func(_ context.Context, a *sessionActor, who Caller) error {
		_, err := a.abort(who, reason)
		return err
	})
}

// AbortOf ends the active sessions that began in the workspace of an attempt.
func (e *Engine) AbortOf(ctx context.Context, attemptID, reason string) error {
	rows, err := e.records.List(ctx, store.SessionQuery{Active: true, Attempt: &attemptID})
	for _, row := range rows {
		if aerr := e.AbortFor(ctx, row.ID, reason); session.CodeOf(aerr) != codes.SessionEnded {
			err = errors.Join(err, aerr)
		}
	}
	return err
}

// OverrideFor records that a person overrides the reviews of a current step: its next finished_step is not
// reviewed. o.GivenFor is what the person was shown (see GivenFor).
func (e *Engine) OverrideFor(ctx context.Context, id, stepID string, o judging.Override) error {
	return e.actFor(ctx, id, "", func(ctx context.Context, a *sessionActor, _ Caller) error {
		return a.grant(ctx, grant{stepID, o})
	})
}

// DropFor records that a person drops the item of a step, such as port[3].
func (e *Engine) DropFor(ctx context.Context, id, stepID string, o judging.Override) error {
	o.At = e.now()
	return e.actFor(ctx, id, "", func(ctx context.Context, a *sessionActor, _ Caller) error {
		def, err := a.pin.Definition(ctx, a.state)
		if err != nil {
			return err
		}

		how, err := e.Reviewing(ctx)
		if err != nil {
			return err
		}

		if p := a.state.Progress(stepID); p != nil && p.Dropped != nil && p.Dropped.At.Equal(o.At) {
			return nil // already stored, by a commit that was not confirmed
		}

		next, err := a.state.Drop(def, stepID, o,
			func(entry job.Entry) (*machine.Definition, machine.Instructions, error) {
				texts, err := e.definitions.Texts(def, entry)
				if err != nil {
					return nil, nil, err
				}
				if def, err = e.protect(ctx, a.root(), a.state, def, entry); err == nil {
					def, err = e.definitions.Keep(def, texts)
				}
				return def, texts, err
			})
		if err != nil {
			return err
		}
		made := &nestedWrites{root: a.root()}
		if e.Catalog != nil { // otherwise see beginDue
			if err := e.calls(ctx, how, next, def, "", noReply(), made); err != nil {
				return err
			}
		}
		if err := a.resume(ctx, next, def, nil, replies.NewFinish(replies.WorkflowComplete), made); err != nil {
			return err
		}

		w := record.Defining(def)
		w.Also = made.writes
		if err := a.commit(nil, next, w); err != nil {
			return err
		}

		made.written(e)
		return nil
	})
}

// GoToFor goes back to a step of a session; see GoTo. It is refused if the session has moved since the
// person saw it, since it would undo steps finished meanwhile. seen is the revision that the person saw; 0
// means any.
func (e *Engine) GoToFor(ctx context.Context, id, stepID string, seen int64) error {
	return e.actFor(ctx, id, machine.ToolGoTo, func(ctx context.Context, a *sessionActor, who Caller) error {
		if seen != 0 && seen != a.state.Revision && a.state.OwnReply(who.Call) == nil {
			return session.NotNow(codes.StepMovedOn,
				"Session '%s' has moved on since you were shown it, so nothing was done: look at where it is now, "+
					"and go back again if you still want to.", id)
		}
		_, err := a.goTo(ctx, who, stepID, false)
		return err
	})
}

// ReviewFor records what a person decides about a step that waits for one. digest is that of the outputs that
// they were shown. An answer is refused if the files have changed since they were handed in.
func (e *Engine) ReviewFor(ctx context.Context, id, stepID, digest string, answer machine.Answer) error {
	answer.At = e.now()
	r, err := e.records.Read(ctx, id, nil)
	if err != nil {
		return err
	}
	if err := AsHandedIn(ctx, e.exports.RootOf(r.Row), r.State, stepID, digest); err != nil {
		return err
	}
	d := decision{Step: stepID, Digest: digest, Answer: answer}
	return e.actFor(ctx, id, "", func(_ context.Context, a *sessionActor, _ Caller) error { return a.decide(d) })
}

// HandInAgain hands in the current outputs of a step that waits for a person, who has edited them; the person
// is then asked about these. It is refused if anybody else judges the outputs, too, or the session works
// elsewhere: then the agent must hand them in.
func (e *Engine) HandInAgain(ctx context.Context, id, stepID string) error {
	r, err := e.records.Read(ctx, id, nil)
	if err != nil {
		return err
	}
	q, err := r.State.ToAnswer(stepID, "")
	if err != nil {
		return err
	}
	step, err := e.Step(r.State, stepID)
	if err != nil {
		return err
	}
	if e.exports.RootOf(r.Row) != e.Root || len(step.Checks)+len(step.ReviewsBy(false)) > 0 || step.HasSchema() ||
		r.State.Progress(stepID).HasGrant() {
		return session.NotNow(codes.OutputsChanged,
			"The outputs changed, so the agent of session '%s' has to hand in step '%s' again: tell it to hand them "+
				"in as they are now. In a run, that happens automatically. Then review them again.", id, stepID)
	}

	outputs, err := json.Marshal(outputs.Plain(q.Outputs))
	if err != nil {
		return err
	}
	_, err = e.finish(ctx, id, &finishCall{
		Caller: Caller{
			Identity: r.Row.Identity,
			Anywhere: true,
			Call:     machine.Call{Tool: machine.ToolFinish, ID: randomID(8), Named: true},
		},
		args:  FinishArgs{SessionID: &id, StepID: &stepID, Outputs: outputs, Notes: q.Notes},
		until: time.Now().Add(e.AskTimeout),
		from:  ctx,
		moved: func(*Ended) {},
	})
	return err
}

// ToReview returns the steps of all active sessions of the project that wait for a person's review, oldest
// first.
func (e *Engine) ToReview(ctx context.Context) (all []session.AwaitingStep, err error) {
	rows, err := e.records.List(ctx, store.SessionQuery{Active: true, Waiting: true})
	for _, row := range rows {
		for _, o := range record.WaitingIn(row).Steps {
			if !o.Asked.IsZero() {
				all = append(all, session.AwaitingStep{
					SessionID: row.ID,
					Step:      o.ID,
					Goal:      row.Goal,
					Review:    true,
					Since:     o.Asked,
				})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b session.AwaitingStep) int { return a.Since.Compare(b.Since) })
	return all, err
}

// actFor has a session's actor do what a person asks for. The recorded process that last moved the session
// over a connection stays the same.
func (e *Engine) actFor(
	ctx context.Context, id, tool string, do func(context.Context, *sessionActor, Caller) error,
) error {
	call := machine.Call{Tool: tool, ID: randomID(8)}
	_, err := ask(ctx, e, id, func(ctx context.Context, a *sessionActor) (none struct{}, err error) {
		who := Caller{Identity: a.state.Identity, Anywhere: true, Call: call}
		if a.state.Status != machine.Active && a.state.OwnReply(call) == nil {
			return none, a.state.Ended()
		}
		return none, do(ctx, a, who)
	})
	return err
}

// awaiting returns the open steps of a session that wait for a person: those whose outputs a person must
// pass, those that have failed as many reviews as are allowed, and, if only people may override, those that
// the agent reviews itself.
func awaiting(row store.Session, how pin.Reviewing) (all []session.AwaitingStep) {
	w := record.WaitingIn(row)
	if (how.Pin || w.Pin) && w.Override.Stricter(how.Override) {
		how.Override = w.Override
	}
	for _, o := range w.Steps {
		step := session.AwaitingStep{
			SessionID: row.ID,
			Step:      o.ID,
			Goal:      row.Goal,
			AttemptID: row.AttemptID,
			Since:     o.Failed,
			Why:       o.Why,
		}
		switch {
		case !o.Asked.IsZero():
			step.Review, step.Rounds, step.Since = true, o.Rounds, o.Asked
		case how.Override == config.OverrideNever:
			continue
		case o.Given:
			if o.Failed.IsZero() || o.Reviews < how.MaxTries {
				continue
			}
		case how.Override == config.OverrideHuman && !o.Shown.IsZero():
			step.Since = o.Shown
		default:
			continue
		}
		all = append(all, step)
	}
	return all
}

// awaitingBy returns the settings that decide which steps wait for a person. On a server without reviews
// these are only the steps that a person must pass.
func (e *Engine) awaitingBy(ctx context.Context) (pin.Reviewing, error) {
	how, err := e.Reviewing(ctx)
	if !e.Reviews {
		how.Override = config.OverrideNever
	}
	return how, err
}

// Awaiting returns the steps that wait for a person: those of the caller's active sessions in the project (of
// all sessions for the owner), and those of attempts.
func (e *Engine) Awaiting(
	ctx context.Context, who session.Caller, attempts []string,
) (all []session.AwaitingStep, err error) {
	how, err := e.awaitingBy(ctx)
	if err != nil {
		return nil, err
	}

	rows, err := e.records.List(ctx, store.SessionQuery{Active: true, Waiting: true, Limit: triedListed})
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if row.AttemptID == "" && (who.Owner || who.Identity == row.Identity) ||
			slices.Contains(attempts, row.AttemptID) {
			all = append(all, awaiting(row, how)...)
		}
	}
	return all, nil
}

// AwaitingIn returns the steps of one session that wait for a person.
func (e *Engine) AwaitingIn(ctx context.Context, row store.Session) ([]session.AwaitingStep, error) {
	how, err := e.awaitingBy(ctx)
	return awaiting(row, how), err
}

// CancelReview ends the judging of a submission that a finished_step waits for, by programs, reviewers or a person,
// which makes it void. It changes nothing if that is over.
func (e *Engine) CancelReview(ctx context.Context, g replies.Going) error {
	return e.actFor(ctx, g.SessionID, "", func(_ context.Context, a *sessionActor, _ Caller) error {
		u := a.state.Past(g.StepID).By(g.Submission)
		if !u.Running() && u.With() != judging.ByPerson {
			return nil
		}
		void := &judging.Void{Why: "its caller cancelled it", Cancelled: true}
		return a.commit(nil, a.state.End(g.StepID, u.ID, void, a.engine.now()), nil)
	})
}
