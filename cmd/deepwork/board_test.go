package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session/attempt"
	"deepwork/session/attempt/runner"
	"deepwork/session/board"
	"deepwork/session/replies"
	"deepwork/session/state"
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
		testkit.Equal(t, x.State, "completed")
		testkit.Equal(t, now.Status, task)
		testkit.Equal(t, deref(x.WorkflowStatus), workflow)
		testkit.Equal(t, deref(x.WorkflowStep), step)
		testkit.True(t, !now.LastAttemptFailed, "%+v\n%+v\n%s", now, x, out)
		return now, x, out
	}
	now, x, out := done("! workflow 3", "inreview", "completed", "three")
	testkit.Contains(t, out, "workflow workflow_complete")
	testkit.True(t, len(deref(x.WorkflowSession)) == 8 && deref(now.JobName) == "release", "%+v\n%+v", now, x)
	testkit.Equal(t, x.Repos[0].ChangedCount, 0, "the workflow's sessions are among the changes: %v",
		x.Repos[0].ChangedFiles)
	testkit.Equal(t, len(glob(x.Repos[0].WorktreePath, ".deepwork", "tmp", "session_*.json")), 1,
		"sessions in the workspace")
	testkit.Equal(t, len(glob(p.root, ".deepwork", "tmp", "session_*.json")), 0, "sessions in the project")

	// A run of the task's workflow inside another one of the same is a part of that one's work: its end is
	// not the task's.
	_, _, out = done("! nest 3", "inprogress", "active", "one")
	testkit.Contains(t, out, "workflow_complete")

	// An agent that stops early leaves its task inprogress with the step it stopped at; a follow-up goes on from there.
	_, x, _ = done("! workflow 1", "inprogress", "active", "two")
	boardCall[attempt.FollowUpReply](p, "follow_up",
		map[string]any{"attempt_id": x.AttemptID, "action": "send", "prompt": "! context\n! workflow 2"})
	x = p.ends(x.AttemptID)
	testkit.ContainsAll(t, p.output(x.AttemptID),
		[]string{`"workflow_session_id":"` + deref(x.WorkflowSession), `"workflow_step":"two"`}, "get_context")
	testkit.Equal(t, p.getTask(x.TaskID).Status+deref(x.WorkflowStatus), "inreviewcompleted")

	for want, of := range map[string][2]string{
		"Workflow 'none' not found": {"release", "none"},
		"Job not found: none":       {"none", "w"},
		"workflow_name":             {"release"},
	} {
		args := map[string]any{"project_id": p.project, "title": "x", "job_name": of[0], "workflow_name": of[1]}
		if of[1] == "" {
			delete(args, "workflow_name")
		}
		p.refused("create_task", args, "ToolError", want)
	}
}

