package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"deepwork/catalog/jsontext"
)

// query asks the source for its workflows, publishes them, and answers the waiting request (seed 003, 1.1 to
// 1.3). If it returns an error, the caller must do the latter two.
func (s *source) query(ctx context.Context, l *link) error {
	ctx, cancel := bounded(ctx, queryTimeout, "its list of workflows")
	defer cancel()
	stop := context.AfterFunc(l.ctx, cancel)
	defer stop()
	workflows, skipped, err := s.list(ctx, l)
	if err != nil {
		if ctx.Err() != nil && l.ctx.Err() == nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("asking for its workflows: %w", err)
	}

	old := s.offer.Load()
	now := &offer{workflows: workflows, skipped: skipped, queried: true, connected: true}
	s.offer.Store(now)
	s.log(old, now)
	s.changed.Wake()
	s.answer(nil)
	return nil
}

// list reads all pages of the list tool's answer.
func (s *source) list(ctx context.Context, l *link) ([]*offered, []Skipped, error) {
	if err := l.findTools(ctx, s.def.ListTool, s.def.ExecuteTool, s.def.StatusTool, s.def.CancelTool); err != nil {
		return nil, nil, err
	}

	all := newListing(s.def.Name, s.offer.Load().workflows)
	if s.def.Tools != nil {
		if err := s.tools(ctx, l, all); err != nil {
			return nil, nil, err
		}
	}
	if !l.has(s.def.ListTool) {
		if s.def.Tools != nil {
			return all.workflows, all.reasons(), nil
		}
		return nil, nil,
			fmt.Errorf("it has no tool %q: name its list tool as list_tool in the config, or those of its tools that "+
				"are to be offered here as tools; if it is a deepwork, start that one with --toolsets workflows,source",
				s.def.ListTool)
	}

	for cursor := ""; ; {
		arguments := json.RawMessage(`{}`)
		if cursor != "" {
			arguments, _ = json.Marshal(map[string]string{"cursor": cursor}) // encoding texts never fails
		}
		answer, err := l.call(ctx, callMethod, &callRequest{Name: s.def.ListTool, Arguments: arguments}, nil)
		if err != nil {
			return nil, nil, err
		}
		if answer.IsError {
			return nil, nil, &RefusedError{Text: answer.text()}
		}

		next, err := all.add(answer.list())
		if err != nil {
			return nil, nil, err
		}
		if next == "" {
			if !l.has(s.def.ExecuteTool) {
				all.workflows = slices.DeleteFunc(all.workflows, func(w *offered) bool {
					run := w.tool == ""
					if run {
						all.skip(jsontext.Clip(w.ID, 100),
							fmt.Sprintf("the source has no tool %q to run it; name its execute tool as execute_tool "+
								"in the config", s.def.ExecuteTool))
					}
					return run
				})
			}
			return all.workflows, all.reasons(), nil
		}
		cursor = next
	}
}

// failed publishes that a query failed, or that there is no connection, and why, and answers the waiting
// requests. The workflows of the previous query remain.
func (s *source) failed(err error, connected bool) {
	defer s.answer(err)
	old := s.offer.Load()
	if old.connected == connected && sameError(old.err, err) {
		return
	}
	now := *old
	now.connected, now.err = connected, err
	if old.connected && !connected {
		now.since = time.Now()
	}
	s.offer.Store(&now)
	s.log(old, &now)
	s.changed.Wake()
}

// sameError reports whether two errors differ only in digits, such as times and ports: an error that recurs
// at each attempt is published once.
func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return numbers.ReplaceAllString(a.Error(), "") == numbers.ReplaceAllString(b.Error(), "")
}

var numbers = regexp.MustCompile(`[0-9]+`)

// log logs once what changed between two offers (seed 003, 1.4, 5.1, 5.3 and 6.2).
func (s *source) log(old, now *offer) {
	switch {
	case now.err != nil && now.connected:
		s.logger.Warn("a source cannot be asked for its workflows; asking again", "error", now.err)
	case now.err != nil && !errors.Is(now.err, errConnecting):
		s.logger.Warn("a source cannot be reached; trying again", "error", now.err)
	case now.err == nil && (!old.connected || old.err != nil || s.broken):
		s.broken = false
		s.logger.Info("a source is connected", "workflows", len(now.workflows), "skipped", len(now.skipped))
	}
	if now.err != nil {
		return
	}

	lines, logged := 0, make(map[string]bool)
	say := func(message, workflow, reason string) {
		key := message + "\x00" + workflow + "\x00" + reason
		if !s.logged[key] && !logged[key] && lines < maxLogged {
			lines++
			s.logger.Warn(message, "workflow", workflow, "reason", reason)
		}
		logged[key] = true
	}
	for _, skipped := range now.skipped {
		say("a workflow is not offered", skipped.Workflow, skipped.Reason)
	}
	for _, w := range now.workflows {
		for _, note := range w.notes {
			say("a workflow is offered with a default", jsontext.Clip(w.ID, 100), note)
		}
	}
	s.logged = logged
}
