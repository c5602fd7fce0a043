package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

// scanEvery is how often the files are scanned while no event says that one has changed: the catalog
// watches the folders of jobs, not the config, folders below and folders that were named.
const scanEvery = time.Second

// watch validates until ctx ends, again after each burst of events of the catalog's watcher and at
// intervals. It compares contents, so that it detects every way of saving, on every file system.
func (v *validator) watch(ctx context.Context) error {
	if len(v.dirs) > 0 {
		return v.follow(ctx, nil)
	}
	jobs, err := catalog.Open(ctx, catalog.Options{Root: v.root}) // what is wrong with a job is printed
	if err != nil {
		return fmt.Errorf("watching the jobs of %s: %w", v.root, err)
	}
	defer func() { _ = jobs.Close(context.WithoutCancel(ctx)) }()
	return v.follow(ctx, jobs.Events(ctx))
}

func (v *validator) follow(ctx context.Context, events <-chan struct{}) error {
	if err := v.once(); err != nil {
		if _, ok := errors.AsType[*reportedError](err); !ok {
			return err
		}
	}
	reported, err := v.scanMap()
	if err != nil {
		return err
	}
	fmt.Fprintln(v.app.err, "deepwork: watching; interrupt to end")
	for pause := scanEvery; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-events:
		case <-time.After(pause):
		}
		began := time.Now()
		now, err := v.scanMap()
		if err != nil {
			// The folder itself is missing for now, as when switching branches: its files are
			// reported as removed, and again once it is back.
			now = map[string]*check{}
		}
		v.reportChanges(ctx, reported, now)
		// With very many jobs a scan takes long; use at most a tenth of a core.
		pause = max(scanEvery, 10*time.Since(began))
	}
}

func (v *validator) scanMap() (map[string]*check, error) {
	checks, err := v.scan()
	if err != nil && !errors.Is(err, errNoJobs) {
		return nil, err
	}
	byFile := make(map[string]*check, len(checks))
	for _, c := range checks {
		byFile[c.file] = c
	}
	return byFile, nil
}

// reportChanges prints every file that differs from the last report, and updates reported.
func (v *validator) reportChanges(ctx context.Context, reported, now map[string]*check) {
	var changed []string
	for file, c := range now {
		if !c.same(reported[file]) {
			changed = append(changed, file)
		}
	}
	for file := range reported {
		if now[file] == nil {
			changed = append(changed, file)
		}
	}
	if len(changed) == 0 {
		return
	}
	slices.Sort(changed)
	for _, file := range changed {
		old, c := reported[file], now[file]
		switch {
		case c == nil:
			fmt.Fprintf(v.app.out, "%s: removed\n", inline(file))
			delete(reported, file)
		case len(c.diagnostics) == 0:
			fmt.Fprintf(v.app.out, "%s: ok\n", inline(file))
			reported[file] = c
		default:
			v.print(c)
			reported[file] = c
		}
		if err := v.reportStranded(ctx, file, old, c); err != nil {
			fmt.Fprintf(v.app.err, "deepwork: looking for sessions that the edit strands: %s\n", inline(err.Error()))
		}
		// Sessions follow the last valid definition: remember it.
		if c != nil && c.job == nil && old != nil {
			c.lastGood = old.good()
		}
	}
	fmt.Fprintf(v.app.err, "deepwork: %s\n", summarize(maps.Values(now)))
}

// same reports whether two scans of a file read the same content and found the same.
func (c *check) same(other *check) bool {
	return c != nil && other != nil &&
		bytes.Equal(c.source, other.source) &&
		slices.Equal(c.diagnostics, other.diagnostics)
}

// good returns the newest definition without faults, or nil.
func (c *check) good() *job.Job {
	if c == nil {
		return nil
	}
	return cmp.Or(c.job, c.lastGood)
}

// reportStranded prints the active sessions that cannot follow an edit: their workflow or their
// current step is gone (DESIGN "Hot reload").
func (v *validator) reportStranded(ctx context.Context, file string, old, now *check) error {
	before := old.good()
	if before == nil || !v.isProjectJob(old.dir) {
		return nil
	}
	var after *job.Job
	if now != nil {
		if after = now.job; after == nil {
			return nil // it has faults: sessions keep using the last valid definition
		}
	}
	return v.app.withEngine(ctx, true, func(engine *workflow.Engine) error {
		sessions, err := engine.List(ctx)
		if err != nil {
			return err
		}
		for _, s := range sessions {
			if s.Status != string(machine.Active) || s.Job != before.Name {
				continue
			}
			if why := stranded(s, after); why != "" {
				fmt.Fprintf(v.app.out, "%s: strands session %s (%s/%s at step %s): %s; it finishes on the definition it has\n",
					inline(file), s.ID, inline(s.Job), inline(s.Workflow), inline(s.Step), inline(why))
			}
		}
		return nil
	})
}

// stranded returns why a session cannot follow a definition, or "".
func stranded(s workflow.SessionInfo, j *job.Job) string {
	switch {
	case j == nil:
		return "the job is gone"
	case j.Name != s.Job:
		return fmt.Sprintf("the job is now named %q", j.Name)
	case j.Workflow(s.Workflow) == nil:
		return fmt.Sprintf("workflow %q is gone", s.Workflow)
	case j.Step(s.Step) == nil:
		return fmt.Sprintf("step %q is gone", s.Step)
	case j.Workflow(s.Workflow).Find(s.Step) < 0:
		return fmt.Sprintf("step %q is no longer in the workflow", s.Step)
	}
	return ""
}

// isProjectJob reports whether the project serves a job's folder.
func (v *validator) isProjectJob(dir string) bool {
	additional, _ := config.JobsFolders()
	folders := append([]string{filepath.Join(v.root, ".deepwork", "jobs")}, additional...)
	parent := resolved(filepath.Dir(dir))
	return slices.ContainsFunc(folders, func(f string) bool { return resolved(f) == parent })
}

// resolved resolves symlinks if possible.
func resolved(path string) string {
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	return filepath.Clean(path)
}
