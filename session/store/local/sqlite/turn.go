package sqlite

import (
	"time"

	"deepwork/actor/durable"
)

// The lock files beside the database.
const (
	nextSuffix = "-next"
	turnSuffix = "-turn"
)

// lookPace is the time between two looks at a lock that another process holds.
const lookPace = 250 * time.Microsecond

// turn waits until it is this process's turn to write, and returns a function that ends the turn; since
// is that of DB.pause.
//
// SQLite excludes other writers, but not in an order: who commits and begins again at once, while the
// others sleep, may do so for minutes. So processes take turns of one transaction each. Of the two
// lock files, one belongs to the process whose turn it is, the other to the one that is next:
//
//	lock next; lock turn; unlock next; BEGIN … COMMIT; unlock turn
//
// Whoever ends a turn and wants another has to lock next first, which the process that waits for the
// turn has locked already: it goes before. The others that wait for next look at equal intervals, so
// that each gets it in the end. The system releases the locks of a process that is killed.
//
// The locks only give an order. Where they cannot be used, and after half of the patience that a call
// has, a process goes on without them, and SQLite decides; from then on it waits no more for a lock until it has
// had it once. So a process that was stopped while it waited is in nobody's way, and one that was stopped in
// a transaction still excludes all others.
func (w *writer) turn(since *time.Time) (end func(), err error) {
	until := time.Now().Add(w.db.patience / 2)
	lock := func(suffix string) (*durable.FileLock, error) {
		for {
			l, err := durable.TryLock(w.db.o.Path + suffix)
			if err != nil {
				if !w.unordered {
					w.unordered = true
					w.db.o.Logger.Warn("processes cannot take turns in writing the task board", "path", w.db.o.Path, "error", err)
				}
				return nil, nil
			}
			late := w.stuck[suffix] || !time.Now().Before(until)
			if l != nil || late || !w.wanted() {
				w.stuck[suffix] = l == nil && late
				return l, nil
			}
			if err := w.db.pause(w.db.closing, since, lookPace); err != nil {
				return nil, err
			}
		}
	}
	next, err := lock(nextSuffix)
	if err != nil {
		return nil, err
	}
	turn, err := lock(turnSuffix)
	unlock(next)
	return func() { unlock(turn) }, err
}

func unlock(l *durable.FileLock) {
	if l != nil {
		l.Unlock() // cannot fail: it closes the file
	}
}
