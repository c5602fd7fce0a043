package tool

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/actor/xslices"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/schema"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/outputs"
)

// The limits of arguments. A character is a Unicode code point.
const (
	MaxText          = 100_000 // goal, explanation, notes and reasons
	MaxName          = 200     // names and ids
	MaxArgumentBytes = 1 << 20 // any other value, as JSON
	maxArgumentDepth = 10
	maxWhole         = 1 << 53 // up to here every whole number is exact in JSON
)

// outputsArgument is the argument whose values the engine checks exactly as given.
const outputsArgument = "outputs"

// arguments checks and decodes the arguments of a tool.
type arguments struct {
	tool  string
	input *jsonschema.Schema
	check *schema.Schema // without what the engines check with better hints
	known map[string]*jsonschema.Schema
	loose map[string]*jsonschema.Schema // those whose values are corrected (see loosened)
	free  []string
}

// newArguments returns the arguments of a tool, which are those of a struct and some more.
func newArguments(tool string, of reflect.Type, more ...Argument) *arguments {
	all := append(Arguments(of), more...)
	a := &arguments{
		tool:  tool,
		input: inputSchema(all),
		known: map[string]*jsonschema.Schema{},
		loose: map[string]*jsonschema.Schema{},
	}
	for _, arg := range all {
		if arg.Name != outputsArgument {
			a.loose[arg.Name] = arg.Schema
		}
		a.known[arg.Name] = arg.Schema.CloneSchemas()
		if arg.Free {
			a.known[arg.Name] = &jsonschema.Schema{Description: arg.Description}
			a.free = append(a.free, arg.Name)
		}
	}
	checked := *a.input
	checked.Properties = a.known
	typesAndLengths(&checked)

	var err error
	if a.check, err = schema.Compile(MustJSON(&checked)); err != nil {
		panic(fmt.Sprintf("transport: the input schema of %s: %v", tool, err))
	}
	return a
}

// typesAndLengths removes the ranges of numbers and the values of texts from a schema, and lets it accept a list for an
// object with any members (outputs as in seed 001).
func typesAndLengths(s *jsonschema.Schema) {
	for name, p := range s.Properties {
		p.Enum = nil
		p.Minimum = nil
		p.Maximum = nil
		p.MinItems = nil
		// null is removed before
		p.Types = slices.DeleteFunc(slices.Clone(p.Types), func(t string) bool { return t == "null" })
		if p.Type == "integer" || slices.Contains(p.Types, "integer") {
			p.Minimum, p.Maximum = new(-float64(maxWhole)), new(float64(maxWhole))
		}
		if p.Type == "object" && p.Properties == nil {
			p.Type, p.Types = "", []string{"object", "array"}
			if name == outputsArgument { // the engine names the outputs that the step declares
				p.Types = append(p.Types, "string")
			}
		}
		if p.Items != nil {
			typesAndLengths(p.Items)
		}
	}
}

// decode fills args, a pointer to a struct, from the arguments of a call. If they do not fit the
// schema, it returns a ToolError that names every error; null for an optional argument means
// absent.
func (a *arguments) decode(raw json.RawMessage, args any) (map[string]any, *session.Error) {
	if jsontext.IsNull(raw) {
		raw = json.RawMessage("{}")
	}
	raw = jsontext.Unquote(raw)
	var corrected jsontext.OrderedMap[json.RawMessage]
	given, tooLarge, err := a.members(raw, &corrected)
	if err == nil && len(tooLarge) == 0 {
		err = a.check.Validate(given)
	}
	if wrong, ok := errors.AsType[*schema.Error](err); ok || len(tooLarge) > 0 {
		return nil, a.refuse(tooLarge, wrong)
	}
	if err == nil && corrected != nil {
		raw, err = jsontext.Encode(corrected)
	}
	if err == nil {
		err = json.Unmarshal(raw, args)
	}
	if err != nil {
		return nil, session.Wrong(codes.InvalidArguments, "The arguments of %s are not valid: %v. %s", a.tool, err,
			a.usage())
	}

	return given, nil
}

