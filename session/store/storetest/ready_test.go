package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

// wide is room for anything.
var wide = task.Room{InReview: 1000, Slots: 1000}

// startReady starts a task that is ready.
func startReady(b store.Board, id string, r task.Room) error {
	return b.StartReady(context.Background(), task.Attempt{TaskID: id, Executor: "SCRIPTED", Branch: "deepwork/x", Workspace: abs("w")}, task.Execution{Prompt: "p"}, r)
}

// Tasks are ready that are todo, were never tried, depend on none that is not done, and were made and
// changed by callers who may start agents.
func TestReady(t *testing.T) {
	b, c, p := newBoard(t)
	ready := func(r task.Room) (titles []string) {
		t.Helper()
		all := returned(b.Ready(t.Context(), r)).of(t)
		for _, r := range all {
			equal(t, r.ProjectID, p.ID)
			titles = append(titles, taskOf(t, b, r.ID).Title)
		}
		return titles
	}
	made := func(title string) *task.Summary {
		c.forward(time.Second)
		return addTask(t, b, p, title)
	}
	blocker, free := made("blocker"), made("free")
	blocked := made("blocked")
	testkit.Must(t, second(dependOn(b, blocked, blocker)))
	set := func(s *task.Summary, status task.Status) {
		t.Helper()
		testkit.Must(t, second(b.UpdateTask(t.Context(), s.ID, task.TaskChange{Status: &status})))
	}
	tried := made("tried")
	try(t, b, tried)
	first, _ := run(t, b)
	end(t, b, first, task.Ending{State: task.Failed})
	set(tried, task.Todo)
	set(made("cancelled"), task.Cancelled)
	deleted := made("deleted")
	testkit.Must(t, second(b.BeginDelete(t.Context(), deleted.ID)))
	for name, who := range map[string]session.Caller{"guest": {Identity: "guest"}, "friend": {Identity: "friend", Rights: session.RightAgents}} {
		testkit.Must(t, second(b.For(who).CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: name}, task.Request{})))
	}
	changed := made("changed")
	testkit.Must(t, second(b.For(session.Caller{Identity: session.LocalIdentity}).UpdateTask(t.Context(), changed.ID, task.TaskChange{Title: new("taken over")})))
	if got, want := ready(wide), []string{"blocker", "free", "friend"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	set(blocker, task.Done)
	if got, want := ready(wide), []string{"free", "blocked", "friend"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	testkit.Must(t, startReady(b, free.ID, wide))
	if now := taskOf(t, b, free.ID); now.Status != task.InProgress || !now.HasInProgressAttempt {
		t.Errorf("%+v", now)
	}
	for _, s := range []*task.Summary{free, tried, deleted, changed, blocker} {
		fails(t, startReady(b, s.ID, wide), task.ErrNotReady)
	}
	reached := wide
	reached.Limits.Unknown = new(int64(0))
	if err := startReady(b, blocked.ID, reached); len(ready(reached)) > 0 || !errors.Is(err, task.ErrNotReady) {
		t.Errorf("with a budget that is reached: %v", err)
	}
	// Now one waits.
	for room, want := range map[task.Room]int{{InReview: 1, Slots: 9}: 0, {InReview: 2, Slots: 9}: 2, {InReview: 9, Slots: 1}: 0, {InReview: 9, Slots: 2}: 2} {
		if got := ready(room); len(got) != want {
			t.Errorf("%+v: %q", room, got)
		}
		if err := startReady(b, blocked.ID, room); want == 0 && !errors.Is(err, task.ErrNotReady) {
			t.Errorf("%+v: %v", room, err)
		} else if want > 0 {
			break // the set of ready tasks has changed
		}
	}
}

// What is in review or will be, and what has failed, takes room; what was stopped does not.
func TestRoomForReady(t *testing.T) {
	b, _, p := newBoard(t)
	addTask(t, b, p, "ready")
	full := func() bool {
		t.Helper()
		all := returned(b.Ready(t.Context(), task.Room{InReview: 1, Slots: 9})).of(t)
		return len(all) == 0
	}
	equal(t, "full at first", full(), false)
	for state, want := range map[task.AttemptState]bool{task.Completed: true, task.Failed: true, task.Interrupted: true, task.Stopped: false} {
		s := addTask(t, b, p, string(state))
		try(t, b, s)
		equal(t, state, full(), true)
		x, _ := run(t, b)
		equal(t, state, full(), true)
		ending := task.Ending{State: state}
		if state == task.Completed {
			ending.Task = task.InReview
		}
		end(t, b, x, ending)
		equal(t, state, full(), want)
		testkit.Must(t, second(b.UpdateTask(t.Context(), s.ID, task.TaskChange{Status: new(task.Done)})))
		equal(t, state, full(), false)
	}
}

// Two processes start each task once, and never more than there is room for.
func TestReadyOfTwoProcesses(t *testing.T) {
	const tasks, most = 8, 5
	c := newClock()
	path := t.TempDir() + "/board.db"
	one, two := openAt(t, path, c.now), openAt(t, path, c.now)
	p := rootOf(t, one)
	for i := range tasks {
		addTask(t, one, p, fmt.Sprint(i))
	}
	started := make(chan string, 2*tasks)
	ended := make(chan error, 2)
	for _, b := range []board{one, two} {
		go func() {
			for {
				all, err := b.Ready(context.Background(), task.Room{InReview: most, Slots: tasks})
				if err != nil || len(all) == 0 {
					ended <- err
					return
				}
				err = startReady(b, all[0].ID, task.Room{InReview: most, Slots: tasks})
				if err == nil {
					started <- all[0].ID
				} else if !errors.Is(err, task.ErrNotReady) {
					ended <- err
					return
				}
			}
		}()
	}
	testkit.Must(t, errors.Join(<-ended, <-ended))
	close(started)
	seen := map[string]bool{}
	for id := range started {
		if seen[id] {
			t.Errorf("task %s was started twice", id)
		}
		seen[id] = true
	}
	equal(t, "were started", len(seen), most)
}
