package attempt

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"deepwork/actor/telemetry"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/store"
	"deepwork/session/workflow"
)

// RunWorkflowArgs are the arguments of run_workflow.
type RunWorkflowArgs struct {
	JobName      string       `json:"job_name" arg:"From get_workflows"`
	WorkflowName string       `json:"workflow_name" arg:"Its workflow"`
	Goal         string       `json:"goal" arg:"What to accomplish" max:"100000"`
	Executor     *string      `json:"executor" arg:"NAME or NAME:VARIANT. Default: run.executor, or the only one"`
	MaxCostUSD   *float64     `json:"max_cost_usd" arg:"Pauses the run at this cost" min:"0" max:"100000000"`
	Inputs       board.Inputs `json:"inputs,omitempty" arg:"Values of its inputs"`
	Wait         bool         `json:"wait,omitempty" arg:"Reply when it has ended"`
	RequestID    *string      `json:"request_id" arg:"Any text, for retries"`

	// Agents rarely need the following arguments, and a model is shown every listed one; the documentation
	// lists them.

	Parallel   *int     `json:"parallel" min:"1" max:"1000" unlisted:"true"`
	InPlace    *bool    `json:"in_place" arg:"Work in the project itself. Default: only without git" unlisted:"true"`
	Context    *string  `json:"context" enum:"step,resume" unlisted:"true"`
	MaxUnknown *int     `json:"max_unknown" min:"0" max:"1000000" unlisted:"true"`
	MaxSeconds *float64 `json:"max_seconds" min:"0" max:"100000000" unlisted:"true"`
}

// Tags implements fieldtag.Tagger.
func (RunWorkflowArgs) Tags() map[string]string {
	return map[string]string{
		"Parallel":   `arg:"Agents at once. Default: as many as may run"`,
		"Context":    `arg:"resume: one conversation through sequential steps. Default: step"`,
		"MaxUnknown": `arg:"Pauses the run after so many agents with an unknown cost"`,
		"MaxSeconds": `arg:"Pauses the run after this time"`,
	}
}

// The values of RunWorkflowArgs.Context.
const (
	ContextStep   = "step"   // each step begins a new conversation
	ContextResume = "resume" // consecutive steps share one conversation
)

// The maxima of RunWorkflowArgs.
const (
	MaxParallel   = 1000
	MaxRunSeconds = 1e8
)

// RunMade answers run_workflow.
type RunMade struct {
	RunID     string      `json:"run_id" jsonschema:"UUID of the run, for get_run; as attempt_id for other tools"`
	TaskID    string      `json:"task_id" jsonschema:"UUID of its task"`
	State     board.State `json:"state"`
	Branch    *string     `json:"branch" jsonschema:"git branch with the work, or null in place"`
	Workspace string      `json:"workspace" jsonschema:"folder in which its agents work, absolute"`

	Going `json:"-"`
}

// Tags implements fieldtag.Tagger.
func (RunMade) Tags() map[string]string {
	return map[string]string{
		"State": `jsonschema:"queued, running, waiting_for_you, waiting, paused, conflicts, interrupted, failed, ` +
			`stopped, completed or merged"`,
	}
}

// RunWorkflow starts a run of a workflow in the server's project: a task with an attempt that a server leads.
// It returns when they are on the board.
func (e *Engine) RunWorkflow(ctx context.Context, who session.Caller, a RunWorkflowArgs) (*board.RunReply, error) {
	named := a.RequestID
	a.RequestID = nil
	if _, err := runOf(&a); err != nil {
		return nil, err
	}

	b, cfg, err := e.View(ctx, who)
	if err != nil {
		return nil, err
	}

	if err := e.MayStart(b.Who); err != nil {
		return nil, err
	}

	request, created, err := b.Repeated(ctx, "run_workflow", named, a)
	if err != nil {
		return nil, err
	}
	if created != "" {
		r, err := e.RunReply(ctx, b, created)
		if session.CodeOf(err) == codes.UnknownRun {
			err = board.Deleted(err)
		}
		return r, err
	}

	plan, err := e.planWorkflow(ctx, b, cfg, a)
	if err != nil {
		return nil, err
	}

	// together with its task, which attempts.auto_start would otherwise start
	at, err := b.CreateRun(ctx, plan.Task, plan.Attempt, plan.First, request)
	if err != nil {
		return nil, board.Fault("creating the run", err)
	}
	e.RunMade(ctx, at, a.JobName+"/"+a.WorkflowName, b.Who)
	r, err := e.RunReply(ctx, b, at.ID)
	if err == nil {
		r.Unseen = unseen(ctx, plan.Attempt.Repos)
	}
	return r, board.Midway(err)
}

