package runner

import (
	"context"
	"fmt"
)

// Mark is an entry of an environment by which EndMarked finds what a program that
// is no run, such as a setup command, has started. No name begins another.
func Mark(name string) string { return markEnv + "=" + name }

// EndMarked ends, by SIGKILL, whatever has a Mark of this name in the environment
// that it was started with, and returns when nothing of it is left: what a program
// has started outlives a server that is killed. Only on Linux can that be told; it
// does nothing elsewhere. It fails where ctx ends or a process does not.
func EndMarked(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	if err := endMarked(ctx, name); err != nil {
		return fmt.Errorf("ending what bears the mark %s: %w", name, err)
	}
	return nil
}
