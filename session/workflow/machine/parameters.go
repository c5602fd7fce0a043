package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
)

// The limits of the texts that a workflow is started with: characters of one, and bytes of all.
const (
	maxInput  = 100_000
	maxInputs = 16 << 20
)

// ParseInputs checks the values that a workflow is started with by its declaration: names, presence and
// types. It does not check files. A blank value counts as absent. The result is in the author's order, with
// the defaults of values that are absent.
func ParseInputs(wf *job.Workflow, given map[string]OutputValue) (Outputs, error) {
	var in Outputs
	var missing []string
	declared, size := map[string]bool{}, 0
	for _, p := range wf.Inputs {
		declared[p.Name] = true
		v, err := inputValue(wf, p, given[p.Name])
		switch {
		case err != nil:
			return nil, err
		case v == nil && p.Required && p.Default == nil:
			missing = append(missing, "\n- "+describeInput(p))
		case v != nil:
			if v.Text != nil {
				size += len(*v.Text)
			}
			in = append(in, jsontext.Pair[OutputValue]{Key: p.Name, Value: *v})
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
		return nil, session.Wrong(codes.BadInputs, "Workflow '%s' has no input %s. It takes: %s", wf.Name, quoteList(unknown), describeInputs(wf)).With("unknown", unknown)
	case missing != nil:
		return nil, session.Wrong(codes.BadInputs, "Workflow '%s' needs inputs that were not given:%s\nAsk the user for what you do not know, and pass them as inputs, by name.", wf.Name, strings.Join(missing, "")).With("missing", len(missing))
	case size > maxInputs:
		return nil, session.Wrong(codes.BadInputs, "The texts of the inputs have %d bytes together, and at most %d are kept. Write some of them to files, and give the paths.", size, maxInputs)
	}
	return in, nil
}

// inputValue returns a value by its declaration, or nil if none was given.
func inputValue(wf *job.Workflow, p job.Parameter, v OutputValue) (*OutputValue, error) {
	if v.Text != nil {
		v = OutputValue{Paths: []string{*v.Text}}
	}
	if strings.TrimSpace(strings.Join(v.Paths, "")) == "" {
		if p.Default == nil || *p.Default == "" {
			return nil, nil
		}
		v = OutputValue{Paths: []string{*p.Default}}
	}
	refuse := func(format string, args ...any) (*OutputValue, error) {
		return nil, session.Wrong(codes.BadInputs, "Input '%s' of workflow '%s' %s. It is: %s", p.Name, wf.Name, fmt.Sprintf(format, args...), describeInput(p)).With("input", p.Name)
	}
	one := p.Type == job.Text || p.Type == job.File
	switch n := utf8.RuneCountInString(v.Paths[0]); {
	case one && v.List:
		return refuse("takes one value, and a list was given")
	case p.Type == job.Text && n > maxInput:
		return refuse("has %d characters, and at most %d are kept: write the text to a file, and give the file's path as the text", n, maxInput)
	case p.Type == job.Text:
		return &OutputValue{Text: &v.Paths[0]}, nil
	}
	v.List = v.List || p.Type == job.Files
	return &v, nil
}

// describeInput returns a parameter in one line.
func describeInput(p job.Parameter) string {
	optional := ""
	if !p.Required || p.Default != nil {
		optional = ", optional"
	}
	return fmt.Sprintf("%s (%s%s): %s", p.Name, p.Type, optional, strings.Join(strings.Fields(p.Description), " "))
}

func describeInputs(wf *job.Workflow) string {
	if len(wf.Inputs) == 0 {
		return "none."
	}
	var b strings.Builder
	for _, p := range wf.Inputs {
		b.WriteString("\n- " + describeInput(p))
	}
	return b.String()
}
