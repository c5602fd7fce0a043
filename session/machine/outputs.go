package machine

import (
	"fmt"
	"strings"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session/outputs"
	"deepwork/session/replies"
)

// listedBytes limits the paths of completed steps, and those of inputs, that a reply lists.
const listedBytes = 64 << 10

// A listing holds the number of bytes that a reply may still list.
type listing struct{ paths, texts int }

func newListing() *listing { return &listing{listedBytes, outputs.MaxReplied} }

// take returns the paths that may be listed, and how many may not.
func (l *listing) take(paths []string) (listed []string, omitted int) {
	for i, p := range paths {
		if l.paths -= len(p); l.paths < 0 {
			return paths[:i:i], len(paths) - i
		}
	}
	return paths, 0
}

// show sets the value of an input.
func (l *listing) show(in *replies.StepInput, v outputs.Value) {
	if v.Text == nil {
		in.Paths, in.Omitted = l.take(append([]string{}, v.Paths...))
		return
	}
	text := strings.ToValidUTF8((*v.Text)[:min(len(*v.Text), l.texts)], "")
	l.texts -= len(text)
	in.Value, in.Omitted = &text, len(*v.Text)-len(text)
}

// StepInputs returns the declared inputs of a step with their values; those of the first step include the inputs of
// the workflow that no step takes.
func (s *State) StepInputs(def *Definition, st *job.Step) []replies.StepInput {
	return s.stepInputs(def, st, newListing())
}

// stepInputs is StepInputs with the caller's limit. A nil State means no session, and so no values.
func (s *State) stepInputs(def *Definition, st *job.Step, room *listing) []replies.StepInput {
	out := make([]replies.StepInput, len(st.Inputs))
	for i, in := range st.Inputs {
		out[i] = replies.StepInput{Name: in.Name, Description: in.Description, Optional: in.Optional}
		if in.FromStep != "" {
			s.fromSteps(&out[i], def, st, in, room)
			continue
		}
		p := def.Workflow.Input(in.Name)
		if p == nil { // the workflow does not declare its type
			continue
		}
		out[i].Optional = in.Optional || !p.Required
		if s != nil {
			s.fromStart(&out[i], room)
		}
	}
	return append(out, s.untaken(def, st, room)...)
}

// fromStart sets the value that was passed when the workflow was started.
func (s *State) fromStart(out *replies.StepInput, room *listing) {
	v, given := s.Inputs.Get(out.Name)
	out.NotGiven = !given
	if given {
		room.show(out, v)
	}
}

// fromSteps sets the value made by an earlier step: in.FromStep or, if several of in.From are finished, the
// newest. If no step has made it, a value passed at the start counts.
func (s *State) fromSteps(out *replies.StepInput, def *Definition, st *job.Step, in job.Input, room *listing) {
	from := def.Job.Step(in.FromStep).Output(in.File)
	out.Name, out.FromStep = in.File, in.FromStep
	if from != nil {
		out.Description = from.Description
	}

	if s == nil {
		return
	}

	makers := in.From
	if makers == nil {
		makers = []string{in.FromStep}
	}

	_, item, ofItem := job.SplitItem(st.ID)
	for _, id := range makers {
		switch index := def.Workflow.Find(id); {
		case index < 0 || forEach(def, index) == nil:
		case ofItem && index == def.Workflow.Find(st.ID):
			id = job.Item(id, item)
		default: // all items in order
			v, as := outputs.Value{Each: []*outputs.Value{}}, job.Files
			for _, o := range def.Job.Step(id).Outputs {
				if o.Name == in.File || from == nil && o.Type != job.Text {
					v.Each, as = append(v.Each, s.each(def, index, id, o.Name).Each...), o.Type
				}
			}
			room.show(out, v.Flat(as))
			return
		}
		p := s.Progress(id)
		if !p.Done() {
			continue
		}
		v, made := p.Outputs.Get(in.File)
		if from == nil { // an input that names a file instead of an output gets all files of the step
			for _, o := range p.Outputs {
				v.Paths, made = append(v.Paths, o.Value.Paths...), true
			}
		}
		if made {
			out.FromStep = id
			room.show(out, v)
			if v.Text == nil {
				out.Machine = s.outputsPlace(p)
			}
			return
		}
	}
	s.fromStart(out, room)
	if !out.NotGiven {
		out.FromStep = ""
	} else if from == nil || from.Type != job.Text {
		out.Paths, out.NotGiven = []string{}, false
	}
}

// CompletedSteps returns the finished steps with their files, in the workflow's order; steps of items are
// shortened.
func (s *State) CompletedSteps(def *Definition) []replies.CompletedStep {
	room := newListing()
	out := []replies.CompletedStep{}
	all := s.byID()
	for i, entry := range def.Workflow.Entries {
		for _, id := range entry {
			if forEach(def, i) != nil {
				if done, n := all.done(id, len(s.Items(def, i))); done > 0 {
					out = append(out, replies.CompletedStep{
						StepID:  id,
						Items:   fmt.Sprintf("%d of %d", done, n),
						Outputs: outputs.Map{},
					})
				}
				continue
			}
			p := all[id]
			if !p.Done() {
				continue
			}
			c := replies.CompletedStep{StepID: id, Machine: s.outputsPlace(p)}
			for _, o := range p.Outputs {
				paths, list := o.Value.Paths, o.Value.List
				if o.Value.Text != nil {
					paths = []string{o.Value.Shown()}
				}
				paths, omitted := room.take(paths)
				c.Omitted += omitted
				if len(paths) > 0 || omitted == 0 {
					c.Outputs = append(c.Outputs,
						jsontext.Pair[outputs.Value]{Key: o.Key, Value: outputs.Value{Paths: paths, List: list}})
				}
			}

			out = append(out, c)
		}
	}
	return out
}

// Reaches reports whether a step's outputs were delivered at the place that last moved the session.
func (s *State) Reaches(p *StepProgress) bool {
	return p.Place == nil || s.Place != nil && p.Place.Is(*s.Place)
}

// outputsPlace describes where a step's outputs are; "" means at the place that last moved the session.
func (s *State) outputsPlace(p *StepProgress) string {
	if s.Reaches(p) || len(p.Outputs) == 0 {
		return ""
	}
	return p.Place.Describe()
}

// untaken returns the inputs of the workflow that no step takes, if a step is the first that is done.
func (s *State) untaken(def *Definition, st *job.Step, room *listing) (all []replies.StepInput) {
	if def.Workflow == nil {
		return nil
	}
	first := 0
	if s != nil {
		first = s.skip(def, 0)
	}
	if first >= len(def.Workflow.Entries) || def.Workflow.Entries[first][0] != st.ID {
		return nil
	}

	for _, p := range def.Job.Untaken(def.Workflow) {
		in := replies.StepInput{Name: p.Name, Description: p.Description, Optional: !p.Required}
		if s != nil {
			s.fromStart(&in, room)
		}
		all = append(all, in)
	}
	return all
}
