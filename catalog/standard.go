package catalog

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"deepwork/catalog/internal/follow"
	"deepwork/catalog/job"
)

// standardJobs are the jobs that come with the binary. They are in memory, and are written to disk before one
// is needed. A nil *standardJobs has none.
type standardJobs struct {
	dir       string // the folder to which they are written
	makeState func() error
	files     []standardFile

	mu     sync.Mutex
	stamps map[follow.Path]follow.Stamp // stamps of the files when written
}

// A standardFile is one file of a standard job.
type standardFile struct {
	name string // slash-separated, beginning with the job's directory
	data []byte
}

// readStandard reads all files of the jobs in fsys: each top-level directory with a job.yml.
func readStandard(dir string, fsys fs.FS) (*standardJobs, error) {
	s := &standardJobs{dir: dir}
	jobs, err := fs.Glob(fsys, path.Join("*", job.FileName))
	if err != nil {
		return nil, err
	}
	for _, file := range jobs {
		err := fs.WalkDir(fsys, path.Dir(file), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := fs.ReadFile(fsys, name)
			s.files = append(s.files, standardFile{name, data})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", path.Dir(file), err)
		}
	}

	return s, nil
}

// folder returns the jobs with their paths on disk, without reading it.
func (s *standardJobs) folder() *folder {
	f := newFolder(s.dir)
	f.standard = true
	for _, file := range s.files {
		name, rest, _ := strings.Cut(file.name, "/")
		if rest != job.FileName {
			continue
		}
		e := newEntry(s.dir, name)
		j, faults := job.Parse(e.dir, job.FileName, file.data)
		if j != nil {
			j.Bundled = true
		}
		e.Phase = follow.Present
		e.Good = j
		e.Bad = e.faultError(faults)
		f.names, f.entries = append(f.names, name), append(f.entries, e)
	}
	return f
}

// has reports whether a served job has the source of a standard one.
func (s *standardJobs) has(j *job.Job) bool {
	name := path.Join(filepath.Base(j.Dir), job.FileName)
	return s != nil && slices.ContainsFunc(s.files, func(f standardFile) bool {
		return f.name == name && bytes.Equal(f.data, j.Source)
	})
}

// onDisk writes the files of the standard jobs that are missing or differ. If none do, it costs a stat of
// each file.
func (s *standardJobs) onDisk() error {
	if s == nil || len(s.files) == 0 {
		return nil
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	for file, stamp := range s.stamps {
		if file.Stat() != stamp {
			s.stamps = nil
			break
		}
	}
	if s.stamps != nil {
		return nil
	}

	stamps, err := s.write()
	if err == nil {
		s.stamps = stamps
	}
	return err
}

// write writes what is missing on disk, and returns the stamps of the files. It replaces a file that differs
// atomically, so that two servers may do so at once; it leaves other files alone, unless they are in the way.
// It writes nothing outside the parent of the jobs' folder, wherever links in that lead.
func (s *standardJobs) write() (map[follow.Path]follow.Stamp, error) {
	if err := s.makeState(); err != nil {
		return nil, err
	}

	r, err := os.OpenRoot(filepath.Dir(s.dir))
	if err != nil {
		return nil, err
	}
	defer r.Close()

	stamps := make(map[follow.Path]follow.Stamp, len(s.files))
	for _, file := range s.files {
		name := path.Join(filepath.Base(s.dir), file.name)
		at := follow.Path(filepath.Join(s.dir, filepath.FromSlash(file.name)))
		// Taken before the content is compared, so that a later change shows.
		stamp := at.Stat()
		if !holds(r, name, file.data) {
			if err := replace(r, name, file.data); err != nil {
				return nil, fmt.Errorf("writing %s: %w", at, err)
			}
			stamp = at.Stat()
		}
		stamps[at] = stamp
	}

	return stamps, nil
}

// holds reports whether a regular file has this content.
func holds(r *os.Root, name string, data []byte) bool {
	fi, err := r.Lstat(name)
	if err != nil || !fi.Mode().IsRegular() || fi.Size() != int64(len(data)) {
		return false
	}
	got, err := r.ReadFile(name)
	return err == nil && bytes.Equal(got, data)
}

// replace writes a file atomically. It does not sync: a file torn by a crash differs, and is written again.
func replace(r *os.Root, name string, data []byte) error {
	dir, base := path.Split(name)
	if err := r.MkdirAll(path.Clean(dir), 0o755); err != nil {
		return err
	}
	temp := path.Join(dir, "."+base+"."+rand.Text()[:8]+".tmp")
	err := r.WriteFile(temp, data, 0o644)
	if err == nil {
		err = r.Rename(temp, name)
	}
	if err != nil {
		_ = r.Remove(temp) // the first error is the one to report
	}
	return err
}