// Sessions that an agent begins with servers elsewhere, and earlier ones there, are not the attempt's: of
// another project, and of its own outside of the worktree.
func TestBoardServersElsewhere(t *testing.T) {
	t.Parallel()
	p := newBoardProject(t)
	other := projectOf(t, jobText("one", "a"))
	var orders []string
	for root, job := range map[string]string{other: "one", p.root: "release"} {
		before, _ := startClient(t, root)
		beginSession(t, before, job, "g")
		callTool(t, before, "abort_workflow", map[string]any{"explanation": "old"})
		must(t, before.Close())
		orders = append(orders, "! at "+root+" get_workflows {}",
			"! at "+root+` start_workflow {"goal":"g","job_name":"`+job+`","workflow_name":"w"}`)
	}
	v := p.workflowTask(append(orders, "! at "+other+" get_context {}",
		"! at "+p.root+` start_task_attempt {"task_id":"`+p.project+`","executor":"CODER","repos":[]}`)...)
	x := p.ends(p.start(v).AttemptID)
	out, now := p.output(x.AttemptID), p.getTask(v.TaskID)
	testkit.Equal(t, x.State, "completed")
	testkit.Need(t, x.WorkflowSession == nil, "%+v\n%+v\n%s", x, now, out)
	testkit.Need(t, x.WorkflowStatus == nil, "%+v\n%+v\n%s", x, now, out)
	testkit.Equal(t, now.Status, "inprogress")
	testkit.Equal(t, strings.Count(out, `start_workflow said {"begin_step"`), 2, "%s", out)
	testkit.ContainsAll(t, out, []string{`unknown tool "get_context"`,
		"start_task_attempt said StateError: An agent that works on an attempt cannot start agents."})
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
		testkit.Need(t, r.Count == 2, "%+v", r)
		testkit.Need(t, r.Total == 2, "%+v", r)
		testkit.Need(t, r.Tasks[0].TaskID == idle.TaskID, "%+v", r)
		testkit.Need(t, r.Tasks[1].TaskID == v.TaskID, "%+v", r)
		testkit.Need(t, r.Filters.ProjectID == p.project, "%+v", r)

		got := r.Tasks[0]
		testkit.Need(t, got.LatestAttemptID == nil, "of a task without attempts: %+v", got)
		testkit.Need(t, got.LatestWorkspaceBranch == nil, "of a task without attempts: %+v", got)
		testkit.Need(t, got.LatestSessionID == nil, "of a task without attempts: %+v", got)
		testkit.True(t, got.LatestSessionExecutor == nil, "of a task without attempts: %+v", got)
		testkit.True(t, !got.HasInProgressAttempt && !got.LastAttemptFailed, "of a task without attempts: %+v", got)
		got = r.Tasks[1]
		testkit.Same(t, []string{deref(got.LatestAttemptID), deref(got.LatestWorkspaceBranch),
			deref(got.LatestSessionID), deref(got.LatestSessionExecutor), got.Status},
			[]string{second.AttemptID, second.WorkspaceBranch, deref(second.LatestSessionID), "CODER", "inreview"},
			"the latest of two")
		testkit.True(t, !got.HasInProgressAttempt && !got.LastAttemptFailed, "the latest of two: %+v", got)

		only := boardCall[board.TasksReply](p, "list_tasks",
			map[string]any{"project_id": p.project, "status": "todo", "limit": 1})
		testkit.Equal(t, only.Total, 1)
		testkit.Equal(t, only.Tasks[0].TaskID, idle.TaskID)
		testkit.Equal(t, deref(only.Filters.Status), "todo")

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
		testkit.Same(t, []string{r.Attempts[0].AttemptID, r.Attempts[1].AttemptID, deref(r.LatestAttemptID),
			deref(r.LatestSessionID)},
			[]string{second.AttemptID, first.AttemptID, second.AttemptID, deref(second.LatestSessionID)})

		for _, a := range r.Attempts {
			testkit.Works(t, testkit.Get(time.Parse(time.RFC3339, a.CreatedAt)).Err())
			testkit.Works(t, testkit.Get(time.Parse(time.RFC3339, a.UpdatedAt)).Err())
			testkit.True(t, strings.HasPrefix(a.WorkspaceBranch, "deepwork/add-a-basket-") &&
				deref(a.LatestSessionExecutor) == "CODER", "%+v", a)
		}
	})
	scenario("SendFollowUpByWorkspaceID", func(t *testing.T) {
		x := p.ends(p.start(p.task("! say first")).AttemptID)
		r := follow(map[string]any{
			"action":       "send",
			"prompt":       "! say second",
			"variant":      "PLAN",
			"workspace_id": x.AttemptID,
		})
		testkit.Equal(t, r.Status, "started")
		testkit.Equal(t, r.SessionID, *x.LatestSessionID)
		testkit.Equal(t, r.Action, "send")
		p.ends(x.AttemptID)
		testkit.Contains(t, p.output(x.AttemptID), "coder plan-resumed\nsecond", "output")

		p.refused("follow_up", map[string]any{
			"action":     "send",
			"attempt_id": x.AttemptID,
			"prompt":     "x",
			"variant":    "NONE",
		}, "ToolError")
	})
	scenario("QueueFollowUpBySessionID", func(t *testing.T) {
		gate, open := p.gate("queued")
		v := p.task("! await " + gate)
		id := p.start(v).AttemptID
		session := *p.reaches(id, "running").LatestSessionID
		p.refused("follow_up", map[string]any{"session_id": session, "action": "send", "prompt": "x"},
			"StateError", "queue")
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
		testkit.Equal(t, r.Status, "cancelled")
		testkit.Equal(t, deref(r.DroppedPrompt), "! say second")
		testkit.True(t, r.QueuedPrompt == nil, "%+v", r)
		testkit.Equal(t, follow(map[string]any{"attempt_id": id, "action": "cancel"}).Status, "empty",
			"with nothing queued")

		open()
		p.ends(id)
		testkit.True(t, !strings.Contains(p.output(id), "second"), "what was cancelled ran")
	})

	scenario("ContextReturnsUnifiedAttemptData", func(t *testing.T) {
		v := p.task("! context")
		x := p.ends(p.start(v).AttemptID)
		_, text, _ := strings.Cut(p.output(x.AttemptID), "context ")
		testkit.ContainsAll(t, text,
			[]string{`"project_id":"` + p.project, `"project_name":"shop"`, `"task_id":"` + v.TaskID,
				`"task_title":"Add a basket"`, `"task_status":"inprogress"`,
				`"attempt_id":"` + x.AttemptID, `"workspace_branch":"` + x.WorkspaceBranch, `"repo_id":"` + p.repo,
				`"repo_name":"shop"`, `"target_branch":"main"`})
		testkit.Equal(t, x.Repos[0].ChangedCount, 0, "a server in the workspace left changes: %v",
			x.Repos[0].ChangedFiles)

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
	testkit.Need(t, r.LatestSessionID == nil, "%+v", r)
	testkit.Need(t, r.Attempts[0].LatestSessionID == nil, "%+v", r)
	testkit.Equal(t, deref(r.LatestAttemptID), waits.AttemptID)
	for _, name := range []string{"attempt_id", "workspace_id"} {
		p.refused("follow_up", map[string]any{name: waits.AttemptID, "action": "send", "prompt": "more"}, "StateError",
			"has no session", waits.AttemptID)
	}

	open()
	p.ends(busy.AttemptID)
	testkit.Equal(t, p.ends(waits.AttemptID).State, "completed", "what waited did not run")
}

// Outputs of earlier steps that no longer exist when the workflow ends are named in the summary, and
// a repeated call gets the same reply. The last step's own output is checked by the call itself.
func TestLostOutputsAreNamedInTheSummary(t *testing.T) {
	t.Parallel()
	root := projectOf(t, reviewedJob("one", "[]", "one", "two", "three"), "kept.md", "x", "gone.md", "x",
		"away.md", "x")
	client, _ := startClient(t, root)
	id := beginSession(t, client, "one", "g")
	finish := func(server *mcp.ClientSession, step, path string) (r *replies.Finish) {
		t.Helper()
		must(t, json.Unmarshal(callTool(t, server, "finished_step",
			map[string]any{"session_id": id, "step_id": step, "outputs": map[string]string{"out": path}}), &r))
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
	testkit.Need(t, last.Status == replies.WorkflowComplete && last.Summary != nil, "the last step: %+v", last)
	testkit.ContainsAll(t, *last.Summary,
		[]string{"'gone.md' (output 'out' of step 'one')", "'away.md' (output 'out' of step 'two')"}, "the summary")
	testkit.True(t, !strings.Contains(*last.Summary, "kept.md"), "the summary names a file that exists: %s",
		*last.Summary)

	writeFiles(t, root, map[string]string{"gone.md": "back"})
	testkit.Equal(t, *finish(client, "three", "kept.md").Summary, *last.Summary, "the repeated call")
}

// A boardID names what belongs to a task.
type boardID struct{ project, repo, task, attempt, session string }

// noID names nothing.
func (b boardID) noID() boardID {
	return boardID{b.project, b.repo, "3b241101-e2bb-4255-8caf-4136c566a961", "3b241101-e2bb-4255-8caf-4136c566a962",
		"3b241101-e2bb-4255-8caf-4136c566a963"}
}

func (b boardID) as(other boardID, text string) string {
	return strings.NewReplacer(b.task, other.task, b.attempt, other.attempt, b.session, other.session).Replace(text)
}

// A boardRow is a call of a tool that names something of a task, in an order in which
// one after the other can be made.
type boardRow struct {
	tool, args string // in args, {task} and so on are ids
	right      string // that it needs; "" means none
}

var boardRows = []boardRow{
	{tool: "get_task", args: `{"task_id":"{task}"}`},
	{tool: "update_task", args: `{"task_id":"{task}","title":"New"}`},
	{tool: "list_task_attempts", args: `{"task_id":"{task}"}`},
	{tool: "get_attempt", args: `{"attempt_id":"{attempt}"}`},
	{tool: "tail_attempt", args: `{"attempt_id":"{attempt}","after_index":-1}`},
	{tool: "get_attempt_diff", args: `{"attempt_id":"{attempt}"}`},
	{
		tool:  "start_task_attempt",
		args:  `{"task_id":"{task}","executor":"CODER","repos":[{"repo_id":"{repo}","target_branch":"main"}]}`,
		right: "agents",
	},
	{tool: "follow_up", args: `{"attempt_id":"{attempt}","action":"send","prompt":"more"}`, right: "agents"},
	{tool: "follow_up", args: `{"workspace_id":"{attempt}","action":"queue","prompt":"more"}`, right: "agents"},
	{tool: "follow_up", args: `{"session_id":"{session}","action":"queue","prompt":"more"}`, right: "agents"},
	{tool: "follow_up", args: `{"session_id":"{session}","action":"cancel"}`},
	{tool: "follow_up", args: `{"attempt_id":"{attempt}","action":"cancel"}`},
	{tool: "comment_attempt", args: `{"attempt_id":"{attempt}"}`},
	{tool: "comment_attempt", args: `{"attempt_id":"{attempt}","remove":["all"]}`, right: "agents"},
	{tool: "stop_attempt", args: `{"attempt_id":"{attempt}"}`},
	{tool: "change_target", args: `{"attempt_id":"{attempt}","target_branch":"main"}`, right: "merge"},
	{tool: "rebase_attempt", args: `{"attempt_id":"{attempt}"}`, right: "merge"},
	{tool: "merge_attempt", args: `{"attempt_id":"{attempt}"}`, right: "merge"},
	{tool: "abort_merge", args: `{"attempt_id":"{attempt}"}`, right: "merge"},
	{tool: "push_attempt", args: `{"attempt_id":"{attempt}"}`, right: "merge"},
	{tool: "delete_task", args: `{"task_id":"{task}"}`},
}

// forAll are the tools that name nothing of a task, or a run, which is an attempt (TestFollowUpOfARun).
var forAll = []string{"run_workflow", "get_run", "list_projects", "list_repos", "list_executors", "list_tasks",
	"create_task", "needs_attention"}

func (r boardRow) call(t *testing.T, client *mcp.ClientSession, b boardID) (text string, refused bool) {
	t.Helper()
	args := strings.NewReplacer("{task}", b.task, "{repo}", b.repo, "{attempt}", b.attempt, "{session}",
		b.session).Replace(r.args)
	result, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: r.tool, Arguments: json.RawMessage(args)})
	testkit.Need(t, err == nil, "%v %v", r.tool, err)
	return resultText(result), result.IsError
}

