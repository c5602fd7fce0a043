package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

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

// judgeShown compares what `deepwork sessions` prints of each session with the history, in which that is
// another read, and checks the history. It returns how many it compared. No server may run.
func (l *load) judgeShown(ctx context.Context) (int, error) {
	h := l.history
	place := l.servers[0]
	text, err := l.deepwork(ctx, place, "sessions", "list", "--json").Output()
	if err != nil {
		return 0, fmt.Errorf("listing the sessions: %w", err)
	}
	var listed []struct {
		Session string `json:"session_id"`
		Goal    string `json:"goal"`
	}
	if err := json.Unmarshal(text, &listed); err != nil {
		return 0, fmt.Errorf("listing the sessions: %w", err)
	}
	goals := map[string][]string{}
	for _, s := range listed {
		goals[s.Goal] = append(goals[s.Goal], s.Session)
	}
	h.once("session", goals, func(_ string, e *effect) bool { return e.id != "" })
	var all errgroup.Group
	all.SetLimit(4)
	for _, s := range listed {
		all.Go(func() error {
			var r record
			text, err := l.deepwork(ctx, place, "sessions", "show", s.Session, "--json").Output()
			if err == nil {
				err = json.Unmarshal(text, &r)
			}
			l.compare(s.Session, r, err)
			return ctx.Err()
		})
	}
	err = all.Wait()
	h.check()
	return len(listed), err
}
