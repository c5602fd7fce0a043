package outputs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
)

// ParseInputs checks the values with which a workflow is started by its declaration: names, presence and
// types. It does not check files. A blank value counts as absent. The result has the author's order, with
// defaults for absent values.
func ParseInputs(wf *job.Workflow, given map[string]Value) (Map, error) {
	var in Map
	var missing []string
	declared := map[string]bool{}
	for _, p := range wf.Inputs {
		declared[p.Name] = true
		v, err := inputValue(wf, p, given[p.Name])
		switch {
		case err != nil:
			return nil, err
		case v == nil && p.Required && p.Default == nil:
			missing = append(missing, "\n- "+describeInput(p))
		case v != nil:
			in = append(in, jsontext.Pair[Value]{Key: p.Name, Value: *v})
		}
	}

	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !declared[name] {
			unknown = append(unknown, jsontext.Clip(name, 200))
		}
	}
	switch {
	case unknown != nil:
		return nil, session.Wrong(codes.BadInputs, "Workflow '%s' has no input %s. It takes:%s", wf.Name,
			session.Quoted(unknown), describeInputs(wf)).With("unknown", unknown)
	case missing != nil:
		return nil, session.Wrong(codes.BadInputs, "Workflow '%s' needs inputs that were not given:%s\n", wf.Name,
			strings.Join(missing, "")).
			Ask("say what is not known of them, and pass them as inputs, by name").With("missing", len(missing))
	}

	return in, CheckRoom(in, nil)
}

// inputValue returns a value by its declaration, or nil if it is absent.
func inputValue(wf *job.Workflow, p job.Parameter, v Value) (*Value, error) {
	items := v.Each != nil // an empty list of items is a value, too
	if items {
		v = v.Flat(p.Type)
	}
	if v.Text != nil {
		v = Value{Paths: []string{*v.Text}}
	}
	if !items && strings.TrimSpace(strings.Join(v.Paths, "")) == "" {
		if p.Default == nil || *p.Default == "" {
			return nil, nil
		}
		v = Value{Paths: []string{*p.Default}}
	}
	switch {
	case v.List && (p.Type == job.Text || p.Type == job.File):
		return nil, session.Wrong(codes.BadInputs,
			"Input '%s' of workflow '%s' takes one value, and a list was given. It is: %s", p.Name, wf.Name,
			describeInput(p)).With("input", p.Name)
	case p.Type == job.Text:
		return &Value{Text: &v.Paths[0]}, CheckText("Input '"+p.Name+"'", v.Paths[0])
	}
	v.List = v.List || p.Type == job.Files
	return &v, nil
}

// describeInput describes a parameter in one line.
func describeInput(p job.Parameter) string {
	optional := ""
	if !p.Required || p.Default != nil {
		optional = ", optional"
	}
	return fmt.Sprintf("%s (%s%s): %s", p.Name, p.Type, optional, strings.Join(strings.Fields(p.Description), " "))
}

func describeInputs(wf *job.Workflow) string {
	if len(wf.Inputs) == 0 {
		return " none."
	}

	var b strings.Builder
	for _, p := range wf.Inputs {
		b.WriteString("\n- " + describeInput(p))
	}
	return b.String()
}
