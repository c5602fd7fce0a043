package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// An act is one part of the demo.
type act struct {
	title  string
	scenes []scene
}

// A scene is a text to print, an action of a person or the agent, and one exchange with the server,
// after which the claims must hold. The text $session is replaced by the id of the newsletter's
// session.
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
	{"Discovery", []scene{{
		say:  "An agent asks which workflows there are.",
		tool: "get_workflows",
		show: []string{"jobs.*.name", "jobs.*.workflows.*.name", "errors", "stack"},
		claims: []claim{
			{"no job is broken", "errors", "[]"},
			{"both jobs of the project are listed", "jobs.*.name", `~"newsletter"`},
			{"both jobs of the project are listed", "jobs.*.name", `~"fact_check"`},
			{"nothing is in progress", "stack", "[]"},
		},
	}}},
	{"A workflow begins", []scene{{
		say:  "It starts one and is told everything it needs for the first step.",
		tool: "start_workflow",
		args: object{"goal": "The November issue", "job_name": "newsletter", "workflow_name": "issue", "instance_id": "november"},
		show: []string{"begin_step.session_id", "begin_step.branch_name", "begin_step.step_id", "begin_step.step_expected_outputs.*.name", "begin_step.step_instructions", "stack.*.workflow"},
		claims: []claim{
			{"the first step is gather", "begin_step.step_id", `"gather"`},
			{"its instructions are those of its file", "begin_step.step_instructions", "~drafts/notes.md"},
			{"the session is on the stack", "stack.*.session_id", `["$session"]`},
		},
	}}},
	{"A refused output", []scene{{
		say:     "It says that it is done, but the file is not there: the call is refused, and says why.",
		tool:    "finished_step",
		args:    object{"outputs": object{"notes": "drafts/notes.md"}},
		refused: true,
		claims:  []claim{{"the refusal names the file", "", "~file not found at 'drafts/notes.md'"}},
	}, {
		say:  "Nothing has moved.",
		tool: "get_step",
		show: []string{"begin_step.step_id", "completed_steps.*.step_id"},
		claims: []claim{
			{"the session is still at gather", "begin_step.step_id", `"gather"`},
			{"the session is still at gather", "completed_steps.*.step_id", "[]"},
		},
	}}},
	{"A nested workflow", []scene{{
		say:    "The step asks for another workflow in between: it goes on top of the stack.",
		tool:   "start_workflow",
		args:   object{"goal": "Check the numbers of drafts/notes.md", "job_name": "fact_check", "workflow_name": "check"},
		show:   []string{"begin_step.step_id", "stack.*.workflow"},
		claims: []claim{{"the nested workflow is on top", "stack.*.workflow", `["newsletter/issue", "fact_check/check"]`}},
	}, {
		say:   "It is finished, and the reply says what goes on below it.",
		files: []file{{"drafts/facts.md", "- 12 new users: the sign-up table\n"}},
		tool:  "finished_step",
		args:  object{"outputs": object{"report": "drafts/facts.md"}},
		show:  []string{"status", "all_outputs", "resumed_workflow", "resumed_step", "stack.*.workflow"},
		claims: []claim{
			{"the nested workflow is complete", "status", `"workflow_complete"`},
			{"the newsletter is resumed at gather", "resumed_workflow", `"newsletter/issue"`},
			{"the newsletter is resumed at gather", "resumed_step", `"gather"`},
			{"the stack has one session again", "stack.*.session_id", `["$session"]`},
		},
	}}},
	{"A concurrent group, finished in parallel", []scene{{
		say:   "The next entry of the workflow is a group: both steps are handed out at once, for two subagents.",
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
		say:   "Both report at the same time, each by its step_id. The first is told to wait, the last gets the next step.",
		files: []file{{"drafts/news.md", "Twelve people joined.\n"}, {"drafts/tip_1.md", "Say hello.\n"}, {"drafts/tip_2.md", "Say it twice.\n"}},
		do:    (*demo).finishMembers,
	}}},
	{"An edit of job.yml on the fly", []scene{{
		say:    "A person adds a step, proofread, to job.yml and saves it. The very next call sees it.",
		do:     (*demo).editJob,
		tool:   "get_workflows",
		show:   []string{"jobs.*.summary", "errors"},
		claims: []claim{{"the new summary is listed", "jobs.*.summary", "~Write and proofread"}},
	}, {
		say:    "The session that runs follows the edit: after assemble comes the new step.",
		files:  []file{{"issue.md", "# November\n\nTwelve people joinde.\n"}},
		tool:   "finished_step",
		args:   object{"outputs": object{"issue": "issue.md"}},
		show:   []string{"status", "begin_step.step_id", "begin_step.step_instructions"},
		claims: []claim{{"the next step is the new one", "begin_step.step_id", `"proofread"`}},
	}}},
	{"A server killed in the middle", []scene{{do: (*demo).kill}, {
		say:     "A new server has no session of its own, and says which can be resumed.",
		do:      (*demo).startServer,
		tool:    "get_step",
		refused: true,
		claims:  []claim{{"the session is offered", "", "~$session"}},
	}}},
	{"The session resumed and completed", []scene{{
		say:  "The agent names its session and reads where it was.",
		tool: "get_step",
		args: object{"session_id": "$session"},
		show: []string{"begin_step.step_id", "goal", "completed_steps.*.step_id", "stack.*.workflow"},
		claims: []claim{
			{"the session is where it was", "begin_step.step_id", `"proofread"`},
			{"the session has all it had done", "completed_steps.*.step_id", `["gather", "news", "tips", "assemble"]`},
		},
	}, {
		say:   "It finishes the last step: the workflow is complete.",
		files: []file{{"issue.md", "# November\n\nTwelve people joined.\n"}},
		tool:  "finished_step",
		args:  object{"step_id": "proofread", "outputs": object{"proofread_issue": "issue.md"}},
		show:  []string{"status", "summary", "all_outputs", "stack"},
		claims: []claim{
			{"the workflow is complete", "status", `"workflow_complete"`},
			{"the outputs of all five steps are in all_outputs", "all_outputs", `{"notes":"drafts/notes.md","news":"drafts/news.md","tips":["drafts/tip_1.md","drafts/tip_2.md"],"issue":"issue.md","proofread_issue":"issue.md"}`},
			{"nothing is left in progress", "stack", "[]"},
		},
	}, {
		say:    "Had the reply been lost, the same call would give it again, and nothing would move.",
		tool:   "finished_step",
		args:   object{"step_id": "proofread", "outputs": object{"proofread_issue": "issue.md"}},
		show:   []string{"status", "summary", "all_outputs", "stack"},
		claims: []claim{{"the reply is the same", "status", `"workflow_complete"`}},
	}}},
	{"A run, without anybody at the keyboard", []scene{{
		say: "deepwork run starts an agent for each step. Three write at the same time, each in a process of its own;\nthe review of one page fails, and its agent corrects it; then another agent binds the pages.",
		do:  (*demo).leadWriters,
	}}},
}

