package show

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/replies"
)

// Escape sequences are left out, and colors stay where they are shown.
func TestField13_EscapeSequencesAreLeftOut(t *testing.T) {
	for text, want := range map[string]string{
		"a \x1b[1;31mred\x1b[0m word":                     "a red word",
		"\x1b]8;;https://example.com\x07link\x1b]8;;\x07": "link",
		"\x1b[2J\x1b[H\x1bc\x1b(B":                        "",
		"\x1b\x1b[31m[31m":                                "[31m",
		"\u009b31m \b":                                    `\u009b31m \u0008`,
		"one\r\ntwo\r":                                    "one\ntwo" + `\u000d`,
	} {
		testkit.Equal(t, Plain(text), want, "%q", text)
	}

	testkit.Equal(t, Exact("true \x1b]0;touch PWNED\x07\n"), `true \u001b]0;touch PWNED\u0007`+"\n")

	var to bytes.Buffer
	text := "a \x1b[1;38;5;9mred\x1b[m word\x1b[8m\x1b[2J\x1b[31;8m!"
	s := &Screen{to: &to}
	testkit.Equal(t, s.Colored(text), "a red word!")

	s.color = true
	testkit.Equal(t, s.Colored(text), "a \x1b[1;38;5;9mred\x1b[m word!\x1b[0m")
	testkit.Equal(t, s.Colored("plain"), "plain")
}

var update = flag.Bool("update", false, "write the golden files")

