package remote

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"deepwork/catalog/jsontext"
)

// query asks the source which workflows it has, publishes what it learnt, and answers
// whoever waits for that (seed 003, 1.1 to 1.3). Whoever gets an error does the same
// with that.
func (s *source) query(ctx context.Context, l *link) error {
	s.collect()
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
	s.tell(old, now)
	s.news()
	s.answer(nil)
	return nil
}

// list gathers all pages of the list tool's answer.
func (s *source) list(ctx context.Context, l *link) ([]*offered, []Skipped, error) {
	if err := l.learn(ctx, s.def.ListTool, s.def.ExecuteTool, s.def.StatusTool, s.def.CancelTool); err != nil {
		return nil, nil, err
	}
	if !l.has(s.def.ListTool) {
		return nil, nil, fmt.Errorf("it has no tool %q; name its list tool as list_tool in the config", s.def.ListTool)
	}
	g := newGathering(s.def.Name, s.offer.Load().workflows)
	for cursor := ""; ; {
		arguments := json.RawMessage(`{}`)
		if cursor != "" {
			arguments, _ = json.Marshal(map[string]string{"cursor": cursor}) // texts always have a JSON form
		}
		answer, err := l.call(ctx, s.def.ListTool, arguments, nil)
		if err != nil {
			return nil, nil, err
		}
		if answer.IsError {
			return nil, nil, &RefusedError{Text: answer.text()}
		}
		next, err := g.add(answer.list())
		if err != nil {
			return nil, nil, err
		}
		if next == "" {
			if !l.has(s.def.ExecuteTool) {
				g.withhold(fmt.Sprintf("the source has no tool %q to run it; name its execute tool as execute_tool in the config", s.def.ExecuteTool))
			}
			return g.workflows, g.reasons(), nil
		}
		cursor = next
	}
}

// A gathering is the workflows of the pages so far.
type gathering struct {
	source    string
	known     map[[sha256.Size]byte]*offered
	book      schemaBook
	workflows []*offered
	ids       map[string]bool
	cursors   map[string]bool
	skipped   []Skipped
	more      int // reasons that are not kept
	bytes     int
}

// newGathering begins one; workflows that are the same as before are taken from
// before.
func newGathering(source string, before []*offered) *gathering {
	g := &gathering{
		source: source, ids: make(map[string]bool, len(before)), cursors: make(map[string]bool),
		book:  make(schemaBook),
		known: make(map[[sha256.Size]byte]*offered, len(before)),
	}
	for _, w := range before {
		g.known[w.sum] = w
	}
	return g
}

// add takes one page. It returns the next page's cursor; "": that was all that is
// taken.
func (g *gathering) add(text json.RawMessage) (next string, err error) {
	if g.bytes += len(text); g.bytes > maxQuery {
		return "", fmt.Errorf("its pages have more than %d bytes, the most that is read", maxQuery)
	}
	p, err := parsePage(g.source, text, g.known, g.book)
	if err != nil {
		return "", err
	}
	for _, skipped := range p.skipped {
		g.skip(skipped.Workflow, skipped.Reason)
	}
	g.more += p.more
	for _, w := range p.workflows {
		switch {
		case len(g.workflows) >= maxWorkflows:
			g.skip("", fmt.Sprintf("the source offers more than %d workflows; those after that are left out", maxWorkflows))
			return "", nil
		case g.ids[w.ID]:
			g.skip(jsontext.Clip(w.ID, 100), "a second workflow of this id; the first is taken")
		default:
			g.ids[w.ID] = true
			g.workflows = append(g.workflows, w)
		}
	}
	switch {
	case p.next == "":
		return "", nil
	case g.cursors[p.next]:
		return "", fmt.Errorf("its nextCursor %q came before: its pages go round in a circle", jsontext.Clip(p.next, 80))
	case len(g.cursors) >= maxPages-1:
		return "", fmt.Errorf("its list has more than %d pages", maxPages)
	}
	g.cursors[p.next] = true
	return p.next, nil
}

func (g *gathering) skip(workflow, reason string) {
	if len(g.skipped) >= maxSkipped {
		g.more++
		return
	}
	g.skipped = append(g.skipped, Skipped{Source: g.source, Workflow: workflow, Reason: jsontext.Clip(reason, 500)})
}

// withhold leaves all workflows out.
func (g *gathering) withhold(reason string) {
	for _, w := range g.workflows {
		g.skip(jsontext.Clip(w.ID, 100), reason)
	}
	g.workflows = nil
}

// reasons are why workflows were skipped.
func (g *gathering) reasons() []Skipped {
	if g.more == 0 {
		return g.skipped
	}
	return append(g.skipped, Skipped{Source: g.source, Reason: fmt.Sprintf("%d more workflows were left out", g.more)})
}

// lost publishes that there is no connection, and why.
func (s *source) lost(err error) {
	old := s.offer.Load()
	now := *old
	now.connected, now.err = false, err
	if old.connected {
		now.since = time.Now()
	}
	s.publish(old, &now)
	s.collect()
	s.answer(err)
}

// failed publishes that a query failed, and answers whoever waits for it; what the
// source offered before stays.
func (s *source) failed(err error) {
	old := s.offer.Load()
	now := *old
	now.connected, now.err = true, err
	s.publish(old, &now)
	s.answer(err)
}

func (s *source) publish(old, now *offer) {
	if old.connected == now.connected && sameError(old.err, now.err) {
		return
	}
	s.offer.Store(now)
	s.tell(old, now)
	s.news()
}

// sameError tells whether two errors say the same, but for times, ports and the
// like: one that comes back with each attempt is news once.
func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	plain := func(err error) string {
		return strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return -1
			}
			return r
		}, err.Error())
	}
	return plain(a) == plain(b)
}

// tell logs what changed from one offer to the next, once (seed 003, 1.4, 5.1,
// 5.3 and 6.2).
func (s *source) tell(old, now *offer) {
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
	const most = 20 // lines about workflows of one query
	lines := 0
	told := make(map[string]bool)
	say := func(message, workflow, reason string) {
		key := message + "\x00" + workflow + "\x00" + reason
		if told[key] = true; s.told[key] {
			return
		}
		if lines++; lines <= most {
			s.logger.LogAttrs(context.Background(), slog.LevelWarn, message,
				slog.String("workflow", workflow), slog.String("reason", reason))
		}
	}
	for _, skipped := range now.skipped {
		say("a workflow is not offered", skipped.Workflow, skipped.Reason)
	}
	for _, w := range now.workflows {
		for _, note := range w.notes {
			say("a workflow is offered with a default", jsontext.Clip(w.ID, 100), note)
		}
	}
	if lines > most {
		s.logger.Warn("more workflows are skipped or offered with a default", "workflows", lines-most)
	}
	s.told = told
}
