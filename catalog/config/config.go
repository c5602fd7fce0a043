// Package config reads .deepwork/config.yml: its model, its parser with positioned diagnostics, and
// a Source that follows edits of the file.
package config

import (
	"runtime"
	"slices"
	"time"
)

// GitBranch is what start_workflow does with a session's branch_name.
type GitBranch string

// The values of git.branch; the default is BranchName.
const (
	BranchName     GitBranch = "name"     // only names it
	BranchCreate   GitBranch = "create"   // creates the branch
	BranchCheckout GitBranch = "checkout" // creates it and switches to it
)

// Override is who may override a review.
type Override string

// The values of quality_gate.override, each stricter than the one before; the default is
// OverrideAgent (seed 000, 001.4.9).
const (
	OverrideAgent Override = "agent" // any caller, by giving a reason
	OverrideHuman Override = "human" // a person
	OverrideNever Override = "never" // nobody
)

// Overrides are the values of Override, the strictest last.
var Overrides = []string{string(OverrideAgent), string(OverrideHuman), string(OverrideNever)}

// Stricter reports whether fewer callers may override under o than under than.
func (o Override) Stricter(than Override) bool {
	return slices.Index(Overrides, string(o)) > slices.Index(Overrides, string(than))
}

// A Config is one config.yml with the defaults filled in. It is immutable.
type Config struct {
	Version     string // as written; default "1.0"
	Platforms   []string
	QualityGate QualityGate
	Git         Git
	Toolsets    []string // of the names in Toolsets; nil means DefaultToolsets

	HTTP          HTTP
	WorkflowTools WorkflowTools
	Projects      []Project
	Executors     []Executor // in the file's order
	Attempts      Attempts
	Run           Run
	Sessions      Sessions
	Prices        map[string]Price // by model; only of the user's own config
	Notify        []string         // command that gets what needs a person; only of the user's own config

	Approval *Approval // nil means that approval is not needed, and everything is in force
}

// QualityGate configures reviews (seed 001 "Configuration").
type QualityGate struct {
	AgentReviewCommand   []string      // split like a shell would, run without one; nil means none
	ReviewerExecutor     string        // NAME or NAME:VARIANT of an executor that reviews; "" means none; not beside AgentReviewCommand
	DefaultTimeout       time.Duration // of one review; 0 means depending on the number of files
	DefaultMaxAttempts   int           // default 3
	MaxConcurrentReviews int           // default the number of processors, at least 2
	ReplyWithin          time.Duration // default 50 s
	MaxInlineFiles       int           // default 5
	Pin                  bool          // sessions keep to the reviewer and the criteria that they began with
	Override             Override      // default OverrideAgent; a project's config can only make it stricter, the user's own wins
}

// Git configures the use of branch names.
type Git struct{ Branch GitBranch }

// Sessions configures how long sessions are kept (key sessions).
type Sessions struct {
	KeepEnded time.Duration // since they ended; 0, the default, means forever
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
		Git:           Git{Branch: BranchName},
		HTTP:          defaultHTTP(),
		WorkflowTools: defaultWorkflowTools(),
		Attempts:      defaultAttempts(),
		Run:           Run{Retries: 2},
	}
}
