//go:build unix

package sim

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// A history is every call that was made, by session. Its methods may be called by
// many goroutines.
type history struct {
	begun time.Time

	mu       sync.Mutex // guards what follows
	sessions map[string][]porcupine.Operation
	tasks    map[string][]porcupine.Operation
	damaged  map[string]bool // sessions whose files were falsified
	journals map[string]bool // of runs, by name, that were falsified
	losers   map[string]bool // runs of which a journal has lost the last record by that
	faults   []string
	calls, lost, refused,
	unknown, // starts that were never answered
	tangled int // histories that were too much for the checker
}

func newHistory() *history {
	return &history{begun: time.Now(), sessions: map[string][]porcupine.Operation{},
		tasks: map[string][]porcupine.Operation{}, damaged: map[string]bool{}, journals: map[string]bool{}, losers: map[string]bool{}}
}

// never is when a call returns that may still take effect.
const never = math.MaxInt64

func (h *history) now() int64 { return int64(time.Since(h.begun)) }

// addTask records an operation of a task of the board.
func (h *history) addTask(client int, task string, in taskInput, call int64, out string, ret int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tasks[task] = append(h.tasks[task], porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: ret})
}

// add records an operation of a session.
func (h *history) add(client int, session string, in input, call int64, out string, ret int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sessions[session] = append(h.sessions[session], porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: ret})
}

func (h *history) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.faults) < 20 {
		h.faults = append(h.faults, fmt.Sprintf(format, args...))
	}
}

func (h *history) count(what *int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*what++
}

// known are the sessions that there are, and not damaged, sorted.
func (h *history) known() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(h.sessions)), func(id string) bool { return h.damaged[id] })
}

func (h *history) isDamaged(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.damaged[id]
}

// patience is how long the checker may think about one session.
const patience = 30 * time.Second

// check holds each history against its model. What it does not like it draws, as a
// page in dir.
//
// One that the checker cannot come to the end of, since too many of its calls were
// lost, is no fault of the program; where one in twenty is so, nothing is shown.
func (h *history) check(dir string) {
	h.hold("session", h.sessions, model, dir)
	h.hold("task", h.tasks, taskModel, dir)
	if all := len(h.sessions) + len(h.tasks); h.tangled*20 > all {
		h.fault("%d histories of %d are too tangled to be judged: give the clients more time, or begin fewer of them", h.tangled, all)
	}
}

func (h *history) hold(what string, histories map[string][]porcupine.Operation, model porcupine.Model, dir string) {
	for _, id := range slices.Sorted(maps.Keys(histories)) {
		ops := telling(histories[id])
		end := h.now()
		for i := range ops {
			if ops[i].Return == never {
				ops[i].Return = end
			}
		}
		result, info := porcupine.CheckOperationsVerbose(model, ops, patience)
		switch result {
		case porcupine.Ok:
			continue
		case porcupine.Unknown:
			h.tangled++
			continue
		}
		page := filepath.Join(dir, what+"_"+id+".html")
		if err := porcupine.VisualizePath(model, info, page); err != nil {
			page = err.Error()
		}
		h.fault("the history of %s %s cannot have come about (%s):\n%s", what, id, page, describe(ops))
	}
}

// telling leaves out of a history what tells nothing: lost calls that only read, and
// of lost calls that end a session all but the first of each explanation, since the
// others change nothing once that has had its effect. Each lost call doubles what the
// checker has to think of.
func telling(ops []porcupine.Operation) []porcupine.Operation {
	ops = slices.Clone(ops)
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	ended := map[string]bool{}
	return slices.DeleteFunc(ops, func(o porcupine.Operation) bool {
		if o.Output != lost || o.Return != never {
			return false
		}
		switch in := o.Input.(type) {
		case input:
			if in.Tool == "abort_workflow" {
				again := ended[in.Text]
				ended[in.Text] = true
				return again
			}
			return in.Tool == "get_step"
		case taskInput:
			return in.Tool == "get_task"
		}
		return false
	})
}

// describe lists operations, in the order in which they were called.
func describe(ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var b strings.Builder
	for _, o := range ops {
		fmt.Fprintf(&b, "  %9.1f to %9.1f ms  client %d: %v -> %v\n", float64(o.Call)/1e6, float64(o.Return)/1e6, o.ClientId, o.Input, o.Output)
	}
	return b.String()
}
