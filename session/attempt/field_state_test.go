package attempt

import (
	"encoding/json"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/board"
)

// goneLeader is the id of a process that does not run.
const goneLeader = "00112233aabbccdd"

func situation(t *testing.T, s *server, state task.AttemptState, run *board.Run) *task.Situation {
	t.Helper()
	at := &task.Situation{State: state, Leader: s.Members.ID()}
	if run != nil {
		at.Run = testkit.Get(json.Marshal(run)).Must(t)
	}
	return at
}

// An attempt or a run has one of the states that the documentation lists, in all that the board knows of it.
func TestField22_StatesOfAttempts(t *testing.T) {
	s := newProject(t).open()
	wait := func(kinds ...string) *board.Run {
		r := &board.Run{}
		for _, kind := range kinds {
			r.Waits = append(r.Waits, board.RunWait{Kind: kind, Since: time.Now()})
		}
		return r
	}
	ended := func(state board.State) *board.Run { return &board.Run{End: &board.RunEnd{State: state}} }
	for _, c := range []struct {
		want  board.State
		state task.AttemptState
		run   *board.Run
		more  func(*task.Situation)
	}{
		{board.Queued, task.Waiting, nil, nil},
		{board.Queued, task.Starting, nil, nil},
		{board.Running, task.Running, nil, nil},
		{board.Running, task.Running, wait(), nil},
		{board.Running, task.Running, wait(board.WaitsForPerson), func(s *task.Situation) { s.Busy = true }},
		{board.WaitingForYou, task.Running, wait(board.WaitsForLimit, board.WaitsForPerson), nil},
		{board.WaitingForLimit, task.Running, wait(board.WaitsForLimit), nil},
		{board.Paused, task.Stopped, ended(board.Paused), nil},
		{board.Stopped, task.Stopped, ended(board.Stopped), nil},
		{board.Stopped, task.Stopped, &board.Run{}, nil},
		{board.Failed, task.Failed, ended(board.Failed), nil},
		{board.Interrupted, task.Interrupted, nil, nil},
		{board.Completed, task.Completed, ended(board.Completed), nil},
		{board.Conflicted, task.Completed, nil, func(s *task.Situation) { s.Landed = task.LandedConflicts }},
		{board.Merged, task.Completed, ended(board.Completed), func(s *task.Situation) { s.Landed = task.LandedMerged }},
		{board.Queued, task.Waiting, nil, func(s *task.Situation) { s.Landed = task.LandedMerged }},
	} {
		at := situation(t, s, c.state, c.run)
		if c.more != nil {
			c.more(at)
		}
		testkit.Equal(t, s.StateOf(at), c.want, "%+v", at)
	}
	testkit.Equal(t, board.WaitingForLimit.Words(), "waiting for a limit")
}

// A run whose leader was killed is interrupted; an attempt of one agent goes on without its server, and so may a run
// that another machine leads.
func TestField15_ARunWithoutItsLeader(t *testing.T) {
	s := newProject(t).open()
	for _, state := range []task.AttemptState{task.Starting, task.Running} {
		run := situation(t, s, state, &board.Run{Waits: []board.RunWait{{Kind: board.WaitsForPerson}}})
		run.Leader = goneLeader
		testkit.Equal(t, s.StateOf(run), board.Interrupted)
		run.Run = nil
		testkit.Equal(t, s.StateOf(run), board.ExecutionState(state), "with one agent")
	}
}
