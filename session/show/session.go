package show

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/judging"
	"deepwork/session/machine"
)

// Session prints a session for people: its steps, outputs, tries, verdicts and overrides. at says where its
// files are, if not here.
func Session(w *Screen, s *machine.State, at string) {
	step := ""
	moved := ""
	ended := ""
	imported := ""
	reviewer := ""
	pinned := ""
	if s.Status == machine.Active {
		step, moved = s.CurrentStepID, Ago(s.UpdatedAt)
	}
	if s.CompletedAt != nil {
		ended = Ago(*s.CompletedAt)
	}
	if s.ImportedAt != nil {
		imported = Ago(*s.ImportedAt) +
			", from a file; reviews and decisions from before are what that says, and count for nothing"
	}

	if p := s.Pinned; p != nil {
		reviewer = asTyped(p.Reviewer)
		if p.Pin {
			pinned = "yes: edits that weaken its reviews do not reach it"
		}
	}
	w.Fields(9, "session", s.SessionID, "status", string(s.Status), "workflow", s.JobName+"/"+s.WorkflowName,
		"goal", s.Goal,
		"instance", Optional(s.InstanceID), "branch", s.BranchInWords(), "parent", Optional(s.ParentSessionID),
		"attempt", s.AttemptID, "place", at,
		"started", Ago(s.StartedAt), "step", step, "moved", moved, "ended", ended, "aborted", Optional(s.AbortReason),
		"imported", imported,
		"caller", s.Identity, "job_dir", s.Definition.JobDir, "reviewer", reviewer, "pinned", pinned)

	for _, in := range s.Inputs {
		w.Text("", fmt.Sprintf("input %s: %s", in.Key, in.Value.Shown()))
	}

	for _, weak := range s.Weakened {
		fmt.Fprintf(w, "\nweakened since it began, before %s was finished %s:\n", weak.Step, Ago(weak.At))
		for _, what := range weak.What {
			fmt.Fprintf(w, "  %s\n", IndentRest(what, "    "))
		}
	}

	fmt.Fprintln(w, "\nsteps:")
	printProgress(w, s.StepProgress)
	for _, h := range s.History {
		fmt.Fprintf(w, "\nwithdrawn %s, going back from %s to %s:\n", Ago(h.At), Inline(h.From), Inline(h.To))
		printProgress(w, h.Progress)
	}
}

func printProgress(w *Screen, steps jsontext.OrderedMap[*machine.StepProgress]) {
	for _, step := range steps {
		p := step.Value
		detail := func(format string, args ...any) {
			w.Text("    ", fmt.Sprintf(format, args...))
		}
		how := "in progress, started " + Ago(p.StartedAt)
		switch {
		case p.Dropped != nil:
			how = fmt.Sprintf("its item was dropped %s by %s: %s", Ago(p.Dropped.At), Inline(p.Dropped.Identity),
				Inline(p.Dropped.Reason))
		case p.CompletedAt != nil:
			how = fmt.Sprintf("finished %s, after %s", Ago(*p.CompletedAt), took(p.CompletedAt.Sub(p.StartedAt)))
		case p.Unreported:
			how = fmt.Sprintf("started %s, never reported: its group went on without it", Ago(p.StartedAt))
		}
		fmt.Fprintf(w, "  %s: %s\n", Inline(step.Key), how)
		if p.Round != nil {
			detail("round %d", p.Round.Number)
		}
		if p.Child != "" {
			detail("is the workflow of session %s", p.Child)
		}
		for _, o := range p.Outputs {
			detail("output %s: %s", o.Key, o.Value.Shown())
		}
		if notes := Optional(p.Notes); notes != "" {
			detail("notes: %s", notes)
		}
		Tries(detail, p.Tries())
		if p.FailedChecks > 0 {
			detail("calls whose checks failed: %d", p.FailedChecks)
		}
		for _, o := range p.Overrides {
			what := "review overridden"
			if v := p.FinishedWith().Of(judging.BySelf); v != nil && v.At.Equal(o.At) {
				what = "reviewed by the agent itself"
			}
			detail("%s %s by %s (skipped: %s): %s", what, Ago(o.At), o.Identity,
				strings.Join(o.Skipped, ", "), o.Reason)
		}
		if g := p.Granted; g != nil {
			detail("a person (%s, %s) overrode its reviews %s, which the agent has not used yet: %s", g.Identity,
				g.Channel, Ago(g.At), g.Reason)
		}
		if v := p.Unfit(); v != nil {
			detail("handed in %s, and not accepted:\n%s", Ago(v.At), Indent(v.Feedback, "  "))
		}
		printQuestion(detail, p.Asked())
		printEvidence(detail, p)
	}
}

