package process

import (
	"context"
	"fmt"
)

// An ID tells a process from every other one, also from a later one that has its
// number.
type ID struct {
	PID   int
	Start string // when the system started it; "" if that is not known
	Boot  string // the run of the system that the number belongs to
}

// Identify returns the ID of a process that runs.
func Identify(pid int) ID { return ID{PID: pid, Start: startOf(pid), Boot: Boot()} }

// EndMarked kills every process, except this one, that was started with an entry
// "NAME=value" in its environment, and returns when none of them is left: what a
// command has started outlives a process that is killed. Elsewhere than on Linux
// it does nothing. It fails if ctx ends or a process does not.
func EndMarked(ctx context.Context, entry string) error {
	if err := endMarked(ctx, entry); err != nil {
		return fmt.Errorf("ending processes with %s: %w", entry, err)
	}
	return nil
}
