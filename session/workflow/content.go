package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"deepwork/catalog/config"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/check"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/replies"
)

// hash reads the submitted files and what the checks judge, and validates files by their schemas. It runs
// outside the actor, which continues to receive.
func (a *sessionActor) hash(m *finishCall) {
	a.engine.background.Go(func() {
		content, err := m.subject.Look(a.engine.ctx)
		if err == nil {
			m.misfits, err = misfits(a.engine.ctx, m.subject.Root, m.outputs, m.schemas, content.Outputs)
		}
		if err == nil && m.forPerson {
			if files := machine.FileHashes(m.outputs, content.Outputs); !slices.Equal(files, m.recorded) {
				m.handedIn, err = packHandIn(m.subject.Root, m.outputs, files)
			}
		}
		if told := a.tell(m.decideOn(content, err)); told != nil {
			m.reply.Fail(told)
		}
	})
}

// decideOn returns the message that has the actor decide on the content.
func (m *finishCall) decideOn(content *check.Content, err error) message {
	return command[*finished]{func(ctx context.Context, a *sessionActor) (*finished, error) {
		return a.hashed(ctx, m, content, err)
	}, m.reply}
}

// hashed decides a call after its files were hashed.
func (a *sessionActor) hashed(
	ctx context.Context, m *finishCall, content *check.Content, err error,
) (*finished, error) {
	if err != nil {
		return nil, session.Wrong(codes.FileUnreadable,
			"The outputs, or what their checks are about, cannot be read, so nothing has moved: %v. Correct that and "+
				"make the same call again.", err).Because(err)
	}

	hashes := content.Outputs
	if m.from.Err() != nil {
		return nil, context.Canceled // nobody would get the result
	}

	// The session may have moved on while the files were read.
	c, done, err := a.prepare(ctx, m)
	if err != nil || done != nil {
		return done, err
	}

	how, err := a.reviewing(ctx)
	if err != nil {
		return nil, err
	}

	subject := a.subject(c)
	if !reflect.DeepEqual(subject.Checks, m.subject.Checks) ||
		slices.ContainsFunc(subject.Outputs, func(path string) bool { return hashes[path] == "" }) {
		m.outputs, m.subject = c.expanded, subject // an edit of the job changed them, or a file came into a folder
		a.hash(m)
		return nil, errLater
	}

	stepID := c.plan.Step.ID
	sub := a.submission(c)
	sub.Reviewer = how.use
	tasks := gate.Plan(sub, hashes)
	c.bind(content, slices.Concat(tasks, gate.PlanHuman(sub, hashes)))

	if err := a.overtaken(c); err != nil {
		return nil, err
	}

	if m.handedIn.is(c.files) {
		if err := a.keepHandIn(ctx, stepID, m.handedIn); err != nil {
			return nil, err
		}
	}
	if next := a.state.Unask(stepID, c.digest, a.engine.now()); next != a.state {
		if err := a.commit(m.MovedBy, next, nil); err != nil {
			return nil, err
		}
	}
	m.outputs = c.expanded
	c.evidence = a.override(c, how)
	overridden := c.evidence != nil && (c.evidence.Kind == machine.ByPerson || m.misfits == "")
	if len(c.plan.Step.Checks) > 0 && (overridden || m.misfits == "") {
		if f, err := a.checked(ctx, c, content, how); f != nil || err != nil {
			return f, err
		}
	}
	if overridden {
		c.evidence.Misfits = m.misfits
		return a.approve(ctx, a.state, c)
	}
	if a.state.Progress(stepID).HasGrant() && how.Override != config.OverrideNever {
		c.note(fmt.Sprintf("A person has overridden the review of step '%s', but for other outputs than these: those "+
			"go on without it, these do not.", stepID))
	}
	if m.misfits != "" {
		return a.unfit(c, how)
	}

	switch p := a.state.ProgressOrNew(stepID, a.engine.now()); {
	case p.Question != nil && p.Question.Digest == c.digest:
		return a.approve(ctx, a.state, c) // its other reviews have passed already
	case !a.engine.Reviews && len(c.plan.Step.ReviewsBy(false)) > 0:
		c.evidence = a.evidence(c, machine.Unreviewed, "")
		return a.approve(ctx, a.state, c)
	case !a.engine.reviewed(c.plan.Step):
		return a.approve(ctx, a.state, c)
	case len(tasks) == 0:
		c.evidence = a.evidence(c, machine.NotDue, "")
		return a.approve(ctx, a.replacing(stepID), c)
	case how.Refused != nil:
		return nil, how.Refused
	case !how.External:
		return a.selfReview(c, how)
	}

	return a.external(ctx, c, sub, tasks, hashes, how)
}

