package catalog

import (
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
	return &entry{file, e.name, e.dir}
}

// told returns what is said of faults in job.yml, as an error.
func (e *entry) told(faults job.Diagnostics) error { return job.Unquoted(e.dir, faults).Err() }
