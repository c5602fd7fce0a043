package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"deepwork/actor/wait"
	"deepwork/cmd/proof/tty"

	"golang.org/x/sync/errgroup"
)

// do makes a call of the script at the server whose turn it is, and sometimes repeats it at the next one, afterwards or
// at the same time. It returns the reply, whose word must be one of want; if the replies differ, the one that moves the
// session.
func (r *relay) do(ctx context.Context, s *opened, in input, want ...string) (t answer, err error) {
	last := r.saves.last(s.job)
	at := int(s.turn.Add(1))
	way := r.below(4)
	if way > 1 || in.Tool == "get_step" {
		if t, err = r.call(ctx, s, at, in, want); err != nil {
			return t, err
		}
		return t, r.accept(s, in, last, t)
	}

	var both [2]answer
	var all errgroup.Group
	for i := range both {
		all.Go(func() (err error) {
			both[i], err = r.call(ctx, s, at+i, in, want)
			return err
		})
		if way == 0 { // not at the same time
			if err := all.Wait(); err != nil {
				return t, err
			}
		}
	}

	s.turn.Add(1)
	if err := all.Wait(); err != nil {
		return t, err
	}

	if both[0].holds() {
		both[0], both[1] = both[1], both[0]
	}
	first, second := both[0], both[1]
	if !second.holds() && (first.said != second.said ||
		in.Tool == "start_workflow" && first.reply.Begin.Session != second.reply.Begin.Session) {
		return t, r.wrong("a repetition with another reply", "session %s: %s got %q and %q", s.id, in, first.text,
			second.text)
	}
	return both[0], r.accept(s, in, last, both[:]...)
}

// once makes a call of the script at the server whose turn it is.
func (r *relay) once(ctx context.Context, s *opened, in input, want ...string) (t answer, err error) {
	last := r.saves.last(s.job)
	t, err = r.call(ctx, s, int(s.turn.Add(1)), in, want)
	if err != nil || t.kind != given {
		return t, err
	}
	return t, r.accept(s, in, last, t)
}

// holds reports whether the call has moved nothing yet.
func (a *answer) holds() bool { return a.said == reviewRuns || a.said == personAwaited }

// word is what an answer says, without details: of the model's form, or the code of a refusal.
func (a *answer) word() string {
	word, _, _ := strings.Cut(a.said, " ")
	if word == "" {
		return a.code
	}
	return word
}

// call makes a call at the servers in turn, beginning with at, until one does not refuse it.
func (r *relay) call(ctx context.Context, s *opened, at int, in input, want []string) (t answer, err error) {
	if in.Tool != "start_workflow" {
		in.Session = s.id
	}
	for try := range tries {
		p := r.servers[(at+try)%len(r.servers)].current()
		if p == nil {
			return t, r.wrong("a server that is gone", "server %d", (at+try)%len(r.servers)+1)
		}
		t = r.exchange(ctx, p, in.Tool, in.arguments())
		t.read(in)
		switch {
		case slices.Contains(want, t.word()):
			return t, nil
		case t.code == "":
			return t, r.wrong("another reply than the script's", "%s of session %s got %q, want one of %q: %.1000s", in,
				s.id, t.said, want, t.text)
		}
		r.refused(in.Tool, t.code, s, t.text)
		_ = wait.For(ctx, time.Millisecond)
	}
	return t, r.wrong("a call that no server carries out", "%s of session %s: %s", in, s.id, t.text)
}

// refused counts a refusal that a single server would not have given.
func (r *relay) refused(tool, code string, s *opened, text string) {
	r.load.refuse(code)
	r.history.fault("a refused call: "+code, "client %d: %s of session %s: %.600s", r.number, tool, s.id, text)
}

// accept checks the answers to a call and records them. The answers to one request are one operation,
// which took effect before the first of them.
func (r *relay) accept(s *opened, in input, last int, all ...answer) error {
	h := r.history
	if in.Tool == "start_workflow" {
		s.id = all[0].reply.Begin.Session
		h.with(func() {
			h.effects["session"][s.goal].id = s.id
			h.sessions[s.id] = &session{start: in}
		})
	}

	told := all
	if len(all) == 2 && in.Request != "" && !all[1].holds() {
		told = []answer{all[0]}
		told[0].call, told[0].ret = min(all[0].call, all[1].call), min(all[0].ret, all[1].ret)
	}
	for _, t := range told {
		h.add(r.number, s.id, in, t.call, t.said, t.ret)
	}

	for _, t := range all {
		if isRefusal(t.said) {
			continue
		}
		if err := r.check(s, in, t, last); err != nil {
			return err
		}
	}

	return nil
}

// commandWithin limits a command.
const commandWithin = 30 * time.Second

// decide answers for a person about the outputs of a step, at a terminal of some server's place.
func (r *relay) decide(ctx context.Context, s *opened, step, verdict string) error {
	answer := verdict
	if verdict == fail {
		answer += " Not yet"
	}

	at := int(s.turn.Add(1))
	for try := range tries {
		where := r.servers[(at+try)%len(r.servers)]
		r.load.people <- struct{}{}
		within, cancel := context.WithTimeout(ctx, commandWithin)
		call := r.history.now()
		text, _, err := tty.Run(r.deepwork(within, where, "sessions", "review", s.id, step), "", answer)
		<-r.load.people
		cancel()
		if err == nil {
			r.load.decisions.Add(1)
			r.history.add(r.number, s.id, input{Tool: "person", Step: step, Text: verdict}, call, decided,
				r.history.now())
			return nil
		}

		r.refused("sessions review", "the command", s, fmt.Sprintf("at server %d: %v: %s", where.number, err, text))
		if strings.Contains(text, "has answered already") { // the refused one was recorded
			break
		}
	}

	return r.wrong("a person's decision that was not recorded", "step %s of session %s", step, s.id)
}

// shownSessions is how many sessions are compared with what the command prints of them.
const shownSessions = 8

// judgeShown checks that `deepwork sessions show` prints some sessions as the database has them, at each
// server's place.
func (l *load) judgeShown(ctx context.Context) error {
	all, err := l.kept(ctx)
	if err != nil {
		return err
	}
	for n, k := range all[:min(len(all), shownSessions)] {
		text, err := l.deepwork(ctx, l.servers[n%len(l.servers)], "sessions", "show", k.id, "--json").Output()
		if err != nil || !bytes.Equal(bytes.TrimSpace(text), k.body) {
			l.history.fault("a session that is shown otherwise", "session %s: %v\n%.2000s\nwant\n%.2000s", k.id, err,
				text, k.body)
		}
	}

	return nil
}
