package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
)

func TestReq001_4_14_ReviewThatPasses(t *testing.T) {
	began, v := time.Now(), judge(t, Settings{Command: saying(passes)})
	passed(t, v)
	testkit.Equal(t, v.Feedback, "all is well")
	testkit.Equal(t, v.Reviewer, words(saying(passes)), "reviewer")
	testkit.Equal(t, v.StartedAt.Location(), time.UTC, "from %v to %v", v.StartedAt, v.EndedAt)
	testkit.True(t, !v.StartedAt.Before(began.Add(-time.Second)), "from %v to %v", v.StartedAt, v.EndedAt)
	testkit.True(t, v.EndedAt.After(v.StartedAt), "from %v to %v", v.StartedAt, v.EndedAt)
	testkit.True(t, v.Task.Key == "0/step" && v.Task.Digest != "", "of task %+v", v.Task)
}

func TestReq001_4_12_ReviewThatFails(t *testing.T) {
	v := judge(t, Settings{Command: saying(fails)})
	testkit.Need(t, v.Err == nil, "got %+v", v)
	testkit.True(t, !v.Passed, "got %+v", v)
	testkit.Equal(t, v.Feedback, "the summary is missing", "got %+v", v)
}

func TestReviewersThatGiveNoVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		settings Settings
		code     Code
		wants    []string
	}{
		"exit code": {Settings{Command: command("say", passes, "one\ntwo: no key\n", "3")}, Crashed,
			[]string{"exit code 3", "two: no key", "reviewer say"}},
		"garbage": {Settings{Command: saying("I like it.\n")}, NoVerdict,
			[]string{"I like it.", "the configuration with which the session began.", `no JSON object with "passed"`}},
		"silence": {Settings{Command: saying("")}, NoVerdict, []string{"without an answer", "It wrote nothing"}},
		"only stderr": {Settings{Command: command("say", "", "not logged in")}, NoVerdict,
			[]string{"without an answer", "not logged in"}},
		"two verdicts": {Settings{Command: saying(passes + "\n" + passes)}, TwoVerdicts, []string{"2 verdicts"}},
		"contradiction": {Settings{Command: saying(
			`{"passed":true,"criteria_results":[{"criterion":"complete","passed":false}]}`)}, Contradiction,
			[]string{`"complete" is not`}},
		"flood": {Settings{Command: command("flood")}, Flooded, []string{"more than 4194304 bytes", "    y\n"}},
		"no program": {Settings{
			Command: []string{"no-such-reviewer", "--now"},
			From:    func() string { return "own.yml" },
		}, NotStarted, []string{"`no-such-reviewer --now`", "no program 'no-such-reviewer'",
			"the reviewer is set in own.yml."}},
		"no file": {Settings{Command: []string{"./tools/reviewer"}}, NotStarted,
			[]string{"no program './tools/reviewer'"}},
		"no claude": {Settings{Claude: true, ClaudeCommand: "no-such-claude"}, NotStarted,
			[]string{"`claude`", "no program 'no-such-claude'"}},
		"no runner": {Settings{}, NotStarted, []string{"no reviewer is configured"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := judge(t, c.settings)
			e := fault(t, v, c.code, append(c.wants, "the whole step")...)
			testkit.True(t, len(e.Tail) <= tailSize && len(e.Error()) <= 3500, "the tail has %d bytes, the message %d",
				len(e.Tail), len(e.Error()))
			testkit.True(t, !v.EndedAt.Before(v.StartedAt) && !v.StartedAt.IsZero(), "from %v to %v", v.StartedAt,
				v.EndedAt)
		})
	}
}

func TestReviewerThatHangsIsTimedOutAndKilledWithItsChildren(t *testing.T) {
	// A machine that is too busy to have both reported before the timeout has more.
	for timeout := time.Second; ; timeout *= 4 {
		h := testkit.NewHub(t)
		var all []*testkit.Visitor
		var wg sync.WaitGroup
		wg.Go(func() {
			for v := h.Next(); v != nil; v = h.Next() {
				all = append(all, v)
			}
		})
		v := judge(t, Settings{Command: command("stubborn", h.Addr().String()), Timeout: timeout})
		fault(t, v, TimedOut, fmt.Sprintf("timeout of %v", timeout), "default_timeout")
		testkit.True(t, v.EndedAt.Sub(v.StartedAt) >= timeout, "after %v of %v", v.EndedAt.Sub(v.StartedAt), timeout)
		h.Close()
		wg.Wait()
		for _, v := range all {
			v.Gone()
		}
		if len(all) == 2 {
			return
		}
		testkit.Need(t, timeout <= patience, "%d of the two have reported within %v", len(all), timeout)
	}
}

