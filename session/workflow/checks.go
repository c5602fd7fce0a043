package workflow

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/check"
	"deepwork/session/codes"
	"deepwork/session/machine"
)

// The checks of a step run like its reviews: see running.

// subject returns what the checks of the call's step judge; without checks, the files of its outputs.
func (a *sessionActor) subject(c *candidate) *check.Subject {
	s := &check.Subject{
		Root:   a.state.RootOf(a.root(), c.plan.Step.ID),
		Job:    a.state.JobName,
		Step:   c.plan.Step.ID,
		Checks: a.checksOf(c),
		Shared: a.state.Shared || c.def.Workflow.Shared(c.plan.Index),
	}

	for _, o := range c.expanded {
		s.Outputs = append(s.Outputs, o.Value.Paths...)
	}

	if p := a.state.Progress(s.Step); p != nil {
		s.Began = p.Protected
	}
	return s
}

// checksOf returns the checks of the call's step. A check that ends rounds is a new one in each round: its
// earlier results do not count.
func (a *sessionActor) checksOf(c *candidate) []job.StepCheck {
	checks := slices.Clone(c.plan.Step.Checks)
	for i := range checks {
		if r := a.state.RoundOf(c.def, c.plan.Step.ID); checks[i].Ends && r != nil {
			checks[i].Name = fmt.Sprintf("%s, round %d", checks[i].Name, r.Number)
		}
	}
	return checks
}

// protect returns the definition with the current hashes of the files that the steps of an entry protect. s
// is the state that begins them, nil for a new session.
func (e *Engine) protect(
	ctx context.Context, root string, s *machine.State, def *machine.Definition, entry job.Entry,
) (*machine.Definition, error) {
	with := *def
	with.Protected = map[string]*machine.Protected{}
	for _, id := range entry {
		p, err := check.Protect(ctx, filepath.Join(root, s.Folder(def, id)), def.Job.Step(id).Checks)
		if err != nil {
			return nil, session.NotNow(codes.FileUnreadable,
				"Step '%s' of job '%s' cannot begin, so nothing has moved: the files that its checks protect cannot "+
					"be recorded: %v. Correct that and make the same call again.", id, def.Job.Name,
				err).With("step_id", id).Because(err)
		}
		if p != nil {
			with.Protected[id] = p
		}
	}

	return &with, nil
}

// IsolateFor records the absolute path of the folder in which the item of a current step is worked on from
// now on.
func (e *Engine) IsolateFor(ctx context.Context, id, stepID, folder string) error {
	return e.actFor(ctx, id, "", func(ctx context.Context, a *sessionActor, _ Caller) error {
		def, err := a.pin.Definition(ctx, a.state)
		if err != nil {
			return err
		}

		_, i, item := job.SplitItem(stepID)
		if !item || !a.state.IsCurrent(stepID) {
			_, _, pending := a.state.Position(def)
			return a.state.NotCurrent(def, stepID, pending)
		}

		var steps job.Entry
		for _, step := range def.Workflow.Entries[def.Workflow.Find(stepID)] {
			steps = append(steps, job.Item(step, i))
		}

		if folder, err = filepath.Rel(a.root(), folder); err != nil {
			return err
		}
		def, err = e.protect(ctx, a.root(), a.state.Isolate(def, stepID, folder, e.now()), def, steps)
		if err != nil {
			return err
		}
		return a.commit(nil, a.state.Isolate(def, stepID, folder, e.now()), nil)
	})
}

// leavesEdits refuses a go_to_step that leaves an unpassed step whose protected files have changed since it
// began: when the step begins again, the edits would be taken for the original. to is the index of the entry
// with the step that it leads to.
func (a *sessionActor) leavesEdits(ctx context.Context, def *machine.Definition, to int, stepID string) error {
	_, i, item := job.SplitItem(stepID)
	for _, p := range a.state.StepProgress {
		_, k, ok := job.SplitItem(p.Key)
		at, left := def.Workflow.Find(p.Key), *p.Value
		if at < to || at == to && p.Key != stepID && (!ok || item && i != k) {
			continue
		}
		if p.Key == stepID {
			left.Protected = nil // the step keeps the hashes
		}
		if err := a.engine.leavesEdits(ctx, a.root(), a.state, &left); err != nil {
			return err
		}
	}

	return nil
}

// leavesEdits does what sessionActor.leavesEdits does for one step, and for the steps of its workflow if it
// is one, even an aborted one: they begin again with it.
func (e *Engine) leavesEdits(ctx context.Context, root string, s *machine.State, p *machine.StepProgress) error {
	if !p.Current() {
		return nil
	}

	if p.Protected != nil {
		changed, err := check.Changed(ctx, s.RootOf(root, p.StepID), p.Protected)
		what := fmt.Sprintf("it cannot be found out whether they are (%v)", err)
		if err == nil {
			what = strings.Join(changed[:min(len(changed), maxUndecided)], ", ")
		}
		if what != "" {
			return session.NotNow(codes.FileProtected,
				"The files that the checks of step '%s' protect are not as they were when it began: %s. Restore them "+
					"first, and edit them after going back, if that is what the earlier step is for. Nothing has "+
					"moved.", p.StepID, what).With("step_id", p.StepID)
		}
	}

	if p.Child == "" {
		return nil
	}
	child, err := e.records.Read(ctx, p.Child, nil)
	if session.CodeOf(err) == codes.UnknownSession {
		return nil // the session was removed
	} else if err != nil {
		return err
	}

	for _, of := range child.State.StepProgress {
		if err := e.leavesEdits(ctx, root, child.State, of.Value); err != nil {
			return err
		}
	}

	return nil
}
