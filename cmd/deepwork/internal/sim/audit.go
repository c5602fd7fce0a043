//go:build unix

package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/local/sqlite"
)

// openBoard opens the task board to read it, beside servers too.
func (w *world) openBoard(ctx context.Context) (*sqlite.DB, error) {
	return sqlite.Open(ctx, sqlite.Options{Path: w.project(".deepwork", "board.db"), ReadOnly: true})
}

// settleBoard waits until every attempt has ended.
func (w *world) settleBoard(ctx context.Context) error {
	b, err := w.openBoard(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	for until := time.Now().Add(settleTime); ; pause(ctx, 50*time.Millisecond) {
		all, err := b.Board().AllAttempts(ctx)
		if err != nil {
			return err
		}
		open := slices.DeleteFunc(all, func(a task.Attempt) bool { return !a.State.Open() })
		if len(open) == 0 {
			return nil
		}
		if time.Now().After(until) {
			w.history.fault("attempt %s is %s, and does not end", open[0].ID, open[0].State)
			return nil
		}
	}
}

// An audit holds the board, what agents have done and what git has against what
// clients were told. No server runs.
type audit struct {
	*world
	shelf    *shelf
	board    store.Board
	did      agentLog
	attempts map[string]task.Attempt
	runs     map[string][]task.Execution // by the token of their prompts
}

func (w *world) judgeBoard(ctx context.Context, s *shelf) error {
	b, err := w.openBoard(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	a := &audit{world: w, shelf: s, board: b.Board(), attempts: map[string]task.Attempt{}, runs: map[string][]task.Execution{}}
	if a.did, err = readAgentLog(w.agentLog()); err != nil {
		return err
	}
	if err := a.tasks(ctx); err != nil {
		return err
	}
	if err := a.read(ctx); err != nil {
		return err
	}
	a.requests()
	a.orders()
	a.executions()
	if err := a.alive(); err != nil {
		return err
	}
	return a.work(ctx)
}

// tasks looks that each is there that is to be, once, and no other.
func (a *audit) tasks(ctx context.Context) error {
	projects, _, _, err := a.board.Projects(ctx, task.Page{Limit: 10})
	if err != nil {
		return err
	}
	made := map[string][]string{} // ids, by the request that is their description
	for _, p := range projects {
		for page := (task.Page{Limit: 500}); ; {
			all, _, next, err := a.board.Tasks(ctx, p.ID, "", page)
			if err != nil {
				return err
			}
			for _, t := range all {
				request := ""
				if t.Description != nil {
					request = *t.Description
				}
				made[request] = append(made[request], t.ID)
			}
			if page.Cursor = next; next == "" {
				break
			}
		}
	}
	for request, ids := range made {
		q := a.shelf.requests[request]
		switch {
		case q == nil:
			a.history.fault("nobody has made the tasks %v, which say that %q has", ids, request)
		case q.refused:
			a.history.fault("the request %s was refused, and has made the tasks %v", request, ids)
		case len(ids) > 1:
			a.history.fault("the request %s has made %d tasks: %v", request, len(ids), ids)
		case q.id != "" && q.id != ids[0]:
			a.history.fault("the request %s has made %s, and was told %s", request, ids[0], q.id)
		}
	}
	for id, t := range a.shelf.tasks {
		if a.there(id) && !slices.Contains(made[t.request], id) {
			a.history.fault("the task %s of the request %s, which was acknowledged, is not there", id, t.request)
		}
	}
	return nil
}

// there tells whether a task must be there: nobody has asked for its deletion.
func (a *audit) there(id string) bool {
	return !slices.ContainsFunc(a.history.tasks[id], func(o porcupine.Operation) bool { return o.Input.(taskInput).Tool == "delete_task" })
}

// read reads all attempts with their executions.
func (a *audit) read(ctx context.Context) error {
	all, err := a.board.AllAttempts(ctx)
	if err != nil {
		return err
	}
	for _, at := range all {
		a.attempts[at.ID] = at
		executions, err := a.board.Executions(ctx, at.ID)
		if err != nil {
			return err
		}
		for _, x := range executions {
			token := tokenIn(x.Prompt)
			a.runs[token] = append(a.runs[token], x)
		}
	}
	a.result.Attempts, a.result.Agents = len(all), len(a.did.start)
	return nil
}

// requests looks that each start made one attempt, which is there.
func (a *audit) requests() {
	made := map[string][]string{}
	for _, at := range a.attempts {
		token := ""
		if at.Prompt != nil {
			token = tokenIn(*at.Prompt)
		}
		made[token] = append(made[token], at.ID)
	}
	for token, ids := range made {
		q := a.shelf.requests[token]
		if q == nil || q.refused || len(ids) > 1 || q.id != "" && q.id != ids[0] {
			a.history.fault("the request %q has made the attempts %v, and was told %+v", token, ids, q)
		}
	}
	for name, q := range a.shelf.requests {
		if q.task != "" && q.id != "" && a.there(q.task) && len(made[name]) == 0 {
			a.history.fault("the attempt %s of the request %s, which was acknowledged, is not there", q.id, name)
		}
	}
}

// orders looks that no agent was started twice for one order, and that every
// order that was acknowledged is an execution.
func (a *audit) orders() {
	for token, n := range a.did.start {
		o := a.shelf.orders[token]
		switch {
		case o == nil:
			a.history.fault("an agent does %s, which nobody has ordered", token)
		case n > 1:
			a.history.fault("the order %s was begun by %d agents", token, n)
		case o.refused:
			a.history.fault("the order %s was refused, and an agent has begun it", token)
		}
	}
	for token, o := range a.shelf.orders {
		all := a.runs[token]
		at, there := a.attempts[o.attempt]
		switch {
		case len(all) > 1:
			a.history.fault("the order %s has %d executions", token, len(all))
		case len(all) == 1 && o.refused:
			a.history.fault("the order %s was refused, and has an execution", token)
		case len(all) == 1 || !there || o.said == "":
		case o.said == "queued" && (o.dropped || a.cut(at.ID)):
		default:
			a.history.fault("the order %s of attempt %s was %s, and there is no execution of it", token, at.ID, o.said)
		}
	}
}

// cut tells whether something of an attempt was stopped or interrupted, which
// drops what is queued.
func (a *audit) cut(attempt string) bool {
	for _, all := range a.runs {
		for _, x := range all {
			if x.AttemptID == attempt && (x.State == task.Stopped || x.State == task.Interrupted) {
				return true
			}
		}
	}
	return false
}

// executions looks that each has ended as its agent has.
func (a *audit) executions() {
	for token, all := range a.runs {
		o := a.shelf.orders[token]
		for _, x := range all {
			wrong := ""
			code := -1
			if x.ExitCode != nil {
				code = *x.ExitCode
			}
			switch {
			case o == nil:
				wrong = "nobody has ordered it"
			case o.attempt != "" && o.attempt != x.AttemptID:
				wrong = "it was ordered of attempt " + o.attempt
			case x.State.Open():
				wrong = "it has not ended"
			case x.State == task.Completed && (o.exit != 0 || code != 0 || a.did.end[token] != 1):
				wrong = "its agent has not done it"
			case x.State == task.Completed && (x.FinalMessage == nil || *x.FinalMessage != "done "+token):
				wrong = "its agent has said something else"
			case x.State == task.Failed && (code != failing || o.exit != failing) && x.StartedAt != nil:
				wrong = "its agent has not failed so"
			case x.State == task.Stopped && !a.shelf.stops[x.AttemptID]:
				wrong = "nobody has stopped it"
			}
			if wrong != "" {
				a.history.fault("the execution %s of %s is %s with exit code %d: %s (%+v; started %d, ended %d; %s)", x.ID, token, x.State, code, wrong, o,
					a.did.start[token], a.did.end[token], text(x.FinalMessage))
			}
		}
	}
}

func text(s *string) string {
	if s == nil {
		return "no message"
	}
	return fmt.Sprintf("%q", *s)
}
