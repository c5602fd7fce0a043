package workflow

import (
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"deepwork/actor/telemetry"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/spans"
)

// A session's spans are made from its state alone. The process whose transition ends something exports its
// span, always with the same id.

// refOf returns the span of a session.
func refOf(s *machine.State) telemetry.Ref {
	return telemetry.Derive(telemetry.Parse(s.Trace), spans.Session, s.SessionID)
}

// begunAt returns the span of something that began at this time in a session.
func begunAt(s *machine.State, kind, id string, at time.Time) telemetry.Ref {
	return telemetry.Derive(telemetry.Parse(s.Trace), kind, s.SessionID, id, strconv.FormatInt(at.UnixMicro(), 10))
}

// exportEnded exports the spans that ended between two states of a session. before is nil for a new one.
func exportEnded(before, next *machine.State) {
	if !telemetry.Taken() || next.Trace == "" || before == nil {
		return
	}
	beforeParts, nextParts := partsOf(before), partsOf(next)
	if before.Status == next.Status { // otherwise the end of the session has also ended steps
		beforeParts, nextParts = unlike(beforeParts, nextParts), unlike(nextParts, beforeParts)
	}
	known := endedSpans(before, beforeParts)
	for _, span := range endedSpans(next, nextParts) {
		if !slices.ContainsFunc(known, func(k telemetry.Span) bool { return k.Ref.SpanID() == span.Ref.SpanID() }) {
			telemetry.Export(span)
		}
	}
}

// unlike returns the parts that differ from those at the same positions in another state.
func unlike(all, others []part) (left []part) {
	for i, p := range all {
		if i >= len(others) || p != others[i] {
			left = append(left, p)
		}
	}
	return left
}

// A part is a step's progress, and the time at which go_to_step left it; zero means never.
type part struct {
	*machine.StepProgress
	left time.Time
}

// partsOf returns the progress of all steps of a session.
func partsOf(s *machine.State) []part {
	all := make([]part, 0, len(s.StepProgress))
	for _, w := range s.History {
		for _, p := range w.Progress {
			all = append(all, part{p.Value, w.At})
		}
	}
	for _, p := range s.StepProgress {
		all = append(all, part{p.Value, time.Time{}})
	}
	return all
}

var (
	tryKind = map[bool]string{true: spans.Checks, false: spans.Review} // whether it is of checks
	label   = map[bool]string{true: "pass", false: "fail"}             // whether it passed
)

// endedSpans returns the spans that have ended in a session and in some of its parts.
func endedSpans(s *machine.State, of []part) (all []telemetry.Span) {
	if s.CompletedAt != nil {
		span := telemetry.Span{
			Name:   spans.Session + " " + s.JobName + "/" + s.WorkflowName,
			Ref:    refOf(s),
			Parent: telemetry.Parse(s.Trace),
			Start:  s.StartedAt,
			End:    *s.CompletedAt,
			Attributes: []attribute.KeyValue{
				spans.Operation.String(spans.Session), spans.Workflow.String(s.JobName + "/" + s.WorkflowName),
				spans.SessionID.String(s.SessionID), spans.Outcome.String(string(s.Status))},
		}
		if s.AttemptID != "" {
			span.Attributes = append(span.Attributes, spans.RunID.String(s.AttemptID))
		}
		span.Attributes = withText(span.Attributes, spans.Goal, s.Goal)
		if s.Status == machine.Aborted {
			span.Error = string(s.Status)
		}
		all = append(all, span)
	}
	for _, p := range of {
		all = append(all, stepSpans(s, p.StepProgress, p.left)...)
	}
	return all
}

// stepSpans returns the spans of a step that have ended. left is when go_to_step left it; zero means never.
func stepSpans(s *machine.State, p *machine.StepProgress, left time.Time) (all []telemetry.Span) {
	ref := begunAt(s, spans.Step, p.StepID, p.StartedAt)
	about := []attribute.KeyValue{spans.SessionID.String(s.SessionID), spans.StepID.String(p.StepID)}
	add := func(name string, of, parent telemetry.Ref, from, to time.Time, more ...attribute.KeyValue) {
		all = append(all, telemetry.Span{
			Name:       name,
			Ref:        of,
			Parent:     parent,
			Start:      from,
			End:        to,
			Attributes: append(about[:2:2], more...),
		})
	}

	end, how := left, "left"
	switch {
	case p.CompletedAt != nil:
		end, how = *p.CompletedAt, string(machine.Completed)
	case !left.IsZero():
	case p.Dropped != nil:
		end, how = p.Dropped.At, "dropped"
	case s.CompletedAt != nil && p.Unreported:
		end, how = *s.CompletedAt, "unreported"
	case s.CompletedAt != nil:
		end, how = *s.CompletedAt, string(s.Status)
	}
	if !end.IsZero() {
		add(spans.Step, ref, refOf(s), p.StartedAt, end, spans.Try.Int(p.QualityTries), spans.Outcome.String(how))
	}
	for _, a := range p.Tries() {
		if a.ClosedAt == nil || a.Imported || a.ByPerson {
			continue
		}

		of := tryRef(s, p.StepID, a.Checks, a.OpenedAt)
		add(tryKind[a.Checks], of, ref, a.OpenedAt, *a.ClosedAt, spans.Try.Int(a.Number),
			spans.Outcome.String(string(a.State)))
		for _, v := range a.Verdicts {
			if !v.Reused && !v.At.Before(a.OpenedAt) { // otherwise it belongs to an earlier one
				all = append(all, verdictSpan(of, v))
			}
		}
	}
	for _, u := range p.Submissions {
		if v := u.Answer(); v != nil && !u.Imported {
			asked := u.LastTurn(judging.ByPerson).At
			add(spans.Person, begunAt(s, spans.Person, p.StepID, asked), ref, asked, v.At,
				withText([]attribute.KeyValue{spans.Outcome.String(label[v.Passed])}, spans.Feedback, v.Feedback)...)
		}
	}

	return all
}

// tryRef returns the span of a try that began then: a review or checks.
func tryRef(s *machine.State, stepID string, checks bool, at time.Time) telemetry.Ref {
	return begunAt(s, tryKind[checks], stepID, at)
}

func verdictSpan(parent telemetry.Ref, v *judging.Verdict) telemetry.Span {
	return telemetry.Span{
		Name:   spans.Verdict,
		Ref:    telemetry.Derive(parent, parent.SpanID().String(), v.Key),
		Parent: parent,
		Start:  v.At.Add(-time.Duration(v.Seconds * float64(time.Second))),
		End:    v.At,
		Attributes: withText([]attribute.KeyValue{spans.Criterion.String(v.RunEach),
			spans.Label.String(label[v.Passed])}, spans.Feedback, v.Feedback),
	}
}

// withText adds a text by people or agents, if it may be exported.
func withText(all []attribute.KeyValue, key attribute.Key, text string) []attribute.KeyValue {
	if telemetry.Content() {
		all = append(all, key.String(text))
	}
	return all
}
