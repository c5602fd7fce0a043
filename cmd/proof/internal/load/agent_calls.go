package load

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"deepwork/session/workflow"
)

// start starts a session on top of the stack.
func (a *agent) start(ctx context.Context, level int) (*account, error) {
	job := a.below(jobCount)
	parent := ""
	if top := a.top(); top != nil {
		parent = top.id
	}
	s := a.ledger.open(job, fmt.Sprintf("load %s: agent %d, round %d, level %d", a.number(), a.index, a.rounds, level), parent)
	how := a.losing(true)
	args := map[string]any{"goal": s.goal, "job_name": jobName(job), "workflow_name": workflowName, "request_id": "start " + a.number()}
	if parent != "" && (a.Stateless || how == crashed || a.chance(partNamed)) {
		args["parent_session_id"] = parent
	}
	m := a.book.mark(job, a.client.server.index)
	r, err := do[workflow.StartReply](ctx, a, how, workflow.ToolStart, args)
	if refusedWith(err) == "job_not_found" && a.book.wasAway(m) {
		return nil, errHeldUp
	}
	if err != nil {
		return nil, err
	}
	if r.BeginStep == nil || len(r.ConcurrentSteps) > 0 {
		return nil, wrongf("a wrong reply", "start_workflow: it begins with %s", shown(r))
	}
	s.mu.Lock()
	s.id = r.BeginStep.SessionID
	s.mu.Unlock()
	a.stack = append(a.stack, s)
	if err := a.beginsWith(s, m, true, []string{stepPlan}, r.BeginStep, nil); err != nil {
		return nil, err
	}
	if err := a.sameStack(r.Stack, a.stack); err != nil {
		return nil, err
	}
	return s, a.spot(s)
}

// beginsWith checks what a reply says of an entry that begins; moved tells that
// it has just begun, so that the file has its definition.
func (a *agent) beginsWith(s *account, m mark, moved bool, entry []string, first *workflow.StepInfo, rest []workflow.StepInfo) error {
	if first == nil || len(rest) != len(entry)-1 {
		return wrongf("a wrong reply", "session %s: %v was to begin, and %s with %d more did", s.id, entry, shown(first), len(rest))
	}
	oldest := 0
	for i, step := range entry {
		info := first
		if i > 0 {
			info = &rest[i-1]
		}
		if info.SessionID != s.id {
			return wrongf("a wrong reply", "session %s: the reply is about session %s", s.id, info.SessionID)
		}
		save, err := a.book.step(m, info, step)
		if err != nil {
			return a.misdefined(m, "session %s: %v", s.id, err)
		}
		if i > 0 && save != oldest {
			return a.misdefined(m, "session %s: one reply is made of the saves %d and %d of job.yml", s.id, oldest, save)
		}
		oldest = save
	}
	if moved {
		s.began(oldest)
	}
	return nil
}

// finishing is the event and the arguments of a finished_step.
func (a *agent) finishing(s *account, step string) (*event, map[string]any) {
	name, list := outputOf(step)
	value := workflow.OutputValue{Paths: []string{outputPath(a.below(outputFiles))}, List: list}
	if list {
		value.Paths = append(value.Paths, outputPath(a.below(outputFiles)))
	}
	e := event{did: didFinish, step: step, outputs: workflow.Outputs{{Key: name, Value: value}}, notes: "note " + a.number()}
	args := map[string]any{"outputs": json.RawMessage(encoded(e.outputs)), "notes": e.notes, "step_id": step}
	if a.chance(partRequest) {
		args["request_id"] = "finish " + a.number()
	}
	return s.ask(e), args
}

// finish finishes a step that is alone in its entry.
func (a *agent) finish(ctx context.Context, s *account, step string) error {
	e, args := a.finishing(s, step)
	how := a.losing(true)
	if a.Stateless || how == crashed || a.chance(partNamed) {
		args["session_id"] = s.id
	}
	m := a.book.mark(s.job, a.client.server.index)
	r, err := do[workflow.FinishReply](ctx, a, how, workflow.ToolFinish, args)
	if err != nil {
		if refusedWith(err) != "" {
			s.never(e)
		}
		return err
	}
	s.ack(e, a.client.server.index)
	return a.finished(s, m, step, r)
}

