package page

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

// A runView shows a run: the steps of its workflow with their agents.
type runView struct {
	*attempt.RunReply
	Steps         runTree
	Waits         []waiting // what an open run waits for
	Fault         string    // why only the steps that have agents are shown
	Live          bool      // its leader waits or leads
	Before, After int       // steps that are left out
}

// A waiting is a step that a run waits for.
type waiting struct {
	Step *runStep
	Why  string
}

// A runTree is a workflow of a run: its entries, the members of a group together.
type runTree struct {
	SessionID, Workflow string
	Entries             [][]runStep
}

// A runStep is a step of a workflow of a run, with the processes for it.
type runStep struct {
	ID, Name, State string
	SessionID       string
	Agents          []attempt.RunStep // the newest first
	Took            string            // how long all have run that have ended, "" if none has
	Since           *string           // when the one that runs was started
	USD             *float64          // what all have cost, as far as that is known
	Last            string            // what the newest said last, or why it failed
	Until           *time.Time        // when a limit that it waits for is over
	Answer          *answerForm       // nil if nobody is asked to pass its outputs
	Nested          []runTree         // the workflows that its agents have started
	Brief           bool              // what its agents said is left out
}

// Agent returns the newest process for the step, or nil.
func (v runStep) Agent() *attempt.RunStep {
	if len(v.Agents) == 0 {
		return nil
	}
	return &v.Agents[0]
}

// Tries returns the newest processes for the step, nil if there was one at most.
func (v runStep) Tries() []attempt.RunStep {
	if len(v.Agents) < 2 {
		return nil
	}
	return v.Agents[:min(len(v.Agents), maxTries)]
}

// Complete reports whether the workflow is complete.
func (v *runView) Complete() bool { return v.State == string(attempt.RunComplete) }

// Minutes returns how long one execution of the leader may take, 0 for any time.
func (v *runView) Minutes() float64 { return v.Kept.MaxTime.Minutes() }

// run reads a run.
func (s *Site) run(ctx context.Context, who session.Caller, id string) (*runView, error) {
	r, err := s.Board.GetRun(ctx, who, attempt.RunArgs{RunID: id})
	if err != nil {
		return nil, err
	}
	v := &runView{RunReply: r, Live: isOpen(r.State)}
	if r.SessionID == nil {
		return v, nil
	}
	b := runBuilder{ctx: ctx, run: v, engine: s.Engine, last: s.lastLines(ctx, who, r)}
	v.Steps, err = b.tree(*r.SessionID)
	if err != nil {
		s.Logger.Debug("the sessions of a run cannot be read", "run", id, "error", err)
		v.Fault = "Its workflow cannot be read here, only what its agents did."
		b := runBuilder{run: v}
		v.Steps = b.alone(*r.SessionID)
	}
	if v.Live {
		v.Steps.each(func(x *runStep) {
			if why := waits[x.State]; why != "" {
				v.Waits = append(v.Waits, waiting{x, why})
			}
		})
	}
	v.fit()
	return v, nil
}

// waits says of steps in a state what they wait for.
var waits = map[string]string{
	waitsForPerson: "waits for a person to pass its outputs",
	waitsForSlot:   "waits for a slot: as many agents work as may work at once",
	waitsForLimit:  "waits until its provider’s limit is over",
}

// The states of steps that wait for something outside the run.
const (
	waitsForPerson = "waits for you"
	waitsForSlot   = "waits for a slot"
	waitsForLimit  = "waits for the end of a limit"
)

// A runBuilder puts the steps of a run together.
type runBuilder struct {
	run    *runView
	ctx    context.Context // of the request
	engine *workflow.Engine
	last   map[string]string // what agents that run said last, by execution
	depth  int
}

// maxNesting bounds workflows within workflows.
const maxNesting = 10

// tree returns a session of the run with those nested in it.
func (b *runBuilder) tree(id string) (t runTree, err error) {
	state, err := b.engine.Read(b.ctx, id)
	if err != nil {
		return t, err
	}
	def, err := b.engine.Definition(state)
	if err != nil {
		return t, err
	}
	t.SessionID, t.Workflow = id, state.JobName+"/"+state.WorkflowName
	for _, entry := range def.Workflow.Entries {
		var group []runStep
		for _, step := range entry {
			v := b.step(id, step)
			if of := def.Job.Step(step); of != nil {
				v.Name = of.Name
			}
			if b.depth < maxNesting {
				for _, child := range b.run.Kept.Children[id+"/"+step] {
					b.depth++
					nested, err := b.tree(child)
					b.depth--
					if err == nil { // else it was pruned
						v.Nested = append(v.Nested, nested)
					}
				}
			}
			v.Answer = answerFormOf(b.engine, state, step)
			v.State = b.state(state, &v)
			group = append(group, v)
		}
		t.Entries = append(t.Entries, group)
	}
	return t, nil
}

// alone returns the steps that have agents, if the sessions cannot be read.
func (b *runBuilder) alone(id string) runTree {
	t := runTree{SessionID: id, Workflow: b.run.Workflow}
	seen := map[[2]string]bool{}
	for _, x := range b.run.RunReply.Steps {
		key := [2]string{x.SessionID, x.StepID}
		if !seen[key] {
			seen[key] = true
			v := b.step(x.SessionID, x.StepID)
			v.State = v.Agents[0].State
			t.Entries = append(t.Entries, []runStep{v})
		}
	}
	return t
}

