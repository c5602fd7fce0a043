package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/session/workflow"
)

func (d *demo) discover(ctx context.Context) error {
	d.say("An agent asks which workflows there are.")
	r, err := call[workflow.WorkflowsReply](ctx, d, demoCall{
		tool: "get_workflows",
		show: []string{"jobs.*.name", "jobs.*.workflows.*.name", "errors", "stack"},
	})
	if err != nil {
		return err
	}
	names, err := jobNames(r)
	if err != nil {
		return err
	}
	return errors.Join(
		d.claim(slices.Contains(names, "newsletter") && slices.Contains(names, "fact_check"), "both jobs of the project are listed"),
		d.claim(string(r.Errors) == "[]", "no job is broken"),
		d.claim(len(r.Stack) == 0, "nothing is in progress"),
	)
}

func (d *demo) begin(ctx context.Context) error {
	d.say("It starts one and is told everything it needs for the first step.")
	r, err := call[workflow.StartReply](ctx, d, demoCall{
		tool: "start_workflow",
		args: map[string]any{"goal": "The November issue", "job_name": "newsletter", "workflow_name": "issue", "instance_id": "november"},
		show: []string{"begin_step.session_id", "begin_step.branch_name", "begin_step.step_id", "begin_step.step_expected_outputs.*.name", "begin_step.step_instructions", "stack.*.workflow"},
	})
	if err != nil {
		return err
	}
	if err := d.claim(r.BeginStep != nil, "there is a first step"); err != nil {
		return err
	}
	d.session = r.BeginStep.SessionID
	return errors.Join(
		d.claim(r.BeginStep.StepID == "gather", "the first step is gather"),
		d.claim(strings.Contains(r.BeginStep.Instructions, "drafts/notes.md"), "its instructions are those of its file"),
		d.claim(len(r.Stack) == 1 && r.Stack[0].SessionID == d.session, "the session is on the stack"),
	)
}

func (d *demo) refuse(ctx context.Context) error {
	d.say("It says that it is done, but the file is not there: the call is refused, and says why.")
	text, err := refused(ctx, d, demoCall{tool: "finished_step", args: map[string]any{"outputs": map[string]any{"notes": "drafts/notes.md"}}})
	if err != nil {
		return err
	}
	if err := d.claim(strings.Contains(text, "file not found at 'drafts/notes.md'"), "the refusal names the file"); err != nil {
		return err
	}
	d.say("Nothing has moved.")
	r, err := call[workflow.StepReply](ctx, d, demoCall{tool: "get_step", show: []string{"begin_step.step_id", "completed_steps"}})
	if err != nil {
		return err
	}
	return d.claim(r.BeginStep != nil && r.BeginStep.StepID == "gather" && len(r.CompletedSteps) == 0, "the session is still at gather")
}

func (d *demo) nest(ctx context.Context) error {
	d.say("The step asks for another workflow in between: it goes on top of the stack.")
	started, err := call[workflow.StartReply](ctx, d, demoCall{
		tool: "start_workflow",
		args: map[string]any{"goal": "Check the numbers of drafts/notes.md", "job_name": "fact_check", "workflow_name": "check"},
		show: []string{"begin_step.step_id", "stack.*.workflow"},
	})
	if err != nil {
		return err
	}
	if err := d.claim(len(started.Stack) == 2 && started.Stack[1].Workflow == "fact_check/check", "the nested workflow is on top"); err != nil {
		return err
	}
	d.say("It is finished, and the reply says what goes on below it.")
	if err := d.write("drafts/facts.md", "- 12 new users: the sign-up table\n"); err != nil {
		return err
	}
	finished, err := call[workflow.FinishReply](ctx, d, demoCall{
		tool: "finished_step",
		args: map[string]any{"outputs": map[string]any{"report": "drafts/facts.md"}},
		show: []string{"status", "all_outputs", "resumed_workflow", "resumed_step", "stack.*.workflow"},
	})
	if err != nil {
		return err
	}
	return errors.Join(
		d.claim(finished.Status == workflow.WorkflowComplete, "the nested workflow is complete"),
		d.claim(optional(finished.ResumedWorkflow) == "newsletter/issue" && optional(finished.ResumedStep) == "gather", "the newsletter is resumed at gather"),
		d.claim(len(finished.Stack) == 1, "the stack has one session again"),
	)
}

