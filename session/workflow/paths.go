package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"deepwork/actor/durable"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/schema"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/pin"
	"deepwork/session/record"
)

// checkOutputs reads the outputs argument by the step's declaration and checks that each path is a regular
// file inside root (seed 000, 001.5) or, for a file_path, a folder. expanded has a folder's files in its
// place.
func checkOutputs(root string, st *job.Step, raw json.RawMessage) (out, expanded outputs.Map, err error) {
	out, err = outputs.Parse(st, raw)
	if err != nil || len(out) == 0 {
		return out, out, err
	}

	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, nil, record.ProjectGone(root, err)
	}

	expanded = slices.Clone(out)
	for i, o := range out {
		declared := st.Output(o.Key)
		var paths []string
		for _, p := range o.Value.Paths {
			files, err := filesOf(real, "Output", o.Key, declared.Type, p)
			if err != nil {
				return nil, nil, err
			}
			paths = append(paths, files...)
		}
		if declared.Required && o.Value.Text == nil && len(paths) == 0 {
			return nil, nil, session.Wrong(codes.MissingOutputs,
				"Output '%s' is required, and there is no file in %s. Write the files, or correct the path.", o.Key,
				o.Value.Shown()).With("output", o.Key)
		}
		expanded[i].Value.Paths = paths
	}

	return out, expanded, nil
}

// maxFolder is the maximum number of files in a folder that is handed in.
const maxFolder = 1000

// filesOf returns the files that a submitted path refers to. kind is Output or Input.
func filesOf(root, kind, name string, of job.OutputType, path string) ([]string, error) {
	real, info, _ := durable.Locate(root, path)
	if kind == "Output" && info != nil && gate.Private(root, real) {
		return nil, session.Wrong(codes.BadPath,
			"Output '%s': '%s' is git's own, or in .deepwork/tmp, and not handed in. Write the content to another "+
				"file, and give its path.", name, jsontext.Clip(path, 500)).With("output", name)
	}
	if of != job.FilePath || info == nil || !info.IsDir() {
		return []string{path}, checkPath(root, kind, name, path)
	}
	files, err := gate.FilesIn(root, real, path, maxFolder)
	if err != nil {
		return nil, session.Wrong(codes.NotAFile,
			"%s '%s': the folder '%s' cannot be handed in: %v. Give the paths of the files that belong to it.", kind,
			name, jsontext.Clip(path, 500), err).With(strings.ToLower(kind), name)
	}
	return files, nil
}

// CheckInputs reads the values with which a workflow is started (see outputs.ParseInputs). It checks that
// paths are regular files inside the project or, for a file_path, folders.
func CheckInputs(root string, wf *job.Workflow, given map[string]outputs.Value) (outputs.Map, error) {
	in, err := outputs.ParseInputs(wf, given)
	if err != nil || len(in) == 0 {
		return in, err
	}

	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, record.ProjectGone(root, err)
	}
	for _, v := range in {
		for _, path := range v.Value.Paths {
			if _, err := filesOf(real, "Input", v.Key, wf.Input(v.Key).Type, path); err != nil {
				return nil, err
			}
		}
	}

	return in, nil
}

// checkPath checks that a submitted path, with symlinks resolved, is a regular file inside the project. root
// must be resolved already; kind is Output or Input.
func checkPath(root, kind, name, path string) error {
	refuse := func(code, format string, args ...any) error {
		for i, a := range args {
			if text, ok := a.(string); ok {
				args[i] = jsontext.Clip(text, 500)
			}
		}
		return session.Wrong(code, "%s '%s': "+format, append([]any{kind, name}, args...)...).
			With(strings.ToLower(kind), name).With("path", jsontext.Clip(path, 500))
	}
	if len(path) > 1024 || strings.ContainsAny(path, "\r\n") {
		return refuse(codes.BadPath,
			"'%s' looks like file content, not a path. Write the content to a file, and give the file's path, "+
				"relative to the project root.", jsontext.Clip(path, 100))
	}

	_, info, err := durable.Locate(root, path)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		return refuse(codes.FileUnreadable, "'%s' cannot be reached: permission denied.", path)
	case errors.Is(err, durable.ErrOutside):
		return refuse(codes.OutsideProject, "'%s' leads outside the project root (%s). Put the file inside it.",
			path, root)
	case errors.Is(err, durable.ErrNotRegular) && info.IsDir():
		return refuse(codes.NotAFile, "'%s' is a directory. Give the path of each file in it.", path)
	case errors.Is(err, durable.ErrNotRegular):
		return refuse(codes.NotAFile, "'%s' is not a regular file.", path)
	case leaves(root, path):
		return refuse(codes.FileNotFound,
			"file not found at '%s', which leads outside the project root (%s). Put the file inside it, and give its "+
				"path there.", path, root)
	}

	return refuse(codes.FileNotFound,
		"file not found at '%s'.%s Paths are relative to the project root (%s); create the file first, or correct "+
			"the path.", path, meant(gate.Near(root, path)), root)
}

// meant asks whether a near path is meant, if there is one. Forms of Unicode look alike, so that other characters than
// those of ASCII are shown as escapes, too.
func meant(near string) string {
	if near == "" {
		return ""
	}
	if escaped := strconv.QuoteToASCII(near); escaped != strconv.Quote(near) {
		return fmt.Sprintf(" Did you mean '%s', which is %s?", near, escaped)
	}
	return fmt.Sprintf(" Did you mean '%s'?", near)
}