func TestASessionWithAllThatHappens(t *testing.T) {
	now := time.Now()
	at := func(hours float64) time.Time { return now.Add(-time.Duration(hours * float64(time.Hour))) }
	then := func(hours float64) *time.Time { return new(at(hours)) }
	a := judging.FileHash{Path: "a.md", SHA256: strings.Repeat("a", 64)}
	b := judging.FileHash{Output: "title", SHA256: strings.Repeat("b", 64)}
	check := func(passed bool, said string) *judging.Verdict {
		return &judging.Verdict{
			Kind:     judging.ByProgram,
			At:       at(2),
			RunEach:  "tests",
			Digest:   strings.Repeat("c", 64),
			Passed:   passed,
			Feedback: said,
			Seconds:  61.234,
			Files:    []judging.FileHash{a},
			Check:    &judging.CheckRun{Command: []string{"make", "test"}, Code: 2, Bound: "tree"},
		}
	}
	// judged is a submission with its first judges for some hours; with verdicts nil it is there still
	judged := func(u judging.Submission, with judging.Kind, from, to float64,
		verdicts ...*judging.Verdict) *judging.Submission {
		n := u.To(with, nil, at(from))
		if verdicts != nil {
			n = n.To("", verdicts, at(to))
		}
		return n
	}
	void := func(with judging.Kind, hours float64, why string) *judging.Submission {
		return judged(judging.Submission{}, with, hours, hours).Ended(&judging.Void{Why: why}, at(hours))
	}

	reused := &judging.Verdict{
		Kind:    judging.ByReviewer,
		At:      at(4),
		RunEach: "step",
		Passed:  true,
		Reused:  true,
		By:      "claude",
		Seconds: 0.0123,
	}
	docs := &judging.Verdict{
		Kind:       judging.ByReviewer,
		At:         at(3),
		RunEach:    "docs",
		TargetFile: new("a.md"),
		By:         "claude",
		Seconds:    12.34,
		Feedback:   " too\nlong ",
		Files:      []judging.FileHash{a},
		Criteria: []replies.CriterionResult{{Criterion: "Is it short?", Feedback: new("it\nis not")},
			{Criterion: "Is it true?", Passed: true, Feedback: new(" ")}},
	}

	// finished is a submission that a step is finished with; its id is 7
	finished := func(verdicts ...*judging.Verdict) *judging.Submission {
		return &judging.Submission{
			ID:       7,
			EndedAt:  then(1),
			Identity: "ann",
			Channel:  session.ChannelStdio,
			Told:     true,
			Verdicts: verdicts,
		}
	}
	by := func(kind judging.Kind) *judging.Verdict {
		return &judging.Verdict{
			Kind:    kind,
			At:      at(1),
			By:      "ann",
			Channel: session.ChannelStdio,
			Passed:  true,
		}
	}
	person := by(judging.ByOverride)
	person.Channel = session.ChannelTerminal
	person.Feedback = "it\nis late"
	reviewed := []*judging.Submission{
		void(judging.ByReviewer, 5, "it hung"),
		judged(judging.Submission{Number: 1, Told: true}, judging.ByReviewer, 4, 3, reused, docs),
		judged(judging.Submission{}, judging.ByProgram, 2, 2, check(false, "one\ntwo")),
		void(judging.ByProgram, 2, "make is missing"),
		judged(judging.Submission{Number: 2, Imported: true, Files: []judging.FileHash{b}}, judging.ByReviewer, 1, 1,
			reused),
		judged(judging.Submission{Number: 3, Files: []judging.FileHash{b}}, judging.ByReviewer, 1, 1),
	}

	given := finished(by(judging.BySelf), check(true, ""))
	given.GivenFor = "x"
	given.Content = "y"
	given.Files = []judging.FileHash{a, b}
	passed := by(judging.ByPerson)
	passed.Channel = ""
	imported := judged(*finished(), judging.ByReviewer, 5, 5, &judging.Verdict{
		Kind:    judging.ByReviewer,
		At:      at(5),
		By:      "claude",
		RunEach: "doc",
		Passed:  true,
		Files:   []judging.FileHash{a},
	}, passed)
	imported.Number = 1
	imported.Imported = true
	imported.Files = []judging.FileHash{a}
	client := by(judging.ByPerson)
	client.Client = true
	steps := jsontext.OrderedMap[*machine.StepProgress]{}
	for _, p := range []*machine.StepProgress{
		{
			StepID:      "draft",
			StartedAt:   at(6),
			CompletedAt: then(5),
			Notes:       new("one\ntwo"),
			Outputs:     outputs.Map{{Key: "doc", Value: outputs.Value{Paths: []string{"a.md", "b.md"}}}},
			Finished:    7,
			Submissions: []*judging.Submission{imported},
		},
		{StepID: "review", StartedAt: at(4), Submissions: reviewed, FailedChecks: 2, Unreported: true},
		{
			StepID:      "overridden",
			StartedAt:   at(4),
			CompletedAt: then(1),
			Finished:    7,
			Overrides: []judging.Override{
				{At: at(1), Identity: "ann", Reason: "r", Skipped: []string{"doc", "step"}},
			},
			Submissions: []*judging.Submission{
				finished(&judging.Verdict{Kind: judging.ByShape, Feedback: "no title\nno date"}, person)},
		},
		{
			StepID:    "own",
			StartedAt: at(1),
			Finished:  7,
			Overrides: []judging.Override{{At: at(1), Identity: "ann", Reason: "r"}},
			Granted:   &judging.Override{At: at(1), Identity: "bob", Channel: "page", Reason: "go on"},
			Submissions: []*judging.Submission{given,
				judged(judging.Submission{}, "", 1, 1, &judging.Verdict{
					Kind:     judging.ByShape,
					At:       at(1),
					Feedback: "no title",
				})},
		},
		{StepID: "asked", StartedAt: at(1), Submissions: []*judging.Submission{
			judged(judging.Submission{Files: []judging.FileHash{b}}, judging.ByPerson, 1, 1)}},
		{
			StepID:    "port[0]",
			StartedAt: at(1),
			Dropped:   &judging.Override{At: at(1), Identity: "ann", Reason: "obsolete"},
		},
		{StepID: "fix", StartedAt: at(1), Round: &replies.Round{Number: 2}},
		{
			StepID:    "workflow:publish",
			StartedAt: at(1),
			Child:     "12345678",
			Outputs: outputs.Map{{
				Key:   "page",
				Value: outputs.Value{Each: []*outputs.Value{nil, {Paths: []string{"b.md"}}}},
			}},
		},
		{
			StepID:    "answered",
			StartedAt: at(1),
			Submissions: []*judging.Submission{judged(judging.Submission{Number: 1}, judging.ByPerson, 1, 1,
				&judging.Verdict{Kind: judging.ByPerson, At: at(1), By: "bob", Channel: "page", RunEach: "step"})},
		},
	} {
		steps = steps.Set(p.StepID, p)
	}
	for _, c := range []struct {
		step string
		by   *judging.Verdict
	}{
		{"override", by(judging.ByReason)},
		{"passed_in_client", client},
		{"off", by(judging.Off)},
		{"checks", check(true, "")},
		{"not_due", by(judging.NotDue)},
	} {
		steps = steps.Set(c.step, &machine.StepProgress{
			StepID:      c.step,
			StartedAt:   at(1),
			CompletedAt: then(0.9),
			Finished:    7,
			Submissions: []*judging.Submission{finished(c.by)},
		})
	}

	var out bytes.Buffer
	w := NewScreen(&out, func(string) string { return "" })
	Session(w, &machine.State{
		SessionID:       "0123abcd",
		Status:          machine.Active,
		JobName:         "job",
		WorkflowName:    "main",
		Goal:            "Ship it",
		CurrentStepID:   "asked",
		StartedAt:       at(6),
		UpdatedAt:       at(1),
		ImportedAt:      then(5),
		Identity:        "ann",
		InstanceID:      new("i"),
		ParentSessionID: new("89abcdef"),
		AttemptID:       "t",
		BranchName:      "b",
		BranchStatus:    replies.BranchNamed,
		Definition:      machine.DefinitionRef{JobDir: "/job"},
		Pinned:          &machine.Pinned{Reviewer: `["review","-x"]`, Pin: true},
		Inputs:          outputs.Map{{Key: "topic", Value: outputs.Value{Text: new("cats")}}},
		Weakened:        []machine.Weakening{{Step: "draft", At: at(5), What: []string{"a\nb"}}},
		StepProgress:    steps,
		History: []*machine.Withdrawal{{
			At:   at(5),
			From: "review",
			To:   "draft",
			Progress: jsontext.OrderedMap[*machine.StepProgress]{}.Set("draft",
				&machine.StepProgress{StepID: "draft", StartedAt: at(6)}),
		}},
	}, "blue (0a1b2c3d), in /srv/shop")

	Session(w, &machine.State{
		SessionID:     "89abcdef",
		Status:        machine.Aborted,
		CurrentStepID: "x",
		StartedAt:     at(6),
		UpdatedAt:     at(1),
		CompletedAt:   then(1),
		AbortReason:   new("obsolete"),
		Pinned:        &machine.Pinned{Reviewer: "self"},
	}, "")
	testkit.Works(t, w.Err())
	testkit.Golden(t, "testdata/session.txt", out.String(), *update)
}

