package main

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// The model knows what reviewers and people may do with a step, and takes nothing else.
func TestReviewModel(t *testing.T) {
	at := int64(0)
	op := func(in input, out string) porcupine.Operation {
		at += 2
		return porcupine.Operation{Input: in, Call: at, Output: out, Return: at + 1}
	}
	finish := func(step, path string) input {
		return input{Tool: "finished_step", Step: step, Outputs: outputs{Report: path}.String(), Judged: true}
	}
	var (
		good   = finish(judgedStep, judgedPath("t", pass))
		bad    = finish(judgedStep, judgedPath("t", fail))
		first  = finish(personStep, "a.md")
		second = finish(personStep, "b.md")
		yes    = input{Tool: "person", Step: personStep, Text: pass}
		no     = input{Tool: "person", Step: personStep, Text: fail}
		abort  = input{Tool: "abort_workflow", Text: "enough"}
		back   = input{Tool: "go_to_step", Step: personStep}
	)
	judged := op(good, "begin s8")
	for name, c := range map[string]struct {
		ops []porcupine.Operation
		ok  bool
	}{
		"passed in the call":                     {[]porcupine.Operation{op(good, "begin s8")}, true},
		"passed after a while":                   {[]porcupine.Operation{op(good, reviewRuns), op(good, reviewRuns), op(good, "begin s8"), op(good, "begin s8")}, true},
		"running after it passed":                {[]porcupine.Operation{op(good, "begin s8"), op(good, reviewRuns)}, false},
		"failed, then passed":                    {[]porcupine.Operation{op(bad, reviewRuns), op(bad, reviewFailed), op(good, "begin s8")}, true},
		"passed what was rejected":               {[]porcupine.Operation{op(bad, "begin s8")}, false},
		"failed what was not rejected":           {[]porcupine.Operation{op(good, reviewFailed)}, false},
		"aborted while it runs":                  {[]porcupine.Operation{op(bad, reviewRuns), op(abort, "aborted s7: enough"), op(bad, "!session_ended aborted")}, true},
		"aborted, and it runs":                   {[]porcupine.Operation{op(abort, "aborted s7: enough"), op(bad, reviewRuns)}, false},
		"a person passes":                        {[]porcupine.Operation{judged, op(first, personAwaited), op(yes, decided), op(first, `complete {"report":"a.md"}`)}, true},
		"a person is not asked":                  {[]porcupine.Operation{judged, op(yes, decided)}, false},
		"nobody has passed it":                   {[]porcupine.Operation{judged, op(first, personAwaited), op(first, `complete {"report":"a.md"}`)}, false},
		"a person fails":                         {[]porcupine.Operation{judged, op(first, personAwaited), op(no, decided), op(first, reviewFailed), op(first, reviewFailed), op(second, personAwaited), op(yes, decided), op(second, `complete {"report":"b.md"}`)}, true},
		"a person fails, and it goes on":         {[]porcupine.Operation{judged, op(first, personAwaited), op(no, decided), op(first, `complete {"report":"a.md"}`)}, false},
		"a decision that is lost":                {[]porcupine.Operation{judged, op(first, personAwaited), op(yes, decided), op(first, personAwaited)}, false},
		"two decisions":                          {[]porcupine.Operation{judged, op(first, personAwaited), op(yes, decided), op(no, decided)}, false},
		"other outputs than those decided about": {[]porcupine.Operation{judged, op(first, personAwaited), op(yes, decided), op(second, `complete {"report":"b.md"}`)}, false},
		"other outputs withdraw a decision":      {[]porcupine.Operation{judged, op(first, personAwaited), op(yes, decided), op(second, personAwaited), op(first, personAwaited)}, true},
		"going back withdraws a decision":        {[]porcupine.Operation{judged, op(first, personAwaited), op(yes, decided), op(back, "back to s8 clears s8"), op(first, personAwaited)}, true},
	} {
		begun := []porcupine.Operation{{Input: input{Tool: "start_workflow", Workflow: "review"}, Call: -4, Output: "begin s0", Return: -3},
			{Input: finish("s0", "a.md"), Call: -2, Output: "begin s7", Return: -1}}
		if got := porcupine.CheckOperations(sessionModel, append(begun, c.ops...)); got != c.ok {
			t.Errorf("%s: %v, want %v", name, got, c.ok)
		}
	}
}
