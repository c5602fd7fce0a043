package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/state"
	"deepwork/session/workflow/machine"
)

// A task with a workflow is to be reviewed only when that is complete. The agent and
// the deepwork it walks it with are killed the moment the last reply is there.
func TestBoardTaskWithWorkflow(t *testing.T) {
	p := newBoardProject(t)
	v := p.workflowTask("! workflow 3")
	x := p.ends(p.start(v).AttemptID)
	out := p.output(x.AttemptID)
	testkit.Need(t, x.State == "completed" && strings.Contains(out, "workflow workflow_complete"), "%+v\n%s", x, out)
	testkit.True(t, deref(x.WorkflowStatus) == "completed" && deref(x.WorkflowStep) == "three" && len(deref(x.WorkflowSession)) == 8, "%+v", x)
	now := p.getTask(v.TaskID)
	testkit.True(t, now.Status == "inreview" && deref(now.JobName) == "release", "%+v", now)
	testkit.Equal(t, x.Repos[0].ChangedCount, 0, "the workflow's sessions are among the changes: %v", x.Repos[0].ChangedFiles)
	sessions, _ := filepath.Glob(filepath.Join(x.Repos[0].WorktreePath, ".deepwork", "tmp", "session_*.json"))
	testkit.Equal(t, len(sessions), 1, "sessions in the workspace: %v", sessions)
	outside, _ := filepath.Glob(filepath.Join(p.root, ".deepwork", "tmp", "session_*.json"))
	testkit.True(t, len(outside) == 0, "sessions in the project: %v", outside)
}

// A run of the task's workflow inside another one of the same is a part of that
// one's work: its end is not the task's.
func TestBoardNestedWorkflow(t *testing.T) {
	p := newBoardProject(t)
	v := p.workflowTask("! nest 3")
	x := p.ends(p.start(v).AttemptID)
	out := p.output(x.AttemptID)
	testkit.Need(t, x.State == "completed" && strings.Contains(out, "workflow_complete"), "%+v\n%s", x, out)
	now := p.getTask(v.TaskID)
	testkit.True(t, now.Status == "inprogress" && deref(x.WorkflowStatus) == "active" && deref(x.WorkflowStep) == "one", "%+v\n%+v", now, x)
}

// An agent that stops early leaves its task inprogress with the step it stopped
// at; a follow-up goes on from there.
func TestBoardAgentStopsEarly(t *testing.T) {
	p := newBoardProject(t)
	v := p.workflowTask("! workflow 1")
	x := p.ends(p.start(v).AttemptID)
	if x.State != "completed" || deref(x.WorkflowStatus) != "active" || deref(x.WorkflowStep) != "two" {
		t.Errorf("%+v\n%s", x, p.output(x.AttemptID))
	}
	now := p.getTask(v.TaskID)
	testkit.True(t, now.Status == "inprogress" && !now.LastAttemptFailed, "%+v", now)
	boardCall[attempt.FollowUpReply](p, "follow_up", map[string]any{"attempt_id": x.AttemptID, "action": "send", "prompt": "! context\n! workflow 2"})
	x = p.ends(x.AttemptID)
	out := p.output(x.AttemptID)
	testkit.ContainsAll(t, out, []string{`"workflow_session_id":"` + deref(x.WorkflowSession), `"workflow_step":"two"`}, "get_context")
	if now := p.getTask(v.TaskID); now.Status != "inreview" || deref(x.WorkflowStatus) != "completed" {
		t.Errorf("%+v %+v\n%s", now, x, out)
	}
	p.refused("create_task", map[string]any{"project_id": p.project, "title": "x", "job_name": "release", "workflow_name": "none"}, "ToolError", "Workflow 'none' not found")
	p.refused("create_task", map[string]any{"project_id": p.project, "title": "x", "job_name": "none", "workflow_name": "w"}, "ToolError", "Job not found: none")
	p.refused("create_task", map[string]any{"project_id": p.project, "title": "x", "job_name": "release"}, "ToolError", "workflow_name")
}

// A server on a project makes a database only when that is used.
func TestDatabaseIsMadeWhenItIsUsed(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	client, _ := startClient(t, root)
	testkit.Get(client.ListTools(t.Context(), nil)).Must(t)
	board := state.Of(root).Database()
	_, err := os.Stat(board)
	testkit.Need(t, os.IsNotExist(err), "there is a database: %v", err)
	callTool(t, client, "list_projects", map[string]any{})
	testkit.Works(t, testkit.Get(os.Stat(board)).Err())
}

