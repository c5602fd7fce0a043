package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// The model is the state machine of one session, written a second time and as short as possible:
// how session/workflow must appear to its callers and in its file. A session is one object, whichever
// server answers. What the model knows of reviews is in model_review.go; what the file must say about
// them is checked beside the model.

// mostSteps is the number of steps of a job: s0 and on.
const mostSteps = 9

var stepNames = func() (all []string) {
	for i := range mostSteps {
		all = append(all, fmt.Sprintf("s%d", i))
	}
	return all
}()

// reviewedStep is the step with a review that each call overrides.
const reviewedStep = "s5"

func number(step string) int { return slices.Index(stepNames, step) }

// workflows are the workflows that clients run: entries; those with several steps are concurrent
// groups. Loads run wide, and alternating ones relay and review.
var workflows = map[string][][]string{
	"wide":   {{"s0"}, {"s1", "s2", "s3", "s4"}, {"s5"}},
	"chain":  {{"s0"}, {"s1"}, {"s2"}, {"s3"}, {"s4"}, {"s5"}},
	"groups": {{"s0"}, {"s1", "s2", "s3"}, {"s4"}, {"s5", "s6"}},
	"fork":   {{"s0", "s1", "s2"}, {"s3"}},
	"short":  {{"s0"}},
	"relay":  {{"s0"}, {"s1", "s2", judgedStep}, {personStep}},
	"review": {{"s0"}, {judgedStep}, {personStep}},
}

// An input is a call of a tool.
type input struct {
	Tool     string
	Job      string // start_workflow
	Workflow string // start_workflow
	Goal     string // start_workflow: unique
	Parent   string // start_workflow: a session, or ""
	Session  string // "" of start_workflow
	Step     string // finished_step ("": not named); go_to_step
	All      bool   // go_to_step
	Outputs  string // finished_step, as JSON without blanks
	Text     string // finished_step: its notes; abort_workflow: its explanation
	Request  string // request_id, or ""; the calls of one request are one operation
	Bare     bool   // session or parent are left out: the connection's stack is used
	Judged   bool   // finished_step: reviews are not overridden
}

func (in input) String() string {
	return in.Tool + "(" + strings.Join(strings.Fields(strings.Join([]string{in.Workflow, in.Step, in.Outputs, in.Text, in.Request}, " ")), " ") + ")"
}

func (in input) arguments() map[string]any {
	args := map[string]any{}
	put := func(key, value string) {
		if value != "" {
			args[key] = value
		}
	}
	put("request_id", in.Request)
	if !in.Bare {
		put("session_id", in.Session)
		put("parent_session_id", in.Parent)
	}
	put("step_id", in.Step)
	if in.All {
		args["all"] = true
	}
	switch in.Tool {
	case "start_workflow":
		args["goal"], args["job_name"], args["workflow_name"] = in.Goal, in.Job, in.Workflow
	case "finished_step":
		args["outputs"] = json.RawMessage(in.Outputs)
		put("notes", in.Text)
		if !in.Judged {
			args["quality_review_override_reason"] = "Seen by the simulation"
		}
	case "abort_workflow":
		args["explanation"] = in.Text
	}
	return args
}

// Outcomes of an operation, beside replies in the model's form.
const (
	lostReply = "(lost)"      // it may have happened or not
	forgotten = "(forgotten)" // it has happened, and its reply is no longer known
)

// A state is comparable, as the checker requires.
type state struct {
	workflow   string // "": not started
	status     string // active, completed, aborted
	index      int
	done       [mostSteps]finished
	unreported [mostSteps]bool
	byStep     bool              // a member of the current entry was reported by its step_id
	replies    [mostSteps]stored // to finished_step, by step
	reason     string            // of the abort
	history    string            // what go_to_step cleared
	question   question          // about personStep
}

// finished is how a step was finished; the zero value means not finished.
type finished struct{ outputs, notes string }

// A stored reply is repeated.
type stored struct {
	reply string // "": none
	sure  bool   // it must be kept; older ones need not be
}

func (s *state) entries() [][]string { return workflows[s.workflow] }

