//go:build unix

package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// The model is the state machine of one session, written a second time and as
// short as it can be: what `session/workflow` must look like to its callers. It
// knows no outputs, since all steps here have none, and no reviews.

// workflows are what clients run: entries, of which those with several steps are
// concurrent groups.
var workflows = map[string][][]string{
	"chain":  {{"s0"}, {"s1"}, {"s2"}, {"s3"}, {"s4"}, {"s5"}},
	"groups": {{"s0"}, {"s1", "s2", "s3"}, {"s4"}, {"s5", "s6"}},
	"fork":   {{"s0", "s1", "s2"}, {"s3"}},
	"short":  {{"s0"}},
}

// steps is how many there are at most, s0 and on.
const steps = 7

// An input is a call of a tool.
type input struct {
	Tool     string
	Workflow string // start_workflow
	Step     string // finished_step, "": none is named; go_to_step
	Text     string // abort_workflow: its explanation
	Request  string // request_id, or ""; the calls of one request are one operation
	Session  string // "" of start_workflow
	Parent   string
}

func (in input) String() string {
	what := in.Step + in.Text
	if in.Tool == "start_workflow" {
		what = in.Workflow
	}
	if in.Request != "" {
		what += " as " + in.Request
	}
	return in.Tool + "(" + strings.TrimSpace(what) + ")"
}

// What an operation came to, beside the replies as the model writes them.
const (
	lost      = "(lost)"      // it may have happened or not
	forgotten = "(forgotten)" // it has happened, and what it was answered is not known any more
)

// A state is comparable, as the checker wants it.
type state struct {
	workflow   string // "": not begun
	status     string // active, completed, aborted
	index      int
	done       [steps]bool
	unreported [steps]bool
	byStep     bool          // a member of the current entry was reported by its step_id
	replies    [steps]stored // to the finish of each step
	abort      stored
}

// A stored reply is given again.
type stored struct {
	reply string // "": none
	sure  bool   // it must be kept; older ones may be
	text  string // abort: to which explanation
}

func number(step string) int { return slices.Index(stepNames, step) }

var stepNames = func() (all []string) {
	for i := range steps {
		all = append(all, fmt.Sprintf("s%d", i))
	}
	return all
}()

func (s state) entries() [][]string { return workflows[s.workflow] }

// pending are the members of the current entry that are not done.
func (s state) pending() []string {
	return slices.DeleteFunc(slices.Clone(s.entries()[s.index]), func(step string) bool { return s.done[number(step)] })
}

func (s state) entryOf(step string) int {
	return slices.IndexFunc(s.entries(), func(e []string) bool { return slices.Contains(e, step) })
}

// An outcome is what a call may do and answer.
type outcome struct {
	state state
	reply string
}

func refuse(s state, code string) []outcome { return []outcome{{s, "!" + code}} }

// apply gives the outcomes that a call may have in a state.
func (s state) apply(in input) []outcome {
	if in.Tool == "start_workflow" {
		if s.workflow != "" {
			return nil
		}
		n := state{workflow: in.Workflow, status: "active"}
		return []outcome{{n, "begin " + n.entries()[0][0]}}
	}
	if s.workflow == "" {
		return nil
	}
	switch in.Tool {
	case "finished_step":
		return s.finish(in.Step)
	case "go_to_step":
		return s.goTo(in.Step)
	case "abort_workflow":
		return s.applyAbort(in.Text)
	}
	if s.status != "active" {
		return refuse(s, "session_ended "+s.status)
	}
	return []outcome{{s, s.look()}}
}

// look is what get_step tells.
func (s state) look() string {
	var done []string
	for _, step := range slices.Concat(s.entries()...) {
		if s.done[number(step)] {
			done = append(done, step)
		}
	}
	return "at " + s.entries()[s.index][0] + " done " + strings.Join(done, ",")
}

func (s state) finish(step string) []outcome {
	if step != "" && (s.status != "active" || !slices.Contains(s.pending(), step)) {
		return s.again(step)
	}
	if s.status != "active" {
		return refuse(s, "session_ended "+s.status)
	}
	entry, pending := s.entries()[s.index], s.pending()
	named := step != "" || s.byStep
	if step == "" {
		step = entry[0]
		if s.byStep && !slices.Contains(pending, step) {
			return refuse(s, "step_id_needed")
		}
	}
	s.done[number(step)] = true
	for i := range s.replies {
		s.replies[i].sure = s.replies[i].sure && slices.Contains(entry, stepNames[i])
	}
	var reply string
	rest := s.pending()
	switch {
	case named && len(rest) > 0:
		s.byStep = true
		reply = "pending " + strings.Join(rest, ",")
	default:
		for _, other := range rest {
			s.unreported[number(other)] = true
		}
		if s.index+1 == len(s.entries()) {
			s.status, reply = "completed", "complete"
			s.byStep = s.byStep || named
			break
		}
		s.index++
		s.byStep = false
		reply = "begin " + s.entries()[s.index][0]
	}
	s.replies[number(step)] = stored{reply: reply, sure: true}
	return []outcome{{s, reply}}
}

// again is a finish of a step that is not pending: a repetition, or a mistake.
func (s state) again(step string) (all []outcome) {
	r := s.replies[number(step)]
	if r.reply != "" {
		all = append(all, outcome{s, r.reply})
		if r.sure {
			return all
		}
	}
	if s.status != "active" {
		return append(all, outcome{s, "!session_ended " + s.status})
	}
	code := "step_not_current"
	switch {
	case s.entryOf(step) < 0:
		code = "unknown_step"
	case s.done[number(step)]:
		code = "step_finished"
	case s.unreported[number(step)]:
		code = "group_moved_on"
	}
	return append(all, outcome{s, "!" + code})
}

func (s state) goTo(step string) []outcome {
	to := s.entryOf(step)
	switch {
	case s.status != "active":
		return refuse(s, "session_ended "+s.status)
	case to < 0:
		return refuse(s, "unknown_step")
	case to > s.index:
		return refuse(s, "step_ahead")
	}
	cleared := slices.Concat(s.entries()[to : s.index+1]...)
	for i := range s.replies {
		s.replies[i].sure = false
	}
	for _, gone := range cleared {
		i := number(gone)
		s.done[i], s.unreported[i], s.replies[i] = false, false, stored{}
	}
	s.index, s.byStep = to, false
	return []outcome{{s, "back to " + s.entries()[to][0] + " clears " + strings.Join(cleared, ",")}}
}

func (s state) applyAbort(text string) []outcome {
	if s.status == "aborted" && s.abort.text == text {
		return []outcome{{s, s.abort.reply}}
	}
	if s.status != "active" {
		return refuse(s, "session_ended "+s.status)
	}
	s.status = "aborted"
	s.abort = stored{reply: "aborted " + s.entries()[s.index][0], text: text}
	for i := range s.replies {
		s.replies[i].sure = s.replies[i].sure && slices.Contains(s.entries()[s.index], stepNames[i])
	}
	return []outcome{{s, s.abort.reply}}
}

// model is the state machine as the checker wants it. One session is one history.
var model = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{state{}} },
	Step: func(from, in, out any) (next []any) {
		s := from.(state)
		if out == lost {
			next = append(next, s)
		}
		for _, o := range s.apply(in.(input)) {
			if o.reply == out || out == lost || out == forgotten && o.state != s {
				next = append(next, o.state)
			}
		}
		return next
	},
	Equal:             func(a, b any) bool { return a == b },
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%v -> %v", in, out) },
	DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
}).ToModel()
