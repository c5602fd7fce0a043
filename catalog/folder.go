package catalog

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/internal/follow"
	"deepwork/catalog/job"
)

// relistAfter is the pause before a failed listing is retried.
const relistAfter = time.Second

// A folder is a job folder as of the last check. It is immutable: list and with return new ones.
type folder struct {
	follow.Track          // the listing
	standard     bool     // its entries come with the binary, and are not checked
	names        []string // directories and links in the listing, sorted
	entries      []*entry // sorted by name: the entries of names, and vanished ones still served
	fault        string   // why listing it failed; "" if it did not, or the folder is missing
}

func newFolder(dir string) *folder {
	return &folder{Track: follow.Track{Path: follow.Path(dir)}}
}

func (f *folder) dir() string { return string(f.Path) }

// entry returns the entry of this name, or nil.
func (f *folder) entry(name string) *entry {
	i, ok := slices.BinarySearchFunc(f.entries, name, func(e *entry, name string) int {
		return strings.Compare(e.name, name)
	})
	if !ok {
		return nil
	}
	return f.entries[i]
}

// stale reports whether the folder's listing may have changed. It changes nothing, and may be called from any
// goroutine.
func (f *folder) stale() bool {
	switch {
	case f.standard:
		return false
	case f.Stat() != f.Stamp:
		return true
	case !f.Racy:
		return false
	}

	names, err := subdirectories(f.dir())
	return err != nil || !slices.Equal(names, f.names)
}

// list reads the listing again. The returned folder still has the entries of f; touched are the added and
// removed names, which must be checked one by one.
func (f *folder) list() (n *folder, touched []string) {
	c := *f
	n = &c
	n.Due, n.Racy = time.Time{}, false
	st, now := n.Stat(), time.Now()
	n.Observe(st, now)
	n.Stamp = st
	switch st.Kind {
	case follow.Absent:
		n.names, n.fault = nil, ""
	case follow.Dir:
		names, err := subdirectories(n.dir())
		if err != nil {
			// Its entries may still be readable, so keep the last listing. The cause may lie outside the
			// folder (too many open files); then the stamp would not show that it is over.
			n.fault, n.Due = err.Error(), now.Add(relistAfter)
			break
		}
		n.names, n.fault = names, ""
		// The stamp is older than the listing: the next comparison detects changes in between.
		n.Take(now)
	default:
		n.names, n.fault = nil, "it is not a directory that can be read"
	}
	touched = difference(f.names, n.names)
	if st.Ino == 0 || st.Dev != f.Stamp.Dev || st.Ino != f.Stamp.Ino {
		// Another folder has replaced it, so even files with the same names are others.
		touched = append(touched, n.names...)
	}
	return n, touched
}

// with returns the folder with these entries in place of those with the same names. Vanished entries are left
// out.
func (f *folder) with(changed map[string]*entry) *folder {
	n := *f
	n.entries = make([]*entry, 0, len(f.entries)+len(changed))
	for _, e := range f.entries {
		if c, ok := changed[e.name]; ok {
			e = c
			delete(changed, e.name)
		}
		if f.keeps(e) {
			n.entries = append(n.entries, e)
		}
	}
	if len(changed) > 0 {
		for _, e := range changed {
			if f.keeps(e) {
				n.entries = append(n.entries, e)
			}
		}
		slices.SortFunc(n.entries, func(a, b *entry) int { return strings.Compare(a.name, b.name) })
	}
	return &n
}

// keeps reports whether an entry belongs in the folder.
func (f *folder) keeps(e *entry) bool {
	if e.Phase != follow.Gone {
		return true
	}
	_, listed := slices.BinarySearch(f.names, e.name)
	return listed
}

// subdirectories lists possible job directories, sorted: directories, and links, which may lead to
// directories.
func subdirectories(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(list))
	for _, d := range list {
		// Windows calls some links to directories irregular.
		if d.IsDir() || d.Type()&(fs.ModeSymlink|fs.ModeIrregular) != 0 {
			names = append(names, d.Name())
		}
	}
	return names, nil
}

// difference returns the names that are in only one of two lists.
func difference(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	var once []string
	for i, name := range all {
		if (i == 0 || all[i-1] != name) && (i+1 == len(all) || all[i+1] != name) {
			once = append(once, name)
		}
	}
	return once
}

// An entry is one directory of a job folder, with its job.yml, as of the last check. It is immutable: look
// returns a new one.
type entry struct {
	*follow.File[job.Job] // Bad is a job.Diagnostics
	name                  string
	dir                   string // absolute
	link                  string // the directory that job.yml links to; "" if it is not a link
}

func newEntry(folder, name string) *entry {
	dir := filepath.Join(folder, name)
	file := follow.Track{Path: follow.Path(filepath.Join(dir, job.FileName))}
	return &entry{File: &follow.File[job.Job]{Track: file}, name: name, dir: dir}
}

// faults returns the errors in job.yml.
func (e *entry) faults() job.Diagnostics {
	ds, _ := e.Bad.(job.Diagnostics)
	return ds
}

// look compares the entry with the disk and returns its current state: e itself if nothing changed.
func (e *entry) look(grace time.Duration) *entry {
	file := e.Look(&follow.Format[job.Job]{
		Limit: job.MaxBytes,
		Grace: grace,
		Parse: func(data []byte) (*job.Job, error) {
			j, faults := job.Parse(e.dir, job.FileName, data)
			return j, e.faultError(faults)
		},
		Unreadable: func(follow.Stamp, error) error {
			_, faults := job.Load(e.dir)
			return e.faultError(faults)
		},
	})
	if file == e.File {
		return e
	}

	n := *e
	n.File = file
	switch file.Phase {
	case follow.Gone:
		n.link = ""
	case follow.Present, follow.Moving, follow.Torn:
		n.link = linkedDir(string(file.Path))
	}
	return &n
}

// faultError returns the message about errors in job.yml, as an error.
func (e *entry) faultError(faults job.Diagnostics) error { return job.Unquoted(e.dir, faults).Err() }

// linkedDir returns the directory of a linked job.yml's target, or "". Only that directory reports writes to
// the file.
func linkedDir(file string) string {
	if fi, err := os.Lstat(file); err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		return ""
	}

	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return ""
	}
	return filepath.Dir(real)
}