// Each tool of the board, over HTTP, shows and changes what the caller or its group made;
// for others it does not exist, and starting agents needs the right.
func TestBoardHasOwners(t *testing.T) {
	t.Parallel()
	p := newBoardProject(t)
	file := filepath.Join(t.TempDir(), "tokens")
	token := map[string]string{}
	lines := ""
	for name, options := range map[string][]string{
		"ann":  {"--group", "team", "--rights", "agents"},
		"bob":  {"--group", "team", "--rights", "merge"},
		"eve":  {"--rights", "agents,merge"},
		"solo": nil,
	} {
		var line string
		token[name], line = newToken(t, name, options...)
		lines += line
	}
	must(t, os.WriteFile(file, []byte(lines), 0o600))
	_, url, _ := serveNetwork(t, p.root, "--transport", "http", "--toolsets", "board", "--token-file", file)
	as := func(name string) *boardProject {
		other := *p
		other.client = connectNetwork(t, url, token[name])
		return &other
	}
	ann := as("ann")
	bob := as("bob")
	eve := as("eve")
	solo := as("solo")
	tools := testkit.Get(eve.client.ListTools(t.Context(), nil)).Must(t)
	for _, tool := range tools.Tools {
		testkit.True(t, slices.Contains(forAll, tool.Name) || slices.ContainsFunc(boardRows, func(r boardRow) bool {
			return r.tool == tool.Name
		}), "no test of whose tasks %s shows", tool.Name)
	}

	p.task() // the owner's
	task := boardCall[board.Task](ann, "create_task", map[string]any{
		"project_id": p.project,
		"title":      "Plans",
		"request_id": "r",
		"description": fmt.Sprintf("! write plan.txt x\n! context\n"+
			"! call list_tasks {\"project_id\":%q}\n! call start_task_attempt "+
			"{\"task_id\":%[1]q,\"executor\":\"CODER\",\"repos\":[{\"repo_id\":%q,\"target_branch\":\"main\"}]}",
			p.project, p.repo),
	})
	made := p.ends(ann.start(task).AttemptID) // the owner sees it
	id := boardID{p.project, p.repo, task.TaskID, made.AttemptID, optional(made.LatestSessionID)}

	// Its agent is ann, without her right.
	output := ann.output(id.attempt)
	_, listed, _ := strings.Cut(output, "list_tasks said ")
	listed, _, _ = strings.Cut(listed, "\n")
	testkit.ContainsAll(t, output,
		[]string{`"task_id":"` + task.TaskID,
			"start_task_attempt said StateError: An agent that works on an attempt cannot start agents"})
	testkit.ContainsAll(t, listed, []string{`"title":"Plans"`, `"total":1`})

	state := func() (all string) {
		for _, r := range boardRows[2:6] {
			text, _ := r.call(t, ann.client, id)
			all += text + "\n"
		}
		return all
	}
	was := state()
	for _, who := range []*boardProject{eve, solo} {
		for _, r := range boardRows {
			got, refused := r.call(t, who.client, id)
			want, _ := r.call(t, who.client, id.noID())
			testkit.True(t, refused && (who != eve || strings.HasPrefix(got, "ToolError: There is no ")),
				"%s %s of a stranger: %s", r.tool, r.args, got)
			testkit.Equal(t, id.as(id.noID(), got), want,
				"%s %s of a stranger is not told the same as where there is nothing", r.tool, r.args)
		}
		listed := boardCall[board.TasksReply](who, "list_tasks", map[string]any{"project_id": p.project})
		testkit.Equal(t, listed.Total, 0, "a stranger is given %+v", listed)
		testkit.Equal(t, listed.Count, 0, "a stranger is given %+v", listed)
		testkit.Equal(t, len(listed.Tasks), 0, "a stranger is given %+v", listed)

		for _, tool := range []string{"list_projects", "list_executors"} {
			testkit.Equal(t, string(callTool(t, who.client, tool, map[string]any{})),
				string(callTool(t, ann.client, tool, map[string]any{})), tool)
		}
	}
	testkit.Equal(t, state(), was, "strangers changed it")

	for who, want := range map[*boardProject]string{
		p:    id.attempt,
		ann:  id.attempt,
		bob:  id.attempt,
		eve:  "",
		solo: "",
	} {
		got := ""
		for _, i := range boardCall[board.AttentionReply](who, "needs_attention", map[string]any{}).Items {
			got += i.ID
		}
		testkit.Equal(t, got, want, "needs_attention lists")
	}

	// A request_id is its identity's.
	own := boardCall[board.Task](eve, "create_task",
		map[string]any{"project_id": p.project, "title": "Hers", "request_id": "r"})
	for who, want := range map[*boardProject]int{p: 3, ann: 1, bob: 1, eve: 1, solo: 0} {
		got := boardCall[board.TasksReply](who, "list_tasks", map[string]any{"project_id": p.project})
		testkit.True(t, got.Total == want && got.Count == want, "%d of %d tasks, want %d", got.Count, got.Total, want)
	}
	eve.ends(eve.start(own).AttemptID)
	solo.refused("start_task_attempt", map[string]any{
		"task_id":  own.TaskID,
		"executor": "CODER",
		"repos":    []map[string]any{{"repo_id": p.repo, "target_branch": "main"}},
	},
		"StateError", "right agents", "deepwork token new solo --rights agents")

	solo.refused("merge_attempt", map[string]any{"attempt_id": id.attempt}, "StateError", "the right merge",
		"deepwork token new solo --rights merge")

	remote := t.TempDir()
	p.git(remote, "init", "-q", "--bare")
	p.git(p.root, "remote", "add", "origin", remote)
	for _, r := range boardRows {
		got, refused := r.call(t, bob.client, id)
		needs := strings.HasPrefix(got, "StateError: Starting agents needs the right agents, which bob does not have")
		testkit.True(t, needs == refused && refused == (r.right == "agents"), "%s %s of the same group: %s", r.tool,
			r.args, got)
	}

	ann.refused("get_task", map[string]any{"task_id": task.TaskID}, "ToolError", task.TaskID)
}