// RunMade logs that a run is on the board, and makes this process look for it.
func (e *Engine) RunMade(ctx context.Context, at *task.Attempt, workflow string, who session.Caller) {
	e.Log.InfoContext(telemetry.Under(ctx, RefOf(at)), "run made", "run", at.ID, "workflow", workflow, "executor",
		at.Executor, "caller", who.Identity)
	e.wakeUp()
}

// PlanRun checks what RunWorkflow checks, and returns what it would put on the board. It writes nothing.
func (e *Engine) PlanRun(ctx context.Context, who session.Caller, a RunWorkflowArgs) (*store.PlannedRun, error) {
	b, cfg, err := e.View(ctx, who)
	if err != nil {
		return nil, err
	}
	if err := e.MayStart(b.Who); err != nil {
		return nil, err
	}
	return e.planWorkflow(ctx, b, cfg, a)
}

func (e *Engine) planWorkflow(
	ctx context.Context, b board.View, cfg *config.Config, a RunWorkflowArgs,
) (*store.PlannedRun, error) {
	run, err := runOf(&a)
	if err != nil {
		return nil, err
	}
	if err := e.WithinBudget(ctx, b.Who, cfg); err != nil {
		return nil, err
	}

	wf, err := e.CheckWorkflow(ctx, &run.JobName, &run.WorkflowName)
	if err != nil {
		return nil, err
	}
	if wf != nil {
		inputs, err := workflow.CheckInputs(e.Root(), wf, a.Inputs)
		if err != nil {
			return nil, err
		}
		run.Inputs = a.Inputs.Of(inputs)
	}

	agent, err := e.agentFor(ctx, b.Who, cfg, board.OrEmpty(a.Executor), nil)
	if err != nil {
		return nil, err
	}
	if err := agent.check(ctx, ""); err != nil && !e.isLocalError(err) {
		return nil, err
	}

	project, repos, err := e.runRepos(ctx, b.View, a.InPlace, run)
	if err != nil {
		return nil, err
	}

	title := jsontext.Clip(strings.TrimSpace(strings.SplitN(strings.TrimSpace(run.Goal), "\n", 2)[0]),
		board.MaxTitle-10)
	t := task.Task{
		ProjectID:    project,
		Title:        title,
		Description:  &run.Goal,
		JobName:      &run.JobName,
		WorkflowName: &run.WorkflowName,
		Inputs:       board.Stored(run.Inputs),
		Lead:         task.ServerLeads,
	}

	made, first, err := e.planRun(ctx, b, cfg, &t, agent, repos, *run)
	if err != nil {
		return nil, err
	}
	return &store.PlannedRun{Task: newTaskOf(t), Attempt: *made, First: first}, nil
}

func newTaskOf(t task.Task) task.NewTask {
	return task.NewTask{
		ProjectID:    t.ProjectID,
		Title:        t.Title,
		Description:  t.Description,
		JobName:      t.JobName,
		WorkflowName: t.WorkflowName,
		Inputs:       t.Inputs,
		Lead:         t.Lead,
	}
}

// runRepos returns the server's project and the repositories of which a run gets worktrees, and sets whether
// the run works in the project itself.
func (e *Engine) runRepos(
	ctx context.Context, v store.View, inPlace *bool, run *board.Run,
) (string, []RepoArgs, error) {
	project, repos, without, err := e.rootRepos(ctx, v)
	if err != nil {
		return "", nil, err
	}
	run.InPlace = len(repos) == 0 && (without == "" || e.Shared != nil)
	if inPlace != nil {
		run.InPlace = *inPlace
	}
	if len(repos) == 0 && !run.InPlace {
		return "", nil, session.Wrong(codes.NoRepos,
			"%s. Without a branch there can be no worktree: check out one that has a commit (git init makes a "+
				"repository).", cmp.Or(without, "The project is not in a git repository")).
			Next("work without one", "run_workflow", "in_place", true).With("argument", "in_place")
	}
	return project, repos, nil
}

