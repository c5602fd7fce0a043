package config

import "time"

// A Project is a project of the task board, in addition to the root (key projects).
type Project struct {
	Name  string // unique
	Repos []Repo // at least one, with unique names
}

// A Repo is a git repository of a project.
type Repo struct {
	Name  string   // default: the last element of Path
	Path  string   // as written: absolute, or relative to the project root
	Copy  []string // files copied to a new worktree, relative to the repository, such as .env
	Setup []string // a command run in each new worktree; nil means none
}

// PromptMode is the way an executor gets its prompt.
type PromptMode string

// The prompt modes; the default is PromptStdin.
const (
	PromptStdin    PromptMode = "stdin"
	PromptArgument PromptMode = "argument" // as the last argument
)

// An Executor is a coding agent that runs attempts (key executors): a command, never from a tool's
// arguments. Unset fields are zero here; the runner fills in the defaults of well-known executors.
type Executor struct {
	Name     string     // the key: upper-case letters, digits and '_'
	Command  []string   // no shell; a relative program with a slash is relative to the project root
	Prompt   PromptMode // "" means not set
	Resume   []string   // a follow-up in the same conversation; nil means Command
	Env      map[string]string
	Variants []Variant // in the file's order
}

// A Variant inherits unset fields from its executor.
type Variant struct {
	Name    string
	Command []string
	Prompt  PromptMode
	Resume  []string
	Env     map[string]string // added to the environment of the executor
}

// Attempts configures how attempts run (key attempts).
type Attempts struct {
	MaxConcurrent  int      // default 4
	Worktrees      string   // as written; default "": in the state folder of the project
	Copy           []string // Repo.Copy of the project root's own repository
	Setup          []string // Repo.Setup of the project root's own repository
	DoneWhenMerged bool     // a task is done once an attempt of it is merged, with nothing left
	PushTo         string   // the remote to which the branch is pushed after each execution; "" means none
	// MachineLostAfter is how long a machine may be gone before its attempts are given up; default 10
	// min. Only for stores that several machines share.
	MachineLostAfter time.Duration
	// MaxCostUSD and MaxUnknown are budgets of the whole board: what all executions that have ended cost
	// in USD, and how many of them have an unknown cost. Once one is reached, no execution starts. nil
	// means no limit.
	MaxCostUSD, MaxUnknown *Limit
	// AutoStart starts attempts of tasks that are ready; nil means off.
	AutoStart *AutoStart
}

// Run configures how servers lead agents through workflows (key run).
type Run struct {
	// Executor is the one of runs that name none, NAME or NAME:VARIANT; "" means that they must.
	Executor string
	// Retries is how often an agent that ended without finishing its step is sent back; default 2.
	Retries int
}

// A Limit is a number of at least 0 that people may raise.
type Limit struct {
	Max  float64
	File string // in which it is set: .deepwork/config.yml, or the path of the user's own config
}

// An AutoStart is attempts.auto_start.
type AutoStart struct {
	Executor    string // NAME
	Variant     string // "" means the executor's own command
	MaxInReview int
}

func defaultAttempts() Attempts {
	return Attempts{MaxConcurrent: 4, MachineLostAfter: 10 * time.Minute}
}
