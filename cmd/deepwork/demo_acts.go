package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// An act is one part of the demo.
type act struct {
	title  string
	scenes []scene
}

// A scene is a text to print, an action of a person or the agent, and one exchange with the server.
// The text $session stands for the id of the newsletter's session.
type scene struct {
	say     string
	do      func(d *demo, ctx context.Context) error // nil means nothing
	files   []file                                   // written by the agent
	tool    string                                   // "" means no exchange
	args    map[string]any
	show    []string // the parts of the reply that are printed, as paths like begin_step.step_id
	refused bool     // the call is refused
}

// A file is written by the agent; path is relative to the project.
type file struct{ path, text string }

// object is a JSON object.
type object = map[string]any

// acts is the whole demo.
var acts = []act{
	{"An agent looks for a workflow", []scene{{
		say:  "It asks for the project's jobs, which have one or more workflows each.",
		tool: "get_workflows",
		show: []string{"jobs.*.name", "jobs.*.workflows.*.name"},
	}}},
	{"It starts one", []scene{{
		say:  "The reply has everything it needs for the first step.",
		tool: "start_workflow",
		args: object{"goal": "The November issue", "job_name": "newsletter", "workflow_name": "issue"},
		show: []string{"begin_step.session_id", "begin_step.step_id", "begin_step.step_expected_outputs.*.name", "begin_step.step_instructions"},
	}}},
	{"Missing work is refused", []scene{{
		say:     "The agent says that the step is done, but its file does not exist.",
		tool:    "finished_step",
		args:    object{"outputs": object{"notes": "drafts/notes.md"}},
		refused: true,
	}, {
		say:  "The workflow is still at that step.",
		tool: "get_step",
		show: []string{"begin_step.step_id"},
	}}},
	{"A workflow inside another", []scene{{
		say:  "The step asks for the numbers to be checked, for which there is another workflow.",
		tool: "start_workflow",
		args: object{"goal": "Check the numbers of drafts/notes.md", "job_name": "fact_check", "workflow_name": "check"},
		show: []string{"begin_step.step_id", "stack.*.workflow"},
	}, {
		say:   "When that is complete, the agent is told to continue with the first one.",
		files: []file{{"drafts/facts.md", "- 12 new users: the sign-up table\n"}},
		tool:  "finished_step",
		args:  object{"outputs": object{"report": "drafts/facts.md"}},
		show:  []string{"status", "resumed_workflow", "resumed_step"},
	}}},
	{"Two steps at the same time", []scene{{
		say:   "The next two steps do not depend on each other. The agent gets both, for two subagents.",
		files: []file{{"drafts/notes.md", "12 new users\n"}},
		tool:  "finished_step",
		args:  object{"outputs": object{"notes": "drafts/notes.md"}},
		show:  []string{"status", "begin_step.step_id", "concurrent_steps.*.step_id"},
	}, {
		say:   "Both report at the same time. One is told what is still missing; the other gets the next step.",
		files: []file{{"drafts/news.md", "Twelve people joined.\n"}, {"drafts/tip_1.md", "Say hello.\n"}, {"drafts/tip_2.md", "Say it twice.\n"}},
		do:    (*demo).finishMembers,
	}}},
	{"A person edits the workflow while it runs", []scene{{
		say:   "A person adds the step proofread to job.yml. Nothing is restarted: the agent finishes its step, and gets the new one.",
		do:    (*demo).editJob,
		files: []file{{"issue.md", "# November\n\nTwelve people joinde.\n"}},
		tool:  "finished_step",
		args:  object{"outputs": object{"issue": "issue.md"}},
		show:  []string{"status", "begin_step.step_id", "begin_step.step_instructions"},
	}}},
	{"The server is killed", []scene{{do: (*demo).kill}, {
		say:     "A new server cannot know which session the agent means, and lists those that can be resumed.",
		do:      (*demo).startServer,
		tool:    "get_step",
		refused: true,
	}, {
		say:  "The agent names its session, and continues where it was.",
		tool: "get_step",
		args: object{"session_id": "$session"},
		show: []string{"begin_step.step_id", "completed_steps.*.step_id"},
	}}},
	{"A review fails, then passes", []scene{{
		say:  "The new step has a review. The reviewer is a program of your choice, here a script. It finds a mistake, so the step is not finished.",
		tool: "finished_step",
		args: object{"step_id": "proofread", "outputs": object{"proofread_issue": "issue.md"}},
		show: []string{"status", "feedback"},
	}, {
		say:   "The agent corrects the file, and the review passes. It was the last step.",
		files: []file{{"issue.md", "# November\n\nTwelve people joined.\n"}},
		tool:  "finished_step",
		args:  object{"step_id": "proofread", "outputs": object{"proofread_issue": "issue.md"}},
		show:  []string{"status", "all_outputs"},
	}, {
		say:  "If the reply is lost, the agent makes the same call again. It gets the same reply, and nothing is done twice.",
		tool: "finished_step",
		args: object{"step_id": "proofread", "outputs": object{"proofread_issue": "issue.md"}},
		show: []string{"status"},
	}}},
	{"A task on the board is done in a git worktree", []scene{{
		say: "You add a task to the board of a git repository and start a coding agent on it. It works in a worktree with a branch of its own; your files stay as they are.",
		do:  (*demo).workOnTask,
	}}},
	{"A workflow runs while you are away", []scene{{
		say: "deepwork run starts an agent for each step. Three of them write a page each, at the same time. The review of one page fails, and its agent corrects it. Then a fourth puts the pages together.",
		do:  (*demo).leadWriters,
	}}},
}

// finishMembers reports both members of the group in parallel, and prints each exchange when its reply
// arrives.
func (d *demo) finishMembers(ctx context.Context) error {
	type arrival struct {
		lines string
		err   error
	}
	arrivals := make(chan arrival, 2)
	for _, args := range []object{
		{"step_id": "news", "outputs": object{"news": "drafts/news.md"}},
		{"step_id": "tips", "outputs": object{"tips": []string{"drafts/tip_1.md", "drafts/tip_2.md"}}},
	} {
		go func() {
			lines, _, err := d.exchange(ctx, scene{tool: "finished_step", args: args,
				show: []string{"pending_concurrent_steps", "begin_step.step_id"}})
			arrivals <- arrival{lines, err}
		}()
	}
	first := <-arrivals
	d.out.Text("", first.lines)
	last := <-arrivals
	d.out.Text("", last.lines)
	return errors.Join(first.err, last.err)
}

// kill kills the server and prints where the session is.
func (d *demo) kill(context.Context) error {
	pid := d.server.command.Process.Pid
	if err := d.server.kill(); err != nil {
		return err
	}
	name := "session_" + d.session + ".json"
	record, err := os.ReadFile(filepath.Join(d.newsletter(), ".deepwork", "tmp", name))
	if err != nil {
		return err
	}
	d.say(fmt.Sprintf("Process %d is killed, as in a crash. What it had answered is on disk, and exported to %s.", pid, name))
	for _, key := range []string{"status", "current_step_id"} {
		d.out.Text("", fmt.Sprintf("   %s: %s", key, lookup(record, key)))
	}
	return nil
}
