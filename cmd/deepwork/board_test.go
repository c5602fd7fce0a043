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
	"deepwork/session/workflow/machine"
)

// A task with a workflow is to be reviewed only when that is complete. The agent and the deepwork it walks it with are
// killed the moment the last reply is there.
func TestBoardTaskWithWorkflow(t *testing.T) {
	t.Parallel()
	p := newBoardProject(t)
	done := func(orders, task, workflow, step string) (*board.Task, *attempt.AttemptReply, string) {
		t.Helper()
		v := p.workflowTask(orders)
		x := p.ends(p.start(v).AttemptID)
		out, now := p.output(x.AttemptID), p.getTask(v.TaskID)
		testkit.True(t, x.State == "completed" && now.Status == task && deref(x.WorkflowStatus) == workflow && deref(x.WorkflowStep) == step && !now.LastAttemptFailed, "%+v\n%+v\n%s", now, x, out)
		return now, x, out
	}
	now, x, out := done("! workflow 3", "inreview", "completed", "three")
	testkit.Contains(t, out, "workflow workflow_complete")
	testkit.True(t, len(deref(x.WorkflowSession)) == 8 && deref(now.JobName) == "release", "%+v\n%+v", now, x)
	testkit.Equal(t, x.Repos[0].ChangedCount, 0, "the workflow's sessions are among the changes: %v", x.Repos[0].ChangedFiles)
	testkit.Equal(t, len(glob(x.Repos[0].WorktreePath, ".deepwork", "tmp", "session_*.json")), 1, "sessions in the workspace")
	testkit.Equal(t, len(glob(p.root, ".deepwork", "tmp", "session_*.json")), 0, "sessions in the project")

	// A run of the task's workflow inside another one of the same is a part of that one's work: its end is not the task's.
	_, _, out = done("! nest 3", "inprogress", "active", "one")
	testkit.Contains(t, out, "workflow_complete")

	// An agent that stops early leaves its task inprogress with the step it stopped at; a follow-up goes on from there.
	_, x, _ = done("! workflow 1", "inprogress", "active", "two")
	boardCall[attempt.FollowUpReply](p, "follow_up", map[string]any{"attempt_id": x.AttemptID, "action": "send", "prompt": "! context\n! workflow 2"})
	x = p.ends(x.AttemptID)
	testkit.ContainsAll(t, p.output(x.AttemptID), []string{`"workflow_session_id":"` + deref(x.WorkflowSession), `"workflow_step":"two"`}, "get_context")
	testkit.Equal(t, p.getTask(x.TaskID).Status+deref(x.WorkflowStatus), "inreviewcompleted")
	for want, of := range map[string][2]string{"Workflow 'none' not found": {"release", "none"}, "Job not found: none": {"none", "w"}, "workflow_name": {"release"}} {
		args := map[string]any{"project_id": p.project, "title": "x", "job_name": of[0], "workflow_name": of[1]}
		if of[1] == "" {
			delete(args, "workflow_name")
		}
		p.refused("create_task", args, "ToolError", want)
	}
}

// An agent whose own settings name servers of other projects, or of its project outside the
// worktree: their sessions, earlier ones and those that the agent begins there, are not the attempt's.
func TestBoardServersElsewhere(t *testing.T) {
	onPostgres(t)
	p := newBoardProject(t)
	other := filepath.Join(p.root, "..", "other")
	writeFiles(t, other, map[string]string{".deepwork/jobs/release/job.yml": jobText("release", "one", "two"), ".deepwork/jobs/release/a.md": "Do it."})
	inGit(t, other)
	const workflow = `{"goal":"g","job_name":"release","workflow_name":"w"}`
	for _, root := range []string{other, p.root} {
		before, _ := startClient(t, root)
		callTool(t, before, "start_workflow", json.RawMessage(workflow))
		callTool(t, before, "abort_workflow", map[string]any{"explanation": "old"})
		before.Close()
	}
	v := p.workflowTask("! at "+other+" get_workflows {}", "! at "+p.root+" get_workflows {}", "! at "+other+" start_workflow "+workflow, "! at "+p.root+" start_workflow "+workflow,
		"! at "+other+" get_context {}", `! at `+p.root+` start_task_attempt {"task_id":"`+p.project+`","executor":"CODER","repos":[]}`)
	x := p.ends(p.start(v).AttemptID)
	out := p.output(x.AttemptID)
	testkit.True(t, x.State == "completed" && x.WorkflowSession == nil && x.WorkflowStatus == nil, "%+v\n%s", x, out)
	testkit.Equal(t, p.getTask(v.TaskID).Status, "inprogress")
	testkit.Equal(t, strings.Count(out, `start_workflow said {"begin_step"`), 2, "%s", out)
	testkit.ContainsAll(t, out, []string{`unknown tool "get_context"`, "start_task_attempt said StateError: An agent that works on an attempt cannot start agents."})
}

