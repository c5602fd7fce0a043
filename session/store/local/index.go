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
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"deepwork/actor/durable"
	"deepwork/session/store"
)

// The index of request ids, requests.idx, has a line for each call with a request_id:
// its key, the session in which it is about to be done, and a checksum. The line is
// there before the session's record is written, so a lookup by any server finds it, and
// the record reports whether the call was done. Lines are not synced. A line with syncKey
// says that all lines before its time are on disk, so that after a crash of the machine
// only the records written later are searched for what was lost; one with bootKey says
// that this was done since the machine was started. A file that is missing, or that has a
// line that does not verify, is made again from all records.

const (
	indexName     = "requests.idx"
	indexLineSize = 2*16 + 1 + 8 + 1 + 8 + 1
	syncedEvery   = 512     // lines of this process between two syncs
	indexGrowth   = 400_000 // lines, after which it is made again from the records
)

// The keys of lines that are no calls; sizeKey says how many lines there were when the
// file was made.
var syncKey, bootKey, sizeKey = store.Key{}, store.Key{15: 1}, store.Key{15: 2}

type requestIndex struct {
	log sharedLog

	mu     sync.Mutex             // guards what follows
	known  map[store.Key][]uint32 // sessions, by their ids as numbers
	lines  int                    // of the file
	size   int                    // of the last line with sizeKey
	synced time.Time              // of the last line with syncKey
	boot   uint32                 // of the last line with bootKey; 0 means none
	noted  int                    // lines of this process since then
}

func indexLine(key store.Key, number uint32) []byte {
	line := hex.AppendEncode(make([]byte, 0, indexLineSize), key[:])
	line = fmt.Appendf(line, " %08x", number)
	return fmt.Appendf(line, " %08x\n", crc32.ChecksumIEEE(line))
}

func parseIndexLine(line []byte) (key store.Key, number uint32, ok bool) {
	if n, err := hex.Decode(key[:], line[:32]); err != nil || n != len(key) {
		return key, 0, false
	}
	n, err := strconv.ParseUint(string(line[33:41]), 16, 32)
	return key, uint32(n), err == nil && string(indexLine(key, uint32(n))) == string(line)
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
			if err = s.refreshIndex(ctx); err == nil {
				err = x.add(key, idKey(id))
			}
		}
		if err == nil && x.noted >= syncedEvery {
			err = x.sync(s.disk)
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
		if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
			return nil // nothing was ever written
		}
		if err := s.refreshIndex(ctx); err != nil {
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

// add appends a line, unless it is known to be there. The lock is held.
func (x *requestIndex) add(key store.Key, number uint32) error {
	if slices.Contains(x.known[key], number) {
		return nil
	}
	if err := x.log.append(indexLine(key, number)); err != nil {
		return err
	}
	x.learn(key, number)
	x.noted++
	return nil
}

func (x *requestIndex) learn(key store.Key, number uint32) {
	if !slices.Contains(x.known[key], number) {
		x.known[key] = append(x.known[key], number)
	}
}

// sync makes the file durable and says so in it. The lock is held.
func (x *requestIndex) sync(disk durable.Disk) error {
	now := time.Now()
	f, _, err := durable.OpenRegular(x.log.path, os.O_RDWR)
	if err != nil {
		return err
	}
	if err := errors.Join(disk.Sync(f), f.Close()); err != nil {
		return err
	}
	x.noted, x.synced = 0, now
	return x.log.append(indexLine(syncKey, uint32(now.Unix())))
}

// refreshIndex reads what was appended since the last time. The lock is held.
func (s *Store) refreshIndex(ctx context.Context) error {
	x := &s.requests
	for range putTries {
		lines, first, err := x.log.next()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if first {
			x.known, x.lines, x.synced, x.boot = map[store.Key][]uint32{}, 0, time.Time{}, 0
		}
		switch {
		case err != nil, !x.read(lines), x.lines > x.size+indexGrowth:
			err = s.rebuildIndex(ctx)
		case first && (x.boot == 0 || x.boot != bootNumber()):
			return s.catchUp(ctx)
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%s is being replaced all the time", x.log.path)
}

// read learns from lines, and reports whether all verify.
func (x *requestIndex) read(lines []byte) bool {
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
		case key == syncKey:
			x.synced = time.Unix(int64(n), 0)
		default:
			x.learn(key, n)
		}
		x.lines++
	}
	return !x.synced.IsZero() // the first line says it
}

// catchUp notes the calls in records that were written since the file was known to be
// on disk, because a crash of the machine may have lost their lines.
func (s *Store) catchUp(ctx context.Context) error {
	x := &s.requests
	err := s.eachKey(ctx, x.synced.Add(-2*time.Second), x.add) // file times are coarse
	if err == nil {
		err = x.sync(s.disk)
	}
	if boot := bootNumber(); err == nil && boot != 0 {
		err = x.log.append(indexLine(bootKey, boot))
	}
	return err
}

// bootNumber stands for the time since the machine was started; 0 means unknown.
func bootNumber() uint32 {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0
	}
	return crc32.ChecksumIEEE(id)
}

// eachKey calls f with the calls in the records that were written since a time.
func (s *Store) eachKey(ctx context.Context, since time.Time, f func(store.Key, uint32) error) error {
	for info, err := range s.List(ctx) {
		if err != nil {
			return err
		}
		if info.ModTime.Before(since) {
			continue
		}
		body, _, err := readRecord(s.recordPath(info.ID))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			s.log.Warn("searching the session files for request ids", "session", info.ID, "error", err)
			continue
		}
		for _, key := range s.o.Keys(info.ID, body) {
			if err := f(key, idKey(info.ID)); err != nil {
				return err
			}
		}
	}
	return nil
}

// rebuildIndex makes the file again from the records, unless another server has done so
// by the time that this one may.
func (s *Store) rebuildIndex(ctx context.Context) error {
	log := &s.requests.log
	// Not under the claim lock, which callers of NoteRequest may have.
	return s.locked(ctx, "requests.lock", func() error {
		if other, err := os.Lstat(log.path); err == nil && !log.is(other) {
			return nil
		}
		s.log.Info("making the index of request ids", "path", log.path)
		data := indexLine(syncKey, uint32(time.Now().Unix())) // before the records are read
		err := s.eachKey(ctx, time.Time{}, func(key store.Key, n uint32) error {
			data = append(data, indexLine(key, n)...)
			return nil
		})
		if err != nil {
			return err
		}
		// The newest calls may not be in records yet.
		old, _, _ := durable.Read(log.path, maxRecord) // which may be missing, or damaged
		data = append(data, wholeLines(old[max(0, len(old)-10_000*indexLineSize):])...)
		data = append(data, indexLine(sizeKey, uint32(len(data)/indexLineSize))...)
		late, err := log.replace(s.disk, data)
		if late = wholeLines(late); err == nil && len(late) > 0 {
			err = log.append(late)
		}
		return err
	})
}

// wholeLines returns the lines that verify and are of calls.
func wholeLines(data []byte) (whole []byte) {
	for line := range bytes.Lines(data) {
		if len(line) != indexLineSize {
			continue
		}
		if key, _, ok := parseIndexLine(line); ok && key != syncKey && key != bootKey && key != sizeKey {
			whole = append(whole, line...)
		}
	}
	return whole
}

func newRequestIndex(dir string) requestIndex {
	return requestIndex{log: sharedLog{path: filepath.Join(dir, indexName)}, known: map[store.Key][]uint32{}}
}
