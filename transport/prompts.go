package transport

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/replies"
	"deepwork/session/show"
	"deepwork/session/store"
	"deepwork/transport/tool"
)

// Where resources are: a job, as `deepwork jobs show` prints it, and a session, as `deepwork
// sessions show` does.
const (
	jobURI     = "deepwork://jobs/"
	sessionURI = "deepwork://sessions/"

	sessionTemplate = sessionURI + "{session_id}"
)

// goalArgument is the argument of prompts that is not an input of their workflow.
const goalArgument = "goal"

// A library offers the jobs of a catalog as MCP prompts and resources: for each workflow a prompt
// deepwork:JOB:WORKFLOW, which clients show as a slash command, and for each job a resource. Its registrations with the
// SDK follow the catalog, so clients are notified of changes.
type library struct {
	server  *mcp.Server
	jobs    func(context.Context) *catalog.Snapshot
	session func(ctx context.Context, identity, id string) (*machine.State, error)
	newest  func(ctx context.Context, identity string, limit int) ([]store.Session, error)

	mu        sync.Mutex
	seen      *catalog.Snapshot
	prompts   map[string]mcp.Prompt // by name
	resources map[string]mcp.Resource
}

// newLibrary registers the prompts and resources; sessions are found by their URI alone.
func newLibrary(e engines, server *mcp.Server) *library {
	l := &library{
		server:    server,
		jobs:      e.jobs,
		session:   e.session,
		newest:    e.newest,
		prompts:   map[string]mcp.Prompt{},
		resources: map[string]mcp.Resource{},
	}
	if l.session != nil {
		server.AddResourceTemplate(&mcp.ResourceTemplate{
			URITemplate: sessionTemplate, Name: "session", Title: "A session of yours", MIMEType: "text/plain",
			Description: "How far a session is: its steps, outputs, reviews and their verdicts",
		}, l.readSession)
	}

	l.refresh(context.Background())
	return l
}

// follow refreshes after each change of the jobs until ctx ends.
func (l *library) follow(ctx context.Context, changes <-chan struct{}) {
	for {
		l.refresh(ctx)
		select {
		case <-ctx.Done():
			return
		case <-changes:
		}
	}
}

// refresh registers what is new or reads differently, and removes what is gone.
func (l *library) refresh(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.jobs(ctx)
	if now == l.seen {
		return
	}
	l.seen = now
	prompts, resources := map[string]mcp.Prompt{}, map[string]mcp.Resource{}
	for _, j := range now.Jobs {
		resources[jobURI+j.Name] = mcp.Resource{
			URI:         jobURI + j.Name,
			Name:        j.Name,
			Title:       "Job " + j.Name,
			MIMEType:    "text/plain",
			Description: tool.OneLine(j.Summary, 200),
		}

		for _, w := range j.Workflows {
			name := "deepwork:" + j.Name + ":" + w.Name
			p := mcp.Prompt{Name: name, Title: j.Name + "/" + w.Name, Description: tool.OneLine(w.Summary, 200),
				Arguments: []*mcp.PromptArgument{{
					Name:        goalArgument,
					Description: "What the user wants to have at the end, in a sentence",
				}}}
			for _, a := range tool.InputArguments(&w, goalArgument) {
				p.Arguments = append(p.Arguments, &mcp.PromptArgument{
					Name:        a.Name,
					Description: tool.OneLine(a.Description, 200),
					Required:    a.Required,
				})
			}
			prompts[name] = p
		}
	}
	for name, p := range prompts {
		if old, known := l.prompts[name]; !known || !reflect.DeepEqual(old, p) {
			l.server.AddPrompt(&p, l.prompt)
		}
	}
	for uri, r := range resources {
		if old, known := l.resources[uri]; !known || old.Description != r.Description {
			l.server.AddResource(&r, l.readJob)
		}
	}
	l.server.RemovePrompts(removedKeys(l.prompts, prompts)...)
	l.server.RemoveResources(removedKeys(l.resources, resources)...)
	l.prompts, l.resources = prompts, resources
}

// removedKeys returns the keys that are in old alone.
func removedKeys[V any](old, now map[string]V) []string {
	return slices.DeleteFunc(slices.Collect(maps.Keys(old)), func(key string) bool {
		_, still := now[key]
		return still
	})
}

