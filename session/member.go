package session

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"deepwork/actor/durable"
	"deepwork/actor/presence"
)

// NewMember returns this process's member among the servers of a project. dir is the
// project's .deepwork/tmp. Entering creates it, for this user alone, and adds the
// missing lines to the .gitignore above it; a failure of that is only logged.
func NewMember(dir string, log *slog.Logger) *presence.Member {
	return presence.New(presence.Options{
		Dir: dir, Logger: log,
		Earlier: []string{filepath.Join(dir, "board"), filepath.Join(dir, "runs")},
		Prepare: func() error {
			if err := MakeFolder(dir); err != nil {
				return err
			}
			// A folder that hides itself from git, as in an attempt's workspace, needs no more.
			if text, err := os.ReadFile(filepath.Join(dir, ".gitignore")); err == nil && string(bytes.TrimSpace(text)) == "*" {
				return nil
			}
			path := filepath.Join(filepath.Dir(dir), ".gitignore")
			if _, err := Ignore(path, Ignored()); err != nil && log != nil {
				log.Warn("cannot see to the .gitignore of the session folder", "path", path, "error", err)
			}
			return nil
		},
	})
}

// MakeFolder creates the session folder if it is missing, for this user alone, and
// the folders above it with the usual mode.
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
