// Package config reads .deepwork/config.yml: its model, its parser with positioned diagnostics, and
// a Source that follows edits of the file.
package config

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// GitBranch says what start_workflow does with a session's branch_name.
type GitBranch string

// The values of git.branch; the default is BranchName.
const (
	BranchName     GitBranch = "name"     // only names the branch
	BranchCreate   GitBranch = "create"   // creates the branch
	BranchCheckout GitBranch = "checkout" // creates the branch and switches to it
)

// Override says who may override a review.
type Override string

// The values of quality_gate.override, from least to most strict; the default is OverrideAgent (seed 000,
// 001.4.9).
const (
	OverrideAgent Override = "agent" // any caller that gives a reason
	OverrideHuman Override = "human" // a person
	OverrideNever Override = "never" // nobody
)

// Overrides are the values of Override, the strictest last.
var Overrides = []string{string(OverrideAgent), string(OverrideHuman), string(OverrideNever)}

// Stricter reports whether fewer callers may override under o than under than.
func (o Override) Stricter(than Override) bool {
	return slices.Index(Overrides, string(o)) > slices.Index(Overrides, string(than))
}

// A Config is one config.yml with the defaults filled in. It is immutable. The tags of its types define the
// format of the file, see yamltree.Decoder.Decode; the names in the tags are those of texts and forms.
type Config struct {
	Version     string      `yaml:"version" written:"" is:"a text like \"1.0\""` // as written; default "1.0"
	Platforms   []string    `yaml:"platforms"`
	QualityGate QualityGate `yaml:"quality_gate"`
	Git         Git         `yaml:"git"`
	// Toolsets are names from the variable Toolsets; nil means DefaultToolsets.
	Toolsets []string `yaml:"toolsets" oneof:"workflows,remote,board,source"`

	HTTP          HTTP          `yaml:"http"`
	WorkflowTools WorkflowTools `yaml:"workflow_tools"`
	Projects      []Project     `yaml:"projects" is:"a list of projects"`
	// in the file's order
	Executors []Executor       `yaml:"executors" is:"a mapping of executors by name" keys:"constant"`
	Attempts  Attempts         `yaml:"attempts"`
	Run       Run              `yaml:"run"`
	Checks    Checks           `yaml:"checks"`
	Sessions  Sessions         `yaml:"sessions"`
	Prices    map[string]Price `yaml:"prices" own:"" each:"price" is:"a mapping of the names of models to their prices"`
	Notify    Notify           `yaml:"notify" own:"" as:"notify"`
	UI        UI               `yaml:"ui" own:""`
	Telemetry Telemetry        `yaml:"telemetry" own:""`

	Approval *Approval // nil means that no approval is needed, and everything is in force
	// Wanted is the config that would be in force if the user approved the folder; nil if they have.
	Wanted *Config
}

// Tags implements fieldtag.Tagger.
func (Config) Tags() map[string]string {
	return map[string]string{
		"Toolsets": `nonempty:"it would leave no tool; leave the key out to have the default"`,
	}
}

// QualityGate configures reviews (seed 001 "Configuration").
type QualityGate struct {
	// run without a shell; nil means none
	AgentReviewCommand []string `yaml:"agent_review_command" as:"command"`
	// NAME or NAME:VARIANT of an executor that reviews; "" means none; cannot be combined with
	// AgentReviewCommand
	ReviewerExecutor string `yaml:"reviewer_executor" as:"executor"`
	// of one review; 0 means that it depends on the number of files
	DefaultTimeout     time.Duration `yaml:"default_timeout"`
	DefaultMaxAttempts int           `yaml:"default_max_attempts" min:"1" max:"10000"` // default 3
	// default: the number of processors, at least 2
	MaxConcurrentReviews int           `yaml:"max_concurrent_reviews" min:"1" max:"10000"`
	ReplyWithin          time.Duration `yaml:"reply_within" min:"1ms"`       // default 50 s
	MaxInlineFiles       int           `yaml:"max_inline_files" max:"10000"` // default 5
	// sessions keep the reviewer and the criteria that they began with
	Pin bool `yaml:"pin"`
	// default OverrideAgent; a project's config can only make it stricter; the user's own wins
	Override Override `yaml:"override" oneof:"agent,human,never"`
}

