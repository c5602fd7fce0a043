package main

import (
	"strings"
	"testing"
)

// A person overrides a review at the terminal, with a server that runs and without one; the agent's
// next call goes on, once. The evidence distinguishes a person from an agent.
func TestAPersonOverridesAtTheTerminal(t *testing.T) {
	root := t.TempDir()
	ownUser(t, "")
	writeFiles(t, root, map[string]string{
		".deepwork/config.yml":       "quality_gate: {override: human}\n",
		".deepwork/jobs/one/job.yml": reviewedJob("one", isItGood, "a", "b", "c"),
		".deepwork/jobs/one/a.md":    "Do it.\n",
		"out.txt":                    "done\n",
	})
	client, _ := startClient(t, root)
	id := beginSession(t, client, "one", "Close it")
	status := func(step string) string {
		r := callTool(t, client, "finished_step", map[string]any{"outputs": map[string]any{"out": "out.txt"}, "step_id": step, "session_id": id})
		return strings.Trim(string(lookup(r, "status")), `"`)
	}
	override := func(step string) []string {
		return []string{"deepwork", "sessions", "override", id, step, "--reason", "I looked at it", "--path", root}
	}
	if got := status("a"); got != "needs_work" {
		t.Fatalf("the agent alone: %s", got)
	}

	// Not by stdin, not without a yes.
	asksAtNoPipe(t, override("a")...)
	if out, _, err := typing(t, "no", override("a")...); err == nil || !strings.Contains(out, "nothing was overridden") {
		t.Errorf("an answer of no: %v, %s", err, out)
	}
	if got := status("a"); got != "needs_work" {
		t.Errorf("after a no: %s", got)
	}

	// By the server that owns the session.
	out, screen, err := typing(t, "yes", override("a")...)
	for _, want := range []string{"Close it", "good: Is it good?", "quality_review_" + id + "_a.md", "handed in sha256:d117fa006ba9 out.txt", "Overridden."} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("it does not show %q: %v, %s", want, err, out)
		}
	}
	if !strings.Contains(screen, `Skip these reviews of step a`) {
		t.Errorf("at the terminal: %q", screen)
	}
	writeFiles(t, root, map[string]string{"out.txt": "other\n"})
	if got := status("a"); got != "needs_work" {
		t.Errorf("other outputs than the person saw: %s", got)
	}
	writeFiles(t, root, map[string]string{"out.txt": "done\n"})
	if got := status("a"); got != "next_step" {
		t.Errorf("after the person's override: %s", got)
	}
	if got := status("b"); got != "needs_work" {
		t.Errorf("the next step: %s", got)
	}
	if out, _, err := typing(t, "yes", override("a")...); err == nil || !strings.Contains(out, "is not to be finished now") {
		t.Errorf("a step that is over: %v, %s", err, out)
	}

	// With no server, and used up by the step's end.
	must(t, client.Close())
	if out, _, err := typing(t, "yes", override("b")...); err != nil {
		t.Fatalf("without a server: %v, %s", err, out)
	}
	show := func(flags ...string) string {
		return mustPrint(t, root, append([]string{"sessions", "show", id}, flags...)...)
	}
	if got := show(); !strings.Contains(got, "a person (local, terminal) overrode its reviews") {
		t.Errorf("before it is used: %s", got)
	}
	client, _ = startClient(t, root)
	if got := status("b"); got != "next_step" {
		t.Errorf("after the person's override: %s", got)
	}
	text := show()
	if strings.Count(text, "evidence: overridden by a person, ") != 2 || strings.Contains(text, "has not used yet") ||
		!strings.Contains(text, "finished with sha256:") || !strings.Contains(text, "reason: I looked at it") {
		t.Errorf("evidence: %s", text)
	}
	if got := show("--json"); strings.Count(got, `"kind": "person"`) != 2 || strings.Count(got, `"channel": "terminal"`) != 4 {
		t.Errorf("as JSON: %s", got)
	}

	// go_to_step takes it back; never means nobody.
	if out, _, err := typing(t, "yes", override("c")...); err != nil {
		t.Fatalf("%v, %s", err, out)
	}
	callTool(t, client, "go_to_step", map[string]any{"step_id": "c", "session_id": id})
	if got := status("c"); got != "needs_work" {
		t.Errorf("after go_to_step: %s", got)
	}
	writeFiles(t, root, map[string]string{".deepwork/config.yml": "quality_gate: {override: never}\n"})
	if out, _, err := typing(t, "yes", override("c")...); err == nil || !strings.Contains(out, "not even a person") {
		t.Errorf("where nobody may: %v, %s", err, out)
	}
}