// finishMembers reports both members of the group in parallel, and prints each exchange when its
// reply arrives.
func (d *demo) finishMembers(ctx context.Context) error {
	type arrival struct {
		text  string
		reply json.RawMessage
		err   error
	}
	arrivals := make(chan arrival, 2)
	for _, args := range []object{
		{"step_id": "news", "outputs": object{"news": "drafts/news.md"}},
		{"step_id": "tips", "outputs": object{"tips": []string{"drafts/tip_1.md", "drafts/tip_2.md"}}},
	} {
		go func() {
			text, reply, err := d.exchange(ctx, scene{tool: "finished_step", args: args,
				show: []string{"status", "begin_step.step_id", "pending_concurrent_steps", "feedback"}})
			arrivals <- arrival{text, reply, err}
		}()
	}
	first := <-arrivals
	fmt.Fprint(d.out, first.text)
	last := <-arrivals
	fmt.Fprint(d.out, last.text)
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
	d.say(fmt.Sprintf("The server (process %d) is killed with SIGKILL. What it acknowledged is on disk.", d.server.command.Process.Pid))
	if err := d.server.kill(); err != nil {
		return err
	}
	record, err := os.ReadFile(filepath.Join(d.dir, ".deepwork", "tmp", "session_"+d.session+".json"))
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "   (session_%s.json: status %s, at step %s)\n", d.session,
		strings.Trim(string(lookup(record, "status")), `"`), strings.Trim(string(lookup(record, "current_step_id")), `"`))
	return errors.Join(
		d.check(record, claim{"the record is active", "status", `"active"`}),
		d.check(record, claim{"the record is at proofread", "current_step_id", `"proofread"`}),
	)
}
