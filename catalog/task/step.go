package task

import "time"

// The values of Lead of a Task.
const (
	AgentLeads  = "agent"  // one agent goes through the workflow of the task on its own
	ServerLeads = "server" // a server does, and gives each step to an agent
)

// A StepExecution is one process of an agent that the leader of a run has started for a step.
type StepExecution struct {
	ID           string
	AttemptID    string // of the run
	AgentID      string // names its log; the same for all processes for one step of a session
	SessionID    string // of the workflow, 8 hex
	StepID       string
	Executor     string
	Variant      *string
	State        AttemptState
	Conversation *string    // the name that its program gave to it; nil means unknown
	LimitedUntil *time.Time // set if a limit of the provider ended it: when to go on
	ExitCode     *int
	FinalMessage *string
	Error        *string // why it failed, if known
	CreatedAt    time.Time
	StartedAt    *time.Time
	EndedAt      *time.Time
}

// A StepEnding is how a StepExecution ended; Task and EndedAt of the Ending are not used.
type StepEnding struct {
	Ending
	Conversation *string
	LimitedUntil *time.Time
}
