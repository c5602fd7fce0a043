package remote

import (
	"context"

	sources "deepwork/catalog/remote"
	"deepwork/session"
	"deepwork/session/execution"
	"deepwork/transport/tool"
)

// What the web UI shows and does: these are the tools, for people.

// Offer returns the sources with their workflows, and what the config has that is not connected.
func (r *Tools) Offer(ctx context.Context) (now *sources.Snapshot, unused []sources.Skipped) {
	r.follow(ctx)
	now = r.Listing(ctx).From
	for _, why := range r.unused(ctx) {
		unused = append(unused, sources.Skipped{Reason: why})
	}
	return now, append(unused, r.withheld(ctx)...)
}

// Refresh asks all sources for their workflows now, and returns the names of tools that are new, gone
// and changed.
func (r *Tools) Refresh(ctx context.Context) (added, removed, changed []string, err error) {
	reply, err := r.refresh(ctx, nil, tool.NoArgs{})
	if err != nil {
		return nil, nil, nil, err
	}
	return reply.Added, reply.Removed, reply.Changed, nil
}

// Newest returns a caller's newest executions, and how many it has.
func (r *Tools) Newest(ctx context.Context, who session.Caller, limit int) ([]execution.Execution, int, error) {
	return r.Executions.Newest(ctx, who.Identity, limit)
}

// Status returns an execution of a caller.
func (r *Tools) Status(ctx context.Context, who session.Caller, id string) (*execution.Execution, error) {
	return r.Executions.Status(ctx, who.Identity, id)
}

// Cancel cancels an execution of a caller.
func (r *Tools) Cancel(ctx context.Context, who session.Caller, id string) (*execution.Execution, error) {
	return r.Executions.Cancel(ctx, who.Identity, who.Channel, id)
}

// Going reports whether executions run that this process follows.
func (r *Tools) Going() bool { return r.Executions.Going() }
