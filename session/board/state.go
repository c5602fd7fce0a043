package board

import (
	"encoding/json"
	"slices"
	"strings"

	"deepwork/catalog/task"
)

// A State is the state of an attempt, a run, an agent's execution or a step of a run. Tools, commands and
// pages all use these words; the comment of package session explains them.
type State string

// The values of State.
const (
	Queued          State = "queued"
	Running         State = "running"
	WaitingForYou   State = "waiting_for_you"
	WaitingForLimit State = "waiting"
	Paused          State = "paused"
	Conflicted      State = "conflicts"
	Interrupted     State = "interrupted"
	Failed          State = "failed"
	Stopped         State = "stopped"
	Completed       State = "completed"
	Merged          State = "merged"

	NotBegun State = "not_begun" // of steps only
	Dropped  State = "dropped"   // of the steps of an item that a person has dropped
)

// States are the states of attempts and runs.
var States = []State{Queued, Running, WaitingForYou, WaitingForLimit, Paused, Conflicted, Interrupted, Failed, Stopped,
	Completed, Merged}

// Open reports whether something in this state has not ended.
func (s State) Open() bool {
	return s == Queued || s == Running || s == WaitingForYou || s == WaitingForLimit
}

// Words returns the state in the words for people, such as waiting for you.
func (s State) Words() string {
	if s == WaitingForLimit {
		return "waiting for a limit"
	}
	return strings.ReplaceAll(string(s), "_", " ")
}

// Short returns the beginning of an id, by which people refer to it.
func Short(id string) string { return id[:min(len(id), 8)] }

// ExecutionState returns the state of one execution of an agent.
func ExecutionState(s task.AttemptState) State {
	switch s {
	case task.Waiting, task.Starting:
		return Queued
	}
	return State(s)
}

// StateOf returns the state of an attempt or a run; "" if the situation is of neither.
func (b *Board) StateOf(s *task.Situation) State {
	run := Run{}
	isRun := s.Run != nil && json.Unmarshal(s.Run, &run) == nil
	switch {
	case !s.State.Open() && s.Landed != "":
		return State(s.Landed)
	case !s.State.Open() && isRun && run.End != nil:
		return run.End.State
	case isRun && b.leaderGone(s):
		return Interrupted
	case isRun && s.State == task.Running && !s.Busy && len(run.Waits) > 0:
		if slices.ContainsFunc(run.Waits, func(w RunWait) bool { return w.Kind == WaitsForPerson }) {
			return WaitingForYou
		}
		return WaitingForLimit
	}

	return ExecutionState(s.State)
}

// leaderGone reports whether the process on this machine that led an unfinished run is gone.
func (b *Board) leaderGone(s *task.Situation) bool {
	led := s.State == task.Starting || s.State == task.Running
	return led && s.Leader != b.Members.ID() && !s.Elsewhere(b.Here) && !b.Members.Alive(s.Leader)
}
