package execution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/uuid"

	"deepwork/actor/durable"
	"deepwork/actor/presence"
	"deepwork/session"
)

// A store keeps the records of runs in one folder that several servers share:
//
//	runs_<id>.jsonl          the journal of a server: records, each with its checksum, the last of a run counts
//	<uuid>.result            a result that is too long for a journal
//	claim.lock               locked for moments, by who decides whose a run is
//	write_<id>.tmp           a file that is being written
//	damaged_runs_<id>.jsonl  a journal with lines that cannot be trusted, set aside
//
// A journal is written by its server alone. When that is gone, another one makes
// what is in it its own, under the claim lock. A journal, not a file a run: making
// files was measured to cost a synchronous call three times what the call itself
// does. Nothing is created before the first write.
type store struct {
	dir    string // absolute
	server string // presence.ID
	disk   durable.Disk
	log    *slog.Logger
	known  func(id string) bool // whether a run may still be asked about

	member *presence.Member
	leave  bool            // at close
	claim  *presence.Claim // held for one look through the folder

	mu     sync.Mutex // guards what follows
	file   *os.File   // this server's journal; nil before the first write
	size   int64      // of the journal
	limit  int64      // at which it is made shorter
	torn   bool       // its last line is not whole
	closed bool
}

const (
	inlineLimit   = 32 << 10  // bytes of a result that stands in its record
	recordLimit   = 256 << 10 // bytes of a record
	journalLimit  = 16 << 20  // bytes of a journal that is not made shorter
	journalBounds = 256 << 20 // bytes of one that is read at all
)

var errStoreClosed = errors.New("the server is shutting down")

func openStore(dir string, member *presence.Member, log *slog.Logger, known func(id string) bool) *store {
	s := &store{dir: dir, log: log, known: known, member: member, leave: member == nil}
	if s.leave {
		s.member = session.NewMember(filepath.Dir(dir), log)
	}
	s.server = s.member.ID()
	s.claim = presence.NewClaim(dir, s.makeFolder)
	return s
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
	if err == nil {
		err = r.holds(data)
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
