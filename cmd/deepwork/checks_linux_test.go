package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session"
)

// A check runs only once the user has approved it at the terminal, as it is; other edits of the job need nothing.
// Checks of additional folders need it too.
func TestChecksRunOnlyAfterTheUserApproved(t *testing.T) {
	root, additional := testkit.Dir(t), testkit.Dir(t)
	ownUser(t, "")
	t.Setenv("DEEPWORK_ADDITIONAL_JOBS_FOLDERS", additional)
	jobOf := func(name, more string) string {
		return runJob(name, "a, b", "a checks: [{run: [sh, check.sh], name: tests"+more+"}]", "b")
	}
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": jobOf("one", ""), ".deepwork/jobs/one/a.md": "Do it.",
		"out.txt": "done\n", "check.sh": "echo tried >> tried; grep -q good out.txt",
	})
	writeFiles(t, additional, map[string]string{"two/job.yml": jobOf("two", ", timeout: 1m"), "two/a.md": "Do it."})
	client, _ := startClient(t, root)
	finish := func(id string) (text, code string) {
		t.Helper()
		r, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "finished_step", Arguments: map[string]any{"outputs": map[string]any{"text": "out.txt"}, "step_id": "a", "session_id": id}})
		must(t, err)
		return resultText(r), codeOf(r)
	}
	one, two := beginSession(t, client, "one", "Check it"), beginSession(t, client, "two", "Check it")
	for _, id := range []string{one, two} {
		if text, code := finish(id); code != session.CodeUntrusted || !strings.Contains(text, "'tests' (sh check.sh)") || !strings.Contains(text, "deepwork trust --path") {
			t.Fatalf("before: %s %s", code, text)
		}
	}
	testkit.Need(t, !fileExists(filepath.Join(root, "tried")), "a check ran before it was approved")
	trust := []string{"deepwork", "trust", "--path", root}
	out, screen, err := typing(t, "yes", trust...)
	for _, want := range []string{"checks.one.a.tests", "checks.two.a.tests", `"sh" "check.sh"`, `checks the content of "check.sh"`, "5m0s", "Approved."} {
		testkit.True(t, err == nil && strings.Contains(out, want), "it does not show %q: %v %s", want, err, out)
	}
	testkit.True(t, strings.Contains(screen, "2 checks, of which 2 were not approved before"), "at the terminal: %s", screen)
	testkit.Contains(t, mustPrint(t, root, "trust", "--list"), "checks.two.a.tests", "the list")
	if text, code := finish(one); code != "" || !strings.Contains(text, "Checks failed: 1 of 1") || !strings.Contains(text, "exit code 1") {
		t.Fatalf("a failed check: %s %s", code, text)
	}
	got := mustPrint(t, root, "sessions", "show", one)
	testkit.True(t, strings.Contains(got, "check tests: failed") && strings.Contains(got, "calls whose checks failed: 1"), "sessions show: %s", got)

	// Another edit of the job needs nothing; another script does.
	writeFiles(t, root, map[string]string{".deepwork/jobs/one/job.yml": strings.Replace(jobOf("one", ""), "name: A,", "name: B,", 2), "out.txt": "good\n", "check.sh": "exit 0 # edited"})
	text, code := finish(one)
	testkit.True(t, code == session.CodeUntrusted, "an edited script: %s %s", code, text)
	writeFiles(t, root, map[string]string{"check.sh": "echo tried >> tried; grep -q good out.txt"})
	if text, code := finish(one); code != "" || !strings.Contains(text, `"next_step"`) {
		t.Errorf("after an edit of something else: %s %s", code, text)
	}
	if got := mustPrint(t, root, "sessions", "show", one); !strings.Contains(got, "evidence: its checks passed") || !strings.Contains(got, "check tests passed") || !strings.Contains(got, "bound to outputs") {
		t.Errorf("sessions show: %s", got)
	}
	mustPrint(t, root, "trust", "--revoke")
	if text, code := finish(two); code != session.CodeUntrusted {
		t.Errorf("after the approval was taken back: %s %s", code, text)
	}
	out, _, err = typing(t, "yes", "deepwork", "sessions", "override", two, "a", "--reason", "known", "--path", root)
	testkit.True(t, err == nil && strings.Contains(out, "the check tests: sh check.sh"), "an override: %v %s", err, out)
	if text, code := finish(two); code != "" || !strings.Contains(text, `"next_step"`) {
		t.Errorf("after a person passed over it: %s %s", code, text)
	}
}
