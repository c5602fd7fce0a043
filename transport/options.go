package transport

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/config"
	"deepwork/session/attempt"
)

// Options are the parameters of NewServer (seed 000, 001.1.2 to 001.1.6). Zero fields have their
// default value.
type Options struct {
	// ProjectRoot is resolved to an absolute path; "" is the current directory.
	ProjectRoot string
	// Notice is for agents, in get_workflows.
	Notice string
	// Refusal says why no session may begin in ProjectRoot; nil means that one may.
	Refusal error
	// EnableQualityGate defaults to true.
	EnableQualityGate *bool
	// QualityGateTimeout limits one review; 0 means the configured time, else 120 s.
	QualityGateTimeout time.Duration
	// QualityGateMaxAttempts: 0 means the configured number, else 3.
	QualityGateMaxAttempts int
	// ExternalRunner is "" (self-review) or "claude".
	ExternalRunner string
	// QualityGateCommand is any other reviewer; it overrides the configured one.
	QualityGateCommand string
	// Override replaces the configured quality_gate.override; "" does not.
	Override config.Override
	// Pin sets quality_gate.pin whatever is configured.
	Pin bool
	// Toolsets chooses the sets of tools; nil means the configured ones, else config.DefaultToolsets.
	Toolsets []string
	// Logger is where calls are logged; nil discards.
	Logger *slog.Logger
	// Version is shown to clients; "" means "dev".
	Version string
	// Help is the documentation that the pages show, in Markdown; nil means none.
	Help fs.FS

	// Store is the URL of the database with the sessions and the board, and Project the name of the
	// project there; "" means as in the environment or the user's own config, else files.
	Store, Project string

	// AdditionalJobs are job folders after the standard ones, as absolute paths; nil means those of
	// the environment (config.JobsFoldersEnv).
	AdditionalJobs []string
	// StandardJobs replaces the jobs bundled with the binary; nil means those.
	StandardJobs fs.FS

	getenv func(string) string // nil means os.Getenv
	moved  func()              // called after each transition of a session; nil means nothing
	tally  *tally              // of the server that leads the run; nil means one of its own
	// reviewed records what an executor that reviewed has printed, before its verdict counts; nil means nothing.
	reviewed func(executor string, stdout []byte) error
	// judge returns what a check, or the reviewer of an executor, gets that works in a folder: see attempt.Lead. nil
	// contains none.
	judge func(ctx context.Context, folder string, reviewer *string) (*attempt.Judge, error)
}

// ExternalRunners are the values of Options.ExternalRunner.
var ExternalRunners = []string{"claude"}

// check validates the options.
func (o *Options) check() error {
	switch {
	case o.ExternalRunner != "" && !slices.Contains(ExternalRunners, o.ExternalRunner):
		return fmt.Errorf("external runner %q is unknown: use %s, or none for self-review (any other reviewer is a "+
			"quality gate command)",
			o.ExternalRunner, strings.Join(ExternalRunners, ", "))
	case o.Override != "" && !slices.Contains(config.Overrides, string(o.Override)):
		return fmt.Errorf("override %q is unknown: choose one of %s", o.Override, strings.Join(config.Overrides, ", "))
	case o.QualityGateTimeout < 0:
		return fmt.Errorf("quality gate timeout %v is negative: give a positive time, or 0 for the configured one",
			o.QualityGateTimeout)
	case o.QualityGateMaxAttempts < 0:
		return fmt.Errorf("quality gate maximum of %d tries is negative: give a positive number, or 0 for the "+
			"configured one", o.QualityGateMaxAttempts)
	}
	return checkToolsets(o.Toolsets)
}

func checkToolsets(names []string) error {
	for _, n := range names {
		if !slices.Contains(config.Toolsets, n) {
			return fmt.Errorf("toolset %q is unknown: choose from %s", n, strings.Join(config.Toolsets, ", "))
		}
	}
	if slices.Contains(names, "source") && !slices.Contains(names, "workflows") {
		return errors.New("the toolset source needs the toolset workflows: other servers start workflows by the one, " +
			"and agents finish their steps by the other; choose both")
	}
	return nil
}

// resolveRoot makes the project root absolute (seed 000, 001.1.2) and resolves links: sessions and the board store the
// path, and another server may be started by another link.
func resolveRoot(root string) (string, error) {
	abs, err := filepath.Abs(root) // "" is the current directory
	if err != nil {
		return "", fmt.Errorf("resolving project root %q: %w", root, err)
	}
	info, err := os.Stat(abs)
	switch {
	case err != nil:
		return "", fmt.Errorf("project root %s: %w; give the folder of an existing project", abs, err)
	case !info.IsDir():
		return "", fmt.Errorf("project root %s is not a directory; give the project's folder", abs)
	}

	return filepath.EvalSymlinks(abs)
}
