package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"deepwork/actor/durable"
)

// Usable returns why the state has no place or cannot be read, or nil.
func (f *Folder) Usable() error { return f.lacks }

// signpost returns the path of the file in which the project records where its state is: in its git folder,
// or else among the files that are not committed; "" without both. Finding the state does not need this file.
// It only reveals that there is another state.
func (f *Folder) signpost() string {
	for _, file := range []string{filepath.Join(f.Root, ".git", "deepwork-state"), filepath.Join(f.Tmp(), "state")} {
		if info, err := os.Lstat(filepath.Dir(file)); err == nil && info.IsDir() {
			return file
		}
	}
	return ""
}

// Elsewhere returns another folder with state of this project, and the file that says so, or "". A server or
// a command with other values of HOME, XDG_STATE_HOME or Env made it.
func (f *Folder) Elsewhere() (dir, file string) {
	file = f.signpost()
	text, _, err := durable.Read(file, maxProject)
	dir = strings.TrimSpace(string(text))
	if err != nil || dir == f.Dir || !filepath.IsAbs(dir) {
		return "", ""
	}
	if p, err := readProject(dir); err != nil || p.Path != f.Root || p.Dir != "" {
		return "", ""
	}
	return dir, file
}

// MovedFrom returns the folder from which the project was moved, as far as is known: one that is gone, and
// whose state the project still names as its own while it has none here. Otherwise it returns "".
func (f *Folder) MovedFrom() string {
	text, _, err := durable.Read(f.signpost(), maxProject)
	dir := strings.TrimSpace(string(text))
	_, has := f.ID()
	if err != nil || !errors.Is(has, ErrMissing) || filepath.Dir(dir) != filepath.Join(f.Base, "projects") {
		return ""
	}

	p, err := readProject(dir)
	if err != nil || p.Path == f.Root || p.Dir != "" {
		return ""
	}
	if _, err := os.Lstat(p.Path); !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return p.Path
}

// post records where the state is, unless another state is recorded. If that fails, only a warning is lost.
func (f *Folder) post() {
	if dir, _ := f.Elsewhere(); f.found && dir == "" && f.signpost() != "" {
		_ = (durable.Disk{}).Put(f.signpost(), []byte(f.Dir+"\n"), durable.PutOptions{})
	}
}
