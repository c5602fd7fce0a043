package follow

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"time"
)

const (
	// doubt is Settle for content that is probably half of a save: it does not parse, or lacks the
	// final line break. The writer may have been delayed in the middle.
	doubt = 50 * time.Millisecond

	// forceAfter bounds the wait for a file that never settles, if there is no good content to use
	// meanwhile.
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

	// Refuse returns why a file is not used, whatever it says, or nil. A nil Refuse refuses none.
	Refuse func() error
	// Parse returns the parsed content, or what is wrong with it.
	Parse func(data []byte) (*T, error)
	// Unreadable returns what is wrong with a file that is not a regular file, is too large or
	// could not be read; in the last case err is the error. nil means that it can be read after
	// all.
	Unreadable func(s Stamp, err error) error
}

// A File is a followed file as of the last check. It is immutable: Look returns a new one.
type File[T any] struct {
	Track
	Phase Phase
	Good  *T    // the last good content; nil means none
	Bad   error // what is wrong with the current file

	source []byte            // of Good
	sum    [sha256.Size]byte // of the content under Stamp
	since  time.Time         // when Moving or Vanished began
}

// Stale reports whether Look would find another content. It changes nothing.
func (f *File[T]) Stale() bool {
	now := f.Stat()
	if now != f.Stamp {
		// The file is known to be gone; its grace period ends when it is due.
		return f.Phase != Vanished || now.Kind != Absent
	}
	return f.Racy && !f.same(f.Stamp, f.sum)
}

// Look compares the file with the disk and returns its current state: f itself if nothing changed.
// A file in the phase Moving must be checked again when it is due.
func (f *File[T]) Look(format *Format[T]) *File[T] {
	st, now := f.Stat(), time.Now()
	if st == f.Stamp && !f.Racy && (f.Phase == Present || f.Phase == Gone) {
		return f
	}
	n := *f
	n.Due = time.Time{}
	n.Observe(st, now)
	switch {
	case st.Kind == Absent:
		return n.gone(f, format.Grace, now)
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

// gone is Look for a file that does not exist.
func (n *File[T]) gone(f *File[T], grace time.Duration, now time.Time) *File[T] {
	n.Racy = false
	switch {
	case f.Phase == Gone && f.Stamp == n.newest && f.Due.IsZero():
		return f
	case f.Good == nil, f.Phase == Vanished && now.Sub(f.since) >= grace:
		n.Phase, n.Stamp, n.Good, n.Bad, n.source = Gone, n.newest, nil, nil, nil
		return n
	case f.Phase == Vanished:
		return f
	}
	n.Phase, n.since, n.Due = Vanished, now, now.Add(grace)
	return n
}

// unreadable is Look for a file that is not regular or too large.
func (n *File[T]) unreadable(format *Format[T], err error, now time.Time) *File[T] {
	bad := format.Unreadable(n.newest, err)
	if bad == nil {
		return n.wait(now, Settle)
	}
	n.take(Present, [sha256.Size]byte{}, now)
	// There is no content that a second write could have changed.
	n.Racy, n.Due, n.Bad = false, time.Time{}, bad
	return n
}

// judge is Look for a file that was read whole and did not change meanwhile.
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
	if n.Good != nil && age < doubt && (good == nil || complete(n.source) && !complete(data)) {
		return n.wait(now, doubt-age)
	}
	if n.Bad = bad; good != nil {
		n.Good, n.source, n.Bad = good, data, nil
	}
	return n.take(Present, sum, now)
}

// complete reports whether the last line of a text has its line break.
func complete(text []byte) bool { return bytes.HasSuffix(text, []byte("\n")) }