// An agent whose own settings name servers of other projects, or of its project outside the
// worktree: their sessions, earlier ones and those that the agent begins there, are not the attempt's.
func TestBoardServersElsewhere(t *testing.T) {
	onPostgres(t)
	p := newBoardProject(t)
	other := filepath.Join(p.root, "..", "other")
	writeFiles(t, other, map[string]string{".deepwork/jobs/release/job.yml": jobText("release", "one", "two"), ".deepwork/jobs/release/a.md": "Do it."})
	p.git(other, "init", "-q")
	p.git(other, "commit", "-q", "--allow-empty", "-m", "other")
	var aborted []string
	for _, root := range []string{other, p.root} {
		before, _ := startClient(t, root)
		callTool(t, before, "start_workflow", map[string]any{"goal": "g", "job_name": "release", "workflow_name": "w"})
		aborted = append(aborted, string(callTool(t, before, "abort_workflow", map[string]any{"explanation": "old"})))
		before.Close()
	}
	begin := ` start_workflow {"goal":"g","job_name":"release","workflow_name":"w"}`
	v := p.workflowTask("! at "+other+" get_workflows {}", "! at "+p.root+" get_workflows {}", "! at "+other+begin, "! at "+p.root+begin,
		"! at "+other+" get_context {}", `! at `+p.root+` start_task_attempt {"task_id":"`+p.project+`","executor":"CODER","repos":[]}`)
	x := p.ends(p.start(v).AttemptID)
	out := p.output(x.AttemptID)
	testkit.True(t, x.State == "completed" && x.WorkflowSession == nil && x.WorkflowStatus == nil, "%+v\nbefore: %s\n%s", x, aborted, out)
	now := p.getTask(v.TaskID)
	testkit.True(t, now.Status == "inprogress", "%+v", now)
	if strings.Count(out, `start_workflow said {"begin_step"`) != 2 || !strings.Contains(out, `unknown tool "get_context"`) || !strings.Contains(out, "start_task_attempt said StateError: An agent that works on an attempt cannot start agents.") {
		t.Errorf("the agent's calls:\n%s", out)
	}
}

// The scenarios of seed 004, through a server of the built binary, with a real git
// repository and a real agent.
func TestReq004_Scenarios(t *testing.T) {
	p := newBoardProject(t)
	for _, s := range []struct {
		name string
		run  func(*testing.T, *boardProject)
	}{
		{"TaskListIncludesLatestAttemptInfo", taskList}, // it counts the tasks, and so comes first
		{"AttemptsReturnedWithSessionSummary", sessionSummary},
		{"SendFollowUpByWorkspaceID", sends},
		{"QueueFollowUpBySessionID", queues},
		{"CancelQueuedFollowUp", cancels},
		{"ContextReturnsUnifiedAttemptData", unifiedContext},
	} {
		t.Run(s.name, func(t *testing.T) {
			p.t = t
			s.run(t, p)
		})
	}
	for _, text := range p.received { // NoWorkspaceIDInReplies
		testkit.True(t, !strings.Contains(text, `"workspace_id`), "workspace_id in %s", text)
	}
}

func taskList(t *testing.T, p *boardProject) {
	v := p.task("! write a.txt one")
	idle := p.task("nothing is attempted of it")
	p.ends(p.start(v).AttemptID)
	second := p.ends(p.start(v).AttemptID)
	r := boardCall[board.TasksReply](p, "list_tasks", map[string]any{"project_id": p.project})
	testkit.Need(t, r.Count == 2 && r.Total == 2 && r.Tasks[0].TaskID == idle.TaskID && r.Tasks[1].TaskID == v.TaskID && r.Filters.ProjectID == p.project, "%+v", r)
	if got := r.Tasks[0]; got.LatestAttemptID != nil || got.LatestWorkspaceBranch != nil || got.LatestSessionID != nil || got.LatestSessionExecutor != nil || got.HasInProgressAttempt || got.LastAttemptFailed {
		t.Errorf("of a task without attempts: %+v", got)
	}
	if got := r.Tasks[1]; deref(got.LatestAttemptID) != second.AttemptID || deref(got.LatestWorkspaceBranch) != second.WorkspaceBranch ||
		deref(got.LatestSessionID) != deref(second.LatestSessionID) || deref(got.LatestSessionExecutor) != "CODER" || got.HasInProgressAttempt || got.LastAttemptFailed || got.Status != "inreview" {
		t.Errorf("the latest of two: %+v, want %+v", got, second)
	}
	only := boardCall[board.TasksReply](p, "list_tasks", map[string]any{"project_id": p.project, "status": "todo", "limit": 1})
	testkit.True(t, only.Total == 1 && only.Tasks[0].TaskID == idle.TaskID && deref(only.Filters.Status) == "todo", "%+v", only)
	failed := p.task("! exit 3")
	x := p.ends(p.start(failed).AttemptID)
	testkit.True(t, x.State == "failed" && *x.ExitCode == 3, "%+v", x)
	got := p.getTask(failed.TaskID)
	testkit.True(t, got.LastAttemptFailed && got.Status == "inprogress", "after a failure: %+v", got)
}

