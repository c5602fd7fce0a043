package runner

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A segment is one file of a log; its name is the index of its first entry.
type segment struct {
	first int64
	size  int64
}

const segmentSuffix = ".jsonl"

func segmentPath(dir string, first int64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", first, segmentSuffix))
}

// segments lists the segments of a log, the oldest first; a folder that is not
// there has none.
func segments(dir string) ([]segment, error) {
	names, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
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
			continue // rotated away just now
		}
		all = append(all, segment{first, fi.Size()})
	}
	slices.SortFunc(all, func(a, b segment) int { return int(min(1, max(-1, a.first-b.first))) })
	return all, nil
}

// eachLine calls fn with each whole line of a file from offset on, without its
// line break, and with the offset behind it, until fn returns false. The line is
// valid during the call alone. Lines that are too long to be entries are left out.
func eachLine(f *os.File, offset int64, fn func(line []byte, end int64) bool) error {
	r := bufio.NewReaderSize(io.NewSectionReader(f, offset, 1<<62), maxEncoded)
	tooLong := false
	for {
		line, err := r.ReadSlice('\n')
		offset += int64(len(line))
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			tooLong = true
		case errors.Is(err, io.EOF):
			return nil // what is left is being written
		case err != nil:
			return err
		case tooLong:
			tooLong = false
		default:
			if !fn(line[:len(line)-1], offset) {
				return nil
			}
		}
	}
}

// backBlock is how much is read at once by eachLineBack.
const backBlock = 64 << 10

// eachLineBack calls fn with each whole line of a file, the last one first, and
// with the offset behind it, until fn returns false. The line is valid during the
// call alone.
func eachLineBack(f *os.File, size int64, fn func(line []byte, end int64) bool) error {
	var (
		held   []byte      // read and not yet given: from at on
		at     = size      // where held begins
		end    = int64(-1) // behind the line that held ends with; -1: what it ends with is not whole
		seen   = 0         // how much at held's end has no line break
		tooBig = 2 * maxEncoded
	)
	for {
		// The last line break of what has not been looked at.
		i := lastBreak(held[:len(held)-seen])
		if i < 0 {
			seen = len(held)
			if at == 0 {
				if end >= 0 && len(held) > 0 {
					fn(held, end)
				}
				return nil
			}
			if seen > tooBig { // not ours: leave it out, bounded
				held, seen = held[:0], 0
				end = -1
			}
			n := min(at, backBlock)
			block := make([]byte, n, int(n)+len(held))
			if _, err := f.ReadAt(block, at-n); err != nil {
				return err
			}
			held, at = append(block, held...), at-n
			continue
		}
		if end >= 0 && !fn(held[i+1:], end) {
			return nil
		}
		end, held, seen = at+int64(i)+1, held[:i], 0
	}
}

func lastBreak(b []byte) int {
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] == '\n' {
			return i
		}
	}
	return -1
}
