package local

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"sync"

	"deepwork/actor/durable"
	"deepwork/session/store"
)

// The index of request ids, requests.idx, has a line for each call with a request_id: its key, its
// session, and a checksum. The line is written before the session's record, so a lookup by any
// server finds it, and the record shows whether the call was made. Lines are not synced: a file
// that is missing, invalid, or older than the start of the machine is rebuilt from all records. The
// index of active sessions, active.idx, is of the same form.

const (
	indexName     = "requests.idx"
	indexLineSize = 2*16 + 1 + 8 + 1 + 8 + 1
	indexGrowth   = 400_000 // lines, after which it is rebuilt from the records
)

// The keys of lines that are not calls: bootKey has the start of the machine since which the file
// exists, sizeKey its initial number of lines.
var bootKey, sizeKey = store.Key{15: 1}, store.Key{15: 2}

// An index is a file that has sessions by keys.
type index struct {
	log    sharedLog
	what   string // for the server's log
	lock   string // the name of its lock file
	growth int    // lines, after which it is made again
	moves  bool   // it has active sessions: see active.go
	keys   func(id string, body []byte) []store.Key

	mu     sync.Mutex             // guards the following fields
	known  map[store.Key][]uint32 // sessions, by their ids as numbers
	active map[store.Key][]int64  // see moved
	last   []byte                 // line of active.idx that this process appended
	noted  int                    // lines of active.idx that this process appended
	lines  int                    // of the file
	size   int                    // of the line with sizeKey
	boot   uint32                 // of the line with bootKey
	recent bool                   // a file of this start of the machine was seen
}

func indexLine(key store.Key, number uint32) []byte {
	line := hex.AppendEncode(make([]byte, 0, indexLineSize), key[:])
	line = fmt.Appendf(line, " %08x", number)
	return fmt.Appendf(line, " %08x\n", crc32.ChecksumIEEE(line))
}

func parseIndexLine(line []byte) (key store.Key, number uint32, ok bool) {
	if _, err := hex.Decode(key[:], line[:32]); err != nil || line[32] != ' ' || line[41] != ' ' || line[50] != '\n' {
		return key, 0, false
	}
	n, err := strconv.ParseUint(string(line[33:41]), 16, 32)
	sum, serr := strconv.ParseUint(string(line[42:50]), 16, 32)
	return key, uint32(n), err == nil && serr == nil && uint32(sum) == crc32.ChecksumIEEE(line[:41])
}

// NoteRequest implements store.RequestIDs.
func (s *Store) NoteRequest(ctx context.Context, key store.Key, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	err := s.do(ctx, call{}, func() error {
		x := &s.requests
		x.mu.Lock()
		defer x.mu.Unlock()
		err := x.add(key, idKey(id))
		if errors.Is(err, fs.ErrNotExist) {
			if err = s.refreshIndex(ctx, x); err == nil {
				err = x.add(key, idKey(id))
			}
		}
		return durable.Explain(err, x.log.path)
	})
	if err != nil {
		return fmt.Errorf("noting a request_id of session %s: %w", id, err)
	}
	return nil
}

