package main

import (
	"context"
	"encoding/json"
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

// A scene is a text to print, an action of a person or the agent, and one exchange with the server,
// after which the claims must hold. The text $session stands for the id of the newsletter's session,
// $reply for the previous reply.
type scene struct {
	say     string
	do      func(d *demo, ctx context.Context) error // nil means nothing
	files   []file                                   // written by the agent
	tool    string                                   // "" means no exchange
	args    map[string]any
	show    []string // the parts of the reply that are printed, as paths like begin_step.step_id
	refused bool     // the call must be refused
	claims  []claim
}

// A file is written by the agent; path is relative to the project.
type file struct{ path, text string }

// A claim is the expected part of a reply: JSON, or text that it contains, after "~".
type claim struct{ what, path, want string }

// object is a JSON object.
type object = map[string]any

// acts is the whole demo.
var acts = []act{
	{"An agent looks for a workflow", []scene{{
		say:  "It asks for the project's jobs, which have one or more workflows each.",
		tool: "get_workflows",
		show: []string{"jobs.*.name", "jobs.*.workflows.*.name"},
		claims: []claim{
			{"no job is broken", "errors", "[]"},
			{"both jobs of the project are listed", "jobs.*.name", `~"newsletter"`},
			{"both jobs of the project are listed", "jobs.*.name", `~"fact_check"`},
			{"nothing is in progress", "stack", "[]"},
		},
	}}},
	{"It starts one", []scene{{
		say:  "The reply has everything it needs for the first step.",
		tool: "start_workflow",
		args: object{"goal": "The November issue", "job_name": "newsletter", "workflow_name": "issue"},
		show: []string{"begin_step.session_id", "begin_step.step_id", "begin_step.step_expected_outputs.*.name", "begin_step.step_instructions"},
		claims: []claim{
			{"the first step is gather", "begin_step.step_id", `"gather"`},
			{"its instructions are those of its file", "begin_step.step_instructions", "~drafts/notes.md"},
			{"the session is on the stack", "stack.*.session_id", `["$session"]`},
		},
	}}},
	{"Missing work is refused", []scene{{
		say:     "The agent says that the step is done, but its file does not exist.",
		tool:    "finished_step",
		args:    object{"outputs": object{"notes": "drafts/notes.md"}},
		refused: true,
		claims:  []claim{{"the refusal names the file", "", "~file not found at 'drafts/notes.md'"}},
	}, {
		say:  "The workflow is still at that step.",
		tool: "get_step",
		show: []string{"begin_step.step_id"},
		claims: []claim{
			{"the session is still at gather", "begin_step.step_id", `"gather"`},
			{"the session is still at gather", "completed_steps.*.step_id", "[]"},
		},
	}}},
	{"A workflow inside another", []scene{{
		say:    "The step asks for the numbers to be checked, for which there is another workflow.",
		tool:   "start_workflow",
		args:   object{"goal": "Check the numbers of drafts/notes.md", "job_name": "fact_check", "workflow_name": "check"},
		show:   []string{"begin_step.step_id", "stack.*.workflow"},
		claims: []claim{{"the nested workflow is on top", "stack.*.workflow", `["newsletter/issue", "fact_check/check"]`}},
	}, {
		say:   "When that is complete, the agent is told to continue with the first one.",
		files: []file{{"drafts/facts.md", "- 12 new users: the sign-up table\n"}},
		tool:  "finished_step",
		args:  object{"outputs": object{"report": "drafts/facts.md"}},
		show:  []string{"status", "resumed_workflow", "resumed_step"},
		claims: []claim{
			{"the nested workflow is complete", "status", `"workflow_complete"`},
			{"its output is in the reply", "all_outputs", `{"report":"drafts/facts.md"}`},
			{"the newsletter is resumed at gather", "resumed_workflow", `"newsletter/issue"`},
			{"the newsletter is resumed at gather", "resumed_step", `"gather"`},
			{"the stack has one session again", "stack.*.session_id", `["$session"]`},
		},
	}}},
	{"Two steps at the same time", []scene{{
		say:   "The next two steps do not depend on each other. The agent gets both, for two subagents.",
		files: []file{{"drafts/notes.md", "12 new users\n"}},
		tool:  "finished_step",
		args:  object{"outputs": object{"notes": "drafts/notes.md"}},
		show:  []string{"status", "begin_step.step_id", "concurrent_steps.*.step_id"},
		claims: []claim{
			{"the first member is news", "begin_step.step_id", `"news"`},
			{"the other member is tips", "concurrent_steps.*.step_id", `["tips"]`},
			{"the instructions describe the group", "begin_step.step_instructions", "~**CONCURRENT STEPS**"},
		},
	}, {
		say:   "Both report at the same time. One is told what is still missing; the other gets the next step.",
		files: []file{{"drafts/news.md", "Twelve people joined.\n"}, {"drafts/tip_1.md", "Say hello.\n"}, {"drafts/tip_2.md", "Say it twice.\n"}},
		do:    (*demo).finishMembers,
	}}},
	{"A person edits the workflow while it runs", []scene{{
		say:    "A person adds the step proofread to job.yml. Nothing is restarted: the agent finishes its step, and gets the new one.",
		do:     (*demo).editJob,
		files:  []file{{"issue.md", "# November\n\nTwelve people joinde.\n"}},
		tool:   "finished_step",
		args:   object{"outputs": object{"issue": "issue.md"}},
		show:   []string{"status", "begin_step.step_id", "begin_step.step_instructions"},
		claims: []claim{{"the next step is the new one", "begin_step.step_id", `"proofread"`}},
	}}},
	{"The server is killed", []scene{{do: (*demo).kill}, {
		say:     "A new server cannot know which session the agent means, and lists those that can be resumed.",
		do:      (*demo).startServer,
		tool:    "get_step",
		refused: true,
		claims:  []claim{{"the session is offered", "", "~$session"}},
	}, {
		say:  "The agent names its session, and continues where it was.",
		tool: "get_step",
		args: object{"session_id": "$session"},
		show: []string{"begin_step.step_id", "completed_steps.*.step_id"},
		claims: []claim{
			{"the session is where it was", "begin_step.step_id", `"proofread"`},
			{"the session has all it had done", "completed_steps.*.step_id", `["gather", "news", "tips", "assemble"]`},
			{"the session has its goal", "goal", `"The November issue"`},
		},
	}}},
	{"A review fails, then passes", []scene{{
		say:  "The new step has a review. The reviewer is a program of your choice, here a script. It finds a mistake, so the step is not finished.",
		tool: "finished_step",
		args: object{"step_id": "proofread", "outputs": object{"proofread_issue": "issue.md"}},
		show: []string{"status", "feedback"},
		claims: []claim{
			{"the review fails", "status", `"needs_work"`},
			{"the feedback is the reviewer's", "feedback", `~joinde`},
		},
	}, {
		say:   "The agent corrects the file, and the review passes. It was the last step.",
		files: []file{{"issue.md", "# November\n\nTwelve people joined.\n"}},
		tool:  "finished_step",
		args:  object{"step_id": "proofread", "outputs": object{"proofread_issue": "issue.md"}},
		show:  []string{"status", "all_outputs"},
		claims: []claim{
			{"the workflow is complete", "status", `"workflow_complete"`},
			{"the outputs of all five steps are in all_outputs", "all_outputs", `{"notes":"drafts/notes.md","news":"drafts/news.md","tips":["drafts/tip_1.md","drafts/tip_2.md"],"issue":"issue.md","proofread_issue":"issue.md"}`},
			{"nothing is left in progress", "stack", "[]"},
		},
	}, {
		say:    "If the reply is lost, the agent makes the same call again. It gets the same reply, and nothing is done twice.",
		tool:   "finished_step",
		args:   object{"step_id": "proofread", "outputs": object{"proofread_issue": "issue.md"}},
		show:   []string{"status"},
		claims: []claim{{"the reply is the same", "", "$reply"}},
	}, {do: (*demo).checkReviews}}},
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
		reply json.RawMessage
		err   error
	}
	arrivals := make(chan arrival, 2)
	for _, args := range []object{
		{"step_id": "news", "outputs": object{"news": "drafts/news.md"}},
		{"step_id": "tips", "outputs": object{"tips": []string{"drafts/tip_1.md", "drafts/tip_2.md"}}},
	} {
		go func() {
			lines, reply, err := d.exchange(ctx, scene{tool: "finished_step", args: args,
				show: []string{"pending_concurrent_steps", "begin_step.step_id"}})
			arrivals <- arrival{lines, reply, err}
		}()
	}
	first := <-arrivals
	d.out.Text("", first.lines)
	last := <-arrivals
	d.out.Text("", last.lines)
	if err := errors.Join(first.err, last.err); err != nil {
		return err
	}
	if string(lookup(first.reply, "begin_step")) != "null" { // replies may arrive in any order
		first, last = last, first
	}
	return errors.Join(
		d.check(first.reply, claim{"one is told that the other is pending", "begin_step", "null"}),
		d.check(first.reply, claim{"one is told that the other is pending", "pending_concurrent_steps", `~"`}),
		d.check(last.reply, claim{"the other gets assemble", "begin_step.step_id", `"assemble"`}),
	)
}

