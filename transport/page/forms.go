package page

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/uuid"

	"deepwork/actor/xslices"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/merge"
	"deepwork/session/outputs"
	"deepwork/transport/tool"
	"deepwork/transport/web"
)

// maxForm bounds the body of a form.
const maxForm = 1 << 20

// csrf returns the token that every form on a caller's pages sends back.
func (s *Site) csrf(who session.Caller) string {
	return s.sign(who, "csrf\x00"+who.Group)
}

// signature is the length of a signature, in bytes before it is encoded.
const signature = 16

// sign signs a text for a caller.
func (s *Site) sign(who session.Caller, text string) string {
	m := hmac.New(sha256.New, s.Key)
	m.Write([]byte("page\x00" + who.Identity + "\x00" + text))
	return hex.EncodeToString(m.Sum(nil)[:signature])
}

// An action does what a form asks for, and returns the URL of the page to show next.
type action func(ctx context.Context, who session.Caller, r *http.Request) (next string, err error)

// errReadOnly refuses every change.
var errReadOnly = &refusal{http.StatusForbidden,
	"These pages are read-only: the server was started with --read-only. Start it without, or use a terminal."}

// post registers an action.
func (s *Site) post(pattern string, do action) {
	s.mux.HandleFunc("POST "+pattern, s.authenticated(func(w http.ResponseWriter, r *http.Request) {
		next, err := s.act(w, r, do)
		switch {
		case err != nil:
			s.fail(w, r, err)
		case r.Header.Get("HX-Request") != "" && isOtherPage(r, next):
			w.Header().Set("HX-Redirect", web.Link(r, next)) // it follows other changes
		default:
			http.Redirect(w, r, web.Link(r, next), http.StatusSeeOther)
		}
	}))
}

func (s *Site) act(w http.ResponseWriter, r *http.Request, do action) (next string, err error) {
	if s.ReadOnly {
		return "", errReadOnly
	}
	if err := s.readForm(w, r); err != nil {
		return "", err
	}
	return do(r.Context(), session.CallerOf(r.Context()), r)
}

// What pages do of the tools of agents: by a form, and by being loaded again.
const (
	formSteps = "abort_merge abort_workflow change_target delete_task follow_up go_to_step merge_attempt " +
		"start_task_attempt stop_attempt update_task"
	reloadSteps = "comment_attempt get_attempt get_step workflow_status"
)

// audience words errors for a reader of pages: by the titles of tasks that they see, and by what pages can do.
func (s *Site) audience(ctx context.Context, who session.Caller) session.Audience {
	return session.Audience{Value: func(value string) string {
		if value == machine.ToolGoTo {
			return "this form"
		}
		if s.Board == nil || uuid.Validate(value) != nil {
			return value
		}
		t, err := s.Board.GetTask(ctx, who, board.TaskArgs{TaskID: value})
		if err != nil {
			return value
		}
		return `"` + jsontext.Clip(t.Title, 80) + `"`
	}, Step: func(step session.Step) string {
		switch {
		case step.Do == "":
			return ""
		case step.Tool == "" && who.Owner:
			return session.Order(step)
		case step.Tool == "":
			return session.Agents.Step(step)
		case strings.Contains(formSteps, step.Tool):
			return "You can " + step.Do + "."
		case strings.Contains(reloadSteps, step.Tool):
			return "Reload the page to " + step.Do + "."
		case step.Tool == "list_tasks":
			return "Open the board to " + step.Do + "."
		}
		return ""
	}}
}

// isOtherPage reports whether a URL is of another page than the one that a request was sent from.
func isOtherPage(r *http.Request, next string) bool {
	from, err := url.Parse(r.Header.Get("HX-Current-URL"))
	to, terr := url.Parse(next)
	return err != nil || terr != nil || from.Path != web.Link(r, to.Path)
}

// assetsVersion returns a hash of what is in static, which is part of the URLs of scripts and styles.
func assetsVersion() string {
	sum := sha256.New()
	_ = fs.WalkDir(embedded, "static", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			data, _ := embedded.ReadFile(path)
			sum.Write(data)
		}
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)[:6])
}

// forms are the arguments that forms have fields for, by tool and name.
var forms = sync.OnceValue(func() map[string]map[string]tool.Argument {
	all := map[string]map[string]tool.Argument{}
	for name, of := range map[string]any{
		"change_target":      merge.TargetArgs{},
		"create_task":        board.CreateTaskArgs{},
		"follow_up":          attempt.FollowUpArgs{},
		"merge_attempt":      merge.MergeArgs{},
		"push_attempt":       merge.PushArgs{},
		"run_workflow":       attempt.RunWorkflowArgs{},
		"start_task_attempt": attempt.StartArgs{},
	} {
		all[name] = map[string]tool.Argument{}
		for _, a := range tool.Arguments(reflect.TypeOf(of)) {
			all[name][a.Name] = a
		}
	}
	return all
})

