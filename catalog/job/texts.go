package job

import (
	"bytes"
	"path/filepath"
	"sync"
	"time"

	"deepwork/catalog/internal/follow"
)

// texts caches the instructions of a job. A file is read again when its stamp shows that it may
// have changed. It is not cached if it changed so shortly before it was read that another change
// may not show.
type texts struct{ sync.Map } // of cachedText, by instructions_file

type cachedText struct {
	stamp follow.Stamp
	text  string
}

const (
	// maxCached is the largest text that is cached, in bytes.
	maxCached = 64 << 10
	// settleBound bounds the wait for a file that never settles.
	settleBound = 150 * time.Millisecond
)

// read returns the text of a file of the folder. A cached text costs one stat, of the file that a
// symlink leads to. If the file is being saved, read waits, at most for bound.
func (t *texts) read(dir, name string, bound time.Duration) (string, *fileFault) {
	for began := time.Now(); ; time.Sleep(follow.Settle) {
		text, fault, patience := t.look(dir, name)
		if time.Since(began) >= min(patience, bound) {
			return text, fault
		}
	}
}

// look is read without waiting; patience is how long to retry, if the file seems to be in the
// middle of a save: editors delete and create, write in two parts, point links elsewhere.
func (t *texts) look(dir, name string) (text string, fault *fileFault, patience time.Duration) {
	cached, _ := t.Load(name)
	known, ok := cached.(cachedText)
	path := follow.Path(filepath.Join(dir, filepath.FromSlash(name)))
	now := path.Stat()
	if ok && now == known.stamp {
		return known.text, nil, 0
	}
	data, fault := readInside(dir, name)
	switch {
	case fault != nil && (changedWithin(follow.SaveBound, now) || changedWithin(follow.SaveBound, above(path))),
		fault == nil && len(bytes.TrimSpace(data)) == 0 && changedWithin(follow.SaveBound, now):
		return string(data), fault, follow.SaveBound
	case fault != nil:
		return "", fault, 0
	case now.Kind != follow.Regular || now != path.Stat() || changedWithin(follow.Settle, now):
		return string(data), nil, settleBound
	}
	text = string(data)
	if now.Age(time.Now()) >= follow.Racy && len(text) <= maxCached {
		t.Store(name, cachedText{now, text})
	}
	return text, nil, 0
}

// changedWithin reports whether a file changed in the last d. A time in the future, from another
// machine's clock, does not count.
func changedWithin(d time.Duration, s follow.Stamp) bool {
	age := time.Since(s.Changed())
	return s.Kind != follow.Absent && s.Kind != follow.Failed && age >= 0 && age < d
}

// above returns the stamp of the nearest existing folder above a file: it shows when something in
// it was removed.
func above(file follow.Path) follow.Stamp {
	for {
		folder := follow.Path(filepath.Dir(string(file)))
		if s := folder.Stat(); s.Kind != follow.Absent || folder == file {
			return s
		}
		file = folder
	}
}