// The scenarios of seed 004, through a server of the built binary, with a real git
// repository and a real agent.
func TestReq004_Scenarios(t *testing.T) {
	t.Parallel()
	p := newBoardProject(t)
	scenario := func(name string, run func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			p.t = t
			run(t)
		})
	}
	follow := func(args map[string]any) *attempt.FollowUpReply {
		p.t.Helper()
		return boardCall[attempt.FollowUpReply](p, "follow_up", args)
	}
	scenario("TaskListIncludesLatestAttemptInfo", func(t *testing.T) { // it counts the tasks, and so comes first
		v := p.task("! write a.txt one")
		idle := p.task("nothing is attempted of it")
		p.ends(p.start(v).AttemptID)
		second := p.ends(p.start(v).AttemptID)
		r := boardCall[board.TasksReply](p, "list_tasks", map[string]any{"project_id": p.project})
		testkit.Need(t, r.Count == 2 && r.Total == 2 && r.Tasks[0].TaskID == idle.TaskID && r.Tasks[1].TaskID == v.TaskID && r.Filters.ProjectID == p.project, "%+v", r)
		got := r.Tasks[0]
		testkit.True(t, got.LatestAttemptID == nil && got.LatestWorkspaceBranch == nil && got.LatestSessionID == nil && got.LatestSessionExecutor == nil, "of a task without attempts: %+v", got)
		testkit.True(t, !got.HasInProgressAttempt && !got.LastAttemptFailed, "of a task without attempts: %+v", got)
		got = r.Tasks[1]
		testkit.Same(t, []string{deref(got.LatestAttemptID), deref(got.LatestWorkspaceBranch), deref(got.LatestSessionID), deref(got.LatestSessionExecutor), got.Status},
			[]string{second.AttemptID, second.WorkspaceBranch, deref(second.LatestSessionID), "CODER", "inreview"}, "the latest of two")
		testkit.True(t, !got.HasInProgressAttempt && !got.LastAttemptFailed, "the latest of two: %+v", got)
		only := boardCall[board.TasksReply](p, "list_tasks", map[string]any{"project_id": p.project, "status": "todo", "limit": 1})
		testkit.True(t, only.Total == 1 && only.Tasks[0].TaskID == idle.TaskID && deref(only.Filters.Status) == "todo", "%+v", only)
		failed := p.task("! exit 3")
		x := p.ends(p.start(failed).AttemptID)
		testkit.True(t, x.State == "failed" && *x.ExitCode == 3, "%+v", x)
		now := p.getTask(failed.TaskID)
		testkit.True(t, now.LastAttemptFailed && now.Status == "inprogress", "after a failure: %+v", now)
	})
	scenario("AttemptsReturnedWithSessionSummary", func(t *testing.T) {
		v := p.task("! say hi")
		first, second := p.ends(p.start(v).AttemptID), p.ends(p.start(v).AttemptID)
		r := boardCall[board.AttemptsReply](p, "list_task_attempts", map[string]any{"task_id": v.TaskID})
		testkit.Need(t, r.Count == 2 && second.LatestSessionID != nil, "%+v", r)
		testkit.Same(t, []string{r.Attempts[0].AttemptID, r.Attempts[1].AttemptID, deref(r.LatestAttemptID), deref(r.LatestSessionID)},
			[]string{second.AttemptID, first.AttemptID, second.AttemptID, deref(second.LatestSessionID)})
		for _, a := range r.Attempts {
			testkit.Works(t, testkit.Get(time.Parse(time.RFC3339, a.CreatedAt)).Err())
			testkit.Works(t, testkit.Get(time.Parse(time.RFC3339, a.UpdatedAt)).Err())
			testkit.True(t, strings.HasPrefix(a.WorkspaceBranch, "deepwork/add-a-basket-") && deref(a.LatestSessionExecutor) == "CODER", "%+v", a)
		}
	})
	scenario("SendFollowUpByWorkspaceID", func(t *testing.T) {
		x := p.ends(p.start(p.task("! say first")).AttemptID)
		r := follow(map[string]any{"action": "send", "prompt": "! say second", "variant": "PLAN", "workspace_id": x.AttemptID})
		testkit.True(t, r.Status == "started" && r.SessionID == *x.LatestSessionID && r.Action == "send", "%+v", r)
		p.ends(x.AttemptID)
		testkit.Contains(t, p.output(x.AttemptID), "coder plan-resumed\nsecond", "output")
		p.refused("follow_up", map[string]any{"action": "send", "attempt_id": x.AttemptID, "prompt": "x", "variant": "NONE"}, "ToolError")
	})
	scenario("QueueFollowUpBySessionID", func(t *testing.T) {
		gate, open := p.gate("queued")
		v := p.task("! await " + gate)
		id := p.start(v).AttemptID
		session := *p.reaches(id, "running").LatestSessionID
		p.refused("follow_up", map[string]any{"session_id": session, "action": "send", "prompt": "x"}, "StateError", "queue")
		r := follow(map[string]any{"session_id": session, "action": "queue", "prompt": "! say second"})
		testkit.Equal(t, r.Status+deref(r.QueuedPrompt), "queued! say second")
		r = follow(map[string]any{"session_id": session, "action": "queue", "prompt": "! say third"})
		testkit.Equal(t, r.Status+deref(r.DroppedPrompt), "queued! say second")
		testkit.Contains(t, deref(r.Notice), "second")
		testkit.Equal(t, p.get(id).QueuedFollowUp.Prompt, "! say third")
		open()
		eventually(t, func() (bool, any) {
			out := p.output(id)
			return strings.Contains(out, "coder resumed\nthird\nall done"), out
		})
		p.ends(id)
		testkit.True(t, !strings.Contains(p.output(id), "\nsecond"), "what was replaced ran")
		testkit.Equal(t, p.getTask(v.TaskID).Status, "inreview")
	})
	scenario("CancelQueuedFollowUp", func(t *testing.T) {
		gate, open := p.gate("cancelled")
		id := p.start(p.task("! await " + gate)).AttemptID
		p.reaches(id, "running")
		follow(map[string]any{"attempt_id": id, "action": "queue", "prompt": "! say second"})
		r := follow(map[string]any{"attempt_id": id, "action": "cancel"})
		testkit.True(t, r.Status == "cancelled" && deref(r.DroppedPrompt) == "! say second" && r.QueuedPrompt == nil, "%+v", r)
		testkit.Equal(t, follow(map[string]any{"attempt_id": id, "action": "cancel"}).Status, "empty", "with nothing queued")
		open()
		p.ends(id)
		testkit.True(t, !strings.Contains(p.output(id), "second"), "what was cancelled ran")
	})
	scenario("ContextReturnsUnifiedAttemptData", func(t *testing.T) {
		v := p.task("! context")
		x := p.ends(p.start(v).AttemptID)
		_, text, _ := strings.Cut(p.output(x.AttemptID), "context ")
		testkit.ContainsAll(t, text, []string{`"project_id":"` + p.project, `"project_name":"shop"`, `"task_id":"` + v.TaskID, `"task_title":"Add a basket"`, `"task_status":"inprogress"`,
			`"attempt_id":"` + x.AttemptID, `"workspace_branch":"` + x.WorkspaceBranch, `"repo_id":"` + p.repo, `"repo_name":"shop"`, `"target_branch":"main"`})
		testkit.Equal(t, x.Repos[0].ChangedCount, 0, "a server in the workspace left changes: %v", x.Repos[0].ChangedFiles)
		for _, tool := range testkit.Get(p.client.ListTools(t.Context(), nil)).Must(t).Tools {
			testkit.True(t, tool.Name != "get_context", "get_context is offered outside of a workspace")
		}
	})
	for _, text := range p.received { // NoWorkspaceIDInReplies
		testkit.True(t, !strings.Contains(text, `"workspace_id`), "workspace_id in %s", text)
	}
}