const boardConfig = `version: "1.0"
executors:
  CODER:
    command: [coder, first]
    resume: [coder, resumed]
    variants:
      PLAN: {command: [coder, plan], resume: [coder, plan-resumed]}
`

// A boardProject is a project with a git repository, a job and an executor, and a
// client of a server on it.
type boardProject struct {
	t        *testing.T
	root     string
	client   *mcp.ClientSession
	server   *exec.Cmd
	project  string // ids
	repo     string
	received []string // every reply, as text
}

func newBoardProject(t *testing.T, more ...string) *boardProject {
	t.Helper()
	top := testkit.Dir(t)
	p := &boardProject{t: t, root: filepath.Join(top, "shop")}
	writeFiles(t, p.root, map[string]string{"README": "hello\n"})
	inGit(t, p.root)
	writeFiles(t, p.root, map[string]string{
		".deepwork/config.yml":           boardConfig + strings.Join(more, ""),
		".deepwork/jobs/release/job.yml": jobText("release", "one", "two", "three"),
		".deepwork/jobs/release/a.md":    "Do it.",
	})
	t.Cleanup(p.endAgents)
	p.client, p.server = startClient(t, p.root)
	p.find()
	return p
}

// find looks up the ids of the project root.
func (p *boardProject) find() {
	p.t.Helper()
	for _, project := range boardCall[board.ProjectsReply](p, "list_projects", map[string]any{}).Projects {
		if project.IsRoot {
			p.project = project.ProjectID
		}
	}
	p.repo = boardCall[board.ReposReply](p, "list_repos", map[string]any{"project_id": p.project}).Repos[0].RepoID
}

