package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
)

func TestReq001_4_14_ReviewThatPasses(t *testing.T) {
	t.Parallel()
	began := time.Now()
	v := judge(t, Settings{Command: command("pass")})
	testkit.Need(t, v.Err == nil && v.Passed && v.Feedback == "all is well", "got %+v", v)
	if want := words(command("pass")); v.Reviewer != want {
		t.Errorf("reviewer %q, want %q", v.Reviewer, want)
	}
	testkit.True(t, v.StartedAt.Location() == time.UTC && !v.StartedAt.Before(began.Add(-time.Second)) && v.EndedAt.After(v.StartedAt), "from %v to %v", v.StartedAt, v.EndedAt)
	testkit.True(t, v.Task.Key == "0/step" && v.Task.Digest != "", "of task %+v", v.Task)
}

func TestReq001_4_12_ReviewThatFails(t *testing.T) {
	t.Parallel()
	v := judge(t, Settings{Command: command("fail")})
	testkit.True(t, v.Err == nil && !v.Passed && v.Feedback == "the summary is missing", "got %+v", v)
}

func TestReviewersThatGiveNoVerdict(t *testing.T) {
	cases := map[string]struct {
		settings Settings
		code     Code
		wants    []string
	}{
		"exit code":     {Settings{Command: command("say", passes, "one\ntwo: no key\n", "3")}, Crashed, []string{"exit code 3", "two: no key", "reviewer say"}},
		"garbage":       {Settings{Command: command("say", "I like it.\n")}, NoVerdict, []string{"I like it.", "the configuration with which the session began.", `no JSON object with "passed"`}},
		"silence":       {Settings{Command: command("say", "")}, NoVerdict, []string{"without an answer", "It wrote nothing"}},
		"only stderr":   {Settings{Command: command("say", "", "not logged in")}, NoVerdict, []string{"without an answer", "not logged in"}},
		"two verdicts":  {Settings{Command: command("say", passes+"\n"+passes)}, TwoVerdicts, []string{"2 verdicts"}},
		"contradiction": {Settings{Command: command("say", `{"passed":true,"criteria_results":[{"criterion":"complete","passed":false}]}`)}, Contradiction, []string{`"complete" is not`}},
		"flood":         {Settings{Command: command("flood")}, Flooded, []string{"more than 4194304 bytes", "    y\n"}},
		"no program":    {Settings{Command: []string{"no-such-reviewer", "--now"}, From: func() string { return "own.yml" }}, NotStarted, []string{"`no-such-reviewer --now`", "no program 'no-such-reviewer'", "the reviewer is set in own.yml."}},
		"no file":       {Settings{Command: []string{"./tools/reviewer"}}, NotStarted, []string{"no program './tools/reviewer'"}},
		"no claude":     {Settings{Claude: true, ClaudeCommand: "no-such-claude"}, NotStarted, []string{"`claude`", "no program 'no-such-claude'"}},
		"no runner":     {Settings{}, NotStarted, []string{"no reviewer is configured"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := judge(t, c.settings)
			e := fault(t, v, c.code, append(c.wants, "the whole step")...)
			if len(e.Tail) > tailSize || len(e.Error()) > 3500 {
				t.Errorf("the tail has %d bytes, the message %d", len(e.Tail), len(e.Error()))
			}
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
		if after := v.EndedAt.Sub(v.StartedAt); after < timeout {
			t.Errorf("after %v of %v", after, timeout)
		}
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
func recorded(t *testing.T, claude bool, answer string) (received, Verdict, *project) {
	t.Helper()
	t.Setenv("CLAUDECODE", "1")
	t.Setenv("SHOP_TOKEN", "secret")
	p := newProject(t)
	p.write("report.md", "# Tides\n")
	s := p.submission("step").submit("report", "report.md")
	s.Step.Reviews[0].Guidance = new("Look at the figures.")
	s.Notes = "I checked it twice."
	file := filepath.Join(t.TempDir(), "received.json")
	settings := Settings{Command: command("record", file, answer), MaxInlineFiles: 5, Secrets: []string{"SHOP_TOKEN"}}
	if claude {
		self, _ := os.Executable()
		t.Setenv(claudeEnv, "record "+file+" "+answer)
		settings = Settings{Claude: true, ClaudeCommand: self, Command: []string{"not", "this"}, MaxInlineFiles: 5, Secrets: []string{"SHOP_TOKEN"}}
	}
	v := <-collect(t, t.Context(), p.gate(always(settings)), "a", s, p.plan(s))
	data, err := os.ReadFile(file)
	testkit.Need(t, err == nil, "%v; the verdict is %v", err, v.Err)
	var r received
	testkit.Must(t, json.Unmarshal(data, &r))
	testkit.True(t, r.Dir == p.root, "it runs in %s, want %s", r.Dir, p.root)
	if _, there := r.Env["SHOP_TOKEN"]; there {
		t.Error("it gets what is secret")
	}
	if _, there := r.Env["CLAUDECODE"]; there || r.Env[ReviewEnv] != "1" || r.Env["PATH"] != os.Getenv("PATH") {
		t.Errorf("%s=%q, CLAUDECODE there: %v", ReviewEnv, r.Env[ReviewEnv], there)
	}
	return r, v, p
}

// DESIGN "Reviews": task, criteria and guidance in the system prompt, outputs and
// notes on stdin, the verdict in structured_output.
func TestReq001_1_7_ClaudeCommandLine(t *testing.T) {
	answer := `{"type":"result","subtype":"success","is_error":false,"result":"Not yet.","structured_output":{"passed":false,"feedback":"Plain words: no","criteria_results":[{"criterion":"plain words","passed":false,"feedback":"jargon"},{"criterion":"complete","passed":true,"feedback":null}]}}`
	r, v, _ := recorded(t, true, answer)
	testkit.Need(t, len(r.Args) == 10, "%d arguments: %q", len(r.Args), r.Args)
	system, schema := r.Args[5], r.Args[7]
	want := []string{r.Args[0], "--print", "--output-format", "json", "--system-prompt", system, "--json-schema", schema, "-p", "--"}
	testkit.True(t, slices.Equal(r.Args, want), "arguments %q", r.Args)
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
	if err := json.Unmarshal([]byte(schema), &s); err != nil || s.Type != "object" || len(s.Properties) != 3 {
		t.Errorf("the schema is %s: %v", schema, err)
	}
	testkit.True(t, strings.Contains(schema, `"enum":["complete","Plain words"]`), "the criteria's names are not in the schema: %s", schema)
	if v.Err != nil || v.Passed || v.Reviewer != "claude" || len(v.Criteria) != 2 ||
		v.Criteria[0].Criterion != "Plain words" || *v.Criteria[0].Feedback != "jargon" || v.Criteria[1].Feedback != nil {
		t.Errorf("got %+v", v)
	}
}

func TestOtherCommandsGetAllOnStdin(t *testing.T) {
	r, v, _ := recorded(t, false, passes)
	for _, text := range []string{"Is everything there?", "Look at the figures.", "# Tides", "> I checked it twice.", "> A paper on tides.", `"criteria_results"`} {
		testkit.True(t, strings.Contains(r.Stdin, text), "the input lacks %q", text)
	}
	testkit.True(t, len(r.Args) == 5 && v.Err == nil && v.Passed, "arguments %q, got %+v", r.Args, v)
}

func TestNonceIsAnotherForEachReview(t *testing.T) {
	a, _, _ := recorded(t, false, passes)
	b, _, _ := recorded(t, false, passes)
	nonce := func(r received) string {
		_, after, _ := strings.Cut(r.Stdin, "==== BEGIN OUTPUTS ")
		n, _, _ := strings.Cut(after, " ")
		return n
	}
	if len(nonce(a)) != 16 || nonce(a) == nonce(b) {
		t.Errorf("%q and %q", nonce(a), nonce(b))
	}
}

func TestPromptOfALongJobStaysOffTheCommandLine(t *testing.T) {
	p := newProject(t)
	s := p.submission("step")
	s.Step.Reviews[0].Guidance = new(strings.Repeat("Mind the gap. ", 20_000))
	file := filepath.Join(t.TempDir(), "received.json")
	self, _ := os.Executable()
	t.Setenv(claudeEnv, "record "+file)
	v := <-collect(t, t.Context(), p.gate(always(Settings{Claude: true, ClaudeCommand: self})), "a", s, p.plan(s))
	testkit.Need(t, v.Err == nil && v.Passed, "got %+v", v)
	data, _ := os.ReadFile(file)
	var r received
	json.Unmarshal(data, &r)
	if len(strings.Join(r.Args, " ")) > 30_000 || !strings.Contains(r.Stdin, "Mind the gap.") {
		t.Errorf("the command line has %d bytes, the input %d", len(strings.Join(r.Args, " ")), len(r.Stdin))
	}
}

func TestContentThatChangedBeforeTheReview(t *testing.T) {
	t.Parallel()
	for name, inline := range map[string]int{"shown": 5, "named": 0} {
		for what, change := range map[string]func(p *project){
			"edited":  func(p *project) { p.write("report.md", "other") },
			"grown":   func(p *project) { p.write("report.md", strings.Repeat("x", 5<<20)) },
			"removed": func(p *project) { os.Remove(filepath.Join(p.root, "report.md")) },
			"a pipe's place": func(p *project) {
				os.Remove(filepath.Join(p.root, "report.md"))
				os.Mkdir(filepath.Join(p.root, "report.md"), 0o700)
			},
			"led outside": func(p *project) {
				os.Remove(filepath.Join(p.root, "report.md"))
				outside := filepath.Join(t.TempDir(), "secret")
				os.WriteFile(outside, []byte("# Tides\n"), 0o600) // the same content
				if err := os.Symlink(outside, filepath.Join(p.root, "report.md")); err != nil {
					t.Skip(err)
				}
			},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				p := newProject(t)
				p.write("report.md", "# Tides\n")
				s := p.submission("step").submit("report", "report.md")
				tasks := p.plan(s)
				change(p)
				mark := filepath.Join(t.TempDir(), "started")
				v := <-collect(t, t.Context(), p.gate(always(Settings{Command: command("record", mark), MaxInlineFiles: inline})), "a", s, tasks)
				fault(t, v, ContentChanged, "'report.md'", "the review did not begin")
				if _, err := os.Stat(mark); err == nil {
					t.Error("the reviewer was started")
				}
			})
		}
	}
}

func TestContentThatChangedWhileItWasReviewed(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.write("report.md", "# Tides\n")
	s := p.submission("step").submit("report", "report.md")
	v := <-collect(t, t.Context(), p.gate(always(Settings{Command: command("change", "report.md"), MaxInlineFiles: 5})), "a", s, p.plan(s))
	fault(t, v, ContentChanged, "'report.md'", "while it was reviewed")
}

func TestCancelledCallerIsToldSo(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	h := testkit.NewHub(t)
	p.write("report.md", "# Tides\n")
	s := p.submission("step").submit("report", "report.md")
	ctx, cancel := context.WithCancelCause(t.Context())
	verdicts := collect(t, ctx, p.gate(always(Settings{Command: command("hang", h.Addr().String())})), "a", s, p.plan(s))
	r := h.Next()
	why := errors.New("the session was aborted")
	cancel(why)
	e := fault(t, <-verdicts, Cancelled, "the session was aborted")
	testkit.True(t, errors.Is(e, why), "the cause is %v", e.Err)
	r.Gone()
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
	var r received
	data, err := os.ReadFile(file)
	testkit.Must(t, err)
	testkit.Must(t, json.Unmarshal(data, &r))
	if task := r.Args[len(r.Args)-1]; r.Stdin != "" || r.Env["MODE"] != "review" || !strings.Contains(task, "# Tides") || !strings.Contains(task, "Is everything there?") {
		t.Errorf("received %+v", r)
	}
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
		"passes":       {command: command("say", passes), printed: passes},
		"not recorded": {command: command("say", passes), err: errors.New("the disk is full"), printed: passes, code: Crashed},
		"nonsense":     {command: command("say", "well"), printed: "well", code: NoVerdict},
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
			} else if v.Err != nil || !v.Passed {
				t.Errorf("%+v", v)
			}
			if want := strings.TrimSpace(c.printed); strings.Join(reported, "|") != want {
				t.Errorf("reported %q, want %q", reported, want)
			}
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
	v := <-collect(t, t.Context(), p.gate(always(settings)), "a", s, p.plan(s))
	fault(t, v, NotStarted, "`executor X`", "at most 120000 are possible", "max_inline_files")
	if _, err := os.Stat(file); err == nil {
		t.Error("it was started")
	}
	settings.MaxInlineFiles = 0
	if v := <-collect(t, t.Context(), p.gate(always(settings)), "a", s, p.plan(s)); v.Err != nil || !v.Passed {
		t.Errorf("with paths alone: %+v", v)
	}
}

// Reviews by people are not planned for the reviewer, nor in its self-review, and, unlike those of others, are due whatever was
// handed in.
func TestReviewsByPeopleAreNotForReviewers(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.write("report.md", "# Tides\n")
	s := p.submission("step", "docs", "docs").submit("report", "report.md")
	s.Step.Reviews[2].ByHuman = true
	s.Step.Reviews[2].Criteria = []job.Criteria{{Name: "Sound", Question: "Would you sign it?"}}
	if tasks := p.plan(s); len(tasks) != 1 || tasks[0].Key != "0/step" {
		t.Errorf("planned %+v", tasks)
	}
	if tasks := PlanHuman(s, nil); len(tasks) != 1 || tasks[0].Key != "2/docs" || len(tasks[0].Files) != 1 || tasks[0].Criteria[0].Name != "Sound" {
		t.Errorf("for people %+v", tasks)
	}
	if text := SelfReview(s); strings.Contains(text, "sign it") || !strings.Contains(text, "## Criteria to Evaluate") {
		t.Errorf("self-review: %s", text)
	}
}