// recorded runs a review and returns what its reviewer received.
func recorded(t *testing.T, claude bool, answer string) (received, Verdict) {
	t.Helper()
	p, s := tides(t)
	s.Step.Reviews[0].Guidance = new("Look at the figures.")
	s.Notes = "I checked it twice."
	file := filepath.Join(t.TempDir(), "received.json")
	settings := Settings{Command: command("record", file, answer), MaxInlineFiles: 5, Secrets: []string{"SHOP_TOKEN"}}
	if claude {
		settings.Env = []string{claudeEnv + "=record " + file + " " + answer}
		settings.Claude, settings.ClaudeCommand, settings.Command = true, settings.Command[0], []string{"not", "this"}
	}
	v := p.judge(settings, s, p.plan(s))
	r, ran := receivedIn(t, file)
	testkit.Need(t, ran, "the verdict is %v", v.Err)
	testkit.Equal(t, r.Dir, p.root, "it runs in")

	_, secret := r.Env["SHOP_TOKEN"]
	testkit.True(t, !secret, "a secret is there")
	for _, name := range config.ConversationEnv {
		_, within := r.Env[name]
		testkit.True(t, !within, "%s is there", name)
	}
	testkit.Equal(t, r.Env[ReviewEnv], "1")
	testkit.Equal(t, r.Env["PATH"], os.Getenv("PATH"))
	return r, v
}

// DESIGN "Reviews": task, criteria and guidance in the system prompt, outputs and notes on stdin, the verdict
// in structured_output.
func TestReq001_1_7_ClaudeCommandLine(t *testing.T) {
	answer := `{"type":"result","subtype":"success","is_error":false,"result":"Not yet.",` +
		`"structured_output":{"passed":false,"feedback":"Plain words: no","criteria_results":[{"criterion":"plain ` +
		`words","passed":false,"feedback":"jargon"},{"criterion":"complete","passed":true,"feedback":null}]}}`
	r, v := recorded(t, true, answer)
	testkit.Need(t, len(r.Args) == 10, "%d arguments: %q", len(r.Args), r.Args)
	system, schema := r.Args[5], r.Args[7]
	testkit.Same(t, r.Args, []string{r.Args[0], "--print", "--output-format", "json", "--system-prompt", system,
		"--json-schema", schema, "-p", "--"}, "arguments")
	for _, text := range []string{"Writes the report", "Is everything there?", "**Plain words**",
		"Look at the figures.", "papers/paper"} {
		testkit.True(t, strings.Contains(system, text) && !strings.Contains(r.Stdin, text),
			"%q is not in the system prompt alone", text)
	}
	for _, text := range []string{"# Tides", "> I checked it twice.", "`report.md`", "> A paper on tides."} {
		testkit.True(t, !strings.Contains(system, text) && strings.Contains(r.Stdin, text),
			"%q is not in the input alone", text)
	}

	var s struct {
		Type       string
		Properties map[string]any
	}
	testkit.Must(t, json.Unmarshal([]byte(schema), &s))
	testkit.True(t, s.Type == "object" && len(s.Properties) == 3, "the schema is %s", schema)
	testkit.Contains(t, schema, `"enum":["complete","Plain words"]`, "the criteria's names in the schema")
	testkit.Need(t, v.Err == nil, "got %+v", v)
	testkit.True(t, !v.Passed, "got %+v", v)
	testkit.Equal(t, v.Reviewer, "claude", "got %+v", v)
	testkit.Same(t, v.Criteria, []CriterionResult{{Criterion: "Plain words", Feedback: new("jargon")},
		{Criterion: "complete", Passed: true}})
}

