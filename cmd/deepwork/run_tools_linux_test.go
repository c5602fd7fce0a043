package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/attempt"
	"deepwork/session/board"
)

// A server leads the runs that its clients start, by run_workflow or as an attempt on a task, in the slots
// of the board.
func TestRunFromTools(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "attempts: {max_concurrent: 1}\n", runJob("NAME", "a, b", "a", "b")).inGit()
	p.plan("* await go", "a finish", "b finish")
	b := &boardProject{t: t, root: p.root}
	b.client, b.server = startClient(t, p.root)
	b.find()
	repos := []map[string]any{{"repo_id": b.repo, "target_branch": "main"}}
	attemptOn := func(more map[string]any) string {
		t.Helper()
		args := map[string]any{"project_id": b.project, "title": "A task"}
		for k, v := range more {
			args[k] = v
		}
		made := boardCall[board.Task](b, "create_task", args)
		return boardCall[attempt.AttemptReply](b, "start_task_attempt", map[string]any{"task_id": made.TaskID, "executor": "STEPPER", "repos": repos}).AttemptID
	}
	ordinary := attemptOn(nil)
	p.awaits("", 1)
	args := map[string]any{"job_name": "job0", "workflow_name": "w", "goal": "All of it", "executor": "STEPPER", "request_id": "once"}
	run := boardCall[attempt.RunMade](b, "run_workflow", args)
	again := boardCall[attempt.RunMade](b, "run_workflow", args)
	testkit.True(t, again.RunID == run.RunID, "%+v and %+v", run, again)
	get := func(id string) *board.RunReply {
		t.Helper()
		return boardCall[board.RunReply](b, "get_run", map[string]any{"run_id": id})
	}
	b.eventually(func() string {
		if now := get(run.RunID); len(now.Steps) != 1 || now.Steps[0].State != "queued" { // for the slot
			return fmt.Sprintf("%+v", now)
		}
		return ""
	})
	p.touch("go")
	complete := func(id string) {
		t.Helper()
		b.eventually(func() string {
			if now := get(id); now.State != "completed" {
				return now.State.Words() + " " + optional(now.Reason)
			}
			return ""
		})
	}
	complete(run.RunID)
	now := b.ends(ordinary)
	testkit.True(t, now.State == "completed", "%+v", now)
	complete(attemptOn(map[string]any{"lead": "server", "job_name": "job0", "workflow_name": "w"}))
	if got := p.steps(); got != " a b a b" || p.most() != 1 {
		t.Errorf("the steps were begun as %q, %d at once", got, p.most())
	}
	p.clean()
}

// A command that starts an attempt which is a run leads it, and with --detach leaves a process that does.
func TestRunFromTheBoard(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "a, b", "a", "b")).inGit()
	b := &boardProject{t: t, root: p.root}
	client, server := startClient(t, p.root)
	b.client, b.server = client, server
	b.find()
	made := boardCall[board.Task](b, "create_task", map[string]any{"project_id": b.project, "title": "A task", "lead": "server", "job_name": "job0", "workflow_name": "w"})
	must(t, client.Close())
	for i, flag := range []string{"--detach", "--detach=false"} {
		cmd := exec.CommandContext(t.Context(), "deepwork", "board", "start", made.TaskID, "--executor", "STEPPER", "--path", p.root, flag)
		out, err := cmd.CombinedOutput()
		testkit.Need(t, err == nil && strings.Contains(string(out), "job0/w"), "%v\n%s", err, out)
		testkit.Eventually(t, func() string {
			if now := p.status(); now.State != "completed" {
				return now.State.Words() + " " + optional(now.Reason)
			}
			return ""
		})
		testkit.Equal(t, p.steps(), strings.TrimSpace(strings.Repeat("a b ", i+1)), "the steps were begun as")
	}
	p.clean()
}
