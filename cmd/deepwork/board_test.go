package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/session/attempt"
	"deepwork/session/merge"
	"deepwork/session/state"
)

// A task with a workflow is to be reviewed only when that is complete. The agent and
// the deepwork it walks it with are killed the moment the last reply is there.
func TestBoardTaskWithWorkflow(t *testing.T) {
	p := newBoardProject(t)
	v := p.workflowTask("! workflow 3")
	x := p.ends(p.start(v).AttemptID)
	out := p.output(x.AttemptID)
	if x.State != "completed" || !strings.Contains(out, "workflow workflow_complete") {
		t.Fatalf("%+v\n%s", x, out)
	}
	if deref(x.WorkflowStatus) != "completed" || deref(x.WorkflowStep) != "three" || len(deref(x.WorkflowSession)) != 8 {
		t.Errorf("%+v", x)
	}
	if now := p.getTask(v.TaskID); now.Status != "inreview" || deref(now.JobName) != "release" {
		t.Errorf("%+v", now)
	}
	if x.Repos[0].ChangedCount != 0 {
		t.Errorf("the workflow's sessions are among the changes: %v", x.Repos[0].ChangedFiles)
	}
	sessions, _ := filepath.Glob(filepath.Join(x.Repos[0].WorktreePath, ".deepwork", "tmp", "session_*.json"))
	if len(sessions) != 1 {
		t.Errorf("sessions in the workspace: %v", sessions)
	}
	if outside, _ := filepath.Glob(filepath.Join(p.root, ".deepwork", "tmp", "session_*.json")); len(outside) != 0 {
		t.Errorf("sessions in the project: %v", outside)
	}
}

// A run of the task's workflow inside another one of the same is a part of that
// one's work: its end is not the task's.
func TestBoardNestedWorkflow(t *testing.T) {
	p := newBoardProject(t)
	v := p.workflowTask("! nest 3")
	x := p.ends(p.start(v).AttemptID)
	if out := p.output(x.AttemptID); x.State != "completed" || !strings.Contains(out, "workflow_complete") {
		t.Fatalf("%+v\n%s", x, out)
	}
	if now := p.getTask(v.TaskID); now.Status != "inprogress" || deref(x.WorkflowStatus) != "active" || deref(x.WorkflowStep) != "one" {
		t.Errorf("%+v\n%+v", now, x)
	}
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
	if now := p.getTask(v.TaskID); now.Status != "inprogress" || now.LastAttemptFailed {
		t.Errorf("%+v", now)
	}
	boardCall[attempt.FollowUpReply](p, "follow_up", map[string]any{"attempt_id": x.AttemptID, "action": "send", "prompt": "! context\n! workflow 2"})
	x = p.ends(x.AttemptID)
	out := p.output(x.AttemptID)
	if !strings.Contains(out, `"workflow_session_id":"`+deref(x.WorkflowSession)) || !strings.Contains(out, `"workflow_step":"two"`) {
		t.Errorf("get_context: %s", out)
	}
	if now := p.getTask(v.TaskID); now.Status != "inreview" || deref(x.WorkflowStatus) != "completed" {
		t.Errorf("%+v %+v\n%s", now, x, out)
	}
	p.refused("create_task", map[string]any{"project_id": p.project, "title": "x", "job_name": "release", "workflow_name": "none"}, "ToolError", "Workflow 'none' not found")
	p.refused("create_task", map[string]any{"project_id": p.project, "title": "x", "job_name": "none", "workflow_name": "w"}, "ToolError", "Job not found: none")
	p.refused("create_task", map[string]any{"project_id": p.project, "title": "x", "job_name": "release"}, "ToolError", "workflow_name")
}