// CheckRun returns an error for callers if arguments of a run are out of range.
func CheckRun(a RunWorkflowArgs) error {
	_, err := runOf(&a)
	return err
}

// runOf checks the arguments of a run.
func runOf(a *RunWorkflowArgs) (*board.Run, error) {
	r := &board.Run{
		JobName:      strings.TrimSpace(a.JobName),
		WorkflowName: strings.TrimSpace(a.WorkflowName),
		Goal:         a.Goal,
		MaxCostUSD:   a.MaxCostUSD,
		MaxUnknown:   a.MaxUnknown,
	}
	if strings.TrimSpace(a.Goal) == "" {
		return nil, session.Wrong(codes.InvalidArgument,
			"%s is blank: say what the run is to accomplish.", "goal").With("argument", "goal")
	}
	if err := board.CheckText("goal", a.Goal, board.MaxPrompt); err != nil {
		return nil, err
	}

	if a.Parallel != nil {
		if *a.Parallel < 1 || *a.Parallel > MaxParallel {
			return nil, session.Wrong(codes.OutOfRange, "%s is %d: expected 1 to %d agents.", "parallel", *a.Parallel,
				MaxParallel).With("argument", "parallel").With("value", *a.Parallel)
		}
		r.Parallel = *a.Parallel
	}
	switch {
	case a.Context == nil || *a.Context == ContextStep:
	case *a.Context == ContextResume:
		r.Resume = true
	default:
		return nil, session.Wrong(codes.InvalidArgument, "%s is %q: expected %s or %s.", "context",
			board.Clip(*a.Context), ContextStep,
			ContextResume).With("argument", "context").With("value", board.Clip(*a.Context))
	}
	if a.MaxSeconds != nil {
		if !(*a.MaxSeconds > 0 && *a.MaxSeconds <= MaxRunSeconds) {
			return nil, session.Wrong(codes.OutOfRange,
				"%s is %v: expected a number of seconds above 0, at most %.0f.", "max_seconds", *a.MaxSeconds,
				MaxRunSeconds).With("argument", "max_seconds").With("value", fmt.Sprint(*a.MaxSeconds))
		}
		r.MaxTime = time.Duration(*a.MaxSeconds * float64(time.Second))
	}
	return r, r.CheckBudgets()
}

// defaultExecutor returns the executor for attempts and runs that name none: run.executor of the config, else
// the only one in the config, else the only one that is installed.
func (e *Engine) defaultExecutor(
	ctx context.Context, who session.Caller, cfg *config.Config,
) (name string, variant *string, err error) {
	unapproved := session.Untrusted(e.Root(), cfg.Approval, config.AgentsKey)
	cfg = cmp.Or(cfg.Wanted, cfg) // so that the error names its command
	if cfg.Run.Executor != "" {
		name, variant = nameAndVariant(cfg.Run.Executor)
		return name, variant, nil
	}
	if len(cfg.Executors) == 1 {
		return cfg.Executors[0].Name, nil, nil
	}

	all, err := e.ListExecutors(ctx, who)
	if err != nil {
		return "", nil, err
	}

	var here []string
	for _, x := range all.Executors {
		if x.Available {
			here = append(here, x.Name)
		}
	}
	if len(here) == 1 {
		return here[0], nil, nil
	}
	if unapproved != nil {
		return "", nil, unapproved
	}
	if len(here) == 0 {
		here = executors.AllNames(cfg, e.registered()) // none of them is installed
	}
	return "", nil, session.Wrong(codes.MissingExecutor,
		"%s is missing, and run.executor is not set in .deepwork/config.yml. Use one of %s, as NAME or NAME:VARIANT.",
		"executor", board.Enumerate(here, "none")).Next("read what they are", "list_executors").
		With("argument", "executor")
}

// nameAndVariant splits NAME or NAME:VARIANT.
func nameAndVariant(executor string) (name string, variant *string) {
	name, of, has := strings.Cut(executor, ":")
	if has {
		variant = &of
	}
	return name, variant
}

// agentFor returns the executor that a caller names, as NAME or NAME:VARIANT, or the default.
func (e *Engine) agentFor(
	ctx context.Context, who session.Caller, cfg *config.Config, name string, variant *string,
) (agent *choice, err error) {
	if strings.TrimSpace(name) == "" {
		name, variant, err = e.defaultExecutor(ctx, who, cfg)
	} else if variant == nil {
		name, variant = nameAndVariant(name)
	}
	if err != nil {
		return nil, err
	}
	return e.choose(ctx, name, variant)
}

