package main

import (
	"fmt"
	"slices"
	"strings"
)

// What the model knows of forms: items, conditions, rounds, and workflows that are steps.

const (
	mostItems   = 3
	itemsAtOnce = 2
	calledStep  = "workflow:short"
)

// itemSteps are the steps of items: the last one is passed by a person.
var itemSteps = [...]string{"s1", personStep}

// A form makes an entry of a workflow more than a list of steps; the zero value is none. Lists, conditions and ends of
// rounds read the output said.
type form struct {
	each   bool   // of a list
	when   string // it is so
	rounds int    // at most, until it is "done"
	first  int    // index of the form's first entry
	last   int
}

var forms = map[string]map[int]form{
	"items": {1: {each: true, first: 1, last: 1}},
	"rounds": {
		1: {when: "yes", first: 1, last: 1},
		2: {rounds: 2, first: 2, last: 3},
		3: {rounds: 2, first: 2, last: 3},
	},
}

// formText is the entry of a form in job.yml.
func formText(f form, steps string) string {
	switch {
	case f.each:
		return fmt.Sprintf("{for_each: said, at_once: %d, steps: [%s]}", itemsAtOnce, steps)
	case f.when != "":
		return fmt.Sprintf("{when: {output: said, is: %q}, steps: [%s]}", f.when, steps)
	}
	return fmt.Sprintf("{repeat: {steps: [%s], until: {output: said, is: done}, at_most: %d}}", steps, f.rounds)
}

// ofItem splits the name of an item's step into the step and the item's index, or -1.
func ofItem(name string) (step string, item int) {
	step, rest, found := strings.Cut(name, "[")
	if !found {
		return step, -1
	}
	_, _ = fmt.Sscan(strings.TrimSuffix(rest, "]"), &item) // a name of this model
	return step, item
}

// after reports whether a step of an item comes after another.
func after(step, than string) bool {
	a, i := ofItem(step)
	b, k := ofItem(than)
	return i == k && slices.Index(itemSteps[:], a) > slices.Index(itemSteps[:], b)
}

func (s *state) form(index int) form { return forms[s.workflow][index] }

// said returns the output said of the last finished step of some entries.
func (s *state) said(entries [][]string) (text string) {
	for _, step := range slices.Concat(entries...) {
		if s.isDone(step) {
			_, rest, _ := strings.Cut(s.done[number(step)].outputs, `"said":"`)
			text = strings.ReplaceAll(strings.TrimSuffix(rest, `"}`), `\"`, `"`)
		}
	}
	return text
}

// items returns how many items an entry has.
func (s *state) items(index int) int {
	if !s.form(index).each {
		return 0
	}
	return strings.Count(s.said(s.entries()[:index]), `"`) / 2
}

// members are the steps of an entry, those of items for each.
func (s *state) members(index int) (all []string) {
	if !s.form(index).each {
		return s.entries()[index]
	}
	for i := range s.items(index) {
		for _, step := range s.entries()[index] {
			all = append(all, fmt.Sprintf("%s[%d]", step, i))
		}
	}
	return all
}

// known are the steps of all entries for which something holds.
func (s *state) known(holds func(string) bool) (steps []string) {
	for i := range s.entries() {
		steps = append(steps, s.members(i)...)
	}
	return slices.DeleteFunc(slices.Clone(steps), func(step string) bool { return !holds(step) })
}

// completed are the steps that get_step reports as completed; those of items once, with their number.
func (s *state) completed() (steps []string) {
	for i, entry := range s.entries() {
		for _, step := range entry {
			if !s.form(i).each {
				if s.isDone(step) {
					steps = append(steps, step)
				}
				continue
			}

			done, of := 0, s.items(i)
			for item := range of {
				if s.isDone(fmt.Sprintf("%s[%d]", step, item)) {
					done++
				}
			}
			if done > 0 {
				steps = append(steps, fmt.Sprintf("%s %d of %d", step, done, of))
			}
		}
	}
	return steps
}

// leftOut reports whether an entry's condition does not hold.
func (s *state) leftOut(index int) bool {
	f := s.form(index)
	return f.when != "" && s.said(s.entries()[:f.first]) != f.when
}

func (s *state) ends(f form) bool { return s.said(s.entries()[f.first:f.last+1]) == "done" }

// exhausted reports whether the current entry ends the last allowed round, and the rounds are not done.
func (s *state) exhausted() bool {
	f := s.form(s.index)
	return f.rounds > 0 && s.index == f.last && s.round == f.rounds && !s.ends(f)
}

