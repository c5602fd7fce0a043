package catalog

import (
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"deepwork/catalog/internal/follow"
	"deepwork/catalog/job"
)

// An entry is one directory of a job folder, and its job.yml, as of the last check. It is
// immutable: look returns a new one.
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

// isJob reports whether the entry claims its directory's name among the folders.
func (e *entry) isJob() bool { return e.Good != nil || e.Bad != nil }

// faults returns the faults of job.yml.
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
			return j, e.told(faults)
		},
		Unreadable: func(follow.Stamp, error) error {
			_, faults := job.Load(e.dir)
			return e.told(faults)
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

// told returns what is said of faults in job.yml, as an error.
func (e *entry) told(faults job.Diagnostics) error { return job.Unquoted(e.dir, faults).Err() }

// linkedDir returns the directory of a linked job.yml's target, or "": only that directory reports
// writes to the file.
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
