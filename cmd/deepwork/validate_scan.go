package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/durable"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
)

// A check is the result of validating one file.
type check struct {
	file        string // as printed
	dir         string // the job's folder, absolute; "" for the config
	isJob       bool
	isFolder    bool     // without a job.yml
	job         *job.Job // nil if it has faults
	lastGood    *job.Job // if job is nil and it is watched, the last valid one
	source      []byte   // of the file, if it could be read
	diagnostics job.Diagnostics
	config      *config.Config // of the config's file, nil if it has faults
}

// scan validates every target.
func (v *validator) scan() ([]*check, error) {
	if len(v.dirs) == 0 {
		return v.scanProject()
	}
	var checks []*check
	for _, dir := range v.dirs {
		found, err := scanTarget(dir)
		if err != nil {
			return nil, err
		}
		checks = append(checks, found...)
	}
	return checks, nil
}

// scanProject validates the project's config and its own jobs.
func (v *validator) scanProject() ([]*check, error) {
	var checks []*check
	cfg := &config.Config{}
	if c := checkConfig(v.root, v.app.display(v.root, filepath.Join(v.root, ".deepwork", "config.yml"))); c != nil {
		checks, cfg = append(checks, c), c.config
	}
	folder := filepath.Join(v.root, ".deepwork", "jobs")
	jobs, err := scanFolder(v.app.display(v.root, folder))
	if err != nil && !(errors.Is(err, fs.ErrNotExist) && len(checks) > 0) {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s does not exist; run 'deepwork init', or name a folder", errNoJobs, folder)
		}
		return nil, err
	}
	if cfg != nil {
		missingAgents(v.root, cfg, jobs)
	}
	return append(checks, jobs...), nil
}

// checkConfig validates the config.yml of a project. It returns nil if there is none.
func checkConfig(root, file string) *check {
	source, err := readProjectFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c := &check{file: file, source: source}
	if err != nil {
		c.diagnostics = job.Diagnostics{{File: file, Message: "cannot be read: " + reason(err)}}
		return c
	}
	if c.config, c.diagnostics = config.Parse(file, source); c.config != nil {
		c.diagnostics = missingPrograms(root, file, source, c.config)
	}
	return c
}

// readProjectFile reads the file .deepwork/NAME of a project. It refuses a link that leads out of the
// project, since messages quote what is wrong in the file.
func readProjectFile(file string) ([]byte, error) {
	if err := durable.Inside(filepath.Dir(filepath.Dir(file)), file); err != nil {
		return nil, err
	}
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // reading a FIFO would block
		return nil, errors.New("it is not a regular file")
	case info.Size() > config.MaxBytes:
		return nil, fmt.Errorf("it has %d bytes, more than the %d that are read", info.Size(), config.MaxBytes)
	}
	return os.ReadFile(file)
}

// scanTarget validates a job's folder, its job.yml, or a folder of jobs.
func scanTarget(target string) ([]*check, error) {
	info, err := os.Stat(target)
	if err != nil {
		return nil, fmt.Errorf("validating %s: %s; name a job's folder or a folder of jobs", target, reason(err))
	}
	if !info.IsDir() {
		if filepath.Base(target) != job.FileName {
			return nil, fmt.Errorf("validating %s: it is not a directory; name a job's folder or a folder of jobs", target)
		}
		target = filepath.Dir(target)
	}
	if hasJobFile(target) {
		return []*check{checkJob(target)}, nil
	}
	if c := checkMisnamed(target); c != nil {
		return []*check{c}, nil
	}
	checks, err := scanFolder(target)
	if err == nil && !slices.ContainsFunc(checks, func(c *check) bool { return c.isJob }) {
		err = fmt.Errorf("%w: neither %s nor a folder in it has a %s", errNoJobs, target, job.FileName)
	}
	return checks, err
}

// scanFolder validates every job of a folder, in the order of their names.
func scanFolder(folder string) ([]*check, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("validating %s: %w", folder, err)
	}
	var checks []*check
	for _, e := range entries {
		dir := filepath.Join(folder, e.Name())
		// Stat, not the entry's type: a job's folder may be a symlink.
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			continue
		}
		if hasJobFile(dir) {
			checks = append(checks, checkJob(dir))
		} else if c := checkMisnamed(dir); c != nil {
			checks = append(checks, c)
		} else if !strings.HasPrefix(e.Name(), ".") {
			checks = append(checks, &check{file: dir, isFolder: true, diagnostics: job.Diagnostics{{File: dir, Warning: true,
				Message: "it has no " + job.FileName + ", so there is no job; add one, or move the folder elsewhere"}}})
		}
	}
	findDuplicates(checks)
	return checks, nil
}

// checkMisnamed returns the fault of a folder whose job.yml has a name that nothing reads, or nil.
func checkMisnamed(dir string) *check {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if name := e.Name(); strings.EqualFold(name, "job.yaml") || strings.EqualFold(name, job.FileName) {
			file := filepath.Join(dir, name)
			return &check{file: file, isJob: true, diagnostics: job.Diagnostics{{File: file, Line: 1, Column: 1,
				Message: "a job's file is named " + job.FileName + ", and this one is not read; rename it"}}}
		}
	}
	return nil
}

func hasJobFile(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, job.FileName))
	return err == nil
}

// checkJob validates one job with the files it names.
func checkJob(dir string) *check {
	c := &check{file: filepath.Join(dir, job.FileName), isJob: true}
	abs, err := filepath.Abs(dir)
	if err != nil {
		c.diagnostics = job.Diagnostics{{File: c.file, Message: reason(err)}}
		return c
	}
	c.dir = abs
	j, ds := job.Load(abs)
	ds = job.Unquoted(abs, ds)
	if j == nil {
		c.diagnostics = ds
	} else {
		c.job, c.source = j, j.Source
		c.diagnostics = slices.Concat(ds, j.Warnings, job.CheckFiles(j))
		slices.SortStableFunc(c.diagnostics, func(a, b job.Diagnostic) int {
			if a.Line != b.Line {
				return a.Line - b.Line
			}
			return a.Column - b.Column
		})
		c.diagnostics = slices.Compact(c.diagnostics)
	}
	for i := range c.diagnostics {
		d := &c.diagnostics[i]
		d.File = c.file
		if d.Line == 0 {
			d.Line, d.Column = 1, 1 // about the whole file: editors want a place
		}
	}
	return c
}

// findDuplicates adds a fault to every job whose name an earlier job has.
func findDuplicates(checks []*check) {
	first := make(map[string]*check, len(checks))
	for _, c := range checks {
		if c.job == nil {
			continue
		}
		other, ok := first[c.job.Name]
		if !ok {
			first[c.job.Name] = c
			continue
		}
		c.diagnostics = append(c.diagnostics, c.job.NameFault(c.file,
			fmt.Sprintf("%q is also the name of %s; rename one of them", c.job.Name, other.file)))
	}
}

// reason returns an error's text without the operation and path that a message already names.
func reason(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}
