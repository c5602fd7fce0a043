package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/contain"
)

// needContain skips a test where nothing can be contained, or fails it where that must work.
func needContain(t *testing.T) {
	t.Helper()
	_, err := contain.Check(context.Background())
	if _, ok := errors.AsType[*contain.Unavailable](err); ok && os.Getenv("DEEPWORK_TEST_CONTAIN_REQUIRED") == "" {
		t.Skip(err)
	}
	must(t, err)
}

// The agent, the check and the reviewer of a run's step are contained: the agent reaches the run's own endpoint and
// commits, what it plants in its home and its cache is not there for the check, and the run says under what it runs.
func TestARunIsContained(t *testing.T) {
	needContain(t)
	p := newRunProject(t, "quality_gate: {agent_review_command: reviewer}\n", runJob("NAME", "a",
		`a checks: [{run: [sh, check.sh], name: tests}], `+
			`reviews: [{run_each: text, quality_criteria: {good: "Is it good?"}}]`))
	writeFiles(t, p.root, map[string]string{
		"plant.sh": "echo x >~/.cache/planted; echo x >~/.config/planted; git add -A; git commit -qm Planted\n",
		"check.sh": "test ! -e ~/.cache/planted || exit 3\ntest ! -e ~/.config/planted || exit 4\n" +
			"test ! -e " + p.root + "/README || exit 5\ngit log -1 --format=%s | grep -q Planted || exit 6\n",
	})
	p.inGit()
	testkit.Git(t, p.root, "config", "user.name", "Tester")
	testkit.Git(t, p.root, "config", "user.email", "tester@example.com")
	ownUser(t, fmt.Sprintf("trusted_folders: [%q]\nrun: {contain: {mode: required, write: [%q]}}\n", p.root, p.dir))
	p.plan("a write a.md fine", "a run sh plant.sh", "a finish")
	r := p.start("job0/w", "--goal", "Do it", "--executor", "STEPPER")
	r.exits(0)
	testkit.Contains(t, r.out.String(), "STEPPER started, contained (bubblewrap ")
	status := p.status()
	testkit.Equal(t, testkit.Git(t, p.root, "log", "-1", "--format=%s", *status.Branch), "Planted")

	// A run in place is refused.
	r = p.start("job0/w", "--goal", "Do it", "--executor", "STEPPER", "--in-place")
	r.exits(1)
	testkit.Contains(t, strings.Join(strings.Fields(r.out.String()+r.err.String()), " "),
		"a run in place works in your own folder, where its programs cannot be contained")
}
