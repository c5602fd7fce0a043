package transport

import (
	"context"
	"log/slog"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/session/workflow"
)

// pruneInterval is the time between two looks for sessions to remove.
const pruneInterval = time.Hour

// A pruner removes the sessions that ended longer ago than sessions.keep_ended.
type pruner struct {
	engine   *workflow.Engine
	settings func(context.Context) (*config.Config, error)
	logger   *slog.Logger
}

// follow prunes at once and at intervals until ctx ends.
func (p *pruner) follow(ctx context.Context) {
	for {
		p.prune(ctx, time.Now())
		if wait.For(ctx, pruneInterval) != nil {
			return
		}
	}
}

// prune removes what is too old at a time.
func (p *pruner) prune(ctx context.Context, now time.Time) {
	c, err := p.settings(ctx)
	if err != nil || c.Sessions.KeepEnded == 0 {
		return // the config's faults are logged elsewhere
	}
	ids, definitions, err := p.engine.Prune(ctx, now.Add(-c.Sessions.KeepEnded), false)
	if err != nil && ctx.Err() == nil {
		p.logger.Warn("old sessions could not all be removed; trying again in an hour", "removed", len(ids), "error", err)
	} else if len(ids)+definitions > 0 {
		p.logger.Info("sessions removed that ended longer ago than sessions.keep_ended", "sessions", len(ids), "definitions", definitions)
	}
}
