package state

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Tmp is the folder of session and review files, which stands in the project.
func (f *Folder) Tmp() string { return filepath.Join(f.Root, ".deepwork", "tmp") }

// Database is the file of the project's SQLite database.
func (f *Folder) Database() string { return filepath.Join(f.Dir, "board.db") }

// Servers is the folder of the lock files of servers, and of what they share about
// sessions: the claim lock, the index of request ids, the feed of changes.
func (f *Folder) Servers() string { return filepath.Join(f.Dir, "servers") }

// Definitions is the folder of the jobs that sessions began with.
func (f *Folder) Definitions() string { return filepath.Join(f.Dir, "definitions") }

// Worktrees is the folder of the worktrees of attempts, unless the config names one. On
// Windows, where paths are bounded, its name is short.
func (f *Folder) Worktrees() string {
	if runtime.GOOS == "windows" {
		name := filepath.Base(f.Dir)
		return filepath.Join(f.Base, "w", strings.TrimLeft(name[len(name)-min(len(name), 14):], "-"))
	}
	return filepath.Join(f.Dir, "worktrees")
}

// Logs is the folder of what agents wrote.
func (f *Folder) Logs() string { return filepath.Join(f.Dir, "logs") }

// StandardJobs is the folder where the jobs of the program are laid out.
func (f *Folder) StandardJobs() string { return filepath.Join(f.Dir, "standard_jobs") }

// Grants is the file of what the user approved for the project.
func (f *Folder) Grants() string { return filepath.Join(f.Base, "trust", Name(f.Root)+".json") }

// Earlier returns what of the state of earlier versions, which had it in the project, is
// there. It is not used: anybody may have put it there.
func (f *Folder) Earlier() []string {
	var found []string
	for _, name := range []string{"board.db", "worktrees", "logs"} {
		path := filepath.Join(f.Root, ".deepwork", name)
		if _, err := os.Lstat(path); err == nil {
			found = append(found, path)
		}
	}
	return found
}

// Canonical returns the path of what exists at a path: absolute and without links.
func Canonical(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}

// resolved is Canonical of a path whose last elements may be missing.
func resolved(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real, nil
	}
	parent := filepath.Dir(path)
	if !os.IsNotExist(err) || parent == path {
		return "", err
	}
	if fi, lerr := os.Lstat(path); lerr == nil && fi.Mode()&os.ModeSymlink != 0 {
		return "", fmt.Errorf("%s is a link to something that is missing", path)
	}
	if parent, err = resolved(parent); err != nil {
		return "", err
	}
	return filepath.Join(parent, filepath.Base(path)), nil
}

// within reports whether a path is a folder or below it, both without links.
func within(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
