package catalog

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"deepwork/catalog/internal/stamp"
	"deepwork/catalog/job"
)

const (
	// doubt is stamp.Settle for content that is likely to be half of a save: it does not
	// parse, or has lost the line break at its end. The writer may have been held
	// up in the middle.
	doubt = 50 * time.Millisecond

	// settleBound is for how long a file that never settles is waited for.
	settleBound = 150 * time.Millisecond

	// tornFor is how long content that is the beginning of the last good
	// definition is taken for a save in progress.
	tornFor = 500 * time.Millisecond
)

// phase is what an entry's directory held when it was last looked at.
type phase uint8

const (
	absent   phase = iota // no job.yml: a plain folder
	present               // a job.yml, good or bad
	moving                // it is being written: what was there before stays in use
	torn                  // it looks like half of a save: what was there before stays in use
	vanished              // it was there a moment ago: stays in use for Options.Grace
)

// An entry is one directory of a job folder, as it was when last looked at. It
// is immutable: a look returns another one.
type entry struct {
	name string // the directory's
	dir  string // absolute
	file stamp.Path
	link string // the directory that job.yml really is in, where it is a link; else ""

	phase  phase
	since  time.Time         // when the phase began, of moving and vanished
	stamp  stamp.Stamp       // of the content that was taken; Unknown before that
	sum    [sha256.Size]byte // of that content
	racy   bool              // another write may have left the same stamp
	due    time.Time         // when to look again though nothing was heard; zero: never
	good   *job.Job          // the last good definition, nil where there is none
	faults job.Diagnostics   // what is wrong with the file as it stands

	newest stamp.Stamp // what was seen on disk last
	seen   time.Time   // since when it has been seen
}

func newEntry(folder, name string) *entry {
	dir := filepath.Join(folder, name)
	return &entry{name: name, dir: dir, file: stamp.At(filepath.Join(dir, job.FileName))}
}

// isJob tells whether the entry takes its directory's name among the folders.
func (e *entry) isJob() bool { return e.good != nil || len(e.faults) > 0 }

// stale tells, without changing anything, whether a look would find something
// new. It is called from any goroutine.
func (e *entry) stale() bool {
	now := e.file.Stat()
	if now != e.stamp {
		// One that vanished was seen to be gone; its time is up when it is due.
		return e.phase != vanished || now.Kind != stamp.Absent
	}
	return e.racy && !e.file.Same(e.stamp, e.sum)
}

// awake tells whether the time has come to look again.
func (e *entry) awake(now time.Time) bool { return !e.due.IsZero() && !now.Before(e.due) }

// look compares the entry with the disk and returns what it is now: e itself
// where nothing changed.
func (e *entry) look(grace time.Duration) *entry {
	st := e.file.Stat()
	now := time.Now()
	if st == e.stamp && !e.racy && (e.phase == present || e.phase == absent) {
		return e
	}
	n := *e
	n.due = time.Time{}
	if st != n.newest {
		n.newest, n.seen = st, now
	}
	switch {
	case st.Kind == stamp.Absent:
		return n.lookGone(e, now, grace)
	case st.Kind != stamp.Regular || st.Size > job.MaxBytes:
		return n.lookOdd(e, now)
	}
	data, got, err := n.file.Read(job.MaxBytes)
	switch {
	case errors.Is(err, stamp.ErrMoving):
		return n.wait(now, stamp.Settle)
	case err != nil:
		return n.lookOdd(e, now)
	case got != n.newest:
		n.newest, n.seen = got, now
	}
	return n.lookRead(e, data, now)
}

// age is for how long the file has been as it is now. A wrong clock makes it
// younger than it is at most until it has been seen for that long.
func (e *entry) age(now time.Time) time.Duration {
	return max(e.newest.Age(now), now.Sub(e.seen))
}

// wait keeps what was there before and has the entry looked at again.
func (n *entry) wait(now time.Time, d time.Duration) *entry {
	if n.phase != moving {
		n.phase, n.since = moving, now
	}
	n.due = now.Add(d)
	return n
}

// wakeAt makes due no later than t.
func (n *entry) wakeAt(t time.Time) {
	if n.due.IsZero() || t.Before(n.due) {
		n.due = t
	}
}

// take records that the content under the newest stamp was dealt with.
func (n *entry) take(sum [sha256.Size]byte, now time.Time) {
	n.stamp, n.sum = n.newest, sum
	age := n.age(now)
	if n.racy = age < stamp.Racy; n.racy {
		n.wakeAt(now.Add(stamp.Racy - age))
	}
}

// lookGone is look where there is no job.yml.
func (n *entry) lookGone(e *entry, now time.Time, grace time.Duration) *entry {
	n.racy = false
	switch {
	case !e.isJob() || e.phase == vanished && now.Sub(e.since) >= grace:
		if e.phase == absent && e.stamp == n.newest && e.due.IsZero() {
			return e
		}
		n.phase, n.stamp, n.good, n.faults, n.link = absent, n.newest, nil, nil, ""
		return n
	case e.phase == vanished:
		return e
	}
	n.phase, n.since, n.due = vanished, now, now.Add(grace)
	return n
}

// lookOdd is look where job.yml cannot be read as a file of its size.
func (n *entry) lookOdd(e *entry, now time.Time) *entry {
	good, faults := job.Load(n.dir)
	if good != nil || len(faults) == 0 {
		return n.wait(now, stamp.Settle) // it has just become a file: read it in the usual way
	}
	n.take([sha256.Size]byte{}, now)
	// There is no content that a second write could have changed.
	n.racy, n.due = false, time.Time{}
	n.phase, n.faults = present, faults
	return n
}

// lookRead is look where job.yml was read, whole, and stood still meanwhile.
func (n *entry) lookRead(e *entry, data []byte, now time.Time) *entry {
	sum := sha256.Sum256(data)
	n.link = linkedDir(n.file.Name())
	if e.phase == present && sum == e.sum && e.stamp.Kind == stamp.Regular {
		n.take(sum, now)
		return n
	}
	age := n.age(now)
	if age < stamp.Settle {
		forced := e.phase == moving && now.Sub(e.since) >= settleBound && e.good == nil
		if !forced {
			return n.wait(now, stamp.Settle-age)
		}
	}
	if n.good != nil && len(data) < len(n.good.Source) && bytes.HasPrefix(n.good.Source, data) && age < tornFor {
		n.phase = torn
		n.take(sum, now)
		n.wakeAt(now.Add(tornFor - age))
		return n
	}
	good, faults := n.good, job.Diagnostics(nil)
	if good == nil || !bytes.Equal(good.Source, data) {
		good, faults = job.Parse(n.dir, job.FileName, data)
	}
	if n.good != nil && age < doubt && (good == nil || ends(n.good.Source) && !ends(data)) {
		return n.wait(now, doubt-age)
	}
	n.phase = present
	n.take(sum, now)
	if n.faults = faults; good != nil {
		n.good, n.faults = good, nil
	}
	return n
}

// ends tells whether the last line of a text is complete.
func ends(text []byte) bool { return bytes.HasSuffix(text, []byte("\n")) }

// linkedDir returns the directory that a linked job.yml leads to, else "": events
// of what is written there are told of that directory alone.
func linkedDir(file string) string {
	if fi, err := os.Lstat(file); err != nil || fi.Mode()&fs.ModeSymlink == 0 {
		return ""
	}
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return ""
	}
	return filepath.Dir(real)
}