const everyPart = `name: every
version: "1.0.0"
summary: Every part
common_job_info_provided_to_all_steps_at_runtime: Info
workflows:
  - name: main
    summary: M
    inputs:
      - {name: topic, type: string, description: "What\nabout", required: true}
      - {name: tone, type: string, description: How, default: calm}
      - {name: paper, type: file, description: Which}
    steps: [a, [b, c], {repeat: {steps: [fix], until: {output: state, is_not: broken}, at_most: 5}}, {workflow: second}]
  - {name: second, summary: S, steps: [b]}
steps:
  - {id: a, name: A, description: A, instructions: A, outputs: {}, reviews: []}
  - {id: b, name: B, description: B, instructions: B, outputs: {}, reviews: []}
  - {id: c, name: C, description: C, instructions: C, outputs: {}, reviews: []}
  - {id: fix, name: F, description: F, instructions: F, outputs: {state: {type: string, description: S, required: ` +
	`true}}, reviews: []}
  - {id: d, name: D, description: D, instructions: D, outputs: {}, reviews: []}
`

func TestAJobIsShownAsAnAgentReadsIt(t *testing.T) {
	j, faults := job.Parse("/job", "job.yml", []byte(everyPart))
	testkit.Need(t, j != nil, "%v", faults)
	var out bytes.Buffer
	err := Steps(&out, j, func(s *job.Step) (*replies.StepInfo, error) {
		info := &replies.StepInfo{JobDir: j.Dir, Instructions: "Do " + s.ID, CommonJobInfo: new("Info\n")}
		switch s.ID {
		case "c":
			return nil, errors.New("c cannot be read")
		case "b":
			info.Inputs = []replies.StepInput{{Name: "topic", Description: "What"},
				{Name: "out", Description: "made", FromStep: "a"}}
			info.Checks = []replies.CheckInfo{{
				Name:    "tests",
				Run:     []string{"make", "test"},
				Protect: []string{"*_test.go", "go.mod"},
			}, {Name: "lint", Run: []string{"lint"}}}
			info.ExpectedOutputs = []replies.ExpectedOutput{{
				Name:        "doc",
				Type:        "file",
				Description: "The\ndoc",
				Required:    true,
				Syntax:      "path",
			}, {Name: "more", Type: "files", Description: "More", Syntax: "paths"}}
			info.Reviews = []replies.ReviewInfo{{
				RunEach:  "doc",
				Criteria: jsontext.OrderedMap[string]{}.Set("short", "Is it?"),
				Guidance: new("be\nkind"),
				By:       "human",
			}, {RunEach: "step"}}
		}
		return info, nil
	})
	testkit.Fails(t, err, "c cannot be read")
	testkit.Golden(t, "testdata/job.txt", out.String(), *update)
}

