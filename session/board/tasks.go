package board

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
)

// ListTasks lists a project's tasks, newest first, each with a summary of its attempts (seed 004, "list_tasks
// provides attempt summary").
func (b *Board) ListTasks(ctx context.Context, who session.Caller, a ListTasksArgs) (*TasksReply, error) {
	v, id, p, err := b.viewOfList(ctx, who, "project_id", a.ProjectID, a.Limit, a.Cursor)
	if err != nil {
		return nil, err
	}

	f := task.Filter{Text: a.Text}
	if a.Status != nil {
		if f.Status, err = checkStatus(*a.Status); err != nil {
			return nil, err
		}
	}
	if f.Priority, err = checkPriority(a.Priority); err != nil {
		return nil, err
	}
	if f.Labels, err = checkLabels(a.Labels); err != nil {
		return nil, err
	}
	all, total, next, err := v.Tasks(ctx, id, f, p)
	if n := fitting(all); n < len(all) {
		// The page may end early, with a cursor for the rest: descriptions are never cut.
		all, total, next, err = v.Tasks(ctx, id, f, task.Page{Limit: n, Cursor: p.Cursor})
	}
	if err != nil {
		return nil, FaultOf("listing the tasks", cursor(p, err), codes.UnknownProject, "project_id", id,
			"list_projects")
	}
	r := &TasksReply{Tasks: []Task{}, Count: len(all), Total: total, NextCursor: OrNull(next),
		Filters: TaskFilters{
			ProjectID: id,
			Status:    OrNull(string(f.Status)),
			Labels:    NonNil(f.Labels),
			Priority:  OrNull(string(f.Priority)),
			Limit:     p.Limit,
		}}
	for _, s := range all {
		r.Tasks = append(r.Tasks, *b.taskReply(&s))
	}
	return r, nil
}

// fitting returns how many tasks of a page fit into listBytes of descriptions and dependencies, at least one.
func fitting(all []task.Summary) int {
	left := listBytes
	for i, s := range all {
		left -= bytesOfID * (len(s.DependsOn) + len(s.BlockedBy))
		left -= len(s.Inputs)
		if s.Description != nil {
			left -= len(*s.Description)
		}
		if left < 0 {
			return max(i, 1)
		}
	}
	return len(all)
}

// GetTask returns a task (seed 004, get_task).
func (b *Board) GetTask(ctx context.Context, who session.Caller, a TaskArgs) (*TaskReply, error) {
	v, id, err := b.ViewFor(ctx, who, "task_id", a.TaskID)
	if err != nil {
		return nil, err
	}
	s, err := v.Task(ctx, id)
	if err != nil {
		return nil, TaskFault("reading the task", err, id)
	}
	cost, err := v.Cost(ctx, id, "")
	if err != nil {
		return nil, TaskFault("reading the cost of the task", err, id)
	}
	return &TaskReply{Task: *b.taskReply(s), Cost: cost}, nil
}

// Costs returns what the executions of tasks cost, by the tasks' ids. It omits tasks without an ended
// execution, and those that the caller does not see.
func (b *Board) Costs(ctx context.Context, who session.Caller, ids []string) (map[string]*Cost, error) {
	v, _, err := b.View(ctx, who)
	if err != nil {
		return nil, err
	}

	all := map[string]*Cost{}
	for _, id := range ids {
		cost, err := v.Cost(ctx, id, "")
		if err != nil && !errors.Is(err, task.ErrNotFound) {
			return nil, Fault("reading the cost of a task", err)
		}
		if cost != nil {
			all[id] = cost
		}
	}

	return all, nil
}