// UI configures the pages (key ui).
type UI struct {
	EditorURL string `yaml:"editor_url" as:"editor"` // precedes the absolute path of a file; default vscode://file
}

// Notify has the ways in which the user is notified of what needs a person (key notify). In the file, a command line
// alone is a Command.
type Notify struct {
	Command []string `yaml:"command" as:"program"` // gets each item as JSON on stdin
	Desktop bool     `yaml:"desktop"`              // the system's own notifications
	Webhook string   `yaml:"webhook" as:"address"` // URL that takes the messages of Slack, Mattermost and Discord
	Ntfy    string   `yaml:"ntfy" as:"address"`    // URL of a topic at an ntfy server
	Content bool     `yaml:"content"`              // the other ways send words of the work, too, as Command always does
}

// Telemetry says where traces and metrics go (key telemetry). It is off by default.
type Telemetry struct {
	// of an OTLP/HTTP receiver, without /v1/traces; "" means OTEL_EXPORTER_OTLP_ENDPOINT
	OTLP     string `yaml:"otlp" as:"server url"`
	TraceURL string `yaml:"trace_url" as:"trace url"` // a link in which {trace_id} is replaced; "" means none
	Content  bool   `yaml:"content"`                  // also send goals and feedback
}

// Link returns the link to a trace, "" if none is configured.
func (t Telemetry) Link(traceID string) string {
	return strings.ReplaceAll(t.TraceURL, "{trace_id}", traceID)
}

// Checks configures the checks of steps (key checks).
type Checks struct {
	// how many steps are checked at once; default: the number of processors
	MaxConcurrent int `yaml:"max_concurrent" min:"1" max:"10000"`
}

// Git configures the use of branch names.
type Git struct {
	Branch GitBranch `yaml:"branch" oneof:"name,create,checkout"`
}

// Sessions configures how long sessions are kept (key sessions).
type Sessions struct {
	// KeepEnded is how long a session is kept after its end; 0, the default, means forever. The minimum is an
	// hour, since somebody may still look at a session that has just ended.
	KeepEnded time.Duration `yaml:"keep_ended" min:"1h" max:"87600h" zero:"forever"`
}

// A Price is the price of a model in USD per million tokens (key prices). It is used if an agent does not
// report a cost.
type Price struct {
	Input      float64
	CacheRead  float64 // default: Input
	CacheWrite float64 // default: Input
	Output     float64
}

// Default returns the config of a project that has no config.yml. Each call returns a new one.
func Default() *Config {
	return &Config{
		Version: "1.0",
		QualityGate: QualityGate{
			DefaultMaxAttempts:   3,
			MaxConcurrentReviews: max(2, runtime.GOMAXPROCS(0)),
			ReplyWithin:          50 * time.Second,
			MaxInlineFiles:       5,
			Override:             OverrideAgent,
		},
		Git: Git{Branch: BranchName},
		HTTP: HTTP{
			IdleTimeout:    time.Hour,
			MaxConnections: 6000,
			MaxRequests:    1024,
			MaxBodyBytes:   4 << 20,
			Quotas:         Quotas{Requests: 256},
		},
		WorkflowTools: WorkflowTools{
			Enabled: true, RefreshInterval: 5 * time.Minute,
			StatusInterval: 2 * time.Second, MaxConcurrent: 10, KeepToolsFor: time.Minute, RetryAttempts: 3,
		},
		Attempts: Attempts{
			MaxConcurrent:    4,
			DoneWhenMerged:   true,
			BranchPrefix:     "deepwork/",
			MachineLostAfter: 10 * time.Minute,
		},
		Run:    Run{Retries: 2},
		UI:     UI{EditorURL: "vscode://file"},
		Checks: Checks{MaxConcurrent: runtime.GOMAXPROCS(0)},
	}
}

