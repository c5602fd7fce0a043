package process

import (
	"os"
	"time"
)

// Drain waits until done is closed, which those do who read the pipes of a child
// that is dead with its group, once they are at their ends. It waits no longer
// than about limit for pipes that something which left the group holds open, and
// three times that while one of them holds what was written and is not read yet:
// on a machine that is busy with other things the readers may not have had their
// turn, and what the child wrote must not be lost for it. Where nobody can write
// any more and all is read it does not wait. The caller closes the pipes then,
// which ends the readers.
func Drain(done <-chan struct{}, limit time.Duration, pipes ...*os.File) {
	// A clock would run on while the whole process stands still; of a ticker's
	// ticks no more than one is left over from such a time.
	const ticks = 20
	ticker := time.NewTicker(limit / ticks)
	defer ticker.Stop()
	for n := 1; n < 3*ticks; n++ {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		unread, open := false, false
		for _, f := range pipes {
			u, o := look(f)
			unread, open = unread || u, open || o
		}
		if !unread && (!open || n >= ticks) {
			return
		}
	}
}