func (d *demo) parallel(ctx context.Context) error {
	d.say("The next entry of the workflow is a group: both steps are handed out at once, for two subagents.")
	if err := d.write("drafts/notes.md", "12 new users\n"); err != nil {
		return err
	}
	entered, err := call[workflow.FinishReply](ctx, d, demoCall{
		tool: "finished_step",
		args: map[string]any{"outputs": map[string]any{"notes": "drafts/notes.md"}},
		show: []string{"status", "begin_step.step_id", "concurrent_steps.*.step_id"},
	})
	if err != nil {
		return err
	}
	err = errors.Join(
		d.claim(entered.BeginStep != nil && entered.BeginStep.StepID == "news", "the first member is news"),
		d.claim(len(entered.ConcurrentSteps) == 1 && entered.ConcurrentSteps[0].StepID == "tips", "the other member is tips"),
		d.claim(entered.BeginStep != nil && strings.Contains(entered.BeginStep.Instructions, "**CONCURRENT STEPS**"), "the instructions tell of the group"),
	)
	if err != nil {
		return err
	}
	d.say("Both report at the same time, each by its step_id. The first is told to wait, the last gets the next step.")
	err = errors.Join(
		d.write("drafts/news.md", "Twelve people joined.\n"),
		d.write("drafts/tip_1.md", "Say hello.\n"),
		d.write("drafts/tip_2.md", "Say it twice.\n"),
	)
	if err != nil {
		return err
	}
	waiting, last, err := d.finishMembers(ctx)
	if err != nil {
		return err
	}
	if waiting.BeginStep != nil { // replies that come at the same moment may pass each other
		waiting, last = last, waiting
	}
	return errors.Join(
		d.claim(waiting.BeginStep == nil && len(waiting.PendingConcurrentSteps) == 1, "one is told that the other is pending"),
		d.claim(last.BeginStep != nil && last.BeginStep.StepID == "assemble", "the other gets assemble"),
	)
}

// finishMembers reports both members of the group in parallel. It prints each
// exchange when its reply arrives, and returns the replies in that order.
func (d *demo) finishMembers(ctx context.Context) (first, second *workflow.FinishReply, err error) {
	type arrival struct {
		text  string
		reply *workflow.FinishReply
		err   error
	}
	arrivals := make(chan arrival, 2)
	for _, args := range []map[string]any{
		{"step_id": "news", "outputs": map[string]any{"news": "drafts/news.md"}},
		{"step_id": "tips", "outputs": map[string]any{"tips": []string{"drafts/tip_1.md", "drafts/tip_2.md"}}},
	} {
		go func() {
			text, reply, err := exchange[workflow.FinishReply](ctx, d, demoCall{"finished_step", args,
				[]string{"status", "begin_step.step_id", "pending_concurrent_steps", "feedback"}})
			arrivals <- arrival{text, reply, err}
		}()
	}
	a := <-arrivals
	fmt.Fprint(d.out, a.text)
	b := <-arrivals
	fmt.Fprint(d.out, b.text)
	return a.reply, b.reply, errors.Join(a.err, b.err)
}

func (d *demo) edit(ctx context.Context) error {
	d.say("A person adds a step, proofread, to job.yml and saves it. The very next call sees it.")
	if err := d.editJob(); err != nil {
		return fmt.Errorf("editing the job: %w", err)
	}
	listed, err := call[workflow.WorkflowsReply](ctx, d, demoCall{tool: "get_workflows", show: []string{"jobs.*.summary", "errors"}})
	if err != nil {
		return err
	}
	if err := d.claim(strings.Contains(string(listed.Jobs), "Write and proofread"), "the new summary is listed"); err != nil {
		return err
	}
	d.say("The session that runs follows the edit: after assemble comes the new step.")
	if err := d.write("issue.md", "# November\n\nTwelve people joinde.\n"); err != nil {
		return err
	}
	r, err := call[workflow.FinishReply](ctx, d, demoCall{
		tool: "finished_step",
		args: map[string]any{"outputs": map[string]any{"issue": "issue.md"}},
		show: []string{"status", "begin_step.step_id", "begin_step.step_instructions"},
	})
	if err != nil {
		return err
	}
	return d.claim(r.BeginStep != nil && r.BeginStep.StepID == "proofread", "the next step is the new one")
}

