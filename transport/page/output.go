package page

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
)

// outputTopic is the topic of what the agent of an attempt prints, which the feed of the stores does
// not have: output:ATTEMPT.
const outputTopic = "output"

// outputs follows what agents print while pages show it, each agent once for a caller. The zero value
// follows none.
type outputs struct {
	mu   sync.Mutex
	open map[followed]*following
	all  sync.WaitGroup
}

// A followed is an attempt and the caller whose pages show it.
type followed struct {
	who session.Caller
	id  string
}

type following struct {
	pages int
	stop  context.CancelFunc
}

// close ends what is left, and waits for it.
func (o *outputs) close() {
	o.mu.Lock()
	for _, f := range o.open {
		f.stop()
	}
	o.mu.Unlock()
	o.all.Wait()
}

// outputWait is how long one look at an agent's output lasts, in seconds.
const outputWait = 10.0

// followOutputs follows the agent that is among the topics of a page, if one is, until release is called.
// A page shows one agent. Callers do not share: one that does not see the attempt is told nothing.
func (s *Site) followOutputs(who session.Caller, topics []string) (release func()) {
	i := slices.IndexFunc(topics, func(t string) bool { return strings.HasPrefix(t, outputTopic+":") })
	if i < 0 || s.Board == nil {
		return func() {}
	}
	k := followed{who, strings.TrimPrefix(topics[i], outputTopic+":")}
	o := &s.outputs
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.open[k]
	if f == nil {
		ctx, stop := context.WithCancel(context.Background())
		f = &following{stop: stop}
		if o.open == nil {
			o.open = make(map[followed]*following)
		}
		o.open[k] = f
		o.all.Go(func() { s.followOutput(ctx, who, k.id, nil) })
		o.all.Go(func() { s.followAgents(ctx, who, k.id) })
	}
	f.pages++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if f.pages--; f.pages == 0 {
			f.stop()
			delete(o.open, k)
		}
	}
}

// followOutput touches the topic of an attempt whenever its agent has printed something. Of a run, it
// follows the leader, or the agent with an execution, until that ends.
func (s *Site) followOutput(ctx context.Context, who session.Caller, id string, execution *string) {
	of := board.Target{AttemptID: &id}
	var after *int64
	for ctx.Err() == nil {
		r, err := s.Board.TailAttempt(ctx, who, attempt.TailArgs{Target: of, ExecutionID: execution, AfterIndex: after, Limit: new(1000), Wait: new(outputWait), Raw: new(true), Newest: true})
		if err != nil {
			_ = wait.For(ctx, time.Second)
			continue
		}
		// A page may have been made just before the first look, without what the agent had printed then.
		if after == nil && r.NextIndex > 0 || after != nil && r.NextIndex > *after {
			s.Touch(outputTopic + ":" + id)
		}
		after = &r.NextIndex
		if isOpen(r.State) {
			continue
		}
		if execution != nil {
			return
		}
		_ = wait.For(ctx, time.Second) // until a follow-up
	}
}

// followAgents follows the agents of a run. It returns at once if the attempt is none.
func (s *Site) followAgents(ctx context.Context, who session.Caller, id string) {
	known := map[string]bool{}
	for ctx.Err() == nil {
		r, err := s.Board.GetRun(ctx, who, board.RunArgs{RunID: id})
		if session.CodeOf(err) == codes.UnknownRun {
			return
		}
		if err == nil {
			for _, x := range r.Steps {
				if x.StartedAt != nil && x.EndedAt == nil && !known[x.ExecutionID] {
					known[x.ExecutionID] = true
					s.outputs.all.Go(func() { s.followOutput(ctx, who, id, &x.ExecutionID) })
				}
			}
		}
		_ = wait.For(ctx, time.Second)
	}
}
