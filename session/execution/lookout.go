package execution

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	lookEvery  = 10 * time.Second // between two looks for runs that nobody follows, give or take a tenth
	lookRarely = 5 * time.Minute  // between two tries at those that could not be taken up
)

// A lookout finds the runs of a server that was killed while this one lives. Nobody
// would cancel them when their time is over, or fetch their results before their
// sources forget them, if that had to wait until somebody asks or a server starts.
type lookout struct {
	engine *Engine
	stuck  []string      // the journals that were still there after the last try
	pause  time.Duration // before the next try at no others than these
	again  time.Time     // when that is over
}

// keepLooking looks until the engine closes. Servers that started together do not
// look at the same moment for long.
func (e *Engine) keepLooking() {
	l := lookout{engine: e}
	for wait(e.ctx, lookEvery*9/10+rand.N(lookEvery/5)) {
		l.look(e.ctx)
	}
}

// look takes up what servers that are gone have left, if anything. Where there is
// nothing it costs the reading of a folder and a probe of each other server's lock,
// and writes nothing. Of several servers that look at once one takes up a run: it is
// decided under the claim lock.
func (l *lookout) look(ctx context.Context) {
	left := l.left()
	switch {
	case len(left) == 0:
		l.stuck = nil
		return
	case slices.Equal(left, l.stuck) && time.Now().Before(l.again):
		return
	}
	if _, err := l.engine.takeUp(ctx); err != nil && ctx.Err() == nil {
		l.engine.log.Warn("the runs of servers that are gone cannot be taken up now", "error", err)
	}
	l.engine.sweep()
	still := l.left()
	switch {
	case len(still) == 0:
		l.stuck = nil
	case slices.Equal(still, l.stuck):
		l.pause = min(2*l.pause, lookRarely)
	default: // a full disk, say: it is not to be in the log every ten seconds
		l.stuck, l.pause = still, lookEvery
	}
	l.again = time.Now().Add(l.pause)
}

// left returns the names of the journals of servers that are gone, sorted; none
// where they cannot be listed: then whoever asks for a run is told why.
func (l *lookout) left() []string {
	s := l.engine.store
	names, err := s.names()
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(names, func(name string) bool {
		server, ok := serverOf(name, "runs_", ".jsonl")
		return !ok || s.member.Alive(server)
	})
}
