package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/presence"
	"deepwork/session/codes"
	"deepwork/session/state"
)

// NewMember returns this process's member among the servers of a project. Entering creates the state folder.
func NewMember(f *state.Folder, log *slog.Logger) *presence.Member {
	return presence.New(presence.Options{Dir: f.Servers(), Logger: log, Prepare: func() error {
		return makeServers(f)
	}, Check: func() error {
		// A process that copies takes this lock before it looks for servers.
		if locked, err := durable.Locked(f.CopyLock()); err == nil && locked {
			return errors.New("the project is being copied between stores: wait until deepwork store copy has ended")
		}
		return nil
	}})
}

// HoldServers keeps servers from using a project's files until unlock is called. If a server runs, the error
// names it.
func HoldServers(ctx context.Context, f *state.Folder) (unlock func(), err error) {
	if err := makeServers(f); err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Second,
		errors.New("another deepwork store copy, or deepwork check --set-aside, holds it"))
	defer cancel()
	lock, err := durable.Lock(ctx, f.CopyLock())
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", f.CopyLock(), err)
	}

	m := presence.New(presence.Options{Dir: f.Servers()})
	if alive, _ := m.Others(); len(alive) > 0 {
		lock.Unlock()
		id, _ := presence.LockOf(filepath.Base(alive[0]))
		return nil, fmt.Errorf("a server runs on this project (%s), which holds %s: stop it first",
			m.Describe(id), alive[0])
	}
	return func() { lock.Unlock() }, nil
}

func makeServers(f *state.Folder) error {
	if err := MakeState(f); err != nil {
		return err
	}
	return MakeFolder(f.Servers())
}

// MakeState creates the state folder of a project. Its error is for agents.
func MakeState(f *state.Folder) error {
	if err := f.Make(); err != nil {
		return NotNow(codes.NoStateFolder,
			"Nothing can be written, and nothing has changed: %v.", err).
			Ask("restart the server after a change of its options or %s", state.Env).Because(err)
	}
	return nil
}

// MakeSessions creates the folder of sessions, for this user alone, and adds the missing lines to
// the .gitignore above it; if that fails, it only logs the error.
func MakeSessions(f *state.Folder, log *slog.Logger) error {
	dir := f.Tmp()
	if _, err := os.Stat(f.Root); err != nil {
		return err // do not recreate a project that was moved away
	}
	if err := f.OwnTmp(); err != nil {
		return err
	}
	if err := MakeFolder(dir); err != nil {
		return err
	}

	// A folder that already hides itself from git, as in an attempt's workspace, needs no more.
	if text, _, err := durable.Read(filepath.Join(dir, ".gitignore"), 9); err == nil &&
		string(bytes.TrimSpace(text)) == "*" {
		return nil
	}
	path := filepath.Join(filepath.Dir(dir), ".gitignore")
	if _, err := Ignore(path, Ignored()); err != nil && log != nil {
		log.Warn("cannot write the .gitignore of the session folder", "path", path, "error", err)
	}
	return nil
}

// MakeFolder creates a folder, readable by this user only, if it is missing. Missing folders above it get the
// usual mode.
func MakeFolder(dir string) error {
	err := durable.Disk{}.MakeFolder(dir, 0o700)
	if err == nil {
		return nil
	}

	path := dir
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		path = e.Path
	}
	return durable.Explain(fmt.Errorf("making the session folder: %w", err), path)
}
