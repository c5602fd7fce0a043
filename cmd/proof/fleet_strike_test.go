package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"deepwork/session/store/postgres/pgtest"
)

// begin begins a session at the first machine.
func (f *fleet) begin(ctx context.Context) (a *agent, id string, err error) {
	a = f.agent(2 * len(f.history.sessions))
	t := a.perform(ctx, input{Tool: "start_workflow", Job: jobName(0), Workflow: "chain", Goal: a.token("goal "), Request: a.request()})
	if t.kind != given {
		return nil, "", fmt.Errorf("starting a session: %s", t.text)
	}
	return a, t.reply.Begin.Session, nil
}

// ask repeats a call while the server has no lease or another owns the session, until stop is closed.
func ask(ctx context.Context, a *agent, in input, stop <-chan struct{}) answer {
	for {
		t := a.perform(ctx, in)
		if t.kind == given || ctx.Err() != nil {
			return t
		}
		select {
		case <-stop:
			return t
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (a *agent) finishing(id, step string) input {
	return input{Tool: "finished_step", Session: id, Step: step, Outputs: a.outputs()}
}

// updates reports whether a client's message updates a session.
func updates(m pgtest.Message) bool {
	return !m.FromServer && bytes.Contains(m.Body, []byte("UPDATE sim.session_records SET version = version + 1"))
}

// takeLate suspends the first machine's server until the second's takes a session over, and resumes it
// while that write is on its way: the first one has a lease again and answers before the write arrives.
func (f *fleet) takeLate(ctx context.Context) error {
	a, id, err := f.begin(ctx)
	if err != nil {
		return err
	}
	b := f.agent(a.number + 1)
	first := f.machines[0].current()
	first.suspend()
	defer first.resume()
	caught := f.machines[1].proxy.HoldAt(updates, 3*time.Second)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ask(ctx, b, b.finishing(id, "s0"), caught)
	}()
	select {
	case <-caught:
	case <-done:
	}
	first.resume()
	read := input{Tool: "get_step", Session: id}
	ask(ctx, a, read, done)
	<-done
	a.perform(ctx, read)
	return nil
}

// writeLate holds a write back until its server has given it up, made it again and made another; then
// it arrives, and the server is killed.
func (f *fleet) writeLate(ctx context.Context) error {
	a, id, err := f.begin(ctx)
	if err != nil {
		return err
	}
	const late = 8 * time.Second // more than the server waits for a write
	f.machines[0].proxy.HoldAt(updates, late)
	arrived := time.After(late + time.Second)
	for _, step := range []string{"s0", "s1"} {
		a.perform(ctx, a.finishing(id, step))
	}
	<-arrived
	f.kill(f.machines[0].current())
	return ctx.Err()
}

// loseReply loses the reply to the commit of a write.
func (f *fleet) loseReply(ctx context.Context) error {
	a, id, err := f.begin(ctx)
	if err != nil {
		return err
	}
	sent := false
	f.machines[0].proxy.CutAt(func(m pgtest.Message) bool {
		sent = sent || updates(m)
		return sent && m.Commits
	})
	a.perform(ctx, a.finishing(id, "s0"))
	return nil
}
