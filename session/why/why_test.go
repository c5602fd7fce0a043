package why

import (
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// One sentence for each reason for which work stops or waits.
func TestSentences(t *testing.T) {
	for _, c := range []struct {
		of   Why
		want string
	}{
		{Why{}, ""},
		{Why{Kind: Check, Step: "fix", Check: "go test", Tries: 3, ExitCode: 1, Said: "--- FAIL: TestX"},
			"Step fix: check `go test` failed three times, last with exit code 1: --- FAIL: TestX."},
		{Why{Kind: Check, Step: "fix", Check: "make", ExitCode: 2}, "Step fix: check `make` failed with exit code 2."},
		{Why{Kind: Check, Check: "make", Tries: 2, Said: "It did not end in time."},
			"Check `make` failed twice: It did not end in time."},
		{Why{Kind: Check, Step: "fix", Tries: 11}, "Step fix: its checks failed 11 times."},
		{Why{Kind: Unchecked, Step: "fix", Said: "no program"}, "Step fix: its checks could not be run: no program."},
		{Why{Kind: Review, Step: "a", Tries: 10, Criterion: "Is it short?", Said: "It is long!"},
			`Step a: its review failed ten times, on "Is it short?": It is long!`},
		{Why{Kind: Review, Step: "a", Said: "No"}, "Step a: its review failed: No."},
		{Why{Kind: Crashed, Step: "a", Said: "exit code 3"}, "Step a: its reviewer gave no verdict: exit code 3."},
		{Why{Kind: Refused, Step: "a", By: "ada", Said: "Say more"},
			"Step a: a person (ada) did not pass its outputs: Say more."},
		{Why{Kind: Again, Step: "a", By: "ada"},
			"Step a: a person (ada) did not pass its outputs, and the same ones were handed in again."},
		{Why{Kind: Unfit, Step: "a", Said: "no title"}, "Step a: its outputs were not accepted: no title."},
		{Why{Kind: Rounds, Step: "a", Said: "round 3 of 3 is over"},
			"Step a: its rounds are used up, and a person has to say how it goes on: round 3 of 3 is over."},
		{Why{Kind: Asks, Step: "a"}, "Step a: a person has to pass its outputs."},
		{Why{Kind: Agent, ExitCode: 1, Said: "no network"}, "The agent ended with exit code 1: no network."},
		{Why{Kind: Agent, ExitCode: -1}, "The agent ended by a signal."},
		{Why{Kind: Agent, Step: "a", Tries: 1, ExitCode: 3},
			"Step a: its agent ended with exit code 3, without finishing it."},
		{Why{Kind: Agent, Step: "a", Tries: 3, Said: "I give up"},
			"Step a: 3 agents ended without finishing it: I give up."},
		{Why{Kind: Silent, Step: "a", Tries: 2, By: "deepwork-run", ExitCode: 1, Said: "no"},
			"Step a: 2 agents ended without finishing it, last with exit code 1: no; the last one never connected " +
				"to the MCP server deepwork-run, which its program must know ('deepwork help tutorials/run')."},
		{Why{Kind: Limit}, "A limit of the agent's provider ended it."},
		{Why{Kind: Limit, Step: "a", Tries: 10, Said: "429"},
			"Step a: a limit of its agent's provider ended 10 agents in a row; resume the run when the limit is " +
				"over: 429."},
		{Why{Kind: Cost, Amount: 0.8, Most: 0.5}, "Its agents have cost 0.8 USD, and its budget is 0.5 USD."},
		{Why{Kind: Unknown, Amount: 2, Most: 2}, "2 of its agents have ended with an unknown cost, and at most 2 may."},
		{Why{Kind: Unknown, Amount: 1, Most: 1}, "1 of its agents has ended with an unknown cost, and at most 1 may."},
		{Why{Kind: Silent, Step: "a", Tries: 1, By: "m", Said: "command not found."},
			"Step a: its agent ended without finishing it: command not found; the last one never connected to the " +
				"MCP server m, which its program must know ('deepwork help tutorials/run')."},
		{Why{Kind: Time, Most: 90}, "It has reached its time limit of 1m30s."},
		{Why{Kind: Conflict, Step: "merge:a[1]", Said: "git status lists them"},
			"Step merge:a[1]: its merge has conflicts: git status lists them."},
		{Why{Kind: Gone}, "The process that led it is gone."},
		{Why{Kind: Stopped}, "It was stopped."},
		{Why{Kind: Cut}, "It was interrupted."},
		{Why{Kind: Aborted, Said: "obsolete"}, "The workflow was aborted: obsolete."},
		{Why{Kind: Dropped, Said: "go on"}, `The follow-up that was queued was dropped: "go on".`},
		{Why{Kind: "untrusted", Step: "a", Said: "The user has not approved it."},
			"Step a: The user has not approved it."},
		{Why{Kind: Other, Said: "the machine m2 was gone for 1m"}, "The machine m2 was gone for 1m."},
		{Why{Kind: Other, Said: "über die Grenze"}, "Über die Grenze."},
	} {
		testkit.Equal(t, c.of.Sentence(), c.want, "%s", c.of.Kind)
	}
}

// What programs print for programs is not shown to people.
func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "",
		" \n---\n no network \nmore": "no network",
		"func main() {\n}":           "func main() {",
		`API Error: 400 {"type":"error","error":{"type":"invalid","message":"too long"}}`: "API Error: 400 too long",
		`{"type":"result","is_error":true,"result":"{\"message\":\"log in\"}"}`:           "log in",
		"{\n  \"error\": {\n    \"message\": \"no credit\"\n  }\n}":                       "no credit",
		"Failed:\n{\"a\":1}":                        "Failed:",
		`failed: {"error":{"mess`:                   "failed",
		`[{"text":"one"}]`:                          "one",
		"{\n\"type\": \"error\",\n\"cut\": {\nlast": "last",
		`error: { "a": 1 }`:                         "error",
		`error: { "type": "err`:                     "error",
		`failed ["a","b`:                            "failed",
		`failed ["a","b"]`:                          "failed a",
		`time=1 {"level":"error","msg":"no disk"}`:  "time=1 no disk",
		"[main] f() { return x[0] }":                "[main] f() { return x[0] }",
	} {
		testkit.Equal(t, Line(text), want, "%q", text)
	}
	testkit.Equal(t, len([]rune(Line(strings.Repeat("é", 2*maxLine)))), maxLine)
}
