package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"deepwork/session/workflow"
)

// TestAbortWhileOwned aborts a session that a living server owns, which is
// refused and names the server, and again once that server has ended.
func TestAbortWhileOwned(t *testing.T) {
	root := t.TempDir()
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": jobText("one", "a"),
		".deepwork/jobs/one/a.md":    "Do it.\n",
	})
	client, server := startClient(t, root)
	started := callTool(t, client, "start_workflow", workflow.StartArgs{Goal: "Keep it", JobName: "one", WorkflowName: "w"})
	id := strings.Trim(string(lookup(started, "begin_step.session_id")), `"`)
	pid := fmt.Sprintf("pid %d ", server.Process.Pid)
	sessions := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "deepwork", append([]string{"sessions"}, append(args, "--path", root)...)...).CombinedOutput()
		return string(out), err
	}

	out, err := sessions("abort", id)
	if err == nil || !strings.Contains(out, pid) {
		t.Errorf("abort beside a living server: %v, %s; want it refused with %q", err, out, pid)
	}
	out, err = sessions("list")
	if err != nil || !strings.Contains(out, pid) || !strings.Contains(out, "active") {
		t.Errorf("list: %v, %s; want an active session of %q", err, out, pid)
	}
	callTool(t, client, "get_step", map[string]any{}) // the server still has it

	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if out, err := sessions("abort", id); err != nil {
		t.Errorf("abort after the server's end: %v, %s", err, out)
	}
	if out, _ := sessions("show", id); !strings.Contains(out, defaultAbortReason) {
		t.Errorf("show after the abort: %s", out)
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
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(string(out), "\x1b\u202e") || !strings.Contains(string(out), `\u001b[31m\u202e text`) {
			t.Errorf("sessions %v prints %q", args, out)
		}
	}
}