// members decodes the arguments that are not null. A duplicate name is an error, since either may be meant. If a value
// was corrected, corrected has all arguments.
func (a *arguments) members(
	raw json.RawMessage, corrected *jsontext.OrderedMap[json.RawMessage],
) (given map[string]any, tooLarge []fault, err error) {
	if kind := jsontext.Kind(raw); kind != "object" {
		return nil, nil, fmt.Errorf("they are %s, not an object", jsontext.WithArticle(kind))
	}

	seen := map[string]bool{}
	given = map[string]any{}
	var all jsontext.OrderedMap[json.RawMessage]
	changed := false
	for m, err := range jsontext.Members(raw) {
		if err != nil {
			return nil, nil, err
		}

		if seen[m.Name] {
			return nil, nil, fmt.Errorf("%q is given twice", jsontext.Clip(m.Name, MaxName))
		}
		seen[m.Name] = true
		if len(seen) > 1000 {
			return nil, nil, errors.New("there are more than 1000 of them")
		}
		if m.Name == outputsArgument {
			m.Value = jsontext.Unquote(m.Value)
		}
		value := loosened(a.loose[m.Name], m.Value)
		all = append(all, jsontext.Pair[json.RawMessage]{Key: m.Name, Value: value})
		if !bytes.Equal(value, m.Value) {
			m.Value, changed = value, true
		}
		if kind := jsontext.Kind(m.Value); kind != "null" && !slices.Contains(a.free, m.Name) {
			if kind != "string" && len(m.Value) > MaxArgumentBytes {
				tooLarge = append(tooLarge, large(m.Name,
					fmt.Sprintf("is %d bytes of JSON; at most %d bytes are allowed", len(m.Value), MaxArgumentBytes)))
				continue
			}
			if d := jsontext.Depth(m.Value); d > maxArgumentDepth {
				tooLarge = append(tooLarge, large(m.Name,
					fmt.Sprintf("is nested %d levels deep; at most %d are allowed", d, maxArgumentDepth)))
				continue
			}
		} else if kind == "null" && a.known[m.Name] != nil {
			continue
		}

		var decoded any
		if json.Unmarshal(m.Value, &decoded) != nil { // it is JSON
			return nil, nil, fmt.Errorf("%q has a number that is too large", jsontext.Clip(m.Name, MaxName))
		}
		given[m.Name] = decoded
	}
	if changed {
		*corrected = all
	}
	return given, tooLarge, nil
}

// replaced names the replacements of arguments that agents know from other programs.
var replaced = map[string]string{"agent_id": ": leave it out. A subagent passes the session_id of the session on " +
	"which it works."}

// loosened corrects a value for a schema where it can only mean one thing: a whole number written as 5.0, and a number,
// boolean, list or object written as a text. It returns other values unchanged, and with a nil schema all.
func loosened(s *jsonschema.Schema, value json.RawMessage) json.RawMessage {
	takes := func(kind string) bool { return s.Type == kind || slices.Contains(s.Types, kind) }
	if s == nil {
		return value
	}
	switch kind := jsontext.Kind(value); {
	case kind == "number" && takes("integer"):
		f, err := strconv.ParseFloat(string(value), 64)
		if err == nil && f == math.Trunc(f) && math.Abs(f) <= maxWhole {
			return strconv.AppendInt(nil, int64(f), 10)
		}
	case kind == "string" && !takes("string"):
		var text string
		if json.Unmarshal(value, &text) != nil || !json.Valid([]byte(text)) {
			return value
		}
		inner := json.RawMessage(strings.TrimSpace(text))
		if kind := jsontext.Kind(inner); takes(kind) && kind != "null" || kind == "number" && takes("integer") {
			return loosened(s, inner)
		}
	case kind == "array" && s.Items != nil:
		var items []json.RawMessage
		if json.Unmarshal(value, &items) != nil {
			return value
		}
		for i, item := range items {
			items[i] = loosened(s.Items, item)
		}

		if data, err := jsontext.Encode(items); err == nil {
			return data
		}
	case kind == "object" && s.Properties != nil:
		var members jsontext.OrderedMap[json.RawMessage]
		if json.Unmarshal(value, &members) != nil {
			return value
		}
		for i, m := range members {
			members[i].Value = loosened(s.Properties[m.Key], m.Value)
		}

		if data, err := jsontext.Encode(members); err == nil {
			return data
		}
	}

	return value
}

type fault struct{ code, argument, text string }

func large(name, is string) fault {
	return fault{codes.ArgumentTooLarge, name,
		fmt.Sprintf("Argument %q %s. Shorten it, or put the content in a file and give its path.", name, is)}
}

