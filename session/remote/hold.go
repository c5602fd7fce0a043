package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"deepwork/actor/wait"
)

// hold keeps the records of the runs that this server follows its own, until the engine closes:
// it renews them three times in their life, and cancels those that it was asked to. It does nothing
// while there are none.
func (e *Engine) hold() {
	logged := ""
	for e.ctx.Err() == nil {
		if !e.entries.any() {
			select {
			case <-e.entries.added:
			case <-e.ctx.Done():
			}
			continue
		}
		err := e.obey()
		if renewed := e.renew(); renewed != nil {
			err = renewed
		}
		if said := fmt.Sprint(err); said != logged && e.ctx.Err() == nil { // once, not each time
			if logged = said; err != nil {
				e.log.Warn("the records of remote runs cannot be renewed now; another server may take them up", "error", err)
			}
		}
		if err != nil {
			_ = wait.For(e.ctx, min(e.life/10, time.Second))
		}
	}
}

// obey cancels runs that this server follows and that it is asked to cancel, until their records
// have to be renewed.
func (e *Engine) obey() error {
	ctx, cancel := context.WithTimeout(e.ctx, e.life/3)
	defer cancel()
	err := e.store.Watch(ctx, func() (bool, error) {
		asked, err := e.store.Asked(ctx, e.member.ID())
		for _, id := range asked {
			if n := e.entries.get(id); n != nil {
				n.cancel(ErrCancelled)
			}
		}
		return !e.entries.any(), err
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// renew renews the records of the runs that this server follows, with their progress, and gives
// up those that another server has taken up.
func (e *Engine) renew() error {
	following, kept := make(map[string]json.RawMessage), make(map[*entry]*view)
	for _, n := range e.entries.all() {
		v := n.view.Load()
		kept[n] = v
		following[n.id] = nil
		if v.Progress != n.kept && !v.over {
			following[n.id] = progressText(v.Progress)
		}
	}
	if len(following) == 0 {
		return nil
	}
	held, err := e.store.Renew(e.ctx, e.member.ID(), e.life, following)
	if err != nil {
		return err
	}
	for _, id := range held {
		delete(following, id)
	}
	for n, v := range kept {
		if _, lost := following[n.id]; !lost {
			n.kept = v.Progress
		} else if !v.over {
			_ = n.ref.Tell(e.ctx, lostMessage{}) // an error means that it ends anyway
		}
	}
	return nil
}
