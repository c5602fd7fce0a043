package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

func TestReq001_4_14_ReviewThatPasses(t *testing.T) {
	t.Parallel()
	began := time.Now()
	v := judge(t, Settings{Command: saying(passes)})
	passed(t, v)
	testkit.Equal(t, v.Feedback, "all is well")
	testkit.Equal(t, v.Reviewer, words(saying(passes)), "reviewer")
	testkit.True(t, v.StartedAt.Location() == time.UTC && !v.StartedAt.Before(began.Add(-time.Second)) && v.EndedAt.After(v.StartedAt), "from %v to %v", v.StartedAt, v.EndedAt)
	testkit.True(t, v.Task.Key == "0/step" && v.Task.Digest != "", "of task %+v", v.Task)
}

func TestReq001_4_12_ReviewThatFails(t *testing.T) {
	t.Parallel()
	v := judge(t, Settings{Command: saying(fails)})
	testkit.True(t, v.Err == nil && !v.Passed && v.Feedback == "the summary is missing", "got %+v", v)
}

func TestReviewersThatGiveNoVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		settings Settings
		code     Code
		wants    []string
	}{
		"exit code":     {Settings{Command: command("say", passes, "one\ntwo: no key\n", "3")}, Crashed, []string{"exit code 3", "two: no key", "reviewer say"}},
		"garbage":       {Settings{Command: saying("I like it.\n")}, NoVerdict, []string{"I like it.", "the configuration with which the session began.", `no JSON object with "passed"`}},
		"silence":       {Settings{Command: saying("")}, NoVerdict, []string{"without an answer", "It wrote nothing"}},
		"only stderr":   {Settings{Command: command("say", "", "not logged in")}, NoVerdict, []string{"without an answer", "not logged in"}},
		"two verdicts":  {Settings{Command: saying(passes + "\n" + passes)}, TwoVerdicts, []string{"2 verdicts"}},
		"contradiction": {Settings{Command: saying(`{"passed":true,"criteria_results":[{"criterion":"complete","passed":false}]}`)}, Contradiction, []string{`"complete" is not`}},
		"flood":         {Settings{Command: command("flood")}, Flooded, []string{"more than 4194304 bytes", "    y\n"}},
		"no program":    {Settings{Command: []string{"no-such-reviewer", "--now"}, From: func() string { return "own.yml" }}, NotStarted, []string{"`no-such-reviewer --now`", "no program 'no-such-reviewer'", "the reviewer is set in own.yml."}},
		"no file":       {Settings{Command: []string{"./tools/reviewer"}}, NotStarted, []string{"no program './tools/reviewer'"}},
		"no claude":     {Settings{Claude: true, ClaudeCommand: "no-such-claude"}, NotStarted, []string{"`claude`", "no program 'no-such-claude'"}},
		"no runner":     {Settings{}, NotStarted, []string{"no reviewer is configured"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := judge(t, c.settings)
			e := fault(t, v, c.code, append(c.wants, "the whole step")...)
			testkit.True(t, len(e.Tail) <= tailSize && len(e.Error()) <= 3500, "the tail has %d bytes, the message %d", len(e.Tail), len(e.Error()))
			testkit.True(t, !v.EndedAt.Before(v.StartedAt) && !v.StartedAt.IsZero(), "from %v to %v", v.StartedAt, v.EndedAt)
		})
	}
}

func TestReviewerThatHangsIsTimedOutAndKilledWithItsChildren(t *testing.T) {
	t.Parallel()
	// A machine that is too busy to have both reported before the timeout has more.
	for timeout := time.Second; ; timeout *= 4 {
		h := testkit.NewHub(t)
		visitors := make(chan *testkit.Visitor, 2)
		go func() {
			defer close(visitors)
			for range 2 {
				if v := h.Next(); v != nil {
					visitors <- v
				}
			}
		}()
		v := judge(t, Settings{Command: command("stubborn", h.Addr().String()), Timeout: timeout})
		fault(t, v, TimedOut, fmt.Sprintf("timeout of %v", timeout), "default_timeout")
		testkit.True(t, v.EndedAt.Sub(v.StartedAt) >= timeout, "after %v of %v", v.EndedAt.Sub(v.StartedAt), timeout)
		h.Close()
		reported := 0
		for v := range visitors {
			v.Gone()
			reported++
		}
		if reported == 2 {
			return
		}
		testkit.Need(t, timeout <= patience, "%d of the two have reported within %v", reported, timeout)
	}
}

