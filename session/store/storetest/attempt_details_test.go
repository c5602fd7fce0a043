package storetest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
)

// An attempt is read with its session and its execution from one state of the
// board: a caller that asks while executions start never sees one that runs without a
// session (seed 004, "Task attempt listing").
func TestReq004_RunningMeansASession(t *testing.T) {
	b, _, p := newBoard(t)
	s := addTask(t, b, p, "one")
	const rounds = 40
	// One that reads is always in the middle of it when something starts: the
	// writer goes on when each reader has read since the last change.
	const readers = 3
	ctx, stop := context.WithCancel(t.Context())
	ids := make([]chan string, readers) // capacity 1, closed by the writer
	read := make(chan struct{}, readers*rounds)
	var group sync.WaitGroup
	seen := make([]map[task.AttemptState]bool, readers)
	for i := range readers {
		ids[i], seen[i] = make(chan string, 1), map[task.AttemptState]bool{}
		group.Go(func() {
			id, open := <-ids[i]
			for told := false; open && ctx.Err() == nil; {
				now, err := b.AttemptDetails(ctx, id)
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				equal(t, contradiction(now), "")
				l, err := b.TaskAttempts(ctx, s.ID, task.Page{Limit: 1})
				if err == nil && (*l.Task.LatestAttemptID != l.Attempts[0].ID || !same(l.Task.LatestSessionID, l.Attempts[0].LatestSessionID)) {
					t.Errorf("the task and the list tell of two moments: %+v %+v", l.Task, l.Attempts[0])
				}
				seen[i][now.Execution.State] = true
				if !told {
					read <- struct{}{}
					told = true
				}
				select {
				case id, open = <-ids[i]:
					told = false
				default:
				}
			}
		})
	}
	defer group.Wait()
	defer stop()
	for range rounds {
		a := try(t, b, s)
		for i := range readers {
			ids[i] <- a.ID
		}
		for range readers {
			<-read
		}
		e, _ := run(t, b)
		end(t, b, e, task.Ending{State: task.Completed})
	}
	for i := range readers {
		close(ids[i])
	}
	group.Wait()
	for i, states := range seen {
		if !states[task.Waiting] {
			t.Errorf("reader %d saw none that waits: %v", i, states)
		}
	}
}

// contradiction says what of an attempt cannot be at one moment.
func contradiction(now *task.AttemptDetails) string {
	x, s := now.Execution, now.Session
	switch {
	case x.State != now.Attempt.State:
		return "the attempt and its execution are in two states"
	case x.State == task.Running && s == nil:
		return "it runs and has no session"
	case x.SessionID != nil && (s == nil || s.ID != *x.SessionID):
		return "its execution is of another session"
	case x.State == task.Waiting && now.Open > 0 && now.Ahead > 0:
		return "there is one attempt open at a time, and one waits before it"
	}
	return ""
}

func same(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }

// What an attempt belongs to is told as a whole, or not at all.
func TestAttemptContext(t *testing.T) {
	b, _, p := newBoard(t)
	s := addTask(t, b, p, "one")
	a := try(t, b, s)
	place := returned(b.AttemptContext(t.Context(), a.ID)).of(t)
	equal(t, place.Attempt.ID, a.ID, len(place.Attempt.Repos), 1, place.Task.ID, s.ID, *place.Project, p)
	if _, err := b.BeginDelete(t.Context(), s.ID); !errors.Is(err, task.ErrRunning) {
		t.Fatal(err)
	}
	e := returned(b.LatestExecution(t.Context(), a.ID)).of(t)
	if was, err := b.Stop(t.Context(), e.ID); was != task.Waiting || err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, second(b.BeginDelete(t.Context(), s.ID)))
	testkit.Must(t, b.DeleteTask(t.Context(), s.ID))
	fails(t, second(b.AttemptContext(t.Context(), a.ID)), task.ErrNotFound)
}

// An execution ends no sooner than it began, and begins no sooner than it was
// made, whatever the clocks do.
func TestStartAndEndKeepTheirOrder(t *testing.T) {
	for name, c := range map[string]struct {
		back             time.Duration // the board's clock is set back by so much before the start
		since, ended     time.Duration // after the execution was made; ended 0: now
		started, endedAt time.Duration // as the board has them
	}{
		"as it should be":           {0, 10 * time.Second, 20 * time.Second, 10 * time.Second, 20 * time.Second},
		"it ends at once":           {0, 10 * time.Second, 10 * time.Second, 10 * time.Second, 10 * time.Second},
		"it ends before its start":  {0, 10 * time.Second, 5 * time.Second, 10 * time.Second, 10 * time.Second},
		"it starts before it is":    {0, -time.Hour, time.Second, 0, time.Second},
		"it starts in the future":   {0, 2 * time.Hour, 0, time.Minute, 2 * time.Minute},
		"the clock is set back":     {time.Hour, 10 * time.Second, 20 * time.Second, 0, 0},
		"set back, and no end told": {time.Hour, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b, clock, p := newBoard(t)
			try(t, b, addTask(t, b, p, "one"))
			x := returned(b.ClaimNext(t.Context(), "server", 1, nil, task.Limits{})).of(t)
			clock.forward(time.Minute - c.back)
			testkit.Must(t, second(b.StartExecution(t.Context(), x.ID, "X", x.CreatedAt.Add(c.since))))
			clock.forward(time.Minute)
			ending := task.Ending{State: task.Completed}
			if c.ended != 0 {
				ending.EndedAt = new(x.CreatedAt.Add(c.ended))
			}
			end(t, b, x, ending)
			got := returned(b.Execution(t.Context(), x.ID)).of(t)
			if s, e := got.StartedAt.Sub(x.CreatedAt), got.EndedAt.Sub(x.CreatedAt); s != c.started || e != c.endedAt {
				t.Errorf("it started after %v, and ended after %v", s, e)
			}
		})
	}
}

// A change to the same value is no change (seed 004, update_task).
func TestReq004_UpdatingToTheSameChangesNothing(t *testing.T) {
	b, c, p := newBoard(t)
	s := addTask(t, b, p, "one")
	c.forward(time.Hour)
	same := []task.TaskChange{{}, {Title: new("one")}, {Status: new(task.Todo)}, {Description: new("")}, {JobName: new(""), WorkflowName: new("")}}
	for _, change := range same {
		updateTask := returned(b.UpdateTask(t.Context(), s.ID, change)).of(t)
		equal(t, change, updateTask.UpdatedAt, s.UpdatedAt)
	}
	for _, change := range []task.TaskChange{{Title: new("two")}, {Status: new(task.Done)}, {Description: new("d")}, {JobName: new("j"), WorkflowName: new("w")}, {Description: new("")}} {
		was := taskOf(t, b, s.ID)
		c.forward(time.Hour)
		updateTask := returned(b.UpdateTask(t.Context(), s.ID, change)).of(t)
		equal(t, change, updateTask.UpdatedAt.After(was.UpdatedAt), true)
	}
}
