// Package follow follows files that people and editors change: it finds out cheaply
// whether a file changed, waits until a save is complete, and keeps the last good
// content in use while the file is bad, half-written or missing for a moment.
package follow

import (
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"time"
)

// Kind is the kind of a file, symlinks followed.
type Kind uint8

// The kinds of a file. Unknown is the zero value: not looked at yet.
const (
	Unknown Kind = iota
	Absent       // there is no file, or only a dangling link
	Regular
	Dir
	Other  // a device, a pipe, a socket
	Failed // the system refused to say; Stamp.Fault is its error number
)

// A Stamp is the signature of a file: two equal stamps of one path mean that the
// file was not written in between, if the first was older than Racy when it was
// taken. Stamps are comparable with ==.
type Stamp struct {
	Kind   Kind
	Fault  uint32 // error number, of kind Failed only
	Size   int64  // bytes
	Mod    int64  // modification time, ns since 1970
	Change int64  // change of the inode if there is one, else creation; ns since 1970
	Dev    uint64 // device, 0 if the system has none
	Ino    uint64 // inode, 0 if the system has none
}

const (
	// Racy is how long after a write another write may leave the same stamp: file
	// systems and kernels count time in ticks. Younger content must be compared
	// itself (DESIGN "Read your own writes").
	Racy = 50 * time.Millisecond

	// Settle is how long a file must have been left alone before it is used: an
	// editor that truncates and writes would be caught between the two otherwise.
	Settle = 10 * time.Millisecond

	// Bound is how long a call waits for a file that is being written; then it gets
	// the last good content.
	Bound = forceAfter + 5*Settle

	// SaveBound is how long a file that is missing, or a beginning of what it was,
	// is taken for a save in progress.
	SaveBound = 500 * time.Millisecond
)

// Changed returns when the file was last written, renamed or otherwise touched,
// as far as the stamp tells.
func (s Stamp) Changed() time.Time { return time.Unix(0, max(s.Mod, s.Change)) }

// tick is how far a file's times may lag behind the clock: kernels take them
// from the last tick of their timer.
const tick = 10 * time.Millisecond

// Age returns for how long, at least, the file had been unchanged at now. A time
// in the future, as another machine's clock may give it, counts as no age.
func (s Stamp) Age(now time.Time) time.Duration {
	return max(0, now.Sub(s.Changed())-tick)
}

// A Path is the absolute name of a file. A Path of "" is no file.
type Path string

// Stat returns the stamp of the file, following symlinks. It never opens the file.
func (p Path) Stat() Stamp { return stat(string(p)) }

// ErrMoving is the error of Read for a file that changed while it was read.
var ErrMoving = errors.New("the file changed while it was read")

// Read returns the whole content of a regular file of at most limit bytes, with
// the stamp that it had before and after. It returns ErrMoving if the two differ
// or the file no longer has that kind or size, else the system's error. A pipe or
// device that took the file's place does not block it.
func (p Path) Read(limit int64) ([]byte, Stamp, error) {
	before := p.Stat()
	if before.Kind != Regular || before.Size > limit {
		return nil, before, ErrMoving
	}
	f, err := os.OpenFile(string(p), os.O_RDONLY|NonBlocking, 0)
	if err != nil {
		if p.Stat() != before {
			return nil, before, ErrMoving
		}
		return nil, before, err
	}
	defer f.Close()
	// One byte more than expected shows that the file has grown.
	data := make([]byte, before.Size+1)
	n, err := io.ReadFull(f, data)
	switch {
	case err == nil || p.Stat() != before:
		return nil, before, ErrMoving
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, before, err
	case int64(n) != before.Size:
		return nil, before, ErrMoving
	}
	return data[:n:n], before, nil
}

// same reports whether the file now has this stamp and content with this SHA-256;
// it reads the file. It reports false if it cannot tell.
func (p Path) same(s Stamp, sum [sha256.Size]byte) bool {
	data, now, err := p.Read(s.Size)
	return err == nil && now == s && sha256.Sum256(data) == sum
}

// A Track is what is known of the stamps of one file or directory. It is part of a
// value that is immutable once others can see it.
type Track struct {
	Path
	Stamp Stamp     // of the content in use; Unknown before that
	Racy  bool      // another write may have left the same stamp
	Due   time.Time // when to look again though nothing was heard; zero means never

	newest Stamp // what was on disk last
	seen   time.Time
}

// Observe records the stamp that the file has now.
func (t *Track) Observe(s Stamp, now time.Time) {
	if s != t.newest {
		t.newest, t.seen = s, now
	}
}

// Age returns how long the file has been as it was last observed. A wrong clock
// makes it at most younger, until it has been seen for that long.
func (t *Track) Age(now time.Time) time.Duration {
	return max(t.newest.Age(now), now.Sub(t.seen))
}

// Take records that the content under the last observed stamp is in use.
func (t *Track) Take(now time.Time) {
	t.Stamp = t.newest
	age := t.Age(now)
	if t.Racy = age < Racy; t.Racy {
		t.WakeAt(now.Add(Racy - age))
	}
}

// WakeAt makes Due no later than at.
func (t *Track) WakeAt(at time.Time) {
	if t.Due.IsZero() || at.Before(t.Due) {
		t.Due = at
	}
}

// Awake reports whether it is time to look again.
func (t *Track) Awake(now time.Time) bool { return !t.Due.IsZero() && !now.Before(t.Due) }
