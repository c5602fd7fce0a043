package page

import (
	"net/http"
	"slices"
	"strings"

	"deepwork/catalog/job"
	"deepwork/session/board"
	"deepwork/session/workflow/machine"
)

// An inputField is the field of a form for an input of a workflow.
type inputField struct {
	job.Parameter
	Value string
}

// What the names of these fields begin with: of a text, and of paths, each in a line of its own.
const (
	textField  = "input."
	pathsField = "paths."
)

// inputFields returns the fields for the inputs of a workflow with the values that are known, or else the
// defaults.
func inputFields(w *job.Workflow, known machine.Outputs) (all []inputField) {
	if w == nil {
		return nil
	}
	for _, p := range w.Inputs {
		f := inputField{Parameter: p}
		if v, is := known.Get(p.Name); is {
			f.Value = strings.Join(v.Paths, "\n")
		} else if p.Default != nil {
			f.Value = *p.Default
		}
		all = append(all, f)
	}
	return all
}

// Field returns the name of the field.
func (f inputField) Field() string {
	if f.Lines() {
		return pathsField + f.Name
	}
	return textField + f.Name
}

// Needed reports whether it must be filled in before the workflow starts.
func (f inputField) Needed() bool { return f.Required && f.Default == nil }

// Lines reports whether each line is a path.
func (f inputField) Lines() bool { return f.Type == job.Files || f.Type == job.FilePath }

// Short reports whether the value is in one line.
func (f inputField) Short() bool { return f.Type == job.File }

// inputsOf returns the values in the fields of a form, except for blank ones. It returns nil if the form has
// fields for no workflow, or for another one than it names.
func inputsOf(r *http.Request) board.Inputs {
	if of := r.PostForm.Get("inputs_of"); of == "" || of != strings.TrimSpace(r.PostForm.Get("workflow")) {
		return nil
	}
	all := board.Inputs{}
	for field, values := range r.PostForm {
		text := strings.ReplaceAll(values[0], "\r\n", "\n")
		if name, is := strings.CutPrefix(field, textField); is && strings.TrimSpace(text) != "" {
			all[name] = machine.OutputValue{Paths: []string{text}}
		}
		if name, is := strings.CutPrefix(field, pathsField); is && strings.TrimSpace(text) != "" {
			paths := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
			for i := range paths {
				paths[i] = strings.TrimSpace(paths[i])
			}
			all[name] = machine.OutputValue{Paths: paths, List: len(paths) > 1}
		}
	}
	return all
}

// workflowNamed returns a workflow that is named as job/workflow, or nil.
func (s *Site) workflowNamed(r *http.Request, name string) *job.Workflow {
	of, flow, _ := strings.Cut(name, "/")
	if j := s.Jobs(r.Context()).Job(of); j != nil {
		return j.Workflow(flow)
	}
	return nil
}