func (s *state) entry() []string { return s.entries()[s.index] }

// pending are the members of the current entry that are not done, without those that it went on
// without before go_to_step came back to it.
func (s *state) pending() []string {
	return slices.DeleteFunc(slices.Clone(s.entry()), func(step string) bool { return s.isDone(step) || s.unreported[number(step)] })
}

func (s *state) isDone(step string) bool { return s.done[number(step)].outputs != "" }

func (s *state) entryOf(step string) int {
	return slices.IndexFunc(s.entries(), func(e []string) bool { return slices.Contains(e, step) })
}

// An outcome is a possible effect and reply of a call.
type outcome struct {
	state state
	reply string
}

func (s state) refuse(code string) []outcome { return []outcome{{s, "!" + code}} }

// apply returns the possible outcomes of a call in a state. A read of the file is a call of the
// tool "file".
func (s state) apply(in input) []outcome {
	switch {
	case in.Tool == "start_workflow" && s.workflow == "":
		n := state{workflow: in.Workflow, status: "active"}
		return []outcome{{n, "begin " + strings.Join(n.entry(), ",")}}
	case in.Tool == "start_workflow" || s.workflow == "":
		return nil
	case in.Tool == "file":
		return []outcome{{s, s.file()}}
	case in.Tool == "person":
		return s.decide(in)
	case in.Tool == "finished_step":
		return append(s.late(in), s.finish(in)...)
	case in.Tool == "abort_workflow" && s.status == "aborted" && s.reason == in.Text:
		return []outcome{{s, "aborted " + s.entry()[0] + ": " + in.Text}}
	case s.status != "active":
		return s.refuse("session_ended " + s.status)
	case in.Tool == "go_to_step":
		return s.goTo(in.Step, in.All)
	case in.Tool == "abort_workflow":
		s.status, s.reason = "aborted", in.Text
		s.settle()
		return s.apply(in)
	}
	done := slices.DeleteFunc(slices.Concat(s.entries()...), func(step string) bool { return !s.isDone(step) })
	return []outcome{{s, "at " + strings.Join(s.entry(), ",") + " done " + strings.Join(done, ",")}}
}

// settle notes that replies to steps of earlier entries may be forgotten.
func (s *state) settle() {
	for i := range s.replies {
		s.replies[i].sure = s.replies[i].sure && slices.Contains(s.entry(), stepNames[i])
	}
}

// late returns the reply to a call that names no step, and that came while the reviewed step was current: another
// call has finished that step with the same outputs meanwhile.
func (s state) late(in input) []outcome {
	n := number(reviewedStep)
	if in.Step != "" || s.replies[n].reply == "" || s.done[n].outputs != in.Outputs {
		return nil
	}
	return []outcome{{s, s.replies[n].reply}}
}

func (s state) finish(in input) []outcome {
	step := in.Step
	if step != "" && (s.status != "active" || !slices.Contains(s.pending(), step)) {
		return s.again(step, in.Outputs)
	}
	if s.status != "active" {
		return s.refuse("session_ended " + s.status)
	}
	named := step != "" || s.byStep
	if step == "" {
		step = s.entry()[0]
		if s.byStep && !slices.Contains(s.pending(), step) {
			return s.refuse("step_id_needed")
		}
	}
	held, passes := s.review(in, step)
	if !passes {
		return held
	}
	s.done[number(step)] = finished{in.Outputs, in.Text}
	s.settle()
	var reply string
	rest := s.pending()
	if named && len(rest) > 0 {
		s.byStep = true
		reply = "pending " + strings.Join(rest, ",")
	} else {
		for _, other := range rest {
			s.unreported[number(other)] = true
		}
		if s.index+1 == len(s.entries()) {
			s.status, reply = "completed", "complete "+s.allOutputs()
		} else {
			s.index, s.byStep = s.index+1, false
			reply = "begin " + strings.Join(s.entry(), ",")
		}
	}
	s.replies[number(step)] = stored{reply: reply, sure: true}
	return append(held, outcome{s, reply})
}

