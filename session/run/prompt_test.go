package run

import (
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/attempt"
	"deepwork/session/workflow/machine"
)

// Why a step is not finished is told to its next agent, and to people.
func TestWhyAStepIsNotFinished(t *testing.T) {
	step := &machine.StepInfo{StepID: "draft", SessionID: "0123abcd", ExpectedOutputs: []machine.ExpectedOutput{{Name: "doc", Type: "file", Required: true}, {Name: "notes", Type: "string"}}}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	failed := func(a machine.Try, said ...string) *machine.StepProgress {
		a.State, a.ClosedAt = machine.TryFailed, &at
		a.Verdicts = []*machine.Verdict{{Passed: true, Feedback: "fine"}}
		for _, s := range said {
			a.Verdicts = append(a.Verdicts, &machine.Verdict{RunEach: "tests", Feedback: s, Check: &machine.CheckRun{Command: []string{"make", "test"}}})
		}
		return &machine.StepProgress{StepID: "draft", Tries: []*machine.Try{&a}}
	}
	person := failed(machine.Try{})
	person.Tries[0].Verdicts = []*machine.Verdict{{Key: "human", Feedback: " Too long. "}}
	again := failed(machine.Try{Collected: true})
	again.Tries[0].Verdicts = person.Tries[0].Verdicts
	void := &machine.StepProgress{StepID: "draft", Tries: []*machine.Try{{State: machine.TryVoid}}}
	for name, c := range map[string]struct {
		of           *machine.StepProgress
		told         string
		agent, human string
	}{
		"told":       {person, "It hung.", "It hung.", " It hung."},
		"nothing":    {nil, "", `finished_step has not accepted it yet. It expects the outputs "doc" (file), "notes" (string, optional).`, ""},
		"void":       {void, "", `finished_step has not accepted it yet. It expects the outputs "doc" (file), "notes" (string, optional).`, ""},
		"checks":     {failed(machine.Try{Checks: true}, " one ", "two"), "", "its checks failed.\n\nCheck 'tests' (make test): one\n\nCheck 'tests' (make test): two", " Its check 'tests' failed:  one "},
		"review":     {failed(machine.Try{}, "one", " two"), "", "its last review did not pass.\n\none\n\ntwo", " Its last review did not pass: one two"},
		"person":     {person, "", "a person looked at its outputs, and does not pass them. The same outputs are not shown to them again: change them.\n\nToo long.", " A person did not pass its outputs: Too long."},
		"same again": {again, "", "a person looked at its outputs, and does not pass them. The same outputs are not shown to them again: change them.\n\nToo long.", " A person did not pass its outputs, and the same ones were handed in again: Too long."},
	} {
		s := &machine.State{}
		if c.of != nil {
			s.StepProgress = s.StepProgress.Set("draft", c.of)
		}
		testkit.Equal(t, missing(step, s, c.told), c.agent, "%s", name)
		testkit.Equal(t, lastSaid(c.of, c.told), c.human, "%s", name)
	}
	p := failed(machine.Try{Checks: true}, "no")
	for n := 1; n <= maxFailedChecks; n++ {
		testkit.Equal(t, checksFailed(p, at.Add(-1)) != "", n == maxFailedChecks, "after %d", n)
		testkit.Equal(t, checksFailed(p, at), "", "of before")
		p.Tries = append(p.Tries, p.Tries[0])
	}
	if p.CompletedAt = &at; checksFailed(p, at.Add(-1)) != "" || checksFailed(nil, at) != "" {
		t.Error("a step that is done, or not begun, is given up")
	}
	for _, c := range []struct {
		of           *machine.StepProgress
		began, ended time.Duration
		want         bool
	}{{person, -2, -1, true}, {person, -2, 1, true}, {person, 1, 2, false}, {failed(machine.Try{}, "x"), -2, -1, true}, {failed(machine.Try{}, "x"), -2, 1, false}, {void, -2, -1, false}, {nil, -2, -1, false}} {
		x := &task.Execution{CreatedAt: at.Add(c.began), EndedAt: new(at.Add(c.ended))}
		testkit.Equal(t, failedSince(c.of, x), c.want, "%+v", c)
	}
	testkit.Equal(t, failedSince(person, &task.Execution{CreatedAt: at.Add(-1)}), false, "of an agent that runs")
}

func TestPromptsOfAgentsThatGoOn(t *testing.T) {
	step := &machine.StepInfo{StepID: "draft", SessionID: "0123abcd", Instructions: "Merge it."}
	children := []*machine.State{{JobName: "a", WorkflowName: "b", SessionID: "89abcdef", Status: machine.Aborted, AbortReason: new("obsolete")}, {JobName: "a", WorkflowName: "c", SessionID: "76543210", Status: machine.Completed}}
	for want, got := range map[string]string{
		"You ended, and the step draft is not finished: It hung.\n\nWhen its outputs": againPrompt(step, &machine.State{}, "It hung."),
		"has ended. Go on where you were.\n\nWhen its outputs":                        limitPrompt(step),
		"The workflow a/b that you started (session 89abcdef) is aborted. The reason: obsolete\nThe workflow a/c that you started (session 76543210) is completed.\nGo on with the step draft.\n\nWhen its outputs": childPrompt(step, children),
		"# Your step: draft\n\nMerge it. x.go conflicts.\n\nResolve that": mergePrompt(step, "x.go conflicts."),
		"p\nA person says:\n\nhurry\n":                                    adviceFor("p", " hurry\n"),
		"did not finish. " + attempt.LimitReached + " 5m. Work so":        limitReached(&task.Execution{Error: new(attempt.LimitReached + " 5m.")}),
	} {
		testkit.Contains(t, got, want)
	}
	testkit.Equal(t, adviceFor("p", " \n")+limitReached(nil)+limitReached(&task.Execution{})+limitReached(&task.Execution{Error: new("It hung.")}), "p")
	testkit.True(t, !strings.Contains(mergePrompt(step, "x"), "finished_step of the MCP"), "a merge is finished with finished_step")
}

// An agent that handed in outputs for a person, or left a workflow to others, has done its work.
func TestWhatAnAgentHasLeft(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	x := &task.Execution{CreatedAt: at, EndedAt: new(at.Add(10))}
	runs := &task.Execution{CreatedAt: at}
	for after, want := range map[time.Duration]bool{-1: false, 0: true, 10: true, 11: false} {
		p := &machine.StepProgress{Question: &machine.Question{AskedAt: at.Add(after)}}
		testkit.Equal(t, asked(x, p), want, "asked after %d", after)
		testkit.Equal(t, asked(runs, p), false, "of an agent that runs")
	}
	testkit.Equal(t, asked(x, nil) || asked(x, &machine.StepProgress{}), false)
	child := func(began, ended time.Duration) *machine.State {
		return &machine.State{StartedAt: at.Add(began), CompletedAt: new(at.Add(ended))}
	}
	left := child(0, 11)
	got := leftBy(x, []*machine.State{child(-1, 11), left, child(10, 11), child(5, 10), {StartedAt: at}})
	testkit.True(t, len(got) == 1 && got[0] == left && leftBy(runs, []*machine.State{left}) == nil, "%d workflows were left", len(got))
}
