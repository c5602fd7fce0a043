package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// A person looks at what waits and decides, with a server that runs and without one; the agent's next call collects
// that. They are shown what has changed since they failed it, and can edit it. Nobody without a terminal can.
func TestAPersonReviewsAtTheTerminal(t *testing.T) {
	root := t.TempDir()
	ownUser(t, "")
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": reviewedJob("one", `[{run_each: out, by: human, quality_criteria: {good: "Is it good?"}}]`, "a", "b"),
		".deepwork/jobs/one/a.md":    "Do it.\n",
		"out.txt":                    "done\nsame\n",
	})
	client, _ := startClient(t, root)
	begin := func() string { return beginSession(t, client, "one", "Close it") }
	id := begin()
	feedback := ""
	file := "out.txt"
	status := func(id, step string) string {
		r := callTool(t, client, "finished_step", map[string]any{"outputs": map[string]any{"out": file}, "step_id": step, "session_id": id, "notes": "Mind the end"})
		feedback = string(lookup(r, "feedback"))
		return strings.Trim(string(lookup(r, "status")), `"`)
	}
	waiting := func(id, step string) {
		t.Helper()
		got := status(id, step)
		testkit.Need(t, got == "needs_work" && strings.Contains(feedback, "Waiting: "), "the agent alone: %s, %s", got, feedback)
	}
	review := func(args ...string) []string {
		return slices.Concat([]string{"deepwork", "sessions", "review"}, args, []string{"--path", root})
	}
	reviews := func(answers string, wants []string, args ...string) {
		t.Helper()
		out, screen, err := typing(t, answers, review(args...)...)
		for _, want := range wants {
			testkit.True(t, err == nil && strings.Contains(out+screen, want), "%s: it does not show %q: %v, %s%s", answers, want, err, out, screen)
		}
	}
	reviews("", []string{"Nothing waits for your review."})
	out, _, err := typing(t, "", review(id, "a")...)
	testkit.True(t, err != nil && strings.Contains(out, "does not wait for a person"), "before anything was handed in: %v, %s", err, out)
	waiting(id, "a")
	got := mustPrint(t, root, "board")
	testkit.True(t, strings.Contains(got, "step_waits") && strings.Contains(got, "deepwork sessions review "+id+" a\n"), "what needs a person: %s", got)
	testkit.Contains(t, mustPrint(t, root, "sessions", "show", id), "waits for a person, asked ", "sessions show")

	// Not by stdin, not without a decision, not without words for the agent.
	asksAtNoPipe(t, review(id, "a")...)
	reviews("what\nfail\n\r\nquit", []string{"Nothing was recorded: a fail needs words", "Nothing was recorded."}, id)
	waiting(id, "a")

	// By the server that owns the session: first back to the agent, then on.
	reviews("fail\nSay more\rin the end\r", []string{
		"Close it", "question: the review of out", "good: Is it good?", "Mind the end", filepath.Join(root, "out.txt"), "    done\n    same\n",
		"Failed. Now tell your agent to go on. It gets your words.",
	})
	if got := status(id, "a"); got != "needs_work" || !strings.Contains(feedback, `: Say more\nin the end`) {
		t.Errorf("after a fail: %s, %s", got, feedback)
	}
	writeFiles(t, root, map[string]string{"out.txt": "more\x1b[2J\u202e\nsame\n"})
	waiting(id, "a")
	writeFiles(t, root, map[string]string{"out.txt": "for the eyes of the person\n"})
	if out, _, err := typing(t, "pass", review()...); err == nil || !strings.Contains(out, "'out.txt' changed after the agent handed in") || strings.Contains(out, "for the eyes") {
		t.Errorf("files that were swapped: %v, %s", err, out)
	}
	writeFiles(t, root, map[string]string{"out.txt": "more\x1b[2J\u202e\nsame\n"})
	reviews("view\npass Well done", []string{"    -done\n    +more\\u001b[2J\\u202e\n     same\n", "    more\\u001b[2J\\u202e\n    same\n", "Passed. Now tell your agent to go on."}, id, "a")
	testkit.Equal(t, status(id, "a"), "next_step", "after a pass: %s", feedback)

	// An edit is what is judged from then on; then the next that waits is offered. With no server.
	writeFiles(t, root, map[string]string{"edit.sh": "#!/bin/sh\necho edited > \"$1\"\n"})
	must(t, os.Chmod(filepath.Join(root, "edit.sh"), 0o755))
	waiting(id, "b")
	other := begin()
	file = "edit.sh"
	waiting(other, "a")
	file = "out.txt"
	must(t, client.Close())
	t.Setenv("EDITOR", filepath.Join(root, "edit.sh"))
	reviews("edit\npass\nyes\nquit", []string{"    edited\n", "(What has changed since the last hand-in:)", "    +edited\n", "Passed. ", "Waiting for your review: 1 more", other})
	if out, _, err := typing(t, "pass", review(id, "b")...); err == nil || !strings.Contains(out, "has answered already") {
		t.Errorf("a second answer: %v, %s", err, out)
	}
	client, _ = startClient(t, root)
	testkit.Equal(t, status(id, "b"), "workflow_complete", "after a pass: %s", feedback)
	if got := mustPrint(t, root, "sessions", "show", id); strings.Count(got, "evidence: passed by a person, who reviewed these outputs, ") != 2 || !strings.Contains(got, "reason: Well done") {
		t.Errorf("evidence: %s", got)
	}
}

