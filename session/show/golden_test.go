package show

import (
	"bytes"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

var update = flag.Bool("update", false, "write the golden files")

func TestASessionWithAllThatHappens(t *testing.T) {
	now := time.Now()
	at := func(hours float64) time.Time { return now.Add(-time.Duration(hours * float64(time.Hour))) }
	then := func(hours float64) *time.Time { return new(at(hours)) }
	a, b := machine.FileHash{Path: "a.md", SHA256: strings.Repeat("a", 64)}, machine.FileHash{Output: "title", SHA256: strings.Repeat("b", 64)}
	check := func(passed bool, said string) *machine.Verdict {
		return &machine.Verdict{At: at(2), RunEach: "tests", Digest: strings.Repeat("c", 64), Passed: passed, Feedback: said, Seconds: 61.234, Files: []machine.FileHash{a}, Check: &machine.CheckRun{Command: []string{"make", "test"}, Code: 2, Bound: "tree"}}
	}
	reused := &machine.Verdict{At: at(4), RunEach: "step", Passed: true, Reused: true, Reviewer: "claude", Seconds: 0.0123}
	reviewed := []*machine.Try{
		{Number: 1, State: machine.TryVoid, OpenedAt: at(5), Error: new("it hung; the try does not count: call again")},
		{Number: 1, State: machine.TryFailed, OpenedAt: at(4), ClosedAt: then(3), Collected: true, Verdicts: []*machine.Verdict{reused,
			{At: at(3), RunEach: "docs", TargetFile: new("a.md"), Reviewer: "claude", Seconds: 12.34, Feedback: " too\nlong ", Files: []machine.FileHash{a},
				Criteria: []machine.CriterionResult{{Criterion: "Is it short?", Feedback: new("it\nis not")}, {Criterion: "Is it true?", Passed: true, Feedback: new(" ")}}}}},
		{Checks: true, State: machine.TryFailed, OpenedAt: at(2), Verdicts: []*machine.Verdict{check(false, "one\ntwo")}},
		{Checks: true, State: machine.TryVoid, OpenedAt: at(2), Error: new("make is missing")},
		{Number: 2, State: machine.TryPassed, OpenedAt: at(1), ClosedAt: then(1), Imported: true, Files: []machine.FileHash{b}, Verdicts: []*machine.Verdict{reused}},
		{Number: 3, State: machine.TryOpen, OpenedAt: at(1), Files: []machine.FileHash{b}},
	}
	by := func(kind machine.EvidenceKind) *machine.Evidence {
		return &machine.Evidence{Kind: kind, At: at(1), Identity: "ann", Channel: session.ChannelStdio, Reviewer: "claude"}
	}
	person := by(machine.ByPerson)
	person.Channel, person.Reason, person.Misfits = session.ChannelTerminal, "it\nis late", "no title\nno date"
	given := by(machine.BySelf)
	given.GivenFor, given.Digest, given.Others, given.Checks, given.Files = "x", "y", by(machine.ByReviewer), []*machine.Verdict{check(true, "")}, []machine.FileHash{a, b}
	imported := by(machine.Passed)
	imported.Imported, imported.Channel, imported.Files = true, "", []machine.FileHash{a}
	steps := jsontext.OrderedMap[*machine.StepProgress]{}
	for _, p := range []*machine.StepProgress{
		{StepID: "draft", StartedAt: at(6), CompletedAt: then(5), Notes: new("one\ntwo"), Outputs: machine.Outputs{{Key: "doc", Value: machine.OutputValue{Paths: []string{"a.md", "b.md"}}}}, Evidence: imported,
			Tries: []*machine.Try{{Number: 1, State: machine.TryPassed, OpenedAt: at(5), Collected: true, Verdicts: []*machine.Verdict{{At: at(5), RunEach: "doc", Passed: true, Files: []machine.FileHash{a}}}}}},
		{StepID: "review", StartedAt: at(4), Tries: reviewed, FailedChecks: 2, Unreported: true, Evidence: person,
			Overrides: []machine.Override{{At: at(1), Identity: "ann", Reason: "r", Skipped: []string{"doc", "step"}}}},
		{StepID: "own", StartedAt: at(1), Evidence: given, Overrides: []machine.Override{{At: given.At, Identity: "ann", Reason: "r"}},
			Granted: &machine.Override{At: at(1), Identity: "bob", Channel: "page", Reason: "go on"}, Unfit: &machine.Shown{At: at(1), Faults: "no title"}},
		{StepID: "asked", StartedAt: at(1), Question: &machine.Question{AskedAt: at(1), Files: []machine.FileHash{b}}},
		{StepID: "answered", StartedAt: at(1), Question: &machine.Question{AskedAt: at(1), Answer: &machine.Answer{At: at(1), Identity: "bob", Channel: "page"}}},
	} {
		steps = steps.Set(p.StepID, p)
	}
	for _, kind := range []machine.EvidenceKind{machine.ByOverride, machine.PassedIn, machine.Unreviewed, machine.ByChecks, machine.NotDue, "other"} {
		steps = steps.Set(string(kind), &machine.StepProgress{StepID: string(kind), StartedAt: at(1), CompletedAt: then(0.9), Evidence: by(kind)})
	}
	var out bytes.Buffer
	w := NewScreen(&out, func(string) string { return "" })
	Session(w, &machine.State{SessionID: "0123abcd", Status: machine.Active, JobName: "job", WorkflowName: "main", Goal: "Ship it", CurrentStepID: "asked", StartedAt: at(6), UpdatedAt: at(1), ImportedAt: then(5), Identity: "ann",
		InstanceID: new("i"), ParentSessionID: new("89abcdef"), AttemptID: "t", BranchName: "b", Definition: machine.DefinitionRef{JobDir: "/job"}, Pinned: &machine.Pinned{Reviewer: `["review","-x"]`, Pin: true},
		Inputs: machine.Outputs{{Key: "topic", Value: machine.OutputValue{Text: new("cats")}}}, Weakened: []machine.Weakening{{Step: "draft", At: at(5), What: []string{"a\nb"}}}, StepProgress: steps,
		History: []*machine.Withdrawal{{At: at(5), From: "review", To: "draft", Progress: jsontext.OrderedMap[*machine.StepProgress]{}.Set("draft", &machine.StepProgress{StepID: "draft", StartedAt: at(6)})}}})
	Session(w, &machine.State{SessionID: "89abcdef", Status: machine.Aborted, CurrentStepID: "x", StartedAt: at(6), UpdatedAt: at(1), CompletedAt: then(1), AbortReason: new("obsolete"), Pinned: &machine.Pinned{Reviewer: "self"}})
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
  - {id: fix, name: F, description: F, instructions: F, outputs: {state: {type: string, description: S, required: true}}, reviews: []}
  - {id: d, name: D, description: D, instructions: D, outputs: {}, reviews: []}
`

func TestAJobIsShownAsAnAgentReadsIt(t *testing.T) {
	j, faults := job.Parse("/job", "job.yml", []byte(everyPart))
	testkit.Need(t, j != nil, "%v", faults)
	var out bytes.Buffer
	err := Steps(&out, j, func(s *job.Step) (*machine.StepInfo, error) {
		info := &machine.StepInfo{JobDir: j.Dir, Instructions: "Do " + s.ID, CommonJobInfo: new("Info\n")}
		switch s.ID {
		case "c":
			return nil, errors.New("c cannot be read")
		case "b":
			info.Inputs = []machine.StepInput{{Name: "topic", Description: "What"}, {Name: "out", Description: "made", FromStep: "a"}}
			info.Checks = []machine.CheckInfo{{Name: "tests", Run: []string{"make", "test"}, Protect: []string{"*_test.go", "go.mod"}}, {Name: "lint", Run: []string{"lint"}}}
			info.ExpectedOutputs = []machine.ExpectedOutput{{Name: "doc", Type: "file", Description: "The\ndoc", Required: true, Syntax: "path"}, {Name: "more", Type: "files", Description: "More", Syntax: "paths"}}
			info.Reviews = []machine.ReviewInfo{{RunEach: "doc", Criteria: jsontext.OrderedMap[string]{}.Set("short", "Is it?"), Guidance: new("be\nkind"), By: "human"}, {RunEach: "step"}}
		}
		return info, nil
	})
	testkit.Fails(t, err, "c cannot be read")
	testkit.Golden(t, "testdata/job.txt", out.String(), *update)
}
