package execution

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/remote"
)

// A seenPlant reports whether it is connected, as a catalog does.
type seenPlant struct{ *plant }

func (p seenPlant) Snapshot() *remote.Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &remote.Snapshot{Sources: []remote.SourceState{{Name: "other", Connected: true}, {Name: "plant", Connected: p.away == nil}}}
}

// TestASourceThatIsBackIsAskedAtOnce: however long the pause has grown.
func TestASourceThatIsBackIsAskedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPlant()
		s := open(t, newRoot(t), seenPlant{p}, func(w *config.WorkflowTools) { w.ExecutionTimeout = 0 })
		c := s.start(workflow(t, "w", true, script{lasts: time.Minute}), `{}`)
		synctest.Wait()
		p.with(func() { p.away = fmt.Errorf("%w: it restarts", remote.ErrAway) })
		time.Sleep(10*time.Minute + 3*time.Second) // into the middle of a pause
		var polls int
		p.with(func() { polls, p.away = p.polls, nil })
		if polls > 30 {
			t.Errorf("asked %d times while it was away", polls)
		}
		back := time.Now()
		if r, err := c.wait(); err != nil || r.State != Completed || time.Since(back) > backEvery {
			t.Errorf("%+v, %v, %v after it was back", r, err, time.Since(back))
		}
	})
}
