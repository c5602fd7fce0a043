package tool

import (
	"regexp"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/catalog/job"
	"deepwork/session/workflow/machine"
)

// notInArguments matches the characters that models cannot write in names of arguments.
var notInArguments = regexp.MustCompile(`[^a-zA-Z0-9_.-]`)

// InputArguments returns the inputs of a workflow as arguments, in their order. Each has the name of the
// input, with _ for other characters than letters, digits, _, - and dots; if that is taken, with input_
// before it.
func InputArguments(w *job.Workflow, taken ...string) (all []Argument) {
	taken = slices.Clone(taken)
	for _, p := range w.Inputs {
		a := Argument{Name: notInArguments.ReplaceAllString(p.Name, "_"), Description: p.Description, Required: p.Required && p.Default == nil}
		for slices.Contains(taken, a.Name) {
			a.Name = "input_" + a.Name
		}
		taken = append(taken, a.Name)
		if p.Default != nil {
			a.Description += ". Default: " + *p.Default
		}
		a.Schema = &jsonschema.Schema{Description: a.Description}
		if p.Type != job.Files {
			a.Schema.Types, a.Schema.MaxLength = []string{"string"}, new(MaxText)
		}
		if p.Type == job.Files || p.Type == job.FilePath {
			a.Schema.Types = append(a.Schema.Types, "array")
			a.Schema.Items = &jsonschema.Schema{Type: "string", MaxLength: new(MaxText)}
		}
		a.Kind = a.Schema.Types[0]
		switch {
		case !a.Required:
			a.Schema.Types = append([]string{"null"}, a.Schema.Types...)
		case len(a.Schema.Types) == 1:
			a.Schema.Type, a.Schema.Types = a.Kind, nil
		}
		all = append(all, a)
	}
	return all
}

// InputValues returns the values of a workflow's inputs among those of its InputArguments.
func InputValues(w *job.Workflow, arguments []Argument, given map[string]any) map[string]machine.OutputValue {
	values := map[string]machine.OutputValue{}
	for i, a := range arguments {
		switch v := given[a.Name].(type) {
		case string:
			values[w.Inputs[i].Name] = machine.OutputValue{Paths: []string{v}}
		case []any:
			list := machine.OutputValue{List: true}
			for _, entry := range v {
				if text, is := entry.(string); is {
					list.Paths = append(list.Paths, text)
				}
			}
			values[w.Inputs[i].Name] = list
		}
	}
	return values
}