// rootRepos returns the project of the server's own folder, and its repositories with their checked-out
// branches. If one has no branch, it returns no repositories, and without says why.
func (e *Engine) rootRepos(
	ctx context.Context, b store.View,
) (project string, repos []RepoArgs, without string, err error) {
	all, _, _, err := b.Projects(ctx, task.Page{Limit: 1000})
	if err != nil {
		return "", nil, "", board.Fault("listing the projects", err)
	}
	for _, p := range all {
		if p.Root {
			project = p.ID
		}
	}
	repos, without, err = e.checkedOut(ctx, b, project)
	if without != "" {
		repos = nil
	}
	return project, repos, without, err
}

// checkedOut returns the repositories of a project with their checked-out branches, or says why the first one
// without a branch has none.
func (e *Engine) checkedOut(
	ctx context.Context, b store.View, project string,
) (repos []RepoArgs, without string, err error) {
	// one too many, so that an excess is refused, not cut off
	found, _, _, err := b.Repos(ctx, project, task.Page{Limit: MaxRepos + 1})
	if err != nil {
		return nil, "", board.Fault("listing the repositories", err)
	}
	for _, r := range found {
		branch := ""
		if r.Path != "" { // otherwise it is only on other machines
			if branch, err = worktree.CurrentBranch(ctx, r.Path); err != nil {
				return nil, fmt.Sprintf("The repository %s cannot be used: %v", r.Name, err), nil
			}
		}
		if branch == "" {
			return nil, "No branch is checked out on this machine in the repository " + r.Name, nil
		}
		repos = append(repos, RepoArgs{RepoID: r.ID, TargetBranch: branch})
	}
	return repos, "", nil
}

// planRun is plan for an attempt that a server leads.
func (e *Engine) planRun(
	ctx context.Context, b board.View, cfg *config.Config, t *task.Task, agent *choice, repos []RepoArgs, run board.Run,
) (a *task.Attempt, first task.Execution, err error) {
	if run.InPlace {
		if e.Shared != nil {
			if len(repos) == 0 {
				return nil, first, session.NotNow(codes.NoBranch,
					"This project's store is shared with other machines, so a run needs a git worktree, and no "+
						"branch is checked out here: check one out and try again.")
			}
			return nil, first, session.Wrong(codes.NotHere,
				"A run in place works in this machine's folder, and this project's store is shared with other "+
					"machines: leave %s out.", "in_place").With("argument", "in_place")
		}

		a = &task.Attempt{
			Executor:  agent.name,
			Variant:   agent.variant,
			Workspace: e.Root(),
			Trace:     telemetry.Text(telemetry.Parent(ctx)),
		}
	} else if a, first, err = e.plan(ctx, b, cfg, t, agent, nil, repos); err != nil {
		return nil, first, err
	}
	first.Prompt = run.Goal
	a.Run, err = json.Marshal(run)
	return a, first, err
}

// Interrupt ends a run that this process leads, with its agents, so that it can be resumed. It reports false
// if this process does not lead the run.
func (e *Engine) Interrupt(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.leading {
		if r.row.AttemptID == id && r.row.Lead {
			r.interrupted.Store(true)
			r.stop()
			return true
		}
	}
	return false
}

// runOfTask returns the run for an attempt of a task that a server leads, in the form of the board.
func (e *Engine) runOfTask(
	ctx context.Context, t *task.Task, more *string, budget *board.Run,
) (json.RawMessage, error) {
	wf, err := e.CheckWorkflow(ctx, t.JobName, t.WorkflowName)
	if err != nil {
		wf = nil // the run will stop, and say why
	}
	inputs, err := board.RunInputs(t, wf)
	if err != nil {
		return nil, err
	}

	goal := t.Title
	for _, text := range []*string{t.Description, more} {
		if text != nil && strings.TrimSpace(*text) != "" {
			goal += "\n\n" + strings.TrimSpace(*text)
		}
	}
	run := *cmp.Or(budget, &board.Run{})
	if err := run.CheckBudgets(); err != nil {
		return nil, err
	}
	run.JobName, run.WorkflowName = *t.JobName, *t.WorkflowName
	run.Goal, run.Inputs = goal, inputs
	return json.Marshal(run)
}
