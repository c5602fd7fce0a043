package trust

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/catalog/job"
)

// checkValue is what is approved about a check, besides the content of the project's scripts that it names.
type checkValue struct {
	Command []string `json:"command"`
	In      string   `json:"in,omitempty"`
	Timeout string   `json:"timeout"`
	PassEnv []string `json:"pass_env,omitempty"`
}

// CheckOf returns the entry for a check of a step. root is the folder whose scripts count: the project's or,
// in an attempt, its workspace. The key is only for people: a check is approved under any key.
func CheckOf(root, jobName, stepID string, c *job.StepCheck) (Entry, error) {
	dir, err := CheckDir(root, c)
	if err != nil {
		return Entry{}, err
	}
	b := builder{root: root, dir: dir}
	in, _ := filepath.Rel(root, dir)
	if in = filepath.ToSlash(in); in == "." {
		in = ""
	}
	b.add(fmt.Sprintf("checks.%s.%s.%s", jobName, stepID, c.Name),
		checkValue{c.Run, in, c.Limit().String(), c.PassEnv}, c.Run)
	return b.set[0], b.err
}

// CheckDir returns the folder in which a check runs, with links resolved. It must be in root, which must have
// no links.
func CheckDir(root string, c *job.StepCheck) (string, error) {
	if c.In == "" || c.In == "project" {
		return root, nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(root, filepath.FromSlash(c.In)))
	if err != nil {
		return "", fmt.Errorf("its folder %s cannot be reached: %w", c.In, err)
	}
	if rel, err := filepath.Rel(root, dir); err != nil || !filepath.IsLocal(rel) {
		return "", fmt.Errorf("its folder %s leads out of the project", c.In)
	}
	return dir, nil
}

// ChecksOf returns the entries of all checks of jobs, without duplicates, in the order of the jobs. An
// unreadable one has the reason as its Fault.
func ChecksOf(root string, jobs []*job.Job) (all Set) {
	for _, j := range jobs {
		steps := slices.Clone(j.Steps)
		for i := range j.Workflows { // includes the programs that end rounds
			steps = append(steps, j.Of(j.Workflows[i].Name).Steps...)
		}
		for i := range steps {
			for k := range steps[i].Checks {
				c := &steps[i].Checks[k]
				e, err := CheckOf(root, j.Name, steps[i].ID, c)
				if err != nil {
					e = Entry{
						Key:   fmt.Sprintf("checks.%s.%s.%s", j.Name, steps[i].ID, c.Name),
						Fault: err.Error(),
						Runs:  true,
					}
					e.Value, _ = json.Marshal(c.Run)
				}

				if !slices.ContainsFunc(all, func(o Entry) bool { return o.sameCheck(e) && o.Fault == e.Fault }) {
					all = append(all, e)
				}
			}
		}
	}
	return all
}

// sameCheck reports whether two entries are for the same check: the same command, and the same content of its
// scripts.
func (e Entry) sameCheck(o Entry) bool {
	return bytes.Equal(e.Value, o.Value) && maps.Equal(e.Files, o.Files)
}

// ErrUnapproved means that the user has not approved the current version of a check.
var ErrUnapproved = errors.New("the user has not approved it")

// ErrDenied means that the user denied everything that would run in the project.
var ErrDenied = errors.New("the user denied what would run in the project")

// ApprovesCheck returns nil if the user has approved a check, by its current entry. trusted are the folders
// whose projects need no grant.
func (l *Ledger) ApprovesCheck(e Entry, trusted []string) error {
	r, err := l.Read()
	switch {
	case err != nil:
		return err
	case r.Denied:
		return ErrDenied
	case e.Fault != "":
		return fmt.Errorf("%w: %s", ErrUnapproved, e.Fault)
	case InFolders(l.root, trusted), r.ApprovedCheck(e):
		return nil
	}
	if files := r.ChangedFiles(e); files != nil {
		return fmt.Errorf("%w since %s changed", ErrUnapproved, strings.Join(files, ", "))
	}
	return ErrUnapproved
}

// ChangedFiles returns the files that are the only difference between a check and the newest approved one
// with the same command; nil if there is no such approved check.
func (r *Record) ChangedFiles(e Entry) []string {
	for _, o := range slices.Backward(r.Checks) {
		if bytes.Equal(o.Value, e.Value) {
			return differing(o.Files, e.Files)
		}
	}
	return nil
}

// ApprovedCheck reports whether the user has approved a check.
func (r *Record) ApprovedCheck(e Entry) bool {
	return !r.Denied && e.Fault == "" && slices.ContainsFunc(r.Checks, e.sameCheck)
}

// maxChecks limits the approved checks of a project; the oldest are forgotten first.
const maxChecks = 1000

// GrantChecks approves checks from now on, and cancels a Deny.
func (l *Ledger) GrantChecks(ctx context.Context, checks Set) error {
	return l.change(ctx, func(r *Record) {
		r.Denied = false
		for _, e := range checks {
			r.Checks = append(slices.DeleteFunc(slices.Clone(r.Checks), e.sameCheck), e)
		}
		r.Checks = r.Checks[max(0, len(r.Checks)-maxChecks):]
	})
}
