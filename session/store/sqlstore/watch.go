package sqlstore

import (
	"context"
	"time"

	"deepwork/actor/wait"
)

// watch calls look at once, and whenever version has changed or there is none, until it is done or
// fails. It looks at the version at each hint and from time to time. Its error may be the cause of the
// end of ctx.
func (s *Store) watch(ctx context.Context, every time.Duration, version func(context.Context) (int64, error), look func() (done bool, err error)) error {
	var seen int64 = -1
	for {
		var hint <-chan struct{}
		if s.o.Hint != nil {
			hint = s.o.Hint()
		}
		now := seen + 1
		if version != nil {
			var err error
			if now, err = version(ctx); err != nil {
				return err
			}
		}
		if now != seen {
			if done, err := look(); done || err != nil {
				return err
			}
			seen = now
		}
		if err := wait.Until(ctx, every, hint); err != nil {
			return err
		}
	}
}