func (p *boardProject) git(dir string, args ...string) string {
	p.t.Helper()
	return testkit.Git(p.t, dir, args...)
}

// endAgents ends whatever agents a test has left.
func (p *boardProject) endAgents() {
	runs, _ := filepath.Glob(filepath.Join(state.Of(p.root).Logs(), "attempts", "*", "runs", "*"))
	for _, dir := range runs {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if proc, err := new(runner.Runner).Find(ctx, dir); err == nil {
			testkit.Works(p.t, testkit.Get(proc.Stop(ctx, 0)).Err(), "an agent goes on")
		}
		cancel()
	}
}

// boardCall makes a call that must succeed.
func boardCall[R any](p *boardProject, tool string, args map[string]any) *R {
	p.t.Helper()
	text := callTool(p.t, p.client, tool, args)
	p.received = append(p.received, string(text))
	r := new(R)
	must(p.t, json.Unmarshal(text, r))
	return r
}

// refused makes a call that must be refused, and returns why.
func (p *boardProject) refused(tool string, args map[string]any, kind string, mentions ...string) string {
	p.t.Helper()
	result := testkit.Get(p.client.CallTool(p.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})).Must(p.t)
	text := resultText(result)
	testkit.True(p.t, result.IsError && strings.HasPrefix(text, kind+": "), "%s %v: want a %s, got: %s", tool, args,
		kind, text)
	testkit.ContainsAll(p.t, text, mentions, "%s %v", tool, args)
	return text
}

