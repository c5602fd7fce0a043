package workflow

import (
	"context"

	"deepwork/catalog"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// notifyMoved calls Options.Moved for a durable transition that others see: a new session, another
// step, the end of a member of a group, a question to a person and its answer, an end.
func (e *Engine) notifyMoved(before, now *machine.State) {
	if e.Moved != nil && (before == nil || before.Status != now.Status || before.CurrentStepID != now.CurrentStepID || visibleIn(before) != visibleIn(now)) {
		e.Moved()
	}
}

// A visible counts what others see of the steps of a session: each transition that does not move the
// session changes one of the numbers, if others see it.
type visible struct{ finished, asked, answered int }

func visibleIn(s *machine.State) (n visible) {
	for _, e := range s.StepProgress {
		switch p := e.Value; {
		case p.Done():
			n.finished++
		case p.Question.Open():
			n.asked++
		case p.Question != nil:
			n.answered++
		}
	}
	return n
}

// CheckWorkflow checks that there is a workflow of exactly these names in the job folders. Its
// error, a ToolError, lists the available ones; for a name by which start_workflow would also find
// it, such as that of the job's folder, it gives the one in the job.
func CheckWorkflow(ctx context.Context, jobs *catalog.Catalog, jobName, workflowName string) error {
	j, err := findJob(ctx, jobs, jobName)
	if err != nil {
		return err
	}
	if j.Name != jobName {
		return session.Wrong("job_not_found", "Job not found: %s. The job in the folder of that name is called %s.", jsontext.Clip(jobName, 200), j.Name).With("job_name", jobName)
	}
	wf, err := findWorkflow(j, workflowName)
	if err != nil {
		return err
	}
	if wf.Name != workflowName {
		return session.Wrong("workflow_not_found", "Workflow '%s' not found in job '%s'. Available workflows: %s.", jsontext.Clip(workflowName, 200), j.Name, wf.Name).
			With("job_name", j.Name).With("available", []string{wf.Name})
	}
	return nil
}