// recorded runs a review and returns what its reviewer received.
func recorded(t *testing.T, claude bool, answer string) (received, Verdict) {
	t.Helper()
	t.Setenv("CLAUDECODE", "1")
	t.Setenv("SHOP_TOKEN", "secret")
	p, s := tides(t)
	s.Step.Reviews[0].Guidance = new("Look at the figures.")
	s.Notes = "I checked it twice."
	file := filepath.Join(t.TempDir(), "received.json")
	settings := Settings{Command: command("record", file, answer), MaxInlineFiles: 5, Secrets: []string{"SHOP_TOKEN"}}
	if claude {
		t.Setenv(claudeEnv, "record "+file+" "+answer)
		settings.Claude, settings.ClaudeCommand, settings.Command = true, settings.Command[0], []string{"not", "this"}
	}
	v := p.judge(settings, s, p.plan(s))
	r, ran := receivedIn(t, file)
	testkit.Need(t, ran, "the verdict is %v", v.Err)
	testkit.Equal(t, r.Dir, p.root, "it runs in")
	_, secret := r.Env["SHOP_TOKEN"]
	_, within := r.Env["CLAUDECODE"]
	testkit.True(t, !secret && !within && r.Env[ReviewEnv] == "1" && r.Env["PATH"] == os.Getenv("PATH"), "%s=%q, what is secret is there: %t, CLAUDECODE: %t", ReviewEnv, r.Env[ReviewEnv], secret, within)
	return r, v
}

// DESIGN "Reviews": task, criteria and guidance in the system prompt, outputs and
// notes on stdin, the verdict in structured_output.
func TestReq001_1_7_ClaudeCommandLine(t *testing.T) {
	answer := `{"type":"result","subtype":"success","is_error":false,"result":"Not yet.","structured_output":{"passed":false,"feedback":"Plain words: no","criteria_results":[{"criterion":"plain words","passed":false,"feedback":"jargon"},{"criterion":"complete","passed":true,"feedback":null}]}}`
	r, v := recorded(t, true, answer)
	testkit.Need(t, len(r.Args) == 10, "%d arguments: %q", len(r.Args), r.Args)
	system, schema := r.Args[5], r.Args[7]
	testkit.Same(t, r.Args, []string{r.Args[0], "--print", "--output-format", "json", "--system-prompt", system, "--json-schema", schema, "-p", "--"}, "arguments")
	for _, text := range []string{"Writes the report", "Is everything there?", "**Plain words**", "Look at the figures.", "papers/paper"} {
		testkit.True(t, strings.Contains(system, text) && !strings.Contains(r.Stdin, text), "%q is not in the system prompt alone", text)
	}
	for _, text := range []string{"# Tides", "> I checked it twice.", "`report.md`", "> A paper on tides."} {
		testkit.True(t, !strings.Contains(system, text) && strings.Contains(r.Stdin, text), "%q is not in the input alone", text)
	}
	var s struct {
		Type       string
		Properties map[string]any
	}
	testkit.Must(t, json.Unmarshal([]byte(schema), &s))
	testkit.True(t, s.Type == "object" && len(s.Properties) == 3, "the schema is %s", schema)
	testkit.Contains(t, schema, `"enum":["complete","Plain words"]`, "the criteria's names in the schema")
	testkit.True(t, v.Err == nil && !v.Passed && v.Reviewer == "claude", "got %+v", v)
	testkit.Same(t, v.Criteria, []CriterionResult{{Criterion: "Plain words", Feedback: new("jargon")}, {Criterion: "complete", Passed: true}})
}

func TestOtherCommandsGetAllOnStdin(t *testing.T) {
	nonces := map[string]bool{} // another one for each review
	for range 2 {
		r, v := recorded(t, false, passes)
		passed(t, v)
		testkit.ContainsAll(t, r.Stdin, []string{"Is everything there?", "Look at the figures.", "# Tides", "> I checked it twice.", "> A paper on tides.", `"criteria_results"`})
		testkit.Equal(t, len(r.Args), 5, "arguments")
		_, after, _ := strings.Cut(r.Stdin, "==== BEGIN OUTPUTS ")
		nonce, _, _ := strings.Cut(after, " ")
		testkit.True(t, len(nonce) == 16 && !nonces[nonce], "the nonce %q", nonce)
		nonces[nonce] = true
	}
}

func TestPromptOfALongJobStaysOffTheCommandLine(t *testing.T) {
	p, s := tides(t)
	s.Step.Reviews[0].Guidance = new(strings.Repeat("Mind the gap. ", 20_000))
	file := filepath.Join(t.TempDir(), "received.json")
	t.Setenv(claudeEnv, "record "+file)
	passed(t, p.judge(Settings{Claude: true, ClaudeCommand: command("record")[0]}, s, p.plan(s)))
	r, _ := receivedIn(t, file)
	n := len(strings.Join(r.Args, " "))
	testkit.True(t, n <= 30_000 && strings.Contains(r.Stdin, "Mind the gap."), "the command line has %d bytes, the input %d", n, len(r.Stdin))
}

