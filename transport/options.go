// Package transport speaks MCP: it decodes a call, sends one message, and
// encodes the reply. It holds no rules.
package transport

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/config"
)

// Options are the parameters of NewServer (seed 000, 001.1.2 to 001.1.6). The
// zero value of a field is its default.
type Options struct {
	// ProjectRoot is resolved to an absolute path; "" is the current directory.
	ProjectRoot string
	// EnableQualityGate: nil is true.
	EnableQualityGate *bool
	// QualityGateTimeout is the time one review may take; 0 is as configured, else 120 s.
	QualityGateTimeout time.Duration
	// QualityGateMaxAttempts: 0 is as configured, else 3.
	QualityGateMaxAttempts int
	// ExternalRunner is "" for self-review, or "claude".
	ExternalRunner string
	// QualityGateCommand is any other reviewer; it overrides the config's.
	QualityGateCommand string
	// Toolsets chooses the sets of tools; nil is as configured, else all.
	Toolsets []string
	// Logger is where calls are logged; nil discards.
	Logger *slog.Logger
	// Version is shown to clients; "" is "dev".
	Version string

	// AdditionalJobs are job folders after the standard ones, absolute paths;
	// nil takes them from the environment (config.JobsFoldersEnv).
	AdditionalJobs []string
	// StandardJobs replaces the jobs bundled with the binary; nil is those.
	StandardJobs fs.FS
}

// ExternalRunners are the values of Options.ExternalRunner.
var ExternalRunners = []string{"claude"}

// check returns what is wrong with the options, or nil.
func (o *Options) check() error {
	switch {
	case o.ExternalRunner != "" && !slices.Contains(ExternalRunners, o.ExternalRunner):
		return fmt.Errorf("external runner %q is unknown: use %s, or none for self-review (any other reviewer is a quality gate command)",
			o.ExternalRunner, strings.Join(ExternalRunners, ", "))
	case o.QualityGateTimeout < 0:
		return fmt.Errorf("quality gate timeout %v is negative: give a positive time, or 0 for the configured one", o.QualityGateTimeout)
	case o.QualityGateMaxAttempts < 0:
		return fmt.Errorf("quality gate maximum of %d attempts is negative: give a positive number, or 0 for the configured one", o.QualityGateMaxAttempts)
	}
	return checkToolsets(o.Toolsets)
}

func checkToolsets(names []string) error {
	for _, n := range names {
		if !slices.Contains(config.Toolsets, n) {
			return fmt.Errorf("toolset %q is unknown: choose of %s", n, strings.Join(config.Toolsets, ", "))
		}
	}
	return nil
}

// resolveRoot makes the project root absolute (seed 000, 001.1.2).
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
	return abs, nil
}