func TestOtherCommandsGetAllOnStdin(t *testing.T) {
	nonces := map[string]bool{} // another one for each review
	for range 2 {
		r, v := recorded(t, false, passes)
		passed(t, v)
		testkit.ContainsAll(t, r.Stdin,
			[]string{"Is everything there?", "Look at the figures.", "# Tides", "> I checked it twice.",
				"> A paper on tides.", `"criteria_results"`})
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
	passed(t, p.judge(Settings{
		Claude:        true,
		ClaudeCommand: command("record")[0],
		Env:           []string{claudeEnv + "=record " + file},
	}, s, p.plan(s)))
	r, _ := receivedIn(t, file)
	n := len(strings.Join(r.Args, " "))
	testkit.True(t, n <= 30_000 && strings.Contains(r.Stdin, "Mind the gap."),
		"the command line has %d bytes, the input %d", n, len(r.Stdin))
}

func TestContentThatChangedBeforeTheReview(t *testing.T) {
	for name, inline := range map[string]int{"shown": 5, "named": 0} {
		for what, change := range map[string]func(t *testing.T, report string){
			"edited":  func(t *testing.T, report string) { testkit.Write(t, report, "other") },
			"grown":   func(t *testing.T, report string) { testkit.Write(t, report, strings.Repeat("x", 5<<20)) },
			"removed": func(t *testing.T, report string) { testkit.Must(t, os.Remove(report)) },
			"a pipe's place": func(t *testing.T, report string) {
				testkit.Must(t, errors.Join(os.Remove(report), os.Mkdir(report, 0o700)))
			},
			"led outside": leadOutside,
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				p, s := tides(t)
				tasks := p.plan(s)
				change(t, filepath.Join(p.root, "report.md"))
				mark := filepath.Join(t.TempDir(), "started")
				fault(t, p.judge(Settings{Command: command("record", mark), MaxInlineFiles: inline}, s, tasks),
					ContentChanged, "'report.md'", "the review did not begin")
				_, ran := receivedIn(t, mark)
				testkit.True(t, !ran, "the reviewer was started")
			})
		}
	}
}

// leadOutside makes a report a link to a file outside of the project with the same content.
func leadOutside(t *testing.T, report string) {
	outside := filepath.Join(t.TempDir(), "secret")
	testkit.Write(t, outside, "# Tides\n")
	testkit.Must(t, os.Remove(report))
	if err := os.Symlink(outside, report); err != nil {
		t.Skip("no symlinks here:", err)
	}
}

func TestContentThatChangedWhileItWasReviewed(t *testing.T) {
	fault(t, judge(t, Settings{Command: command("record", "report.md")}), ContentChanged, "'report.md'",
		"while it was reviewed")
}

func TestTimeoutByTheNumberOfFiles(t *testing.T) {
	for n, want := range map[int]time.Duration{0: 120, 1: 120, 5: 120, 6: 150, 15: 420} {
		testkit.Equal(t, (Settings{}).timeout(n), want*time.Second, "for %d files", n)
		testkit.Equal(t, (Settings{Timeout: time.Second}).timeout(n), time.Second, "as configured, for %d files", n)
	}
}

// A reviewer may take its task as an argument, with variables of its own, and have its answer among other output.
func TestAReviewerThatTakesAnArgument(t *testing.T) {
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
	testkit.Need(t, v.Err == nil, "%+v", v)
	testkit.True(t, !v.Passed, "%+v", v)
	testkit.Equal(t, v.Feedback, "I have the answer")
	testkit.Equal(t, v.Reviewer, "executor X:Y")

	r, _ := receivedIn(t, file)
	testkit.Equal(t, r.Stdin, "")
	testkit.Equal(t, r.Env["MODE"], "review")
	testkit.ContainsAll(t, r.Args[len(r.Args)-1], []string{"# Tides", "Is everything there?"})
}