// FindRequest implements store.RequestIDs.
func (s *Store) FindRequest(ctx context.Context, key store.Key) (ids []string, err error) {
	var found []uint32
	err = s.do(ctx, call{}, func() error {
		s.requests.mu.Lock()
		defer s.requests.mu.Unlock()
		if !exists(s.dir) && !exists(s.requests.log.path) {
			return nil // nothing was written yet
		}
		if err := s.refreshIndex(ctx, &s.requests); err != nil {
			return durable.Explain(err, s.requests.log.path)
		}
		found = slices.Clone(s.requests.known[key])
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for a request_id: %w", err)
	}
	for _, n := range slices.Backward(found) {
		ids = append(ids, fmt.Sprintf("%08x", n))
	}
	return ids, nil
}

// exists reports whether there may be something at a path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// add appends a line, unless it is known to exist. The caller holds the lock.
func (x *index) add(key store.Key, number uint32) error {
	if slices.Contains(x.known[key], number) {
		return nil
	}
	if err := x.log.append(indexLine(key, number)); err != nil {
		return err
	}
	x.learn(key, number)
	return nil
}

func (x *index) learn(key store.Key, number uint32) {
	if x.moves {
		x.moved(key, number)
	} else if !slices.Contains(x.known[key], number) {
		x.known[key] = append(x.known[key], number)
	}
}

// refreshIndex reads lines appended since the last call. The caller holds the lock.
func (s *Store) refreshIndex(ctx context.Context, x *index) error {
	for range putTries {
		lines, first, err := x.log.next()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if first {
			x.known, x.active, x.lines, x.size, x.boot = map[store.Key][]uint32{}, map[store.Key][]int64{}, 0, 0, 0
		}
		whole := err == nil && x.read(lines)
		if whole && x.lines <= x.size+x.growth {
			return nil
		}
		if err := s.rebuildIndex(ctx, x, whole && x.moves); err != nil {
			return err
		}
		x.recent = true
	}
	return fmt.Errorf("%s is being replaced all the time", x.log.path)
}

// read adds lines to the index. It reports whether all verify, and the file is recent.
func (x *index) read(lines []byte) bool {
	for chunk := range slices.Chunk(lines, indexLineSize) {
		if len(chunk) != indexLineSize {
			return false
		}
		key, n, ok := parseIndexLine(chunk)
		switch {
		case !ok:
			return false
		case key == sizeKey:
			x.size = int(n)
		case key == bootKey:
			x.boot = n
		default:
			x.learn(key, n)
		}
		x.lines++
	}
	x.recent = x.recent || x.boot != 0 && x.boot == bootNumber()
	return x.recent && x.size > 0 // this line follows those of the records
}

// bootNumber identifies the start of the machine; 0 means unknown.
func bootNumber() uint32 {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0
	}
	return crc32.ChecksumIEEE(id)
}

// recordLines returns lines for the keys of all records, those written last at the end.
func (s *Store) recordLines(ctx context.Context, x *index) (lines []byte, err error) {
	var infos []store.Info
	for info, err := range s.List(ctx) {
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b store.Info) int { return a.ModTime.Compare(b.ModTime) })
	for _, info := range infos {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		body, _, err := s.readRecord(s.RecordPath(info.ID))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("searching the session files for "+x.what, "session", info.ID, "error", err)
		}
		if err != nil {
			continue
		}
		for _, key := range x.keys(info.ID, body) {
			lines = append(lines, indexLine(key, idKey(info.ID))...)
		}
	}
	return lines, nil
}

// rebuildIndex makes the file again from the records, or, to compact it, from what was read of it,
// unless another server has done so before this one gets the lock.
func (s *Store) rebuildIndex(ctx context.Context, x *index, compact bool) error {
	log := &x.log
	// Not under the claim lock, which callers of NoteRequest may hold.
	return s.locked(ctx, x.lock, func() error {
		if other, err := os.Lstat(log.path); err == nil && !log.is(other) {
			return nil
		}
		s.log.Info("making the index of "+x.what, "path", log.path)
		var data []byte
		if compact {
			data = x.compacted()
		} else {
			var err error
			if data, err = s.recordLines(ctx, x); err != nil {
				return err
			}
			// The newest calls may not be in records yet.
			old, _, _ := durable.Read(log.path, maxRecord) // which may be missing, or damaged
			data = append(data, wholeLines(old[max(0, len(old)-10_000*indexLineSize):])...)
		}
		data = append(data, indexLine(bootKey, bootNumber())...)
		data = append(data, indexLine(sizeKey, uint32(len(data)/indexLineSize)+1)...)
		late, err := log.replace(s.disk, data)
		if late = wholeLines(late); err == nil && len(late) > 0 {
			err = log.append(late)
		}
		return err
	})
}

// wholeLines returns the valid lines of calls.
func wholeLines(data []byte) (whole []byte) {
	for line := range bytes.Lines(data) {
		if len(line) != indexLineSize {
			continue
		}
		if key, _, ok := parseIndexLine(line); ok && key != bootKey && key != sizeKey {
			whole = append(whole, line...)
		}
	}
	return whole
}