// prompt tells an agent to do a workflow.
func (l *library) prompt(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	jobName, workflowName, _ := strings.Cut(strings.TrimPrefix(req.Params.Name, "deepwork:"), ":")
	goal := strings.TrimSpace(req.Params.Arguments[goalArgument])
	// Claude Code passes the first word of what was typed alone; the rest is beside the prompt.
	what := "If the user typed more after the command than this goal, all of it is the goal:\n\n" + goal
	if goal == "" {
		what = "Take the goal from the conversation; if it has none, ask the user for it first."
	}

	with := ""
	if j := l.jobs(ctx).Job(jobName); j != nil && j.Workflow(workflowName) != nil {
		with = inputsOf(j.Workflow(workflowName), req.Params.Arguments)
	}
	text := fmt.Sprintf("Do the workflow %s/%s with the tools of the server %s: call start_workflow with job_name "+
		"%q, workflow_name %q and the goal%s, do what begin_step says, report each step with finished_step, and go "+
		"on until the status is workflow_complete. Then tell the user the summary. %s",
		jobName, workflowName, ServerName, jobName, workflowName, with, what)
	return &mcp.GetPromptResult{
		Description: fmt.Sprintf("Do %s/%s", jobName, workflowName),
		Messages:    []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}},
	}, nil
}

// inputsOf tells an agent the inputs to start a workflow with, from the prompt's arguments.
func inputsOf(w *job.Workflow, arguments map[string]string) string {
	values, missing := map[string]string{}, []string{}
	for i, a := range tool.InputArguments(w, goalArgument) {
		if text := strings.TrimSpace(arguments[a.Name]); text != "" {
			values[w.Inputs[i].Name] = text
		} else if a.Required {
			missing = append(missing, w.Inputs[i].Name)
		}
	}
	text := ""
	if len(values) > 0 {
		text = fmt.Sprintf(", with the inputs %s", tool.MustJSON(values))
	}
	if len(missing) > 0 {
		text += fmt.Sprintf(" (its inputs %s are missing: take them from the conversation, or ask the user)",
			strings.Join(missing, ", "))
	}
	return text
}

// readJob returns what an agent reads at each step of a job.
func (l *library) readJob(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	j := l.jobs(ctx).Job(strings.TrimPrefix(req.Params.URI, jobURI))
	if j == nil {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}

	var b strings.Builder
	err := show.Steps(&b, j, func(s *job.Step) (*replies.StepInfo, error) { return machine.Preview(j, s) })
	if err != nil {
		fmt.Fprintf(&b, "\nNot all of it can be read: %s\n", show.Plain(err.Error()))
	}
	return textOf(req.Params.URI, b.String()), nil
}

// readSession returns a session of the caller.
func (l *library) readSession(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	s, err := l.session(ctx, session.CallerOf(ctx).Identity, strings.TrimPrefix(req.Params.URI, sessionURI))
	switch code := session.CodeOf(err); {
	case code == codes.UnknownSession || code == codes.BadSessionID:
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	case err != nil:
		return nil, &jsonrpc.Error{
			Code:    jsonrpc.CodeInternalError,
			Message: fmt.Sprintf("session %s cannot be read: %v", req.Params.URI, err),
		}
	}

	var b strings.Builder
	show.Session(show.NewScreen(&b, func(string) string { return "" }), s, "")
	return textOf(req.Params.URI, b.String()), nil
}

// The most sessions that are looked at for a completion, and the most values of one, which MCP bounds.
const (
	completedFrom = 1000
	completedMost = 100
)

// complete completes the id of a session in the URI of its resource, with those of the caller, the last moved first.
// Arguments of prompts are in the user's own words, and have no completions.
func (l *library) complete(ctx context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	values := []string{}
	if req.Params.Ref.URI == sessionTemplate {
		newest, err := l.newest(ctx, session.CallerOf(ctx).Identity, completedFrom)
		if err != nil {
			return nil, &jsonrpc.Error{
				Code:    jsonrpc.CodeInternalError,
				Message: fmt.Sprintf("the sessions cannot be read: %v", err),
			}
		}
		for _, s := range newest {
			if strings.HasPrefix(s.ID, req.Params.Argument.Value) {
				values = append(values, s.ID)
			}
		}
	}
	n := min(len(values), completedMost)
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values[:n], HasMore: n < len(values)}},
		nil
}

func textOf(uri, text string) *mcp.ReadResourceResult {
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, MIMEType: "text/plain", Text: text}}}
}

// instructionBytes bounds the instructions: clients silently cut them at 2,048 characters, some earlier.
const instructionBytes = 1800

