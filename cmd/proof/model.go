package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"deepwork/catalog/jsontext"
)

// The model is the state machine of one session, written a second time and as short as possible: how session/workflow
// must appear to its callers and in its file. A session is one object, whichever server answers. model_forms.go models
// forms and reviews; what the file must say about them is checked outside of the model.

// mostSteps is the number of names of steps: s0 and on, which a job has, those of items, and a workflow's.
const (
	jobSteps  = 9
	mostSteps = jobSteps + len(itemSteps)*mostItems + 1
)

var stepNames, allNames = func() (job, all []string) {
	for i := range jobSteps {
		job = append(job, fmt.Sprintf("s%d", i))
	}
	all = slices.Clone(job)
	for _, step := range itemSteps {
		for i := range mostItems {
			all = append(all, fmt.Sprintf("%s[%d]", step, i))
		}
	}
	return job, append(all, calledStep)
}()

// reviewedStep is the step with a review that each call overrides.
const reviewedStep = "s5"

func number(step string) int { return slices.Index(allNames, step) }

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
	"items":  {{"s0"}, itemSteps[:], {"s2"}},
	"rounds": {{"s0"}, {"s1"}, {"s2"}, {"s3"}, {"s4"}},
	"calls":  {{"s0"}, {calledStep}, {"s1"}},
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
	return in.Tool + "(" + strings.Join(
		strings.Fields(strings.Join([]string{in.Workflow, in.Step, in.Outputs, in.Text, in.Request}, " ")), " ") + ")"
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
		args["goal"] = in.Goal
		args["job_name"] = in.Job
		args["workflow_name"] = in.Workflow
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
	current    string          // the step that the file names
	begun      [mostSteps]bool // what has a record
	round      int             // of a form that is repeated
	done       [mostSteps]finished
	unreported [mostSteps]bool
	byStep     bool                    // a member of the current entry was reported by its step_id
	replies    [mostSteps]stored       // to finished_step, by step
	reason     string                  // of the abort
	history    string                  // what go_to_step cleared
	questions  [1 + mostItems]question // about personStep, and about that of each item
}

// finished is how a step was finished; the zero value means not finished.
type finished struct{ outputs, notes string }

// A stored reply is repeated.
type stored struct {
	reply string // "": none
	sure  bool   // it must be kept; older ones need not be
}

func (s *state) entries() [][]string { return workflows[s.workflow] }

func (s *state) entry() []string { return s.members(s.index) }

// pending are the members of the current entry that are not done, except those that were left undone before go_to_step
// came back to it.
func (s *state) pending() []string {
	return slices.DeleteFunc(slices.Clone(s.entry()), func(step string) bool {
		return s.isDone(step) || s.unreported[number(step)]
	})
}

func (s *state) isDone(step string) bool { return s.done[number(step)].outputs != "" }

func (s *state) entryOf(step string) int {
	step, _ = ofItem(step)
	return slices.IndexFunc(s.entries(), func(e []string) bool { return slices.Contains(e, step) })
}

// An outcome is a possible effect and reply of a call.
type outcome struct {
	state state
	reply string
}

func (s state) refuse(code string) []outcome { return []outcome{{s, "!" + code}} }

// apply returns the possible outcomes of a call in a state. Reading the file counts as the tool "file", and importing
// its export, which asks people again, as the tool "import".
func (s state) apply(in input) []outcome {
	switch {
	case in.Tool == "start_workflow" && s.workflow == "":
		n := state{workflow: in.Workflow, status: "active"}
		return []outcome{{n, "begin " + n.enter(0)}}
	case in.Tool == "start_workflow" || s.workflow == "":
		return nil
	case in.Tool == "file":
		return []outcome{{s, s.file()}}
	case in.Tool == "import":
		clear(s.questions[:])
		return []outcome{{s, "imported"}}
	case in.Tool == "person":
		return s.decide(in)
	case in.Tool == "child":
		return s.resume(in)
	case in.Tool == handIn:
		return slices.DeleteFunc(s.finish(in), func(o outcome) bool { return o.reply != personAwaited })
	case in.Tool == "finished_step":
		return append(s.late(in), s.finish(in)...)
	case in.Tool == "abort_workflow" && s.status == "aborted" && s.reason == in.Text:
		return []outcome{{s, "aborted " + s.current + ": " + in.Text}}
	case s.status != "active":
		return s.refuse("session_ended " + s.status)
	case in.Tool == "go_to_step":
		return s.goTo(in.Step, in.All)
	case in.Tool == "abort_workflow":
		s.status, s.reason = "aborted", in.Text
		s.settle()
		return s.apply(in)
	}

	if s.form(s.index).each { // items whose turn it is begin, since another one waits for a person
		for _, step := range s.open() {
			s.begun[number(step)] = true
		}
	}
	return []outcome{{s, "at " + strings.Join(s.shown(), ",") + " done " + listed(s.completed())}}
}

