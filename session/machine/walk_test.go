package machine

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/session/outputs"
	"deepwork/session/replies"
)

var update = flag.Bool("update", false, "write the golden files")

const formsJob = `name: move
version: "1.0.0"
summary: Moves endpoints
common_job_info_provided_to_all_steps_at_runtime: Keep the paths.
workflows:
  - name: migrate
    summary: Moves one module
    inputs: [{name: module, description: The module}, {name: mode, description: How, default: careful}]
    steps:
      - list
      - {for_each: endpoints, steps: [port, [verify, measure], {workflow: note, inputs: {what: item, code: code, ` +
	`as: {value: short}}}], at_once: 2, max_items: 4}
      - {when: {output: docs, is: "yes"}, steps: [write]}
      - {repeat: {steps: [fix, look], until: {output: state, is_not: broken}, at_most: 3}}
      - {workflow: publish, inputs: {notes: summary, module: module}}
  - {name: isolated, summary: With worktrees, steps: [list, {for_each: endpoints, steps: [port], isolation: worktree}]}
  - {name: nothing, summary: Perhaps nothing, inputs: [{name: mode, description: How}], steps: [{when: {input: ` +
	`mode, is: "on"}, steps: [write]}]}
  - {name: rounds, summary: Rounds, steps: [{repeat: {steps: [[look, measure], again], until: {output: state, is: ` +
	`done}, at_most: 2}}, write]}
  - {name: note, summary: N, inputs: [{name: what, description: W}, {name: code, description: C, type: files}, ` +
	`{name: as, description: A}], steps: [jot]}
  - {name: publish, summary: P, inputs: [{name: notes, description: N}, {name: module, description: M}], steps: [jot]}
steps:
  - {id: list, name: L, description: L, instructions: L, outputs: {endpoints: {type: string, description: E, ` +
	`required: true}, docs: {type: string, description: D}, summary: {type: string, description: S}}, reviews: []}
  - {id: port, name: P, description: P, instructions: P, outputs: {code: {type: files, description: C}}, reviews: []}
  - {id: verify, name: V, description: V, instructions: V, dependencies: [port], inputs: [{file: code, from_step: ` +
	`port}], outputs: {}, reviews: []}
  - {id: measure, name: M, description: M, instructions: M, outputs: {}, reviews: []}
  - {id: write, name: W, description: W, instructions: W, outputs: {}, reviews: []}
  - {id: fix, name: F, description: F, instructions: F, dependencies: [port], inputs: [{file: code, from_step: ` +
	`port}], outputs: {}, reviews: []}
  - {id: look, name: O, description: O, instructions: O, outputs: {state: {type: string, description: S}}, reviews: []}
  - {id: again, name: A, description: A, instructions: A, outputs: {state: {type: string, description: S}}, reviews: []}
  - {id: jot, name: J, description: J, instructions: J, outputs: {}, reviews: []}
`

// A walk is a file of commands, and after each, indented, what it answers and where the session is then.
func TestWalksThroughForms(t *testing.T) {
	j, faults := job.Parse("/job", "job.yml", []byte(formsJob))
	testkit.Need(t, j != nil, "%v", faults)
	for _, name := range []string{"migrate", "isolated", "rounds", "nothing"} {
		t.Run(name, func(t *testing.T) {
			file := "testdata/" + name + ".txt"
			testkit.Golden(t, file, walk(t, j, name, string(testkit.Get(os.ReadFile(file)).Must(t))), *update)
		})
	}
}

