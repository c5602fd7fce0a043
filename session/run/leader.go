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

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/why"
)

// A stepRef identifies a step of a session, which is what an agent works on.
type stepRef struct{ session, step string }

// A leader leads one run. Only the goroutine of Lead uses it, except for the fields that mu guards.
type leader struct {
	attemptLead *attempt.Lead
	workplace   Workplace

	retries int
	agents  map[stepRef]*agent  // the running agents
	failed  map[stepRef]why.Why // steps that get no more agents, and why
	cut     map[string]bool     // executions cut short while this leader led, which count as tries
	silent  map[stepRef]bool    // whether the step's last agent has not connected to the endpoint
	// unmerged has, for a step that merges an item, what an agent has to do first in the item's worktree; ""
	// means that the merge is to be tried.
	unmerged map[stepRef]string
	before   map[stepRef][]task.Execution // the executions of a step without an agent, as last read
	ended    chan *agent                  // unbuffered; received until all agents have ended
	running  sync.WaitGroup

	progress   task.WorkflowProgress // as recorded on the board
	agentError error                 // an agent could not be run, for a reason that may pass; or nil

	mu      sync.Mutex // guards unsaved, and lead.Run.Children
	unsaved bool       // the board does not have the current lead.Run
}

// Lead is an attempt.Leader that works at a Workplace. An agent that ends without finishing its step is sent
// back at most retries times. No agent runs any more when Lead returns or panics.
func Lead(ctx context.Context, l *attempt.Lead, at Workplace, retries int) board.RunEnd {
	return newLeader(l, at, retries).run(ctx)
}

func newLeader(l *attempt.Lead, at Workplace, retries int) *leader {
	return &leader{
		attemptLead: l,
		workplace:   at,
		retries:     retries,
		agents:      map[stepRef]*agent{},
		failed:      map[stepRef]why.Why{},
		silent:      map[stepRef]bool{},
		cut:         map[string]bool{},
		unmerged:    map[stepRef]string{},
		before:      map[stepRef][]task.Execution{},
		ended:       make(chan *agent),
	}
}

func (d *leader) run(ctx context.Context) board.RunEnd {
	defer d.endAgents()
	end, err := d.followWithRetries(ctx)
	for err == nil && end.State == board.Completed && len(d.agents) > 0 && ctx.Err() == nil {
		for _, a := range d.agents {
			a.finished()
		}
		_ = d.wait(ctx, time.Time{}) // the loop notices the end of ctx
	}
	if err == nil && end.State == board.Completed {
		d.attemptLead.RemoveItems(ctx, "") // the worktrees of dropped items
	}
	if err != nil && ctx.Err() == nil {
		end = board.RunEnd{State: board.Failed, Step: end.Step, Why: []why.Why{whyOf(err)}}
	}
	return end
}

// followWithRetries calls follow until its error is one that will not pass. Agents work for hours; their work
// must survive the restart of a database or a disk that is full for a while.
func (d *leader) followWithRetries(ctx context.Context) (end board.RunEnd, err error) {
	said := ""
	for pause := (wait.Backoff{Min: 200 * time.Millisecond, Max: 10 * time.Second}); ; {
		begun := time.Now()
		if end, err = d.follow(ctx); !board.Passing(err) {
			return end, err
		}
		if time.Since(begun) > time.Minute {
			said = ""
			pause.Reset()
		}
		if err.Error() != said { // log each error once
			said = err.Error()
			d.attemptLead.Warn("the progress of a run cannot be recorded; trying again until it can", err)
		}
		if pause.Wait(ctx) != nil {
			return end, err
		}
	}
}

