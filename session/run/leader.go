package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/attempt/runner"
	"deepwork/session/workflow/machine"
)

const (
	// endWithin is how long an agent may go on after its step is finished.
	endWithin = 30 * time.Second
)

// A place is a step of a session: what an agent is for.
type place struct{ session, step string }

// A leader leads one run. Only the goroutine of Lead uses it, except for what mu guards.
type leader struct {
	lead *attempt.Lead
	at   Workplace

	retries int
	agents  map[place]*agent // that run
	failed  map[place]string // why no agent is started for it any more
	silent  map[place]bool   // whether the last agent for it has not connected to the endpoint
	ended   chan *agent      // unbuffered; received until all agents have ended
	running sync.WaitGroup

	progress task.WorkflowProgress // that the board has

	mu sync.Mutex // guards lead.Run.Children
}

// An agent is one process.
type agent struct {
	place
	cancel context.CancelFunc
	x      *task.StepExecution // how it ended
	err    error
	called bool // the endpoint
	done   bool // its step is finished
	timer  *time.Timer
}

// finished gives an agent whose step is finished some time to end.
func (a *agent) finished() {
	a.handedIn()
	a.done = true
}

// Lead is an attempt.Leader that works at a Workplace. An agent that ends without finishing its step is sent
// back at most retries times.
func Lead(ctx context.Context, l *attempt.Lead, at Workplace, retries int) attempt.RunEnd {
	d := &leader{lead: l, at: at, retries: retries, agents: map[place]*agent{}, failed: map[place]string{}, silent: map[place]bool{}, ended: make(chan *agent)}
	end, err := d.run(ctx)
	for err == nil && end.State == attempt.RunComplete && len(d.agents) > 0 && ctx.Err() == nil {
		for _, a := range d.agents {
			a.finished()
		}
		_ = d.wait(ctx, time.Time{}) // the end of ctx is noticed by the loop
	}
	d.endAgents()
	if err != nil && ctx.Err() == nil {
		why := err.Error()
		if refused, is := errors.AsType[*session.Error](err); is {
			why = refused.Message
		}
		end = attempt.RunEnd{State: attempt.RunStopped, Step: end.Step, Reason: why}
	}
	return end
}

func (d *leader) run(ctx context.Context) (end attempt.RunEnd, err error) {
	r := &d.lead.Run
	if r.SessionID == "" {
		if r.SessionID, err = d.at.Start(ctx, r.JobName, r.WorkflowName, r.Goal, "run "+d.lead.Attempt.ID); err != nil {
			return end, fmt.Errorf("starting the workflow %s/%s: %w", r.JobName, r.WorkflowName, err)
		}
		if err := d.save(ctx); err != nil {
			return end, err
		}
	}
	for {
		s, err := d.at.State(ctx, r.SessionID)
		if err != nil {
			return end, err
		}
		end.Step = s.CurrentStepID
		if now := (task.WorkflowProgress{SessionID: s.SessionID, Status: string(s.Status), Step: s.CurrentStepID}); now != d.progress {
			if err := d.lead.Progress(ctx, now); err != nil {
				return end, err
			}
			d.progress = now
		}
		if s.Status != machine.Active {
			if err := d.keepWaits(ctx, nil); err != nil {
				return end, err
			}
		}
		switch s.Status {
		case machine.Completed:
			return attempt.RunEnd{State: attempt.RunComplete}, nil
		case machine.Aborted:
			return attempt.RunEnd{State: attempt.RunStopped, Step: s.CurrentStepID, Reason: "The workflow was aborted: " + cmp.Or(deref(s.AbortReason), "no reason was given.")}, nil
		}
		due, err := d.due(ctx, s)
		if err == nil {
			err = d.keepWaits(ctx, due.waits)
		}
		if err != nil {
			return end, err
		}
		if due.moved {
			continue
		}
		if (len(due.steps) > 0 || len(d.agents) > 0) && !d.ending() {
			if why, err := d.lead.OverBudget(ctx); err != nil {
				return end, err
			} else if why != "" {
				return attempt.RunEnd{State: attempt.RunPaused, Step: s.CurrentStepID, Reason: why}, nil
			}
			if err := d.start(ctx, due.steps); outdated(err) {
				continue
			} else if err != nil {
				return end, err
			}
		}
		if len(d.agents) == 0 && due.until.IsZero() {
			return d.stuck(s.CurrentStepID), nil
		}
		if err := d.wait(ctx, due.until); err != nil {
			return end, err
		}
	}
}

