package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A Project is a folder whose project has state here.
type Project struct {
	Root string    // absolute, without links
	Used time.Time // when its state last changed, approximately
}

// Projects returns the user's projects that have state and whose folders exist, most recently used first, and
// how many folders are gone. It leaves out unreadable states.
func Projects() (all []Project, gone int, err error) {
	base, err := Base()
	if err != nil {
		return nil, 0, err
	}
	dirs, err := os.ReadDir(filepath.Join(base, "projects"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	for _, d := range dirs {
		dir := filepath.Join(base, "projects", d.Name())
		p, err := readProject(dir)
		if err != nil || p.Dir != "" { // p.Dir leads to the state of a moved project
			continue
		}
		if info, err := os.Stat(p.Path); err != nil || !info.IsDir() {
			gone++
			continue
		}
		here := Project{Root: p.Path}
		for _, file := range []string{"", "board.db", "board.db-wal"} {
			if info, err := os.Stat(filepath.Join(dir, file)); err == nil && info.ModTime().After(here.Used) {
				here.Used = info.ModTime()
			}
		}
		all = append(all, here)
	}
	slices.SortFunc(all, func(a, b Project) int { return b.Used.Compare(a.Used) })
	return all, gone, nil
}