// refuse returns the error for a call: first unknown arguments, then wrong ones, then missing ones.
func (a *arguments) refuse(faults []fault, wrong *schema.Error) *session.Error {
	var unknown, missing []fault
	wrong = cmp.Or(wrong, &schema.Error{})
	for _, v := range wrong.Violations {
		switch {
		case v.Path == "" && v.Keyword == "required":
			for _, name := range v.Names {
				missing = append(missing, fault{codes.MissingArgument, name,
					fmt.Sprintf("Missing required argument %q: %s", name, a.known[name].Description)})
			}
		case v.Path == "" && v.Keyword == "additionalProperties":
			for _, name := range v.Names {
				hint := replaced[name]
				if near := jsontext.Nearest(name, a.input.PropertyOrder); hint == "" && near != "" {
					hint = ": did you mean " + near + "?"
				}
				unknown = append(unknown, fault{codes.UnknownArgument, name,
					fmt.Sprintf("Unknown argument %q%s", jsontext.Clip(name, MaxName), cmp.Or(hint, "."))})
			}
		case v.Keyword == "maxLength" || v.Keyword == "maxItems":
			faults = append(faults, large(v.Path, "is too long ("+v.Text+")"))
		default:
			code := map[string]string{
				"required":             codes.MissingArgument,
				"additionalProperties": codes.UnknownArgument,
			}[v.Keyword]
			code = cmp.Or(code, codes.InvalidArgument)
			faults = append(faults, fault{code, v.Path,
				fmt.Sprintf("Argument %q: %s: %s", v.Path, v.Text, a.known[v.Member].Description)})
		}
	}
	faults = slices.Concat(unknown, faults, missing)

	const shown = 20
	texts := xslices.Map(faults[:min(shown, len(faults))], func(f fault) string { return f.text })
	if more := len(faults) - shown; more > 0 {
		texts = append(texts, fmt.Sprintf("And %d more.", more))
	}
	texts = append(texts, a.usage())
	return session.Wrong(faults[0].code, "%s was not called. %s", a.tool, strings.Join(texts, "\n")).
		With("argument", jsontext.Clip(faults[0].argument, MaxName)).With("allowed", a.input.PropertyOrder)
}

// usage returns what the tool accepts, and what to do next.
func (a *arguments) usage() string {
	if len(a.input.PropertyOrder) == 0 {
		return fmt.Sprintf("%s takes no arguments: call it again with {}.", a.tool)
	}

	optional := slices.DeleteFunc(slices.Clone(a.input.PropertyOrder), func(n string) bool {
		return slices.Contains(a.input.Required, n)
	})

	var takes []string
	if len(a.input.Required) > 0 {
		takes = append(takes, "requires "+strings.Join(a.input.Required, ", "))
	}
	if len(optional) > 0 {
		takes = append(takes, "accepts "+strings.Join(optional, ", "))
	}
	return fmt.Sprintf("%s %s: correct the arguments and call it again.", a.tool, strings.Join(takes, " and "))
}

// Decode fills args, a pointer to a struct, as a tool with these arguments and some more would. It
// returns all values by name. subject names the called tool.
func Decode(subject string, raw json.RawMessage, args any, more ...Argument) (map[string]any, error) {
	given, fault := newArguments(subject, reflect.TypeOf(args).Elem(), more...).decode(raw, args)
	if fault != nil {
		return nil, fault
	}
	return given, nil
}

// notInArguments matches the characters that models cannot write in names of arguments.
var notInArguments = regexp.MustCompile(`[^a-zA-Z0-9_.-]`)

// InputArguments returns the inputs of a workflow as arguments, in their order. Each has the name of the
// input, with _ for other characters than letters, digits, _, - and dots; if that is taken, with input_
// before it.
func InputArguments(w *job.Workflow, taken ...string) (all []Argument) {
	taken = slices.Clone(taken)
	for _, p := range w.Inputs {
		a := Argument{
			Name:        notInArguments.ReplaceAllString(p.Name, "_"),
			Description: p.Description,
			Required:    p.Required && p.Default == nil,
		}
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

// InputValues returns the values of a workflow's inputs from its InputArguments.
func InputValues(w *job.Workflow, arguments []Argument, given map[string]any) map[string]outputs.Value {
	values := map[string]outputs.Value{}
	for i, a := range arguments {
		switch v := given[a.Name].(type) {
		case string:
			values[w.Inputs[i].Name] = outputs.Value{Paths: []string{v}}
		case []any:
			list := outputs.Value{List: true}
			for _, entry := range v {
				if text, ok := entry.(string); ok {
					list.Paths = append(list.Paths, text)
				}
			}
			values[w.Inputs[i].Name] = list
		}
	}
	return values
}
