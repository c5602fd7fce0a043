package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/actor/durable"
	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/catalog/standard"
	"deepwork/cmd/deepwork/validate"
)

func (a *app) jobsConvertCommand() *cobra.Command {
	var write bool
	cmd := a.onProject("", &cobra.Command{
		Use:   "convert [JOB...]",
		Short: "Convert jobs that were written for DeepWork 0.1 to 0.9",
		Example: `  deepwork jobs convert
  deepwork jobs convert old_report --write`,
		Long: `Print what becomes of jobs that were written for DeepWork 0.1 to 0.7, with notes of what
changes, and, once you confirm it at the terminal or with --write, replace their job.yml.
The old file stays beside it, as job.yml.before. Lists of criteria and prompts of hooks
become reviews, lists of outputs a mapping, doc_spec a part of the description, and the
changelog CHANGELOG.md; missing workflows and dependencies are added, also in jobs of 0.8
and 0.9, which are read as they are. What the format has no place for is kept in comments.
Without JOB it converts all jobs of the project that need it. Jobs of 0.10 and later are
read as they are. The exit code is 1 if a job cannot be converted, or would not load
afterwards, and is left out, or if a converted one still has errors.`,
		Args: argumentCount(0, -1, ""),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, err := a.projectRoot()
			if err != nil {
				return err
			}
			return a.convertJobs(root, args, write)
		},
	})
	cmd.Flags().BoolVar(&write, "write", false, "write the files without asking")
	return cmd
}

// convertJobs converts the jobs of a project by the names of their folders, or all that need it.
func (a *app) convertJobs(root string, names []string, write bool) error {
	jobs := filepath.Join(root, filepath.FromSlash(catalog.JobsFolder))
	all := len(names) == 0
	if all {
		entries, err := os.ReadDir(jobs)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("looking for jobs: %w", err)
		}
		for _, e := range entries {
			if fileExists(filepath.Join(jobs, e.Name(), job.FileName)) {
				names = append(names, e.Name())
			}
		}
	}

	found := map[string]*job.Conversion{} // by folder
	var dirs []string
	var leftOut error
	for _, name := range names {
		dir := filepath.Join(jobs, name)
		c, err := convertJob(root, dir)
		switch {
		case err == nil:
			found[dir] = c
			dirs = append(dirs, dir)
		case all && errors.Is(err, job.ErrCurrent):
		case all:
			leftOut = &exitError{exitFailure}
			fmt.Fprintf(a.err, "deepwork: %s is left out: %s\n", inline(name), inline(err.Error()))
		case errors.Is(err, job.ErrCurrent):
			says := "needs no conversion: it is read as it is"
			if j, _ := job.Load(dir); j == nil && fileExists(filepath.Join(dir, job.FileName)) {
				says = a.here("has nothing to convert, but it does not load; 'deepwork validate' says why")
			}
			fmt.Fprintf(a.out, "%s %s.\n", inline(name), says)
		default:
			return fmt.Errorf("converting %s: %w", name, err)
		}
	}
	if len(dirs) == 0 {
		switch {
		case leftOut != nil:
			fmt.Fprintln(a.out, "No other job needs a conversion.")
		case all:
			fmt.Fprintln(a.out, "No job needs a conversion.")
		}
		return leftOut
	}
	for _, dir := range dirs {
		a.showConversion(root, dir, found[dir])
	}

	if !write {
		err := confirm(fmt.Sprintf("\nWrite %s? Type yes: ", count(len(dirs), "converted job")), "nothing was written",
			", or add --write; nothing was written")
		if err != nil {
			return err
		}
	}
	return cmp.Or(a.writeConversions(root, dirs, found), leftOut)
}

// convertJob converts the job.yml of a folder. It refuses the copy of a bundled job, which would hide the bundled one.
func convertJob(root, dir string) (*job.Conversion, error) {
	file := filepath.Join(dir, job.FileName)
	_, bundled := fs.Stat(standard.FS(), filepath.Base(dir))
	switch {
	case filepath.Dir(dir) != filepath.Join(root, filepath.FromSlash(catalog.JobsFolder)):
		return nil, errors.New("give the name of its folder in " + catalog.JobsFolder)
	case bundled == nil && !fileExists(file):
		return nil, fmt.Errorf("it comes with the program: %w", job.ErrCurrent)
	}
	if err := durable.Inside(root, file); err != nil {
		return nil, err
	}

	if info, err := os.Lstat(file); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is %s, not a file: convert the job in the folder where the file is", file,
			durable.Kind(info.Mode()))
	}

	source, _, err := durable.Read(file, job.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no %s", file)
	}
	if err != nil {
		return nil, err
	}

	c, err := job.Convert(dir, source)
	if err == nil && bundled == nil {
		return nil, fmt.Errorf("it is an old copy of a job that comes with the program: delete %s to use that one", dir)
	}

	if err != nil {
		return nil, err
	}
	if j, faults := job.Parse(dir, job.FileName, c.Source); j == nil {
		var why []string
		for _, f := range faults {
			why = append(why, strings.TrimPrefix(f.Path+": ", ": ")+f.Message)
		}
		return nil, fmt.Errorf("the new file would not load, so nothing is written; correct these in the old one, "+
			"and convert it again: %s", strings.Join(why, "; "))
	}

	return c, nil
}

func (a *app) showConversion(root, dir string, c *job.Conversion) {
	a.out.Heading("", filepath.Base(dir), fmt.Sprintf("(written for %s)", c.Was))
	for _, note := range c.Notes {
		a.out.Text("  ", "- "+plain(note))
	}
	fmt.Fprintf(a.out, "\n%s will be:\n\n%s\n", inline(a.display(root, filepath.Join(dir, job.FileName))),
		plain(string(c.Source)))
	if c.Changelog != "" {
		fmt.Fprintf(a.out, "%s will have:\n\n%s\n", inline(a.display(root, filepath.Join(dir, "CHANGELOG.md"))),
			plain(c.Changelog))
	}
}

// writeConversions writes conversions, and prints what is still wrong with the jobs.
func (a *app) writeConversions(root string, dirs []string, found map[string]*job.Conversion) error {
	for _, dir := range dirs {
		before, err := found[dir].Write(dir)
		if err != nil {
			return fmt.Errorf("writing the converted job %s: %w", filepath.Base(dir), err)
		}
		fmt.Fprintf(a.out, "Wrote %s; it was %s.\n", inline(a.display(root, filepath.Join(dir, job.FileName))),
			inline(a.display(root, before)))
	}

	checks, err := validate.Folders("", dirs)
	if err != nil {
		return err
	}
	for _, c := range checks {
		a.printCheck(c)
	}
	if _, faults := validate.Summary(checks); faults > 0 {
		fmt.Fprintf(a.err, "deepwork: %s left, for you to correct\n", count(faults, "error"))
		return &exitError{exitFailure}
	}

	return nil
}
