package run

import (
	"context"
	"slices"
	"strings"
	"time"

	definition "deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/attempt/transcript"
	"deepwork/session/board"
	"deepwork/session/machine"
)

// A View describes what a run is doing, step by step and in words. The tool get_run, the pages and the
// command line show it.
type View struct {
	*board.RunReply
	Tree  Tree
	Live  bool  // its leader waits or leads, and is not gone
	Fault error // why only the steps with agents are known, or nil
}

// A Tree is a workflow of a run: its entries, with the members of a group together.
type Tree struct {
	SessionID, Workflow string
	Entries             [][]*Step
}

// A Step is a step of a workflow of a run.
type Step struct {
	SessionID, ID, Name string
	State               board.State
	Why                 string                // what it waits for outside of the run, or ""
	Agents              []board.RunStep       // its agent processes, newest first
	Took                time.Duration         // how long the ended ones ran
	Since               *string               // when the running one was started
	USD                 *float64              // what all have cost, as far as known
	Last                string                // the last message of the newest, or why it failed
	Until               *time.Time            // when the limit of its agent's provider ends
	Session             *machine.State        // nil if it could not be read
	Definition          *definition.Step      // nil if it could not be read
	Progress            *machine.StepProgress // nil if it has not begun, or could not be read
	Nested              []Tree                // workflows that its agents have started, or the step's own
	List                *List                 // of a step that stands for those of all items, which are nested in it
}

// The values of Step.Why.
const (
	whyPerson = "waits for a person to pass its outputs"
	whyRounds = "waits for a person to say how its rounds go on"
	whySlot   = "waits for a slot: as many agents work as may work at once"
	whyItems  = "has items that wait for a person"
	whyLimit  = "waits until its provider’s limit is over"
)

// Agent returns the newest process for the step, or nil.
func (s *Step) Agent() *board.RunStep {
	if len(s.Agents) == 0 {
		return nil
	}
	return &s.Agents[0]
}

// Current reports whether the step has begun in an active session, and is neither finished nor left.
func (s *Step) Current() bool {
	return s.Session != nil && s.Session.Status == machine.Active && s.Progress.Current()
}

// Base returns the step's id without the index of its item.
func (s *Step) Base() string {
	id, _, _ := definition.SplitItem(s.ID)
	return id
}

// Each calls do for each step of a tree, in order; the steps of a nested workflow follow the step that
// contains it.
func (t *Tree) Each(do func(s *Step, depth int)) { t.each(do, 0, true) }

// Rows is Each with one step for those of all items of a list.
func (t *Tree) Rows(do func(s *Step, depth int)) { t.each(do, 0, false) }

func (t *Tree) each(do func(*Step, int), depth int, items bool) {
	for _, entry := range t.Entries {
		for _, s := range entry {
			if s.List == nil || !items {
				do(s, depth)
			}
			for i := 0; i < len(s.Nested) && (s.List == nil || items); i++ {
				s.Nested[i].each(do, depth+1, items)
			}
		}
	}
}

// Sessions is where a View finds the sessions of a run, such as an Engine of session/workflow.
type Sessions interface {
	Read(ctx context.Context, id string) (*machine.State, error)
	Definition(*machine.State) (*machine.Definition, error)
}

