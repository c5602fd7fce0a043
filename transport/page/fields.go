package page

import (
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/merge"
	"deepwork/transport/tool"
)

// forms are the tools whose arguments forms have, under the tools' names for them.
var forms = sync.OnceValue(func() map[string]map[string]tool.Argument {
	all := map[string]map[string]tool.Argument{}
	for name, of := range map[string]any{
		"change_target": merge.TargetArgs{}, "create_task": board.CreateTaskArgs{}, "follow_up": attempt.FollowUpArgs{}, "merge_attempt": merge.MergeArgs{},
		"push_attempt": merge.PushArgs{}, "run_workflow": attempt.RunWorkflowArgs{}, "start_task_attempt": attempt.StartArgs{},
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
	a, is := forms()[of][name]
	if !is {
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

// fill sets the arguments of a tool, a pointer to their struct, from the fields of a form that have their
// names. A blank field is as if it was not there.
func fill(r *http.Request, args any) error {
	given := map[string]any{}
	for _, a := range tool.Arguments(reflect.TypeOf(args).Elem()) {
		text := r.PostForm.Get(a.Name)
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
				return session.Wrong(codes.InvalidArgument, "%q is not a number, or not a whole one where that is needed.", text).With("argument", a.Name)
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
