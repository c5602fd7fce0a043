package show

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"deepwork/session"
)

// People read errors at a terminal. They need only the beginning of an id.
var People = session.Audience{
	Value: value,
	Step: func(s session.Step) string {
		command := commandOf(s)
		switch {
		case s.Do == "", s.Tool != "" && command == "":
			return ""
		case s.Tool == "":
			return session.Order(s)
		}
		return "To " + s.Do + ", run '" + command + "'."
	},
}

func value(v string) string {
	switch {
	case uuid.Validate(v) == nil:
		return v[:8]
	case v == "repos":
		return "--target"
	}
	return strings.TrimPrefix(v, "comments[0].") // the command line has one
}

// commandOf returns the command line that does what a step's tool does, or "" if no command does.
func commandOf(s session.Step) string {
	command := cmp.Or(s.Command, Commands[s.Tool])
	if command == "" || s.Args["action"] == "cancel" {
		return ""
	}

	command = "deepwork " + command
	var id string
	for _, name := range slices.Sorted(maps.Keys(s.Args)) {
		switch v := s.Args[name]; {
		case v == true:
			command += " --" + strings.ReplaceAll(name, "_", "-")
		case v == "queue":
			command += " --queue"
		case slices.Contains([]string{"attempt_id", "session_id", "task_id"}, name):
			id = " " + value(v.(string))
		}
	}
	return command + id
}

// Commands are the command lines that do what a tool does.
var Commands = map[string]string{
	"create_task":        "board add",
	"delete_task":        "board rm",
	"get_task":           "board show",
	"list_tasks":         "board tasks",
	"list_projects":      "board projects",
	"list_repos":         "board projects",
	"list_task_attempts": "board show",
	"get_attempt":        "board show",
	"start_task_attempt": "board start",
	"follow_up":          "board send",
	"stop_attempt":       "board stop",
	"tail_attempt":       "board tail",
	"get_attempt_diff":   "board diff",
	"merge_attempt":      "board merge",
	"rebase_attempt":     "board rebase",
	"push_attempt":       "board push",
	"abort_merge":        "board merge --abort",
	"update_task":        "board edit",
	"change_target":      "board target",
	"needs_attention":    "board",
	"run_workflow":       "run",
	"get_run":            "run status",
	"abort_workflow":     "sessions abort",
	"get_step":           "sessions show",
	"get_workflows":      "jobs",
	"list_executors":     "board executors",
	"comment_attempt":    "board comment",
}
