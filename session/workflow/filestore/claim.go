package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"

	"github.com/gofrs/flock"

	"deepwork/actor/durable"
)

// claimed runs fn under the claim lock; held tells that the caller has it.
func (s *Store) claimed(held bool, fn func() error) error {
	if held {
		return fn()
	}
	return s.underClaim(fn)
}

// underClaim runs fn while no other server, and no other call of this store,
// holds the claim lock. It makes the folder where it is missing.
func (s *Store) underClaim(fn func() error) error {
	wait := newBackoff(s.claimWait)
	timeout := time.NewTimer(s.claimWait)
	defer timeout.Stop()
	select {
	case s.claiming <- struct{}{}:
	case <-timeout.C:
		return s.claimTimeout()
	}
	defer func() { <-s.claiming }()
	lock, err := s.lockClaim(wait)
	if err != nil {
		return err
	}
	defer lock.Close()
	return fn()
}

func (s *Store) lockClaim(wait *backoff) (*flock.Flock, error) {
	path := s.claimPath()
	for {
		if err := s.makeFolder(); err != nil {
			return nil, err
		}
		if fi, err := os.Lstat(path); err == nil && !fi.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is %s, not a file; move it out of the way and call again", path, durable.Kind(fi.Mode()))
		}
		lock := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
		ok, err := lock.TryLock()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// The folder vanished just now.
		case err != nil:
			return nil, durable.Explain(fmt.Errorf("locking %s: %w", path, err), path)
		case ok && durable.Stands(lock, path):
			return lock, nil
		case ok:
			lock.Close() // somebody removed the file that was locked
		}
		if !wait.next() {
			return nil, s.claimTimeout()
		}
	}
}

func (s *Store) claimTimeout() error {
	return fmt.Errorf("another server has held the lock %s for %v; wait for it, or end a deepwork process that hangs, and call again",
		s.claimPath(), s.claimWait)
}

// A backoff spaces the tries of a lock that cannot be waited for with a limit.
type backoff struct {
	end   time.Time
	pause time.Duration
}

func newBackoff(limit time.Duration) *backoff {
	return &backoff{end: time.Now().Add(limit), pause: 500 * time.Microsecond}
}

// next pauses, at most 20 ms and each time a little differently, and tells
// whether there is time for another try.
func (b *backoff) next() bool {
	if time.Now().After(b.end) {
		return false
	}
	time.Sleep(b.pause/2 + rand.N(b.pause))
	b.pause = min(b.pause*2, 15*time.Millisecond)
	return true
}
