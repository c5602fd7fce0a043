package transport

import (
	"context"
	"fmt"
	"strings"

	"deepwork/catalog"
	"deepwork/transport/tool"
)

// instructionBytes is where clients silently cut instructions. They count characters; a limit in
// bytes is at least as strict.
const instructionBytes = 2047

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
Concurrent steps: do begin_step and all concurrent_steps at the same time, best with one subagent each; report each with its step_id.
Retries: if a reply is lost, repeat the call; step_id (finished_step) or request_id makes that safe.
Resume: after a restart, a lost connection or compaction call get_step with your session_id.`

// Instructions for the task board, if its tools are offered.
const (
	onBoardLine     = "Task board: list_projects, create_task and start_task_attempt let coding agents work on tasks, each in its own git worktree."
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
		how = append(how, onBoardLine)
	}
	if s.tools.Has("start_workflow") {
		how = append(how, lifecycle)
	}
	all := strings.Join(how, "\n\n")
	if news := s.news(ctx, instructionBytes-len(all)-len("\n\n")); news != "" {
		return strings.TrimSuffix(news+"\n\n"+all, "\n\n")
	}
	return all
}

// news returns the part that changes, in at most room bytes.
func (s *Server) news(ctx context.Context, room int) string {
	if s.check != nil {
		if _, err := s.check(ctx); err != nil {
			return fit("The configuration of this project is not valid. Calls fail until it is corrected:", []string{tool.OneLine(err.Error(), 400)}, "", room)
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
		return fit(fmt.Sprintf("%s failed to load (the workflow deepwork_jobs/repair fixes them; get_workflows lists all faults):", count(n, "job", "jobs")), items, "get_workflows lists all", room)
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

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
