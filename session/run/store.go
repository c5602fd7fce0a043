package run

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/gofrs/flock"
	"github.com/google/uuid"

	"deepwork/actor/durable"
)

// A store keeps the records of runs in one folder that several servers share:
//
//	runs_<id>.jsonl          the journal of a server: records, the last of a run counts
//	server_<id>.lock         locked for as long as that server lives
//	<uuid>.result            a result that is too long for a journal
//	claim.lock               locked for moments, by who decides whose a run is
//	write_<id>.tmp           a file that is being written
//	damaged_runs_<id>.jsonl  a journal that could not be read to its end, set aside
//
// A journal is written by its server alone. When that is gone, another one makes
// what is in it its own, under the claim lock. A journal, not a file a run: making
// files was measured to cost a synchronous call three times what the call itself
// does. Nothing is created before the first write.
type store struct {
	dir    string // absolute
	server string // 16 hex characters
	disk   durable.Disk
	log    *slog.Logger
	known  func(id string) bool // whether a run may still be asked about

	claiming chan struct{} // capacity 1: full while a call here has, or waits for, the claim lock

	mu     sync.Mutex   // guards what follows
	lock   *flock.Flock // this server's; nil before the first write
	file   *os.File     // its journal; nil with lock
	size   int64        // of the journal
	limit  int64        // at which it is made shorter
	torn   bool         // its last line is not whole
	closed bool
}

const (
	inlineLimit   = 32 << 10  // bytes of a result that stands in its record
	recordLimit   = 256 << 10 // bytes of a record
	journalLimit  = 16 << 20  // bytes of a journal that is not made shorter
	journalBounds = 256 << 20 // bytes of one that is read at all
)

var errStoreClosed = errors.New("the server is shutting down")

func openStore(dir string, log *slog.Logger, known func(id string) bool) *store {
	var id [8]byte
	rand.Read(id[:]) // never fails
	return &store{dir: dir, server: hex.EncodeToString(id[:]), log: log, known: known, claiming: make(chan struct{}, 1)}
}

// save writes a record, and before it the result that it speaks of, where that
// is not nil. Without sync it survives the end of this process, not of the
// machine. It blocks for the disk, and for the claim lock where the folder has to
// be made.
func (s *store) save(ctx context.Context, r *record, result json.RawMessage, sync bool) error {
	if result != nil {
		err := s.enter(ctx, false)
		if err == nil {
			err = s.replace(r.ExecutionID+".result", result, sync)
		}
		if err != nil {
			return fmt.Errorf("writing the result of run %s: %w", r.ExecutionID, err)
		}
	}
	return s.append(ctx, sync, false, r)
}

// replace makes data the content of a file, whole or not at all.
func (s *store) replace(name string, data []byte, sync bool) error {
	disk := s.disk
	disk.NoSync = !sync
	path := filepath.Join(s.dir, name)
	return durable.Explain(disk.Put(path, data, durable.PutOptions{Temp: "write_" + s.server + "_*.tmp"}), path)
}

// result returns the result of a run that is over, from disk; nil: it has none.
func (s *store) result(r *record) (json.RawMessage, error) {
	if !r.ResultKept {
		return r.Result, nil
	}
	data, err := s.read(r.ExecutionID+".result", maxOnDisk)
	if err == nil && !json.Valid(data) {
		err = errors.New("it is damaged")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the result of run %s: %w", r.ExecutionID, err)
	}
	return data, nil
}

// removeResult deletes the long result of a run that is forgotten.
func (s *store) removeResult(id string) {
	if err := os.Remove(filepath.Join(s.dir, id+".result")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("cannot remove the result of an old run", "execution_id", id, "error", err)
	}
}

// read reads a regular file of a bounded size.
func (s *store) read(name string, limit int64) ([]byte, error) {
	data, _, err := durable.Read(filepath.Join(s.dir, name), limit)
	return data, err
}

// names returns what stands in the folder, sorted; none where there is no folder.
func (s *store) names() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing runs: %w", err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// isID tells whether a text is a run's id as it is written; nothing else ever
// becomes part of a path.
func isID(text string) bool {
	id, err := uuid.Parse(text)
	return err == nil && id.String() == text
}

// isHex tells whether a text is a server's id.
func isHex(text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(b) == 8 && strings.ToLower(text) == text
}