// settle notes that replies to steps of earlier entries may be forgotten.
func (s *state) settle() {
	for i := range s.replies {
		s.replies[i].sure = s.replies[i].sure && slices.Contains(s.entry(), allNames[i])
	}
}

// late returns the reply to a call that names no step and came while the reviewed step was current, which another call
// has since finished with the same outputs.
func (s state) late(in input) []outcome {
	n := number(reviewedStep)
	if in.Step != "" || s.replies[n].reply == "" || s.done[n].outputs != in.Outputs {
		return nil
	}
	return []outcome{{s, s.replies[n].reply}}
}

func (s state) finish(in input) []outcome {
	step, each := in.Step, s.form(s.index).each
	if step != "" && (s.status != "active" || !slices.Contains(s.open(), step)) {
		return s.finishAgain(step, in.Outputs)
	}
	if s.status != "active" {
		return s.refuse("session_ended " + s.status)
	}
	named := step != "" || s.byStep || each
	if step == "" {
		step = s.current
		if each {
			step = s.open()[0]
		}
		if each && len(s.open()) > 1 || s.byStep && !slices.Contains(s.pending(), step) {
			return s.refuse("step_id_needed")
		}
	}
	if step == calledStep {
		return s.refuse("step_is_workflow")
	}
	if each && !s.begun[number(step)] {
		return s.refuse("step_not_current") // get_step begins it
	}

	held, passes := s.review(in, step)
	if !passes {
		return held
	}

	n := s
	n.done[number(step)], n.begun[number(step)] = finished{in.Outputs, in.Text}, true
	if n.exhausted() {
		return append(held, outcome{s, personAwaited}) // who never answers
	}

	n.settle()
	reply := n.advance(named)
	n.replies[number(step)] = stored{reply: reply, sure: true}
	return append(held, outcome{n, reply})
}

// advance goes on after a step is done, and returns the reply.
func (s *state) advance(named bool) string {
	rest := s.pending()
	if named && len(rest) > 0 {
		s.byStep = true
		if begun := s.beginItems(); begun != "" {
			return "begin " + begun
		}
		return "pending " + strings.Join(rest, ",")
	}
	for _, other := range rest {
		s.unreported[number(other)] = true
	}

	next := s.next()
	if next == len(s.entries()) {
		s.status = "completed"
		return "complete " + s.allOutputs()
	}
	return "begin " + s.enter(next)
}