func TestContentThatChangedBeforeTheReview(t *testing.T) {
	t.Parallel()
	for name, inline := range map[string]int{"shown": 5, "named": 0} {
		for what, change := range map[string]func(t *testing.T, report string){
			"edited":  func(t *testing.T, report string) { testkit.Write(t, report, "other") },
			"grown":   func(t *testing.T, report string) { testkit.Write(t, report, strings.Repeat("x", 5<<20)) },
			"removed": func(t *testing.T, report string) { testkit.Must(t, os.Remove(report)) },
			"a pipe's place": func(t *testing.T, report string) {
				testkit.Must(t, errors.Join(os.Remove(report), os.Mkdir(report, 0o700)))
			},
			"led outside": func(t *testing.T, report string) {
				outside := filepath.Join(t.TempDir(), "secret")
				testkit.Write(t, outside, "# Tides\n") // the same content
				testkit.Must(t, errors.Join(os.Remove(report), os.Symlink(outside, report)))
			},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				p, s := tides(t)
				tasks := p.plan(s)
				change(t, filepath.Join(p.root, "report.md"))
				mark := filepath.Join(t.TempDir(), "started")
				fault(t, p.judge(Settings{Command: command("record", mark), MaxInlineFiles: inline}, s, tasks), ContentChanged, "'report.md'", "the review did not begin")
				_, ran := receivedIn(t, mark)
				testkit.True(t, !ran, "the reviewer was started")
			})
		}
	}
}

func TestContentThatChangedWhileItWasReviewed(t *testing.T) {
	t.Parallel()
	fault(t, judge(t, Settings{Command: command("record", "report.md")}), ContentChanged, "'report.md'", "while it was reviewed")
}

func TestTimeoutByTheNumberOfFiles(t *testing.T) {
	for n, want := range map[int]time.Duration{0: 120, 1: 120, 5: 120, 6: 150, 15: 420} {
		testkit.Equal(t, (Settings{}).timeout(n), want*time.Second, "for %d files", n)
		testkit.Equal(t, (Settings{Timeout: time.Second}).timeout(n), time.Second, "as configured, for %d files", n)
	}
}

// A reviewer may take its task as an argument, with variables of its own, and have its answer among other
// output.
func TestAReviewerThatTakesAnArgument(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "received")
	s := Settings{
		Command: command("record", file), Name: "executor X:Y", Argument: true, Env: []string{"MODE=review"},
		Answer: func(stdout []byte) []byte {
			if !bytes.Contains(stdout, []byte("# Tides")) { // it prints its argument
				return stdout
			}
			return []byte(`{"passed": false, "feedback": "I have the answer"}`)
		},
	}
	v := judge(t, s)
	testkit.True(t, v.Err == nil && !v.Passed && v.Feedback == "I have the answer" && v.Reviewer == "executor X:Y", "%+v", v)
	r, _ := receivedIn(t, file)
	testkit.Equal(t, r.Stdin, "")
	testkit.Equal(t, r.Env["MODE"], "review")
	testkit.ContainsAll(t, r.Args[len(r.Args)-1], []string{"# Tides", "Is everything there?"})
}

// What a reviewer has printed is reported however it ended, before its verdict counts, and not if it never ran.
func TestAReviewerHasEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		command []string
		err     error
		printed string // what is reported
		code    Code   // of the fault; "" means a verdict
	}{
		"passes":       {command: saying(passes), printed: passes},
		"not recorded": {command: saying(passes), err: errors.New("the disk is full"), printed: passes, code: Crashed},
		"nonsense":     {command: saying("well"), printed: "well", code: NoVerdict},
		"never runs":   {command: []string{"no-such-reviewer"}, code: NotStarted},
	} {
		t.Run(name, func(t *testing.T) {
			var reported []string
			v := judge(t, Settings{Command: c.command, Ended: func(stdout []byte) error {
				reported = append(reported, strings.TrimSpace(string(stdout)))
				return c.err
			}})
			if c.code != "" {
				fault(t, v, c.code)
			} else {
				passed(t, v)
			}
			testkit.Equal(t, strings.Join(reported, "|"), c.printed, "reported")
		})
	}
}

// What is too long for an argument is refused before the reviewer starts.
func TestATaskThatIsTooLongForAnArgument(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.write("report.md", strings.Repeat("Tides. ", maxArgument/7))
	file := filepath.Join(t.TempDir(), "received")
	s := p.submission("step").submit("report", "report.md")
	settings := Settings{Command: command("record", file), Name: "executor X", Argument: true, MaxInlineFiles: 5,
		Answer: func([]byte) []byte { return []byte(passes) }}
	fault(t, p.judge(settings, s, p.plan(s)), NotStarted, "`executor X`", "at most 120000 are possible", "max_inline_files")
	_, ran := receivedIn(t, file)
	testkit.True(t, !ran, "it was started")
	settings.MaxInlineFiles = 0
	passed(t, p.judge(settings, s, p.plan(s))) // with paths alone
}
