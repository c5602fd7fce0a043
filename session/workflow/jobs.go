package workflow

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// GetWorkflows lists the current jobs, including an edit made before the call (seed 000, 001.2).
func (c *Conn) GetWorkflows(ctx context.Context) (*machine.WorkflowsReply, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	snap, err := c.engine.Catalog.Fresh(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking at the job folders: %w", err)
	}
	last := c.engine.jobs.Load()
	if last == nil || last.snapshot != snap {
		r, err := encodeJobs(snap)
		if err != nil {
			return nil, err
		}
		last = &encodedJobs{snap, r}
		c.engine.jobs.Store(last)
	}
	r := last.reply
	if c.engine.Config != nil {
		if now, err := c.engine.Config.Current(ctx); err == nil {
			if notice := session.UntrustedNotice(filepath.Dir(filepath.Dir(c.engine.Config.Path())), now.Approval); notice != "" {
				r.Notice = join(r.Notice, notice)
			}
		}
	}
	r.Stack = c.openStack(ctx)
	r.Resumable = c.resumable(ctx)
	return &r, nil
}

// encodedJobs is the part of get_workflows about a snapshot, encoded once.
type encodedJobs struct {
	snapshot *catalog.Snapshot
	reply    machine.WorkflowsReply // without the stack
}

// Limits of a reply of get_workflows. What exceeds them is left out, and the notice says so: there
// are no pages, since the tool takes no arguments (seed 000, 001.2).
const (
	jobsBytes       = 4 << 20 // of jobs, as JSON
	loadErrorsBytes = 1 << 20 // of errors, as JSON
	faultBytes      = 16 << 10
)

func encodeJobs(snap *catalog.Snapshot) (r machine.WorkflowsReply, err error) {
	var notices []string
	whole, cut := 0, false
	r.Jobs, whole, err = encodeList(snap.Jobs, jobsBytes, func(j *job.Job) any { return jobInfo(j, j.Description) })
	if err == nil && whole < len(snap.Jobs) {
		// Names and summaries are enough to choose from.
		r.Jobs, whole, err = encodeList(snap.Jobs, jobsBytes, func(j *job.Job) any { return jobInfo(j, nil) })
		notices = append(notices, "The descriptions of the jobs are left out, since the reply would be too large: they are in each job.yml.")
		if whole < len(snap.Jobs) {
			notices = append(notices, fmt.Sprintf("Only the first %d of %d jobs are listed; `deepwork jobs` lists all, and start_workflow takes each of them.", whole, len(snap.Jobs)))
		}
	}
	if err != nil {
		return r, err
	}
	r.Errors, whole, err = encodeList(snap.Errors, loadErrorsBytes, func(e catalog.LoadError) any {
		text := e.Diagnostics.Error()
		if len(text) > faultBytes {
			cut, text = true, strings.ToValidUTF8(text[:faultBytes], "")+"\n…"
		}
		return machine.JobLoadError{JobName: e.JobName, JobDir: e.JobDir, Error: text}
	})
	if cut || whole < len(snap.Errors) {
		notices = append(notices, fmt.Sprintf("There are more faults than are listed, in %d jobs: `deepwork validate` prints all.", len(snap.Errors)))
	}
	if len(notices) > 0 {
		r.Notice = new(strings.Join(notices, " "))
	}
	return r, err
}

func jobInfo(j *job.Job, description *string) machine.JobInfo {
	info := machine.JobInfo{Name: j.Name, Summary: j.Summary, Description: description, Workflows: make([]machine.WorkflowInfo, len(j.Workflows))}
	for i, wf := range j.Workflows {
		info.Workflows[i] = machine.WorkflowInfo{Name: wf.Name, Summary: wf.Summary}
	}
	return info
}

// encodeList encodes as many entries of a list as fit into most bytes of JSON, and returns their
// number.
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