// finishAgain finishes a step that is not pending, by repetition or by mistake.
func (s state) finishAgain(step, outputs string) (all []outcome) {
	if r := s.replies[number(step)]; r.reply != "" && s.done[number(step)].outputs == outputs {
		all = append(all, outcome{s, r.reply})
		if r.sure {
			return all
		}
	}

	code, at := "step_not_current", s.entryOf(step)
	switch {
	case s.status != "active":
		code = "session_ended " + s.status
	case at < 0, at <= s.index && len(s.members(at)) > 0 && !slices.Contains(s.members(at), step):
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
	_, item := ofItem(step)
	switch {
	case to < 0 || item >= 0 && !s.form(to).each:
		return s.refuse("unknown_step")
	case s.leftOut(to):
		return s.refuse("step_not_current")
	case item >= s.items(to):
		return s.refuse("unknown_step")
	case s.form(to).each && s.items(to) == 0:
		return s.refuse("step_not_current")
	case to > s.index, item >= 0 && !s.begun[number(step)]:
		return s.refuse("step_ahead")
	}
	one := !all && (item >= 0 || !s.form(to).each && len(s.entries()[to]) > 1) // begins the step alone
	cleared := s.known(func(of string) bool {
		at := s.entryOf(of)
		return s.begun[number(of)] && (at > to || at == to && (!one || of == step || item >= 0 && after(of, step)))
	})
	was, stays := s, s.form(to).rounds > 0 && s.form(to).first == to && s.form(s.index) == s.form(to)
	s.withdraw(step, cleared)

	for i := range s.replies {
		s.replies[i].sure = false
	}
	if !one {
		begun := s.enter(to)
		if stays {
			s.round = was.round
		}
		return []outcome{{s, "back to " + begun + " clears " + listed(cleared)}}
	}
	s.byStep = was.byStep || to != was.index
	s.index, s.begun[number(step)] = to, true
	s.current = step
	if item < 0 {
		s.current = s.entries()[to][0]
	}
	return []outcome{{s, "back to " + step + " clears " + listed(cleared)}}
}

// withdraw moves the records of steps to the history.
func (s *state) withdraw(to string, cleared []string) {
	s.history += fmt.Sprintf("; from %s to %s: %s", s.current, to, s.progress(cleared))
	for _, gone := range cleared {
		i := number(gone)
		s.done[i] = finished{}
		s.unreported[i] = false
		s.replies[i] = stored{}
		s.begun[i] = false
		if q := s.question(gone); q != nil {
			*q = question{}
		}
	}
}

// allOutputs merges the outputs of all steps in their order; later ones win. Those of items are lists.
func (s *state) allOutputs() string {
	values, names := map[string]string{}, []string{}
	put := func(name, value string) {
		if values[name] == "" {
			names = append(names, name)
		}
		values[name] = value
	}

	of := func(step string) (o outputs) {
		_ = json.Unmarshal([]byte(s.done[number(step)].outputs), &o) // none of one that is not done
		return o
	}
	for i, entry := range s.entries() {
		for _, step := range entry {
			if !s.form(i).each {
				for name, value := range of(step).each {
					put(name, value)
				}
				continue
			}

			var all [3][]string // the values of each output
			for k := range s.items(i) {
				item := of(fmt.Sprintf("%s[%d]", step, k))
				for at, name := range outputNames {
					value := "null"
					for is, has := range item.each {
						if is == name {
							value = has
						}
					}
					all[at] = append(all[at], value)
				}
			}
			for at, name := range outputNames {
				if len(all[at]) > 0 {
					put(name, "["+strings.Join(all[at], ",")+"]")
				}
			}
		}
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%q:%s", name, values[name])
	}

	return "{" + strings.Join(names, ",") + "}"
}

// outputs returns the outputs of each step, in the order of the job.
type outputs struct {
	Report string   `json:"report"`
	Papers []string `json:"papers,omitempty"`
	Said   string   `json:"said,omitempty"` // what forms are about
}

var outputNames = [...]string{"report", "papers", "said"}

func (o outputs) String() string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // a struct of texts
	}
	return string(text)
}

// each yields the outputs with their values as JSON.
func (o outputs) each(yield func(name, value string) bool) {
	for m := range jsontext.Members([]byte(o.String())) {
		if string(m.Value) != `""` && !yield(m.Name, string(m.Value)) {
			return
		}
	}
}

// file returns the contents of the session's file, in the form of record.state.
func (s *state) file() string {
	return fmt.Sprintf("%s at %s: %s; %q%s", s.status, s.current,
		s.progress(s.known(func(step string) bool { return s.begun[number(step)] })), s.reason, s.history)
}

func (s *state) progress(steps []string) string {
	var all []string
	for _, step := range steps {
		i := number(step)
		round := 0
		if f := s.form(s.entryOf(step)); f.rounds > 0 && s.entryOf(step) == f.first {
			round = s.round
		}
		all = append(all, progressOf(step, round, s.isDone(step), s.unreported[i], s.done[i]))
	}
	return joined(all, " ")
}

func progressOf(step string, round int, done, unreported bool, f finished) string {
	if round > 1 {
		step += fmt.Sprint("#", round)
	}
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
