package main

import (
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// A person passes or fails a step at the terminal, with a server that runs and without one; the agent's
// next call collects that. Nobody without a terminal can.
func TestAPersonReviewsAtTheTerminal(t *testing.T) {
	root := t.TempDir()
	ownUser(t, "")
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": reviewedJob("one", `[{run_each: out, by: human, quality_criteria: {good: "Is it good?"}}]`, "a", "b"),
		".deepwork/jobs/one/a.md":    "Do it.\n",
		"out.txt":                    "done\n",
	})
	client, _ := startClient(t, root)
	id := beginSession(t, client, "one", "Close it")
	feedback := ""
	status := func(step string) string {
		r := callTool(t, client, "finished_step", map[string]any{"outputs": map[string]any{"out": "out.txt"}, "step_id": step, "session_id": id, "notes": "Mind the end"})
		feedback = string(lookup(r, "feedback"))
		return strings.Trim(string(lookup(r, "status")), `"`)
	}
	review := func(step string, flags ...string) []string {
		return append([]string{"deepwork", "sessions", "review", id, step, "--path", root}, flags...)
	}
	if out, _, err := typing(t, "yes", review("a", "--pass")...); err == nil || !strings.Contains(out, "does not wait for a person") {
		t.Errorf("before anything was handed in: %v, %s", err, out)
	}
	if got := status("a"); got != "needs_work" || !strings.Contains(feedback, "Waiting: ") {
		t.Fatalf("the agent alone: %s, %s", got, feedback)
	}
	if got := mustPrint(t, root, "board"); !strings.Contains(got, "step_waits") || !strings.Contains(got, "deepwork sessions review "+id+" a --pass") {
		t.Errorf("what needs a person: %s", got)
	}
	testkit.Contains(t, mustPrint(t, root, "sessions", "show", id), "waits for a person, asked ", "sessions show")

	// Not by stdin, not without a yes, not without words for the agent.
	asksAtNoPipe(t, review("a", "--pass")...)
	if out, _, err := typing(t, "no", review("a", "--pass")...); err == nil || !strings.Contains(out, "nothing was recorded") {
		t.Errorf("an answer of no: %v, %s", err, out)
	}
	for want, flags := range map[string][]string{
		"exactly one of --pass and --fail": {"--pass", "--fail"},
		"--feedback is missing":            {"--fail", "--feedback", " "},
	} {
		if out, _, err := typing(t, "yes", review("a", flags...)...); err == nil || !strings.Contains(out, want) {
			t.Errorf("%v: %v, %s", flags, err, out)
		}
	}
	if got := status("a"); got != "needs_work" || !strings.Contains(feedback, "Waiting: ") {
		t.Errorf("after no answer: %s, %s", got, feedback)
	}

	// By the server that owns the session: first back to the agent, then on.
	out, screen, err := typing(t, "yes", review("a", "--fail", "--feedback", "Say more")...)
	for _, want := range []string{"Close it", "judge:    the review of out", "good: Is it good?", "Mind the end", "handed in sha256:d117fa006ba9 out.txt", "Recorded. The agent gets your feedback when it hands in the same outputs of a again"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("it does not show %q: %v, %s", want, err, out)
		}
	}
	testkit.Contains(t, screen, `Do you fail these outputs of step a, saying "Say more"?`, "at the terminal")
	if got := status("a"); got != "needs_work" || !strings.Contains(feedback, ": Say more") {
		t.Errorf("after a fail: %s, %s", got, feedback)
	}
	writeFiles(t, root, map[string]string{"out.txt": "more\n"})
	if got := status("a"); got != "needs_work" || !strings.Contains(feedback, "Waiting: ") {
		t.Errorf("other outputs: %s, %s", got, feedback)
	}
	writeFiles(t, root, map[string]string{"out.txt": "for the eyes of the person\n"})
	if out, _, err := typing(t, "yes", review("a", "--pass")...); err == nil || !strings.Contains(out, "'out.txt' changed after the agent handed in") {
		t.Errorf("files that were swapped: %v, %s", err, out)
	}
	writeFiles(t, root, map[string]string{"out.txt": "more\n"})
	if out, _, err := typing(t, "yes", review("a", "--pass", "--feedback", "Well done")...); err != nil {
		t.Errorf("%v, %s", err, out)
	}
	testkit.Equal(t, status("a"), "next_step", "after a pass: %s", feedback)

	// With no server.
	testkit.Equal(t, status("b"), "needs_work", "the next step")
	must(t, client.Close())
	if out, _, err := typing(t, "yes", review("b", "--pass")...); err != nil {
		t.Fatalf("without a server: %v, %s", err, out)
	}
	if out, _, err := typing(t, "yes", review("b", "--fail", "--feedback", "No")...); err == nil || !strings.Contains(out, "has answered already") {
		t.Errorf("a second answer: %v, %s", err, out)
	}
	client, _ = startClient(t, root)
	testkit.Equal(t, status("b"), "workflow_complete", "after a pass: %s", feedback)
	if got := mustPrint(t, root, "sessions", "show", id); strings.Count(got, "evidence: passed by a person, who reviewed these outputs, ") != 2 || !strings.Contains(got, "reason: Well done") {
		t.Errorf("evidence: %s", got)
	}
}

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
	testkit.Equal(t, status("a"), "needs_work", "after a no")

	// By the server that owns the session.
	out, screen, err := typing(t, "yes", override("a")...)
	for _, want := range []string{"Close it", "good: Is it good?", "quality_review_" + id + "_a.md", "handed in sha256:d117fa006ba9 out.txt", "Overridden."} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("it does not show %q: %v, %s", want, err, out)
		}
	}
	testkit.Contains(t, screen, `Skip these reviews of step a`, "at the terminal")
	writeFiles(t, root, map[string]string{"out.txt": "other\n"})
	testkit.Equal(t, status("a"), "needs_work", "other outputs than the person saw")
	writeFiles(t, root, map[string]string{"out.txt": "done\n"})
	testkit.Equal(t, status("a"), "next_step", "after the person's override")
	testkit.Equal(t, status("b"), "needs_work", "the next step")
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
	testkit.Contains(t, show(), "a person (local, terminal) overrode its reviews", "before it is used")
	client, _ = startClient(t, root)
	testkit.Equal(t, status("b"), "next_step", "after the person's override")
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
	testkit.Equal(t, status("c"), "needs_work", "after go_to_step")
	writeFiles(t, root, map[string]string{".deepwork/config.yml": "quality_gate: {override: never}\n"})
	if out, _, err := typing(t, "yes", override("c")...); err == nil || !strings.Contains(out, "not even a person") {
		t.Errorf("where nobody may: %v, %s", err, out)
	}
}
