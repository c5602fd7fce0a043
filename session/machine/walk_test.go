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
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/session/judging"
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
			case s.Exhausted(def, p, given) != "":
				say("exhausted: %s", s.Exhausted(def, p, given))
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
			next, err := s.Drop(def, id, judging.Override{At: at, Identity: "ann", Reason: "obsolete"},
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
			s = s.Submit(id, handed("d", judging.ByPerson), "", at)
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

// handed returns a submission with this content, which judges of this kind have.
func handed(content string, with judging.Kind) *judging.Submission {
	u := &judging.Submission{At: began, Content: content, Files: []judging.FileHash{}}
	return u.To(with, nil, began)
}

// judgedBy records that judges of this kind give these verdicts on a submission of step a with the content d.
func judgedBy(s *State, with judging.Kind, verdicts ...*judging.Verdict) *State {
	s = s.Submit("a", handed("d", with), "", began)
	for _, v := range verdicts {
		v.Kind = with
	}
	return s.Submit("a", s.Progress("a").Handed().To("", verdicts, began), "", began)
}

// Only a verdict on exactly the same content counts again, and none that was imported.
func TestVerdictsThatCountAgain(t *testing.T) {
	at, verdict := began, func(key string, passed bool) *judging.Verdict {
		return &judging.Verdict{Key: key, Digest: "d", Passed: passed}
	}
	s := testkit.Get(begin(memoryDefinition(t, "[[a]]"))).Must(t)
	s = judgedBy(s, judging.ByReviewer, verdict("r", true), verdict("s", false))
	judged := s
	s = judgedBy(s, judging.ByProgram, verdict("c", false))
	s = s.Submit("a", handed("d", judging.ByReviewer), "", at)
	s = s.End("a", s.Progress("a").Handed().ID, &judging.Void{Why: "it hung"}, at)
	p := s.Progress("a")
	next := func(s *State, step string, with judging.Kind, key, digest, content string) judging.Now {
		return judging.Next(judging.Rules{
			Judges:   []judging.Judge{{Kind: with, Key: key, Digest: digest}},
			Reviews:  with == judging.ByReviewer,
			External: true,
			MaxTries: 3,
			Override: config.OverrideAgent,
		}, s.Past(step), judging.HandIn{At: at, Content: content})
	}
	look := func(s *State) string {
		passed := func(key, digest string) bool {
			return next(s, "a", judging.ByReviewer, key, digest, "new").Do == judging.Move
		}
		failed := func(step, key, digest string) bool {
			return next(s, step, judging.ByProgram, key, digest, "new").Why == judging.ChecksFailed
		}
		return fmt.Sprint(passed("r", "d"), passed("s", "d"), passed("r", "e"), failed("a", "c", "d"),
			failed("a", "c", "e"), failed("a", "r", "d"), failed("b", "c", "d"))
	}
	testkit.Equal(t, look(s), "true false false true false false false")
	testkit.Equal(t, next(judged, "a", judging.ByReviewer, "s", "d", "d").Why, judging.ReviewFailed)
	testkit.Equal(t, next(judged, "a", judging.ByReviewer, "s", "d", "e").Do, judging.Run)
	testkit.Equal(t, next(judged.Imported(at), "a", judging.ByReviewer, "s", "d", "d").Do, judging.Run)
	testkit.Equal(t, fmt.Sprintln(p.QualityTries, p.FailedChecks, p.Newest().State, p.LastTry().Failed(),
		len(p.LastTry().Failures())), "1 1 void true 1\n")

	again, _ := s.GoTo(memoryDefinition(t, "[[a]]"), Call{Tool: ToolGoTo}, 0, "a", true, at, Instructions{})
	testkit.Equal(t, look(again), "false false false true false false false")
	open := s.Submit("a", handed("d", judging.ByProgram), "", at)
	seen := open.Tell("a", open.Progress("a").Handed(), at)
	testkit.True(t, seen.Progress("a").Newest().Collected && seen.Tell("a", seen.Progress("a").Handed(), at) == seen,
		"the results of checks are not marked as seen once")
	asked := s.Submit("a", handed("e", judging.ByPerson), "", at)
	testkit.True(t, asked.Progress("a").AsksPerson() != nil && asked.Imported(at).Progress("a").Asked() == nil,
		"a question is imported")
	imported := open.In(nil).Imported(at)
	testkit.Equal(t, look(imported), "false false false false false false false")

	q := imported.Progress("a")
	testkit.Need(t, q.Asked() == nil, "%+v", q)
	testkit.Equal(t, q.QualityTries, 1)
	testkit.Equal(t, q.Newest().State, TryVoid)
	testkit.Need(t, q.Newest().ClosedAt != nil, "%+v", q)
	testkit.Equal(t, *imported.ImportedAt, at)

	finished := &State{StepProgress: s.StepProgress.Set("a", &StepProgress{
		Submissions: []*judging.Submission{{ID: 1, EndedAt: &at, Verdicts: []*judging.Verdict{{Kind: judging.Off}}},
			handed("d", judging.BySelf)},
		Finished: 1,
		Granted:  &judging.Override{},
	})}
	kept := finished.Imported(at).Progress("a")
	testkit.True(t, kept.FinishedWith().Imported, "%+v", kept)
	testkit.Equal(t, len(kept.Submissions), 1, "what the agent was to review itself is kept")
	testkit.Need(t, kept.Granted == nil, "%+v", kept)
	testkit.True(t, !finished.Progress("a").FinishedWith().Imported, "%+v", kept)
}

// A person answers once, about the outputs that they saw.
func TestWhoMayAnswer(t *testing.T) {
	at, s := began, testkit.Get(begin(memoryDefinition(t, "[a, b]"))).Must(t)
	answer := func(s *State, step, digest string) error { return testkit.Get(s.ToAnswer(step, digest)).Err() }
	testkit.Fails(t, answer(s, "a", ""), "does not wait for a person")

	asked := s.Submit("a", handed("d", judging.ByPerson), "", at)
	testkit.Need(t, answer(asked, "a", "") == nil, "a person may not answer")
	testkit.Need(t, answer(asked, "a", "d") == nil, "a person may not answer")
	testkit.Equal(t, judging.FileHash{Output: "x"}.Name()+judging.FileHash{Path: "p"}.Name(), "the text 'x'p",
		"a person may not answer")
	testkit.Fails(t, answer(asked, "a", "e"), "not those that you were shown")
	testkit.Fails(t, answer(asked, "b", ""), "does not wait for a person")
	testkit.True(t, asked.Submit("a", handed("e", judging.ByReviewer), "", at).Progress("a").Asked() == nil,
		"a question ends with other outputs")
	yes := Answer{At: at, Identity: "ann", Channel: "page", Passed: true, Client: true}
	done := testkit.Get(asked.Answer("a", "d", yes)).Must(t)
	testkit.True(t, done.Progress("a").Asked().Of(judging.ByPerson).Client, "only a client says that it was a person")
	testkit.Fails(t, answer(done, "a", ""),
		"has answered already about these outputs of step 'a' of session '"+done.SessionID+"': passed.")
	over, _ := done.Abort(Call{Tool: ToolAbort}, "why", at)
	testkit.Fails(t, answer(over, "a", ""), "was aborted")

	declined := testkit.Get(asked.Decline("a", "d", "ann", at)).Must(t)
	testkit.Same(t, declined.Progress("a").Asked().Declined, []string{"ann"})
	testkit.Equal(t, testkit.Get(declined.Decline("a", "d", "ann", at)).Must(t), declined, "declined twice")
	testkit.Fails(t, testkit.Get(asked.Decline("a", "e", "ann", at)).Err(), "not those that you were shown")
	testkit.True(t, len(asked.Progress("a").Asked().Declined) == 0 && declined.Progress("a").LastByPerson() == nil,
		"declining is an answer")
	reviewed := s.Submit("a", handed("d", judging.ByReviewer), "", at)
	reviewed = reviewed.Submit("a", reviewed.Progress("a").Handed().To(judging.ByPerson,
		[]*judging.Verdict{{Kind: judging.ByReviewer, Passed: true}}, at), "", at)
	failed := testkit.Get(reviewed.Answer("a", "d", Answer{Identity: "bob", Channel: "page", Feedback: "No"})).Must(t)
	failed = failed.Submit("a", handed("e", judging.ByReviewer), "", at)
	failed = failed.End("a", failed.Progress("a").Handed().ID, &judging.Void{Why: "it hung"}, at)
	by := failed.Progress("a").LastByPerson()
	testkit.Need(t, by != nil, "%+v", by)
	testkit.Equal(t, by.Number, 1)
	testkit.Equal(t, by.Of(judging.ByPerson).By+" "+by.Of(judging.ByPerson).Channel, "bob page")
	testkit.Equal(t, failed.Progress("a").QualityTries, 2)

	for _, c := range []struct {
		v    judging.Verdict
		want string
	}{
		{judging.Verdict{Kind: judging.ByOverride, By: "ann", Channel: "page", Feedback: "R"},
			"A person (ann, page) overrode the reviews of step 'a': R"},
		{judging.Verdict{Kind: judging.ByPerson, Feedback: "F"}, "The person who passed step 'a' says: F"},
		{judging.Verdict{Kind: judging.ByPerson, Feedback: "F", Client: true},
			"The person who passed step 'a' says: F"},
		{judging.Verdict{Kind: judging.ByPerson}, ""},
		{judging.Verdict{Kind: judging.ByReviewer, Feedback: "R"}, ""},
	} {
		testkit.Equal(t, notice(&judging.Submission{Verdicts: []*judging.Verdict{&c.v}}, "a"), c.want)
	}

	granted := testkit.Get(s.Grant("a", judging.Override{At: at, Reason: "R"})).Must(t)
	testkit.True(t, granted.Progress("a").HasGrant(), "%+v", granted.Progress("a"))
	testkit.True(t, !s.Progress("a").HasGrant(), "%+v", granted.Progress("a"))
	testkit.True(t, !granted.Progress("b").HasGrant(), "%+v", granted.Progress("a"))
	testkit.Fails(t, testkit.Get(s.Grant("b", judging.Override{At: at})).Err(),
		"Step 'b' of session '00000001' is not to be finished now; the current step is 'a'.")
	testkit.Fails(t, testkit.Get(over.Grant("a", judging.Override{At: at})).Err(), "was aborted")
	testkit.Equal(t, s.Submit("a", handed("d", judging.BySelf), "", at).Progress("a").Handed().With(), judging.BySelf)
	misfit := judgedBy(s, judging.ByShape, &judging.Verdict{Digest: "d"})
	testkit.Equal(t, misfit.Progress("a").Unfit().Digest, "d")
	testkit.True(t, misfit.Submit("a", handed("e", judging.ByPerson), "", at).Progress("a").Unfit() == nil,
		"later outputs do not satisfy their schemas")
	for reason, want := range map[string]bool{"why": true, "": false} {
		testkit.Equal(t, over.ReplayAbort(reason) != nil, want, "%q", reason)
	}
	testkit.Equal(t, done.ReplayAbort("why"), nil)
}