// lifecycle is the part of the instructions that never changes (seed 000, 001.1.11).
const lifecycle = `DeepWork leads you through multi-step workflows and keeps their state on disk.

Lifecycle:
1. Discover: get_workflows lists jobs and workflows.
2. Start: start_workflow(goal, job_name, workflow_name) returns the first step.
3. Execute: do what begin_step says; write its expected outputs to files.
4. Checkpoint: finished_step(outputs, step_id) with the paths of these files.
5. Iterate: on needs_work do what feedback says, then call finished_step again.
6. Continue: on next_step do the new begin_step, then checkpoint it.
7. Complete: on workflow_complete tell the user the summary and outputs.

Nested workflows: start_workflow within a step puts a workflow on top of the stack; when it ends, the one below resumes.
Concurrent steps: do begin_step and all concurrent_steps at the same time, best with one subagent each; report ` +
	`each with its step_id.
Retries: if a reply is lost, repeat the call; step_id (finished_step) or request_id makes that safe.
Resume: after a restart, a lost connection or compaction call get_step with your session_id.`

// Instructions for the task board, if its tools are offered.
const (
	onBoardLine = "Task board: list_projects, create_task and start_task_attempt let coding agents work on tasks, " +
		"each in its own git worktree; get_attempt, get_attempt_diff and merge_attempt have their work."
	runsLine        = "Unattended: run_workflow has agents do a whole workflow; get_run and needs_attention follow it."
	elsewhereLine   = "Workflows of other systems: list_workflow_tools, call_workflow_tool, workflow_status."
	inWorkspaceLine = "This is the workspace of a task: call get_context first."
)

// instructions returns the text for a client that connects: first the part that changes, as far as
// it fits, then how to work with the offered tools.
func (s *Server) instructions(ctx context.Context) string {
	var how []string
	if s.tools.Has("get_context") {
		how = append(how, inWorkspaceLine)
	}
	if s.tools.Has("start_task_attempt") {
		how = append(how, onBoardLine+"\n"+runsLine)
	}
	if s.tools.Has("list_workflow_tools") {
		how = append(how, elsewhereLine)
	}
	if s.tools.Has("start_workflow") {
		how = append(how, lifecycle)
	}
	all := strings.Join(how, "\n\n")
	if news := s.changesPart(ctx, instructionBytes-len(all)-len("\n\n")); news != "" {
		return strings.TrimSuffix(news+"\n\n"+all, "\n\n")
	}
	return all
}

// changesPart returns the part that changes, in at most room bytes.
func (s *Server) changesPart(ctx context.Context, room int) string {
	if s.check != nil {
		if _, err := s.check(ctx); err != nil {
			return fit("The configuration of this project is not valid. Calls fail until it is corrected:",
				[]string{tool.OneLine(err.Error(), 400)}, "", room)
		}
	}

	if s.jobs == nil || !s.tools.Has("start_workflow") {
		return ""
	}

	snapshot := s.jobs(ctx)
	if n := len(snapshot.Errors); n > 0 {
		items := make([]string, 0, n)
		for _, e := range snapshot.Errors {
			items = append(items, "- "+tool.OneLine(e.JobName, 80)+": "+firstFault(e))
		}
		return fit(fmt.Sprintf("%s failed to load (the workflow deepwork_jobs/repair fixes them; get_workflows lists "+
			"all errors):", show.Count(n, "job")), items, "get_workflows lists all", room)
	}
	var items []string
	for _, j := range snapshot.Jobs {
		for _, w := range j.Workflows {
			items = append(items, fmt.Sprintf("- %s/%s: %s", j.Name, w.Name, tool.OneLine(w.Summary, 120)))
		}
	}
	if len(items) == 0 {
		return "There are no workflows yet. A job is a folder in .deepwork/jobs with a job.yml."
	}
	return fit("Workflows (job/workflow):", items, "get_workflows lists all", room)
}

func firstFault(e catalog.LoadError) string {
	for _, d := range e.Diagnostics {
		if !d.Warning {
			return tool.OneLine(d.String(), 200)
		}
	}
	return "it does not load"
}

// fit lists as many items under a title as fit into room bytes, and how many were left out.
func fit(title string, items []string, where string, room int) string {
	var b strings.Builder
	b.WriteString(title)
	for i, item := range items {
		rest := len(items) - i - 1
		need := len("\n") + len(item)
		if rest > 0 {
			need += len(more(rest, where)) // a larger number later is never longer
		}
		if b.Len()+need > room {
			b.WriteString(more(rest+1, where))
			break
		}
		b.WriteString("\n" + item)
	}

	return b.String()
}

func more(n int, where string) string { return fmt.Sprintf("\n… and %d more: %s.", n, where) }