// Toolsets are the sets of tools that a server can offer (DESIGN "Tool surface").
var Toolsets = []string{"workflows", "remote", "board", "source"}

// DefaultToolsets are the sets that a server offers unless others are chosen.
var DefaultToolsets = Toolsets[:3:3]

// KnownExecutors are the executors with built-in commands, which the config may omit.
var KnownExecutors = []string{"CLAUDE_CODE", "CODEX", "CURSOR_AGENT", "GEMINI", "OPENCODE"}

// The environment variables that the program reads or sets for agents.
const (
	// JobsFoldersEnv lists more job folders: absolute paths, separated as the system separates
	// lists (`:`, on Windows `;`); one in double quotes may contain that.
	JobsFoldersEnv = "DEEPWORK_ADDITIONAL_JOBS_FOLDERS"
	AttemptEnv     = "DEEPWORK_ATTEMPT_ID" // the id of the attempt on which an agent works
	BoardEnv       = "DEEPWORK_BOARD"      // the absolute path of that attempt's board
	StoreEnv       = "DEEPWORK_STORE"      // the URL of the store, as in the user's own config
	SessionEnv     = "DEEPWORK_SESSION_ID" // the workflow session and the step that a run's agent does
	StepEnv        = "DEEPWORK_STEP_ID"
	MCPURLEnv      = "DEEPWORK_MCP_URL" // the server to which it reports, and a file like .mcp.json that names it
	MCPConfigEnv   = "DEEPWORK_MCP_CONFIG"
	ProjectEnv     = "DEEPWORK_PROJECT" // the name of the project in that store
)

// ConversationEnv has the names of the variables that coding agents set for the programs they start. In
// another agent they would bind it to the first one's conversation, or keep it from starting. Variables with
// which people configure these agents, such as CODEX_HOME and CLAUDE_CODE_USE_BEDROCK, are not among them.
var ConversationEnv = []string{
	"CLAUDECODE", "CLAUDE_PID", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_SESSION_ID",
	"CLAUDE_CODE_SESSION_ACCESS_TOKEN", "CLAUDE_CODE_CHILD_SESSION", "CLAUDE_CODE_HOST_SESSION_ID",
	"CLAUDE_CODE_REMOTE_SESSION_ID", "CLAUDE_CODE_TASK_LIST_ID", "CLAUDE_PROJECT_DIR", "CLAUDE_ENV_FILE",
	"CODEX_THREAD_ID", "CODEX_SESSION_ID", "CODEX_INTERNAL_ORIGINATOR_OVERRIDE",
	"OPENCODE", "OPENCODE_PID", "OPENCODE_RUN_ID", "OPENCODE_PROCESS_ROLE", "OPENCODE_SESSION_ID",
	"OPENCODE_SERVER_USERNAME", "OPENCODE_SERVER_PASSWORD",
	"GEMINI_CLI", "CURSOR_AGENT",
}

const listSeparator = string(os.PathListSeparator)

// quotedFolder matches a folder in quotes that JobsFoldersEnv begins with.
var quotedFolder = regexp.MustCompile(`^\s*"([^"]*)"\s*(?:` + listSeparator + `|$)`)

// QuoteFolder returns a folder as it is written in JobsFoldersEnv.
func QuoteFolder(dir string) string {
	if strings.Contains(dir, listSeparator) {
		return `"` + dir + `"`
	}
	return dir
}

// JobsFolders returns the job folders of JobsFoldersEnv. Relative ones are not used, since the working directory of a
// server is its client's choice: catalog.FolderFaults says so.
func JobsFolders() (folders []string) {
	for rest := os.Getenv(JobsFoldersEnv); rest != ""; {
		var dir string
		if m := quotedFolder.FindStringSubmatch(rest); m != nil {
			dir, rest = m[1], rest[len(m[0]):]
		} else {
			dir, rest, _ = strings.Cut(rest, listSeparator)
		}
		if dir = strings.TrimSpace(dir); filepath.IsAbs(dir) {
			dir = filepath.Clean(dir)
		}
		if dir != "" {
			folders = append(folders, dir)
		}
	}
	return folders
}
