package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
)

// Outputs maps an output's name to its value, in the author's order.
type Outputs = jsontext.OrderedMap[OutputValue]

// An OutputValue is one path, a list of paths, or a text, as submitted.
type OutputValue struct {
	Paths []string
	List  bool
	Text  *string // nil means paths
	// Each has the values of all items of a for_each's step, in order; nil for items without a value.
	Each []*OutputValue

	hash string // of a text that was not read yet; see State.setTexts
}

// A textValue is a text in a record: the text itself or, if it is long, its hash.
type textValue struct {
	Text   *string `json:"text,omitempty"`
	SHA256 string  `json:"sha256,omitempty"`
}

// MarshalJSON returns a string or an array of strings for paths, and {"text": "…"} for a text, or {"sha256":
// "…"} if it is kept by its hash. Replies have plain strings; see Plain.
func (v OutputValue) MarshalJSON() ([]byte, error) {
	if v.Each != nil {
		return jsontext.Encode(v.Each)
	}

	switch {
	case v.Text != nil && isLong(*v.Text):
		return jsontext.Encode(textValue{SHA256: Digest(*v.Text)})
	case v.Text != nil:
		return jsontext.Encode(textValue{Text: v.Text})
	}
	if !v.List {
		if len(v.Paths) != 1 {
			return nil, fmt.Errorf("a file output has %d paths", len(v.Paths))
		}
		return jsontext.Encode(v.Paths[0])
	}
	if v.Paths == nil {
		return []byte("[]"), nil
	}
	return jsontext.Encode(v.Paths)
}

// UnmarshalJSON reads what MarshalJSON returns.
func (v *OutputValue) UnmarshalJSON(data []byte) error {
	*v = OutputValue{}
	switch jsontext.First(data) {
	case '"':
		v.Paths = make([]string, 1)
		return json.Unmarshal(data, &v.Paths[0])
	case '{':
		var text textValue
		err := json.Unmarshal(data, &text)
		if err == nil && (text.Text == nil) == (text.SHA256 == "") {
			err = errors.New("a value has neither or both of text and sha256")
		}
		v.Text, v.hash = text.Text, text.SHA256
		return err
	}

	var paths []*string
	if json.Unmarshal(data, &paths) != nil || slices.Contains(paths, nil) { // the values of a list's items
		return json.Unmarshal(data, &v.Each)
	}
	v.List, v.Paths = true, make([]string, len(paths))
	for i, path := range paths {
		v.Paths[i] = *path
	}

	return nil
}

// ParseOutputs decodes the outputs argument of finished_step by the step's declaration: names, presence and
// types (seed 000, 001.5). It does not check files. The result has the author's order.
func ParseOutputs(st *job.Step, raw json.RawMessage) (Outputs, error) {
	given, err := decodeOutputs(st, raw)
	if err != nil {
		return nil, err
	}

	var unknown []string
	for _, g := range given {
		if st.Output(g.Key) == nil {
			unknown = append(unknown, g.Key)
		}
	}
	if unknown != nil {
		return nil, session.Wrong(codes.UnknownOutputs, "Unknown output names: %s. Step '%s' declares: %s.",
			strings.Join(unknown, ", "), st.ID, declared(st)).With("unknown", unknown).With("step_id", st.ID)
	}

	var out Outputs
	var missing []string
	for _, o := range st.Outputs {
		raw, ok := given.Get(o.Name)
		if !ok || string(raw) == "null" {
			if o.Required {
				missing = append(missing, o.Name)
			}
			continue
		}
		v, err := outputValue(o, raw)
		if err != nil {
			return nil, err
		}
		if o.Required && v.Text == nil && len(v.Paths) == 0 {
			missing = append(missing, o.Name+" (needs at least one path)")
			continue
		}
		out = append(out, jsontext.Pair[OutputValue]{Key: o.Name, Value: v})
	}
	if missing != nil {
		return nil, session.Wrong(codes.MissingOutputs, "Missing required outputs: %s. Step '%s' declares: %s.",
			strings.Join(missing, ", "), st.ID, declared(st)).With("missing", missing).With("step_id", st.ID)
	}
	return out, nil
}

// declared lists a step's outputs for an error message.
func declared(st *job.Step) string {
	if len(st.Outputs) == 0 {
		return "none, so outputs must be {}"
	}
	names := make([]string, len(st.Outputs))
	for i, o := range st.Outputs {
		names[i] = fmt.Sprintf("%s (%s, %s)", o.Name, o.Type,
			map[bool]string{true: "required", false: "optional"}[o.Required])
	}
	return strings.Join(names, ", ")
}

