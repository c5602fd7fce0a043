package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"deepwork/actor/wait"
)

// An agent is a client that mostly uses one server. Its methods may be called by many goroutines.
type agent struct {
	*world
	number int
	home   *server
	lose   float64 // the fraction of replies that are lost

	mu     sync.Mutex // guards the following fields
	random *rand.Rand
	conns  map[*process]*conn
	serial int
}

func (a *agent) chance(part float64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.random.Float64() < part
}

func (a *agent) below(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.random.IntN(n)
}

// token returns a unique name.
func (a *agent) token(kind string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serial++
	return fmt.Sprintf("%s%d-%d", kind, a.number, a.serial)
}

// request returns a request_id that is unique, also among other loads.
func (a *agent) request() string { return fmt.Sprintf("%s-%x", a.token("r"), a.seed) }

// outputs generates the outputs of a step, with one of some texts.
func (a *agent) outputs(texts ...string) string {
	o := outputs{Report: outputPath(a.below(outputFiles))}
	if len(texts) > 0 {
		o.Said = texts[a.below(len(texts))]
	}
	for range a.below(3) {
		o.Papers = append(o.Papers, outputPath(a.below(outputFiles)))
	}
	return o.String()
}

// conn returns the agent's connection to a process.
func (a *agent) conn(ctx context.Context, p *process) (*conn, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.conns[p]; c != nil {
		return c, nil
	}
	c, err := connect(ctx, p, a.version, !a.strict)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(a.conns, func(old *process, _ *conn) bool { return !old.alive() })
	a.conns[p] = c
	return c, nil
}

// drop removes and returns the connection to a process, or nil. The server is not notified, as if
// the client had crashed.
func (a *agent) drop(p *process) *conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.conns[p]
	delete(a.conns, p)
	return c
}

// leave closes all connections.
func (a *agent) leave() error {
	var errs []error
	for p := range a.conns {
		errs = append(errs, a.drop(p).leave())
	}
	return errors.Join(errs...)
}

// callWithin limits a call. No server takes that long: it waits up to 30 s for the lock of a killed git.
const callWithin = 45 * time.Second

// exchange makes one call of any tool.
func (a *agent) exchange(ctx context.Context, p *process, tool string, args map[string]any) (t answer) {
	h := a.history
	call := h.now()
	defer func() {
		t.by = p
		t.call = call
		t.ret = h.now()
		h.with(func() {
			if t.kind != unsent {
				h.calls++
			}
			switch t.kind {
			case lost:
				h.lost++
				if p.alive() {
					t.ret = never
				}
			case noEffect:
				h.refused++
			}
		})
	}()

	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), callWithin)
	defer cancel()
	lose := a.lose > 0 && a.chance(a.lose)
	c, err := a.conn(bounded, p)
	if err != nil {
		if t = a.unanswered(p, false, fmt.Errorf("%s: %w", tool, err)); t.kind == lost {
			t.kind = unsent
		}
		return t
	}
	if lose && a.below(2) == 0 { // otherwise the reply arrives, and the agent does not get it
		defer time.AfterFunc(rand.N(5*time.Millisecond), cancel).Stop()
	}

	began := time.Now()
	text, result, err := c.call(bounded, tool, args)
	took := time.Since(began)

	switch {
	case err != nil:
		return a.unanswered(p, lose, err)
	case lose:
		t.kind = lost
		return t
	}

	late := false
	h.with(func() { h.took[tool], late = append(h.took[tool], took), call > h.edited })
	t.text = text
	if strings.Contains(text, forged) {
		h.fault(believed, "client %d: %s %v: %s", a.number, tool, args, text)
	}
	waits, _ := result.Meta["deepwork/waiting"].(map[string]any)
	t.waits, _ = waits["code"].(string)
	if result.IsError {
		meta, _ := result.Meta["deepwork/error"].(map[string]any)
		t.code, _ = meta["code"].(string)
		t.status, _ = meta["status"].(string)
		t.kind = refusalOf(tool, t.code)
		if late && (t.code == "untrusted" || t.code == "config_invalid") {
			h.fault("a config that was restored, and is not used", "client %d: %s %v: %s", a.number, tool, args, text)
		}
	}

	return t
}

// unanswered describes a failed call.
func (a *agent) unanswered(p *process, lose bool, err error) answer {
	t := answer{kind: lost, text: err.Error()}
	switch {
	case lose:
	case a.strict, p.alive() && errors.Is(err, context.DeadlineExceeded):
		t.kind = odd
	case p.alive():
		// The process may be about to end; a broken connection is not reused, and over stdio there
		// is no other.
		patience := time.Second
		if p.stdio == nil {
			a.drop(p)
			patience = 20 * time.Millisecond
		}
		select {
		case <-p.ended:
		case <-time.After(patience):
		}
	}

	return t
}

// tries is the maximum number of tries of a call without an answer.
const tries = 12

// try makes a call, and repeats it if its answer is lost and again allows it. unsure are the calls
// whose answers were lost.
func (a *agent) try(ctx context.Context, tool string, args map[string]any, again bool) (t answer, unsure []answer) {
	for range tries {
		p, err := a.pick(ctx)
		if err != nil {
			return answer{kind: noEffect, code: "over", text: err.Error()}, unsure
		}
		switch t = a.exchange(ctx, p, tool, args); {
		case t.kind == lost:
			unsure = append(unsure, t)
			if !again {
				return t, unsure
			}
		case t.kind == noEffect && again && len(unsure) > 0 && !a.strict:
			_ = wait.For(ctx, 10*time.Millisecond)
		case t.kind == unsent:
			_ = wait.For(ctx, 100*time.Millisecond)
			t.kind = noEffect
		default:
			if t.kind == odd && t.code == "" { // it may still take effect
				late := t
				late.ret = never
				unsure = append(unsure, late)
			}
			return t, unsure
		}
	}
	return t, unsure
}