// CreateTask creates a task in the state todo (seed 004, create_task).
func (b *Board) CreateTask(ctx context.Context, who session.Caller, a CreateTaskArgs) (*Task, error) {
	named := a.RequestID
	a.RequestID = nil
	v, projectID, err := b.ViewFor(ctx, who, "project_id", a.ProjectID)
	if err != nil {
		return nil, err
	}
	request, created, err := v.Repeated(ctx, "create_task", named, a)
	if err != nil {
		return nil, err
	}
	if a.Title, err = checkTitle(a.Title); err != nil {
		return nil, err
	}
	if err := CheckOptional("description", a.Description, MaxPrompt); err != nil {
		return nil, err
	}
	dependsOn, err := checkDependencies(a.DependsOn)
	if err != nil {
		return nil, err
	}

	labels, err := checkLabels(a.Labels)
	if err != nil {
		return nil, err
	}

	priority, err := checkPriority(a.Priority)
	if err != nil {
		return nil, err
	}
	if a.Lead != nil && *a.Lead != task.AgentLeads && *a.Lead != task.ServerLeads {
		return nil, session.Wrong(codes.InvalidArgument, "lead is %q: expected %s or %s.", Clip(*a.Lead),
			task.AgentLeads, task.ServerLeads).With("argument", "lead").With("value", Clip(*a.Lead))
	}

	job, workflow := trimmed(a.JobName), trimmed(a.WorkflowName)
	if OrEmpty(a.Lead) == task.ServerLeads && (OrEmpty(job) == "" || OrEmpty(workflow) == "") {
		return nil, session.Wrong(codes.MissingArgument,
			"lead is %s, and the task has no workflow for agents to be led through. Name its job and workflow.",
			task.ServerLeads).Next("see them", "get_workflows").With("argument", "workflow_name")
	}

	// A repeated request gets the same reply, even if the workflow has changed since.
	var inputs json.RawMessage
	if created == "" {
		wf, err := b.CheckWorkflow(ctx, job, workflow)
		if err != nil {
			return nil, err
		}
		if inputs, err = a.Inputs.forTask(wf); err != nil {
			return nil, err
		}
	}
	s, err := v.CreateTask(ctx, task.NewTask{
		ProjectID:    projectID,
		Title:        a.Title,
		Description:  a.Description,
		JobName:      job,
		WorkflowName: workflow,
		Inputs:       inputs,
		Lead:         OrEmpty(a.Lead),
		Labels:       labels,
		Priority:     priority,
		DependsOn:    dependsOn,
	}, request)

	b.o.Changed()
	return b.taskReply(s), FaultOf("creating the task", err, codes.UnknownProject, "project_id", projectID,
		"list_projects")
}

// UpdateTask changes the given fields of a task (seed 004, update_task).
func (b *Board) UpdateTask(ctx context.Context, who session.Caller, a UpdateTaskArgs) (*Task, error) {
	v, id, err := b.ViewFor(ctx, who, "task_id", a.TaskID)
	if err != nil {
		return nil, err
	}

	change := task.TaskChange{
		Description:  a.Description,
		JobName:      trimmed(a.JobName),
		WorkflowName: trimmed(a.WorkflowName),
	}
	if a.Title != nil {
		title, err := checkTitle(*a.Title)
		if err != nil {
			return nil, err
		}
		change.Title = &title
	}
	if err := CheckOptional("description", a.Description, MaxPrompt); err != nil {
		return nil, err
	}
	if a.Status != nil {
		status, err := checkStatus(*a.Status)
		if err != nil {
			return nil, err
		}
		change.Status = &status
	}
	if change.DependsOn, err = checkDependencies(a.DependsOn); err != nil {
		return nil, err
	}
	if change.Labels, err = checkLabels(a.Labels); err != nil {
		return nil, err
	}
	if a.Priority != nil {
		priority, err := checkPriority(a.Priority)
		if err != nil {
			return nil, err
		}
		change.Priority = &priority
	}
	if change.Group = trimmed(a.Group); change.Group != nil {
		if !v.Who.Owner {
			return nil, session.NotNow(codes.RightNeeded, "Only the owner of the board gives tasks to a group.")
		}
		if err := config.CheckGroup(*change.Group); err != nil && *change.Group != "" {
			return nil, session.Wrong(codes.InvalidArgument, "The task is not given to a group: %v.", err).
				With("argument", "group").With("value", Clip(*change.Group))
		}
	}
	if change.JobName != nil || change.WorkflowName != nil || a.Inputs != nil {
		was, err := v.Task(ctx, id)
		if err != nil {
			return nil, TaskFault("reading the task", err, id)
		}
		job, name := cmp.Or(change.JobName, was.JobName), cmp.Or(change.WorkflowName, was.WorkflowName)
		wf, err := b.CheckWorkflow(ctx, job, name)
		if err != nil {
			return nil, err
		}
		if a.Inputs != nil || OrEmpty(job) != OrEmpty(was.JobName) || OrEmpty(name) != OrEmpty(was.WorkflowName) {
			inputs, err := a.Inputs.forTask(wf)
			if err != nil {
				return nil, err
			}
			change.Inputs = append(json.RawMessage{}, inputs...) // empty but not nil: clears the inputs
		}
	}
	s, err := v.UpdateTask(ctx, id, change)

	b.o.Changed()
	return b.taskReply(s), TaskFault("updating the task", err, id)
}