// decodeOutputs decodes an object or, as in seed 001, a list of paths if the step declares exactly one
// output.
func decodeOutputs(st *job.Step, raw json.RawMessage) (jsontext.OrderedMap[json.RawMessage], error) {
	raw = bytes.TrimSpace(raw)
	unreadable := func(err error) error {
		return session.Wrong(codes.BadOutputs, "outputs cannot be read: %v. Give an object of output names and paths.",
			err).Because(err)
	}
	switch {
	case string(raw) == "{}":
		return nil, nil
	case bytes.HasPrefix(raw, []byte("{")):
		var m jsontext.OrderedMap[json.RawMessage]
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, unreadable(err)
		}
		return m, nil
	case bytes.HasPrefix(raw, []byte("[")) && len(st.Outputs) == 1:
		only := st.Outputs[0]
		if only.Type == job.File || only.Type == job.Text {
			var list []json.RawMessage
			if err := json.Unmarshal(raw, &list); err != nil {
				return nil, unreadable(err)
			}
			if len(list) == 0 {
				return nil, nil
			}
			if len(list) == 1 {
				raw = list[0]
			}
		}
		return jsontext.OrderedMap[json.RawMessage]{{Key: only.Name, Value: raw}}, nil
	case bytes.HasPrefix(raw, []byte("[")):
		return nil, session.Wrong(codes.BadOutputs,
			"outputs is a list, which is only understood where a step declares exactly one output. Give an object; "+
				"step '%s' declares: %s.", st.ID, declared(st))
	}
	return nil, session.Wrong(codes.BadOutputs,
		"outputs is %s. Give an object of output names and paths; step '%s' declares: %s.", kindOf(raw), st.ID,
		declared(st))
}

// outputValue decodes one value by its declared type.
func outputValue(o job.Output, raw json.RawMessage) (v OutputValue, err error) {
	wrong := func(must, is string) error {
		return session.Wrong(codes.OutputType, "Output '%s' is declared as type '%s' and must be %s; %s.", o.Name,
			o.Type, must, is).With("output", o.Name)
	}
	must := "a list of paths"
	switch o.Type {
	case job.Text:
		var text string
		if raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
			return v, wrong("a text", "it is "+kindOf(raw))
		}
		return OutputValue{Text: &text}, CheckText("Output '"+o.Name+"'", text)
	case job.File, job.FilePath:
		if raw[0] == '"' && json.Unmarshal(raw, &v) == nil {
			return v, nil
		}
		if o.Type == job.File {
			return v, wrong("a single string path", "it is "+kindOf(raw))
		}
		must = "a path or a list of paths"
	}

	var list []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		return v, wrong(must, "it is "+kindOf(raw))
	}
	v = OutputValue{List: true, Paths: make([]string, len(list))}
	for i, item := range list {
		if item[0] != '"' || json.Unmarshal(item, &v.Paths[i]) != nil {
			return v, wrong(must, fmt.Sprintf("its element %d is %s", i, kindOf(item)))
		}
	}

	return v, nil
}

// kindOf returns the kind of a JSON value.
func kindOf(raw json.RawMessage) string {
	if kind := jsontext.Kind(raw); kind != "array" {
		return jsontext.WithArticle(kind)
	}
	return "a list"
}

// SameOutputs reports whether an outputs argument equals recorded outputs.
func SameOutputs(raw json.RawMessage, have Outputs) bool {
	raw, have = bytes.TrimSpace(raw), Plain(have)
	if bytes.HasPrefix(raw, []byte("[")) {
		var list, paths []string
		for _, o := range have {
			paths = append(paths, o.Value.Paths...)
		}
		return len(have) <= 1 && json.Unmarshal(raw, &list) == nil && slices.Equal(list, paths)
	}

	var given jsontext.OrderedMap[*OutputValue]
	if !bytes.HasPrefix(raw, []byte("{")) || json.Unmarshal(raw, &given) != nil {
		return false
	}

	n := 0
	for _, g := range given {
		if g.Value == nil {
			continue
		}

		want, ok := have.Get(g.Key)
		if !ok || g.Value.List != want.List || !slices.Equal(g.Value.Paths, want.Paths) {
			return false
		}

		n++
	}

	return n == len(have)
}

// A StepInput is one declared input of a step.
type StepInput struct {
	Name        string   `json:"name" jsonschema:"name of the input"`
	Description string   `json:"description" jsonschema:"description of the input"`
	FromStep    string   `json:"from_step,omitempty"`
	Optional    bool     `json:"optional,omitzero" jsonschema:"true: it may have no value"`
	Value       *string  `json:"value,omitempty" jsonschema:"its text; absent if it is files"`
	Paths       []string `json:"paths,omitzero"`
	NotGiven    bool     `json:"not_given,omitzero"`
	Omitted     int      `json:"omitted,omitzero"`
	Machine     string   `json:"machine,omitempty"`
}