// Look returns the current view of a run, and sets the plan of r. last has the last messages of running
// agents, by execution.
func Look(ctx context.Context, r *board.RunReply, sessions Sessions, last map[string]string) *View {
	v := &View{RunReply: r, Live: r.Open && r.State != board.Interrupted}
	if r.SessionID == nil {
		return v
	}
	r.Waits, r.Kept.Waits = slices.Clone(r.Waits), slices.Clone(r.Kept.Waits)
	b := viewBuilder{v, ctx, sessions, last, map[stepRef][]board.RunStep{}}
	for _, x := range slices.Backward(r.Steps) {
		p := stepRef{x.SessionID, x.StepID}
		b.agents[p] = append(b.agents[p], x)
	}
	if v.Tree, v.Fault = b.tree(*r.SessionID, 0); v.Fault != nil && len(r.Steps) > 0 {
		v.Tree = b.alone(*r.SessionID)
	}
	v.Tree.Each(func(s *Step, _ int) {
		if s.Progress == nil && s.Base() != s.ID { // its item has not begun
			return
		}
		r.Plan = append(r.Plan, board.PlanStep{SessionID: s.SessionID, StepID: s.ID, State: s.State})
		if !v.Live && s.State != board.WaitingForYou { // a person has answered since the leader recorded the wait
			r.Waits = slices.DeleteFunc(r.Waits, func(w board.RunWaits) bool {
				return w.For == board.WaitsForPerson && w.SessionID == s.SessionID && w.StepID == s.ID
			})
			r.Kept.Waits = slices.DeleteFunc(r.Kept.Waits, func(w board.RunWait) bool {
				return w.Kind == board.WaitsForPerson && w.SessionID == s.SessionID && w.StepID == s.ID
			})
		}
	})

	return v
}

// A viewBuilder puts together the steps of a run.
type viewBuilder struct {
	run      *View
	ctx      context.Context // of the call
	sessions Sessions
	last     map[string]string
	agents   map[stepRef][]board.RunStep // newest first
}

// maxNesting limits workflows within workflows.
const maxNesting = 10

// tree returns a session of the run with those nested in it.
func (b *viewBuilder) tree(id string, depth int) (t Tree, err error) {
	state, err := b.sessions.Read(b.ctx, id)
	if err != nil {
		return t, err
	}
	def, err := b.sessions.Definition(state)
	t.SessionID, t.Workflow = id, state.JobName+"/"+state.WorkflowName
	if err != nil { // then only the steps that have begun are known
		for _, p := range state.StepProgress {
			s := b.withAgents(id, p.Key)
			s.Session, s.Progress = state, p.Value
			s.State, s.Why = b.state(s)
			t.Entries = append(t.Entries, []*Step{s})
		}
		return t, err
	}

	for i := 0; i < len(def.Workflow.Entries); i++ {
		var group []*Step
		for _, step := range state.Displayed(def, i) {
			if _, _, item := definition.SplitItem(step); item {
				group = []*Step{b.list(state, def, i, depth)}
				_, i = def.Workflow.Span(def.Workflow.Form(i))
				i--
				break
			}
			group = append(group, b.step(state, def, step, state.Progress(step), depth))
		}
		t.Entries = append(t.Entries, group)
	}

	return t, nil
}

// step returns a step of a session with the workflows that are nested in it.
func (b *viewBuilder) step(
	state *machine.State, def *machine.Definition, id string, progress *machine.StepProgress, depth int,
) *Step {
	s := b.withAgents(state.SessionID, id)
	s.Session, s.Progress = state, progress
	if of := def.Job.Step(s.Base()); of != nil {
		s.Definition, s.Name = of, of.Name
	}
	if depth < maxNesting {
		children := b.run.Kept.Children[s.SessionID+"/"+id]
		if progress != nil && progress.Child != "" {
			children = append(slices.Clip(children), progress.Child)
		}
		for _, child := range children {
			if nested, err := b.tree(child, depth+1); err == nil { // on an error the session was pruned
				s.Nested = append(s.Nested, nested)
			}
		}
	}

	s.State, s.Why = b.state(s)
	return s
}

// alone returns the steps that have agents, if the sessions cannot be read.
func (b *viewBuilder) alone(id string) Tree {
	t := Tree{SessionID: id, Workflow: b.run.Workflow}
	seen := map[stepRef]bool{}
	for _, x := range b.run.Steps {
		p := stepRef{x.SessionID, x.StepID}
		if seen[p] {
			continue
		}
		seen[p] = true
		s := b.withAgents(p.session, p.step)
		s.State = s.Agents[0].State
		if w := b.wait(p); w != nil && w.Kind == board.WaitsForPerson {
			s.State, s.Why = board.WaitingForYou, whyPerson
		} else if w != nil && b.run.Live {
			s.State, s.Why = board.WaitingForLimit, whyLimit
		}

		t.Entries = append(t.Entries, []*Step{s})
	}

	return t
}