// stuck is the end of a run of which no step can go on.
func (d *leader) stuck(step string) attempt.RunEnd {
	if len(d.failed) == 0 {
		return attempt.RunEnd{State: attempt.RunStopped, Step: step, Reason: "No step of the workflow is left to do, and it is not complete; look at its session."}
	}
	var steps, reasons []string
	for _, p := range slices.SortedFunc(maps.Keys(d.failed), func(a, b place) int { return cmp.Or(cmp.Compare(a.session, b.session), cmp.Compare(a.step, b.step)) }) {
		steps, reasons = append(steps, p.step), append(reasons, fmt.Sprintf("Step %s: %s", p.step, d.failed[p]))
	}
	return attempt.RunEnd{State: attempt.RunStopped, Step: strings.Join(steps, ", "), Reason: strings.Join(reasons, "\n")}
}

// A job is a step that an agent is to be started for.
type job struct {
	place
	state  *machine.State
	reply  *machine.StepReply
	before []task.StepExecution // of this step, the newest first
	ended  []*machine.State     // the workflows that its agents have started and that have ended since
	told   string               // why a person cannot pass what was handed in, or what they passed cannot be finished; or ""
}

// due is the work of one moment.
type due struct {
	steps []job
	until time.Time // when to look again; zero means when something has changed
	waits []attempt.RunWait
	moved bool           // a session has changed meanwhile
	open  map[place]bool // the steps that are not finished
}

// lookAt has the leader look again at a time.
func (now *due) lookAt(t time.Time) {
	if now.until.IsZero() || t.Before(now.until) {
		now.until = t
	}
}

// due finds the steps of a session, and of those nested in it, that need an agent.
func (d *leader) due(ctx context.Context, root *machine.State) (now due, err error) {
	all, err := d.lead.Steps(ctx)
	if err != nil {
		return now, err
	}
	now.open = map[place]bool{}
	if err := d.walk(ctx, root, all, &now); err != nil {
		return now, err
	}
	for p, a := range d.agents {
		if !now.open[p] {
			a.finished()
		}
	}
	return now, nil
}

// ending reports whether an agent runs whose step is finished: what it costs and the name of its
// conversation are known when it has ended, and what comes after it may depend on both.
func (d *leader) ending() bool {
	for _, a := range d.agents {
		if a.done {
			return true
		}
	}
	return false
}

func (d *leader) walk(ctx context.Context, s *machine.State, all []task.StepExecution, now *due) error {
	reply, err := d.at.Step(ctx, s.SessionID, nil)
	if outdated(err) {
		now.moved = true
		return nil
	}
	if err != nil {
		return err
	}
	for _, m := range reply.Members {
		p := place{s.SessionID, m.StepID}
		a := d.agents[p]
		if m.State == "completed" {
			continue
		}
		now.open[p] = true
		told, waits, err := d.person(ctx, s, p, now)
		if err != nil {
			return err
		}
		if waits || a != nil || d.failed[p] != "" {
			continue
		}
		children, ended, err := d.children(ctx, p)
		if err != nil {
			return err
		}
		if len(children) > 0 { // its agent has ended: others do the nested workflow
			for _, c := range children {
				if err := d.walk(ctx, c, all, now); err != nil {
					return err
				}
			}
			continue
		}
		j := job{p, s, reply, of(all, p), ended, told}
		if why := d.exhausted(j); why != "" {
			d.failed[p] = why
			continue
		}
		if until := attempt.LimitOver(j.before); until.After(time.Now()) {
			now.lookAt(until)
			now.waits = append(now.waits, attempt.RunWait{Kind: attempt.WaitsForLimit, SessionID: p.session, StepID: p.step, Since: *j.before[0].EndedAt, Until: &until})
			continue
		}
		now.steps = append(now.steps, j)
	}
	return nil
}

