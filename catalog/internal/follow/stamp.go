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

// The kinds of a file. Unknown is the zero value: not checked yet.
const (
	Unknown Kind = iota
	Absent       // no file, or only a dangling link
	Regular
	Dir
	Other  // a device, a pipe, a socket
	Failed // stat failed; Stamp.Fault is its error number
)

// A Stamp is the signature of a file: two equal stamps of one path mean that the file was not
// written in between, if the first was older than Racy when it was taken. Stamps are comparable
// with ==.
type Stamp struct {
	Kind   Kind
	Fault  uint32 // error number, only of kind Failed
	Size   int64  // bytes
	Mod    int64  // modification time, ns since 1970
	Change int64  // change time of the inode, or else creation; ns since 1970
	Dev    uint64 // device, 0 if the system has none
	Ino    uint64 // inode, 0 if the system has none
}

const (
	// Racy is how long after a write another write may leave the same stamp: file systems and
	// kernels count time in ticks. The content of a younger file must be compared itself (DESIGN
	// "Read your own writes").
	Racy = 50 * time.Millisecond

	// Settle is how long a file must be unchanged before it is used; otherwise an editor that
	// truncates and writes might be caught between the two.
	Settle = 10 * time.Millisecond

	// Bound is how long a call waits for a file that is being written, before it gets the last good
	// content. Only the waits count: on a busy machine one look may take longer, and must not be the
	// only one.
	Bound = forceAfter + 5*Settle

	// SaveBound is how long a file that is missing, or only the beginning of its former content,
	// counts as a save in progress.
	SaveBound = 500 * time.Millisecond
)

// Changed returns when the file was last written, renamed or otherwise changed, as far as the stamp
// shows.
func (s Stamp) Changed() time.Time { return time.Unix(0, max(s.Mod, s.Change)) }

// tick is how far a file's times may lag behind the clock: kernels take them from the last timer
// tick.
const tick = 10 * time.Millisecond

// Age returns for how long, at least, the file had been unchanged at now. A time in the future,
// from another machine's clock, counts as no age.
func (s Stamp) Age(now time.Time) time.Duration {
	return max(0, now.Sub(s.Changed())-tick)
}

// A Path is the absolute name of a file. A Path of "" means no file.
type Path string

// Stat returns the stamp of the file, following symlinks. It never opens the file.
func (p Path) Stat() Stamp { return stat(string(p)) }

// ErrMoving is returned by Read if the file changed while it was read.
var ErrMoving = errors.New("the file changed while it was read")

// Read returns the whole content of a regular file of at most limit bytes, with the stamp that it
// had before and after. It returns ErrMoving if the two differ or the file no longer has that kind
// or size, else the system's error. It does not block on a pipe or device that replaced the file.
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

// same reports whether the file now has this stamp and content with this SHA-256; it reads the
// file. It returns false if it cannot.
func (p Path) same(s Stamp, sum [sha256.Size]byte) bool {
	data, now, err := p.Read(s.Size)
	return err == nil && now == s && sha256.Sum256(data) == sum
}

// A Track records the stamps of one file or directory. It is part of a value that is immutable once
// others can see it.
type Track struct {
	Path
	Stamp Stamp     // of the content in use; Unknown before that
	Racy  bool      // another write may have left the same stamp
	Due   time.Time // when to check again even without an event; zero means never

	newest Stamp // last stamp on disk
	seen   time.Time
}

// Observe records the current stamp of the file.
func (t *Track) Observe(s Stamp, now time.Time) {
	if s != t.newest {
		t.newest, t.seen = s, now
	}
}

// Age returns for how long the file has been as last observed. With a wrong clock it is at most too
// low, until it has been observed for that long.
func (t *Track) Age(now time.Time) time.Duration {
	return max(t.newest.Age(now), now.Sub(t.seen))
}

// Take records that the content of the last observed stamp is in use.
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

// Awake reports whether it is time to check again.
func (t *Track) Awake(now time.Time) bool { return !t.Due.IsZero() && !now.Before(t.Due) }