// What a reviewer has printed is reported however it ended, before its verdict counts, and not if it never ran.
func TestAReviewerHasEnded(t *testing.T) {
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

func TestATaskThatIsTooLongForAnArgument(t *testing.T) {
	p := newProject(t)
	p.write("report.md", strings.Repeat("Tides. ", maxArgument/7))
	file, s := filepath.Join(t.TempDir(), "received"), p.submission("step").submit("report", "report.md")
	settings := Settings{Command: command("record", file), Name: "executor X", Argument: true, MaxInlineFiles: 5,
		Answer: func([]byte) []byte { return []byte(passes) }}
	fault(t, p.judge(settings, s, p.plan(s)), NotStarted, "`executor X`", "at most 120000 are possible",
		"max_inline_files")
	_, ran := receivedIn(t, file)
	testkit.True(t, !ran, "it was started")
	settings.MaxInlineFiles = 0
	passed(t, p.judge(settings, s, p.plan(s))) // with paths alone
}

var twoCriteria = []job.Criteria{{Name: "complete", Question: "Is everything there?"},
	{Name: "Plain words", Question: "Can a stranger read it?"}}

// envelope is what claude prints around a result.
func envelope(result, more string) string {
	text, _ := json.Marshal(result)
	return `{"type":"result","subtype":"success","is_error":false,"duration_ms":2041,"num_turns":2,"result":` +
		string(text) + more + `,"session_id":"5b1c","total_cost_usd":0.01,"usage":{"input_tokens":3}}`
}

func TestVerdictsThatAreUnderstood(t *testing.T) {
	both := `"criteria_results":[{"criterion":"complete","passed":true,"feedback":null},{"criterion":"Plain ` +
		`words","passed":true}]`
	for name, c := range map[string]struct {
		in       string
		passed   bool
		feedback string
		criteria int
	}{
		"bare":                   {`{"passed":true,"feedback":"fine"}`, true, "fine", 0},
		"with blanks and a mark": {"\ufeff\n {\"passed\" : true , \"feedback\":\"fine\"}\r\n", true, "fine", 0},
		"fenced":                 {"```json\n{\"passed\":true,\"feedback\":\"fine\"}\n```\n", true, "fine", 0},
		"fenced within prose": {"I read {all} of it: f(x) { return \"{\"; " +
			"}\n\n```json\n{\"passed\":false,\"feedback\":\"no\"}\n```\nThat is all. {}", false, "no", 0},
		"all criteria": {`{"passed":true,"feedback":"fine",` + both + `}`, true, "fine", 2},
		"criteria by question": {`{"passed":true,"criteria_results":[{"criterion":"is everything  there?",` +
			`"passed":true},{"criterion":"PLAIN WORDS","passed":true}]}`, true, "", 2},
		"a criterion of its own": {`{"passed":true,"criteria_results":[{"criterion":"complete","passed":true},` +
			`{"criterion":"Plain words","passed":true},{"criterion":"extra","passed":true}]}`, true, "", 3},
		"no criteria at all": {`{"passed":true,"criteria_results":[]}`, true, "", 0},
		"null for a value":   {`{"passed":true,"feedback":null,"criteria_results":null}`, true, "", 0},
		"unknown members":    {`{"passed":true,"score":9,"score":8,"more":{"passed":false}}`, true, "", 0},
		"failed, some left out": {`{"passed":false,"feedback":"no","criteria_results":[{"criterion":"complete",` +
			`"passed":false}]}`, false, "no", 1},
		"failed, all passed": {`{"passed":false,"feedback":"no",` + both + `}`, false, "no", 2},
		"passed left out":    {`{"feedback":"hm"}`, false, "hm", 0},
		"passed null":        {`{"passed":null,"feedback":"hm"}`, false, "hm", 0},
		"no reason": {`{"passed":false}`, false,
			"The reviewer did not pass this, and gave no reason.", 0},
		"reasons in the criteria": {`{"passed":false,"feedback":" ","criteria_results":[{"criterion":"COMPLETE",` +
			`"passed":false,"feedback":"half of it"},{"criterion":"Plain words","passed":true}]}`, false,
			"- complete: half of it", 2},
		"claude, structured": {envelope("Done.",
			`,"structured_output":{"passed":true,"feedback":"fine",`+both+`}`), true, "fine", 2},
		"claude, both alike": {envelope("```json\n{\"passed\":true}\n```",
			`,"structured_output":{"passed":true,"feedback":"fine"}`), true, "fine", 0},
		"claude, in the result": {envelope("It is so: ```{\"passed\":false,\"feedback\":\"no\"}```", ""),
			false, "no", 0},
		"claude, null": {envelope(`{"passed":true,"feedback":"fine"}`, `,"structured_output":null`), true,
			"fine", 0},
		"claude, a list": {"[{\"type\":\"system\",\"subtype\":\"init\"},{\"type\":\"assistant\"," +
			"\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"{\\\"passed\\\":false}\"}]}}," +
			envelope("", `,"structured_output":{"passed":true}`) + "]", true, "", 0},
		"claude, a line each": {"{\"type\":\"system\"}\n{\"type\":\"assistant\"," +
			"\"message\":{\"passed\":false}}\n" + envelope("", `,"structured_output":{"passed":true}`) + "\n",
			true, "", 0},
		"somebody else's envelope": {`{"model":"m","result":"{\"passed\":true}"}`, true, "", 0},
		"an object beside it":      {`{"result":"4 files read"} {"passed":true}`, true, "", 0},
		"feedback beside it":       {`{"feedback":"a log line"} {"passed":true}`, true, "", 0},
		"cut off after it":         {`{"passed":true} {"and":`, true, "", 0},
	} {
		r, err := parseVerdict([]byte(c.in), twoCriteria)
		testkit.Need(t, err == nil, "%s: got %+v, %v", name, r, err)
		testkit.Need(t, r.passed == c.passed, "%s: got %+v, %v", name, r, err)
		testkit.Need(t, r.feedback == c.feedback, "%s: got %+v, %v", name, r, err)
		testkit.Need(t, len(r.criteria) == c.criteria, "%s: got %+v, %v", name, r, err)
		for i, cr := range r.criteria[:min(2, len(r.criteria))] {
			testkit.Equal(t, cr.Criterion, twoCriteria[i].Name, "%s: criterion %d", name, i)
		}
	}
	testkit.Equal(t, declaredName("COMPLETE", append(twoCriteria, job.Criteria{Name: "COMPLETE"})), "COMPLETE",
		"of names that differ only in case")
}

func TestAnswersThatAreNoVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		code Code
		want string
	}{
		"nothing":                {" \n", NoVerdict, "without an answer"},
		"prose":                  {"All criteria passed: true.", NoVerdict, "no JSON object"},
		"another object":         {`{"verdict":"passed"}`, NoVerdict, "no JSON object"},
		"a list":                 {`["passed", true]`, NoVerdict, "no JSON object"},
		"inside another object":  {`{"review":{"passed":true}}`, NoVerdict, "no JSON object"},
		"cut off":                {`{"passed":true,"feedback":"and`, NoVerdict, "no JSON object"},
		"in one that is cut off": {`{"review":{"passed":true}`, NoVerdict, "no JSON object"},
		"passed in words": {`{"passed":"yes"}`, NoVerdict,
			`passed in its answer is "yes"; expected true or false`},
		"passed as a number": {`{"passed":1}`, NoVerdict, "true or false"},
		"feedback as a list": {`{"passed":true,"feedback":["a"]}`, NoVerdict, `feedback in its answer is ["a"]`},
		"results as an object": {`{"passed":true,"criteria_results":{"complete":true}}`, NoVerdict,
			"a list of objects"},
		"results of words": {`{"passed":true,"criteria_results":["complete"]}`, NoVerdict,
			"criteria_results[0]"},
		"a result in words": {`{"passed":true,"criteria_results":[{"criterion":"complete","passed":"PASS"}]}`,
			NoVerdict, `criteria_results[0].passed in its answer is "PASS"`},
		"two": {`{"passed":true} {"passed":true}`, TwoVerdicts, "2 verdicts"},
		"two that differ": {"```json\n{\"passed\":false}\n```\nOn second " +
			"thought:\n```json\n{\"passed\":true}\n```", TwoVerdicts, "2 verdicts"},
		"passed twice": {`{"passed":false,"passed":true}`, TwoVerdicts, `"passed" twice`},
		"a result twice": {`{"passed":true,"criteria_results":[{"criterion":"complete","passed":false,` +
			`"passed":true}]}`, TwoVerdicts, `"passed" twice`},
		"claude, differing": {envelope(`{"passed":false}`, `,"structured_output":{"passed":true}`), TwoVerdicts,
			"differ"},
		"claude, two in result": {envelope(`{"passed":true}{"passed":true}`, `,"structured_output":{"passed":true}`),
			TwoVerdicts, "2 verdicts"},
		"claude, twice": {envelope("",
			`,"structured_output":{"passed":true},"structured_output":{"passed":true}`), TwoVerdicts, "twice"},
		"claude and beside it": {envelope("", `,"structured_output":{"passed":true}`) + passes, TwoVerdicts,
			"2 verdicts"},
		"claude, at both levels": {`{"passed":true,"structured_output":{"passed":true}}`, TwoVerdicts,
			"another in structured_output"},
		"claude failed": {`{"type":"result","subtype":"error_max_turns","is_error":true,"result":"",` +
			`"structured_output":{"passed":true}}`, Crashed, "error_max_turns"},
		"claude not logged in": {`{"type":"result","subtype":"success","is_error":true,"result":"Invalid API ` +
			`key · Please run /login"}`, Crashed, "Invalid API key"},
		"claude without": {envelope("I like it.", ""), NoVerdict, "no JSON object"},
		"claude, no object": {envelope("", `,"structured_output":"passed"`), NoVerdict,
			`"passed" where an object is expected`},
		"passed beside a failure": {`{"passed":true,"criteria_results":[{"criterion":"complete","passed":true},` +
			`{"criterion":"Plain words","passed":false}]}`, Contradiction, `"Plain words" is not`},
		"a failure of its own": {`{"passed":true,"criteria_results":[{"criterion":"complete","passed":true},` +
			`{"criterion":"Plain words","passed":true},{"criterion":"other","passed":false}]}`, Contradiction,
			`"other" is not`},
		"a result without passed": {`{"passed":true,"criteria_results":[{"criterion":"complete"}]}`, Contradiction,
			`"complete" is not`},
		"one left out": {`{"passed":true,"criteria_results":[{"criterion":"complete","passed":true}]}`,
			Contradiction, `leave out the criterion "Plain words"`},
		"one for both": {`{"passed":true,"criteria_results":[{"criterion":"complete","passed":true},` +
			`{"criterion":"complete","passed":true}]}`, Contradiction, "leave out"},
		"claude contradicts": {envelope("",
			`,"structured_output":{"passed":true,"criteria_results":[{"criterion":"complete","passed":false}]}`),
			Contradiction, "is not"},
	} {
		r, err := parseVerdict([]byte(c.in), twoCriteria)
		m, ok := errors.AsType[*misreading](err)
		testkit.Need(t, ok, "%s: got %+v, %v", name, r, err)
		testkit.Equal(t, m.code, c.code, "%s: got %+v, %v", name, r, err)
		testkit.Contains(t, err.Error(), c.want, "%s: got %+v, %v", name, r, err)
	}
}

