package page

import (
	"context"
	"sync/atomic"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog"
	"deepwork/catalog/config"
)

// edits are the config and the jobs as pages last saw them. Their files are not in the feed of the
// stores. The zero value has seen none.
type edits struct {
	streams atomic.Int64 // open
	config  atomic.Pointer[config.Config]
	jobs    atomic.Pointer[catalog.Snapshot]
}

// lookEvery is the time between two looks while a page is open.
const lookEvery = time.Second

// look touches the topics of the config and of the jobs if they have changed since the last look. It
// costs a few stats.
func (s *Site) look(ctx context.Context) {
	if now, err := s.Config(ctx); err == nil && s.edits.config.Swap(now) != now {
		s.Touch(configTopic)
	}
	if now := s.Jobs(ctx); s.edits.jobs.Swap(now) != now {
		s.Touch(jobsTopic)
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