func sessionSummary(t *testing.T, p *boardProject) {
	v := p.task("! say hi")
	first, second := p.ends(p.start(v).AttemptID), p.ends(p.start(v).AttemptID)
	r := boardCall[board.AttemptsReply](p, "list_task_attempts", map[string]any{"task_id": v.TaskID})
	if r.Count != 2 || r.Attempts[0].AttemptID != second.AttemptID || r.Attempts[1].AttemptID != first.AttemptID ||
		deref(r.LatestAttemptID) != second.AttemptID || deref(r.LatestSessionID) != deref(second.LatestSessionID) || second.LatestSessionID == nil {
		t.Fatalf("%+v", r)
	}
	for _, a := range r.Attempts {
		for _, at := range []string{a.CreatedAt, a.UpdatedAt} {
			testkit.Works(t, testkit.Get(time.Parse(time.RFC3339, at)).Err())
		}
		testkit.True(t, strings.HasPrefix(a.WorkspaceBranch, "deepwork/add-a-basket-") && deref(a.LatestSessionExecutor) == "CODER", "%+v", a)
	}
}

// Also "Workspace has no sessions": a follow-up is then an explicit error.
func TestReq004_AttemptHasNoSessions(t *testing.T) {
	p := newBoardProject(t, "attempts: {max_concurrent: 1}\n")
	gate, open := p.gate("go")
	busy := p.start(p.task("! await " + gate))
	p.reaches(busy.AttemptID, "running")
	v := p.task("! say hi")
	waits := p.start(v)
	testkit.True(t, waits.State == "queued" && waits.Notice != nil && strings.Contains(*waits.Notice, "1 of 1"), "%+v", waits)
	r := boardCall[board.AttemptsReply](p, "list_task_attempts", map[string]any{"task_id": v.TaskID})
	testkit.True(t, r.LatestSessionID == nil && r.Attempts[0].LatestSessionID == nil && deref(r.LatestAttemptID) == waits.AttemptID, "%+v", r)
	for _, name := range []string{"attempt_id", "workspace_id"} {
		p.refused("follow_up", map[string]any{name: waits.AttemptID, "action": "send", "prompt": "more"}, "StateError", "has no session", waits.AttemptID)
	}
	open()
	p.ends(busy.AttemptID)
	testkit.Equal(t, p.ends(waits.AttemptID).State, "completed", "what waited did not run")
}

func sends(t *testing.T, p *boardProject) {
	v := p.task("! say first")
	x := p.ends(p.start(v).AttemptID)
	args := map[string]any{"action": "send", "prompt": "! say second", "variant": "PLAN", "workspace_id": x.AttemptID}
	r := boardCall[attempt.FollowUpReply](p, "follow_up", args)
	testkit.True(t, r.Status == "started" && r.SessionID == *x.LatestSessionID && r.Action == "send", "%+v", r)
	p.ends(x.AttemptID)
	testkit.Contains(t, p.output(x.AttemptID), "coder plan-resumed\nsecond", "output")
	p.refused("follow_up", map[string]any{"action": "send", "attempt_id": x.AttemptID, "prompt": "x", "variant": "NONE"}, "ToolError")
}

func queues(t *testing.T, p *boardProject) {
	gate, open := p.gate("queued")
	v := p.task("! await " + gate)
	id := p.start(v).AttemptID
	x := p.reaches(id, "running")
	follow := func(action, prompt string) *attempt.FollowUpReply {
		t.Helper()
		return boardCall[attempt.FollowUpReply](p, "follow_up", map[string]any{"session_id": *x.LatestSessionID, "action": action, "prompt": prompt})
	}
	p.refused("follow_up", map[string]any{"session_id": *x.LatestSessionID, "action": "send", "prompt": "x"}, "StateError", "queue")
	r := follow("queue", "! say second")
	testkit.True(t, r.Status == "queued" && deref(r.QueuedPrompt) == "! say second", "%+v", r)
	if r := follow("queue", "! say third"); r.Status != "queued" || deref(r.DroppedPrompt) != "! say second" || !strings.Contains(deref(r.Notice), "second") {
		t.Errorf("a second one: %+v", r)
	}
	q := p.get(id).QueuedFollowUp
	testkit.True(t, q != nil && q.Prompt == "! say third", "%+v", q)
	open()
	p.eventually(func() string {
		if out := p.output(id); !strings.Contains(out, "coder resumed\nthird\nall done") {
			return "output:\n" + out
		}
		return ""
	})
	p.ends(id)
	out := p.output(id)
	testkit.True(t, !strings.Contains(out, "\nsecond"), "what was replaced ran:\n%s", out)
	now := p.getTask(v.TaskID)
	testkit.True(t, now.Status == "inreview", "%+v", now)
}

