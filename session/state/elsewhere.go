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

// signpost returns the file in which the project says where its state is: in its git folder, or else among what is
// not committed; "" without both. It is not needed to find the state: it only shows that there is another one.
func (f *Folder) signpost() string {
	for _, file := range []string{filepath.Join(f.Root, ".git", "deepwork-state"), filepath.Join(f.Tmp(), "state")} {
		if info, err := os.Lstat(filepath.Dir(file)); err == nil && info.IsDir() {
			return file
		}
	}
	return ""
}

// Elsewhere returns another folder that has state of this project, and the file that says so, or "": it was made by a
// server or a command with other values of HOME, XDG_STATE_HOME or Env.
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

// MovedFrom returns the folder, which is gone, whose state the project says is its own, if it has none here: it was
// moved from there, as far as is known. Otherwise it returns "".
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

// post writes where the state is, unless there is another one. Without it only a warning is missed.
func (f *Folder) post() {
	if dir, _ := f.Elsewhere(); f.found && dir == "" && f.signpost() != "" {
		_ = (durable.Disk{}).Put(f.signpost(), []byte(f.Dir+"\n"), durable.PutOptions{})
	}
}