// of returns the executions for a step.
func of(all []task.StepExecution, p place) []task.StepExecution {
	return slices.DeleteFunc(slices.Clone(all), func(x task.StepExecution) bool { return x.SessionID != p.session || x.StepID != p.step })
}

// children returns the workflows that agents of a step have started: those that are active, and those that
// have ended.
func (d *leader) children(ctx context.Context, p place) (active, ended []*machine.State, err error) {
	d.mu.Lock()
	ids := slices.Clone(d.lead.Run.Children[p.session+"/"+p.step])
	d.mu.Unlock()
	for _, id := range ids {
		s, err := d.at.State(ctx, id)
		if session.CodeOf(err) == "unknown_session" {
			continue // it was pruned
		}
		if err != nil {
			return nil, nil, err
		}
		if s.Status == machine.Active {
			active = append(active, s)
		} else {
			ended = append(ended, s)
		}
	}
	return active, ended, nil
}

// exhausted returns why no agent is started again for a step, or "". A limit of the provider, the end of
// a leader and outputs that a person was asked about do not count, nor what was before the run was resumed.
func (d *leader) exhausted(j job) string {
	tries, children := 0, len(j.ended)
	why := ""
	for _, x := range j.before {
		if x.CreatedAt.Before(d.lead.Since) || x.LimitedUntil != nil || asked(x, j.state.Progress(j.step)) || x.State != task.Completed && x.State != task.Failed {
			continue
		}
		if tries++; why == "" {
			why = deref(x.Error)
		}
	}
	if tries-children <= d.retries {
		return ""
	}
	agents := "1 agent"
	if tries > 1 {
		agents = fmt.Sprintf("%d agents", tries)
	}
	text := agents + " ended without finishing it."
	if why != "" {
		text += " " + why
	}
	if d.silent[j.place] {
		text += fmt.Sprintf(" The last one never connected to the MCP server %s: its program must know that server ('Runs' in the README).", runner.MCPName)
	}
	return text
}

// outdated reports whether an error says that a session has moved on since it was read.
func outdated(err error) bool {
	return slices.Contains([]string{"session_ended", "step_finished", "step_not_current"}, session.CodeOf(err))
}

// start starts agents for steps, as many as may run at once.
func (d *leader) start(ctx context.Context, steps []job) error {
	for _, j := range steps {
		if most := d.lead.Run.Parallel; most > 0 && len(d.agents) >= most {
			return nil
		}
		a, err := d.plan(ctx, j)
		if outdated(err) {
			return err
		}
		if err != nil {
			d.failed[j.place] = reason(err)
			continue
		}
		x := &agent{place: j.place}
		var running context.Context
		running, x.cancel = context.WithCancel(ctx)
		c, over, err := d.at.Admit(Grant{Execution: a.Execution.ID, Session: j.session, Step: j.step, Child: func(ctx context.Context, parent, id string) error { return d.adopt(ctx, j.place, parent, id) }})
		if err != nil {
			x.cancel()
			return err
		}
		a.Env, a.MCP = c.Env, c.MCP
		a.Started = func() { d.lead.Note("step %s: started with %s", j.step, a.Execution.Executor) }
		d.agents[j.place] = x
		d.running.Go(func() {
			defer x.cancel()
			x.x, x.err = d.lead.RunAgent(running, *a)
			x.called = over()
			d.ended <- x
			if x.err == nil { // beside what follows, which does not wait for it
				d.lead.Note("step %s: its agent %s", x.step, x.x.State)
			}
		})
	}
	return nil
}