func (d *demo) kill(ctx context.Context) error {
	pid := d.server.command.Process.Pid
	d.say("The server (process %d) is killed with SIGKILL. What it acknowledged is on disk.", pid)
	if err := d.server.kill(); err != nil {
		return err
	}
	record, err := os.ReadFile(filepath.Join(workflow.TmpDir(d.dir), "session_"+d.session+".json"))
	if err != nil {
		return err
	}
	var state workflow.State
	if err := json.Unmarshal(record, &state); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "   (session_%s.json: status %s, at step %s)\n", d.session, state.Status, state.CurrentStepID)
	if err := d.claim(state.Status == workflow.Active && state.CurrentStepID == "proofread", "the record is at proofread"); err != nil {
		return err
	}
	d.say("A new server has no session of its own, and says which can be resumed.")
	if d.server, err = d.startServer(ctx); err != nil {
		return err
	}
	text, err := refused(ctx, d, demoCall{tool: "get_step"})
	if err != nil {
		return err
	}
	return errors.Join(
		d.claim(d.server.command.Process.Pid != pid, "it is another process"),
		d.claim(strings.Contains(text, d.session), "the session is offered"),
	)
}

func (d *demo) resume(ctx context.Context) error {
	d.say("The agent names its session and reads where it was.")
	r, err := call[workflow.StepReply](ctx, d, demoCall{
		tool: "get_step",
		args: map[string]any{"session_id": d.session},
		show: []string{"begin_step.step_id", "goal", "completed_steps", "stack.*.workflow"},
	})
	if err != nil {
		return err
	}
	if err := d.claim(r.BeginStep != nil && r.BeginStep.StepID == "proofread" && slices.Equal(r.CompletedSteps, []string{"gather", "news", "tips", "assemble"}),
		"the session is where it was, with all it had done"); err != nil {
		return err
	}
	finish := demoCall{
		tool: "finished_step",
		args: map[string]any{"step_id": "proofread", "outputs": map[string]any{"proofread_issue": "issue.md"}},
		show: []string{"status", "summary", "all_outputs", "stack"},
	}
	d.say("It finishes the last step: the workflow is complete.")
	if err := d.write("issue.md", "# November\n\nTwelve people joined.\n"); err != nil {
		return err
	}
	done, err := call[workflow.FinishReply](ctx, d, finish)
	if err != nil {
		return err
	}
	err = errors.Join(
		d.claim(done.Status == workflow.WorkflowComplete, "the workflow is complete"),
		d.claim(done.AllOutputs != nil && len(*done.AllOutputs) == 5, "the outputs of all five steps are in all_outputs"),
		d.claim(len(done.Stack) == 0, "nothing is left in progress"),
	)
	if err != nil {
		return err
	}
	d.say("Had the reply been lost, the same call would give it again, and nothing would move.")
	again, err := call[workflow.FinishReply](ctx, d, finish)
	if err != nil {
		return err
	}
	return d.claim(again.Status == done.Status && optional(again.Summary) == optional(done.Summary), "the reply is the same")
}

// jobNames are the names in a get_workflows reply.
func jobNames(r *workflow.WorkflowsReply) ([]string, error) {
	var jobs []workflow.JobInfo
	if err := json.Unmarshal(r.Jobs, &jobs); err != nil {
		return nil, fmt.Errorf("decoding the jobs: %w", err)
	}
	names := make([]string, len(jobs))
	for i, j := range jobs {
		names[i] = j.Name
	}
	return names, nil
}
