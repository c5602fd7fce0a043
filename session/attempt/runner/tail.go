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
)

const (
	// MaxTail is the most entries that one Tail returns.
	MaxTail = 10_000
	// tailBytes bounds the text that one Tail returns, except for its first entry.
	tailBytes = 1 << 20
	// tailPace is the longest pause between looks for something new.
	tailPace = 100 * time.Millisecond
	// tailTries bounds how often a read is tried again when a segment was rotated
	// away meanwhile.
	tailTries = 20
	// tailBlock is how much of the end of a segment is read at first.
	tailBlock = 64 << 10
)

// Tail reads a log folder: the entries after an index (nil: the last ones), at
// most limit of them (at least 1, at most MaxTail) and about 1 MiB of text. If
// there are none it waits for a first one, no longer than patience.
//
// Entries are in order and their indexes have no gaps; if entries after the index
// were rotated away, they begin at the oldest that is kept. next is what to pass as
// after to continue: the index of the last entry returned, or, without any, that of
// the last one before them; -1 if the log has none, or does not exist yet. An after
// beyond the end counts as the end.
//
// It may be called while a run writes. It fails if ctx ends or the log cannot be
// read.
func Tail(ctx context.Context, log string, after *int64, limit int, patience time.Duration) (entries []Entry, next int64, err error) {
	limit = min(max(limit, 1), MaxTail)
	deadline := time.Now().Add(patience)
	for pause, misses := looks(tailPace), 0; ; {
		entries, next, err = read(log, after, limit)
		switch {
		case (errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF)) && misses < tailTries:
			misses++
			continue
		case err != nil:
			return nil, 0, fmt.Errorf("reading the log %s: %w", log, err)
		case len(entries) > 0 || !time.Now().Before(deadline):
			return entries, next, nil
		}
		misses = 0
		// What is there now is not new, whatever was asked for.
		if after == nil || *after > next {
			after = new(next)
		}
		if err := pause.Wait(ctx); err != nil {
			return nil, 0, fmt.Errorf("reading the log %s: %w", log, err)
		}
	}
}

// read reads what is there.
func read(log string, after *int64, limit int) ([]Entry, int64, error) {
	segs, err := segments(log)
	if err != nil {
		return nil, 0, err
	}
	last := limit
	if after != nil {
		last = 1
	}
	p := page{limit: last}
	for _, s := range slices.Backward(segs) {
		if _, err := s.last(log, &p); err != nil {
			return nil, 0, err
		}
		if p.full() {
			break
		}
	}
	if len(p.entries) == 0 {
		return nil, -1, nil
	}
	slices.Reverse(p.entries)
	end := p.entries[len(p.entries)-1].Index
	switch {
	case after == nil:
		return p.entries, end, nil
	case *after >= end:
		return nil, end, nil
	}
	p = page{limit: limit}
	from := max(*after, -1) + 1
	i, found := slices.BinarySearchFunc(segs, from, func(s segment, index int64) int { return cmp.Compare(s.first, index) })
	if !found && i > 0 {
		i--
	}
	for ; i < len(segs) && !p.full(); i++ {
		if err := segs[i].from(log, from, &p); err != nil {
			return nil, 0, err
		}
	}
	if len(p.entries) > 0 {
		end = p.entries[len(p.entries)-1].Index
	}
	return p.entries, end, nil
}

// A page collects entries until it is full.
type page struct {
	limit, bytes int
	entries      []Entry
}

func (p *page) full() bool { return len(p.entries) >= p.limit }

// add adds an entry if there is room for its text, else the page is full.
func (p *page) add(e Entry) {
	if p.bytes += len(e.Text); len(p.entries) > 0 && p.bytes > tailBytes {
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

// segments lists the segments of a log, the oldest first; a folder that does not
// exist has none.
func segments(dir string) ([]segment, error) {
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
		if fi, err := name.Info(); err == nil { // else it was rotated away just now
			all = append(all, segment{first, fi.Size()})
		}
	}
	slices.SortFunc(all, func(a, b segment) int { return cmp.Compare(a.first, b.first) })
	return all, nil
}

// last adds the entries of a segment to a page that is not full, the last one
// first, and returns the offset behind the last one, 0 if there is none. Lines that
// are no entries, torn by a crash of the system, are left out.
func (s segment) last(log string, p *page) (end int64, err error) {
	f, err := os.Open(segmentPath(log, s.first))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for size := int64(tailBlock); ; size *= 4 {
		begin, try := max(0, s.size-size), *p
		data := make([]byte, s.size-begin)
		if _, err := f.ReadAt(data, begin); err != nil {
			return 0, err
		}
		end = 0
		for i := bytes.LastIndexByte(data, '\n'); i >= 0 && !try.full(); {
			start := bytes.LastIndexByte(data[:i], '\n') + 1
			if start == 0 && begin > 0 {
				break // the line began before
			}
			if e, err := decodeEntry(data[start:i]); err == nil {
				end = max(end, begin+int64(i)+1)
				try.add(e)
			}
			i = start - 1
		}
		if try.full() || begin == 0 {
			*p = try
			return end, nil
		}
	}
}

// from adds the entries of a segment from an index on to a page.
func (s segment) from(log string, index int64, p *page) error {
	data, err := os.ReadFile(segmentPath(log, s.first))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(data) {
		if at, ok := indexOf(line); !ok || at < index || line[len(line)-1] != '\n' {
			continue
		}
		if e, err := decodeEntry(line); err == nil {
			p.add(e)
		}
		if p.full() {
			break
		}
	}
	return nil
}
