package work

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"deepwork/actor/wait"
	"deepwork/session/store"
)

// serve renews what this process does, and begins what nobody does, until the loop closes.
func (l *Loop) serve() {
	l.looked = time.Now()
	for l.ctx.Err() == nil {
		next, err := l.look()
		if l.ctx.Err() != nil {
			return
		}
		if err != nil {
			l.lost()
			next = time.Now().Add(min(time.Second, l.o.Life/6))
		}
		l.note(err)
		l.rest(next)
	}
}

// note sets the error of the last look, which is logged once. It stays as long as nothing is taken over for its sake.
func (l *Loop) note(err error) {
	waits := time.Until(l.mayTakeOver()) > 0
	l.mu.Lock()
	known := fmt.Sprint(l.err)
	if err != nil || !waits {
		l.err = err
	}
	l.mu.Unlock()
	if err != nil && err.Error() != known {
		l.o.Logger.Warn("work cannot be renewed and begun now; trying again", "error", err)
	}
}

// follow wakes serve when work has changed.
func (l *Loop) follow() {
	changes, position := l.o.Stores.Database.Changes(), ""
	for l.ctx.Err() == nil {
		news, err := changes.Since(l.ctx, position)
		if err == nil {
			position = news.Next
			if news.Reset || slices.ContainsFunc(news.Changes, func(c store.Change) bool {
				return c.Kind == store.WorkChanged
			}) {
				l.wake.Wake()
			}
			err = changes.Wait(l.ctx, position)
		}
		if err != nil && l.ctx.Err() == nil {
			l.lost()
			_ = wait.For(l.ctx, time.Second)
		}
	}
}

// lost notes that the store does not answer now: perhaps nobody can renew anything.
func (l *Loop) lost() {
	l.mu.Lock()
	l.away = time.Now()
	l.mu.Unlock()
}

// look renews what is due for that, begins what nobody does, and returns when to look again.
func (l *Loop) look() (next time.Time, err error) {
	next = time.Now().Add(time.Hour)
	if !l.o.Stores.Database.Exists() {
		return next, nil
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.o.Life)
	defer cancel()
	if err := l.renew(ctx); err != nil {
		return next, err
	}

	doing := l.all("")
	open, err := l.rows.Open(ctx)
	if err != nil {
		return next, err
	}
	l.compare(doing, open)
	others := slices.DeleteFunc(open, func(r store.WorkRow) bool {
		return l.room(&r) == 0 || slices.ContainsFunc(doing, func(t *Task) bool { return t.Runner == r.Runner })
	})

	gone := l.gone(others)
	waits := time.Until(l.mayTakeOver())
	for kind, due := range l.due(others, gone, waits) {
		if due > 0 {
			next = earlier(next, time.Now().Add(due))
		} else if begun, err := l.claim(ctx, kind, gone, waits <= 0); err != nil {
			return next, err
		} else if !begun { // another process was faster, or the clock was set back
			next = earlier(next, time.Now().Add(time.Second))
		}
	}
	return next, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// due returns how long it takes until this process can begin something of each kind, if nobody renews anything.
func (l *Loop) due(others []store.WorkRow, gone []string, waits time.Duration) map[string]time.Duration {
	all := map[string]time.Duration{}
	for _, r := range others {
		in := r.In
		switch {
		case slices.Contains(gone, r.Runner):
			in = 0
		case r.Runner != "":
			in = max(in, waits)
		}
		if known, ok := all[r.Kind]; !ok || in < known {
			all[r.Kind] = in
		}
	}
	return all
}

// room returns how many rows like this one, which others do or nobody does, this process can do.
func (l *Loop) room(r *store.WorkRow) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.kinds[r.Kind]
	switch {
	case g == nil || r.Place != "" && r.Place != g.Place:
		return 0
	case g.Limit == 0:
		return claimAtOnce
	}
	n := g.Limit
	for _, t := range l.tasks {
		if t.Kind == r.Kind {
			n--
		}
	}
	return max(n, 0)
}

// placeOf returns where this process does work of a kind.
func (l *Loop) placeOf(kind string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.kinds[kind]; g != nil {
		return g.Place
	}
	return ""
}