// bind computes the digest of the submitted content, which reviews, checks and answers refer to.
func (c *candidate) bind(content *check.Content, tasks []gate.Task) {
	c.files = machine.FileHashes(c.expanded, content.Outputs)
	var checked []machine.FileHash
	if len(c.m.schemas)+len(c.plan.Step.Checks) > 0 {
		checked = c.files
	}
	c.digest = contentDigest(c.outputs, tasks, checked...)
	c.m.content = c.digest
	if len(c.plan.Step.Checks) > 0 {
		c.bound = content.Bound(c.digest)
	}
}

// note adds a notice to the reply.
func (c *candidate) note(notice string) {
	c.m.notice = notice
	def := *c.def
	def.Notice = strings.TrimPrefix(def.Notice+" "+notice, " ")
	c.def = &def
}

// overtaken returns why a call that waits or waited for a verdict cannot go on, or nil. It cannot if it only
// looks again and its content has changed, if the step was begun again, if other outputs were handed in for
// the step, or if the review has ended without a verdict.
func (a *sessionActor) overtaken(c *candidate) error {
	stepID, newest := c.plan.Step.ID, ""
	p := a.state.ProgressOrNew(stepID, a.engine.now())
	last, q := p.Newest(), p.Question
	if last != nil {
		newest = last.Digest
	}
	if q != nil && (last == nil || q.AskedAt.After(last.OpenedAt)) {
		newest = q.Digest
	}
	switch {
	case c.m.joined == "":
		return nil
	case c.m.args.Of != nil && c.m.args.Of.Content != c.digest && !c.handedInAs(c.m.args.Of):
		return a.outputsChanged(stepID)
	case newest == "":
		return a.movedOn(stepID)
	case !slices.Contains([]string{c.m.joined, c.bound, c.digest}, newest) &&
		!(last != nil && last.Digest == newest && c.checkedBy(last)):
		return superseded(stepID)
	case last != nil && last.Digest == newest && last.State == machine.TryVoid && !last.NotBegun:
		return session.Wrong(codes.ReviewFailed,
			"There is no verdict on these outputs of step '%s': %s\nNothing has moved.", stepID,
			*last.Error).With("step_id", stepID)
	}

	return nil
}

// handedInAs reports whether the judged content is what an earlier call handed in.
func (c *candidate) handedInAs(of *replies.Going) bool {
	return of.Digest == c.digest || of.Digest == c.bound
}

// checkedBy reports whether a try checks the outputs of a call that looks again. A later call may have handed
// in the same outputs with other content for the checks.
func (c *candidate) checkedBy(try *machine.Try) bool {
	return c.m.args.Of != nil && try.Checks && slices.Equal(try.Files, c.files)
}

func (a *sessionActor) outputsChanged(stepID string) error {
	return session.NotNow(codes.OutputsChanged,
		"The outputs of step '%s' of session '%s', or what its checks are about, changed after they were handed in, "+
			"so no verdict is about them. Call finished_step again.", stepID, a.id).With("step_id", stepID)
}

func superseded(stepID string) error {
	return session.NotNow(codes.ReviewSuperseded,
		"The review of step '%s' was cancelled, because other outputs were submitted for it. get_step says where the "+
			"session is.", stepID)
}

// submission returns the input of the gate.
func (a *sessionActor) submission(c *candidate) gate.Submission {
	s := gate.Submission{
		SessionID: a.id, Job: c.def.Job, Workflow: c.def.Workflow.Name, Step: c.plan.Step, Goal: a.state.Goal,
		Root: a.state.RootOf("", c.plan.Step.ID),
	}
	for _, in := range a.state.In(a.engine.Place).StepInputs(c.def, c.plan.Step) {
		if in.FromStep != "" || in.Value != nil || in.Paths != nil || in.NotGiven {
			s.Inputs = append(s.Inputs, gate.Input{
				Name:        in.Name,
				Description: in.Description,
				FromStep:    in.FromStep,
				Text:        in.Value,
				Paths:       in.Paths,
				Omitted:     in.Omitted,
			})
		}
	}

	for _, o := range c.expanded {
		s.Outputs = append(s.Outputs, gate.Output{Name: o.Key, Paths: o.Value.Paths, Text: o.Value.Text})
	}

	if c.m.args.Notes != nil {
		s.Notes = *c.m.args.Notes
	}
	return s
}

// contentDigest returns the digest of what a review judges: the submitted outputs, for each task its criteria
// and its files' content, and the content of files that schemas or checks judge. Calls with the same digest
// share a review.
func contentDigest(outputs outputs.Map, tasks []gate.Task, files ...machine.FileHash) string {
	h := sha256.New()
	for _, o := range outputs {
		fmt.Fprintf(h, "%q %v %q\n", o.Key, o.Value.List, o.Value.Paths)
		if o.Value.Text != nil {
			fmt.Fprintf(h, "text %s\n", session.Digest(*o.Value.Text))
		}
	}
	for _, f := range files {
		fmt.Fprintf(h, "%q %s\n", f.Path, f.SHA256)
	}
	for _, t := range tasks {
		fmt.Fprintf(h, "%q %s\n", t.Key, t.Digest)
	}

	return hex.EncodeToString(h.Sum(nil))
}
