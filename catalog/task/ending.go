package task

import (
	"context"
	"fmt"
	"time"
)

// An Ending is how an execution ended.
type Ending struct {
	State        AttemptState // completed, failed, stopped or interrupted
	ExitCode     *int
	FinalMessage *string
	Error        *string
	Task         Status     // what the task becomes; "": what it is
	EndedAt      *time.Time // when, if that was before now: while no server was there; nil: now; never before it was started
}

// EndExecution records an end: of the execution, its attempt and the task, in
// one. Where it completed or failed and a follow-up is queued in its session,
// that becomes the next, waiting, execution, which is returned, and the task is
// inprogress; where it was stopped or interrupted the queued one is dropped
// (issue "Follow-ups"). A task that is not inprogress any more stays what somebody
// has set it to meanwhile; where a follow-up runs next that is so for done and
// cancelled alone. An execution that has ended is left as it is: false.
// ErrNotFound: there is none such; ErrInvalid: e.State or e.Task is not one of
// those that are allowed.
func (b *Board) EndExecution(ctx context.Context, executionID string, e Ending) (next *Execution, ended bool, err error) {
	const doing = "ending an execution"
	switch {
	case !e.State.ended():
		return nil, false, wrap(doing, fmt.Errorf("%w: state %q is not an end", ErrInvalid, e.State))
	case e.Task != "" && !e.Task.valid():
		return nil, false, wrap(doing, unknownStatus(e.Task))
	}
	now := b.stamp()
	err = b.write(ctx, doing, func(t tx) error {
		next, ended = nil, false
		x, err := t.execution(executionID)
		if err != nil || x.State.ended() {
			return err
		}
		after, at := x.CreatedAt, time.Time{}
		if x.StartedAt != nil {
			after = *x.StartedAt
		}
		if e.EndedAt != nil {
			at = *e.EndedAt
		}
		if _, err := t.exec(`UPDATE executions SET state = ?, exit_code = ?, final_message = ?, ended_at = ? WHERE id = ?`,
			e.State, e.ExitCode, e.FinalMessage, between(after, at, now), executionID); err != nil {
			return err
		}
		if err := t.setAttempt(x.AttemptID, e.State, e.Error, now); err != nil {
			return err
		}
		ended = true
		status, stays := e.Task, `status <> 'inprogress'`
		if next, err = t.nextOf(x, e.State, now); err != nil {
			return err
		}
		if next != nil {
			status, stays = InProgress, `status IN ('done', 'cancelled', 'inprogress')`
		}
		if status == "" {
			return nil
		}
		_, err = t.exec(`UPDATE tasks SET status = ?1, updated_at = ?2
			WHERE id = (SELECT task_id FROM attempts WHERE id = ?3) AND NOT (`+stays+`)`,
			status, now, x.AttemptID)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return next, ended, nil
}

// nextOf takes what is queued in an ended execution's session, and makes an
// execution of it if it is to run.
func (t tx) nextOf(x *Execution, how AttemptState, now string) (*Execution, error) {
	if x.SessionID == nil {
		return nil, nil
	}
	s, err := t.session(*x.SessionID)
	if err != nil || s.Queued == nil {
		return nil, err
	}
	if err := t.setQueued(s.ID, nil, now); err != nil {
		return nil, err
	}
	if how != Completed && how != Failed {
		return nil, nil
	}
	id, err := t.addExecution(Execution{AttemptID: x.AttemptID, SessionID: x.SessionID, FollowUp: true,
		Prompt: s.Queued.Prompt, Variant: s.Queued.Variant}, now)
	if err != nil {
		return nil, err
	}
	return t.execution(id)
}
