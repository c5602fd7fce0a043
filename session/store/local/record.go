package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"deepwork/actor/durable"
	"deepwork/session/store"
)

// Create writes a record that must not exist yet (store.ErrExists), durably. body is a JSON object,
// indented by two spaces, that ends in "\n}"; the store adds the checksum as its last key. A record
// written after ctx has ended is removed again.
func (s *Store) Create(ctx context.Context, id string, body []byte) error {
	c := call{id: id, undo: func() { s.remove(s.RecordPath(id)) }}
	if err := s.do(ctx, c, func() error { return s.changed(id, s.write(ctx, id, body, true)) }); err != nil {
		return fmt.Errorf("creating session %.40s: %w", id, err)
	}
	return nil
}

// Write creates or replaces a record, durably: when it returns nil the new record is on disk,
// whole; when it returns an error, the old or the new one is, whole. An existing file that this
// store did not write or read last is set aside first.
func (s *Store) Write(ctx context.Context, id string, body []byte) error {
	if err := s.do(ctx, call{id: id}, func() error { return s.changed(id, s.write(ctx, id, body, false)) }); err != nil {
		return fmt.Errorf("writing session %.40s: %w", id, err)
	}
	return nil
}

// write implements Write, or Create if the record is new.
func (s *Store) write(ctx context.Context, id string, body []byte, isNew bool) error {
	if err := checkID(id); err != nil {
		return err
	}
	data, sum, err := s.seal(id, body)
	if err != nil {
		return err
	}
	path, place := s.RecordPath(id), s.replace
	if isNew {
		if _, err := os.Lstat(path); err == nil {
			return store.ErrExists
		}
		place = durable.Disk.MoveNew
	}
	st, err := s.put(ctx, path, data, func(d durable.Disk, temp string) error {
		if !isNew {
			if err := s.makeWay(id); err != nil {
				return err
			}
		}
		return place(d, temp, path)
	})
	// A stamp with an error: the record is in place, and only the sync of its folder failed. It is
	// this store's own all the same.
	if st != nil {
		st.sum = sum
		s.remember(id, *st)
	}
	if isNew && errors.Is(err, fs.ErrExist) {
		return store.ErrExists
	}
	return err
}

// Read returns a record as it was given to Create or Write. Errors: store.ErrNotFound,
// *store.DamagedError, *store.ForeignError, or the system's. A damaged record is set aside
// under the claim lock.
func (s *Store) Read(ctx context.Context, id string) ([]byte, error) {
	return s.readAs(ctx, call{id: id, reads: true}, id)
}

// Peek is like Read for callers that do not own the record: it sets nothing aside and does not
// update what the store remembers.
func (s *Store) Peek(ctx context.Context, id string) ([]byte, error) {
	return s.readAs(ctx, call{reads: true}, id)
}

func (s *Store) readAs(ctx context.Context, c call, id string) ([]byte, error) {
	var body []byte // unless it succeeds, the call may still write it later
	err := s.do(ctx, c, func() (err error) {
		body, err = s.read(ctx, id, c.id != "", false)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading session %.40s: %w", id, err)
	}
	return body, nil
}

// read returns a record. For its owner it remembers the record, and sets it aside if it is damaged;
// held means that the caller holds the claim lock.
func (s *Store) read(ctx context.Context, id string, owner, held bool) ([]byte, error) {
	if err := checkID(id); err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrNotFound, err)
	}
	path := s.RecordPath(id)
	body, st, err := s.readRecord(path)
	if bad, ok := errors.AsType[*durable.BadFileError](err); ok && !owner {
		return nil, &store.DamagedError{ID: id, Path: path, Reason: bad.Reason}
	} else if ok {
		err = s.damaged(ctx, path, "session", id, bad, held, func() (err error) {
			body, st, err = s.readRecord(path)
			return err
		})
	}
	if foreign, ok := errors.AsType[*durable.ForeignError](err); ok {
		return nil, &store.ForeignError{ID: id, Path: path, Reason: foreign.Reason}
	}
	if _, ok := errors.AsType[*store.DamagedError](err); ok {
		return nil, err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, store.ErrNotFound
	}
	if err != nil {
		return nil, durable.Explain(err, path)
	}
	if owner {
		s.remember(id, st)
	}
	return body, nil
}

// seal returns a record as it is in its file, and a fingerprint of its seal.
func (s *Store) seal(id string, body []byte) ([]byte, uint64, error) {
	data, sum, err := durable.Seal(s.RecordPath(id), body, s.sealer)
	if len(data) > maxRecord {
		return nil, 0, fmt.Errorf("a record of %d bytes is over the limit of %d", len(data), maxRecord)
	}
	return data, sum, err
}

// readRecord reads and verifies one file; its error is a *durable.BadFileError if the
// file is not a record, and a *durable.ForeignError if it was not sealed here.
func (s *Store) readRecord(path string) ([]byte, stamp, error) {
	data, fi, err := readFile(path)
	if err != nil {
		return nil, stamp{}, err
	}
	body, sum, err := durable.Unseal(path, data, s.sealer)
	if err != nil {
		return nil, stamp{}, err
	}
	st := stampOf(fi)
	st.sum = sum
	return body, st, nil
}

// Update reads a record and replaces it by what change makes of it, while no other
// server can do the same: the way to take a record over from a server that has died. An
// error of change is returned and nothing is written; a nil body from change writes
// nothing. It holds the claim lock, for which it waits at most 10 s. change may ask
// which servers live, and must not call the store's methods that write.
func (s *Store) Update(ctx context.Context, id string, change func(body []byte) ([]byte, error)) error {
	var refused error // change's own error, returned unchanged
	err := s.do(ctx, call{id: id}, func() error {
		// Checked first, so that an unknown id creates no folder.
		if err := checkID(id); err != nil {
			return fmt.Errorf("%w: %w", store.ErrNotFound, err)
		}
		if _, err := os.Lstat(s.RecordPath(id)); errors.Is(err, fs.ErrNotExist) {
			return store.ErrNotFound
		}
		return s.claimed(ctx, false, func() error {
			body, err := s.read(ctx, id, true, true)
			if err != nil {
				return err
			}
			next, err := change(body)
			if err != nil || next == nil {
				refused = err
				return nil
			}
			return s.changed(id, s.write(ctx, id, next, false))
		})
	})
	if err != nil {
		return fmt.Errorf("updating session %.40s: %w", id, err)
	}
	return refused
}

// Remove deletes a record, durably; a missing one is not an error.
func (s *Store) Remove(ctx context.Context, id string) error {
	err := s.do(ctx, call{id: id}, func() error {
		if err := checkID(id); err != nil {
			return err
		}
		err := s.changed(id, s.remove(s.RecordPath(id)))
		if err == nil {
			os.Remove(s.newestPath(id)) // else it is a few bytes that nobody reads
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("removing session %.40s: %w", id, err)
	}
	s.Forget(id)
	return nil
}

// changed reports that a record was changed, unless err is set.
func (s *Store) changed(id string, err error) error {
	if err == nil && s.o.Changed != nil {
		s.o.Changed(id)
	}
	return err
}

// Settle returns when the records that can be read now are on disk. One that another
// server has just written has its name before that is durable, and what is reported of
// it must not be undone by a loss of power. A ReadOnly store does nothing.
func (s *Store) Settle(ctx context.Context) error {
	if s.o.ReadOnly {
		return nil
	}
	return s.do(ctx, call{reads: true}, func() error { return durable.Explain(s.disk.SyncFolder(s.dir), s.dir) })
}
