package task

import "time"

// MaxAttention is how many attempts Attention of a board lists at most.
const MaxAttention = 50

// An Attention is the latest attempt of a task that goes on only when a person has looked at it.
type Attention struct {
	TaskID, Title string // of the task
	AttemptID     string
	State         AttemptState
	Run           string    // of the attempt, "" if it is not one
	Since         time.Time // the end of its last execution
}

// MaxWork is how many attempts of a kind Work of a board lists at most.
const MaxWork = 50

// A Work is an attempt with its last execution.
type Work struct {
	TaskID, Title string // of the task
	AttemptID     string
	Executor      string
	State         AttemptState
	Run           bool      // a server leads it
	Step          string    // of its workflow
	Since         time.Time // the end of the execution, or when it was made
}
