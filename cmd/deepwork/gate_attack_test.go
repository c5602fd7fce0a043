package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The four ways around a review for an agent that may edit files in the project, with the default
// config and with one of the user's that closes them: one sentence, an edit of the config, of the job,
// and of the session's file.
func TestFourWaysAroundAReview(t *testing.T) {
	const sentence = "quality_review_override_reason"
	for _, strict := range []bool{false, true} {
		for way, test := range map[string]struct {
			file, text     string // the edit
			reason         bool   // the call gives one
			open, closed   string // what the call gives by default, and with the user's config
			evidence, edit string // that are recorded by default
		}{
			"one sentence": {"", "", true, "workflow_complete", "override_needs_person", "overridden by the agent, without a review", ""},
			"config":       {".deepwork/config.yml", "quality_gate: {override: agent}\n", true, "workflow_complete", "override_needs_person", "overridden by the agent, without a review", `the reviewer was ["reviewer","task.txt"], and is self`},
			"reviewer":     {".deepwork/config.yml", "quality_gate: {agent_review_command: reviewer other.txt}\n", false, "needs_work", "needs_work", "", ""},
			"job":          {".deepwork/jobs/one/job.yml", reviewedJob("one", "[]", "a"), false, "workflow_complete", "needs_work", "", "review of step: it is gone"},
			"export":       {"session", "", false, "needs_work", "needs_work", "", ""},
		} {
			t.Run(fmt.Sprintf("%s/strict=%t", way, strict), func(t *testing.T) {
				root := t.TempDir()
				users := fmt.Sprintf("trusted_folders: [%q]\n", root)
				if strict {
					users += "quality_gate: {override: human, pin: true}\n"
				}
				ownUser(t, users)
				writeFiles(t, root, map[string]string{
					".deepwork/config.yml":       "quality_gate: {agent_review_command: reviewer task.txt}\n",
					".deepwork/jobs/one/job.yml": reviewedJob("one", isItGood, "a"),
					".deepwork/jobs/one/a.md":    "Do it.\n",
					"bad.txt":                    "this one is bad\n",
				})
				client, _ := startClient(t, root)
				id := beginSession(t, client, "one", "Get around it")
				switch test.file {
				case "":
				case "session":
					must(t, client.Close())
					file := sessionFile(root, id)
					text, err := os.ReadFile(file)
					must(t, err)
					edited := strings.Replace(string(text), `"pin": `+fmt.Sprint(strict), `"pin": false`, 1)
					edited = strings.Replace(edited, `"Get around it"`, `"Got around it"`, 1)
					must(t, os.WriteFile(file, []byte(edited), 0o600))
					client, _ = startClient(t, root)
				default:
					writeFiles(t, root, map[string]string{test.file: test.text})
				}
				args := map[string]any{"outputs": map[string]any{"out": "bad.txt"}, "session_id": id}
				if test.reason {
					args[sentence] = "It is fine"
				}
				r, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "finished_step", Arguments: args})
				must(t, err)
				got := cmp.Or(codeOf(r), strings.Trim(string(lookup([]byte(resultText(r)), "status")), `"`))
				want := test.open
				if strict {
					want = test.closed
				}
				if got != want {
					t.Fatalf("it gives %q, want %q: %s", got, want, resultText(r))
				}
				if strict || test.file == "session" {
					if _, err := os.Stat(filepath.Join(root, "other.txt")); err == nil {
						t.Error("another reviewer ran than the one that the session began with")
					}
					return
				}
				if shown := mustPrint(t, root, "sessions", "show", id); !strings.Contains(shown, test.evidence) || !strings.Contains(shown, test.edit) {
					t.Errorf("it does not show %q and %q: %s", test.evidence, test.edit, shown)
				}
			})
		}
	}
}

// The user's own flag wins over a pin, and the session says that it did.
func TestNoQualityGateOverAPinIsRecorded(t *testing.T) {
	root := t.TempDir()
	ownUser(t, "quality_gate: {agent_review_command: reviewer task.txt, override: never, pin: true}\n")
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": strings.Replace(jobText("one", "a"), "reviews: []", "reviews: "+isItGood, 1),
		".deepwork/jobs/one/a.md":    "Do it.\n",
	})
	client, _ := startClient(t, root)
	id := beginSession(t, client, "one", "Pin it")
	must(t, client.Close())
	client, _ = startClient(t, root, "--no-quality-gate")
	r := callTool(t, client, "finished_step", map[string]any{"outputs": map[string]any{}, "session_id": id})
	if got := string(lookup(r, "status")); got != `"workflow_complete"` {
		t.Errorf("the flag does not win: %s", r)
	}
	for _, flags := range [][]string{nil, {"--json"}} {
		shown := mustPrint(t, root, append([]string{"sessions", "show", id}, flags...)...)
		for _, want := range []string{"weakened", "and is off"} {
			if !strings.Contains(shown, want) {
				t.Errorf("%v: it does not show %q: %s", flags, want, shown)
			}
		}
		if flags == nil && !strings.Contains(shown, "evidence: not reviewed, because the server ran without reviews") {
			t.Errorf("the evidence: %s", shown)
		}
	}
}
