package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/session/attempt"
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
