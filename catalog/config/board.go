package config

import "time"

// A Project is a project of the task board, in addition to the root (key projects).
type Project struct {
	Name string `yaml:"name" as:"line" unique:"" add:"a name"`
	// with unique names
	Repos []Repo `yaml:"repos" is:"a list of repositories" nonempty:"add a git repository"`
}

// Tags implements fieldtag.Tagger.
func (Project) Tags() map[string]string {
	return map[string]string{
		"Repos": `add:"its git repositories, at least one"`,
	}
}

// A Repo is a git repository of a project.
type Repo struct {
	Name string `yaml:"name" as:"folder name"` // default: the last element of Path
	// as written: absolute, or relative to the project root
	Path string `yaml:"path" as:"filled" add:"a path"`
	// copied to a new worktree, relative to the repository, such as .env or .env*
	Copy  []string `yaml:"copy" is:"a list of files" each:"local file"`
	Setup []string `yaml:"setup" as:"command"` // a command run in each new worktree; nil means none
}

// PromptMode is the way an executor gets its prompt.
type PromptMode string

// The prompt modes; the default is PromptStdin.
const (
	PromptStdin    PromptMode = "stdin"
	PromptArgument PromptMode = "argument" // as the last argument
)

// An Executor is a coding agent that runs attempts (key executors): a command, which never comes from a
// tool's arguments. Unset fields are zero here; the runner fills in the defaults of well-known executors.
type Executor struct {
	Name string `yaml:",key"` // upper-case letters, digits and '_'
	// without a shell; a relative program with a slash is relative to the project root
	Command []string   `yaml:"command" as:"program"`
	Prompt  PromptMode `yaml:"prompt" oneof:"stdin,argument"` // "" means not set
	// for a follow-up in the same conversation; nil means Command
	Resume []string          `yaml:"resume" as:"program"`
	Env    map[string]string `yaml:"env" is:"a mapping of environment variables" keys:"agent variable"`
	// in the file's order
	Variants []Variant `yaml:"variants" is:"a mapping of variants by name" keys:"constant"`
	// Telemetry reports whether the agent gets the OTEL_EXPORTER_OTLP_ variables, which may contain a key.
	Telemetry bool `yaml:"telemetry" own:""`
	// Contain says what it may reach, in addition to that of Attempts and Run; see Config.Contained.
	Contain Contain `yaml:"contain" as:"contain"`
}

// A Variant inherits unset fields from its executor.
type Variant struct {
	Name    string     `yaml:",key"`
	Command []string   `yaml:"command" as:"program"`
	Prompt  PromptMode `yaml:"prompt" oneof:"stdin,argument"`
	Resume  []string   `yaml:"resume" as:"program"`
	// added to the executor's environment
	Env map[string]string `yaml:"env" is:"a mapping of environment variables" keys:"agent variable"`
}

// Attempts configures how attempts run (key attempts).
type Attempts struct {
	MaxConcurrent int `yaml:"max_concurrent" min:"1" max:"10000"` // default 4
	// as written; default "": in the state folder of the project
	Worktrees string `yaml:"worktrees" as:"filled"`
	// Repo.Copy for the project root's own repository
	Copy  []string `yaml:"copy" is:"a list of files" each:"local file"`
	Setup []string `yaml:"setup" as:"command"` // Repo.Setup for the project root's own repository
	// default true: a task is done once one of its attempts is merged with nothing left over
	DoneWhenMerged bool `yaml:"done_when_merged"`
	// the remote to which the branch is pushed after each execution; "" means none
	PushTo string `yaml:"push_to" as:"remote"`
	// BranchPrefix is the prefix of attempts' branch names; default "deepwork/".
	BranchPrefix string `yaml:"branch_prefix" as:"branch prefix"`
	// MachineLostAfter is how long a machine may be gone before its attempts are given up; default 10 min. It
	// applies only to stores that several machines share.
	MachineLostAfter time.Duration `yaml:"machine_lost_after" min:"1s"`
	// MaxCostUSD and MaxUnknown are budgets of the whole board: what all ended executions cost in USD, and
	// how many of them have an unknown cost. Once one is reached, no execution starts. nil means no limit.
	MaxCostUSD *Limit `yaml:"max_cost_usd" as:"amount"`
	MaxUnknown *Limit `yaml:"max_unknown" as:"count"`
	// AutoStart starts attempts of tasks that are ready; nil means off.
	AutoStart *AutoStart `yaml:"auto_start" as:"auto start"`
	// Contain says what all agents may reach, those of runs too; see Config.Contained.
	Contain Contain `yaml:"contain" as:"contain"`
}

// Run configures how servers lead agents through workflows (key run).
type Run struct {
	// Executor is the executor of runs that do not name one, as NAME or NAME:VARIANT; "" means that they must
	// name one.
	Executor string `yaml:"executor" as:"executor"`
	// Retries is how often an agent that ended without finishing its step is sent back; default 2.
	Retries int `yaml:"retries" max:"100"`
	// Contain says what the agents of runs may reach in addition; see Config.Contained.
	Contain Contain `yaml:"contain" as:"contain"`
}

// A Limit is a nonnegative number that people may raise.
type Limit struct {
	Max  float64
	File string // the file that sets it: .deepwork/config.yml, or the path of the user's own config
}

// An AutoStart is attempts.auto_start.
type AutoStart struct {
	Executor    string // NAME
	Variant     string // "" means the executor's own command
	MaxInReview int
}