type failing []error

func (f *failing) Write([]byte) (int, error) {
	err := (*f)[0]
	*f = (*f)[1:]
	return 0, err
}

// A full disk behind a redirection is not mistaken for success, whatever is printed after.
func TestTheFirstFailedWriteIsTold(t *testing.T) {
	first, then := errors.New("disk full"), errors.New("closed")
	s := NewScreen(&failing{first, then}, func(string) string { return "" })
	_, err := fmt.Fprint(s, "x")
	testkit.Equal(t, err, first)
	testkit.Equal(t, s.Safe("y"), first)
}

func printed(columns int, print func(*Screen)) string {
	var b bytes.Buffer
	print(NewScreen(&b, func(name string) string {
		if name == "COLUMNS" && columns > 0 {
			return fmt.Sprint(columns)
		}
		return ""
	}))
	return b.String()
}

// At every width a table keeps what may not be cut, and is no wider than the screen.
func TestATableFitsTheScreen(t *testing.T) {
	columns := []Column{{Title: "ID"}, {Title: "STATE", State: true}, {Title: "WHERE", Least: 8, Optional: true},
		{Title: "NONE", Optional: true}, {Title: "GOAL", Least: 10}, {Title: "COMMAND", Below: true}}
	goal := "Ship 漢字漢字 it to everybody\nwho \x1b[31mwaits for it"
	rows := [][]string{{"0123abcd", "active", "somewhere/else", "", goal, "deepwork board show 0123abcd"},
		{"89abcdef", "", "", "", "x", "deepwork x"}}
	for width := range 201 {
		if width > 0 && width < 35 {
			continue // what may not be cut needs this
		}
		got := printed(width, func(s *Screen) { s.Table(columns, rows) })
		for line := range strings.Lines(got) {
			n := text.StringWidth(strings.TrimSuffix(line, "\n"))
			testkit.True(t, width <= 0 || n <= width, "%d columns of %d: %q", n, width, line)
			testkit.Equal(t, strings.TrimRight(line, " \n")+"\n", line, "at %d it ends with blanks", width)
		}
		testkit.ContainsAll(t, got, []string{"0123abcd  active", "deepwork board show 0123abcd", "Ship "},
			"at %d", width)
		testkit.True(t, !strings.Contains(got, "NONE") && !strings.Contains(got, "\x1b"), "at %d: %q", width, got)
	}
	testkit.Equal(t, printed(6, func(s *Screen) {
		s.Table([]Column{{Title: "AB"}, {Title: "CD", Optional: true}}, [][]string{{"1", "2"}})
	}), "AB  CD\n1   2\n", "as wide as the screen")
	testkit.Equal(t, printed(20, func(s *Screen) {
		s.Table([]Column{{Title: "AB", Least: 4}, {Title: "CD", Least: 4}, {Title: "EF", Least: 4}},
			[][]string{{"one two three", "four five", "sixteen"}})
	}), "AB      CD     EF\none t…  four…  sixt…\n", "the widest are cut, the last first")
	testkit.Contains(t, printed(0, func(s *Screen) { s.Table(columns, rows) }), `everybody who waits for it`,
		"without a limit")
	for _, emoji := range []string{"👩\u200d💻 x", "👍🏽 x", "🏳️\u200d🌈 x"} {
		testkit.Contains(t, printed(0, func(s *Screen) { s.Table(columns[4:5], [][]string{{emoji}}) }), emoji,
			"is cut without a limit")
	}
}