func TestVerdictIsBounded(t *testing.T) {
	long := strings.Repeat("é", 100_000)
	in, _ := json.Marshal(map[string]any{
		"passed":           false,
		"feedback":         long + "\x00",
		"criteria_results": []any{map[string]any{"criterion": long, "passed": false, "feedback": long}},
	})
	r, err := parseVerdict(in, twoCriteria)
	testkit.Must(t, err)
	for text, limit := range map[string]int{
		r.feedback:              feedbackLimit,
		r.criteria[0].Criterion: criterionLimit,
		*r.criteria[0].Feedback: criterionLimit,
	} {
		testkit.True(t, utf8.RuneCountInString(text) == limit && strings.HasSuffix(text, "é…"),
			"%d characters, not %d: %.20s", utf8.RuneCountInString(text), limit, text)
	}
}

func FuzzVerdict(f *testing.F) {
	for _, s := range []string{
		passes, "```json\n" + passes + "\n```", passes + passes, `{"passed":false,"passed":true}`, `{"passed":"yes"}`,
		`{"passed":true,"criteria_results":[{"criterion":"complete","passed":true},{"criterion":"Plain words",` +
			`"passed":true}]}`,
		`{"passed":true,"criteria_results":[{"criterion":"complete","passed":false}]}`, `{"feedback":"x"}`,
		envelope(passes, ""), envelope("", `,"structured_output":`+passes),
		"[" + envelope("", `,"structured_output":`+passes) + "]",
		`{"type":"result","is_error":true,"result":"no"}`, `{"result":"{\"passed\":true}"}`, `{{{"`,
		`{"a":{"passed":true}}`, strings.Repeat(strings.Repeat(`{"a":`, 9000)+"!", 30),
	} {
		f.Add([]byte(s))
	}

	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := parseVerdict(in, twoCriteria)
		testkit.Need(t, (r == nil) != (err == nil), "%+v and %v", r, err)
		if err != nil {
			m, ok := errors.AsType[*misreading](err)
			testkit.Need(t, ok, "a %T: %v", err, err)
			testkit.Need(t, m.what != "", "a %T: %v", err, err)
			testkit.Need(t, m.code != "", "a %T: %v", err, err)
			return
		}
		testkit.Need(t, utf8.ValidString(r.feedback) && utf8.RuneCountInString(r.feedback) <= feedbackLimit+1,
			"feedback %.50q", r.feedback)
		testkit.Need(t, r.passed || r.feedback != "", "failed without a word")

		if r.passed {
			testkit.Need(t, strings.Contains(string(in), "passed") || strings.Contains(string(in), `\u`),
				"passed, and nothing says so")
			testkit.Need(t, !slices.ContainsFunc(r.criteria, func(c CriterionResult) bool { return !c.Passed }),
				"passed beside %+v", r.criteria)
			both, err := parseVerdict(append([]byte(passes+"\n"), in...), twoCriteria)
			testkit.Need(t, err != nil, "two verdicts make %+v", both)
		}
	})
}
