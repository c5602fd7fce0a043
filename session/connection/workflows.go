package connection

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
	"deepwork/session/replies"
)

// GetWorkflows lists the current jobs, including any edit made before the call (seed 000, 001.2).
func (c *Conn) GetWorkflows(ctx context.Context) (*replies.Workflows, error) {
	if err := c.refused(); err != nil {
		return nil, err
	}
	snap, err := c.server.Catalog.Fresh(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking at the job folders: %w", err)
	}
	last, missing := c.server.jobs.Load(), snap.Missing()
	if last == nil || last.snapshot != snap || !reflect.DeepEqual(last.missing, missing) {
		r, err := encodeJobs(snap, missing)
		if err != nil {
			return nil, err
		}
		last = &encodedJobs{snap, missing, r}
		c.server.jobs.Store(last)
	}
	r := last.reply
	r.Notice = replies.Notice(r.Notice, c.server.Notice)
	if c.server.Config != nil {
		if now, err := c.server.Config.Current(ctx); err == nil {
			r.Notice = replies.Notice(r.Notice,
				session.UntrustedNotice(filepath.Dir(filepath.Dir(c.server.Config.Path())), now))
		}
	}
	for _, fault := range c.server.Catalog.FolderFaults() {
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
