package job

import (
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

// read returns the text of a file of the folder, by a look at its signature
// where it is known. The signature is that of what symlinks lead to: where they
// are led elsewhere it is another file's, and whether it is inside is looked at.
func (t *texts) read(dir, name string) (string, *insideFault) {
	t.mu.Lock()
	known, ok := t.m[name]
	t.mu.Unlock()
	if !ok {
		known.path = stamp.At(filepath.Join(dir, filepath.FromSlash(name)))
	}
	now := known.path.Stat()
	if ok && now == known.stamp {
		return known.text, nil
	}
	data, fault := readInside(dir, name)
	if fault != nil {
		return "", fault
	}
	text := string(data)
	if now.Kind == stamp.Regular && now == known.path.Stat() && now.Age(time.Now()) >= stamp.Racy && len(text) <= keptText {
		known.stamp, known.text = now, text
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.m == nil {
			t.m = map[string]readText{}
		}
		t.m[name] = known
	}
	return text, nil
}
