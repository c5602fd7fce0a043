package main

import (
	"context"
	"time"

	"deepwork/session/attempt"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

const (
	maxNesting  = 10 // of workflows
	openAgainIn = 5 * time.Second
)

// A place is a step of a session.
type place struct{ session, step string }

// A runStep is where a step of a run is, by its session.
type runStep struct {
	place
	depth          int  // of nested workflows
	group          rune // ┌, │ or └ beside the steps of a concurrent group, else 0
	done, current  bool
	asked          bool // a person is asked to pass its outputs
	leadsElsewhere bool // a workflow that its agent has started goes on
}

// runSessions reads the sessions of a run, which its agents change meanwhile. It belongs to one goroutine.
type runSessions struct {
	app    *app
	engine *workflow.Engine // nil until it could be opened
	done   func() error
	tried  time.Time                      // when it was opened last
	plans  map[string]*machine.Definition // by session
}

func (s *runSessions) close() {
	if s.engine != nil {
		_ = s.done() // it was only read
	}
}

// steps returns the steps of the run's workflow and of those nested in it, in order; nil if the sessions cannot
// be read.
func (s *runSessions) steps(r *attempt.RunReply) []runStep {
	if r.SessionID == nil {
		return nil
	}
	if s.engine == nil {
		if time.Since(s.tried) < openAgainIn {
			return nil
		}
		s.tried = time.Now()
		var err error
		if s.engine, s.done, err = s.app.openEngine(context.Background(), true, nil); err != nil {
			return nil
		}
	}
	return s.walk(r, *r.SessionID, 0)
}

func (s *runSessions) walk(r *attempt.RunReply, id string, depth int) (all []runStep) {
	now, err := s.engine.Read(context.Background(), id)
	if err != nil {
		return nil
	}
	def := s.plans[id]
	if def == nil {
		if def, err = s.engine.Definition(now); err != nil {
			return nil
		}
		if s.plans == nil {
			s.plans = map[string]*machine.Definition{}
		}
		s.plans[id] = def
	}
	for _, entry := range def.Workflow.Entries {
		for i, step := range entry {
			p := now.Progress(step)
			x := runStep{place: place{id, step}, depth: depth, group: edge(i, len(entry)), current: now.IsCurrent(step)}
			x.done, x.asked = p.Done() && !x.current, x.current && p.Question.Open()
			var nested []runStep
			if depth < maxNesting {
				for _, child := range r.Kept.Children[id+"/"+step] {
					nested = append(nested, s.walk(r, child, depth+1)...)
				}
			}
			for _, n := range nested {
				x.leadsElsewhere = x.leadsElsewhere || n.current
			}
			all = append(append(all, x), nested...)
		}
	}
	return all
}

// edge is the sign beside the step i of a concurrent group of n steps.
func edge(i, n int) rune {
	switch {
	case n < 2:
		return 0
	case i == 0:
		return '┌'
	case i == n-1:
		return '└'
	}
	return '│'
}
