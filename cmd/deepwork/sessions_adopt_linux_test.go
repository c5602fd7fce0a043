package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/session/state"
	"deepwork/session/workflow"
)

// A project that was copied with its sessions: another installation shows them, without
// control characters, and takes them over when the user says so at the terminal.
func TestSessionsOfAnotherInstallationAreAdopted(t *testing.T) {
	root := t.TempDir()
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": jobText("one", "a"),
		".deepwork/jobs/one/a.md":    "Do it.\n",
	})
	client, _ := startClient(t, root)
	started := callTool(t, client, "start_workflow", workflow.StartArgs{Goal: "red \x1b[31m text\nand more", JobName: "one", WorkflowName: "w"})
	id := strings.Trim(string(lookup(started, "begin_step.session_id")), `"`)
	must(t, client.Close())
	t.Setenv(state.Env, filepath.Join(t.TempDir(), "state"))
	file := filepath.Join(root, ".deepwork", "tmp", "session_"+id+".json")
	before, err := os.ReadFile(file)
	must(t, err)

	self, err := exec.LookPath("deepwork")
	must(t, err)
	list := func() string {
		out, err := exec.CommandContext(t.Context(), self, "sessions", "list", "--path", root).CombinedOutput()
		must(t, err)
		return string(out)
	}
	if out := list(); !strings.Contains(out, id+"  foreign") || strings.Contains(out, "red") {
		t.Errorf("listed as %s", out)
	}
	if made, _ := os.ReadDir(os.Getenv(state.Env)); len(made) > 0 {
		t.Errorf("listing made %v", made)
	}
	out, screen, err := typing(t, "no", self, "sessions", "adopt", id, "--path", root)
	for _, want := range []string{id + "  ", " bytes: it was sealed with the key ", "active one/w, at step a, of ", `goal: red \u001b[31m text` + "\n    and more\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not show %q: %q", want, out)
		}
	}
	if err == nil || !strings.Contains(screen, "May agents resume 1 session? Type yes") || !strings.Contains(out, "nothing was adopted") {
		t.Errorf("an answer of no: %v, %q, %q", err, out, screen)
	}
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("after an answer of no: %s, %v", after, err)
	}
	if out, _, err = typing(t, "yes", self, "sessions", "adopt", "--all", "--path", root); err != nil || !strings.Contains(out, "Adopted 1 session.") {
		t.Errorf("an answer of yes: %v, %s", err, out)
	}
	if out := list(); !strings.Contains(out, id+"  active") {
		t.Errorf("once it is adopted: %s", out)
	}
	client, _ = startClient(t, root)
	if step := callTool(t, client, "get_step", map[string]any{"session_id": id}); !strings.Contains(string(step), "and more") {
		t.Errorf("an agent is given %s", step)
	}
}