// plan says what to run for a step.
func (d *leader) plan(ctx context.Context, j job) (*attempt.Agent, error) {
	r, at := &d.lead.Run, d.lead.Attempt
	a := &attempt.Agent{Execution: task.StepExecution{ID: uuid.NewString(), AgentID: uuid.NewString(), SessionID: j.session, StepID: j.step, Executor: at.Executor, Variant: at.Variant}}
	x := &a.Execution
	if named := d.at.Executor(ctx, j.state, j.step); named != "" {
		name, variant, has := strings.Cut(named, ":")
		if x.Executor, x.Variant = name, nil; has {
			x.Variant = &variant
		}
	}
	reply, err := d.at.Step(ctx, j.session, &j.step)
	if err != nil {
		return nil, err
	}
	step := reply.BeginStep
	if step == nil {
		return nil, fmt.Errorf("the step is not described; look at its session")
	}
	var before *task.StepExecution
	if len(j.before) > 0 {
		before = &j.before[0]
		x.AgentID = before.AgentID
		if before.Executor == x.Executor && before.Conversation != nil && d.lead.Continues(ctx, x.Executor, x.Variant) {
			x.Conversation = before.Conversation
			switch {
			case j.told != "" || failedSince(j.state.Progress(j.step), before):
				a.Prompt = againPrompt(step, j.state, j.told)
			case before.LimitedUntil != nil:
				a.Prompt = limitPrompt(step)
			case len(j.ended) > 0:
				a.Prompt = childPrompt(step, j.ended)
			default:
				a.Prompt = againPrompt(step, j.state, "")
			}
			a.Prompt = adviceFor(a.Prompt, d.lead.Advice)
			return a, nil
		}
	} else if r.Resume && len(j.reply.Members) == 1 {
		x.Conversation = d.previous(ctx, j, x.Executor)
	}
	if a.Prompt, err = firstPrompt(j.state.Goal, j.state, step, others(j), before, j.told, !r.InPlace); err == nil && len(j.ended) > 0 {
		a.Prompt += "\n" + childPrompt(step, j.ended)
	}
	a.Prompt = adviceFor(a.Prompt, d.lead.Advice)
	return a, err
}

// others are the steps of the group that other agents do.
func others(j job) (all []machine.StepInfo) {
	for _, m := range j.reply.Members {
		if m.StepID != j.step && m.State != "completed" {
			all = append(all, machine.StepInfo{StepID: m.StepID})
		}
	}
	return all
}

// previous returns the conversation of the step before, if the same executor did it and can go on.
func (d *leader) previous(ctx context.Context, j job, executor string) *string {
	all, err := d.lead.Steps(ctx)
	if err != nil || len(j.reply.CompletedSteps) == 0 {
		return nil
	}
	last := j.reply.CompletedSteps[len(j.reply.CompletedSteps)-1].StepID
	done := of(all, place{j.session, last})
	if len(done) == 0 || done[0].Executor != executor || done[0].Conversation == nil || !d.lead.Continues(ctx, done[0].Executor, done[0].Variant) {
		return nil
	}
	return done[0].Conversation
}

// adopt records a workflow that the agent of a step has started, perhaps for a step of another one.
func (d *leader) adopt(ctx context.Context, p place, parent, id string) error {
	if parent != p.session {
		s, err := d.at.State(ctx, parent)
		if err != nil {
			return err
		}
		p = place{parent, s.CurrentStepID}
	}
	d.mu.Lock()
	if d.lead.Run.Children == nil {
		d.lead.Run.Children = map[string][]string{}
	}
	key := p.session + "/" + p.step
	d.lead.Run.Children[key] = append(slices.Clone(d.lead.Run.Children[key]), id)
	d.mu.Unlock()
	return d.save(ctx)
}

func (d *leader) save(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lead.Save(ctx)
}

// wait waits until something has changed.
func (d *leader) wait(ctx context.Context, until time.Time) error {
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if !until.IsZero() {
		bounded, cancel = context.WithDeadline(ctx, until)
	}
	defer cancel()
	select {
	case x := <-d.ended:
		d.end(x)
	case <-d.at.Moved():
	case <-bounded.Done():
		return ctx.Err()
	}
	return nil
}

// end takes an agent that has ended from those that run.
func (d *leader) end(x *agent) {
	delete(d.agents, x.place)
	if x.timer != nil {
		x.timer.Stop()
	}
	if x.err != nil {
		d.failed[x.place] = reason(x.err)
	}
	d.silent[x.place] = !x.called
}

// endAgents ends the agents that run, and waits for them.
func (d *leader) endAgents() {
	for _, x := range d.agents {
		x.cancel()
	}
	for len(d.agents) > 0 {
		d.end(<-d.ended)
	}
	d.running.Wait()
}

func reason(err error) string {
	if refused, is := errors.AsType[*session.Error](err); is {
		return refused.Message
	}
	return err.Error()
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
