package attempt

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"deepwork/actor/presence"
)

// presenceDir is where the servers of the board have their lock files. They have
// no claim lock: what a dead one owned, the board itself gives to one of them.
func (e *Engine) presenceDir() string { return filepath.Join(e.home, "tmp", "board") }

// enter makes this server look alive, and sees to it that it still does: whoever
// removed its lock file must not make others take its executions.
func (e *Engine) enter(ctx context.Context) error {
	if e.presence.Stands() {
		return nil
	}
	if err := os.MkdirAll(e.presenceDir(), 0o700); err != nil {
		return fmt.Errorf("making the folder of the servers' lock files: %w", err)
	}
	e.presence.Sweep()
	return e.presence.Enter(ctx)
}

// anyAlive tells whether a server of the board runs.
func (e *Engine) anyAlive() bool {
	entries, err := os.ReadDir(e.presenceDir())
	return err == nil && slices.ContainsFunc(entries, func(f os.DirEntry) bool {
		server, ok := presence.LockOf(f.Name())
		return ok && e.presence.Alive(server)
	})
}
