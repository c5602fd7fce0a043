package show

import (
	"fmt"
	"io"
	"strings"
	"time"

	"deepwork/session/workflow/machine"
)

// Session prints a session for people: its steps, outputs, review attempts, verdicts and overrides.
func Session(w io.Writer, s *machine.State) {
	field := func(name, value string) {
		if value = Plain(value); value != "" {
			fmt.Fprintf(w, "%-9s %s\n", name+":", strings.TrimLeft(Indent(value, strings.Repeat(" ", 10)), " "))
		}
	}
	field("session", s.SessionID)
	field("status", string(s.Status))
	field("workflow", s.JobName+"/"+s.WorkflowName)
	field("goal", s.Goal)
	field("instance", Optional(s.InstanceID))
	field("branch", s.BranchName)
	field("parent", Optional(s.ParentSessionID))
	field("attempt", s.AttemptID)
	if s.Status == machine.Active {
		field("step", s.CurrentStepID)
	}
	field("started", stamp(s.StartedAt))
	field("moved", stamp(s.UpdatedAt))
	if s.CompletedAt != nil {
		field("ended", stamp(*s.CompletedAt))
	}
	field("aborted", Optional(s.AbortReason))
	field("caller", s.Identity)
	field("server", s.Owner)
	field("job_dir", s.Definition.JobDir)
	if p := s.Pinned; p != nil {
		field("reviewer", p.Reviewer)
		if p.Pin {
			field("pinned", "yes: edits that weaken its reviews do not reach it")
		}
	}
	for _, weak := range s.Weakened {
		fmt.Fprintf(w, "\nweakened since it began, before %s was finished %s:\n", Plain(weak.Step), stamp(weak.At))
		for _, what := range weak.What {
			fmt.Fprintf(w, "  %s\n", IndentRest(Plain(what), "    "))
		}
	}
	fmt.Fprintln(w, "\nsteps:")
	printProgress(w, s.StepProgress)
	for _, h := range s.History {
		fmt.Fprintf(w, "\nwithdrawn %s, going back from %s to %s:\n", stamp(h.At), Inline(h.From), Inline(h.To))
		printProgress(w, h.Progress)
	}
}

func printProgress(w io.Writer, steps machine.OrderedMap[*machine.StepProgress]) {
	for _, step := range steps {
		p := step.Value
		fmt.Fprintf(w, "  %s\n", Inline(step.Key))
		detail := func(format string, args ...any) {
			fmt.Fprint(w, Indent(Plain(fmt.Sprintf(format, args...))+"\n", "    "))
		}
		switch {
		case p.CompletedAt != nil:
			detail("started %s, finished %s (%s)", stamp(p.StartedAt), stamp(*p.CompletedAt),
				p.CompletedAt.Sub(p.StartedAt).Round(time.Millisecond))
		case p.Unreported:
			detail("started %s, never reported: its group went on without it", stamp(p.StartedAt))
		default:
			detail("started %s, in progress", stamp(p.StartedAt))
		}
		for _, o := range p.Outputs {
			detail("output %s: %s", o.Key, strings.Join(o.Value.Paths, ", "))
		}
		if notes := Optional(p.Notes); notes != "" {
			detail("notes: %s", notes)
		}
		Attempts(detail, p.Attempts)
		for _, o := range p.Overrides {
			detail("review overridden %s by %s (skipped: %s): %s", stamp(o.At), o.Identity, strings.Join(o.Skipped, ", "), o.Reason)
		}
		if g := p.Granted; g != nil {
			detail("a person (%s, %s) overrode its reviews %s, for its next finished_step: %s", g.Identity, g.Channel, stamp(g.At), g.Reason)
		}
		printQuestion(detail, p.Question)
		printEvidence(detail, p)
	}
}

// printQuestion prints what a person is asked about a step, and the answer that its next finished_step
// collects.
func printQuestion(detail func(format string, args ...any), q *machine.Question) {
	switch {
	case q == nil:
		return
	case q.Open():
		detail("waits for a person since %s, to pass these outputs:", stamp(q.AskedAt))
	default:
		detail("a person (%s, %s) answered %s: %s; the next finished_step with these outputs collects that", q.Answer.Identity, q.Answer.Channel, stamp(q.Answer.At), passed(q.Answer.Passed))
	}
	Hashes(detail, "  handed in", q.Files)
}

// Optional is a text that may be missing.
func Optional(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Attempts prints the results of a step's external reviews: each attempt, each verdict, and
// the content that it is about, so that a person who doubts a verdict can compare the files with
// it.
func Attempts(detail func(format string, args ...any), attempts []*machine.Attempt) {
	for _, at := range attempts {
		switch at.State {
		case machine.AttemptOpen:
			detail("review attempt %d, open since %s: its review runs, or was cut off with its server and begins again", at.Number, stamp(at.OpenedAt))
		case machine.AttemptVoid:
			detail("review attempt, void, %s: %s", ended(at), brief(Optional(at.Error)))
		default:
			told := ""
			if !at.Collected {
				told = ", not yet reported to a call"
			}
			detail("review attempt %d, %s, %s%s", at.Number, at.State, ended(at), told)
		}
		for _, v := range at.Verdicts {
			printVerdict(detail, v)
		}
		if len(at.Verdicts) == 0 {
			Hashes(detail, "  handed in", at.Files)
		}
	}
}

// printVerdict shows one verdict of an attempt.
func printVerdict(detail func(format string, args ...any), v *machine.Verdict) {
	of, came := v.RunEach, ""
	if v.TargetFile != nil {
		of += " (" + *v.TargetFile + ")"
	}
	if v.Reused {
		came = ", kept from an earlier attempt: the content is the same"
	}
	detail("  review of %s: %s, %s by %s in %s%s", of, passed(v.Passed), stamp(v.At), v.Reviewer,
		time.Duration(v.Seconds*float64(time.Second)).Round(time.Millisecond), came)
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

// Hashes prints the content that files had.
func Hashes(detail func(format string, args ...any), how string, files []machine.FileHash) {
	for _, f := range files {
		detail("%s sha256:%s %s", how, f.SHA256, f.Path)
	}
}

// ended formats the start of an attempt and its duration.
func ended(at *machine.Attempt) string {
	if at.ClosedAt == nil {
		return "since " + stamp(at.OpenedAt)
	}
	return fmt.Sprintf("%s, after %s", stamp(at.OpenedAt), at.ClosedAt.Sub(at.OpenedAt).Round(time.Millisecond))
}

func passed(ok bool) string {
	if ok {
		return "passed"
	}
	return "failed"
}

// brief shortens a text of a reviewer, which may be long; --json has all of it.
func brief(text string) string { return OneLine(text, 400) }

// IndentRest inserts prefix before every line but the first.
func IndentRest(text, prefix string) string {
	return strings.TrimPrefix(Indent(text, prefix), prefix)
}
