package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// A history records a proof: every call, the intended effect of each, and all faults. Its methods
// may be called by many goroutines.
type history struct {
	begun time.Time

	mu       sync.Mutex // guards the following fields
	sessions map[string]*session
	tasks    map[string][]porcupine.Operation
	effects  map[string]map[string]*effect // by kind and token
	faults   map[string][]string           // by kind
	edited   int64                         // until when the config differed from the granted one
	took     map[string][]time.Duration    // how long calls took, by tool
	calls, lost, refused,
	tangled int // histories that were too complex for the checker
}

// A session is one that a client knows.
type session struct {
	start input
	ops   []porcupine.Operation
	// What was refused without effect, for the report if the history is wrong.
	refusals []string
	save     int  // the newest save of job.yml that a step started with
	called   bool // it is the workflow of a step
	edited   bool // somebody has written its export
	judged   int  // reviews of judgedStep with a verdict since it last began, or unknown
}

// unknown is a number that no client can know.
const unknown = -1

// An effect is the single intended effect of a call: a session, a task, an attempt, the execution
// of an order, or a workflow at its source. Its token is unique and is found in the result.
type effect struct {
	id      string         // the id in the reply, or ""
	refused bool           // it certainly did not happen
	args    map[string]any // of a call with a request_id, for repeating it
	job     string         // session
	of      string         // attempt: its task; order: its attempt
	order   order          // order
	said    string         // order: started, queued or ""
	dropped bool           // order: a call that drops queued follow-ups was made since
}

func newHistory() *history {
	return &history{begun: time.Now(), sessions: map[string]*session{}, tasks: map[string][]porcupine.Operation{},
		effects: map[string]map[string]*effect{}, faults: map[string][]string{}, took: map[string][]time.Duration{}}
}

// never is the return time of a call that may still take effect.
const never = math.MaxInt64

func (h *history) now() int64 { return int64(time.Since(h.begun)) }

// with calls f with the lock held.
func (h *history) with(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// fault records that something is wrong.
func (h *history) fault(kind, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults[kind] = append(h.faults[kind], fmt.Sprintf(format, args...))
}

// found returns the number of faults, and a text with the first examples of each kind.
func (h *history) found() (count int, report string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(h.faults)) {
		all := h.faults[kind]
		count += len(all)
		examples := ""
		for _, one := range all[:min(len(all), 5)] {
			examples += fmt.Sprintf("%.8000s\n", one)
		}
		report += fmt.Sprintf("WRONG: %s, %d times; for example:\n  %s\n", kind, len(all),
			strings.ReplaceAll(strings.TrimSpace(examples), "\n", "\n  "))
	}
	return count, report
}

// ask records that a call with an effect is about to be made.
func (h *history) ask(kind, token string, e *effect) *effect {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.effects[kind] == nil {
		h.effects[kind] = map[string]*effect{}
	}
	h.effects[kind][token] = e
	return e
}

// once checks what exists of a kind (ids by token) against the calls: each effect was requested and not refused, exists
// once, and has the reply's id. wanted reports whether an effect must exist.
func (h *history) once(kind string, there map[string][]string, wanted func(token string, e *effect) bool) {
	for token, ids := range there {
		switch e := h.effects[kind][token]; {
		case e == nil:
			h.fault("something that nobody asked for", "%s %q: %v", kind, token, ids)
		case e.refused:
			h.fault("something that was refused and done", "%s %q: %v", kind, token, ids)
		case len(ids) > 1:
			h.fault("something that was done more than once", "%s %q, %d times: %v", kind, token, len(ids), ids)
		case e.id != "" && !slices.Contains(ids, e.id):
			h.fault("something else than was told", "%s %q is %s, and was told as %s", kind, token, ids[0], e.id)
		}
	}
	for token, e := range h.effects[kind] {
		if len(there[token]) == 0 && wanted(token, e) {
			h.fault("a lost update", "%s %q (%s), which was acknowledged, is not there: %+v", kind, token, e.id, e.args)
		}
	}
}

// add records an operation on the session or task of its input.
func (h *history) add(client int, id string, in any, call int64, out string, ret int64) {
	h.with(func() {
		o := porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: ret}
		if _, ok := in.(taskInput); ok {
			h.tasks[id] = append(h.tasks[id], o)
		} else {
			h.sessions[id].ops = append(h.sessions[id].ops, o)
		}
	})
}

// known are the ids of the sessions that clients know, sorted.
func (h *history) known() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.sessions))
}

// patience is the time limit of the checker for one history.
const patience = 30 * time.Second

// check checks each history against its model.
//
// A history that the checker cannot finish because too many calls were lost is no fault of the program; but if that is
// one in twenty, the proof shows nothing.
func (h *history) check() {
	for id, s := range h.sessions {
		h.hold("session", id, s.ops, sessionModel)
	}
	for id, ops := range h.tasks {
		h.hold("task", id, ops, taskModel)
	}
	if all := len(h.sessions) + len(h.tasks); h.tangled*20 > all {
		h.fault("too tangled", "%d histories of %d are too tangled to be judged: give the clients more time, or begin "+
			"fewer of them", h.tangled, all)
	}
}

func (h *history) hold(what, id string, ops []porcupine.Operation, model porcupine.Model) {
	ops = telling(ops)
	end := h.now()
	for i := range ops {
		if ops[i].Return == never {
			ops[i].Return = end
		}
	}

	switch porcupine.CheckOperationsTimeout(model, ops, patience) {
	case porcupine.Unknown:
		h.tangled++
	case porcupine.Illegal:
		var b strings.Builder
		for _, o := range ops {
			fmt.Fprintf(&b, "  %9.1f to %9.1f ms  client %d: %v -> %v\n", float64(o.Call)/1e6, float64(o.Return)/1e6,
				o.ClientId, o.Input, o.Output)
		}

		if s := h.sessions[id]; s != nil && len(s.refusals) > 0 {
			b.WriteString("  refused were:\n" + strings.Join(s.refusals, ""))
		}
		h.fault("a history that cannot have come about", "of %s %s:\n%s", what, id, b.String())
	}
}

// telling removes what proves nothing from a history: lost calls that only read, and all but the first of the lost
// calls that abort a session with the same explanation. Each lost call doubles the work of the checker.
func telling(ops []porcupine.Operation) []porcupine.Operation {
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	ended := map[string]bool{}
	items := slices.ContainsFunc(ops, func(o porcupine.Operation) bool { // get_step may begin them
		in, ok := o.Input.(input)
		return ok && in.Tool == "start_workflow" && in.Workflow == "items"
	})
	return slices.DeleteFunc(ops, func(o porcupine.Operation) bool {
		if o.Output != lostReply || o.Return != never {
			return false
		}

		switch in := o.Input.(type) {
		case input:
			if in.Tool == "abort_workflow" {
				again := ended[in.Text]
				ended[in.Text] = true
				return again
			}
			return in.Tool == "get_step" && !items
		case taskInput:
			return in.Tool == "get_task"
		}

		return false
	})
}
