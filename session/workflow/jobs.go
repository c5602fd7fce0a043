package workflow

import (
	"context"
	"encoding/json"
	"fmt"

	"deepwork/catalog"
)

// encodedJobs is what get_workflows tells of a snapshot, encoded once.
type encodedJobs struct {
	snapshot     *catalog.Snapshot
	jobs, errors json.RawMessage
}

// GetWorkflows lists the jobs as they are now, an edit made before the call
// included (seed 000, 001.2).
func (c *Conn) GetWorkflows(ctx context.Context) (*WorkflowsReply, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	snap, err := c.engine.catalog.Fresh(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking at the job folders: %w", err)
	}
	enc := c.engine.jobs.Load()
	if enc == nil || enc.snapshot != snap {
		if enc, err = encodeJobs(snap); err != nil {
			return nil, err
		}
		c.engine.jobs.Store(enc)
	}
	stack := c.Stack()
	if c.stateless {
		stack = c.onlyStack(ctx)
	}
	return &WorkflowsReply{Jobs: enc.jobs, Errors: enc.errors, Stack: stack}, nil
}

func encodeJobs(snap *catalog.Snapshot) (*encodedJobs, error) {
	jobs := make([]JobInfo, len(snap.Jobs))
	for i, j := range snap.Jobs {
		jobs[i] = JobInfo{Name: j.Name, Summary: j.Summary, Description: j.Description, Workflows: make([]WorkflowInfo, len(j.Workflows))}
		for k, wf := range j.Workflows {
			jobs[i].Workflows[k] = WorkflowInfo{wf.Name, wf.Summary}
		}
	}
	errs := make([]JobLoadError, len(snap.Errors))
	for i, e := range snap.Errors {
		errs[i] = JobLoadError{e.JobName, e.JobDir, e.Diagnostics.Error()}
	}
	out := &encodedJobs{snapshot: snap}
	var err error
	if out.jobs, err = marshal(jobs); err != nil {
		return nil, err
	}
	if out.errors, err = marshal(errs); err != nil {
		return nil, err
	}
	return out, nil
}
