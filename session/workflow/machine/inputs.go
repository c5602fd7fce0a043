package machine

import (
	"slices"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
)

// A StepInput is one declared input of a step.
type StepInput struct {
	Name        string   `json:"name" jsonschema:"name of the input"`
	Description string   `json:"description" jsonschema:"description of the input"`
	FromStep    string   `json:"from_step,omitempty" jsonschema:"id of the step that made it; absent if it comes from the user"`
	Paths       []string `json:"paths,omitzero" jsonschema:"its files, as submitted; absent if it comes from the user"`
	Omitted     int      `json:"omitted,omitzero" jsonschema:"number of further files, not listed"`
	Machine     string   `json:"machine,omitempty" jsonschema:"other machine that has the files, with the project's folder there; absent if they are here"`
}

// A CompletedStep is a finished step and its outputs.
type CompletedStep struct {
	StepID  string  `json:"step_id" jsonschema:"id of the step"`
	Outputs Outputs `json:"outputs" jsonschema:"files by output, as submitted; the beginning of a text"`
	Omitted int     `json:"omitted,omitzero" jsonschema:"number of further files, not listed"`
	Machine string  `json:"machine,omitempty" jsonschema:"other machine that has the files, with the project's folder there; absent if they are here"`
}

// listedBytes bounds the paths of completed steps that a reply lists, and those of inputs.
const listedBytes = 64 << 10

// A listing is the number of bytes of paths that a reply may still list.
type listing int

// take returns the paths that may be listed, and the number of the others.
func (l *listing) take(paths []string) (listed []string, omitted int) {
	for i, p := range paths {
		if *l -= listing(len(p)); *l < 0 {
			return paths[:i:i], len(paths) - i
		}
	}
	return paths, 0
}

// Inputs returns the declared inputs of a step with the paths that earlier steps submitted for them.
func (s *State) Inputs(def *Definition, st *job.Step) []StepInput {
	return s.inputs(def, st, new(listing(listedBytes)))
}

// inputs is Inputs with a limit of the caller. A nil State is that of no session: no paths.
func (s *State) inputs(def *Definition, st *job.Step, room *listing) []StepInput {
	out := make([]StepInput, len(st.Inputs))
	for i, in := range st.Inputs {
		out[i] = StepInput{Name: in.Name, Description: in.Description}
		if in.FromStep == "" {
			continue
		}
		from := def.Job.Step(in.FromStep).Output(in.File)
		out[i].Name, out[i].FromStep = in.File, in.FromStep
		if from != nil {
			out[i].Description = from.Description
		}
		if s == nil {
			continue
		}
		paths := []string{}
		if p := s.Progress(in.FromStep); p.Done() {
			for _, o := range p.Outputs {
				// An input that names no output, but a file, has all of the step's files.
				if from == nil || o.Key == in.File {
					paths = append(paths, o.Value.Paths...)
				}
			}
			out[i].Machine = s.elsewhere(p)
		}
		out[i].Paths, out[i].Omitted = room.take(paths)
	}
	return out
}

// CompletedSteps returns the finished steps, in the workflow's order, with their files.
func (s *State) CompletedSteps(def *Definition) []CompletedStep {
	room, out := listing(listedBytes), []CompletedStep{}
	for _, id := range slices.Concat(def.Workflow.Entries...) {
		p := s.Progress(id)
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