// task makes a task whose description tells the coder what to do.
func (p *boardProject) task(lines ...string) *board.Task {
	p.t.Helper()
	return boardCall[board.Task](p, "create_task",
		map[string]any{"project_id": p.project, "title": "Add a basket", "description": strings.Join(lines, "\n")})
}

// workflowTask makes one that names a workflow.
func (p *boardProject) workflowTask(lines ...string) *board.Task {
	p.t.Helper()
	return boardCall[board.Task](p, "create_task", map[string]any{
		"project_id":    p.project,
		"title":         "Make a release",
		"description":   strings.Join(lines, "\n"),
		"job_name":      "release",
		"workflow_name": "w",
	})
}

func (p *boardProject) start(t *board.Task) *attempt.AttemptReply {
	p.t.Helper()
	return boardCall[attempt.AttemptReply](p, "start_task_attempt", map[string]any{
		"task_id":  t.TaskID,
		"executor": "CODER",
		"repos":    []map[string]any{{"repo_id": p.repo, "target_branch": "main"}},
	})
}

func (p *boardProject) get(id string) *attempt.AttemptReply {
	p.t.Helper()
	return boardCall[attempt.AttemptReply](p, "get_attempt", map[string]any{"attempt_id": id})
}

func (p *boardProject) getTask(id string) *board.Task {
	p.t.Helper()
	return boardCall[board.Task](p, "get_task", map[string]any{"task_id": id})
}

