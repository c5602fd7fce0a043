package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/catalog/job"
	"deepwork/session"
)

// checkOutputs reads the outputs argument by the step's declaration: names,
// presence, types, and that each path is a regular file inside the project
// (seed 000, 001.5). The result is in the author's order.
func (e *Engine) checkOutputs(st *job.Step, raw json.RawMessage) (Outputs, error) {
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
		return nil, session.Wrong("unknown_outputs", "Unknown output names: %s. Step '%s' declares: %s.",
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
		if o.Required && len(v.Paths) == 0 {
			missing = append(missing, o.Name+" (needs at least one path)")
			continue
		}
		out = append(out, Pair[OutputValue]{o.Name, v})
	}
	if missing != nil {
		return nil, session.Wrong("missing_outputs", "Missing required outputs: %s. Step '%s' declares: %s.",
			strings.Join(missing, ", "), st.ID, declared(st)).With("missing", missing).With("step_id", st.ID)
	}
	if len(out) == 0 {
		return out, nil
	}
	root, err := e.realRoot()
	if err != nil {
		return nil, err
	}
	for _, o := range out {
		for _, p := range o.Value.Paths {
			if err := checkPath(root, o.Key, p); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// declared lists a step's outputs for an error's reader.
func declared(st *job.Step) string {
	if len(st.Outputs) == 0 {
		return "none, so outputs must be {}"
	}
	names := make([]string, len(st.Outputs))
	for i, o := range st.Outputs {
		names[i] = fmt.Sprintf("%s (%s, %s)", o.Name, o.Type, map[bool]string{true: "required", false: "optional"}[o.Required])
	}
	return strings.Join(names, ", ")
}

// decodeOutputs reads an object, or, as seed 001 has it, a list of paths where
// the step declares exactly one output.
func decodeOutputs(st *job.Step, raw json.RawMessage) (OrderedMap[json.RawMessage], error) {
	raw = bytes.TrimSpace(raw)
	switch {
	case string(raw) == "{}":
		return nil, nil
	case len(raw) > 0 && raw[0] == '{':
		var m OrderedMap[json.RawMessage]
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, session.Wrong("bad_outputs", "outputs cannot be read: %v. Give an object of output names and paths.", err).Because(err)
		}
		return m, nil
	case len(raw) > 0 && raw[0] == '[' && len(st.Outputs) == 1:
		only := st.Outputs[0]
		if only.Type == job.File {
			var list []json.RawMessage
			if err := json.Unmarshal(raw, &list); err != nil {
				return nil, session.Wrong("bad_outputs", "outputs cannot be read: %v. Give an object of output names and paths.", err).Because(err)
			}
			if len(list) == 0 {
				return nil, nil
			}
			if len(list) == 1 {
				raw = list[0]
			}
		}
		return OrderedMap[json.RawMessage]{{only.Name, raw}}, nil
	case len(raw) > 0 && raw[0] == '[':
		return nil, session.Wrong("bad_outputs", "outputs is a list, which is only understood where a step declares exactly one output. Give an object; step '%s' declares: %s.", st.ID, declared(st))
	}
	return nil, session.Wrong("bad_outputs", "outputs is %s. Give an object of output names and paths; step '%s' declares: %s.", kindOf(raw), st.ID, declared(st))
}

// outputValue reads one value by its declared type.
func outputValue(o job.Output, raw json.RawMessage) (OutputValue, error) {
	if o.Type == job.File {
		var path string
		if raw[0] != '"' || json.Unmarshal(raw, &path) != nil {
			return OutputValue{}, session.Wrong("output_type",
				"Output '%s' is declared as type 'file' and must be a single string path; it is %s.", o.Name, kindOf(raw)).With("output", o.Name)
		}
		return OutputValue{Paths: []string{path}}, nil
	}
	var list []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		return OutputValue{}, session.Wrong("output_type",
			"Output '%s' is declared as type 'files' and must be a list of paths; it is %s.", o.Name, kindOf(raw)).With("output", o.Name)
	}
	v := OutputValue{List: true, Paths: make([]string, len(list))}
	for i, item := range list {
		item = bytes.TrimSpace(item)
		if item[0] != '"' || json.Unmarshal(item, &v.Paths[i]) != nil {
			return OutputValue{}, session.Wrong("output_type",
				"Output '%s' is declared as type 'files' and must be a list of paths; its element %d is %s.", o.Name, i, kindOf(item)).With("output", o.Name)
		}
	}
	return v, nil
}

// kindOf names what a JSON value is.
func kindOf(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "missing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// checkPath tells whether a submitted path is a regular file inside the
// project, after symlinks are resolved. root is resolved already.
func checkPath(root, output, path string) error {
	refuse := func(code, format string, args ...any) error {
		for i, a := range args {
			if text, ok := a.(string); ok {
				args[i] = clip(text, 500)
			}
		}
		return session.Wrong(code, "Output '%s': "+format, append([]any{output}, args...)...).With("output", output).With("path", clip(path, 500))
	}
	notFound := func() error {
		return refuse("file_not_found", "file not found at '%s'. Paths are relative to the project root (%s); make the file first, or mend the path.", path, root)
	}
	if path == "" || strings.ContainsRune(path, 0) {
		return notFound()
	}
	full := filepath.FromSlash(path)
	if !filepath.IsAbs(full) {
		if plainFile(root, full) {
			return nil
		}
		full = filepath.Join(root, full)
	}
	real, err := filepath.EvalSymlinks(full)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return refuse("file_unreadable", "'%s' cannot be reached: permission denied.", path)
	case err != nil:
		return notFound()
	case !inside(root, real):
		return refuse("outside_project", "'%s' leads outside the project root (%s). Put the file inside it.", path, root)
	}
	info, err := os.Stat(real)
	switch {
	case err != nil:
		return notFound()
	case info.IsDir():
		return refuse("not_a_file", "'%s' is a directory. Give the path of each file in it.", path)
	case !info.Mode().IsRegular():
		return refuse("not_a_file", "'%s' is not a regular file.", path)
	}
	return nil
}

// plainFile tells whether a path below a resolved folder is a regular file with
// no symlink on the way, which is what most are: then nothing has to be resolved.
func plainFile(root, path string) bool {
	if !filepath.IsLocal(path) {
		return false
	}
	path = filepath.Clean(path)
	for i := 0; i < len(path); i++ {
		if os.IsPathSeparator(path[i]) {
			if fi, err := os.Lstat(filepath.Join(root, path[:i])); err != nil || !fi.IsDir() {
				return false
			}
		}
	}
	fi, err := os.Lstat(filepath.Join(root, path))
	return err == nil && fi.Mode().IsRegular()
}

// realRoot is the project root with symlinks resolved.
func (e *Engine) realRoot() (string, error) {
	real, err := filepath.EvalSymlinks(e.root)
	if err != nil {
		return "", projectGone(e.root, err)
	}
	return real, nil
}

// inside tells whether a resolved path is below a resolved folder.
func inside(root, path string) bool {
	rel, err := filepath.Rel(root, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) && !filepath.IsAbs(rel)
}

// sameOutputs tells whether an outputs argument says what was recorded.
func sameOutputs(raw json.RawMessage, have Outputs) bool {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return false
	}
	if raw[0] == '[' {
		var list []string
		if json.Unmarshal(raw, &list) != nil {
			return false
		}
		switch len(have) {
		case 0:
			return len(list) == 0
		case 1:
			return slices.Equal(list, have[0].Value.Paths)
		}
		return false
	}
	var given OrderedMap[json.RawMessage]
	if raw[0] != '{' || json.Unmarshal(raw, &given) != nil {
		return false
	}
	n := 0
	for _, g := range given {
		if string(g.Value) == "null" {
			continue
		}
		var v OutputValue
		want, ok := have.Get(g.Key)
		if !ok || json.Unmarshal(g.Value, &v) != nil || v.List != want.List || !slices.Equal(v.Paths, want.Paths) {
			return false
		}
		n++
	}
	return n == len(have)
}

// repeated adds to a refusal of outputs that they are those of the step that was
// finished last: the caller has probably lost the reply.
func (a *sessionActor) repeated(err error, same func(Outputs) bool) error {
	var e *session.Error
	if !errors.As(err, &e) {
		return err
	}
	for i := len(a.state.Replies) - 1; i >= 0; i-- {
		r := a.state.Replies[i]
		if r.Tool != ToolFinish {
			continue
		}
		if p := a.state.progress(r.StepID); p != nil && p.CompletedAt != nil && len(p.Outputs) > 0 && same(p.Outputs) {
			e.Message += fmt.Sprintf(" These are the outputs of step '%s', which is finished already; if you lost its reply, call get_step, or repeat the call with step_id '%s'.", r.StepID, r.StepID)
		}
		break
	}
	return e
}
