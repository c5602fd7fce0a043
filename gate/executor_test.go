package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
)

// A reviewer may take its task as an argument, with variables of its own, and have its answer among other
// output.
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
	if v.Err != nil || v.Passed || v.Feedback != "I have the answer" || v.Reviewer != "executor X:Y" {
		t.Errorf("%+v", v)
	}
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

// Reviews by people are not planned for the reviewer, nor in its self-review, and are due whatever was
// handed in.
func TestReviewsByPeopleAreNotForReviewers(t *testing.T) {
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
	if text := SelfReview(s); strings.Contains(text, "sign it") || !strings.Contains(text, "Review 2 of 2") {
		t.Errorf("self-review: %s", text)
	}
}
