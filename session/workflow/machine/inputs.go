package machine

import (
	"fmt"
	"strings"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
)

// A StepInput is one declared input of a step.
type StepInput struct {
	Name        string   `json:"name" jsonschema:"name of the input"`
	Description string   `json:"description" jsonschema:"description of the input"`
	FromStep    string   `json:"from_step,omitempty" jsonschema:"id of the step that made it; absent if it comes from the user"`
	Optional    bool     `json:"optional,omitzero" jsonschema:"true: it may have no value"`
	Value       *string  `json:"value,omitempty" jsonschema:"its text; absent if it is files"`
	Paths       []string `json:"paths,omitzero" jsonschema:"its files, as submitted; absent if it is a text, or comes from the user"`
	NotGiven    bool     `json:"not_given,omitzero" jsonschema:"true: it has no value, since nobody gave one; files from a step are an empty list then"`
	Omitted     int      `json:"omitted,omitzero" jsonschema:"number of further files, or bytes of the text, not listed"`
	Machine     string   `json:"machine,omitempty" jsonschema:"other machine that has the files, with the project's folder there; absent if they are here"`
}

// A CompletedStep is a finished step and its outputs.
type CompletedStep struct {
	StepID  string  `json:"step_id" jsonschema:"id of the step"`
	Items   string  `json:"items,omitempty" jsonschema:"of a step that is done for each item of a list: for how many it is done, such as 412 of 1000; their outputs are in step_inputs and all_outputs"`
	Outputs Outputs `json:"outputs" jsonschema:"files by output, as submitted; the beginning of a text"`
	Omitted int     `json:"omitted,omitzero" jsonschema:"number of further files, not listed"`
	Machine string  `json:"machine,omitempty" jsonschema:"other machine that has the files, with the project's folder there; absent if they are here"`
}

// listedBytes bounds the paths of completed steps that a reply lists, and those of inputs.
const listedBytes = 64 << 10

// A listing is the number of bytes that a reply may still list.
type listing struct{ paths, texts int }

func newListing() *listing { return &listing{listedBytes, maxRepliedTexts} }

// take returns the paths that may be listed, and the number of the others.
func (l *listing) take(paths []string) (listed []string, omitted int) {
	for i, p := range paths {
		if l.paths -= len(p); l.paths < 0 {
			return paths[:i:i], len(paths) - i
		}
	}
	return paths, 0
}

// show sets the value of an input.
func (l *listing) show(in *StepInput, v OutputValue) {
	if v.Text == nil {
		in.Paths, in.Omitted = l.take(append([]string{}, v.Paths...))
		return
	}
	text := strings.ToValidUTF8((*v.Text)[:min(len(*v.Text), l.texts)], "")
	l.texts -= len(text)
	in.Value, in.Omitted = &text, len(*v.Text)-len(text)
}

// StepInputs returns the declared inputs of a step with their values.
func (s *State) StepInputs(def *Definition, st *job.Step) []StepInput {
	return s.stepInputs(def, st, newListing())
}

// stepInputs is StepInputs with a limit of the caller. A nil State is that of no session: no values.
func (s *State) stepInputs(def *Definition, st *job.Step, room *listing) []StepInput {
	out := make([]StepInput, len(st.Inputs))
	for i, in := range st.Inputs {
		out[i] = StepInput{Name: in.Name, Description: in.Description, Optional: in.Optional}
		if in.FromStep != "" {
			s.fromSteps(&out[i], def, st, in, room)
			continue
		}
		p := def.Workflow.Input(in.Name)
		if p == nil { // the workflow does not say what it is
			continue
		}
		out[i].Optional = in.Optional || !p.Required
		if s != nil {
			s.fromStart(&out[i], room)
		}
	}
	return out
}

// fromStart sets the value with which the workflow was started.
func (s *State) fromStart(out *StepInput, room *listing) {
	v, given := s.Inputs.Get(out.Name)
	if out.NotGiven = !given; given {
		room.show(out, v)
	}
}

// fromSteps sets the value that an earlier step made: in.FromStep or, if several of in.From are finished,
// the newest. If none has made it, it may be one with which the workflow was started.
func (s *State) fromSteps(out *StepInput, def *Definition, st *job.Step, in job.Input, room *listing) {
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
		default: // all items, in their order
			v := s.each(def, index, id, in.File).flat()
			room.show(out, v)
			return
		}
		p := s.Progress(id)
		if !p.Done() {
			continue
		}
		v, made := p.Outputs.Get(in.File)
		if from == nil { // an input that names no output, but a file, has all of the step's files
			for _, o := range p.Outputs {
				v.Paths, made = append(v.Paths, o.Value.Paths...), true
			}
		}
		if made {
			out.FromStep = id
			if room.show(out, v); v.Text == nil {
				out.Machine = s.elsewhere(p)
			}
			return
		}
	}
	if s.fromStart(out, room); !out.NotGiven {
		out.FromStep = ""
	} else if from == nil || from.Type != job.Text {
		out.Paths, out.NotGiven = []string{}, false
	}
}

// CompletedSteps returns the finished steps, in the workflow's order, with their files; those of items in short.
func (s *State) CompletedSteps(def *Definition) []CompletedStep {
	room, out, all := newListing(), []CompletedStep{}, s.byID()
	for i, entry := range def.Workflow.Entries {
		for _, id := range entry {
			if forEach(def, i) != nil {
				if done, n := all.done(id, len(s.items(def, i))); done > 0 {
					out = append(out, CompletedStep{StepID: id, Items: fmt.Sprintf("%d of %d", done, n), Outputs: Outputs{}})
				}
				continue
			}
			p := all[id]
			if !p.Done() {
				continue
			}
			c := CompletedStep{StepID: id, Machine: s.elsewhere(p)}
			for _, o := range p.Outputs {
				paths, list := o.Value.Paths, o.Value.List
				if o.Value.Text != nil {
					paths = []string{o.Value.Shown()}
				}
				paths, omitted := room.take(paths)
				if c.Omitted += omitted; len(paths) > 0 || omitted == 0 {
					c.Outputs = append(c.Outputs, jsontext.Pair[OutputValue]{Key: o.Key, Value: OutputValue{Paths: paths, List: list}})
				}
			}
			out = append(out, c)
		}
	}
	return out
}

// Reaches reports whether the outputs of a step were delivered at the place that moved the session last.
func (s *State) Reaches(p *StepProgress) bool {
	return p.Place == nil || s.Place != nil && p.Place.Is(*s.Place)
}

// elsewhere describes where the outputs of a step are; "" means at the place that moved the
// session last.
func (s *State) elsewhere(p *StepProgress) string {
	if s.Reaches(p) || len(p.Outputs) == 0 {
		return ""
	}
	return p.Place.Describe()
}