// Also "Workspace has no sessions": a follow-up is then an explicit error.
func TestReq004_AttemptHasNoSessions(t *testing.T) {
	t.Parallel()
	p := newBoardProject(t, "attempts: {max_concurrent: 1}\n")
	gate, open := p.gate("go")
	busy := p.start(p.task("! await " + gate))
	p.reaches(busy.AttemptID, "running")
	v := p.task("! say hi")
	waits := p.start(v)
	testkit.True(t, waits.State == "queued" && strings.Contains(deref(waits.Notice), "1 of 1"), "%+v", waits)
	r := boardCall[board.AttemptsReply](p, "list_task_attempts", map[string]any{"task_id": v.TaskID})
	testkit.True(t, r.LatestSessionID == nil && r.Attempts[0].LatestSessionID == nil && deref(r.LatestAttemptID) == waits.AttemptID, "%+v", r)
	for _, name := range []string{"attempt_id", "workspace_id"} {
		p.refused("follow_up", map[string]any{name: waits.AttemptID, "action": "send", "prompt": "more"}, "StateError", "has no session", waits.AttemptID)
	}
	open()
	p.ends(busy.AttemptID)
	testkit.Equal(t, p.ends(waits.AttemptID).State, "completed", "what waited did not run")
}

// Outputs of earlier steps that no longer exist when the workflow ends are named in the summary, and
// a repeated call gets the same reply. The last step's own output is checked by the call itself.
func TestLostOutputsAreNamedInTheSummary(t *testing.T) {
	t.Parallel()
	root := projectOf(t, reviewedJob("one", "[]", "one", "two", "three"), "kept.md", "x", "gone.md", "x", "away.md", "x")
	client, _ := startClient(t, root)
	id := beginSession(t, client, "one", "g")
	finish := func(server *mcp.ClientSession, step, path string) (r *machine.FinishReply) {
		t.Helper()
		must(t, json.Unmarshal(callTool(t, server, "finished_step", map[string]any{"session_id": id, "step_id": step, "outputs": map[string]string{"out": path}}), &r))
		return r
	}
	finish(client, "one", "gone.md")
	other, _ := startClient(t, root) // any server serves the session
	finish(other, "two", "away.md")

	outside := filepath.Join(t.TempDir(), "away.md")
	must(t, os.Rename(filepath.Join(root, "away.md"), outside))
	if err := os.Symlink(outside, filepath.Join(root, "away.md")); err != nil {
		t.Skip(err)
	}
	must(t, os.Remove(filepath.Join(root, "gone.md")))
	last := finish(client, "three", "kept.md")
	testkit.Need(t, last.Status == machine.WorkflowComplete && last.Summary != nil, "the last step: %+v", last)
	testkit.ContainsAll(t, *last.Summary, []string{"'gone.md' (output 'out' of step 'one')", "'away.md' (output 'out' of step 'two')"}, "the summary")
	testkit.True(t, !strings.Contains(*last.Summary, "kept.md"), "the summary names a file that exists: %s", *last.Summary)
	writeFiles(t, root, map[string]string{"gone.md": "back"})
	testkit.Equal(t, *finish(client, "three", "kept.md").Summary, *last.Summary, "the repeated call")
}