func TestBoardTailDiffStopDelete(t *testing.T) {
	p := newBoardProject(t)
	gate, open := p.gate("go")
	v := p.task("! write done.txt committed", "! commit done", "! write loose.txt untracked", "! say before", "! await "+gate, "! say after", "! await "+gate+"-never")
	id := p.start(v).AttemptID
	p.reaches(id, "running")
	tail := func(args map[string]any) *attempt.TailReply {
		t.Helper()
		args["attempt_id"] = id
		return boardCall[attempt.TailReply](p, "tail_attempt", args)
	}
	var last *attempt.TailReply
	p.eventually(func() string { // the prompt has the word, too
		last = tail(map[string]any{"limit": 1})
		if len(last.Messages) != 1 || last.Messages[0].Text != "before" {
			return fmt.Sprintf("the last line is %+v", last)
		}
		return ""
	})
	if last.NextIndex != last.Messages[0].Index {
		t.Errorf("the last line: %+v", last)
	}
	open() // what comes next is waited for
	var next *attempt.TailReply
	for next == nil || len(next.Messages) == 0 {
		next = tail(map[string]any{"after_index": last.NextIndex, "wait": 30})
	}
	if next.Messages[0].Text != "after" || next.State != "running" {
		t.Errorf("what came next: %+v", next)
	}

	x := p.get(id)
	if r := x.Repos[0]; r.Ahead != 1 || r.Behind != 0 || fmt.Sprint(r.ChangedFiles) != "[done.txt loose.txt]" {
		t.Errorf("%+v", r)
	}
	diff := boardCall[merge.DiffReply](p, "get_attempt_diff", map[string]any{"attempt_id": id})
	if len(diff.Diffs) != 1 || !strings.Contains(diff.Diffs[0].Diff, "+committed") || !strings.Contains(diff.Diffs[0].Diff, "+untracked") || diff.Truncated {
		t.Errorf("%+v", diff)
	}
	if only := boardCall[merge.DiffReply](p, "get_attempt_diff", map[string]any{"attempt_id": id, "paths": []string{"loose.txt"}}); strings.Contains(only.Diffs[0].Diff, "committed") {
		t.Errorf("%+v", only)
	}
	if cut := boardCall[merge.DiffReply](p, "get_attempt_diff", map[string]any{"attempt_id": id, "max_bytes": 20}); !cut.Truncated || len(cut.Diffs[0].Diff) > 20 {
		t.Errorf("%+v", cut)
	}

	p.refused("delete_task", map[string]any{"task_id": v.TaskID}, "StateError", "stop_attempt")
	boardCall[attempt.FollowUpReply](p, "follow_up", map[string]any{"attempt_id": id, "action": "queue", "prompt": "! say never"})
	stopped := boardCall[attempt.AttemptReply](p, "stop_attempt", map[string]any{"attempt_id": id})
	if stopped.State != "stopped" || stopped.QueuedFollowUp != nil || p.getTask(v.TaskID).Status != "inprogress" {
		t.Errorf("%+v", stopped)
	}
	if again := boardCall[attempt.AttemptReply](p, "stop_attempt", map[string]any{"attempt_id": id}); again.State != "stopped" || again.Notice == nil {
		t.Errorf("%+v", again)
	}

	gone := boardCall[attempt.DeleteReply](p, "delete_task", map[string]any{"task_id": v.TaskID})
	if len(gone.Rescued) != 1 || !strings.HasPrefix(gone.Rescued[0].Ref, "refs/deepwork/rescue/"+id) {
		t.Fatalf("%+v", gone)
	}
	if got := p.git(p.root, "show", gone.Rescued[0].Ref+":loose.txt"); got != "untracked" {
		t.Errorf("the rescued file holds %q", got)
	}
	if got := p.git(p.root, "show", x.WorkspaceBranch+":done.txt"); got != "committed" {
		t.Errorf("the branch's file holds %q", got)
	}
	if _, err := os.Stat(x.Repos[0].WorktreePath); !os.IsNotExist(err) {
		t.Errorf("the worktree is still there: %v", err)
	}
	p.refused("get_task", map[string]any{"task_id": v.TaskID}, "ToolError", v.TaskID)
	if changed := p.git(p.root, "status", "--porcelain"); strings.Contains(changed, "worktrees") || strings.Contains(changed, "board.db") {
		t.Errorf("git sees the board:\n%s", changed)
	}
}

// A server that is killed in mid-attempt: the agent goes on, and the next server
// reports its result.
func TestBoardServerKilled(t *testing.T) {
	p := newBoardProject(t)
	gate, open := p.gate("go")
	v := p.task("! await "+gate, "! write late.txt precious")
	id := p.start(v).AttemptID
	p.reaches(id, "running")
	must(t, p.server.Process.Kill())
	p.client.Close()
	p.client, p.server = startClient(t, p.root)
	if now := p.get(id); now.State != "running" {
		t.Errorf("after the restart: %+v", now)
	}
	open()
	x := p.ends(id)
	if x.State != "completed" || deref(x.FinalMessage) != "all done" || fmt.Sprint(x.Repos[0].ChangedFiles) != "[late.txt]" {
		t.Errorf("%+v", x)
	}
	if now := p.getTask(v.TaskID); now.Status != "inreview" {
		t.Errorf("%+v", now)
	}

	// What ended while no server was there is told too.
	gate2, open2 := p.gate("go2")
	id = p.start(p.task("! await "+gate2, "! exit 4")).AttemptID
	p.reaches(id, "running")
	p.server.Process.Kill()
	p.client.Close()
	open2()
	p.client, p.server = startClient(t, p.root)
	if x := p.ends(id); x.State != "failed" || *x.ExitCode != 4 {
		t.Errorf("%+v", x)
	}
}