// finished checks the reply to the end of the first step or of the last.
func (a *agent) finished(s *account, m mark, step string, r *workflow.FinishReply) error {
	if step == stepWrap {
		return a.completed(s, r)
	}
	next := entries(a.Group)[1]
	if r.Status != workflow.NextStep {
		return wrongf("a wrong reply", "session %s: the reply to the end of %s is %s", s.id, step, shown(r))
	}
	if err := a.beginsWith(s, m, true, next, r.BeginStep, r.ConcurrentSteps); err != nil {
		return err
	}
	if err := a.sameStack(r.Stack, a.stack); err != nil {
		return err
	}
	if top := r.Stack[len(r.Stack)-1]; top.Step != next[0] {
		return wrongf("a wrong stack", "session %s: it is told to be at %s, and %s has begun", s.id, top.Step, next[0])
	}
	return a.spot(s)
}

// completed checks the reply to the end of a session, and takes it down.
func (a *agent) completed(s *account, r *workflow.FinishReply) error {
	a.pop()
	m, err := s.model(a.Group, nil)
	if err != nil {
		return wrongf(wrongDoubled, "session %s: %v", s.id, err)
	}
	if r.Status != workflow.WorkflowComplete || r.AllOutputs == nil || encoded(*r.AllOutputs) != encoded(m.outputs()) {
		return wrongf("a wrong reply", "session %s: with the outputs %s it ended with %s", s.id, encoded(m.outputs()), shown(r))
	}
	return a.resumed(s, r.ResumedWorkflow, r.ResumedStep, r.Stack)
}

// resumed checks what goes on below a session that has ended.
func (a *agent) resumed(s *account, resumed, step *string, stack []workflow.StackEntry) error {
	parent := a.top()
	switch {
	case parent == nil && (resumed != nil || step != nil):
		return wrongf("a wrong reply", "session %s: nothing is below it, and %s is told to go on", s.id, shown(resumed))
	case parent != nil && (resumed == nil || step == nil || *resumed != jobName(parent.job)+"/"+workflowName || *step != entries(a.Group)[1][0]):
		return wrongf("a wrong reply", "session %s: session %s (%s) is to go on below it, and %s at %s is told to", s.id, parent.id, jobName(parent.job), shown(resumed), shown(step))
	}
	return a.sameStack(stack, a.stack)
}

// finishMember finishes one member of the group; it tells whether the next step
// began with it.
func (a *agent) finishMember(ctx context.Context, s *account, step string) (advanced bool, err error) {
	e, args := a.finishing(s, step)
	if a.Stateless || a.chance(partNamed) {
		args["session_id"] = s.id
	}
	m := a.book.mark(s.job, a.client.server.index)
	r, err := do[workflow.FinishReply](ctx, a, a.losing(a.Group == 1), workflow.ToolFinish, args)
	if err != nil {
		if refusedWith(err) != "" {
			s.never(e)
		}
		return false, err
	}
	s.ack(e, a.client.server.index)
	if r.BeginStep != nil {
		return true, a.finishedGroup(s, m, r)
	}
	if r.Status != workflow.NextStep || len(r.PendingConcurrentSteps) == 0 || r.Feedback == nil || slices.Contains(r.PendingConcurrentSteps, step) {
		return false, wrongf("a wrong reply", "session %s: the reply to the end of %s, before its group's, is %s", s.id, step, shown(r))
	}
	return false, a.sameStack(r.Stack, a.stack)
}

// finishedGroup is finished without a look at the file, which other members
// may be about to change.
func (a *agent) finishedGroup(s *account, m mark, r *workflow.FinishReply) error {
	if r.Status != workflow.NextStep {
		return wrongf("a wrong reply", "session %s: the reply to the end of its group is %s", s.id, shown(r))
	}
	if err := a.beginsWith(s, m, true, []string{stepWrap}, r.BeginStep, r.ConcurrentSteps); err != nil {
		return err
	}
	return a.sameStack(r.Stack, a.stack)
}

