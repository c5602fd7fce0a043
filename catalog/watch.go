package catalog

import (
	"context"
	"time"
)

// A batch is what a watch has heard of since the last one.
type batch struct {
	keys []key
	all  bool // too much happened, or it is not known what: look at everything
}

// A watch tells of changes on disk until its context ends, or until it cannot
// any more, which is the error it returns. It may tell of changes that are none,
// and calls tell from one goroutine at a time.
type watch interface {
	run(ctx context.Context, tell func(context.Context, batch)) error
}

var (
	_ watch = (*eventWatch)(nil)
	_ watch = pollWatch{}
)

// A pollWatch looks at everything at intervals: the twin of eventWatch where the
// system has no events, or no more of them.
type pollWatch struct{ interval time.Duration }

func (p pollWatch) run(ctx context.Context, tell func(context.Context, batch)) error {
	ticker := time.NewTicker(p.interval)
	defer ticker.Stop()
	for {
		// First of all: what changed before the first tick.
		tell(ctx, batch{all: true})
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
