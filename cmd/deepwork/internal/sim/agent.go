//go:build unix

package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An agent is a client that works on sessions of its own and, now and then, on
// those of its neighbour, at a server that it keeps to, mostly.
type agent struct {
	number  int
	world   *world
	random  *rand.Rand
	home    *server
	pair    *book // of the agent and its neighbour
	clients map[*run]*mcp.ClientSession
	serial  int   // numbers requests
	last    input // the last one that moved something
}

// A book is which sessions are under way, and where they were last seen.
type book struct {
	mu       sync.Mutex
	sessions []*known
}

type known struct {
	id, workflow string
	likely       []string // steps that can be finished
}

// openSessions is how many a pair of agents has under way.
const openSessions = 4

// work makes calls until ctx ends.
func (a *agent) work(ctx context.Context) {
	defer a.hangUp()
	for ctx.Err() == nil {
		a.perform(ctx, a.choose())
	}
}

// choose makes up the next call.
func (a *agent) choose() input {
	r := a.random
	a.pair.mu.Lock()
	n := len(a.pair.sessions)
	var s known
	if n > 0 {
		s = *a.pair.sessions[r.IntN(n)]
	}
	a.pair.mu.Unlock()
	request := ""
	if r.IntN(3) == 0 {
		a.serial++
		request = fmt.Sprintf("r%d-%d", a.number, a.serial)
	}
	if n == 0 || n < openSessions && r.IntN(5) == 0 {
		a.serial++
		in := input{Tool: "start_workflow", Workflow: []string{"chain", "groups", "fork", "short"}[r.IntN(4)],
			Request: fmt.Sprintf("r%d-%d", a.number, a.serial)} // always: else a lost one is never known
		if n > 0 && r.IntN(2) == 0 {
			in.Parent = s.id
		}
		return in
	}
	in := input{Session: s.id, Workflow: s.workflow, Request: request}
	switch k := r.IntN(100); {
	case k < 62:
		in.Tool = "finished_step"
		switch {
		case len(s.likely) > 0 && r.IntN(8) > 0:
			in.Step = s.likely[r.IntN(len(s.likely))]
		case r.IntN(2) == 0:
			in.Step = stepNames[r.IntN(steps)]
		}
	case k < 70 && a.last.Tool != "":
		in = a.last // once more
		if in.Request != "" {
			in.Request = ""
			if in.Tool == "start_workflow" {
				in = input{Tool: "get_step", Session: s.id, Workflow: s.workflow}
			}
		}
	case k < 86:
		in.Tool, in.Request = "get_step", ""
	case k < 95:
		in.Tool, in.Step = "go_to_step", stepNames[r.IntN(steps)]
	default:
		a.serial++
		in.Tool, in.Text = "abort_workflow", fmt.Sprintf("because %d-%d", a.number, a.serial)
	}
	return in
}

// tries is how often a call is made that gets no answer.
const tries = 12

// perform makes a call, again where its answer is lost, and records what came
// of it. The calls of one request_id are one operation; others are as many.
func (a *agent) perform(ctx context.Context, in input) {
	h := a.world.history
	begun := h.now()
	wasLost := false // an earlier try may have taken effect
	var at *run
	for range tries {
		if ctx.Err() != nil {
			break
		}
		r, err := a.pick(ctx, at)
		if err != nil {
			break
		}
		at = r
		call := h.now()
		ans := a.call(ctx, r, in)
		h.count(&h.calls)
		switch {
		case ans.kind == lostAnswer:
			h.count(&h.lost)
			wasLost = true
			if in.Request != "" {
				continue
			}
			// What is not made again by its request is an operation by itself.
			until := int64(never)
			if !a.alive(r) {
				<-r.ended
				until = h.now()
			}
			h.add(a.number, in.Session, in, call, lost, until)
			if in.Tool == "get_step" || a.random.IntN(4) == 0 {
				return
			}
			begun, wasLost = h.now(), false
		case ans.kind == noEffect:
			h.count(&h.refused)
			if !wasLost && in.Tool != "start_workflow" {
				return
			}
			pause(ctx, 5*time.Millisecond)
		default:
			a.answered(in, begun, ans)
			return
		}
	}
	switch {
	case in.Tool == "start_workflow" && wasLost:
		h.count(&h.unknown)
	case wasLost:
		h.add(a.number, in.Session, in, begun, lost, never)
	}
}

// pick waits for a process to call. at is the one that was called before: a client
// does not repeat elsewhere what may still be under way.
func (a *agent) pick(ctx context.Context, at *run) (*run, error) {
	for {
		where := a.home
		if at != nil && a.alive(at) {
			where = at.server
		} else if a.random.IntN(8) == 0 {
			where = a.world.servers[a.random.IntN(len(a.world.servers))]
		}
		r, err := where.wait(ctx)
		if err != nil {
			return nil, err
		}
		if at == nil || r == at || !a.alive(at) {
			return r, nil
		}
	}
}

func (a *agent) alive(r *run) bool {
	select {
	case <-r.ended:
		return false
	default:
		return true
	}
}

// answered records the answer to a call.
func (a *agent) answered(in input, begun int64, ans answer) {
	h := a.world.history
	if ans.session != "" {
		in.Session = ans.session
	}
	switch ans.kind {
	case goneAnswer:
		if !ans.damaged {
			h.fault("client %d: %v of session %s: the session is lost: %s", a.number, in, in.Session, ans.reply)
		}
		a.pair.forget(in.Session)
		return
	case oddAnswer:
		h.fault("client %d: %v of session %s: %s", a.number, in, in.Session, ans.reply)
		return
	}
	if ans.damaged {
		h.fault("client %d: %v: session %s, whose file was damaged, answers %s", a.number, in, in.Session, ans.reply)
		return
	}
	h.add(a.number, in.Session, in, begun, ans.reply, h.now())
	if in.Tool != "get_step" && !strings.HasPrefix(ans.reply, "!") {
		a.last = in
	}
	a.pair.learn(in, ans)
}

// learn notes where a session is.
func (b *book) learn(in input, ans answer) {
	if ans.over {
		b.forget(in.Session)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.sessions {
		if s.id == in.Session {
			if ans.likely != nil {
				s.likely = ans.likely
			}
			return
		}
	}
	if in.Tool == "start_workflow" {
		b.sessions = append(b.sessions, &known{in.Session, in.Workflow, ans.likely})
	}
}

func (b *book) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, s := range b.sessions {
		if s.id == id {
			b.sessions = append(b.sessions[:i:i], b.sessions[i+1:]...)
			return
		}
	}
}
