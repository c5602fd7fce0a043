package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/catalog/standard"
	"deepwork/session/show"
	"deepwork/session/state"
	"deepwork/session/workflow/machine"

	"github.com/spf13/cobra"
)

func (a *app) jobsShowCommand() *cobra.Command {
	return a.onProject("print JSON, as the tools' begin_step has it", &cobra.Command{
		Use:   "show JOB[/STEP]",
		Short: "Print what an agent will read",
		Long: `Print what an agent will read at each step of a job, or at one of them: the
instructions, the outputs it must deliver, the reviews they face and what every
step of the job is told. --json prints the begin_step that the tools return; the
session's own fields, session_id, branch_name, branch_status and the paths of
inputs, are absent.`,
		Args: takes(1, 1, "JOB or JOB/STEP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withCatalog(cmd.Context(), func(root string, jobs *catalog.Catalog) error {
				return a.showJob(cmd.Context(), root, jobs, args[0])
			})
		},
	})
}

func (a *app) showJob(ctx context.Context, root string, jobs *catalog.Catalog, name string) error {
	jobName, stepID, one := strings.Cut(name, "/")
	snapshot, err := jobs.Fresh(ctx)
	if err != nil {
		return fmt.Errorf("loading job %s: %w", jobName, err)
	}
	j, err := findJob(snapshot, jobName)
	if err != nil {
		return err
	}
	preview := func(step *job.Step) (*machine.StepInfo, error) { return machine.Preview(j, step) }
	if filepath.Dir(j.Dir) == state.Of(root).StandardJobs() {
		// A bundled job is read from a temporary folder: only servers write it to its own.
		scratch, err := os.MkdirTemp("", "deepwork-jobs-")
		if err != nil {
			return fmt.Errorf("unpacking the bundled job %s: %w", jobName, err)
		}
		defer os.RemoveAll(scratch)
		if err := os.CopyFS(scratch, standard.FS()); err != nil {
			return fmt.Errorf("unpacking the bundled job %s: %w", jobName, err)
		}
		unpacked := *j
		unpacked.Dir = filepath.Join(scratch, filepath.Base(j.Dir))
		preview = func(step *job.Step) (*machine.StepInfo, error) {
			info, err := machine.Preview(&unpacked, step)
			if err == nil {
				info.JobDir = j.Dir
			}
			return info, err
		}
	}
	if !one {
		return a.showSteps(j, preview)
	}
	step := j.Step(stepID)
	if step == nil {
		ids := make([]string, len(j.Steps))
		for i := range j.Steps {
			ids[i] = j.Steps[i].ID
		}
		return fmt.Errorf("job %s has no step %q; there are %s", j.Name, stepID, strings.Join(ids, ", "))
	}
	info, err := preview(step)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(info)
	}
	show.Step(a.out, j, step, info)
	return nil
}

// findJob returns a job; its error lists the available jobs, or this job's faults.
func findJob(snapshot *catalog.Snapshot, name string) (*job.Job, error) {
	if j := snapshot.Job(name); j != nil {
		return j, nil
	}
	if e := snapshot.Err(name); e != nil {
		return nil, fmt.Errorf("job %s cannot be loaded:\n%s", name, indent(e.Diagnostics.Error(), "  "))
	}
	if len(snapshot.Jobs) == 0 {
		return nil, fmt.Errorf("there is no job %q: no jobs were found; make an example with 'deepwork init'", name)
	}
	names := make([]string, len(snapshot.Jobs))
	for i, j := range snapshot.Jobs {
		names[i] = j.Name
	}
	return nil, fmt.Errorf("there is no job %q; there are %s", name, strings.Join(names, ", "))
}

// showSteps prints every step of a job, even if the instructions of one cannot be read.
func (a *app) showSteps(j *job.Job, preview func(*job.Step) (*machine.StepInfo, error)) error {
	if !a.json {
		return show.Steps(a.out, j, preview)
	}
	var failed []error
	infos := make([]*machine.StepInfo, 0, len(j.Steps))
	for i := range j.Steps {
		info, err := preview(&j.Steps[i])
		if err != nil {
			failed = append(failed, err)
			continue
		}
		infos = append(infos, info)
	}
	return errors.Join(append(failed, a.printJSON(infos))...)
}