// What does not fit on the screen is shown by $PAGER, without what could move the cursor or hide text.
func TestALongReviewIsPaged(t *testing.T) {
	root := t.TempDir()
	ownUser(t, "")
	long := strings.Repeat("a line\n", 60) + "\x1b[2Jthe \u202eend\n"
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": reviewedJob("one", `[{run_each: out, by: human, quality_criteria: {good: "Is it good?"}}]`, "a"),
		".deepwork/jobs/one/a.md":    "Do it.\n",
		"long.txt":                   long, "short.txt": "a line\n",
		"pager.sh": "#!/bin/sh\necho PAGED\nexec cat\n",
	})
	must(t, os.Chmod(filepath.Join(root, "pager.sh"), 0o755))
	t.Setenv("PAGER", filepath.Join(root, "pager.sh"))
	client, _ := startClient(t, root)
	for file, paged := range map[string]bool{"long.txt": true, "short.txt": false} {
		id := beginSession(t, client, "one", "Close it")
		callTool(t, client, "finished_step", map[string]any{"outputs": map[string]any{"out": file}, "step_id": "a", "session_id": id})
		printed, got, err := typing(t, "quit", "sh", "-c", "exec deepwork sessions review "+id+" --path "+root+" >/dev/tty")
		if got = strings.ReplaceAll(got, "\r", ""); err != nil || strings.Contains(got, "PAGED") != paged || strings.Contains(got, "\x1b[2J") || strings.Contains(got, "\u202e") || paged != strings.Contains(got, `the \u202eend`) || !strings.Contains(got, "    a line\n") {
			t.Errorf("%s: %v, %s%s", file, err, printed, got)
		}
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
	got := status("a")
	testkit.Need(t, got == "needs_work", "the agent alone: %s", got)

	// Not by stdin, not without a yes.
	asksAtNoPipe(t, override("a")...)
	if out, _, err := typing(t, "no", override("a")...); err == nil || !strings.Contains(out, "nothing was overridden") {
		t.Errorf("an answer of no: %v, %s", err, out)
	}
	testkit.Equal(t, status("a"), "needs_work", "after a no")

	// By the server that owns the session.
	out, screen, err := typing(t, "yes", override("a")...)
	for _, want := range []string{"Close it", "good: Is it good?", "quality_review_" + id + "_a.md", "handed in sha256:d117fa006ba9 out.txt", "Overridden."} {
		testkit.True(t, err == nil && strings.Contains(out, want), "it does not show %q: %v, %s", want, err, out)
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