// leaves reports whether the text of a relative path leads out of root. An absolute path may lead to root
// through a link.
func leaves(root, path string) bool {
	if path = filepath.FromSlash(path); filepath.IsAbs(path) {
		return false
	}
	rel, err := filepath.Rel(root, filepath.Join(root, path))
	return err != nil || !filepath.IsLocal(rel)
}

// elsewhereThen adds to the error for a missing file the place where the session last moved, if that is
// another one: the file may be there.
func (a *sessionActor) elsewhereThen(err error) error {
	e, ok := errors.AsType[*session.Error](err)
	last, here := a.row.PlaceOf(), a.engine.Place
	if ok && e.Code == codes.FileNotFound && last != nil && here != nil && !last.Is(*here) {
		e.Add("This session was moved last on the machine %s: if the file is there, call a "+
			"server there.", last.Describe())
	}
	return err
}

// repeated adds to a refusal of outputs that they equal those of the last finished step: the caller has
// probably lost the reply.
func (a *sessionActor) repeated(err error, same func(outputs.Map) bool) error {
	e, ok := errors.AsType[*session.Error](err)
	if !ok {
		return err
	}

	for _, r := range slices.Backward(a.state.Replies) {
		if r.Tool != machine.ToolFinish {
			continue
		}

		if p := a.state.Progress(r.StepID); p.Done() && len(p.Outputs) > 0 && same(p.Outputs) {
			e.Add("These are the outputs of step '%s', which is finished already; if you lost "+
				"its reply, call get_step, or repeat the call with step_id '%s'.", r.StepID, r.StepID)
		}
		break
	}

	return e
}

// The limits of checking outputs by their schemas.
const (
	maxChecked = 10 << 20 // bytes per file
	maxMisfits = 20_000   // characters of the errors of all files
)

// schemas returns the schemas of a step's outputs by name. They are those that the session began with, so
// that no edit of the job weakens them, or those of a step added since.
func (a *sessionActor) schemas(def *machine.Definition, st *job.Step) (map[string]*schema.Schema, error) {
	if !st.HasSchema() && !pin.Edited(a.state, def) {
		return nil, nil
	}

	kept := def
	if !def.Kept || pin.Edited(a.state, def) {
		ref := a.state.Definition
		if p := a.state.Pinned; p != nil && p.Definition.Hash != "" {
			ref = p.Definition
		}

		var err error
		kept, err = a.engine.definitions.Kept(ref)
		if err != nil && !st.HasSchema() {
			return nil, nil // the session records that the definition cannot be read
		} else if err != nil {
			return nil, session.NotNow(codes.DefinitionLost,
				"The outputs of step '%s' of session '%s' cannot be checked: the definition that it began with "+
					"cannot be read (%v). Nothing has moved; abort the session if that remains so.", st.ID, a.id,
				err).Because(err)
		}
	}
	began := kept.Job.Of(kept.Workflow.Name).Step(st.ID)
	all := map[string]*schema.Schema{}
	for _, o := range st.Outputs {
		of := o.Schema
		if began != nil && began.Output(o.Name) != nil {
			of = began.Output(o.Name).Schema
		}
		compiled, err := of.Compile(def.Job.Dir)
		if err != nil {
			return nil, session.NotNow(codes.DefinitionLost,
				"Output '%s' of step '%s' cannot be checked: %v. Nothing has moved.", o.Name, st.ID, err).Because(err)
		}
		if compiled != nil {
			all[o.Name] = compiled
		}
	}

	return all, nil
}

// misfits returns the errors of outputs by their schemas, a line per file, or "". hashes are those of the
// files.
func misfits(
	ctx context.Context, root string, outputs outputs.Map, schemas map[string]*schema.Schema,
	hashes map[string]string,
) (string, error) {
	var b strings.Builder
	more := 0
	for _, o := range outputs {
		s := schemas[o.Key]
		if s == nil {
			continue
		}

		report := func(what string, data []byte, err error) {
			if err == nil {
				err = misfit(s, data)
			}

			switch line := fmt.Sprintf("- output '%s', %s: %v\n", o.Key, what, err); {
			case err == nil:
			case b.Len()+len(line) > maxMisfits:
				more++
			default:
				b.WriteString(line)
			}
		}
		if o.Value.Text != nil {
			report("the text", []byte(*o.Value.Text), nil)
		}
		for _, path := range o.Value.Paths {
			if ctx.Err() != nil {
				return "", ctx.Err()
			}

			data, err := durable.ReadIn(root, path, maxChecked)
			if sum := sha256.Sum256(data); err == nil && hex.EncodeToString(sum[:]) != hashes[path] {
				return "", fmt.Errorf("'%s' was changed while it was read", path)
			}
			report(path, data, err)
		}
	}

	if more > 0 {
		fmt.Fprintf(&b, "- and %s more that do not satisfy their schemas\n", machine.Count(more, "file"))
	}
	return b.String(), nil
}

// misfit returns why a document does not satisfy a schema, or nil.
func misfit(s *schema.Schema, data []byte) error {
	value, err := schema.Document(data)
	if err != nil {
		return fmt.Errorf("it is not YAML or JSON: %w", err)
	}
	err = s.CheckDocument(value)
	wrong, ok := errors.AsType[*schema.Error](err)
	if !ok {
		return err
	}
	all := make([]string, len(wrong.Violations))
	for i, v := range wrong.Violations {
		all[i] = fmt.Sprintf("%s (%s)", v, v.Keyword)
	}

	return errors.New(strings.Join(all, "; "))
}