// step returns the agents of a step, without its state.
func (b *runBuilder) step(session, id string) runStep {
	v := runStep{ID: id, SessionID: session}
	var all time.Duration
	for _, x := range b.run.RunReply.Steps { // the oldest first
		if x.SessionID != session || x.StepID != id {
			continue
		}
		v.Agents = append([]attempt.RunStep{x}, v.Agents...)
		if x.Cost != nil && x.Cost.USD != nil {
			v.USD = new(*x.Cost.USD + *cmp.Or(v.USD, new(0.0)))
		}
		if x.StartedAt != nil && x.EndedAt != nil {
			from, _ := time.Parse(time.RFC3339Nano, *x.StartedAt) // this program has written them
			to, _ := time.Parse(time.RFC3339Nano, *x.EndedAt)
			all += to.Sub(from)
			v.Took = took(time.Time{}, new(time.Time{}.Add(all)))
		}
	}
	if x := v.Agent(); x != nil {
		for _, w := range b.run.Kept.Waits {
			if w.Kind == attempt.WaitsForLimit && w.SessionID == session && w.StepID == id && b.run.Live {
				v.Until = w.Until
			}
		}
		switch {
		case x.EndedAt == nil:
			v.Since, v.Last = x.StartedAt, b.last[x.ExecutionID]
		case x.Error != nil:
			v.Last = *x.Error
		default:
			v.Last = text(x.FinalMessage)
		}
	}
	return v
}

// state says in a few words where a step is.
func (b *runBuilder) state(s *machine.State, v *runStep) string {
	p, x := s.Progress(v.ID), v.Agent()
	current := s.Status == machine.Active && s.IsCurrent(v.ID)
	switch {
	case p != nil && p.CompletedAt != nil && !current:
		v.Until = nil
		return "finished"
	case v.Answer != nil:
		return waitsForPerson
	case !b.run.Live && x != nil && x.State != "completed":
		return x.State
	case !b.run.Live && current:
		return "left to do"
	case !current:
		return "not begun"
	case x != nil && x.EndedAt == nil && x.StartedAt == nil:
		return waitsForSlot
	case x != nil && x.EndedAt == nil:
		return "running"
	case v.Until != nil && v.Until.After(time.Now()):
		return waitsForLimit
	case len(v.Nested) > 0:
		return "waits for its workflow"
	case x == nil || b.run.Kept.Parallel > 0:
		return "waits for its turn"
	}
	return "tried again"
}

const (
	// maxSteps is how many steps the page of a run shows.
	maxSteps = 80
	// maxTries is how many processes for a step it shows.
	maxTries = 10
	// maxStepTexts is how many bytes of what agents said it shows.
	maxStepTexts = 14 << 10
)

// fit leaves out what does not fit on the page: first whole entries of the workflow that are finished, then
// those that have not begun, then texts, of finished steps first.
func (v *runView) fit() {
	over := -maxSteps
	v.Steps.each(func(*runStep) { over++ })
	idle := func(entry []runStep, state string) bool {
		return over > 0 && !slices.ContainsFunc(entry, func(x runStep) bool { return x.State != state })
	}
	for t := &v.Steps; len(t.Entries) > 0 && idle(t.Entries[0], "finished"); t.Entries = t.Entries[1:] {
		over, v.Before = over-t.entry(0), v.Before+len(t.Entries[0])
	}
	for t := &v.Steps; len(t.Entries) > 0 && idle(t.Entries[len(t.Entries)-1], "not begun"); t.Entries = t.Entries[:len(t.Entries)-1] {
		over, v.After = over-t.entry(len(t.Entries)-1), v.After+len(t.Entries[len(t.Entries)-1])
	}
	left := maxStepTexts
	for _, finished := range []bool{false, true} {
		v.Steps.each(func(x *runStep) {
			if (x.State == "finished") != finished {
				return
			}
			x.Last = jsontext.Clip(x.Last, maxLast)
			size := sizeOf(x.Last) + 250*min(len(x.Agents)-1, maxTries)
			if x.Brief = size > left; !x.Brief {
				left -= size
			}
		})
	}
}

// maxLast is how many bytes of what an agent said last a page shows.
const maxLast = 600

// entry returns how many steps there are in an entry, with those nested in them.
func (t *runTree) entry(i int) (n int) {
	one := runTree{Entries: t.Entries[i : i+1]}
	one.each(func(*runStep) { n++ })
	return n
}

// each calls do for each step of a tree.
func (t *runTree) each(do func(*runStep)) {
	for _, entry := range t.Entries {
		for i := range entry {
			do(&entry[i])
			for j := range entry[i].Nested {
				entry[i].Nested[j].each(do)
			}
		}
	}
}

const (
	// maxTailed is how many agents that run are shown with what they say.
	maxTailed = 20
	// lastMessages is how many of their newest messages are looked at.
	lastMessages = 3
)

// lastLines returns what the agents that run said last.
func (s *Site) lastLines(ctx context.Context, who session.Caller, r *attempt.RunReply) map[string]string {
	last := map[string]string{}
	for _, x := range r.Steps {
		if x.StartedAt == nil || x.EndedAt != nil || len(last) == maxTailed {
			continue
		}
		t, err := s.Board.TailAttempt(ctx, who, attempt.TailArgs{Target: attempt.Target{AttemptID: &r.RunID}, ExecutionID: &x.ExecutionID, Limit: new(lastMessages), Newest: true})
		if err != nil {
			continue // it is shown without
		}
		var lines []string
		for _, m := range t.Messages {
			if m.Kind == "system" {
				continue
			}
			line := strings.TrimSpace(m.Text)
			if m.Tool != "" {
				line = m.Tool + " " + gist(m.Text)
			}
			lines = append(lines, line)
		}
		last[x.ExecutionID] = strings.Join(lines, "\n")
	}
	return last
}