// printQuestion prints that a person is asked about a submission, or their answer. u may be nil.
func printQuestion(detail func(format string, args ...any), u *judging.Submission) {
	if u == nil {
		return
	}
	switch v, asked := u.Answer(), u.Turn(); {
	case asked.About != "":
		detail("waits for a person, asked %s, to say how to go on: %s", Ago(asked.At), IndentRest(asked.About, "    "))
	case v != nil:
		detail("a person (%s, %s) answered %s: %s; the agent has not seen that yet", v.By, v.Channel, Ago(v.At),
			v.Word())
	default:
		detail("waits for a person, asked %s, to pass these outputs:", Ago(asked.At))
	}
	Hashes(detail, "  handed in", u.Files)
}

// asTyped returns a pinned reviewer in the form that people type: a command without its JSON.
func asTyped(reviewer string) string {
	var words []string
	if json.Unmarshal([]byte(reviewer), &words) != nil {
		return reviewer
	}
	return strings.Join(words, " ")
}

// Optional returns the text, or "" for nil.
func Optional(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// took rounds a duration for people.
func took(d time.Duration) time.Duration {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond)
	case d < time.Minute:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

// Tries prints the results of a step's external reviews and checks: each try, each verdict once, and the
// hashes of the judged content, so that a person who doubts a verdict can compare the files.
func Tries(detail func(format string, args ...any), tries []*machine.Try) {
	for i, at := range tries {
		what := fmt.Sprintf("review try %d", at.Number)
		if at.Checks {
			what = "checks"
		}
		switch at.State {
		case machine.TryOpen:
			detail("%s, open, begun %s: running, or cut off with the server and to begin again", what, Ago(at.OpenedAt))
		case machine.TryVoid:
			if !at.Checks {
				what = "review"
			}
			detail("%s, void, %s: %s", what, ended(at), OneLine(Optional(at.Error), 400))
		default:
			told := ""
			if !at.Collected && !at.Checks {
				told = ", not yet seen by the agent"
			}
			if at.Imported {
				told = ", imported"
			}
			detail("%s, %s, %s%s", what, at.State, ended(at), told)
		}

		kept := 0
		for _, v := range at.Verdicts {
			if v.Reused && i > 0 {
				kept++
				continue
			}
			printVerdict(detail, v)
		}
		if kept > 0 {
			detail("  %d kept from an earlier try: the content is the same", kept)
		}
		if len(at.Verdicts) == 0 {
			Hashes(detail, "  handed in", at.Files)
		}
	}
}

// printVerdict prints one verdict of a try.
func printVerdict(detail func(format string, args ...any), v *judging.Verdict) {
	if c := v.Check; c != nil {
		detail("  check %s: %s, %s in %s, exit code %d, bound to %s: %s", v.RunEach, passed(v.Passed), Ago(v.At),
			took(time.Duration(v.Seconds*float64(time.Second))), c.Code, c.Bound, strings.Join(c.Command, " "))
		if v.Feedback != "" {
			detail("    %s", IndentRest(v.Feedback, "      "))
		}
		Hashes(detail, "    checked", v.Files)
		return
	}
	of, came := v.RunEach, ""
	if v.TargetFile != nil {
		of += " (" + *v.TargetFile + ")"
	}
	if v.Reused {
		came = ", kept from an earlier try: the content is the same"
	}
	detail("  review of %s: %s, %s by %s in %s%s", of, passed(v.Passed), Ago(v.At), By(v),
		took(time.Duration(v.Seconds*float64(time.Second))), came)
	for _, c := range v.Criteria {
		why := ""
		if text := strings.TrimSpace(Optional(c.Feedback)); text != "" {
			why = " (" + text + ")"
		}
		detail("    criterion %s: %s%s", passed(c.Passed), c.Criterion, IndentRest(why, "      "))
	}
	if text := strings.TrimSpace(v.Feedback); text != "" {
		detail("    feedback: %s", IndentRest(text, "      "))
	}
	Hashes(detail, "    judged", v.Files)
}

// Hashes prints the beginnings of the hashes of files.
func Hashes(detail func(format string, args ...any), how string, files []judging.FileHash) {
	for _, f := range files {
		detail("%s sha256:%s %s", how, f.SHA256[:min(shortHash, len(f.SHA256))], f.Name())
	}
}

// shortHash is how many characters of a hash people see.
const shortHash = 12

// ended formats the start of a try and its duration.
func ended(at *machine.Try) string {
	if at.ClosedAt == nil {
		return Ago(at.OpenedAt)
	}
	return fmt.Sprintf("%s, after %s", Ago(at.OpenedAt), took(at.ClosedAt.Sub(at.OpenedAt)))
}

func passed(ok bool) string {
	if ok {
		return "passed"
	}
	return "failed"
}

// IndentRest inserts prefix before every line but the first.
func IndentRest(text, prefix string) string {
	return strings.TrimPrefix(Indent(text, prefix), prefix)
}

// By names who gave a verdict.
func By(v *judging.Verdict) string {
	if v.Kind == judging.ByPerson {
		return fmt.Sprintf("a person (%s, %s)", v.By, v.Channel)
	}
	return v.By
}

// printEvidence prints why a step with judges was finished, and the content to which that applies.
func printEvidence(detail func(format string, args ...any), p *machine.StepProgress) {
	u := p.FinishedWith()
	if u == nil { // it is not finished, or has no judges
		return
	}

	why := u.Why()
	e := why[0]
	detail("evidence: %s, %s, %s over %s", kind(u, e), Ago(e.At), e.By, cmp.Or(e.Channel, "an unknown channel"))
	if e.Feedback != "" {
		detail("  reason: %s", IndentRest(e.Feedback, "    "))
	}
	if v := u.Of(judging.ByShape); v != nil {
		detail("  although its outputs are not as their schemas demand:\n%s", Indent(v.Feedback, "    "))
	}
	if len(why) > 1 {
		o := why[1]
		detail("  its other reviews: %s, %s, %s over %s", kind(u, o), Ago(o.At), o.By,
			cmp.Or(o.Channel, "an unknown channel"))
	}

	if e.Kind == judging.ByOverride && e.Channel == session.ChannelTerminal && e.GivenFor == "" {
		detail("  given before any output was handed in")
	}
	if given := cmp.Or(e.GivenFor, u.GivenFor); given != "" && given != u.Content {
		detail("  a person had overridden its reviews, but with other outputs or criteria than these")
	}
	for _, c := range u.All(judging.ByProgram) {
		if !c.Passed {
			continue // it ends rounds alone
		}
		detail("  check %s passed %s: exit code %d in %s, bound to %s sha256:%s", c.RunEach, Ago(c.At), c.Check.Code,
			took(time.Duration(c.Seconds*float64(time.Second))), c.Check.Bound,
			c.Digest[:min(shortHash, len(c.Digest))])
	}

	if !judged(p.Newest(), u.Files) {
		Hashes(detail, "  finished with", u.Files)
	}
}

// judged reports whether the verdicts of a try, which have been printed, are about these files.
func judged(at *machine.Try, files []judging.FileHash) bool {
	return at != nil && !slices.ContainsFunc(files, func(f judging.FileHash) bool {
		return !slices.ContainsFunc(at.Verdicts, func(v *judging.Verdict) bool { return slices.Contains(v.Files, f) })
	})
}

// relied says what a finished step relies on, by the kind of the verdict that decided.
var relied = map[judging.Kind]string{
	judging.BySelf:     "reviewed by the agent itself, which was given the criteria for exactly these outputs",
	judging.ByReason:   "overridden by the agent, without a review of these outputs",
	judging.ByOverride: "overridden by a person",
	judging.ByPerson:   "passed by a person, who reviewed these outputs",
	judging.OnRounds:   "a person said how to go on after the last round",
	judging.Off:        "not reviewed, because the server ran without reviews",
	judging.ByProgram:  "its checks passed",
	judging.NotDue:     "no review is of the outputs that were submitted",
}

// kind says in words what a step that was finished with a submission relies on.
func kind(u *judging.Submission, v judging.Verdict) string {
	words := relied[v.Kind]
	switch {
	case v.Kind == judging.ByReviewer:
		words = "passed by the reviewer " + u.Of(v.Kind).By
	case v.Client:
		words = "passed by a person, as the caller's client says"
	}
	if u.Imported {
		return "imported, where it says: " + words
	}
	return words
}
