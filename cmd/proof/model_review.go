package main

import "strings"

// The steps whose reviews nobody overrides.
const (
	judgedStep = "s7" // a reviewer's
	personStep = "s8" // a person's
)

// Replies to finished_step that leave the session where it is.
const (
	reviewRuns    = "running" // the call's budget is over, and the review continues
	reviewFailed  = "failed"  // outputs by a reviewer or a person
	personAwaited = "waiting"
)

// decided is the reply to a person whose decision was recorded.
const decided = "recorded"

// The decisions about outputs: a reviewer's is part of the name of the file that it reviews.
const (
	pass = "pass"
	fail = "fail"
)

// judgedPath is the file of outputs that a reviewer will pass or fail.
func judgedPath(token, verdict string) string { return "load_outputs/" + token + "-" + verdict + ".md" }

// rejected reports whether a reviewer will fail outputs.
func rejected(outputs string) bool { return strings.Contains(outputs, "-"+fail+".md") }

// A question is what a person is asked about personStep. The zero value means that nobody is asked.
type question struct{ outputs, answer string }

// review returns the replies to a finished_step that its reviews may hold back, and whether it may
// also go on. A verdict moves nothing until a call collects it, so a call that is told of a running
// review has changed nothing.
func (s state) review(in input, step string) (held []outcome, passes bool) {
	switch {
	case in.Judged && step == judgedStep:
		held = []outcome{{s, reviewRuns}}
		if rejected(in.Outputs) {
			return append(held, outcome{s, reviewFailed}), false
		}
	case s.question(step) != nil:
		q := s.question(step)
		if q.outputs != in.Outputs {
			*q = question{outputs: in.Outputs}
		}
		s.begun[number(step)] = true
		switch q.answer {
		case "":
			return []outcome{{s, personAwaited}}, false
		case fail:
			return []outcome{{s, reviewFailed}}, false
		}
	}
	return held, true
}

// decide applies a person's decision, which is given by another process than a server.
func (s state) decide(in input) []outcome {
	switch q := s.question(in.Step); {
	case s.status != "active":
		return s.refuse("session_ended " + s.status)
	case q == nil || q.outputs == "" || s.isDone(in.Step):
		return s.refuse("person_not_asked")
	case q.answer != "":
		return s.refuse("person_answered")
	default:
		q.answer = in.Text
		return []outcome{{s, decided}}
	}
}