// Two servers on one board: what one starts the other sees, stops and goes on with;
// no execution runs twice.
func TestBoardTwoServers(t *testing.T) {
	p := newBoardProject(t)
	q := *p
	q.client, q.server = startClient(t, p.root)
	gate, open := p.gate("go")
	v := p.task("! say once", "! await "+gate)
	id := p.start(v).AttemptID
	q.reaches(id, "running")
	q.eventually(func() string { // it runs a moment before it says so
		if out := q.output(id); !strings.Contains(out, "\nonce") {
			return "the output is:\n" + out
		}
		return ""
	})
	if x := boardCall[attempt.AttemptReply](&q, "stop_attempt", map[string]any{"attempt_id": id}); x.State != "stopped" {
		t.Errorf("stopped by the other: %+v", x)
	}
	if r := boardCall[attempt.FollowUpReply](&q, "follow_up", map[string]any{"attempt_id": id, "action": "send", "prompt": "! say again\n! await " + gate}); r.Status != "started" {
		t.Errorf("%+v", r)
	}
	p.reaches(id, "running")
	p.server.Process.Kill()
	p.client.Close()
	open()
	if x := q.ends(id); x.State != "completed" {
		t.Errorf("%+v", x)
	}
	if out := q.output(id); strings.Count(out, "once") != 1 || strings.Count(out, "again") != 1 {
		t.Errorf("output:\n%s", out)
	}
}

// A server on a project makes a database only when that is used.
func TestDatabaseIsMadeWhenItIsUsed(t *testing.T) {
	root := t.TempDir()
	client, _ := startClient(t, root)
	_, err := client.ListTools(t.Context(), nil)
	must(t, err)
	board := state.Of(root).Database()
	if _, err := os.Stat(board); !os.IsNotExist(err) {
		t.Fatalf("there is a database: %v", err)
	}
	callTool(t, client, "list_projects", map[string]any{})
	if _, err := os.Stat(board); err != nil {
		t.Error(err)
	}
}

// An agent whose own settings name servers of other projects, or of its project outside the
// worktree: their sessions, earlier ones and those that the agent begins there, are not the attempt's.
func TestBoardServersElsewhere(t *testing.T) {
	onBothStores(t, func(t *testing.T) {
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
		if x.State != "completed" || x.WorkflowSession != nil || x.WorkflowStatus != nil {
			t.Errorf("%+v\nbefore: %s\n%s", x, aborted, out)
		}
		if now := p.getTask(v.TaskID); now.Status != "inprogress" {
			t.Errorf("%+v", now)
		}
		if strings.Count(out, `start_workflow said {"begin_step"`) != 2 || !strings.Contains(out, `unknown tool "get_context"`) || !strings.Contains(out, "start_task_attempt said StateError: An agent that works on an attempt cannot start agents.") {
			t.Errorf("the agent's calls:\n%s", out)
		}
	})
}

// The command line shows what servers run, and keeps what it removes.
func TestBoardCommandLine(t *testing.T) {
	p := newBoardProject(t)
	v := p.task("! write loose.txt untracked")
	x := p.ends(p.start(v).AttemptID)
	if out := mustPrint(t, p.root, "board", "tasks"); !strings.Contains(out, "inreview  ended    "+x.WorkspaceBranch) {
		t.Errorf("tasks:\n%s", out)
	}
	shown := mustPrint(t, p.root, "board", "show", v.TaskID[:8])
	for _, want := range []string{"attempt:     " + x.AttemptID, "state:       completed (exit code 0)", "executor:    CODER", "branch:      " + x.WorkspaceBranch,
		"said:        all done", x.Repos[0].WorktreePath, "0 ahead of main, 0 behind, 1 file changed"} {
		if !strings.Contains(shown, want) {
			t.Errorf("show lacks %q:\n%s", want, shown)
		}
	}
	removed := mustPrint(t, p.root, "board", "rm", v.TaskID[:8])
	ref := "refs/deepwork/rescue/" + x.AttemptID
	if !strings.Contains(removed, "kept "+ref) {
		t.Errorf("rm:\n%s", removed)
	}
	if got := p.git(p.root, "show", ref+":loose.txt"); got != "untracked" {
		t.Errorf("the rescued file holds %q", got)
	}
	p.refused("get_task", map[string]any{"task_id": v.TaskID}, "ToolError", v.TaskID)
}