// checkDependencies checks the ids of a task's dependencies; nil stays nil.
func checkDependencies(given []string) ([]string, error) {
	if len(given) > task.MaxDependencies {
		return nil, session.Wrong(codes.TooManyDependencies,
			"depends_on names %d tasks, and at most %d are allowed. Name those that must be done last: what they "+
				"depend on is done before them.", len(given), task.MaxDependencies).
			With("argument", "depends_on").With("value", len(given)).With("max", task.MaxDependencies)
	}

	ids := slices.Clone(given)
	for i := range ids {
		var err error
		if ids[i], err = CheckID(fmt.Sprintf("depends_on[%d]", i), ids[i]); err != nil {
			return nil, err
		}
	}

	return ids, nil
}

// CheckWorkflow returns the workflow with these names, or nil if none are given or workflows are not checked.
// It refuses incomplete and unknown names.
func (b *Board) CheckWorkflow(ctx context.Context, job, workflow *string) (*job.Workflow, error) {
	hasJob, hasWorkflow := job != nil && *job != "", workflow != nil && *workflow != ""
	switch {
	case hasJob != hasWorkflow:
		field, value, missing := "job_name", job, "workflow_name"
		if hasWorkflow {
			field = "workflow_name"
			value = workflow
			missing = "job_name"
		}
		return nil, session.Wrong(codes.HalfAWorkflow,
			"%s is %q, and %s is missing: together they name a workflow. Pass both or neither, empty texts to clear "+
				"both.", field, Clip(*value), missing).Next("see the workflows", "get_workflows").
			With("argument", field).With("value", Clip(*value)).With("missing", missing)
	case !hasJob:
		return nil, nil
	}
	for field, name := range map[string]string{"job_name": *job, "workflow_name": *workflow} {
		if err := CheckText(field, name, MaxName); err != nil {
			return nil, err
		}
	}

	if b.o.CheckWorkflow == nil {
		return nil, nil
	}
	return b.o.CheckWorkflow(ctx, *job, *workflow)
}

func trimmed(s *string) *string {
	if s == nil {
		return nil
	}
	return new(strings.TrimSpace(*s))
}

// taskReply describes a task; nil means that it does not exist.
func (b *Board) taskReply(s *task.Summary) *Task {
	if s == nil {
		return nil
	}

	var state *State
	if s.LatestAttemptID != nil {
		state = new(b.StateOf(&s.Situation))
	}
	return &Task{
		TaskID:                s.ID,
		ProjectID:             s.ProjectID,
		Title:                 s.Title,
		Description:           s.Description,
		Status:                string(s.Status),
		JobName:               s.JobName,
		WorkflowName:          s.WorkflowName,
		Inputs:                InputsOf(&s.Task),
		Lead:                  s.Lead,
		CreatedAt:             Stamp(s.CreatedAt),
		UpdatedAt:             Stamp(s.UpdatedAt),
		LatestAttemptID:       s.LatestAttemptID,
		LatestWorkspaceBranch: s.LatestWorkspaceBranch,
		LatestAttemptState:    state,
		Group:                 s.CallerGroup,
		LatestSessionID:       s.LatestSessionID,
		LatestSessionExecutor: s.LatestSessionExecutor,
		Labels:                NonNil(s.Labels),
		Priority:              string(s.Priority),
		DependsOn:             NonNil(s.DependsOn),
		BlockedBy:             NonNil(s.BlockedBy),
		HasInProgressAttempt:  s.HasInProgressAttempt,
		LastAttemptFailed:     s.LastAttemptFailed,
	}
}
