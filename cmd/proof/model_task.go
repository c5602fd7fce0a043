package main

import "strings"

// The model of a task of the board: its title, as one register, from creation to deletion. The
// effect of attempts on its status is not modeled.

// A taskInput is a call of create_task, update_task, get_task or delete_task.
type taskInput struct {
	Tool  string
	Title string // create_task and update_task
	// Request is create_task's request_id, which is also the description of the task. The calls of
	// one request until it is answered are one operation; later ones are repetitions.
	Request string
}

func (in taskInput) String() string {
	return in.Tool + "(" + strings.TrimSpace(in.Title+" "+in.Request) + ")"
}

// Outcomes of a call about a task, other than "is <title>".
const (
	taskDeleted = "deleted"
	taskGone    = "!gone" // there is no such task, or it was deleted
)

// A taskState is comparable, as the checker requires.
type taskState struct {
	made, gone bool
	title      string
}

func (s taskState) apply(in taskInput) (taskState, string) {
	switch {
	case in.Tool == "create_task" && !s.made:
		s.made, s.title = true, in.Title
	case !s.made || s.gone:
		return s, taskGone
	case in.Tool == "update_task":
		s.title = in.Title
	case in.Tool == "delete_task":
		s.gone = true
		return s, taskDeleted
	}
	return s, "is " + s.title
}

// taskModel is the register for the checker. One task is one history.
var taskModel = checked(taskState{}, func(s taskState, in taskInput, out string) []taskState {
	if n, said := s.apply(in); said == out || out == lostReply {
		return []taskState{n}
	}
	return nil
})
