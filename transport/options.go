// Package transport speaks MCP: it decodes a call, sends one message, and
// encodes the reply. It holds no rules.
package transport

import (
	"log/slog"
	"time"
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
	// Version is told to clients; "" is "dev".
	Version string
}
