// Package config reads .deepwork/config.yml.
package config

import (
	"context"
	"time"
)

// GitBranch says what start_workflow does with a session's branch_name.
type GitBranch string

// What git.branch may be; the default is BranchName.
const (
	BranchName     GitBranch = "name"     // only names it
	BranchCreate   GitBranch = "create"   // creates the branch
	BranchCheckout GitBranch = "checkout" // creates it and switches to it
)

// A Config is one config.yml with the defaults filled in. It is immutable.
type Config struct {
	Version     string
	Platforms   []string
	QualityGate QualityGate
	Git         Git
	Toolsets    []string // of "workflows", "remote", "board"; nil: all
}

// QualityGate configures reviews (seed 001 "Configuration").
type QualityGate struct {
	AgentReviewCommand   []string      // split like a shell would, run without one; nil: none
	DefaultTimeout       time.Duration // of one review; 0: by the number of files
	DefaultMaxAttempts   int           // default 3
	MaxConcurrentReviews int           // default the number of processors, at least 2
	ReplyWithin          time.Duration // default 50 s
	MaxInlineFiles       int           // default 5
}

// Git configures what is done with branch names.
type Git struct{ Branch GitBranch }

// A Source serves the config of one project and follows its edits.
type Source struct{}

// Open reads the file; a bad one is not an error of Open but of Current.
func Open(root string) *Source { panic("not yet") }

// Current returns the config as the file now stands. A bad edit is logged and
// the last good one returned; a file that was never good since start is an
// error with file, line and reason. A missing file is the defaults.
func (s *Source) Current(ctx context.Context) (*Config, error) { panic("not yet") }
