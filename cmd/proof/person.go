package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"deepwork/cmd/proof/tty"
)

// commandWithin limits a command.
const commandWithin = 30 * time.Second

// decide answers for a person about the outputs of a step, at a terminal of some server's place.
func (r *relay) decide(ctx context.Context, s *opened, step, verdict string) error {
	flags := []string{"sessions", "review", s.id, step, "--" + verdict}
	if verdict == fail {
		flags = append(flags, "--feedback", "Not yet")
	}
	at := int(s.turn.Add(1))
	for try := range tries {
		where := r.servers[(at+try)%len(r.servers)]
		r.load.people <- struct{}{}
		within, cancel := context.WithTimeout(ctx, commandWithin)
		call := r.history.now()
		text, _, err := tty.Run(r.deepwork(within, where, flags...), "", "yes")
		<-r.load.people
		cancel()
		if err == nil {
			r.load.decisions.Add(1)
			r.history.add(r.number, s.id, input{Tool: "person", Step: step, Text: verdict}, call, decided, r.history.now())
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
			l.history.fault("a session that is shown otherwise", "session %s: %v\n%.2000s\nwant\n%.2000s", k.id, err, text, k.body)
		}
	}
	return nil
}