// Prose continues below itself; what is to be copied is not broken.
func TestProseFitsTheScreen(t *testing.T) {
	const long = "one two three four five six seven eight"
	for name, c := range map[string]struct {
		print func(*Screen)
		want  string
	}{
		"a field": {func(s *Screen) {
			s.Field(6, "goal", long)
		}, "goal:  one two three four five\n       six seven eight\n"},
		"a path": {func(s *Screen) {
			s.Field(6, "path", "/a/"+strings.Repeat("x", 40))
		}, "path:  /a/" + strings.Repeat("x", 40) + "\n"},
		"an indented text": {func(s *Screen) {
			s.Text("  ", "  "+long)
		}, "    one two three four five\n      six seven eight\n"},
		"pairs": {func(s *Screen) {
			s.Pairs([][2]string{{"a", "-> " + long}, {"bcd", ""}})
		}, "a    -> one two three four\n     five six seven eight\nbcd\n"},
		"a path in prose": {func(s *Screen) {
			s.Text("", long[:13]+" /a/"+strings.Repeat("x", 40)+" "+long[14:])
		}, "one two three\n  /a/" + strings.Repeat("x", 40) + "\n  four five six seven eight\n"},
		"a wide pair": {func(s *Screen) {
			s.Pairs([][2]string{{"a_long_name_of_a_step", "-> a.md, b.md"}, {"bcd", "-> c"}})
		}, "a_long_name_of_a_step\n                 -> a.md, b.md\nbcd              -> c\n"},
		"a heading": {func(s *Screen) {
			s.Heading("", "notes", long)
		}, "notes one two three four\n  five six seven eight\n"},
		"a judgement": {func(s *Screen) {
			s.Judge("9 sessions, 12 tasks, 1 attempt: ", true, "all is well")
		}, "9 sessions, 12 tasks, 1\nattempt: all is well\n"},
	} {
		testkit.Equal(t, printed(30, c.print), c.want, "%s", name)
	}

	for want, long := range map[string]string{
		"12345678 01234567890\n2": "12345678 01234567890 2", "12345678\n012345678901": "12345678 012345678901",
		"  two\n1234567890123456\n\nx": "  two 1234567890123456\n" + strings.Repeat(" ", 21) + "\nx",
	} {
		testkit.Equal(t, Wrap(long, 20), want)
		testkit.Equal(t, Wrap(long, 19), long, "too narrow to be wrapped")
	}
}
