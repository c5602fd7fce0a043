package page

import (
	"context"
	"sync/atomic"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/source"
)

// edits are the config, the jobs and what sources offer, as pages last saw them. They are not in the feed
// of the stores. The zero value has seen none.
type edits struct {
	streams atomic.Int64 // open
	config  atomic.Pointer[config.Config]
	jobs    atomic.Pointer[catalog.Snapshot]
	offer   atomic.Pointer[source.Snapshot]
}

// lookEvery is the time between two looks while a page is open.
const lookEvery = time.Second

// look touches the topics of what has changed since the last look, and that of the sources while
// executions run. It costs a few stats.
func (s *Site) look(ctx context.Context) {
	if now, err := s.Config(ctx); err == nil && s.edits.config.Swap(now) != now {
		s.Touch(configTopic)
	}
	if now := s.Jobs(ctx); s.edits.jobs.Swap(now) != now {
		s.Touch(jobsTopic)
	}
	if s.Sources != nil {
		if now, _ := s.Sources.Offer(ctx); s.edits.offer.Swap(now) != now || s.Sources.Runs.Going() {
			s.Touch(sourcesTopic)
		}
	}
}

// followEdits looks while pages are open, until ctx ends.
func (s *Site) followEdits(ctx context.Context) {
	for wait.For(ctx, lookEvery) == nil {
		if s.edits.streams.Load() > 0 {
			s.look(ctx)
		}
	}
}
