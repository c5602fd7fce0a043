package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"deepwork/session/store/postgres/pgtest"
)

// begin begins a session at the first machine. a is its client there, and b one at the second machine.
func (f *fleet) begin(ctx context.Context) (a, b *agent, id string, err error) {
	a = f.agent(2 * len(f.history.sessions))
	t := a.perform(ctx, input{Tool: "start_workflow", Job: jobName(0), Workflow: "chain", Goal: a.token("goal "), Request: a.request()})
	if t.kind != given {
		return nil, nil, "", fmt.Errorf("starting a session: %s", t.text)
	}
	return a, f.agent(a.number + 1), t.reply.Begin.Session, nil
}

func (a *agent) finishing(id, step string) input {
	return input{Tool: "finished_step", Session: id, Step: step, Outputs: a.outputs()}
}

// moves reports whether a client's message moves or begins a session.
func moves(m pgtest.Message) bool {
	return !m.FromServer && bytes.Contains(m.Body, []byte("move_session"))
}

// caughtBy makes a call while the first machine's next transition is held back for some time, and returns when
// that is so. answered is closed once the call has been answered.
func (f *fleet) caughtBy(ctx context.Context, call func(), late time.Duration) (answered chan struct{}) {
	caught := f.machines[0].proxy.HoldAt(moves, late)
	answered = make(chan struct{})
	go func() {
		defer close(answered)
		call()
	}()
	select {
	case <-caught:
	case <-answered:
	case <-ctx.Done():
	}
	return answered
}

// writeLate holds a transition back until another machine has moved the session: it must not replace what that
// one has acknowledged.
func (f *fleet) writeLate(ctx context.Context) error {
	a, b, id, err := f.begin(ctx)
	if err != nil {
		return err
	}
	answered := f.caughtBy(ctx, func() { a.perform(ctx, a.finishing(id, "s0")) }, time.Second)
	for _, step := range []string{"s0", "s1"} {
		b.perform(ctx, b.finishing(id, step))
	}
	<-answered
	b.perform(ctx, input{Tool: "get_step", Session: id})
	return ctx.Err()
}

// startTwice makes the call that begins a session at a second machine, while that of the first one is held back.
func (f *fleet) startTwice(ctx context.Context) error {
	a, b, _, err := f.begin(ctx)
	if err != nil {
		return err
	}
	in := input{Tool: "start_workflow", Job: jobName(0), Workflow: "chain", Goal: a.token("goal "), Request: a.request()}
	var first answer
	answered := f.caughtBy(ctx, func() {
		first = a.exchange(ctx, f.machines[0].current(), in.Tool, in.arguments())
		first.read(in)
	}, time.Second)
	second := b.perform(ctx, in)
	<-answered
	if first.kind != given || second.kind != given || first.reply.Begin.Session != second.reply.Begin.Session {
		f.history.fault("a repetition with another reply", "%s got %q, and again %q", in, first.text, second.text)
	}
	return ctx.Err()
}

// loseReply loses the reply to the commit of a write.
func (f *fleet) loseReply(ctx context.Context) error {
	a, _, id, err := f.begin(ctx)
	if err != nil {
		return err
	}
	sent := false
	caught := f.machines[0].proxy.CutAt(func(m pgtest.Message) bool {

		sent = sent || moves(m)
		return sent && m.Commits
	})
	a.perform(ctx, a.finishing(id, "s0"))
	if !happens(ctx, caught) {
		return errors.New("no reply was lost")
	}
	a.perform(ctx, input{Tool: "get_step", Session: id})
	return nil
}

// readAfter reads a session at a second machine, which has it in memory, after the first one has moved it.
func (f *fleet) readAfter(ctx context.Context) error {
	a, b, id, err := f.begin(ctx)
	if err != nil {
		return err
	}
	read := input{Tool: "get_step", Session: id}
	b.perform(ctx, read)
	a.perform(ctx, a.finishing(id, "s0"))
	b.perform(ctx, read)
	return nil
}
