package job

import (
	"bytes"
	"path/filepath"
	"sync"
	"time"

	"deepwork/catalog/internal/stamp"
)

// texts are the instructions of a job as they were last read. A file is read
// again when its signature says that it may have changed; one that changed so
// shortly before it was read that another change may not show is not kept.
type texts struct {
	mu sync.Mutex
	m  map[string]readText // by instructions_file
}

type readText struct {
	path  stamp.Path
	stamp stamp.Stamp
	text  string
}

// keptText is the largest text that is kept, in bytes.
const keptText = 64 << 10

const (
	// settleBound is for how long a file that never settles is waited for.
	settleBound = 150 * time.Millisecond
	// saveBound is for how long a file that cannot be used is taken for one that is
	// being saved: editors delete and create, write in two goes, lead links elsewhere.
	saveBound = 500 * time.Millisecond
	// glanceBound is for how long a glance waits.
	glanceBound = 2 * stamp.Settle
)

// read returns the text of a file of the folder, by a look at its signature where it is
// known. The signature is that of what symlinks lead to: where they are led elsewhere
// it is another file's, and whether it is inside is looked at. What is just being saved
// is waited for, but no longer than bound.
func (t *texts) read(dir, name string, bound time.Duration) (string, *insideFault) {
	for began := time.Now(); ; time.Sleep(stamp.Settle) {
		text, fault, patience := t.look(dir, name)
		if time.Since(began) >= min(patience, bound) {
			return text, fault
		}
	}
}

// look is read as things are now; patience is for how long it is worth while to look
// again, since somebody seems to be saving the file.
func (t *texts) look(dir, name string) (text string, fault *insideFault, patience time.Duration) {
	t.mu.Lock()
	known, ok := t.m[name]
	t.mu.Unlock()
	if !ok {
		known.path = stamp.At(filepath.Join(dir, filepath.FromSlash(name)))
	}
	now := known.path.Stat()
	if ok && now == known.stamp {
		return known.text, nil, 0
	}
	data, fault := readInside(dir, name)
	switch {
	case fault != nil && (changedWithin(saveBound, now) || changedWithin(saveBound, above(known.path.Name()))),
		fault == nil && len(bytes.TrimSpace(data)) == 0 && changedWithin(saveBound, now):
		return string(data), fault, saveBound
	case fault != nil:
		return "", fault, 0
	case now.Kind != stamp.Regular || now != known.path.Stat() || changedWithin(stamp.Settle, now):
		return string(data), nil, settleBound
	}
	text = string(data)
	if now.Age(time.Now()) >= stamp.Racy && len(text) <= keptText {
		known.stamp, known.text = now, text
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.m == nil {
			t.m = map[string]readText{}
		}
		t.m[name] = known
	}
	return text, nil, 0
}

// changedWithin tells whether a file was changed so shortly ago. A time in the future,
// as another machine's clock may give it, does not say that.
func changedWithin(d time.Duration, s stamp.Stamp) bool {
	if s.Kind == stamp.Absent || s.Kind == stamp.Failed {
		return false
	}
	age := time.Since(s.Changed())
	return age >= 0 && age < d
}

// above is the signature of the nearest folder above a file that is there: that tells
// when something in it was removed.
func above(name string) stamp.Stamp {
	for {
		folder := filepath.Dir(name)
		s := stamp.At(folder).Stat()
		if s.Kind != stamp.Absent || folder == name {
			return s
		}
		name = folder
	}
}
