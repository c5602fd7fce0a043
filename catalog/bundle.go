package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"deepwork/catalog/internal/stamp"
	"deepwork/catalog/job"
)

// standardDir is where the standard jobs of a project are laid out.
func standardDir(root string) string {
	return filepath.Join(root, ".deepwork", "tmp", "standard_jobs")
}

// A bundle is the standard jobs, in memory. It is immutable.
type bundle struct {
	files []bundled
}

// A bundled is one file of a standard job.
type bundled struct {
	name string // slash-separated, beginning with the job's directory
	data []byte
}

// readBundle reads every file of the jobs in fsys: of each top-level directory
// that has a job.yml.
func readBundle(fsys fs.FS) (*bundle, error) {
	tops, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	b := &bundle{}
	for _, top := range tops {
		if !top.IsDir() {
			continue
		}
		if _, err := fs.Stat(fsys, path.Join(top.Name(), job.FileName)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err := fs.WalkDir(fsys, top.Name(), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := fs.ReadFile(fsys, name)
			if err != nil {
				return err
			}
			b.files = append(b.files, bundled{name, data})
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", top.Name(), err)
		}
	}
	return b, nil
}

// folder returns the jobs as they are when laid out in dir. It touches no disk.
func (b *bundle) folder(dir string) *folder {
	f := &folder{at: stamp.At(dir), standard: true}
	for _, file := range b.files {
		name, rest, _ := strings.Cut(file.name, "/")
		if rest != job.FileName {
			continue
		}
		e := newEntry(dir, name)
		e.phase = present
		e.good, e.faults = job.Parse(e.dir, job.FileName, file.data)
		if e.good != nil {
			e.faults = nil // warnings stay with the job
		}
		f.names = append(f.names, name)
		f.entries = append(f.entries, e)
	}
	return f
}

// has tells whether a served job is one of the bundle: its source is.
func (b *bundle) has(j *job.Job) bool {
	name := path.Join(filepath.Base(j.Dir), job.FileName)
	for _, file := range b.files {
		if file.name == name {
			return string(file.data) == string(j.Source)
		}
	}
	return false
}