// follow does what is due until the workflow is complete or cannot go on.
func (d *leader) follow(ctx context.Context) (end board.RunEnd, err error) {
	r := &d.attemptLead.Run
	if r.SessionID == "" {
		if r.SessionID, err = d.workplace.Start(ctx, r, "run "+d.attemptLead.Attempt.ID); err != nil {
			if refused, ok := errors.AsType[*session.Error](err); ok && len(r.Inputs) > 0 && !r.InPlace {
				refused.Add("The run works in a git worktree, which has only the files that are committed.")
			}
			return end, fmt.Errorf("starting the workflow %s/%s: %w", r.JobName, r.WorkflowName, err)
		}
		if err := d.save(ctx); err != nil {
			return end, err
		}
	} else if err := d.find(ctx); err != nil {
		return end, err
	}
	for {
		if err := d.saveAgain(ctx); err != nil {
			return end, err
		}

		s, err := d.workplace.State(ctx, r.SessionID)
		if err != nil {
			return end, err
		}
		end.Step = s.CurrentStepID
		now := (task.WorkflowProgress{SessionID: s.SessionID, Status: string(s.Status), Step: s.CurrentStepID})
		if now != d.progress {
			if err := d.attemptLead.Progress(ctx, now); err != nil {
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
			return board.RunEnd{State: board.Completed}, nil
		case machine.Aborted:
			return board.RunEnd{
				State: board.Failed,
				Step:  s.CurrentStepID,
				Why:   []why.Why{{Kind: why.Aborted, Said: cmp.Or(deref(s.AbortReason), "no reason was given.")}},
			}, nil
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
			if over, err := d.attemptLead.OverBudget(ctx); err != nil {
				return end, err
			} else if over.Kind != "" {
				return board.RunEnd{State: board.Paused, Step: s.CurrentStepID, Why: []why.Why{over}}, nil
			}
			if err := d.start(ctx, due.steps); outdated(err) {
				continue
			} else if err != nil {
				return end, err
			}
		}
		if len(d.agents) == 0 && due.recheckAt.IsZero() {
			return d.stuckEnd(s.CurrentStepID), nil
		}
		if err := d.wait(ctx, due.recheckAt); err != nil {
			return end, err
		}
		if err := d.agentError; err != nil {
			d.agentError = nil
			return end, err
		}
	}
}

// stuckEnd returns the end of a run in which no step can go on.
func (d *leader) stuckEnd(step string) board.RunEnd {
	if len(d.failed) == 0 {
		return board.RunEnd{
			State: board.Failed,
			Step:  step,
			Why: []why.Why{{
				Kind: why.Other,
				Said: "No step of the workflow is left to do, and it is not complete; look at its session.",
			}},
		}
	}

	var steps []string
	end := board.RunEnd{State: board.Failed}
	for _, p := range slices.SortedFunc(maps.Keys(d.failed), func(a, b stepRef) int {
		return cmp.Or(cmp.Compare(a.session, b.session), cmp.Compare(a.step, b.step))
	}) {
		w := d.failed[p]
		w.Step = p.step
		steps, end.Why = append(steps, p.step), append(end.Why, w)
	}
	end.Step = strings.Join(steps, ", ")
	return end
}

// outdated reports whether an error says that a session has moved on since it was read.
func outdated(err error) bool {
	return slices.Contains([]string{codes.SessionEnded, codes.StepFinished, codes.StepNotCurrent}, session.CodeOf(err))
}

func (d *leader) save(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.attemptLead.Save(ctx)
	d.unsaved = err != nil
	return err
}

// saveAgain saves what could not be saved before.
func (d *leader) saveAgain(ctx context.Context) error {
	d.mu.Lock()
	unsaved := d.unsaved
	d.mu.Unlock()
	if !unsaved {
		return nil
	}
	return d.save(ctx)
}

// whyOf returns an error as the reason for which something stopped.
func whyOf(err error) why.Why {
	if refused, ok := errors.AsType[*session.Error](err); ok {
		return why.Why{Kind: why.Kind(refused.Code), Said: refused.For(session.Anyone)}
	}
	return why.Why{Kind: why.Other, Said: err.Error()}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
