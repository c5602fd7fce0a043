package main

import (
	"errors"
	"regexp"
	"strings"

	"deepwork/session"
)

// forPeople removes from a refusal the word that names its kind for agents, and names commands in it
// instead of tools.
func forPeople(err error) error {
	refused, ok := errors.AsType[*session.Error](err)
	if !ok {
		return err
	}
	return errors.New(strings.Replace(err.Error(), refused.Error(), inCommands(refused.Message), 1))
}

// commands are the commands that do what a tool does, "" if none does.
var commands = map[string]string{
	"create_task": "board add", "delete_task": "board rm", "get_task": "board show", "list_tasks": "board tasks",
	"list_projects": "board projects", "list_repos": "board projects", "list_task_attempts": "board show", "get_attempt": "board show",
	"start_task_attempt": "board start", "follow_up": "board send", "stop_attempt": "board stop", "tail_attempt": "board tail",
	"get_attempt_diff": "board diff", "merge_attempt": "board merge", "rebase_attempt": "board rebase", "push_attempt": "board push",
	"abort_merge": "board merge --abort", "update_task": "board done", "change_target": "board target", "needs_attention": "board",
	"run_workflow": "run", "get_run": "run status", "abort_workflow": "sessions abort", "get_workflows": "jobs",
	"start_workflow": "", "get_step": "", "finished_step": "", "go_to_step": "", "list_executors": "", "comment_attempt": "",
	"call_workflow_tool": "", "list_workflow_tools": "", "refresh_workflow_tools": "", "workflow_status": "", "cancel_execution": "", "get_context": "",
}

var toolName = regexp.MustCompile(`\b[a-z]+(_[a-z]+)+\b`)

// inCommands returns a message for agents as people read it: with commands in place of tools, and without the
// sentences about tools that no command stands for.
func inCommands(message string) string {
	message = strings.NewReplacer("; list_executors describes them", "", "; list_executors lists the available ones", "",
		", or change depends_on of this one", "", "Use action queue", "Use --queue", "Ask your user to raise", "Raise", "Ask the user to run", "Run", "Tell the user; once that is corrected, they run", "Once that is corrected, run",
		"The user has not approved", "You have not approved", "The user denied it. They can", "You can", "The user denied", "You denied", "or their own one", "or your own one", "since the user approved", "since you approved",
		"The call would", "This would", ", then call again", ", then try again", "and call again", "and try again", "Call again", "Try again").Replace(message)
	var kept []string
	for _, sentence := range strings.SplitAfter(message, ". ") {
		agents := false
		sentence = toolName.ReplaceAllStringFunc(sentence, func(name string) string {
			command, is := commands[name]
			if !is {
				return name
			}
			agents = agents || command == ""
			return "'deepwork " + command + "'"
		})
		if !agents {
			kept = append(kept, sentence)
		}
	}
	if kept == nil {
		return message
	}
	return strings.TrimSpace(strings.Join(kept, ""))
}
