package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/replies"
)

// GetWorkflows lists the current jobs, including any edit made before the call (seed 000, 001.2).
func (c *Conn) GetWorkflows(ctx context.Context) (*replies.Workflows, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.calls.Done()

	snap, err := c.engine.Catalog.Fresh(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking at the job folders: %w", err)
	}
	last, missing := c.engine.jobs.Load(), snap.Missing()
	if last == nil || last.snapshot != snap || !reflect.DeepEqual(last.missing, missing) {
		r, err := encodeJobs(snap, missing)
		if err != nil {
			return nil, err
		}
		last = &encodedJobs{snap, missing, r}
		c.engine.jobs.Store(last)
	}
	r := last.reply
	r.Notice = replies.Notice(r.Notice, c.engine.Notice)
	if c.engine.Config != nil {
		if now, err := c.engine.Config.Current(ctx); err == nil {
			r.Notice = replies.Notice(r.Notice,
				session.UntrustedNotice(filepath.Dir(filepath.Dir(c.engine.Config.Path())), now))
		}
	}
	for _, fault := range c.engine.Catalog.FolderFaults() {
		r.Notice = replies.Notice(r.Notice, "Tell the user: "+config.JobsFoldersEnv+": "+fault)
	}
	r.Stack = c.openStack(ctx)
	r.Resumable = c.resumable(ctx)
	return &r, nil
}

// encodedJobs is a snapshot's part of the get_workflows reply, encoded once.
type encodedJobs struct {
	snapshot *catalog.Snapshot
	missing  []catalog.LoadError // see Snapshot.Missing
	reply    replies.Workflows   // without the stack
}

// repairJob is the bundled job whose workflow repair fixes jobs.
const repairJob = "deepwork_jobs"

// The limits of a get_workflows reply. The notice says if something was left out. There are no pages, since
// the tool takes no arguments (seed 000, 001.2).
const (
	jobsBytes       = 4 << 20 // jobs as JSON
	loadErrorsBytes = 1 << 20 // errors as JSON
	faultBytes      = 16 << 10
)

func encodeJobs(snap *catalog.Snapshot, missing []catalog.LoadError) (r replies.Workflows, err error) {
	var notices []string
	whole, cut := 0, false
	r.Jobs, whole, err = encodeList(snap.Jobs, jobsBytes, func(j *job.Job) any { return jobInfo(j, j.Description) })
	if err == nil && whole < len(snap.Jobs) {
		// Names and summaries are enough to choose a workflow.
		r.Jobs, whole, err = encodeList(snap.Jobs, jobsBytes, func(j *job.Job) any { return jobInfo(j, nil) })
		notices = append(notices, "The descriptions of the jobs are left out, since the reply would be too large: "+
			"they are in each job.yml.")
		if whole < len(snap.Jobs) {
			notices = append(notices, fmt.Sprintf("Only the first %d of %d jobs are listed; `deepwork jobs` lists "+
				"all, and start_workflow takes each of them.", whole, len(snap.Jobs)))
		}
	}
	if err != nil {
		return r, err
	}

	faulty := slices.Concat(snap.Errors, missing)
	r.Errors, whole, err = encodeList(faulty, loadErrorsBytes, func(e catalog.LoadError) any {
		text := e.Diagnostics.Error()
		if len(text) > faultBytes {
			cut, text = true, strings.ToValidUTF8(text[:faultBytes], "")+"\n…"
		}
		return replies.JobLoadError{JobName: e.JobName, JobDir: e.JobDir, Error: text}
	})
	if cut || whole < len(faulty) {
		notices = append(notices, fmt.Sprintf("There are more errors than are listed, in %d jobs: `deepwork "+
			"validate` prints all.", len(faulty)))
	}
	if len(faulty) > 0 && snap.Job(repairJob) != nil {
		notices = append(notices, "The workflow "+repairJob+"/repair fixes jobs with errors, of every format.")
	}
	if len(notices) > 0 {
		r.Notice = new(strings.Join(notices, " "))
	}
	return r, err
}

func jobInfo(j *job.Job, description *string) replies.JobInfo {
	info := replies.JobInfo{
		Name:        j.Name,
		Summary:     j.Summary,
		Description: description,
		Workflows:   make([]replies.WorkflowInfo, len(j.Workflows)),
	}
	for i, wf := range j.Workflows {
		w := replies.WorkflowInfo{Name: wf.Name, Summary: wf.Summary, Agent: wf.Agent}
		if wf.Agent != "" {
			w.HowToStart = fmt.Sprintf("Start a subagent of the type %s (with the Task tool, or another tool that "+
				"starts one), and let it call start_workflow and follow the workflow.", wf.Agent)
		}
		for _, p := range wf.Inputs {
			w.Inputs = append(w.Inputs, replies.ParameterInfo{
				Name:        p.Name,
				Description: p.Description,
				Required:    p.Required && p.Default == nil,
				Type:        string(p.Type),
				Default:     p.Default,
			})
		}
		info.Workflows[i] = w
	}
	return info
}

// encodeList encodes as many entries of a list as fit into most bytes of JSON, and returns how many did.
func encodeList[T any](all []T, most int, encode func(T) any) (json.RawMessage, int, error) {
	out := []byte{'['}
	for i, entry := range all {
		data, err := jsontext.Encode(encode(entry))
		if err != nil {
			return nil, 0, err
		}
		if len(out)+len(data)+2 > most {
			return append(out, ']'), i, nil
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, data...)
	}
	return append(out, ']'), len(all), nil
}

// CheckWorkflow returns the workflow with exactly these names in the job folders. Its error, a ToolError,
// lists the available ones. If the name is another one that start_workflow accepts, such as that of the job's
// folder, the error gives the name in the job.
func CheckWorkflow(ctx context.Context, jobs *catalog.Catalog, jobName, workflowName string) (*job.Workflow, error) {
	j, err := findJob(ctx, jobs, jobName)
	if err != nil {
		return nil, err
	}
	if j.Name != jobName {
		return nil, session.Wrong(codes.JobNotFound,
			"Job not found: %s. The job in the folder of that name is called %s.", jsontext.Clip(jobName, 200),
			j.Name).With("job_name", jobName)
	}

	wf, err := findWorkflow(j, workflowName)
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

// findJob finds a job by name (seed 000, 001.3.4).
func findJob(ctx context.Context, jobs *catalog.Catalog, name string) (*job.Job, error) {
	snap, err := jobs.FreshJob(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("looking for job %s: %w", name, err)
	}
	if j := snap.Job(name); j != nil {
		return j, nil
	}
	if bad := snap.Err(name); bad != nil {
		return nil, session.Wrong(codes.JobBroken,
			"Job '%s' in %s does not load:\n%s\nCorrect it, as with the workflow deepwork_jobs/repair (get_workflows "+
				"lists the errors that remain), and call again.",
			name, bad.JobDir, bad.Diagnostics.Error()).With("job_name", name).With("job_dir", bad.JobDir)
	}
	return nil, session.Wrong(codes.JobNotFound, "Job not found: %s. %s", jsontext.Clip(name, 200), jobsThereAre(snap)).
		With("job_name", name).With("argument", "job_name").With("value", jsontext.Clip(name, 200))
}

// lastGood says that a job's folder no longer loads and that its last good version is served, or returns "".
func lastGood(jobs *catalog.Catalog, j *job.Job) string {
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

// findWorkflow finds a workflow of a job. If the job has only one, any name finds it (seed 000, 001.3.5 and
// 001.3.6).
func findWorkflow(j *job.Job, name string) (*job.Workflow, error) {
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
