// Package validate checks jobs and a project's config, file by file.
package validate

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/durable"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/standard"
	"deepwork/session/show"
)

// A Check is the result of validating one file.
type Check struct {
	File        string // as printed
	Diagnostics job.Diagnostics

	kind   kind
	source []byte         // of the file, if it could be read
	job    *job.Job       // nil if it has errors
	config *config.Config // of the config's file, nil if it has errors
}

// A kind is what a Check is about.
type kind int

const (
	aJob    kind = iota
	aConfig      // config.yml
	aFolder      // without a job.yml
)

// Same reports whether two checks of a file read the same content and had the same findings.
func (c *Check) Same(other *Check) bool {
	return other != nil && bytes.Equal(c.source, other.source) && slices.Equal(c.Diagnostics, other.Diagnostics)
}

// ErrNoJobs is the error of a project or folder without jobs.
var ErrNoJobs = errors.New("no jobs found")

// Folders validates jobs: each is a job's folder, its job.yml, or a folder of jobs. root is the project in which they
// are to run; "" means that this is unknown.
func Folders(root string, dirs []string) ([]*Check, error) {
	var checks []*Check
	for _, dir := range dirs {
		found, err := scanTarget(dir)
		if err != nil {
			return nil, err
		}
		checks = append(checks, found...)
	}
	if root == "" {
		return checks, nil
	}
	cfg := &config.Config{}
	if c := checkConfig(root, filepath.Join(root, ".deepwork", config.FileName)); c != nil {
		cfg = c.config
	}
	missingAgents(root, cfg, checks)
	return checks, nil
}

// Project validates the config and the own jobs of the project at root. display formats the names of files.
func Project(root string, display func(path string) string) ([]*Check, error) {
	var checks []*Check
	cfg := &config.Config{}
	if c := checkConfig(root, display(filepath.Join(root, ".deepwork", "config.yml"))); c != nil {
		checks, cfg = append(checks, c), c.config
	} else if c := checkMisnamed(display(filepath.Join(root, ".deepwork")), "a project's config",
		config.FileName); c != nil {
		c.kind = aFolder // it is not a job
		checks = append(checks, c)
	}
	folder := filepath.Join(root, ".deepwork", "jobs")
	jobs, err := scanFolder(display(folder))
	if err != nil && !(errors.Is(err, fs.ErrNotExist) && len(checks) > 0) {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s does not exist; run 'deepwork init', or name a folder", ErrNoJobs, folder)
		}
		return nil, err
	}
	missingAgents(root, cfg, jobs)
	if c := checkOwn(root); c != nil {
		checks = append(checks, c)
	}
	return slices.Concat(checks, jobs, shadowed(jobs, display)), nil
}

// shadowed adds a warning to each job that replaces a bundled one, and returns a warning for each job of an additional
// folder that is unused because a job of the same folder name comes first.
func shadowed(jobs []*Check, display func(path string) string) (warnings []*Check) {
	first := map[string]string{} // the job that is used, by its folder's name
	bundled, _ := fs.ReadDir(standard.FS(), ".")
	for _, b := range bundled {
		first[b.Name()] = "the one that comes with the program"
	}

	for _, c := range jobs {
		name := filepath.Base(filepath.Dir(c.File))
		if c.kind != aJob {
			continue
		}
		if first[name] != "" {
			message := "takes the place of the job of this name that comes with the program; delete the folder " +
				"to use that one"
			if c.job == nil {
				message = "this copy of a job that comes with the program does not load, so that one is used; delete " +
					"the folder"
			}
			c.Diagnostics = append(c.Diagnostics,
				job.Diagnostic{File: c.File, Line: 1, Column: 1, Message: message, Warning: true})
			if c.job == nil {
				continue
			}
		}
		first[name] = c.File
	}

	folders := config.JobsFolders()
	for _, fault := range catalog.FolderFaults(folders) {
		warnings = append(warnings, &Check{
			File:        config.JobsFoldersEnv,
			kind:        aFolder,
			Diagnostics: job.Diagnostics{{File: config.JobsFoldersEnv, Warning: true, Message: fault}},
		})
	}
	for _, folder := range folders {
		files, _ := filepath.Glob(filepath.Join(folder, "*", job.FileName))
		for _, file := range files {
			name := filepath.Base(filepath.Dir(file))
			if other := first[name]; other != "" && other != display(file) {
				file = display(file)
				warnings = append(warnings, &Check{File: file, kind: aFolder, Diagnostics: job.Diagnostics{{
					File:    file,
					Line:    1,
					Column:  1,
					Warning: true,
					Message: "it is not used, since " + other +
						" has the same folder name and comes first; delete one of the two",
				}}})
				continue
			}
			first[name] = display(file)
		}
	}
	return warnings
}

// Summary counts what was checked and found, in words, and returns the number of errors.
func Summary(checks []*Check) (text string, faults int) {
	jobs, configs, warnings := 0, "", 0
	for _, c := range checks {
		switch c.kind {
		case aJob:
			jobs++
		case aConfig:
			configs = " and config.yml"
		}

		for _, d := range c.Diagnostics {
			if d.Warning {
				warnings++
			} else {
				faults++
			}
		}
	}
	return fmt.Sprintf("%s%s checked: %s, %s", show.Count(jobs, "job"), configs, show.Count(faults, "error"),
		show.Count(warnings, "warning")), faults
}

