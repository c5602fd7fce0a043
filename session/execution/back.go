package execution

import (
	"context"
	"slices"
	"time"

	"deepwork/catalog/remote"
)

// backEvery is how often a run whose source is away looks whether it is back.
const backEvery = 500 * time.Millisecond

// waitOrBack blocks for so long, until ctx ends, or until a source that was away
// meanwhile is connected again: back. Whether it is costs a look at what the catalog
// has published, and nothing at the source.
func (e *Engine) waitOrBack(ctx context.Context, d time.Duration, source string) (back bool) {
	published, ok := e.sources.(interface{ Snapshot() *remote.Snapshot })
	if !ok {
		wait(ctx, d)
		return false
	}
	until := time.Now().Add(d)
	away := false
	for left := d; left > 0; left = time.Until(until) {
		if !connected(published.Snapshot(), source) {
			away = true
		} else if away {
			return true
		}
		if !wait(ctx, min(left, backEvery)) {
			return false
		}
	}
	return false
}

// connected tells whether a source is there and connected.
func connected(s *remote.Snapshot, source string) bool {
	return s != nil && slices.ContainsFunc(s.Sources, func(of remote.SourceState) bool { return of.Name == source && of.Connected })
}