// claim begins rows of a kind that nobody does. It reports whether it has begun any.
func (l *Loop) claim(ctx context.Context, kind string, gone []string, lapsed bool) (begun bool, err error) {
	if err := l.o.Stores.Members.Enter(ctx); err != nil {
		return false, err
	}
	c := store.WorkClaim{WorkRow: l.Claimed(kind, "", nil), Gone: gone, Lapsed: lapsed}
	c.Limit = l.room(&c.WorkRow)
	c.Place = l.placeOf(kind)
	c.Except = l.leftOf(kind)
	rows, err := l.rows.Claim(ctx, c)
	for _, r := range rows {
		if r.Claims > 1 {
			l.o.Logger.Info("work taken over", "work", r.ID(), "claims", r.Claims)
		}
		l.Run(r)
	}
	return len(rows) > 0, err
}

// leftOf returns the keys of the rows of a kind that are left to others for now.
func (l *Loop) leftOf(kind string) (keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.left, func(_ string, until time.Time) bool { return !time.Now().Before(until) })
	for id := range l.left {
		if key, ok := strings.CutPrefix(id, kind+"/"); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// gone returns the runners that were processes of this place and have ended, and notes the processes to watch.
func (l *Loop) gone(others []store.WorkRow) (runners []string) {
	alive := store.Census(l.o.Stores.Members)
	l.watched = nil
	for _, r := range others {
		member := memberOf(r.Runner)
		switch {
		case r.Runner == "" || r.RunnerPlace != l.place:
		case !alive(member):
			runners = append(runners, r.Runner)
		case member != l.o.Stores.Members.ID() && !slices.Contains(l.watched, member):
			l.watched = append(l.watched, member)
		}
	}
	return runners
}

// compare ends the handlers of rows that are not this process's any more, or that are asked to stop.
func (l *Loop) compare(doing []*Task, rows []store.WorkRow) {
	for _, t := range doing {
		at := slices.IndexFunc(rows, func(r store.WorkRow) bool {
			return r.Kind == t.Kind && r.Key == t.Key && r.Runner == t.Runner
		})
		switch {
		case at < 0:
			t.cancel(ErrTaken)
		case rows[at].Stop:
			t.cancel(ErrStopped)
		}
	}
}

// renew renews what this process does, if that is due.
func (l *Loop) renew(ctx context.Context) error {
	doing := l.all("")
	if !l.isOverdue(doing) {
		return nil
	}
	rows, progress := make([]store.WorkRow, len(doing)), make([]*json.RawMessage, len(doing))
	for i, t := range doing {
		rows[i] = store.WorkRow{Kind: t.Kind, Key: t.Key, Runner: t.Runner}
		if progress[i] = t.progress.Load(); progress[i] != t.stored {
			rows[i].Progress = *progress[i]
		}
	}

	began := time.Now()
	kept, err := l.rows.Renew(ctx, l.o.Life, rows)
	if err != nil {
		return err
	}
	for i, t := range doing {
		t.renewed, t.stored = began, progress[i]
	}
	l.overdue = false
	l.compare(doing, kept)
	return nil
}

// isOverdue reports whether a task was not renewed for a third of its life.
func (l *Loop) isOverdue(doing []*Task) bool {
	return len(doing) > 0 && (l.overdue || slices.ContainsFunc(doing, func(t *Task) bool {
		return time.Since(t.renewed) >= l.o.Life/3
	}))
}

// rest waits until next, for a change of work, or for the end of a process that does something.
func (l *Loop) rest(next time.Time) {
	for {
		pause := min(time.Until(next), lookEvery, l.o.Life/6)
		if len(l.watched) > 0 {
			pause = min(pause, lockEvery)
		}
		timer := time.NewTimer(max(pause, time.Millisecond))
		woken := false
		select {
		case <-timer.C:
		case <-l.wake:
			woken = true
		case <-l.ctx.Done():
			woken = true
		}
		timer.Stop()
		if l.slept() || woken || !time.Now().Before(next) || l.isOverdue(l.all("")) ||
			slices.ContainsFunc(l.watched, func(m string) bool { return !l.o.Stores.Members.Alive(m) }) {
			return
		}
	}
}

// slept reports whether this process could not look at the clock for a while. Then the machine may have slept,
// and nobody could renew anything: what this process does is renewed now, and others get time to do so, too.
func (l *Loop) slept() bool {
	now := time.Now()
	// the other clock stands still while a machine sleeps
	slept := now.Round(0).Sub(l.looked.Round(0)) > l.o.Life/2
	l.looked = now
	if slept {
		l.overdue = true
		l.lost()
	}
	return slept
}

// mayTakeOver returns the time from which lapsed rows are taken over: their runners get half a life to renew them
// after the machine slept or the store was away.
func (l *Loop) mayTakeOver() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away.IsZero() {
		return l.away
	}
	return l.away.Add(l.o.Life / 2)
}
