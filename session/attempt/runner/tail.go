package runner

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"deepwork/actor/durable"
)

const (
	// MaxTail is the maximum number of entries that Tail returns.
	MaxTail = 10_000
	// tailBytes limits the text that Tail returns, except for its first entry.
	tailBytes = 1 << 20
	// tailPace is the longest pause between checks for new entries.
	tailPace = 100 * time.Millisecond
	// tailTries limits how often a read is retried after a segment was rotated away.
	tailTries = 20
)

// Tail reads a log folder: the entries after an index (nil means the last ones), at most limit of them (at
// least 1, at most MaxTail) and about 1 MiB of text. If there are none, it waits up to patience for the first
// one.
//
// Entries are in order and their indexes have no gaps; if entries after the index were rotated away, the
// result begins at the oldest one left. next is the value of after to continue with: the index of the last
// entry returned, or, if there is none, of the last one before them; -1 if the log is empty or does not exist
// yet. An after beyond the end counts as the end.
//
// It may be called while a run writes. It fails if ctx ends or the log cannot be read.
func Tail(
	ctx context.Context, log string, after *int64, limit int, patience time.Duration,
) (entries []Entry, next int64, err error) {
	limit = min(max(limit, 1), MaxTail)
	deadline := time.Now().Add(patience)
	next = -1
	for pause, misses, seen := looks(tailPace), 0, []segment(nil); ; {
		segs, err := segments(log)
		if err == nil && !slices.Equal(segs, seen) {
			entries, next, err = read(log, segs, after, limit)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist) && misses < tailTries:
			misses, seen = misses+1, nil
			continue
		case err != nil:
			return nil, 0, fmt.Errorf("reading the log %s: %w", log, err)
		case len(entries) > 0 || !time.Now().Before(deadline):
			return entries, next, nil
		}
		misses, seen = 0, segs

		// Existing entries are not new, whatever index was given.
		if after == nil || *after > next {
			after = new(next)
		}
		if err := pause.Wait(ctx); err != nil {
			return nil, 0, fmt.Errorf("reading the log %s: %w", log, err)
		}
	}
}

// read reads the entries after an index, or the last ones.
func read(log string, segs []segment, after *int64, limit int) ([]Entry, int64, error) {
	p, next := page{limit: limit}, int64(-1)
	if after == nil {
		for i := len(segs) - 1; i >= 0 && !p.full(); i-- {
			data, err := segs[i].read(log)
			if err != nil {
				return nil, -1, err
			}
			for line := []byte(nil); len(data) > 0 && !p.full(); {
				data, line = cutLast(data)
				if e, err := decodeEntry(line); err == nil {
					p.add(e)
				}
			}
		}
		slices.Reverse(p.entries)
	} else {
		from := max(*after, -1) + 1
		for i, s := range segs {
			if p.full() || i+1 < len(segs) && segs[i+1].first <= from {
				continue
			}

			data, err := s.read(log)
			if err != nil {
				return nil, -1, err
			}

			next = max(next, s.first-1)
			for line := range bytes.Lines(data) {
				if index, ok := indexOf(line); ok && index < from {
					next = index
				} else if e, err := decodeEntry(line); err == nil {
					p.add(e)
				}

				if p.full() {
					break
				}
			}
		}
	}
	if n := len(p.entries); n > 0 {
		next = p.entries[n-1].Index
	}
	return p.entries, next, nil
}

// A page collects entries until it is full.
type page struct {
	limit, bytes int
	entries      []Entry
}

func (p *page) full() bool { return len(p.entries) >= p.limit }

// add adds an entry if there is room for its text; otherwise the page is full.
func (p *page) add(e Entry) {
	p.bytes += len(e.Text)
	if len(p.entries) > 0 && p.bytes > tailBytes {
		p.limit = len(p.entries)
		return
	}
	p.entries = append(p.entries, e)
}

// A segment is one file of a log; its name is the index of its first entry.
type segment struct{ first, size int64 }

const segmentSuffix = ".jsonl"

func segmentPath(dir string, first int64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", first, segmentSuffix))
}

// segments lists the segments of a log, oldest first. A missing folder has none.
func segments(dir string) ([]segment, error) {
	if err := OwnFolder(dir); err != nil {
		return nil, err
	}

	names, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading a log: %w", err)
	}

	var all []segment
	for _, name := range names {
		digits, ok := strings.CutSuffix(name.Name(), segmentSuffix)
		first, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil || first < 0 {
			continue
		}

		fi, err := name.Info()
		if err != nil {
			continue // just rotated away
		}
		if !fi.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is %s, not a file of a log; remove it", filepath.Join(dir, name.Name()),
				durable.Kind(fi.Mode()))
		}
		all = append(all, segment{first, fi.Size()})
	}
	slices.SortFunc(all, func(a, b segment) int { return cmp.Compare(a.first, b.first) })
	return all, nil
}

// read returns the complete lines of a segment. Some may be invalid, torn by a crash of the system.
func (s segment) read(log string) ([]byte, error) {
	f, _, err := durable.OpenRegular(segmentPath(log, s.first), os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	return data[:bytes.LastIndexByte(data, '\n')+1], err
}

// cutLast cuts off the last line.
func cutLast(lines []byte) (before, last []byte) {
	i := bytes.LastIndexByte(lines[:len(lines)-1], '\n') + 1
	return lines[:i], lines[i:]
}