// reaches waits until an attempt is in one of the states, with no follow-up to come.
func (p *boardProject) reaches(id string, states ...board.State) (now *attempt.AttemptReply) {
	p.t.Helper()
	eventually(p.t, func() (bool, any) {
		now = p.get(id)
		return slices.Contains(states, now.State),
			fmt.Sprintf("%s (%s); expected %v", now.State, optional(now.Error), states)
	})
	return now
}

func (p *boardProject) ends(id string) *attempt.AttemptReply {
	p.t.Helper()
	return p.reaches(id, "completed", "failed", "stopped", "interrupted")
}

// output is what an attempt's agents wrote, a line each.
func (p *boardProject) output(id string) string {
	p.t.Helper()
	r := boardCall[attempt.TailReply](p, "tail_attempt",
		map[string]any{"attempt_id": id, "after_index": -1, "limit": 1000, "raw": true})
	var lines []string
	for _, e := range r.Entries {
		if e.Stream != "system" {
			lines = append(lines, e.Text)
		}
	}
	return strings.Join(lines, "\n")
}

// gate is a file that a coder awaits, and the function that makes it.
func (p *boardProject) gate(name string) (path string, open func()) {
	path = filepath.Join(p.root, "..", name)
	return path, func() { testkit.Write(p.t, path, "") }
}

func deref(s *string) string { return optional(s) }
