package remote

import (
	"context"

	sources "deepwork/catalog/source"
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

// Refresh asks all sources for their workflows now.
func (r *Tools) Refresh(ctx context.Context) (*RefreshReply, error) {
	return r.refresh(ctx, nil, tool.NoArgs{})
}
