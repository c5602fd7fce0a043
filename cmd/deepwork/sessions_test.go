package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"deepwork/session/workflow"
)

// TestAbortBesideAServer aborts a session that a running server moved last, which knows of it at its next
// call.
func TestAbortBesideAServer(t *testing.T) {
	root := t.TempDir()
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": jobText("one", "a"),
		".deepwork/jobs/one/a.md":    "Do it.\n",
	})
	client, server := startClient(t, root)
	id := beginSession(t, client, "one", "Keep it")

	pid := fmt.Sprintf("pid %d ", server.Process.Pid)
	if out, err := commandOn(t, root, "sessions", "list"); err != nil || !strings.Contains(out, pid) || !strings.Contains(out, "active") {
		t.Errorf("list: %v, %s; want an active session of %q", err, out, pid)
	}
	if out, err := commandOn(t, root, "sessions", "abort", id, "--reason", "Not needed"); err != nil || out != "aborted "+id+"\n" {
		t.Errorf("abort beside a living server: %v, %s", err, out)
	}
	if out, err := commandOn(t, root, "sessions", "show", id); err != nil || !strings.Contains(out, "Not needed") {
		t.Errorf("show after the abort: %v, %s", err, out)
	}
	if out, err := commandOn(t, root, "sessions", "abort", id); err == nil || !strings.Contains(out, "was aborted") {
		t.Errorf("aborted again: %v, %s", err, out)
	}
	listed := callTool(t, client, "get_workflows", map[string]any{})
	if stack := lookup(listed, "stack"); string(stack) != "[]" {
		t.Errorf("the stack of the server: %s", stack)
	}
}

// TestShowEscapes prints a goal with terminal control sequences as text.
func TestShowEscapes(t *testing.T) {
	root := t.TempDir()
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": jobText("one", "a"),
		".deepwork/jobs/one/a.md":    "Do it.\n",
	})
	client, _ := startClient(t, root)
	started := callTool(t, client, "start_workflow", workflow.StartArgs{Goal: "red \x1b[31m\u202e text", JobName: "one", WorkflowName: "w"})
	id := strings.Trim(string(lookup(started, "begin_step.session_id")), `"`)
	for _, args := range [][]string{{"list"}, {"show", id}} {
		command := exec.CommandContext(t.Context(), "deepwork", append(append([]string{"sessions"}, args...), "--path", root)...)
		command.Stderr = os.Stderr
		out, err := command.Output()
		must(t, err)
		if strings.ContainsAny(string(out), "\x1b\u202e") || !strings.Contains(string(out), `\u001b[31m\u202e text`) {
			t.Errorf("sessions %v prints %q", args, out)
		}
	}
}