// Tags implements fieldtag.Tagger.
func (StepInput) Tags() map[string]string {
	return map[string]string{
		"FromStep": `jsonschema:"id of the step that made it; absent if it comes from the user"`,
		"Paths":    `jsonschema:"its files, as submitted; absent if it is a text, or comes from the user"`,
		"NotGiven": `jsonschema:"true: it has no value, since nobody gave one; files from a step are an empty list ` +
			`then"`,
		"Omitted": `jsonschema:"number of further files, or bytes of the text, not listed"`,
		"Machine": `jsonschema:"other machine that has the files, with the project's folder there; absent if they ` +
			`are here"`,
	}
}

// A CompletedStep is a finished step and its outputs.
type CompletedStep struct {
	StepID  string  `json:"step_id" jsonschema:"id of the step"`
	Items   string  `json:"items,omitempty"`
	Outputs Outputs `json:"outputs" jsonschema:"files by output, as submitted; the beginning of a text"`
	Omitted int     `json:"omitted,omitzero" jsonschema:"number of further files, not listed"`
	Machine string  `json:"machine,omitempty"`
}

// Tags implements fieldtag.Tagger.
func (CompletedStep) Tags() map[string]string {
	return map[string]string{
		"Items": `jsonschema:"of a step that is done for each item of a list: for how many it is done, such as ` +
			`412 of 1000; their outputs are in step_inputs and all_outputs"`,
		"Machine": `jsonschema:"other machine that has the files, with the project's folder there; absent if they ` +
			`are here"`,
	}
}

// listedBytes limits the paths of completed steps, and those of inputs, that a reply lists.
const listedBytes = 64 << 10

// A listing holds the number of bytes that a reply may still list.
type listing struct{ paths, texts int }

func newListing() *listing { return &listing{listedBytes, maxRepliedTexts} }

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
func (l *listing) show(in *StepInput, v OutputValue) {
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
func (s *State) StepInputs(def *Definition, st *job.Step) []StepInput {
	return s.stepInputs(def, st, newListing())
}

// stepInputs is StepInputs with the caller's limit. A nil State means no session, and so no values.
func (s *State) stepInputs(def *Definition, st *job.Step, room *listing) []StepInput {
	out := make([]StepInput, len(st.Inputs))
	for i, in := range st.Inputs {
		out[i] = StepInput{Name: in.Name, Description: in.Description, Optional: in.Optional}
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
func (s *State) fromStart(out *StepInput, room *listing) {
	v, given := s.Inputs.Get(out.Name)
	out.NotGiven = !given
	if given {
		room.show(out, v)
	}
}

// fromSteps sets the value made by an earlier step: in.FromStep or, if several of in.From are finished, the
// newest. If no step has made it, a value passed at the start counts.
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
		default: // all items in order
			v, as := OutputValue{Each: []*OutputValue{}}, job.Files
			for _, o := range def.Job.Step(id).Outputs {
				if o.Name == in.File || from == nil && o.Type != job.Text {
					v.Each, as = append(v.Each, s.each(def, index, id, o.Name).Each...), o.Type
				}
			}
			room.show(out, v.flat(as))
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
func (s *State) CompletedSteps(def *Definition) []CompletedStep {
	room := newListing()
	out := []CompletedStep{}
	all := s.byID()
	for i, entry := range def.Workflow.Entries {
		for _, id := range entry {
			if forEach(def, i) != nil {
				if done, n := all.done(id, len(s.items(def, i))); done > 0 {
					out = append(out, CompletedStep{
						StepID:  id,
						Items:   fmt.Sprintf("%d of %d", done, n),
						Outputs: Outputs{},
					})
				}
				continue
			}
			p := all[id]
			if !p.Done() {
				continue
			}
			c := CompletedStep{StepID: id, Machine: s.outputsPlace(p)}
			for _, o := range p.Outputs {
				paths, list := o.Value.Paths, o.Value.List
				if o.Value.Text != nil {
					paths = []string{o.Value.Shown()}
				}
				paths, omitted := room.take(paths)
				c.Omitted += omitted
				if len(paths) > 0 || omitted == 0 {
					c.Outputs = append(c.Outputs,
						jsontext.Pair[OutputValue]{Key: o.Key, Value: OutputValue{Paths: paths, List: list}})
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