func walk(t *testing.T, j *job.Job, workflow, file string) string {
	of := j.Of(workflow)
	def := &Definition{
		Job:      of,
		Workflow: of.Workflow(workflow),
		Ref:      DefinitionRef{Hash: "h", Source: j.Hash, JobDir: "/job"},
		Texts:    map[string]string{"merge:port": "M"},
	}
	for _, st := range of.Steps {
		def.Texts[st.ID] = st.Instructions
	}

	var out strings.Builder
	say := func(format string, args ...any) {
		fmt.Fprintln(&out, "  "+strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n  "))
	}
	at := began
	given := map[string]outputs.Value{"module": textOf("users"), "mode": textOf("on")}
	say("inputs: %v", testkit.Get(outputs.ParseInputs(def.Workflow, given)).Err())
	inputs := outputs.Map{{Key: "module", Value: textOf("users")}, {Key: "mode", Value: textOf("on")}}
	if workflow == "nothing" {
		_, err := begin(def)
		say("without inputs: %v; begins with %v, and with them %v", err, First(def, nil), First(def, inputs))
	}

	s, _, err := Begin(def, NewSession{
		SessionID: "00000001",
		Goal:      "g",
		Identity:  "local",
		Inputs:    inputs,
		Isolated:  workflow == "isolated",
		At:        at,
		Call:      Call{Tool: ToolStart},
	})
	testkit.Must(t, err)
	def = def.For(s)

	step := func(info *replies.StepInfo) string {
		text := info.StepID + " " + info.Position
		if info.Item != nil {
			text += fmt.Sprintf(", item %s of %d", info.Item.Value, info.Item.Count)
		}
		if info.Round != nil {
			text += fmt.Sprintf(", round %d of %d", info.Round.Number, info.Round.AtMost)
			if info.Round.Failed != "" {
				text += ", " + info.Round.Failed
			}
		}
		for _, in := range info.Inputs {
			text += fmt.Sprintf(", %s is %v", in.Name, in.Paths)
		}
		return text
	}
	begun := func(first *replies.StepInfo, others []replies.StepInfo) {
		if first != nil {
			say("begins %s", step(first))
		}
		for _, o := range others {
			say("and %s", step(&o))
		}
	}
	for line := range strings.Lines(file) {
		if strings.HasPrefix(line, " ") {
			continue
		}

		at = at.Add(time.Second)
		words := strings.Fields(line)
		out.WriteString(line)
		id := words[min(1, len(words)-1)]
		switch words[0] {
		case "finish":
			var given outputs.Map
			for _, w := range words[2:] {
				name, value, _ := strings.Cut(w, "=")
				v := textOf(value)
				if value[0] == '+' {
					v = outputs.Value{Paths: strings.Split(strings.ReplaceAll(value, "+", ""), ","), List: true}
				}
				given = append(given, outputOf(name, v)...)
			}

			stepID := map[bool]*string{true: &id}[id != "-"]
			p, err := s.PlanFinish(def, stepID, func(was outputs.Map) bool {
				return len(given) > 0 && fmt.Sprint(was[0].Value.Paths) == fmt.Sprint(given[0].Value.Paths)
			})
			fin := FinishInput{
				Call:    Call{Tool: ToolFinish},
				At:      at,
				Outputs: given,
				Lists:   map[string][]json.RawMessage{},
			}
			if err == nil && p.Replay == nil {
				for _, l := range Lists(def, p.Step) {
					v, _ := given.Get(l.Output)
					if fin.Lists[l.Output], err = ParseItems(l.Output, []byte(*v.Text), l.Most); err != nil {
						break
					}
				}
			}

			switch {
			case err != nil:
				say("refused: %v", err)
			case p.Replay != nil:
				say("repeats the reply to %s", p.Replay.StepID)
			case s.Exhausted(def, p, fin) != "":
				say("exhausted: %s", s.Exhausted(def, p, fin))
			default:
				ids, ends := s.Begins(def, p, fin), s.Ends(def, p, fin)
				fin.Texts = testkit.Get(def.KeptTexts(ids)).Must(t)
				var r *replies.Finish
				s, r = s.Finish(def, p, fin)
				if ends {
					say("ends")
				}
				say("%s%s", r.Status, listed(", pending", r.PendingConcurrentSteps))
				if r.Feedback != nil {
					say("%s", *r.Feedback)
				}
				begun(r.BeginStep, r.ConcurrentSteps)
				if r.AllOutputs != nil {
					say("%s", testkit.Get(json.Marshal(r.AllOutputs)).Must(t))
				}
			}
		case "go":
			to, err := s.PlanGoTo(def, id)
			if err != nil {
				say("refused: %v", err)
				break
			}
			texts := testkit.Get(def.KeptTexts(s.Restarts(def, to, id, false))).Must(t)
			var r *replies.GoTo
			s, r = s.GoTo(def, Call{Tool: ToolGoTo}, to, id, false, at, texts)
			say("again %v", r.InvalidatedSteps)
			begun(r.BeginStep, r.ConcurrentSteps)
		case "drop":
			next, err := s.Drop(def, id, Override{At: at, Identity: "ann", Reason: "obsolete"},
				func(ids job.Entry) (*Definition, Instructions, error) {
					texts, err := def.KeptTexts(ids)
					return def, texts, err
				})
			say("%v", err)
			if err == nil {
				s = next
			}
		case "show":
			_, _, pending := s.Position(def)
			say("%v", s.NotShown(def, id, pending))
		case "ask":
			s = s.Ask(id, &Question{AskedAt: at})
		case "isolate":
			s = s.Isolate(def, id, words[2], at)
		case "child":
			s = s.Next(at)
			s.Called(id, "0000000c")
			say("finished as %s: %t, as another's %t", id, s.PlanCall(def, id, "0000000c") != nil,
				s.PlanCall(def, id, "0000000d") != nil)
			say("open: %v", s.CallOpen(id,
				&State{SessionID: "0000000c", Status: Active, WorkflowName: "note", CurrentStepID: "jot"}))
			say("gone: %v", s.CallOpen(id, nil))
		case "abort":
			s, _ = s.Abort(Call{Tool: ToolAbort}, "why", at)
		}
		for _, due := range s.DueCalls(def) {
			values := s.CallValues(def, due, j.Workflow(due.Call.Workflow))
			for _, name := range slices.Sorted(maps.Keys(values)) {
				say("%s gets %s %v", due.ID, name, values[name].Paths)
			}
		}
		done, total := s.Counts(def)
		say("%s at %s (%d of %d)%s%s", s.Status, s.CurrentStepID, done, total, listed(", shows", s.Shown(def)),
			listed(", displays", s.Displayed(def, s.CurrentEntryIndex)))
		for _, p := range s.StepProgress {
			testkit.True(t, !s.IsCurrent(p.Key) || slices.Contains(s.Shown(def), p.Key),
				"after %s: %s is current, and not shown", line, p.Key)
			if p.Value.Folder != "" {
				say("%s is in %s", p.Key, s.RootOf("", p.Key))
			}
		}

		back := testkit.Get(Decode(s.SessionID, testkit.Get(s.Encode()).Must(t))).Must(t)
		testkit.Same(t, append(back.Faults(), back.FaultsWith(def)...), nil, "after %s", line)
		lost, all := back.Counts(nil)
		say("without its definition %d of %d", lost, all)
	}

	return out.String()
}

// listed returns a list with what it is, or nothing if it is empty.
func listed[S ~[]string](what string, list S) string {
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf("%s %v", what, list)
}

// A weakening is recorded once.
func TestWeakeningsAreRecordedOnce(t *testing.T) {
	s := new(State)
	first, later := time.Unix(1, 0), time.Unix(2, 0)
	s.weaken("b", nil, first)
	testkit.Equal(t, len(s.Weakened), 0)
	s.weaken("b", []string{"one"}, first)
	s.weaken("c", []string{"one", "two"}, later)
	s.weaken("c", []string{"two"}, later)
	testkit.Same(t, s.Weakened, []Weakening{{first, "b", []string{"one"}}, {later, "c", []string{"two"}}})
}

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func begin(def *Definition) (*State, error) {
	s, _, err := Begin(def, NewSession{
		SessionID: "00000001",
		Goal:      "g",
		Identity:  "local",
		At:        began,
		Call:      Call{Tool: ToolStart},
	})
	return s, err
}

// Only a verdict on exactly the same content counts again, and none that was imported.
func TestVerdictsThatCountAgain(t *testing.T) {
	at, verdict := began, func(key string, passed bool) *Verdict {
		return &Verdict{Key: key, Digest: "d", Passed: passed}
	}
	s := testkit.Get(begin(memoryDefinition(t, "[[a]]"))).Must(t)
	s = s.OpenTry("a", Try{OpenedAt: at, Digest: "d"}).CloseTry("a",
		[]*Verdict{verdict("r", true), verdict("s", false)}, "", at)
	s = s.OpenTry("a", Try{OpenedAt: at, Digest: "d", Checks: true}).CloseTry("a",
		[]*Verdict{verdict("c", false)}, "", at)
	s = s.OpenTry("a", Try{OpenedAt: at, Digest: "d"}).CloseTry("a", nil, "it hung", at)
	p := s.Progress("a")
	look := func(s *State) string {
		p := s.Progress("a")
		return fmt.Sprint(p.PassedBefore("r", "d") != nil, p.PassedBefore("s", "d") != nil,
			p.PassedBefore("r", "e") != nil, p.Judged("d") != nil, p.Judged("e") != nil,
			s.CheckedBefore("a", "c", "d") != nil, s.CheckedBefore("a", "c", "e") != nil,
			s.CheckedBefore("a", "r", "d") != nil, s.CheckedBefore("b", "c", "d") != nil)
	}
	testkit.Equal(t, look(s), "true false false true false true false false false")
	testkit.Equal(t, fmt.Sprintln(p.QualityTries, p.FailedChecks, p.NewestReview().State, p.LastCounted().State,
		len(p.LastCounted().Failed())), "1 1 void failed 1\n")
	testkit.Equal(t, s.CollectChecks("a", at), s, "a review is taken for checks")

	again, _ := s.GoTo(memoryDefinition(t, "[[a]]"), Call{Tool: ToolGoTo}, 0, "a", true, at, Instructions{})
	testkit.Equal(t, look(again), "false false false false false true false false false")
	open := s.OpenTry("a", Try{OpenedAt: at, Checks: true})
	seen := open.CollectChecks("a", at)
	testkit.True(t, seen.Progress("a").Newest().Collected && seen.CollectChecks("a", at) == seen,
		"the results of checks are not marked as seen once")
	open = open.Ask("a", &Question{AskedAt: at, Digest: "d"}).In(nil)
	imported := open.Imported(at)
	testkit.Equal(t, look(imported), "false false false false false false false false false")

	q := imported.Progress("a")
	finished := &State{StepProgress: s.StepProgress.Set("a",
		&StepProgress{Evidence: &Evidence{}, Shown: &Shown{}, Granted: &Override{}})}
	kept := finished.Imported(at).Progress("a")
	testkit.True(t, kept.Evidence.Imported, "%+v", kept)
	testkit.Need(t, kept.Shown == nil, "%+v", kept)
	testkit.Need(t, kept.Granted == nil, "%+v", kept)
	testkit.True(t, !finished.Progress("a").Evidence.Imported, "%+v", kept)
	testkit.Need(t, q.Question == nil, "%+v", q)
	testkit.Equal(t, q.QualityTries, 1)
	testkit.Equal(t, q.Newest().State, TryVoid)
	testkit.Need(t, q.Newest().ClosedAt != nil, "%+v", q)
	testkit.Equal(t, *imported.ImportedAt, at)
}

// A person answers once, about the outputs that they saw.
func TestWhoMayAnswer(t *testing.T) {
	at, s := began, testkit.Get(begin(memoryDefinition(t, "[a, b]"))).Must(t)
	answer := func(s *State, step, digest string) error { return testkit.Get(s.ToAnswer(step, digest)).Err() }
	testkit.Fails(t, answer(s, "a", ""), "does not wait for a person")

	asked := s.Ask("a", &Question{AskedAt: at, Digest: "d"})
	testkit.Need(t, answer(asked, "a", "") == nil, "a person may not answer")
	testkit.Need(t, answer(asked, "a", "d") == nil, "a person may not answer")
	testkit.Equal(t, FileHash{Output: "x"}.Name()+FileHash{Path: "p"}.Name(), "the text 'x'p",
		"a person may not answer")
	testkit.Fails(t, answer(asked, "a", "e"), "not those that you were shown")
	testkit.Fails(t, answer(asked, "b", ""), "does not wait for a person")
	testkit.Equal(t, asked.Unask("a", "d", at), asked, "a question ends only with other outputs")
	testkit.Equal(t, asked.Unask("b", "e", at), asked, "a question ends only with other outputs")
	testkit.True(t, asked.Unask("a", "e", at).Progress("a").Question == nil, "a question ends only with other outputs")
	done := asked.Ask("a", &Question{
		AskedAt: at,
		Digest:  "d",
		Answer:  &Answer{Identity: "ann", Channel: "page", Passed: true},
	})
	testkit.Fails(t, answer(done, "a", ""),
		"has answered already about these outputs of step 'a' of session '"+done.SessionID+"': passed.")
	over, _ := done.Abort(Call{Tool: ToolAbort}, "why", at)
	testkit.Fails(t, answer(over, "a", ""), "was aborted")

	declined := testkit.Get(asked.Decline("a", "d", "ann", at)).Must(t)
	testkit.Same(t, declined.Progress("a").Question.Declined, []string{"ann"})
	testkit.Equal(t, testkit.Get(declined.Decline("a", "d", "ann", at)).Must(t), declined, "declined twice")
	testkit.Fails(t, testkit.Get(asked.Decline("a", "e", "ann", at)).Err(), "not those that you were shown")
	testkit.True(t, len(asked.Progress("a").Question.Declined) == 0 && declined.Progress("a").LastByPerson() == nil,
		"declining is an answer")
	failed := testkit.Get(declined.OpenTry("a", Try{Digest: "d"}).CloseTry("a", nil, "", at).Answer("a", "d",
		Answer{Identity: "bob", Channel: "page", Feedback: "No"})).Must(t)
	by := failed.OpenTry("a", Try{OpenedAt: at}).CloseTry("a", nil, "it hung", at).Progress("a").LastByPerson()
	testkit.Need(t, by != nil, "%+v", by)
	testkit.Equal(t, by.Number, 1)
	testkit.Equal(t, by.Verdicts[0].Reviewer, "a person (bob, page)")

	for _, c := range []struct {
		e    Evidence
		want string
	}{
		{Evidence{Kind: ByPerson, Identity: "ann", Channel: "page", Reason: "R"},
			"A person (ann, page) overrode the reviews of step 'a': R"},
		{*(&Question{Answer: &Answer{Feedback: "F"}}).Evidence(), "The person who passed step 'a' says: F"},
		{*(&Question{Answer: &Answer{Feedback: "F", Client: true}}).Evidence(),
			"The person who passed step 'a' says: F"},
		{Evidence{Kind: Passed}, ""},
		{Evidence{Kind: ByReviewer, Reason: "R"}, ""},
	} {
		testkit.Equal(t, c.e.notice("a"), c.want)
	}
	testkit.Equal(t, (&Question{Answer: &Answer{Client: true}}).Evidence().Kind, PassedIn)

	granted := testkit.Get(s.Grant("a", Override{At: at, Reason: "R"})).Must(t)
	testkit.True(t, granted.Progress("a").HasGrant(), "%+v", granted.Progress("a"))
	testkit.True(t, !s.Progress("a").HasGrant(), "%+v", granted.Progress("a"))
	testkit.True(t, !granted.Progress("b").HasGrant(), "%+v", granted.Progress("a"))
	testkit.Fails(t, testkit.Get(s.Grant("b", Override{At: at})).Err(),
		"Step 'b' of session '00000001' is not to be finished now; the current step is 'a'.")
	testkit.Fails(t, testkit.Get(over.Grant("a", Override{At: at})).Err(), "was aborted")
	testkit.Equal(t, s.Show("a", Shown{At: at, Digest: "d"}).Progress("a").Shown.Digest, "d")
	testkit.Equal(t, s.Misfit("a", Shown{At: at, Digest: "d"}).Progress("a").Unfit.Digest, "d")
	for reason, want := range map[string]bool{"why": true, "": false} {
		testkit.Equal(t, over.ReplayAbort(reason) != nil, want, "%q", reason)
	}
	testkit.Equal(t, done.ReplayAbort("why"), nil)
}