// wait returns what a step waits for according to the leader, or nil.
func (b *viewBuilder) wait(p stepRef) *board.RunWait {
	i := slices.IndexFunc(b.run.Kept.Waits, func(w board.RunWait) bool {
		return w.SessionID == p.session && w.StepID == p.step
	})
	if i < 0 {
		return nil
	}
	return &b.run.Kept.Waits[i]
}

// withAgents returns a step with its agents, without its state.
func (b *viewBuilder) withAgents(session, id string) *Step {
	s := &Step{ID: id, SessionID: session, Agents: b.agents[stepRef{session, id}]}
	for _, x := range s.Agents {
		if x.Cost != nil {
			s.add(x.Cost.USD)
		}
		s.Took += x.Took()
	}
	x := s.Agent()
	if x == nil {
		return s
	}
	if w := b.wait(stepRef{session, id}); w != nil && w.Kind == board.WaitsForLimit && b.run.Live {
		s.Until = w.Until
	}
	switch {
	case x.EndedAt == nil:
		s.Since, s.Last = x.StartedAt, b.last[x.ExecutionID]
	case x.Why != "":
		s.Last = x.Why
	default:
		s.Last = deref(x.FinalMessage)
	}

	return s
}

// state returns the state of a step.
func (b *viewBuilder) state(s *Step) (state board.State, why string) {
	p, x := s.Progress, s.Agent()
	current := s.Current()
	switch {
	case p.Done():
		s.Until = nil
		return board.Completed, ""
	case p != nil && p.Dropped != nil:
		return board.Dropped, ""
	case current && p.AsksPerson().Turn().About != "":
		return board.WaitingForYou, whyRounds
	case current && p.AsksPerson() != nil:
		return board.WaitingForYou, whyPerson
	case !b.run.Live && x != nil && x.State != board.Completed:
		if x.LimitedUntil != nil {
			at, _ := time.Parse(time.RFC3339Nano, *x.LimitedUntil) // written by this program
			s.Until = &at
		}
		return x.State, ""
	case current && slices.Contains(b.run.Kept.Failed, s.SessionID+"/"+s.ID):
		return board.Failed, ""
	case !b.run.Live && current && b.run.Kept.End != nil:
		return b.run.Kept.End.State, ""
	case !b.run.Live && current:
		return b.run.State, ""
	case !current:
		return board.NotBegun, ""
	case x != nil && x.EndedAt == nil && x.StartedAt == nil:
		return board.Queued, whySlot
	case x != nil && x.EndedAt == nil, b.run.RunID == "", len(s.Nested) > 0 && s.Until == nil:
		return board.Running, ""
	case s.Until != nil && s.Until.After(time.Now()):
		return board.WaitingForLimit, whyLimit
	}

	return board.Queued, "" // it waits for its turn, or for another try
}

const (
	// maxTailed is the maximum number of running agents whose messages LastSaid reads.
	maxTailed = 20
	// lastMessages is how many of their newest messages are read.
	lastMessages = 3
)

// LastSaid returns the last messages of a run's working agents, by execution.
func LastSaid(ctx context.Context, engine *attempt.Engine, who session.Caller, r *board.RunReply) map[string]string {
	last := map[string]string{}
	for _, x := range r.Steps {
		if x.StartedAt == nil || x.EndedAt != nil || len(last) == maxTailed {
			continue
		}

		t, err := engine.TailAttempt(ctx, who, attempt.TailArgs{
			Target:      board.Target{AttemptID: &r.RunID},
			ExecutionID: &x.ExecutionID,
			Limit:       new(lastMessages),
			Newest:      true,
		})
		if err != nil {
			continue // it is shown without a message
		}

		var lines []string
		for _, m := range t.Messages {
			if m.Kind == "system" {
				continue
			}

			line := strings.TrimSpace(m.Text)
			if m.Tool != "" {
				line = m.Tool + " " + transcript.Gist(m.Text)
			}
			lines = append(lines, line)
		}
		last[x.ExecutionID] = strings.Join(lines, "\n")
	}
	return last
}