func cancels(t *testing.T, p *boardProject) {
	gate, open := p.gate("cancelled")
	id := p.start(p.task("! await " + gate)).AttemptID
	p.reaches(id, "running")
	follow := func(args map[string]any) *attempt.FollowUpReply {
		t.Helper()
		args["attempt_id"] = id
		return boardCall[attempt.FollowUpReply](p, "follow_up", args)
	}
	follow(map[string]any{"action": "queue", "prompt": "! say second"})
	r := follow(map[string]any{"action": "cancel"})
	testkit.True(t, r.Status == "cancelled" && deref(r.DroppedPrompt) == "! say second" && r.QueuedPrompt == nil, "%+v", r)
	if r := follow(map[string]any{"action": "cancel"}); r.Status != "empty" {
		t.Errorf("with nothing queued: %+v", r)
	}
	open()
	p.ends(id)
	out := p.output(id)
	testkit.True(t, !strings.Contains(out, "second"), "what was cancelled ran:\n%s", out)
}

func unifiedContext(t *testing.T, p *boardProject) {
	v := p.task("! context")
	x := p.ends(p.start(v).AttemptID)
	_, text, found := strings.Cut(p.output(x.AttemptID), "context ")
	if !found || x.State != "completed" {
		t.Fatalf("%+v\n%s", x, p.output(x.AttemptID))
	}
	for _, want := range []string{`"project_id":"` + p.project, `"project_name":"shop"`, `"task_id":"` + v.TaskID, `"task_title":"Add a basket"`, `"task_status":"inprogress"`,
		`"attempt_id":"` + x.AttemptID, `"workspace_branch":"` + x.WorkspaceBranch, `"repo_id":"` + p.repo, `"repo_name":"shop"`, `"target_branch":"main"`} {
		testkit.Contains(t, text, want)
	}
	testkit.Equal(t, x.Repos[0].ChangedCount, 0, "a server in the workspace left changes: %v", x.Repos[0].ChangedFiles)
	p.refusedOutside()
}

// refusedOutside: if there is no workspace there is no get_context.
func (p *boardProject) refusedOutside() {
	p.t.Helper()
	tools := testkit.Get(p.client.ListTools(p.t.Context(), nil)).Must(p.t)
	for _, tool := range tools.Tools {
		testkit.True(p.t, tool.Name != "get_context", "get_context is offered outside of a workspace")
	}
}

// Outputs of earlier steps that no longer exist when the workflow ends are named in the summary, and
// a repeated call gets the same reply. The last step's own output is checked by the call itself.
func TestLostOutputsAreNamedInTheSummary(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/trip/job.yml": strings.ReplaceAll(jobText("trip", "one", "two", "three"), "outputs: {}", "outputs: {out: {type: file, description: A}}"), "kept.md": "x", "gone.md": "x", "away.md": "x",
		".deepwork/jobs/trip/a.md": "Do it.\n",
	})
	client, _ := startClient(t, root)
	var began machine.StartReply
	must(t, json.Unmarshal(callTool(t, client, "start_workflow", map[string]any{"goal": "g", "job_name": "trip", "workflow_name": "w"}), &began))
	finishAt := func(server *mcp.ClientSession, step, path string) (r *machine.FinishReply) {
		t.Helper()
		must(t, json.Unmarshal(callTool(t, server, "finished_step", map[string]any{
			"session_id": began.BeginStep.SessionID, "step_id": step, "outputs": map[string]string{"out": path}}), &r))
		return r
	}
	finish := func(step, path string) *machine.FinishReply { return finishAt(client, step, path) }
	finish("one", "gone.md")
	other, _ := startClient(t, root) // any server serves the session
	finishAt(other, "two", "away.md")

	outside := filepath.Join(t.TempDir(), "away.md")
	must(t, os.Rename(filepath.Join(root, "away.md"), outside))
	if err := os.Symlink(outside, filepath.Join(root, "away.md")); err != nil {
		t.Skip(err)
	}
	must(t, os.Remove(filepath.Join(root, "gone.md")))
	last := finish("three", "kept.md")
	testkit.Need(t, last.Status == machine.WorkflowComplete && last.Summary != nil, "the last step: %+v", last)
	testkit.ContainsAll(t, *last.Summary, []string{"'gone.md' (output 'out' of step 'one')", "'away.md' (output 'out' of step 'two')"}, "the summary")
	testkit.True(t, !strings.Contains(*last.Summary, "kept.md"), "the summary names a file that exists: %s", *last.Summary)
	writeFiles(t, root, map[string]string{"gone.md": "back"})
	again := finish("three", "kept.md")
	testkit.True(t, *again.Summary == *last.Summary, "the repeated call got another summary: %s", *again.Summary)
}
