package outputs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
)

// Parse decodes the outputs argument of finished_step by the step's declaration: names, presence and
// types (seed 000, 001.5). It does not check files. The result has the author's order.
func Parse(st *job.Step, raw json.RawMessage) (Map, error) {
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

	var out Map
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
		out = append(out, jsontext.Pair[Value]{Key: o.Name, Value: v})
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
		"outputs is %s. Give an object of output names and paths; step '%s' declares: %s.", KindOf(raw), st.ID,
		declared(st))
}

// outputValue decodes one value by its declared type.
func outputValue(o job.Output, raw json.RawMessage) (v Value, err error) {
	wrong := func(must, is string) error {
		return session.Wrong(codes.OutputType, "Output '%s' is declared as type '%s' and must be %s; %s.", o.Name,
			o.Type, must, is).With("output", o.Name)
	}
	must := "a list of paths"
	switch o.Type {
	case job.Text:
		var text string
		if raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
			return v, wrong("a text", "it is "+KindOf(raw))
		}
		return Value{Text: &text}, CheckText("Output '"+o.Name+"'", text)
	case job.File, job.FilePath:
		if raw[0] == '"' && json.Unmarshal(raw, &v) == nil {
			return v, nil
		}
		if o.Type == job.File {
			return v, wrong("a single string path", "it is "+KindOf(raw))
		}
		must = "a path or a list of paths"
	}

	var list []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		return v, wrong(must, "it is "+KindOf(raw))
	}
	v = Value{List: true, Paths: make([]string, len(list))}
	for i, item := range list {
		if item[0] != '"' || json.Unmarshal(item, &v.Paths[i]) != nil {
			return v, wrong(must, fmt.Sprintf("its element %d is %s", i, KindOf(item)))
		}
	}

	return v, nil
}

// KindOf returns the kind of a JSON value.
func KindOf(raw json.RawMessage) string {
	if kind := jsontext.Kind(raw); kind != "array" {
		return jsontext.WithArticle(kind)
	}
	return "a list"
}

// Same reports whether an outputs argument equals recorded outputs.
func Same(raw json.RawMessage, have Map) bool {
	raw, have = bytes.TrimSpace(raw), Plain(have)
	if bytes.HasPrefix(raw, []byte("[")) {
		var list, paths []string
		for _, o := range have {
			paths = append(paths, o.Value.Paths...)
		}
		return len(have) <= 1 && json.Unmarshal(raw, &list) == nil && slices.Equal(list, paths)
	}

	var given jsontext.OrderedMap[*Value]
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
