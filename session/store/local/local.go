// Package local keeps the stores of a project in files of this machine.
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"deepwork/actor/durable"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/local/sqlite"
)

// A Database is a database in a file of this machine.
type Database = sqlite.DB

// Open returns the database of a project in its state folder. The first call of a method opens it; the caller
// closes it.
func Open(f *state.Folder) *Database { return sqlite.New(sqlite.Options{Path: f.Database()}) }

// Stores returns the stores of a project in a database file of this machine. It touches no file: the first
// call that needs the file opens it. With readOnly nothing is created, and a missing database counts as
// empty.
func Stores(f *state.Folder, readOnly bool, logger *slog.Logger) *store.Stores {
	member := session.NewMember(f, logger)
	db := sqlite.New(sqlite.Options{
		Path:     f.Database(),
		Make:     func() error { return session.MakeState(f) },
		ReadOnly: readOnly,
		Logger:   logger,
	})
	return &store.Stores{
		Members: member, Database: db,
		Others: func(context.Context) (bool, error) {
			others, _ := member.Others()
			return len(others) > 0, nil
		},
		Close: func(context.Context) error {
			// close last: until then no other server takes over what this one runs
			return errors.Join(db.Close(), member.Leave())
		},
	}
}

// SetAside renames a project's database that is damaged or of another version, with its log, so that the next
// program begins an empty one. It returns the new path. It refuses while a server runs, while any process has
// the database open, and for a usable database. No server can start meanwhile.
func SetAside(ctx context.Context, f *state.Folder, now time.Time) (to string, err error) {
	release, err := session.HoldServers(ctx, f)
	if err != nil {
		return "", err
	}
	defer release()
	path := f.Database()
	why := damage(ctx, NewFile(f))
	switch {
	case why == nil:
		return "", fmt.Errorf("%s is not damaged, and was left as it is", path)
	case errors.Is(why, task.ErrDamaged):
		to = path + ".damaged-"
	case errors.Is(why, task.ErrVersion):
		to = path + ".other-version-"
	default:
		return "", fmt.Errorf("whether %s is damaged cannot be found out, and it was left as it is: %w", path, why)
	}

	// a server that has only read the database is not among the servers
	if err := inUse(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("setting the database aside: %w", err)
	}
	to += now.UTC().Format("20060102T150405Z")
	moved := false
	for _, part := range []string{"", "-wal", "-shm"} { // a log without its database is refused, not used
		if _, err := os.Lstat(to + part); !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%s is there already", to+part)
		}

		switch err := os.Rename(path+part, to+part); {
		case err == nil:
			moved = true
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("setting the database aside: %w", err)
		}
	}
	if !moved {
		return "", fmt.Errorf("%s is gone: %w", path, why)
	}
	return to, durable.Disk{}.SyncFolder(f.Dir)
}

// damage returns why a database cannot be used, or nil if it can or does not exist.
func damage(ctx context.Context, s *File) error {
	db := s.database(s.path, true)
	found, err := db.Damage(ctx)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%w: %s", task.ErrDamaged, found[0].What)
	}
	return errors.Join(err, db.Close())
}
