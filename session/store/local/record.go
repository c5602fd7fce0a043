package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"deepwork/actor/durable"
	"deepwork/session/store"
)

// Create writes a record that must not exist yet (store.ErrExists), durably.
// body is a JSON object, indented by two spaces, that ends in "\n}"; the store
// adds the checksum as its last key. It blocks for the disk; the first write of
// a store claims its place too, which waits for others that claim, at most 10 s.
func (s *Store) Create(id string, body []byte) error {
	if err := s.create(id, body); err != nil {
		return fmt.Errorf("creating session %.40s: %w", id, err)
	}
	return nil
}

func (s *Store) create(id string, body []byte) error {
	if err := checkID(id); err != nil {
		return err
	}
	if err := s.begin(); err != nil {
		return err
	}
	defer s.calls.Done()
	data, sum, err := seal(body)
	if err != nil {
		return err
	}
	path := s.recordPath(id)
	if _, err := os.Lstat(path); err == nil {
		return store.ErrExists
	}
	st, err := s.put(path, data, putOptions{exclusive: true})
	if st != nil {
		st.sum = sum
		s.remember(id, *st)
	}
	if errors.Is(err, fs.ErrExist) {
		return store.ErrExists
	}
	return err
}

// Write replaces a record, or makes it, durably: when it returns nil the new
// record is on disk, whole; when it returns an error, the old one is, or the
// new one, whole. What stands there and is not what this store wrote or read
// last is set aside first. It blocks for the disk, and on the first write for
// the claim, at most 10 s.
func (s *Store) Write(id string, body []byte) error {
	if err := s.begin(); err != nil {
		return fmt.Errorf("writing session %.40s: %w", id, err)
	}
	defer s.calls.Done()
	if err := s.write(id, body, false); err != nil {
		return fmt.Errorf("writing session %.40s: %w", id, err)
	}
	return nil
}

// write is Write; held tells that the caller holds the claim lock.
func (s *Store) write(id string, body []byte, held bool) error {
	if err := checkID(id); err != nil {
		return err
	}
	data, sum, err := seal(body)
	if err != nil {
		return err
	}
	st, err := s.put(s.recordPath(id), data, putOptions{
		held:   held,
		before: func() (*stamp, error) { return s.makeWay(id) },
	})
	// A stamp beside an error: the record stands, and only the sync of its
	// folder failed. It is this store's own all the same.
	if st != nil {
		st.sum = sum
		s.remember(id, *st)
	}
	return err
}

// Read returns a record as it was given to Create or Write. Errors:
// store.ErrNotFound, *store.DamagedError, or what the system said. A damaged record is set
// aside under the claim lock, for which it waits at most 10 s; otherwise Read
// blocks for the disk alone.
func (s *Store) Read(id string) ([]byte, error) {
	body, err := s.read(id, false)
	if err != nil {
		return nil, fmt.Errorf("reading session %.40s: %w", id, err)
	}
	return body, nil
}

// Peek is Read by somebody who is not the record's owner: it sets nothing aside,
// and does not make the store take what it saw for what it wrote or read last.
func (s *Store) Peek(id string) ([]byte, error) {
	if err := checkID(id); err != nil {
		return nil, fmt.Errorf("reading session %.40s: %w: %w", id, store.ErrNotFound, err)
	}
	path := s.recordPath(id)
	body, _, err := readRecord(path)
	if bad, ok := errors.AsType[*durable.BadFileError](err); ok {
		err = &store.DamagedError{ID: id, Path: path, Reason: bad.Reason}
	} else if errors.Is(err, fs.ErrNotExist) {
		err = store.ErrNotFound
	} else if err != nil {
		err = durable.Explain(err, path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading session %s: %w", id, err)
	}
	return body, nil
}

func (s *Store) read(id string, held bool) ([]byte, error) {
	if err := checkID(id); err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrNotFound, err)
	}
	path := s.recordPath(id)
	body, st, err := readRecord(path)
	if bad, ok := errors.AsType[*durable.BadFileError](err); ok {
		err = s.damaged(path, "session", id, bad, held, func() (err error) {
			body, st, err = readRecord(path)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, store.ErrNotFound
	}
	if err != nil {
		return nil, durable.Explain(err, path)
	}
	s.remember(id, st)
	return body, nil
}

// readRecord reads and verifies one file; a *durable.BadFileError is one that stands
// there and is no record.
func readRecord(path string) ([]byte, stamp, error) {
	data, fi, err := readFile(path)
	if err != nil {
		return nil, stamp{}, err
	}
	body, sum, err := openSealed(data)
	if err != nil {
		return nil, stamp{}, &durable.BadFileError{Path: path, Reason: err.Error()}
	}
	st := stampOf(fi)
	st.sum = sum
	return body, st, nil
}

// Update reads a record and replaces it by what change makes of it, while no
// other server can do the same: the way to take a record over from a server
// that has died. An error of change is returned and nothing is written; a nil
// body from change writes nothing. It holds the claim lock, for which it waits
// at most 10 s; change may ask Alive, and must not call the store's methods
// that write.
func (s *Store) Update(id string, change func(body []byte) ([]byte, error)) error {
	if err := s.begin(); err != nil {
		return fmt.Errorf("updating session %.40s: %w", id, err)
	}
	defer s.calls.Done()
	// Asked first, so that an unknown id creates no folder.
	if err := checkID(id); err != nil {
		return fmt.Errorf("updating session %.40s: %w: %w", id, store.ErrNotFound, err)
	}
	if _, err := os.Lstat(s.recordPath(id)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("updating session %s: %w", id, store.ErrNotFound)
	}
	var refused error // change's own, which is returned as it is
	err := s.claimed(false, func() error {
		body, err := s.read(id, true)
		if err != nil {
			return err
		}
		next, err := change(body)
		if err != nil || next == nil {
			refused = err
			return nil
		}
		return s.write(id, next, true)
	})
	if err != nil {
		return fmt.Errorf("updating session %s: %w", id, err)
	}
	return refused
}

// Remove deletes a record, durably; it is no error when it does not exist.
func (s *Store) Remove(id string) error {
	if err := checkID(id); err != nil {
		return fmt.Errorf("removing a session: %w", err)
	}
	if err := s.begin(); err != nil {
		return fmt.Errorf("removing session %s: %w", id, err)
	}
	defer s.calls.Done()
	if err := s.remove(s.recordPath(id)); err != nil {
		return fmt.Errorf("removing session %s: %w", id, err)
	}
	s.Forget(id)
	return nil
}