// field returns the attributes of the field of a form for an argument of a tool: its name, and its
// limits. Its description is shown when the pointer is on it.
func field(of, name string) (template.HTMLAttr, error) {
	a, ok := forms()[of][name]
	if !ok {
		return "", fmt.Errorf("%s has no argument %s", of, name)
	}
	s := fmt.Sprintf(`name="%s" title="%s"`, name, html.EscapeString(a.Description))
	if a.Required {
		s += " required"
	}
	if n := a.Schema.MaxLength; n != nil && a.Schema.Enum == nil {
		s += fmt.Sprintf(` maxlength="%d"`, *n)
	}
	switch a.Kind {
	case "integer":
		s += ` type="number"`
	case "number":
		s += ` type="number" step="any"`
	case "boolean":
		s += ` type="checkbox" value="true"`
	}
	if n := a.Schema.Minimum; n != nil {
		s += fmt.Sprintf(` min="%.0f"`, *n)
	}
	if n := a.Schema.Maximum; n != nil {
		s += fmt.Sprintf(` max="%.0f"`, *n)
	}
	return template.HTMLAttr(s), nil
}

// values returns the values that an argument of a tool may have.
func values(of, name string) []string { return forms()[of][name].Values() }

// call returns the action that calls a method of the board with the form's arguments, which edit completes unless it is
// nil. then returns the URL of the next page.
func call[A, R any](
	do func(context.Context, session.Caller, A) (R, error), edit func(*http.Request, *A) error,
	then func(session.Caller, *http.Request, R) string,
) action {
	return func(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
		var args A
		err := fill(r, &args)
		if err == nil && edit != nil {
			err = edit(r, &args)
		}
		if err != nil {
			return "", err
		}

		reply, err := do(ctx, who, args)
		if err != nil {
			return "", err
		}
		return then(who, r, reply), nil
	}
}

// fill sets the arguments of a tool, a pointer to their struct, from the parts of the path and the form's fields of the
// same names. A blank field counts as absent; a list may be empty.
func fill(r *http.Request, args any) error {
	given := map[string]any{}
	for _, a := range tool.Arguments(reflect.TypeOf(args).Elem()) {
		text := cmp.Or(r.PathValue(a.Name), r.PostForm.Get(a.Name))
		if values, ok := r.PostForm[a.Name]; ok && a.Kind == "array" {
			given[a.Name] = append([]string{}, strings.Fields(strings.Join(values, " "))...)
			continue
		}
		if !a.Required {
			text = strings.TrimSpace(text)
		}
		if text == "" {
			continue
		}
		switch a.Kind {
		case "string":
			given[a.Name] = text
		case "boolean":
			given[a.Name] = true
		case "integer", "number":
			n, err := strconv.ParseFloat(text, 64)
			if err != nil || a.Kind == "integer" && n != math.Trunc(n) {
				return session.Wrong(codes.InvalidArgument,
					"%q is not a number, or not a whole one where that is needed.", text).With("argument", a.Name)
			}
			given[a.Name] = n
		}
	}

	data, err := json.Marshal(given)
	if err == nil {
		err = json.Unmarshal(data, args)
	}
	if err != nil {
		return session.Wrong(codes.InvalidArgument, "The form cannot be read: %v.", err)
	}

	return nil
}

// An inputField is the field of a form for an input of a workflow.
type inputField struct {
	job.Parameter
	Value string
}

// The prefixes of these fields' names: for a text, and for paths, one per line.
const (
	textField  = "input."
	pathsField = "paths."
)

// inputFields returns the fields for the inputs of a workflow, with the known values, else the defaults.
func inputFields(w *job.Workflow, known outputs.Map) (all []inputField) {
	if w == nil {
		return nil
	}

	for _, p := range w.Inputs {
		f := inputField{Parameter: p}
		if v, ok := known.Get(p.Name); ok {
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

// inputsOf returns the values in a form's fields except blank ones, or nil if the form has no fields of the workflow
// that it names.
func inputsOf(r *http.Request) board.Inputs {
	if of := r.PostForm.Get("inputs_of"); of == "" || of != strings.TrimSpace(r.PostForm.Get("workflow")) {
		return nil
	}

	all := board.Inputs{}
	for field, values := range r.PostForm {
		text := values[0]
		if name, ok := strings.CutPrefix(field, textField); ok && strings.TrimSpace(text) != "" {
			all[name] = outputs.Value{Paths: []string{text}}
		}
		if name, ok := strings.CutPrefix(field, pathsField); ok && strings.TrimSpace(text) != "" {
			paths := slices.DeleteFunc(xslices.Map(strings.Split(text, "\n"), strings.TrimSpace),
				func(line string) bool { return line == "" })
			all[name] = outputs.Value{Paths: paths, List: len(paths) > 1}
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
