package definition

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
)

// CheckWorkflow returns the workflow with exactly these names in the job folders. Its error, a ToolError,
// lists the available ones. If the name is another one that start_workflow accepts, such as that of the job's
// folder, the error gives the name in the job.
func CheckWorkflow(ctx context.Context, jobs *catalog.Catalog, jobName, workflowName string) (*job.Workflow, error) {
	j, err := FindJob(ctx, jobs, jobName)
	if err != nil {
		return nil, err
	}
	if j.Name != jobName {
		return nil, session.Wrong(codes.JobNotFound,
			"Job not found: %s. The job in the folder of that name is called %s.", jsontext.Clip(jobName, 200),
			j.Name).With("job_name", jobName)
	}

	wf, err := FindWorkflow(j, workflowName)
	if err != nil {
		return nil, err
	}
	if wf.Name != workflowName {
		return nil, session.Wrong(codes.WorkflowNotFound,
			"Workflow '%s' not found in job '%s'. Available workflows: %s.", jsontext.Clip(workflowName, 200),
			j.Name, wf.Name).
			With("job_name", j.Name).With("available", []string{wf.Name})
	}
	return wf, nil
}

// FindJob finds a job by name (seed 000, 001.3.4).
func FindJob(ctx context.Context, jobs *catalog.Catalog, name string) (*job.Job, error) {
	snap, err := jobs.FreshJob(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("looking for job %s: %w", name, err)
	}
	if j := snap.Job(name); j != nil {
		return j, nil
	}
	if bad := snap.Err(name); bad != nil {
		return nil, session.Wrong(codes.JobBroken,
			"Job '%s' in %s does not load:\n%s\nCorrect it, as with the workflow deepwork_jobs/repair, and try "+
				"again.", name, bad.JobDir, bad.Diagnostics.Error()).
			Next("see the errors that remain", "get_workflows").With("job_name", name).With("job_dir", bad.JobDir)
	}
	return nil, session.Wrong(codes.JobNotFound, "Job not found: %s. %s", jsontext.Clip(name, 200), jobsThereAre(snap)).
		With("job_name", name).With("argument", "job_name").With("value", jsontext.Clip(name, 200))
}

// LastGood says that a job's folder no longer loads and that its last good version is served, or returns "".
func LastGood(jobs *catalog.Catalog, j *job.Job) string {
	bad := jobs.Snapshot().Err(filepath.Base(j.Dir))
	if bad == nil || bad.JobDir != j.Dir { // such as a copy of a bundled job
		return ""
	}
	return fmt.Sprintf("Tell the user: job '%s' in %s does not load any more, so its last good version, %s, is used "+
		"until that is corrected or the server ends. The first error: %s.",
		j.Name, bad.JobDir, j.Version, strings.TrimSuffix(jsontext.Clip(bad.Diagnostics[0].String(), 500), "."))
}

func jobsThereAre(snap *catalog.Snapshot) string {
	if len(snap.Jobs) == 0 {
		return "There are no jobs; make one with the workflow deepwork_jobs/new_job, or put a folder with a job.yml " +
			"into .deepwork/jobs."
	}

	var names []string
	for _, j := range snap.Jobs {
		names = append(names, j.Name)
	}
	return "The jobs there are: " + jsontext.Clip(strings.Join(names, ", "), 4000) + "."
}

// FindWorkflow finds a workflow of a job. If the job has only one, any name finds it (seed 000, 001.3.5 and
// 001.3.6).
func FindWorkflow(j *job.Job, name string) (*job.Workflow, error) {
	if wf := j.Workflow(name); wf != nil {
		return wf, nil
	}
	if len(j.Workflows) == 1 {
		return &j.Workflows[0], nil
	}
	names := make([]string, len(j.Workflows))
	for i, wf := range j.Workflows {
		names[i] = wf.Name
	}

	available := "Available workflows: " + strings.Join(names, ", ") + "."
	if len(names) == 0 {
		available = "The job has no workflows; add one to " + j.Dir + "/" + job.FileName + "."
	}
	return nil, session.Wrong(codes.WorkflowNotFound, "Workflow '%s' not found in job '%s'. %s",
		jsontext.Clip(name, 200), j.Name, available).
		With("job_name", j.Name).With("available", names).With("argument", "workflow_name").With("value",
		jsontext.Clip(name, 200))
}
