package attempt

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"deepwork/actor/durable"
	"deepwork/catalog/task"
	"deepwork/session/state"
	"deepwork/session/store/backend"
)

// Relocate corrects the paths on the board and in the journals after the project was moved from old
// to where f says, f having its state already. It blocks for the disk, and may be called again
// after an error. No server may run.
func Relocate(ctx context.Context, f *state.Folder, old string) error {
	to := func(path string) string {
		if rel, err := filepath.Rel(old, path); err == nil && filepath.IsLocal(rel) {
			return filepath.Join(f.Root, rel)
		}
		return path
	}
	e := &Engine{o: Options{Root: f.Root, State: f}.withDefaults()}
	e.log = e.o.Logger
	db := backend.Files(f)
	defer db.Close() // a change is on disk when its call returns
	dirs := []string{f.Worktrees()}
	if db.Exists() {
		more, err := db.Board().WorktreeFolders(ctx, task.Place{})
		if err != nil {
			return err
		}
		dirs = append(dirs, more...)
	}
	for _, from := range dirs {
		dir := to(from)
		if dir != from { // the folder of the journals has the path in its name
			err := (durable.Disk{}).Move(e.journalOf(from), e.journalOf(dir))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := e.keeper(dir).Relocate(ctx, from, to); err != nil {
			return err
		}
	}
	if !db.Exists() {
		return nil
	}
	return db.Relocate(ctx, to)
}
