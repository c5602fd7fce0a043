package attempt

import (
	"cmp"
	"context"
	"encoding/json"

	"deepwork/catalog/task"
	"deepwork/session/attempt/transcript"
	"deepwork/session/board"
	"deepwork/session/store"
)

// usageOf returns what an execution used, by the current prices; nil if its agent reported nothing.
func (e *Engine) usageOf(
	ctx context.Context, b store.Board, attempt, executor string, u *transcript.Usage,
) (*task.Usage, error) {
	if u == nil {
		return nil, nil
	}

	prices := map[string]transcript.Price{}
	if cfg, err := e.Config(ctx); err == nil { // on an error only what agents report is known
		for model, p := range cfg.Prices {
			prices[model] = transcript.Price(p)
		}
	}

	var before map[string]transcript.Tokens
	if u.Thread != "" {
		all, err := b.Used(ctx, attempt)
		if err != nil {
			return nil, err
		}
		for _, earlier := range all {
			if earlier.Thread == u.Thread && earlier.Totals != nil {
				before = nil
				_ = json.Unmarshal(earlier.Totals, &before) // a damaged row says nothing
			}
		}
	}
	c := transcript.CostOf(u, before, prices, executor)
	used := &task.Usage{
		InputTokens:  c.Tokens.Input,
		CachedTokens: c.Tokens.CacheRead + c.Tokens.CacheWrite,
		OutputTokens: c.Tokens.Output,
		Turns:        c.Turns,
		Thread:       u.Thread,
	}
	if c.USD != nil {
		used.MicroUSD = new(board.MicroUSD(*c.USD))
	}
	if u.Thread != "" && !u.Partial {
		totals := u.Models
		if totals == nil {
			totals = before
		}
		used.Totals, _ = json.Marshal(totals) // encoding numbers never fails
	}
	return used, nil
}

// countUse counts what an agent or a reviewer used; nil means that it reported nothing.
func (e *Engine) countUse(u *task.Usage, limited bool) {
	e.count(func(s *Stats) {
		s.Spent.Executions++
		if limited {
			s.Limited++
		}

		known := cmp.Or(u, &task.Usage{})
		if known.MicroUSD == nil {
			s.Spent.Unknown++
		} else {
			s.Spent.MicroUSD += *known.MicroUSD
		}

		s.Spent.InputTokens, s.Spent.CachedTokens, s.Spent.OutputTokens = s.Spent.InputTokens+known.InputTokens,
			s.Spent.CachedTokens+known.CachedTokens, s.Spent.OutputTokens+known.OutputTokens
	})
}
