package execution

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"deepwork/actor/durable"
)

// append writes records to this server's journal, in one piece; held tells that
// the caller has the claim lock.
func (s *store) append(ctx context.Context, sync, held bool, records ...*record) error {
	lines, err := encode(records)
	if err != nil {
		return err
	}
	return s.appendLines(ctx, sync, held, lines)
}

// encode makes lines of records.
func encode(records []*record) ([]byte, error) {
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines) // ends each with a line break, and has none within
	enc.SetEscapeHTML(false)
	for _, r := range records {
		before := lines.Len()
		if err := enc.Encode(r); err != nil {
			return nil, fmt.Errorf("encoding the record of run %s: %w", r.ExecutionID, err)
		}
		lines.Truncate(lines.Len() - len("\n"))
		seal(&lines, before)
		lines.WriteByte('\n')
		if size := lines.Len() - before; size > recordLimit {
			return nil, fmt.Errorf("the record of run %s has %d bytes, over the limit of %d", r.ExecutionID, size, recordLimit)
		}
	}
	return lines.Bytes(), nil
}

func (s *store) appendLines(ctx context.Context, sync, held bool, lines []byte) error {
	if err := s.enter(ctx, held); err != nil {
		return fmt.Errorf("writing to the journal of runs: %w", err)
	}
	f, err := s.appendOnce(lines, !held)
	if err != nil {
		return durable.Explain(fmt.Errorf("writing to %s: %w", s.journalPath(s.server), err), s.journalPath(s.server))
	}
	if !sync {
		return nil
	}
	// One that was closed meanwhile was made shorter, and synced for that.
	if err := s.disk.Sync(f); err != nil && !errors.Is(err, os.ErrClosed) {
		return durable.Explain(fmt.Errorf("syncing %s: %w", s.journalPath(s.server), err), s.journalPath(s.server))
	}
	return nil
}

// appendOnce writes, and returns the file to be synced. What has just been taken
// up is not known yet: the journal is made shorter by the next one who writes.
func (s *store) appendOnce(lines []byte, shorten bool) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.file == nil {
		return nil, errStoreClosed
	}
	if s.torn { // by a disk that was full; what is there of the line stays alone
		lines = append([]byte{'\n'}, lines...)
	}
	n, err := s.disk.Write(s.file, lines)
	s.size += int64(n)
	if err != nil {
		// A reader would take what is there of the line for damage. What cannot be
		// taken back stays alone: a line break too many is no harm.
		if s.disk.Truncate(s.file, s.size-int64(n)) == nil {
			s.size -= int64(n)
		} else {
			s.torn = true
		}
		return nil, err
	}
	s.torn = false
	f := s.file
	if shorten && s.size > s.limit {
		s.shorten()
	}
	return f, nil
}

// shorten rewrites the journal without what nobody can ask about any more. The
// lock is held, and so this server's runs wait for it; that it fails is no loss
// but of room.
func (s *store) shorten() {
	err := func() error {
		name := filepath.Base(s.journalPath(s.server))
		data, err := s.read(name, journalBounds)
		if err != nil {
			return err
		}
		var short bytes.Buffer
		for _, l := range latest(data) {
			// A run that has not ended may have been written down and not be known yet.
			if l.err != nil || !l.rec.over() || s.known(l.rec.ExecutionID) {
				short.Write(l.raw)
				short.WriteByte('\n')
			}
		}
		// Closed first: elsewhere a file that is open keeps its name.
		if err := s.file.Close(); err != nil {
			return err
		}
		err = s.replace(name, short.Bytes(), true)
		return errors.Join(err, s.openJournal())
	}()
	if err != nil {
		s.log.Warn("the journal of runs cannot be made shorter", "error", err)
	}
	s.limit = max(journalLimit, 2*s.size)
}

// openJournal opens this server's journal. The lock is held.
func (s *store) openJournal() error {
	f, err := os.OpenFile(s.journalPath(s.server), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	fi, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	s.file, s.size, s.torn = f, fi.Size(), false
	return nil
}

// last returns the last record of a run in this server's journal that can be
// trusted; an error that wraps fs.ErrNotExist: there is none.
func (s *store) last(id string) (*record, error) {
	data, err := s.read(filepath.Base(s.journalPath(s.server)), journalBounds)
	if err != nil {
		return nil, fmt.Errorf("looking for run %s: %w", id, err)
	}
	var found *record
	for raw := range bytes.Lines(data) {
		// Most lines need no parsing to be told from it.
		if !bytes.Contains(raw, []byte(id)) {
			continue
		}
		for l := range lines(raw) {
			if l.err == nil && l.rec.ExecutionID == id {
				found = l.rec
			}
		}
	}
	if found == nil {
		return nil, fmt.Errorf("looking for run %s: %w", id, fs.ErrNotExist)
	}
	return found, nil
}
