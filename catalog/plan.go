package catalog

import (
	"path/filepath"
	"strings"

	"deepwork/catalog/internal/stamp"
)

// An interest is why a directory is watched: what to look at when something in
// it changes.
type interest struct {
	key    key
	listed bool   // the directory is the folder itself: the names in it are entries
	only   string // the directory is above the folder: this name in it leads there; else ""
}

// keysFor returns what an event on a name in the directory is about; base "" is
// the directory itself.
func (i interest) keysFor(base string) []key {
	switch {
	case i.only != "" && base != "" && base != i.only:
		return nil
	case i.listed && base != "":
		return []key{i.key, {i.key.folder, base}}
	}
	return []key{i.key}
}

// A plan is which directories are to be watched, and why.
type plan map[string][]interest

// planFor makes the plan for a state: each job's directory, each folder, and the
// directories above it through which it may appear or be swapped: up to the
// root within the project, else the nearest one that exists.
func planFor(root string, s *state) plan {
	p := make(plan)
	add := func(dir string, i interest) { p[dir] = append(p[dir], i) }
	for n, f := range s.folders {
		if f.standard {
			continue
		}
		self := key{folder: n}
		if f.stamp.Kind == stamp.Dir {
			add(f.at.Name(), interest{key: self, listed: true})
		}
		for _, e := range f.entries {
			if e.phase != vanished {
				add(e.dir, interest{key: key{n, e.name}})
			}
			if e.link != "" {
				add(e.link, interest{key: key{n, e.name}})
			}
		}
		for at := f.at.Name(); ; {
			parent := filepath.Dir(at)
			if parent == at {
				break
			}
			exists := stamp.At(parent).Stat().Kind == stamp.Dir
			if exists {
				add(parent, interest{key: self, only: filepath.Base(at)})
			}
			if exists && !strings.HasPrefix(parent, root+string(filepath.Separator)) {
				break
			}
			at = parent
		}
	}
	return p
}
