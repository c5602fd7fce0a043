package runner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"deepwork/actor/durable"
	"deepwork/actor/process"
	"deepwork/catalog/jsontext"
)

// MaxLogBytes is the maximum size of an attempt's log; the oldest entries are removed first.
const MaxLogBytes = 32 << 20

const (
	segmentBytes = 4 << 20   // a segment of this size is followed by another one
	batchBytes   = 256 << 10 // the size of one write, approximately
	logLock      = "log.lock"
	runPatience  = 5 * time.Second        // how long a run waits for a note that is being written
	notePatience = 200 * time.Millisecond // how long a note waits for another
)

// A logFile is a log opened for writing. It has one writer at a time, which holds its lock. Writers block
// while the disk does: nothing is buffered in memory. Lines that cannot be written are counted, and the log
// reports them as soon as it can be written again.
type logFile struct {
	dir  string
	lock *durable.FileLock

	mu    sync.Mutex
	f     *os.File // the last segment; nil before the first write
	size  int64    // the size of f
	next  int64    // the next entry's index
	buf   []byte   // the batch being filled
	count int64    // number of entries in buf
	lost  int64    // lines lost since the last successful write
	why   error    // why the last of them was lost
}

// openLog opens a log for writing, and creates it if it is missing. It cuts off the incomplete line of a
// killed writer. It waits up to patience for another writer.
func openLog(dir string, patience time.Duration) (*logFile, error) {
	if err := cmp.Or(OwnFolder(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}

	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("a run writes it now"))
	defer cancel()
	lock, err := durable.Lock(ctx, filepath.Join(dir, logLock))
	if err != nil {
		return nil, fmt.Errorf("opening the log %s: %w", dir, err)
	}
	l := &logFile{dir: dir, lock: lock}
	if err := l.takeUp(); err != nil {
		l.close()
		return nil, fmt.Errorf("opening the log %s: %w", dir, err)
	}
	return l, nil
}

// takeUp finds the end of the log.
func (l *logFile) takeUp() error {
	segs, err := segments(l.dir)
	if err != nil || len(segs) == 0 {
		return err
	}
	last := segs[len(segs)-1]
	if l.f, _, err = durable.OpenRegular(segmentPath(l.dir, last.first), os.O_RDWR); err != nil {
		return err
	}
	l.next = last.first
	data, err := last.read(l.dir)
	if err != nil {
		return err
	}
	for len(data) > 0 {
		before, line := cutLast(data)
		if e, err := decodeEntry(line); err == nil {
			l.next = e.Index + 1
			break
		}
		data = before
	}
	l.size = int64(len(data))
	return l.f.Truncate(l.size)
}

// write appends lines of one stream. It blocks until the system has them. It never fails: lines that cannot
// be written are counted.
func (l *logFile) write(stream string, lines ...[]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now().UTC()
	for _, line := range lines {
		if len(l.buf) == 0 && l.lost > 0 {
			l.buf = appendEntry(l.buf, newEntry(l.next, now, System,
				fmt.Appendf(nil, "%d lines are missing here: the log could not be written: %v", l.lost, l.why)))
			l.count++
		}
		l.buf = appendEntry(l.buf, newEntry(l.next+l.count, now, stream, line))
		l.count++
		if len(l.buf) >= batchBytes {
			l.flush()
		}
	}
	l.flush()
}

// flush writes the batch completely or not at all, so that no index is given to a line that does not exist.
func (l *logFile) flush() {
	if l.count == 0 {
		return
	}

	err := l.put()
	if err == nil {
		l.next += l.count
		l.lost, l.why = 0, nil
	} else {
		if l.lost > 0 {
			l.count-- // the entry that reports lost lines
		}
		l.lost, l.why = l.lost+l.count, err
	}
	l.buf, l.count = l.buf[:0], 0
}

