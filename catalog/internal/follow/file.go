// Package follow follows files that people and editors change: it finds out cheaply
// whether a file changed, waits until a save is complete, and keeps the last good
// content in use while the file is bad, half-written or missing for a moment.
package follow

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"time"

	"deepwork/actor/durable"
)

const (
	// partialSettle is Settle for content that is probably half of a save: it does not parse, or lacks the
	// final line break. The writer may have been delayed in the middle.
	partialSettle = 50 * time.Millisecond

	// forceAfter limits the wait for a file that never settles, if there is no good content to use meanwhile.
	forceAfter = 150 * time.Millisecond
)

// Phase is the state of a file as of the last check.
type Phase uint8

// The phases of a file. In Moving, Torn and Vanished the earlier content stays in use.
const (
	Gone     Phase = iota // the file does not exist
	Present               // the file was judged, good or bad
	Moving                // it is being written
	Torn                  // it looks like half of a save
	Vanished              // it existed a moment ago
)

// A Format defines how the content of a file is read.
type Format[T any] struct {
	Limit int64         // maximum size of the file, in bytes
	Grace time.Duration // how long a vanished file stays in use

	// Refuse returns why a file is not used, whatever it contains, or nil. A nil Refuse accepts every file.
	Refuse func() error
	// Parse returns the parsed content, or what is wrong with it.
	Parse func(data []byte) (*T, error)
	// Unreadable returns what is wrong with a file that is not regular, is too large or could not be read; in
	// the last case err is the error. nil means that it can be read after all.
	Unreadable func(s Stamp, err error) error
}

// A File is a followed file as of the last check. It is immutable: Look returns a new one.
type File[T any] struct {
	Track
	Phase Phase
	Good  *T    // the last good content; nil means none
	Bad   error // what is wrong with the current file

	source []byte            // the bytes of Good
	sum    [sha256.Size]byte // of the content for Stamp
	since  time.Time         // when Moving or Vanished began
}

// Stale reports whether Look would find a change. It changes nothing.
func (f *File[T]) Stale() bool {
	now := f.Stat()
	if now != f.Stamp {
		// The file is known to be gone; Due says when its grace period ends.
		return f.Phase != Vanished || now.Kind != Absent
	}
	return f.Racy && !f.unchanged(f.Stamp, f.sum)
}

// Look compares the file with the disk and returns its current state: f itself if nothing changed. A file in
// the phase Moving must be checked again when it is due.
func (f *File[T]) Look(format *Format[T]) *File[T] {
	st, now := f.Stat(), time.Now()
	if st == f.Stamp && !f.Racy && f.Due.IsZero() && (f.Phase == Present || f.Phase == Gone) {
		return f
	}

	n := *f
	n.Due = time.Time{}
	n.Observe(st, now)
	switch {
	case st.Kind == Absent:
		return n.lookMissing(f, format.Grace, now)
	case st.Kind != Regular || st.Size > format.Limit:
		return n.unreadable(format, nil, now)
	}
	if format.Refuse != nil {
		if err := format.Refuse(); err != nil {
			return n.unreadable(format, err, now)
		}
	}
	data, got, err := n.Read(format.Limit)
	switch {
	case errors.Is(err, ErrMoving):
		return n.wait(now, Settle)
	case err != nil:
		return n.unreadable(format, err, now)
	}
	n.Observe(got, now)
	return n.judge(f, format, data, now)
}

// wait keeps the earlier content in use and schedules another check.
func (n *File[T]) wait(now time.Time, d time.Duration) *File[T] {
	if n.Phase != Moving {
		n.Phase, n.since = Moving, now
	}
	n.Due = now.Add(d)
	return n
}

// take records that the content of the file was judged.
func (n *File[T]) take(phase Phase, sum [sha256.Size]byte, now time.Time) *File[T] {
	n.Phase, n.sum = phase, sum
	n.Take(now)
	return n
}

// lookMissing is Look for a missing file.
func (n *File[T]) lookMissing(f *File[T], grace time.Duration, now time.Time) *File[T] {
	n.Racy = false
	switch {
	case f.Phase == Gone && f.Stamp == n.newest && f.Due.IsZero():
		return f
	case f.Good == nil, f.Phase == Vanished && now.Sub(f.since) >= grace:
		n.Phase = Gone
		n.Stamp = n.newest
		n.Good = nil
		n.Bad = nil
		n.source = nil
		return n
	case f.Phase == Vanished:
		return f
	}
	n.Phase = Vanished
	n.since = now
	n.Due = now.Add(grace)
	return n
}

// rereadAfter is the pause before another attempt to read a file that could not be read.
const rereadAfter = time.Second