// goBack goes back to the first step.
func (a *agent) goBack(ctx context.Context, s *account) error {
	e := s.ask(event{did: didGoTo, step: stepPlan})
	args := map[string]any{"step_id": stepPlan, "session_id": s.id, "request_id": "back " + a.number()}
	m := a.book.mark(s.job, a.client.server.index)
	r, err := do[workflow.GoToReply](ctx, a, a.losing(true), workflow.ToolGoTo, args)
	if err != nil {
		if refusedWith(err) != "" {
			s.never(e)
		}
		return err
	}
	s.ack(e, a.client.server.index)
	if want := stepIDs(a.Group); !slices.Equal(r.InvalidatedSteps, want) {
		return wrongf("a wrong reply", "session %s: going back cleared %v, not %v", s.id, r.InvalidatedSteps, want)
	}
	if err := a.beginsWith(s, m, true, []string{stepPlan}, r.BeginStep, r.ConcurrentSteps); err != nil {
		return err
	}
	if err := a.sameStack(r.Stack, a.stack); err != nil {
		return err
	}
	return a.spot(s)
}

// abort ends a session before its last step.
func (a *agent) abort(ctx context.Context, s *account) error {
	e := s.ask(event{did: didAbort, notes: "enough " + a.number()})
	args := map[string]any{"explanation": e.notes, "session_id": s.id, "request_id": "abort " + a.number()}
	r, err := do[workflow.AbortReply](ctx, a, a.losing(true), workflow.ToolAbort, args)
	if err != nil {
		if refusedWith(err) != "" {
			s.never(e)
		}
		return err
	}
	s.ack(e, a.client.server.index)
	a.pop()
	if r.AbortedWorkflow != jobName(s.job)+"/"+workflowName || r.AbortedStep != stepWrap || r.Explanation != e.notes {
		return wrongf("a wrong reply", "session %s: the reply to its abort is %s", s.id, shown(r))
	}
	return a.resumed(s, r.ResumedWorkflow, r.ResumedStep, r.Stack)
}

// read reads where the session on top is, which is in its group; named takes it up.
func (a *agent) read(ctx context.Context, s *account, named bool) (*workflow.StepReply, error) {
	args := map[string]any{}
	if a.Stateless || named || a.chance(partNamed) {
		args["session_id"] = s.id
	}
	m := a.book.mark(s.job, a.client.server.index)
	r, err := do[workflow.StepReply](ctx, a, a.losing(false), toolRead, args)
	if err != nil {
		return nil, err
	}
	if r.Goal != s.goal || !slices.Equal(r.CompletedSteps, []string{stepPlan}) {
		return nil, wrongf("a wrong reply", "session %s: get_step tells of the goal %q and the finished steps %v", s.id, r.Goal, r.CompletedSteps)
	}
	if err := a.beginsWith(s, m, false, entries(a.Group)[1], r.BeginStep, r.ConcurrentSteps); err != nil {
		return nil, err
	}
	return r, a.sameStack(r.Stack, a.stack)
}

// list lists the jobs, and finds all of ours as they are.
func (a *agent) list(ctx context.Context) error {
	var marks [jobCount]mark
	for job := range marks {
		marks[job] = a.book.mark(job, a.client.server.index)
	}
	r, err := do[workflow.WorkflowsReply](ctx, a, kept, "get_workflows", map[string]any{})
	if err != nil {
		return err
	}
	var jobs []workflow.JobInfo
	if err := json.Unmarshal(r.Jobs, &jobs); err != nil {
		return wrongf("a reply that cannot be read", "get_workflows: %v", err)
	}
	found := 0
	for _, j := range jobs {
		job := jobIndex(j.Name)
		if job < 0 {
			continue
		}
		found++
		if err := a.book.listed(marks[job], j.Summary); err != nil {
			return a.misdefined(marks[job], "get_workflows: %v", err)
		}
	}
	if found != jobCount && !slices.ContainsFunc(marks[:], a.book.wasAway) {
		return wrongf(wrongDefinition, "get_workflows: it lists %d of the %d jobs: %.1000s; errors: %.1000s", found, jobCount, r.Jobs, r.Errors)
	}
	return nil
}

// spot looks now and then at the file of the session on top, whose last
// transition was just acknowledged: it must be on disk by then, and the file must
// name the server that serves it.
func (a *agent) spot(s *account) error {
	if !a.chance(partSpot) {
		return nil
	}
	state, err := a.archive.Read(s.id)
	if err != nil {
		return wrongf(wrongFile, "session %s, just after it moved: %v", s.id, err)
	}
	j := judge{ledger: a.ledger, book: a.book, wrong: a.wrong}
	j.session(s, state)
	a.ledger.saw(s.id, a.client.server.index, state.Owner)
	a.spots.Add(1)
	return nil
}
