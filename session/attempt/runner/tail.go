package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

const (
	// MaxTail is the most entries that one Tail returns.
	MaxTail = 10_000
	// tailBytes bounds the text that one Tail returns, but for its first entry.
	tailBytes = 1 << 20
	// tailPace is how often Tail looks for something new.
	tailPace = 100 * time.Millisecond
	// tailTries bounds how often Tail looks anew when what it is to read was
	// rotated away just then.
	tailTries = 20
)

// Tail reads a log folder: the entries after an index (nil: the last ones), at
// most limit of them (at least 1, at most MaxTail) and about 1 MiB of text,
// waiting up to wait for a first one where there is none.
//
// Entries are in order and their indexes have no gaps; where entries after the
// index were rotated away, they begin at the oldest that is kept. next is what to
// give as after to go on: the index of the last entry given, or, without any,
// that of the last one there is before them; -1 where the log has none, or is not
// there yet. An after that lies beyond the end counts as the end.
//
// It blocks no longer than wait, and may be called while a run writes. It fails
// where ctx ends or the log cannot be read.
func Tail(ctx context.Context, log string, after *int64, limit int, wait time.Duration) (entries []Entry, next int64, err error) {
	limit = min(max(limit, 1), MaxTail)
	deadline := time.Now().Add(wait)
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
	last, err := lastEntries(log, segs, 1)
	if err != nil {
		return nil, 0, err
	}
	if len(last) == 0 {
		return nil, -1, nil
	}
	end := last[0].Index
	var entries []Entry
	switch {
	case after == nil:
		entries, err = lastEntries(log, segs, limit)
	case *after >= end:
		return nil, end, nil
	default:
		entries, err = entriesFrom(log, segs, max(*after, -1)+1, limit)
	}
	if err != nil || len(entries) == 0 {
		return nil, end, err
	}
	return entries, entries[len(entries)-1].Index, nil
}

// lastEntries reads the last entries, without reading what is before them.
func lastEntries(log string, segs []segment, limit int) ([]Entry, error) {
	var entries []Entry
	left := tailBytes
	for _, s := range slices.Backward(segs) {
		err := inSegment(log, s, func(f *os.File) error {
			return eachLineBack(f, s.size, func(line []byte, _ int64) bool {
				e, err := decodeEntry(line)
				if err != nil {
					return true // torn by a crash of the system
				}
				if len(entries) > 0 && len(e.Text) > left {
					limit = len(entries)
					return false
				}
				left -= len(e.Text)
				entries = append(entries, e)
				return len(entries) < limit
			})
		})
		if err != nil {
			return nil, err
		}
		if len(entries) >= limit {
			break
		}
	}
	slices.Reverse(entries)
	return entries, nil
}

// entriesFrom reads the entries from an index on, and begins in the segment that
// has it.
func entriesFrom(log string, segs []segment, index int64, limit int) ([]Entry, error) {
	i, found := slices.BinarySearchFunc(segs, index, func(s segment, index int64) int {
		return int(min(1, max(-1, s.first-index)))
	})
	if !found && i > 0 {
		i--
	}
	var entries []Entry
	left := tailBytes
	for _, s := range segs[i:] {
		err := inSegment(log, s, func(f *os.File) error {
			return eachLine(f, 0, func(line []byte, _ int64) bool {
				if at, ok := indexOf(line); !ok || at < index {
					return true
				}
				e, err := decodeEntry(line)
				if err != nil {
					return true
				}
				if len(entries) > 0 && len(e.Text) > left {
					limit = len(entries)
					return false
				}
				left -= len(e.Text)
				entries = append(entries, e)
				return len(entries) < limit
			})
		})
		if err != nil {
			return nil, err
		}
		if len(entries) >= limit {
			break
		}
	}
	return entries, nil
}

func inSegment(log string, s segment, fn func(*os.File) error) error {
	f, err := os.Open(segmentPath(log, s.first))
	if err != nil {
		return err
	}
	defer f.Close()
	return fn(f)
}