// unreadable is Look for a file that is not regular, is too large or, with an error, cannot be read.
func (n *File[T]) unreadable(format *Format[T], err error, now time.Time) *File[T] {
	bad := format.Unreadable(n.newest, err)
	if bad == nil {
		return n.wait(now, Settle)
	}
	n.take(Present, [sha256.Size]byte{}, now)

	// It has no content that a second write could have changed.
	n.Racy = false
	n.Due = time.Time{}
	n.Bad = bad
	if err != nil {
		// The cause may lie outside the file (too many open files); then the stamp would not show that it is
		// over.
		n.Due = now.Add(rereadAfter)
	}
	return n
}

// judge is Look for a file that was read completely and did not change meanwhile.
func (n *File[T]) judge(f *File[T], format *Format[T], data []byte, now time.Time) *File[T] {
	sum, age := sha256.Sum256(data), n.Age(now)
	if f.Phase == Present && sum == f.sum && f.Stamp.Kind == Regular {
		return n.take(Present, sum, now)
	}
	if forced := f.Phase == Moving && f.Good == nil && now.Sub(f.since) >= forceAfter; age < Settle && !forced {
		return n.wait(now, Settle-age)
	}
	if n.Good != nil && len(data) < len(n.source) && bytes.HasPrefix(n.source, data) && age < SaveBound {
		n.take(Torn, sum, now)
		n.WakeAt(now.Add(SaveBound - age))
		return n
	}
	good, bad := n.Good, error(nil)
	if good == nil || !bytes.Equal(n.source, data) {
		good, bad = format.Parse(data)
	}
	if n.Good != nil && age < partialSettle && (good == nil || complete(n.source) && !complete(data)) {
		return n.wait(now, partialSettle-age)
	}
	n.Bad = bad
	if good != nil {
		n.Good, n.source, n.Bad = good, data, nil
	}
	return n.take(Present, sum, now)
}

// complete reports whether the last line of a text has its line break.
func complete(text []byte) bool { return bytes.HasSuffix(text, []byte("\n")) }

// Kind is the kind of a file, after following symlinks.
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

// A Stamp identifies the state of a file. If two stamps of one path are equal, the file was not written in
// between, provided that the first one was older than Racy when it was taken. Stamps can be compared with ==.
type Stamp struct {
	Kind   Kind
	Fault  uint32 // error number, only for kind Failed
	Size   int64  // bytes
	Mod    int64  // modification time, ns since 1970
	Change int64  // inode change time, or else creation time; ns since 1970
	Dev    uint64 // device; 0 if the system has none
	Ino    uint64 // inode; 0 if the system has none
}

const (
	// Racy is how long after a write another write may leave the same stamp, since file systems and kernels
	// count time in ticks. The content of a younger file must itself be compared (DESIGN "Read your own
	// writes").
	Racy = 50 * time.Millisecond

	// Settle is how long a file must be unchanged before it is used; otherwise an editor that
	// truncates and writes might be caught between the two.
	Settle = 10 * time.Millisecond

	// Bound is how long a call waits for a file that is being written before it gets the last good content.
	// Only waits count: on a busy machine one look may take longer, and must not be the only one.
	Bound = forceAfter + 5*Settle

	// SaveBound is how long a file that is missing, or only the beginning of its former content,
	// counts as a save in progress.
	SaveBound = 500 * time.Millisecond
)

// Changed returns when the file was last written, renamed or otherwise changed, as far as the stamp shows.
func (s Stamp) Changed() time.Time { return time.Unix(0, max(s.Mod, s.Change)) }

// tick is how far a file's times may lag behind the clock: kernels take them from the last timer
// tick.
const tick = 10 * time.Millisecond

// Age returns how long, at least, the file had been unchanged at now. A time in the future, from another
// machine's clock, gives no age.
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

	data, _, err := durable.ReadLinked(string(p), limit)
	if p.Stat() != before || err == nil && int64(len(data)) != before.Size {
		return nil, before, ErrMoving
	}
	return data, before, err
}

// unchanged reports whether the file now has this stamp and a content with this SHA-256, which it reads. It
// reports false if it cannot.
func (p Path) unchanged(s Stamp, sum [sha256.Size]byte) bool {
	data, now, err := p.Read(s.Size)
	return err == nil && now == s && sha256.Sum256(data) == sum
}

// A Track records the stamps of one file or directory. It is part of a value that is immutable once others
// can see it.
type Track struct {
	Path
	Stamp Stamp     // of the content in use; Unknown if there is none yet
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

// Age returns how long the file has been as last observed. If clocks differ, the result may be too low until
// the file has been observed for that long.
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