// next returns the index of the next entry: for another round the form's first one, after withdrawing the round's
// steps.
func (s *state) next() int {
	if f := s.form(s.index); f.rounds > 0 && s.index == f.last && !s.ends(f) && s.round < f.rounds {
		to := s.entries()[f.first][0]
		s.withdraw(to, s.known(func(step string) bool {
			at := s.entryOf(step)
			return f.first <= at && at <= f.last
		}))
		return f.first
	}

	index := s.index + 1
	for index < len(s.entries()) && (s.leftOut(index) || s.form(index).each && s.items(index) == 0) {
		index++
	}

	return index
}

// enter begins an entry, and returns the steps that begin.
func (s *state) enter(index int) string {
	if f := s.form(index); f.rounds > 0 && index == f.first {
		if s.form(s.index) == f && s.index == f.last {
			s.round++
		} else {
			s.round = 1
		}
	}
	s.index, s.byStep = index, false
	if s.form(index).each {
		return s.beginItems()
	}

	for _, step := range s.entry() {
		s.begun[number(step)] = true
	}

	if s.current = s.entry()[0]; s.current == calledStep {
		return strings.Join(workflows["short"][0], ",") // of the workflow
	}
	return strings.Join(s.entry(), ",")
}

// open are the steps that may be finished now: of items, only as many as may be in progress. An item that waits for a
// person holds up no other.
func (s *state) open() (open []string) {
	pending := s.pending()
	if !s.form(s.index).each {
		return pending
	}

	room := itemsAtOnce
	var left [mostItems][]string
	var begun [mostItems]bool
	for _, step := range pending {
		_, i := ofItem(step)
		left[i] = append(left[i], step)
	}
	for i := range left {
		begun[i] = len(left[i]) > 0 && slices.ContainsFunc(itemSteps[:], func(step string) bool {
			return s.begun[number(fmt.Sprintf("%s[%d]", step, i))]
		})
		if q := s.questions[1+i]; begun[i] && (q.outputs == "" || q.answer != "") {
			room--
		}
	}

	for i := range left {
		if len(left[i]) > 0 && (begun[i] || room > 0) {
			open = append(open, left[i][0])
			if !begun[i] {
				room--
			}
		}
	}
	return open
}

// beginItems begins the steps of items whose turn it is, and returns them.
func (s *state) beginItems() string {
	if !s.form(s.index).each {
		return ""
	}

	open := s.open()
	if len(open) > 0 {
		s.current = open[0]
	}
	begun := slices.DeleteFunc(slices.Clone(open), func(step string) bool { return s.begun[number(step)] })
	for _, step := range begun {
		s.begun[number(step)] = true
	}
	return strings.Join(begun, ",")
}

// shown are the steps that get_step describes.
func (s *state) shown() []string {
	if s.form(s.index).each {
		return s.open()
	}
	return s.entry()
}

// question returns what a person is asked about a step, or nil.
func (s *state) question(step string) *question {
	if of, item := ofItem(step); of == personStep {
		return &s.questions[1+item]
	}
	return nil
}

// resume continues, once, after a step's nested workflow, with its outputs.
func (s state) resume(in input) []outcome {
	n := number(calledStep)
	if s.isDone(calledStep) && s.done[n].outputs == in.Outputs {
		return []outcome{{s, s.replies[n].reply}}
	}

	if s.status != "active" || s.current != calledStep {
		return nil
	}
	s.done[n] = finished{outputs: in.Outputs}

	s.settle()
	reply := s.advance(false)
	s.replies[n] = stored{reply: reply, sure: true}
	return []outcome{{s, reply}}
}

// joined joins parts, sorted if some are of items: those are recorded in the order in which they began.
func joined(parts []string, by string) string {
	if slices.ContainsFunc(parts, func(part string) bool {
		name, _, _ := strings.Cut(part, "=")
		return strings.Contains(name, "[")
	}) {
		parts = slices.Sorted(slices.Values(parts))
	}
	return strings.Join(parts, by)
}

func listed(steps []string) string { return joined(steps, ",") }

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

// handIn is the tool of what a finished_step's lost calls may have done before the last one: put outputs before a
// person, in place of others that were decided about, perhaps.
const handIn = "hand in"

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

// review returns the replies to a finished_step that its reviews hold back, and whether it may also pass. A verdict
// moves nothing until a call collects it, so a call that is told of a running review has changed nothing.
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

// decide applies a person's decision, which another process than a server records.
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
