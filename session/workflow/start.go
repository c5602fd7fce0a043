package workflow

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
	"deepwork/session/workflow/stack"
)

// StartArgs are the parameters of start_workflow (seed 000, 001.3.2 and 3).
type StartArgs struct {
	Goal            string  `json:"goal"`
	JobName         string  `json:"job_name"`
	WorkflowName    string  `json:"workflow_name"`
	InstanceID      *string `json:"instance_id"`
	ParentSessionID *string `json:"parent_session_id"`
	RequestID       *string `json:"request_id"`

	// Root starts a session without a parent, whatever is on the stack: one ordered from outside,
	// which others may continue.
	Root bool `json:"-"`
}

// Start starts a session and pushes it onto the stack (seed 000, 001.3). When it returns, the
// session is on disk.
func (c *Conn) Start(ctx context.Context, a StartArgs) (*machine.StartReply, error) {
	return call(ctx, c, machine.ToolStart, &a.RequestID, &a, func(who caller) (*machine.StartReply, string, error) {
		return c.start(ctx, who, a)
	}, func(r *machine.StartReply, id string, replayed *stack.Handle) {
		if replayed != nil && !replayed.Active() {
			r.Notice = join(r.Notice, fmt.Sprintf("This repeats the reply to the call that started session '%s', which has ended since (%s).", id, replayed.View().Status))
		}
		r.Stack = c.stackOf(ctx, id)
	})
}

func (c *Conn) start(ctx context.Context, who caller, a StartArgs) (*machine.StartReply, string, error) {
	e := c.engine
	if strings.TrimSpace(a.Goal) == "" {
		return nil, "", session.Wrong("invalid_argument", "Argument \"goal\" is blank: say what the user wants to accomplish, and call again.").With("argument", "goal")
	}
	j, err := findJob(ctx, e.Catalog, a.JobName)
	if err != nil {
		return nil, "", err
	}
	wf, err := findWorkflow(j, a.WorkflowName)
	if err != nil {
		return nil, "", err
	}
	def := &machine.Definition{Job: j, Workflow: wf}
	if len(wf.Entries) == 0 {
		return nil, "", machine.NoSteps(def)
	}
	parent := ""
	if !a.Root {
		if parent, err = c.parent(ctx, a.ParentSessionID); err != nil {
			return nil, "", err
		}
	}
	how, err := e.Reviewing(ctx)
	if err != nil {
		return nil, "", err
	}
	texts, err := e.definitions.Texts(def, wf.Entries[0])
	if err != nil {
		return nil, "", err
	}
	if def, err = e.definitions.Keep(def, texts); err != nil {
		return nil, "", err
	}
	b := machine.NewSession{
		Goal: a.Goal, InstanceID: a.InstanceID, Identity: c.identity, Owner: e.records.Server(), Place: e.Place, AttemptID: e.Attempt,
		At: e.now(), Call: who.Call, Texts: texts, Notice: e.unclosable(how, def, 0), Pinned: e.pin(how, def),
	}
	if parent != "" {
		b.Parent = &parent
	}
	if !a.Root {
		b.Notice = strings.TrimSpace(b.Notice + " " + c.duplicates(ctx, j.Name+"/"+wf.Name, parent))
	}
	b.BranchName = branchName(j.Name, wf.Name, a.InstanceID, b.At)
	undo, err := e.branch(ctx, &b)
	if err != nil {
		return nil, "", err
	}
	s, r, err := e.create(def, b)
	if err != nil {
		if session.CodeOf(err) != codeUncertain {
			undo()
		}
		return nil, "", err
	}
	e.notifyMoved(nil, s)
	// The session is on disk: a caller that left meanwhile finds it here when it repeats the call, and if
	// the connection is closing, its reply says what to resume.
	_ = c.push(ctx, stack.Link{Handle: e.handles.Of(s, true), Parent: parent})
	c.stack.Moved(ctx, nil)
	return r, s.SessionID, nil
}

// create makes the session durable under a new id.
func (e *Engine) create(def *machine.Definition, b machine.NewSession) (*machine.State, *machine.StartReply, error) {
	for range 20 {
		b.SessionID = newSessionID()
		s, r, err := machine.Begin(def, b)
		if err != nil {
			return nil, nil, err
		}
		err = e.records.Create(s)
		if errors.Is(err, store.ErrExists) {
			continue
		}
		return s, r, err
	}
	return nil, nil, errors.New("no free session id was found in 20 tries")
}

func newSessionID() string {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// parent finds the parent of a new session: the named one, or the top. The top of a stateless
// connection may be another agent's.
func (c *Conn) parent(ctx context.Context, id *string) (string, error) {
	if id == nil {
		return c.stack.Top(ctx)
	}
	if !machine.IsSessionID(*id) {
		return "", session.Wrong("bad_session_id", "parent_session_id '%s' is not a session_id: expected 8 hexadecimal characters, as in begin_step and stack.", jsontext.Clip(*id, 100))
	}
	h, err := c.target(ctx, id)
	if err != nil {
		return "", err
	}
	if v := h.View(); v.Status != machine.Active {
		return "", session.NotNow("session_ended", "parent_session_id '%s' is a session that has ended (%s). Leave it out, or name an active one.", *id, v.Status)
	}
	return *id, nil
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
		return nil, session.Wrong("job_broken", "Job '%s' in %s does not load:\n%s\nCorrect it (get_workflows lists the errors that remain) and call again.",
			name, bad.JobDir, bad.Diagnostics.Error()).With("job_name", name).With("job_dir", bad.JobDir)
	}
	return nil, session.Wrong("job_not_found", "Job not found: %s. %s", jsontext.Clip(name, 200), jobsThereAre(snap)).
		With("job_name", name).With("argument", "job_name").With("value", jsontext.Clip(name, 200))
}

func jobsThereAre(snap *catalog.Snapshot) string {
	if len(snap.Jobs) == 0 {
		return "There are no jobs; make one with the workflow deepwork_jobs/new_job, or put a folder with a job.yml into .deepwork/jobs."
	}
	var names []string
	for _, j := range snap.Jobs {
		names = append(names, j.Name)
	}
	return "The jobs there are: " + jsontext.Clip(strings.Join(names, ", "), 4000) + "."
}

// findWorkflow finds a workflow of a job; a job's only one is used for any name (seed 000, 001.3.5
// and 001.3.6).
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
	return nil, session.Wrong("workflow_not_found", "Workflow '%s' not found in job '%s'. %s", jsontext.Clip(name, 200), j.Name, available).
		With("job_name", j.Name).With("available", names).With("argument", "workflow_name").With("value", jsontext.Clip(name, 200))
}
