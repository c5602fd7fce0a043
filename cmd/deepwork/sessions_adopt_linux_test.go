package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session/state"
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
	id := beginSession(t, client, "one", "red \x1b[31m text\nand more")
	must(t, client.Close())
	t.Setenv(state.Env, filepath.Join(t.TempDir(), "state"))
	file := sessionFile(root, id)
	before, err := os.ReadFile(file)
	must(t, err)

	list := func() string { return mustPrint(t, root, "sessions", "list") }
	if out := list(); !strings.Contains(out, id+"  foreign") || strings.Contains(out, "red") {
		t.Errorf("listed as %s", out)
	}
	if made, _ := os.ReadDir(os.Getenv(state.Env)); len(made) > 0 {
		t.Errorf("listing made %v", made)
	}
	out, screen, err := typing(t, "no", "deepwork", "sessions", "adopt", id, "--path", root)
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
	if out, _, err = typing(t, "yes", "deepwork", "sessions", "adopt", "--all", "--path", root); err != nil || !strings.Contains(out, "Adopted 1 session.") {
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

// An agent that edits files in the project puts back an earlier version of a session's file, sealed
// as it is: it is refused, by the running server too, until the user takes it over.
func TestAnOlderVersionOfASessionIsRefused(t *testing.T) {
	root := t.TempDir()
	ownUser(t, "")
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": jobText("one", "a"),
		".deepwork/jobs/one/a.md":    "Do it.\n",
	})
	client, _ := startClient(t, root)
	id := beginSession(t, client, "one", "Go back in time")
	file := sessionFile(root, id)
	older, err := os.ReadFile(file)
	must(t, err)
	callTool(t, client, "abort_workflow", map[string]any{"session_id": id, "explanation": "No"})
	newest, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, older, 0o600))

	finish := map[string]any{"outputs": map[string]any{}, "session_id": id}
	for _, server := range []string{"the same server", "another server"} {
		r, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "finished_step", Arguments: finish})
		must(t, err)
		if codeOf(r) != "session_foreign" || !strings.Contains(resultText(r), "an older version of it was put back") {
			t.Errorf("%s: %v, %s", server, codeOf(r), resultText(r))
		}
		must(t, client.Close())
		client, _ = startClient(t, root)
	}
	for _, command := range [][]string{{"sessions", "list"}, {"sessions", "show", id}, {"check"}} {
		out, err := commandOn(t, root, command...)
		if !strings.Contains(out, "an older version of it was put back") || err == nil && len(command) == 3 {
			t.Errorf("%v: %v, %s", command, err, out)
		}
	}
	// The newest one is good.
	must(t, os.WriteFile(file, newest, 0o600))
	mustPrint(t, root, "sessions", "show", id)
	must(t, os.WriteFile(file, older, 0o600))
	out, _, err := typing(t, "yes", "deepwork", "sessions", "adopt", id, "--path", root)
	if err != nil || !strings.Contains(out, "an older version of it was put back") || !strings.Contains(out, "Adopted 1 session.") {
		t.Errorf("adopting it: %v, %s", err, out)
	}
	if r := callTool(t, client, "finished_step", finish); !strings.Contains(string(r), "workflow_complete") {
		t.Errorf("once it is adopted: %s", r)
	}
	must(t, os.WriteFile(file, older, 0o600))
	if out, err := commandOn(t, root, "sessions", "show", id); err == nil {
		t.Errorf("the same version again: %s", out)
	}

	// After a prune nothing is left of a session to compare with.
	id = beginSession(t, client, "one", "Come back")
	file = sessionFile(root, id)
	older, err = os.ReadFile(file)
	must(t, err)
	callTool(t, client, "abort_workflow", map[string]any{"session_id": id, "explanation": "No"})
	other := beginSession(t, client, "one", "Stay")
	if printed := mustPrint(t, root, "sessions", "prune", "--older-than", "0s"); !strings.Contains(printed, id) {
		t.Fatalf("prune: %s", printed)
	}
	must(t, os.WriteFile(file, older, 0o600))
	must(t, client.Close())
	client, _ = startClient(t, root)
	r, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "get_step", Arguments: map[string]any{"session_id": id}})
	must(t, err)
	if codeOf(r) != "session_foreign" || !strings.Contains(resultText(r), "a session that was pruned was put back") {
		t.Errorf("a pruned session that was put back: %v, %s", codeOf(r), resultText(r))
	}
	callTool(t, client, "get_step", map[string]any{"session_id": other})
}
