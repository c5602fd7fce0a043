package follow

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"time"
)

const (
	// doubt is Settle for content that is probably half of a save: it does not
	// parse, or has lost the line break at its end. The writer may have been held
	// up in the middle.
	doubt = 50 * time.Millisecond

	// forceAfter is how long a file that never settles is waited for, if there is
	// no good content to use meanwhile.
	forceAfter = 150 * time.Millisecond
)

// Phase is the state of a file when it was last looked at.
type Phase uint8

// The phases of a file. In Moving, Torn and Vanished what was there before stays
// in use.
const (
	Gone     Phase = iota // there is no file
	Present               // the file was judged, good or bad
	Moving                // it is being written
	Torn                  // it looks like half of a save
	Vanished              // it was there a moment ago
)

// A Format says how the content of a file is read.
type Format[T any] struct {
	Limit int64         // the largest file that is read, in bytes
	Grace time.Duration // how long a file that vanished stays in use

	// Parse returns the meaning of a content, or what is wrong with it.
	Parse func(data []byte) (*T, error)
	// Unreadable returns what is wrong with a file that is not a regular file, is
	// too large or could not be read, which is err then; nil means that it can be
	// read after all.
	Unreadable func(s Stamp, err error) error
}

// A File is a followed file as it was when last looked at. It is immutable: Look
// returns another one.
type File[T any] struct {
	Track
	Phase Phase
	Good  *T    // the last good content; nil means none
	Bad   error // what is wrong with the file as it is now

	source []byte            // of Good
	sum    [sha256.Size]byte // of the content under Stamp
	since  time.Time         // when Moving or Vanished began
}

// Stale reports whether Look would find another content. It changes nothing.
func (f *File[T]) Stale() bool {
	now := f.Stat()
	if now != f.Stamp {
		// A file that vanished was seen to be gone; its time is up when it is due.
		return f.Phase != Vanished || now.Kind != Absent
	}
	return f.Racy && !f.same(f.Stamp, f.sum)
}

// Look compares the file with the disk and returns it as it is now: f itself if
// nothing changed. A file in the phase Moving is to be looked at again when it is
// due.
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

// wait keeps what was there before and has the file looked at again.
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

// gone is Look for a file that is not there.
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

// unreadable is Look for what is not a regular file of the allowed size.
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

// complete reports whether the last line of a text has its end.
func complete(text []byte) bool { return bytes.HasSuffix(text, []byte("\n")) }