// ReadFile reads the file .deepwork/NAME of a project. It refuses a link that leads out of the
// project, since messages quote what is wrong in the file.
func ReadFile(file string) ([]byte, error) {
	root := filepath.Dir(filepath.Dir(file))
	if err := durable.Inside(root, file); err != nil {
		return nil, err
	}
	return durable.ReadIn(root, filepath.Join(".deepwork", filepath.Base(file)), config.MaxBytes)
}

// scanTarget validates a job's folder, its job.yml, or a folder of jobs.
func scanTarget(target string) ([]*Check, error) {
	info, err := os.Stat(target)
	if err != nil {
		return nil, fmt.Errorf("validating %s: %s; name a job's folder or a folder of jobs", target, Reason(err))
	}
	if !info.IsDir() {
		if filepath.Base(target) != job.FileName {
			return nil,
				fmt.Errorf("validating %s: it is not a directory; name a job's folder or a folder of jobs", target)
		}
		target = filepath.Dir(target)
	}
	if hasJobFile(target) {
		return []*Check{checkJob(target)}, nil
	}
	if c := checkMisnamed(target, "a job's file", job.FileName); c != nil {
		return []*Check{c}, nil
	}

	checks, err := scanFolder(target)
	if err == nil && !slices.ContainsFunc(checks, func(c *Check) bool { return c.kind == aJob }) {
		err = fmt.Errorf("%w: neither %s nor a folder in it has a %s", ErrNoJobs, target, job.FileName)
	}
	return checks, err
}

// scanFolder validates every job of a folder, in the order of their names.
func scanFolder(folder string) ([]*Check, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("validating %s: %w", folder, err)
	}

	var checks []*Check
	for _, e := range entries {
		dir := filepath.Join(folder, e.Name())
		// Stat, not the entry's type: a job's folder may be a symlink.
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			continue
		}
		if hasJobFile(dir) {
			checks = append(checks, checkJob(dir))
		} else if c := checkMisnamed(dir, "a job's file", job.FileName); c != nil {
			checks = append(checks, c)
		} else if !strings.HasPrefix(e.Name(), ".") {
			checks = append(checks, &Check{File: dir, kind: aFolder, Diagnostics: job.Diagnostics{{
				File:    dir,
				Warning: true,
				Message: "it has no " + job.FileName + ", so there is no job; add one, or move the folder elsewhere",
			}}})
		}
	}
	findDuplicates(checks)
	return checks, nil
}

// checkMisnamed returns the error of a folder whose file has a name that nothing reads, or nil.
func checkMisnamed(dir, what, want string) *Check {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		name := e.Name()
		if strings.EqualFold(name, strings.Replace(want, ".yml", ".yaml", 1)) || strings.EqualFold(name, want) {
			file := filepath.Join(dir, name)
			return &Check{File: file, Diagnostics: job.Diagnostics{{File: file, Line: 1, Column: 1,
				Message: what + " is named " + want + ", and this one is not read; rename it"}}}
		}
	}

	return nil
}

func hasJobFile(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, job.FileName))
	return err == nil
}

// checkJob validates one job with the files it names.
func checkJob(dir string) *Check {
	c := &Check{File: filepath.Join(dir, job.FileName)}
	abs, err := filepath.Abs(dir)
	if err != nil {
		c.Diagnostics = job.Diagnostics{{File: c.File, Message: Reason(err)}}
		return c
	}
	j, ds := job.Load(abs)
	ds = job.Unquoted(abs, ds)
	if j == nil {
		c.Diagnostics = ds
	} else {
		c.job, c.source = j, j.Source
		c.Diagnostics = slices.Concat(ds, job.CheckFiles(j), j.Warnings)
		slices.SortStableFunc(c.Diagnostics, func(a, b job.Diagnostic) int {
			if a.Line != b.Line {
				return a.Line - b.Line
			}
			return a.Column - b.Column
		})

		// an error makes a warning about the same superfluous
		c.Diagnostics = slices.CompactFunc(c.Diagnostics, func(b, a job.Diagnostic) bool {
			return a == b || !a.Warning && b.Warning && a.Path == b.Path && a.Line == b.Line && a.Column == b.Column
		})
	}
	for i := range c.Diagnostics {
		d := &c.Diagnostics[i]
		d.File = c.File
		if d.Line == 0 {
			d.Line, d.Column = 1, 1 // about the whole file: editors want a place
		}
	}

	return c
}

// findDuplicates adds an error to every job whose name an earlier job has.
func findDuplicates(checks []*Check) {
	first := make(map[string]*Check, len(checks))
	for _, c := range checks {
		if c.job == nil {
			continue
		}

		other, ok := first[c.job.Name]
		if !ok {
			first[c.job.Name] = c
			continue
		}
		c.Diagnostics = append(c.Diagnostics, c.job.NameFault(c.File,
			fmt.Sprintf("%q is also the name of %s; rename one of them", c.job.Name, other.File)))
	}
}

// Reason returns an error's text without the operation and the path, for messages that name these.
func Reason(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	if p, ok := errors.AsType[*durable.BadFileError](err); ok {
		return "it " + p.Reason
	}
	return err.Error()
}