// kill kills the server and checks the session's record.
func (d *demo) kill(context.Context) error {
	pid := d.server.command.Process.Pid
	if err := d.server.kill(); err != nil {
		return err
	}
	record, err := d.record()
	if err != nil {
		return err
	}
	d.say(fmt.Sprintf("Process %d is killed, as in a crash. What it had answered is on disk, in session_%s.json.", pid, d.session))
	for _, key := range []string{"status", "current_step_id"} {
		d.out.Text("", fmt.Sprintf("   %s: %s", key, lookup(record, key)))
	}
	return errors.Join(
		d.check(record, claim{"the record is active", "status", `"active"`}),
		d.check(record, claim{"the record is at proofread", "current_step_id", `"proofread"`}),
	)
}

// checkReviews checks in the session's record that there were two reviews, and no third.
func (d *demo) checkReviews(context.Context) error {
	record, err := d.record()
	if err != nil {
		return err
	}
	return d.check(record, claim{"one review failed, and the next passed", "step_progress.proofread.attempts.*.state", `["failed", "passed"]`})
}

// record returns the file of the newsletter's session.
func (d *demo) record() (json.RawMessage, error) {
	return os.ReadFile(filepath.Join(d.newsletter(), ".deepwork", "tmp", "session_"+d.session+".json"))
}