// again finishes a step that is not pending: a repetition, or a mistake.
func (s state) again(step, outputs string) (all []outcome) {
	if r := s.replies[number(step)]; r.reply != "" && s.done[number(step)].outputs == outputs {
		all = append(all, outcome{s, r.reply})
		if r.sure {
			return all
		}
	}
	code := "step_not_current"
	switch {
	case s.status != "active":
		code = "session_ended " + s.status
	case s.entryOf(step) < 0:
		code = "unknown_step"
	case s.isDone(step):
		code = "step_finished"
	case s.unreported[number(step)]:
		code = "group_moved_on"
	}
	return append(all, outcome{s, "!" + code})
}

func (s state) goTo(step string, all bool) []outcome {
	to := s.entryOf(step)
	switch {
	case to < 0:
		return s.refuse("unknown_step")
	case to > s.index:
		return s.refuse("step_ahead")
	}
	begun := s.entries()[to]
	if len(begun) > 1 && !all {
		begun = []string{step}
	}
	cleared := slices.Concat(begun, slices.Concat(s.entries()[to+1:max(to, s.index)+1]...))
	s.history += fmt.Sprintf("; from %s to %s: %s", s.entry()[0], step, s.progress(cleared))
	for i := range s.replies {
		s.replies[i].sure = false
	}
	for _, gone := range cleared {
		i := number(gone)
		s.done[i], s.unreported[i], s.replies[i] = finished{}, false, stored{}
		if gone == personStep {
			s.question = question{}
		}
	}
	s.byStep = len(begun) < len(s.entries()[to]) && (s.byStep || to != s.index)
	s.index = to
	return []outcome{{s, "back to " + strings.Join(begun, ",") + " clears " + strings.Join(cleared, ",")}}
}

// allOutputs merges the outputs of all steps in their order; later ones win.
func (s *state) allOutputs() string {
	var all outputs
	for _, step := range slices.Concat(s.entries()...) {
		var o outputs
		if s.isDone(step) && json.Unmarshal([]byte(s.done[number(step)].outputs), &o) == nil {
			all.Report = o.Report
			if o.Papers != nil {
				all.Papers = o.Papers
			}
		}
	}
	return all.String()
}

// outputs returns the outputs of each step, in the order of the job.
type outputs struct {
	Report string   `json:"report"`
	Papers []string `json:"papers,omitempty"`
}

func (o outputs) String() string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // a struct of texts
	}
	return string(text)
}

// file returns the contents of the session's file, in the form of record.state.
func (s *state) file() string {
	return fmt.Sprintf("%s at %s: %s; %q%s", s.status, s.entry()[0], s.progress(slices.Concat(s.entries()[:s.index+1]...)), s.reason, s.history)
}

func (s *state) progress(steps []string) string {
	var all []string
	for _, step := range steps {
		i := number(step)
		all = append(all, progressOf(step, s.isDone(step), s.unreported[i], s.done[i]))
	}
	return strings.Join(all, " ")
}

func progressOf(step string, done, unreported bool, f finished) string {
	switch {
	case done:
		return fmt.Sprintf("%s=%s %q", step, f.outputs, f.notes)
	case unreported:
		return step + "=unreported"
	}
	return step + "=open"
}

// sessionModel is the state machine for the checker. One session is one history.
var sessionModel = checked(state{}, func(s state, in input, out string) (next []state) {
	for _, o := range s.apply(in) {
		if o.reply == out || out == lostReply || out == forgotten && o.state != s {
			next = append(next, o.state)
		}
	}
	return next
})

// checked makes a model of the states that may follow: those of a call with this outcome. A lost
// call may also have had no effect.
func checked[S comparable, I any](begin S, follow func(s S, in I, out string) []S) porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{begin} },
		Step: func(from, in, out any) (next []any) {
			if out == lostReply {
				next = append(next, from)
			}
			for _, s := range follow(from.(S), in.(I), out.(string)) {
				next = append(next, s)
			}
			return next
		},
		Equal: func(a, b any) bool { return a == b },
	}).ToModel()
}
