package task

import "context"

// Now is an attempt with its newest execution and its newest session, as they
// stood at one moment; Session is nil while no process of it was started. Open
// and Ahead are told of one whose execution waits, and 0 of others: how many
// executions are starting or running on the whole board, and how many wait for a
// slot before it.
type Now struct {
	Attempt   *Attempt
	Execution *Execution
	Session   *Session
	Open      int
	Ahead     int
}

// AttemptNow returns an attempt with what runs in it from one state of the board:
// two calls could tell of a running agent and of no session (seed 004, "Task
// attempt listing"). ErrNotFound where there is no such attempt.
func (b *Board) AttemptNow(ctx context.Context, id string) (now *Now, err error) {
	err = b.read(ctx, "reading an attempt", func(t tx) error {
		now = &Now{}
		if now.Attempt, err = t.attempt(id); err != nil {
			return err
		}
		all, err := t.executions(`WHERE attempt_id = ? ORDER BY seq DESC LIMIT 1`, id)
		if now.Execution, err = only(all, err, "attempt", id); err != nil {
			return err
		}
		if s := now.Attempt.LatestSessionID; s != nil {
			if now.Session, err = t.session(*s); err != nil {
				return err
			}
		}
		if now.Execution.State != Waiting {
			return nil
		}
		if _, err := t.one(openExecutions, nil, &now.Open); err != nil {
			return err
		}
		_, err = t.one(waitingBefore, []any{now.Execution.ID}, &now.Ahead)
		return err
	})
	if err != nil {
		return nil, err
	}
	return now, nil
}

// An AttemptList is a part of a task's attempts and the task itself, as they stood
// at one moment.
type AttemptList struct {
	Task     *Summary
	Attempts []Attempt // newest first, of one microsecond the smaller id first
	Total    int       // how many the task has
	Next     string    // the cursor for more; "": there are no more
}

// TaskAttempts lists a task's attempts with the task from one state of the board,
// so that its latest attempt is the first of the first page (seed 004,
// "list_task_attempts returns attempt details"). ErrNotFound where there is no
// such task, ErrCursor where p's is not of this list.
func (b *Board) TaskAttempts(ctx context.Context, taskID string, p Page) (*AttemptList, error) {
	l, err := p.listing("attempts", taskID)
	if err != nil {
		return nil, err
	}
	var r *AttemptList
	err = b.read(ctx, "listing attempts", func(t tx) error {
		r = &AttemptList{}
		if r.Task, err = t.task(taskID); err != nil {
			return err
		}
		if _, err := t.one(`SELECT count(*) FROM attempts WHERE task_id = ?`, []any{taskID}, &r.Total); err != nil {
			return err
		}
		r.Attempts, err = t.attempts(`WHERE a.task_id = ? AND a.created_at <= ? AND (a.created_at < ? OR a.id > ?)
			ORDER BY a.created_at DESC, a.id LIMIT ?`, l.args(taskID)...)
		return err
	})
	if err != nil {
		return nil, err
	}
	r.Attempts, r.Next = cut(l, r.Attempts, func(a Attempt) position { return position{format(a.CreatedAt), a.ID} })
	return r, nil
}

// A Place is an attempt with its task and its project, as they stood at one
// moment.
type Place struct {
	Attempt *Attempt
	Task    *Summary
	Project *Project
}

// PlaceOf returns what an attempt belongs to, from one state of the board (seed
// 004, "Workspace context data"), or ErrNotFound.
func (b *Board) PlaceOf(ctx context.Context, attemptID string) (*Place, error) {
	var p *Place
	err := b.read(ctx, "reading what an attempt belongs to", func(t tx) (err error) {
		p = &Place{}
		if p.Attempt, err = t.attempt(attemptID); err != nil {
			return err
		}
		if p.Task, err = t.task(p.Attempt.TaskID); err != nil {
			return err
		}
		p.Project, err = t.project(p.Task.ProjectID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}
