package local

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"sync"

	"deepwork/actor/durable"
)

// A sharedLog is a file of lines to which several processes append, each in one write, and which
// one of them replaces from time to time. Nothing is synced.
type sharedLog struct {
	path     string
	greeting string // the first line that this process appends to each file; may be ""

	mu      sync.Mutex // guards the following fields
	file    *os.File   // nil means not open
	read    int64      // how much of it next has returned
	fresh   bool       // next has not returned any of it
	greeted bool
}

// open opens the current file. The caller holds the lock.
func (l *sharedLog) open() error {
	if l.file != nil && durable.IsAt(l.file, l.path) {
		return nil
	}
	l.shut()
	f, _, err := durable.OpenRegular(l.path, os.O_RDWR|os.O_APPEND)
	if err != nil {
		return err
	}
	l.file, l.read, l.fresh, l.greeted = f, 0, true, l.greeting == ""
	return nil
}

func (l *sharedLog) shut() {
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
}

// close closes the file, after a last line if there is a greeting in it.
func (l *sharedLog) close(last string) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil && l.greeted {
		_, err = l.file.WriteString(last)
	}
	l.shut()
	return err
}

// append adds whole lines. A line may be duplicated, but is never missing from a file that replaces
// this one: in that case it is appended again. fs.ErrNotExist means that there is no file.
func (l *sharedLog) append(lines []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range putTries {
		if l.file == nil {
			if err := l.open(); err != nil {
				return err
			}
		}
		if !l.greeted {
			lines, l.greeted = append([]byte(l.greeting), lines...), true
		}
		if _, err := l.file.Write(lines); err != nil {
			return err
		}
		if durable.IsAt(l.file, l.path) {
			return nil
		}
		l.shut()
	}
	return fmt.Errorf("%s is being replaced all the time", l.path)
}

// next returns the lines appended since its last call, or, with first, all lines of a new file.
func (l *sharedLog) next() (lines []byte, first bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.open(); err != nil {
		return nil, false, err
	}
	lines, err = linesFrom(l.file, l.read, math.MaxInt64)
	if err != nil {
		return nil, false, err
	}
	first, l.fresh = l.fresh, false
	l.read += int64(len(lines))
	return lines, first, nil
}

// replace makes another file with these lines, and returns the lines that others have appended to
// this one since next read it.
func (l *sharedLog) replace(disk durable.Disk, lines []byte) (late []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if runtime.GOOS == "windows" {
		l.shut() // while a file is open it cannot be replaced there, so nothing is appended
	}
	if err := disk.Put(l.path, lines, durable.PutOptions{}); err != nil && !errors.Is(err, durable.ErrUnsynced) {
		return nil, err
	}
	if l.file == nil {
		return nil, nil
	}
	defer l.shut()
	return linesFrom(l.file, l.read, math.MaxInt64)
}

// linesFrom reads the whole lines of a file from an offset, at most limit bytes.
func linesFrom(f *os.File, offset, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.NewSectionReader(f, offset, limit))
	return data[:bytes.LastIndexByte(data, '\n')+1], err
}

// putTries is how often a line is written if the file is replaced.
const putTries = 3