func (l *logFile) put() error {
	n := int64(len(l.buf))
	if l.f == nil || l.size > 0 && l.size+n > segmentBytes {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	if _, err := l.f.WriteAt(l.buf, l.size); err != nil {
		l.f.Truncate(l.size) // part of a batch would be read as complete lines
		return err
	}
	l.size += n
	return nil
}

// rotate starts another segment, and removes the oldest ones to make room for it.
func (l *logFile) rotate() error {
	segs, err := segments(l.dir)
	if err != nil {
		return err
	}

	room := int64(MaxLogBytes - segmentBytes)
	for _, s := range slices.Backward(segs) {
		if room -= s.size; room < 0 {
			// If a reader has it open, it may only be possible to remove it next time.
			os.Remove(segmentPath(l.dir, s.first))
		}
	}
	f, err := os.OpenFile(segmentPath(l.dir, l.next), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}

	if l.f != nil {
		l.f.Close()
	}
	l.f, l.size = f, 0
	return nil
}

// system appends a message of deepwork.
func (l *logFile) system(format string, args ...any) {
	l.write(System, fmt.Appendf(nil, format, args...))
}

// close makes the log durable, as far as possible, and unlocks it.
func (l *logFile) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.why
	if l.f != nil {
		err = errors.Join(err, disk.Sync(l.f), l.f.Close(), disk.SyncFolder(l.dir))
		l.f = nil
	}
	return errors.Join(err, l.lock.Unlock())
}

// Note writes a system entry to a log that no run is writing to, and creates the log if it is missing. Each
// line of the text becomes an entry. It blocks until the entry is on disk, and fails if that is not possible,
// or if a run is writing the log. Concurrent notes wait briefly for each other.
func Note(log, text string) error {
	l, err := openLog(log, notePatience)
	if err != nil {
		return fmt.Errorf("noting something in a log: %w", err)
	}
	s := process.NewLines(MaxLine, func(lines [][]byte) { l.write(System, lines...) })

	s.Write([]byte(text))
	s.End()
	if err := l.close(); err != nil {
		return fmt.Errorf("noting something in the log %s: %w", log, err)
	}

	return nil
}

// An Entry is one line of an attempt's log.
type Entry struct {
	Index  int64     `json:"index" jsonschema:"number of the entry, from 0, without gaps"`
	Time   time.Time `json:"time" jsonschema:"when it was written, RFC 3339"`
	Stream string    `json:"stream" jsonschema:"stdout, stderr, or system for messages of deepwork"`
	Text   string    `json:"text" jsonschema:"the line, without its line break"`
	Raw    string    `json:"raw,omitempty" jsonschema:"the line in base64, if text is not exactly that"`
	More   bool      `json:"more,omitempty" jsonschema:"true if no line feed follows"`
}

// newEntry returns the entry for a line, with its line break, as process.Lines returns it, or for a message
// of deepwork.
func newEntry(index int64, at time.Time, stream string, line []byte) Entry {
	text, whole := bytes.CutSuffix(line, []byte("\n"))
	e := Entry{
		Index:  index,
		Time:   at,
		Stream: stream,
		Text:   string(bytes.TrimSuffix(text, []byte("\r"))),
		More:   !whole && stream != System,
	}

	if len(e.Text) < len(text) || !utf8.Valid(text) {
		e.Raw = base64.StdEncoding.EncodeToString(text)
	}
	return e
}

// Bytes returns what was written: the line and, if it is complete, its line break.
func (e *Entry) Bytes() []byte {
	line := []byte(e.Text)
	if raw, err := base64.StdEncoding.DecodeString(e.Raw); e.Raw != "" && err == nil {
		line = raw
	}
	if !e.More {
		line = append(line, '\n')
	}
	return line
}

// The streams of an Entry.
const (
	Stdout = "stdout"
	Stderr = "stderr"
	System = "system"
)

// MaxLine is the maximum length of an Entry's text in bytes; longer lines are split into several entries.
const MaxLine = 64 << 10

// appendEntry encodes an entry as one line of JSON that begins with the index, so that readers can skip it
// without parsing. Invalid UTF-8 is replaced.
func appendEntry(dst []byte, e Entry) []byte {
	line, err := jsontext.Encode(e)
	if err != nil {
		panic(err) // the year is in range
	}
	return append(append(dst, line...), '\n')
}

// decodeEntry decodes a line.
func decodeEntry(line []byte) (e Entry, err error) {
	err = json.Unmarshal(line, &e)
	if err == nil && e.Stream != Stdout && e.Stream != Stderr && e.Stream != System {
		err = fmt.Errorf("unknown stream %q", e.Stream)
	}
	return e, err
}

// indexOf parses only the index of a line.
func indexOf(line []byte) (int64, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"index":`))
	if !ok {
		return 0, false
	}
	digits, _, ok := bytes.Cut(rest[:min(len(rest), 21)], []byte(","))
	if !ok {
		return 0, false
	}
	i, err := strconv.ParseInt(string(digits), 10, 64)
	return i, err == nil && i >= 0
}
