package run

import (
	"context"
	"errors"
	"slices"
	"time"

	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/replies"
)

// lookAgain is the time between looks at sessions that others may have moved, and at outputs about which a
// person is asked. If these have changed since, nobody can pass them, and the agent has to hand them in
// again.
const lookAgain = 10 * time.Second

// person handles a person's review of a step: it waits for the answer, or finishes the step that the person
// has passed with the outputs that they saw. It reports whether nothing else can be done now. Otherwise told
// says why an agent has to hand in outputs again, or is "".
func (d *leader) person(
	ctx context.Context, s *machine.State, p stepRef, now *dueWork,
) (told string, waits bool, err error) {
	a := d.agents[p]
	u := s.Progress(p.step).Asked()
	switch {
	case u == nil || u.FailedBy(judging.ByPerson):
		if a != nil {
			a.goesOn()
		}
		return "", false, nil
	case a != nil:
		a.handedIn()
	}
	if told = d.workplace.Changed(ctx, s, p.step); told != "" {
		return told, false, ctx.Err()
	}
	if u.With() == judging.ByPerson {
		now.waits = append(now.waits,
			board.RunWait{Kind: board.WaitsForPerson, SessionID: p.session, StepID: p.step, Since: u.Turn().At})
		now.lookAt(time.Now().Add(lookAgain))
		return "", true, nil
	}
	r, err := d.workplace.Finish(ctx, p.session, p.step, u)
	if _, refused := errors.AsType[*session.Error](err); refused && !board.Passing(err) {
		return err.Error(), false, nil
	}
	if err != nil {
		return "", false, err
	}

	switch {
	case r.Status != replies.NeedsWork:
		now.moved = true
		delete(now.open, p)
		d.attemptLead.Note("step %s: a person answered: %s", p.step, u.Answer().Word())
	case r.Waiting() != nil:
		now.lookAt(time.Now().Add(time.Second))
	default: // its checks no longer pass
		return deref(r.Feedback), false, nil
	}

	return "", true, nil
}

// handedIn gives an agent some time to end while a person is asked about its outputs: others need its slot.
func (a *agent) handedIn() {
	if a.timer == nil {
		a.timer = time.AfterFunc(endWithin, a.cancel)
	}
}

// goesOn undoes handedIn: the agent has work again.
func (a *agent) goesOn() {
	if a.timer != nil && !a.done {
		a.timer.Stop()
		a.timer = nil
	}
}

// keepWaits records what the run waits for, and which steps have failed, if that has changed.
func (d *leader) keepWaits(ctx context.Context, now []board.RunWait) error {
	var failed []string
	for p := range d.failed {
		failed = append(failed, p.session+"/"+p.step)
	}
	slices.Sort(failed)

	d.mu.Lock()
	r := &d.attemptLead.Run
	same := slices.EqualFunc(r.Waits, now, board.RunWait.Equal) && slices.Equal(r.Failed, failed)
	r.Waits, r.Failed = now, failed
	d.mu.Unlock()
	if same {
		return nil
	}
	return d.save(ctx)
}