// pick waits for a process of any server to call, even if a lost call may still be in flight at another.
func (a *agent) pick(ctx context.Context) (*process, error) {
	where := a.home
	if !a.strict {
		where = a.servers[a.below(len(a.servers))]
	}
	p, err := where.wait(ctx)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	return p, nil
}

// perform calls a workflow tool, repeats the call if its answer is lost, and records the outcome. Calls with one
// request_id are one operation, and so are immediate repetitions in a strict world; others are separate operations.
func (a *agent) perform(ctx context.Context, in input) answer {
	h := a.history
	var e *effect
	if in.Tool == "start_workflow" {
		e = h.ask("session", in.Goal, &effect{job: in.Job})
	}
	whole := in.Request != "" || a.strict
	begun := h.now()
	t, unsure := a.try(ctx, in.Tool, in.arguments(), whole || in.Tool != "get_step" && a.chance(0.75))
	t.read(in)
	if !whole {
		for _, l := range unsure {
			a.add(in, l.call, lostReply, l.ret, nil)
		}
		begun = t.call
	}

	switch {
	case t.kind == given && e != nil:
		in.Session = t.reply.Begin.Session
		h.with(func() {
			e.id = in.Session
			h.sessions[in.Session] = &session{start: in}
		})
	case e != nil:
		h.with(func() { e.refused = len(unsure) == 0 && t.kind == noEffect })
		return t
	}
	switch {
	case t.kind == given:
		a.add(in, begun, t.said, t.ret, &t.reply)
		of, _ := ofItem(in.Step)
		if whole && len(unsure) > 0 && in.Tool == "finished_step" && (of == personStep || of == "") &&
			!isRefusal(t.said) {
			before := in
			before.Tool = handIn // and then somebody decided, or handed in something else
			a.add(before, begun, lostReply, t.ret, nil)
		}
	case t.kind == gone:
		h.fault("a lost session", "client %d: %v of session %s: %s", a.number, in, in.Session, t.text)
	case t.kind == noEffect && in.Session != "":
		h.with(func() {
			s := h.sessions[in.Session]
			s.refusals = append(s.refusals,
				fmt.Sprintf("  %9.1f to %9.1f ms  client %d: %v: %s\n", float64(t.call)/1e6, float64(t.ret)/1e6,
					a.number, in, t.text))
		})
	case t.kind == odd && !a.strict:
		h.fault("an odd answer", "client %d: %v of session %s: %s", a.number, in, in.Session, t.text)
	}

	// one that is in flight may yet be carried out
	if whole && len(unsure) > 0 && (t.kind != given || isRefusal(t.said)) {
		a.add(in, begun, lostReply, never, nil)
	}
	return t
}

// goOn hands in a step of each session after the last fault, when only the session's own state may refuse that.
// Otherwise a program in which every session is stuck would pass.
func (a *agent) goOn(ctx context.Context) {
	for _, id := range a.history.known() {
		t := a.perform(ctx, input{Tool: "finished_step", Session: id, Outputs: a.outputs(), Text: a.token("last ")})
		if t.kind != given {
			a.history.fault("a session that cannot go on", "session %s: %s", id, t.text)
		}
	}
}

// add records an operation, and its effect on another session: a call that finishes a nested workflow also moves the
// session that continues with it, and a reply that begins such a workflow is its start.
func (a *agent) add(in input, call int64, said string, ret int64, r *reply) {
	h := a.history
	h.add(a.number, in.Session, in, call, said, ret)
	var of session
	h.with(func() { of = *h.sessions[in.Session] })
	switch ended := strings.HasPrefix(said, "complete"); {
	case of.called && in.Tool == "finished_step" && (ended || said == lostReply || said == forgotten):
		parent := lostReply
		if ended && r.Begin != nil {
			parent = "begin " + strings.Join(r.steps(), ",")
		}
		h.add(a.number, of.start.Parent, input{Tool: "child", Outputs: in.Outputs}, call, parent, ret)
	case r != nil && r.Begin != nil && r.Begin.Session != in.Session && !ended:
		child := &session{
			start: input{
				Tool:     "start_workflow",
				Job:      of.start.Job,
				Workflow: "short",
				Goal:     of.start.Goal,
				Parent:   in.Session,
			},
			called: true,
		}

		known := false
		h.with(func() {
			if known = h.sessions[r.Begin.Session] != nil; !known {
				h.sessions[r.Begin.Session] = child
			}
		})
		if !known {
			h.add(a.number, r.Begin.Session, child.start, call, said, ret)
		}
	}
}

// tell calls a tool other than a workflow's, and reports odd answers.
func (a *agent) tell(ctx context.Context, tool string, args map[string]any, again bool) (t answer, unsure []answer) {
	t, unsure = a.try(ctx, tool, args, again)
	if t.kind == odd {
		a.history.fault("an odd answer", "client %d: %s %v: code %q: %s", a.number, tool, args, t.code, t.text)
	}
	return t, unsure
}

// reads decodes a reply, and reports it if that fails.
func (a *agent) reads(t answer, into any) bool {
	if t.kind != given {
		return false
	}

	if err := json.Unmarshal([]byte(t.text), into); err != nil {
		a.history.fault("a reply that cannot be read", "client %d: %v: %.300s", a.number, err, t.text)
		return false
	}
	return true
}

// isRefusal reports whether an answer in the model's form is a refusal.
func isRefusal(said string) bool { return strings.HasPrefix(said, "!") }
