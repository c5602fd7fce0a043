package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"deepwork/actor/durable"
	"deepwork/session"
)

// The seal of a record does not show that it is the newest: anyone who may write in the project can put
// back a copy. So its sequence number is also in the state folder, in a file of one line of fixed
// length that is written in place by one call, without a sync. After a loss of power it may be
// missing, old or all zero bytes, and then older records than the newest are taken for it.

func (s *Store) newestPath(id string) string { return filepath.Join(s.state.Servers(), "newest", id) }

// NoteNewest implements store.Sessions.
func (s *Store) NoteNewest(ctx context.Context, id string, number int64) error {
	if err := checkID(id); err != nil {
		return err
	}
	path := s.newestPath(id)
	err := s.do(ctx, call{id: id}, func() error {
		f, _, err := durable.OpenRegular(path, os.O_WRONLY)
		if errors.Is(err, fs.ErrNotExist) {
			if err = session.MakeFolder(filepath.Dir(path)); err == nil {
				f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
			}
		}
		if err != nil {
			return err
		}
		_, err = f.WriteAt(fmt.Appendf(nil, "%019d\n", number), 0)
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return fmt.Errorf("noting the newest record of session %s: %w", id, durable.Explain(err, path))
	}
	return nil
}

// Newest implements store.Sessions.
func (s *Store) Newest(ctx context.Context, id string) (number int64) {
	if checkID(id) != nil {
		return 0
	}
	read := make(chan int64, 1) // the call may end first
	err := s.do(ctx, call{reads: true}, func() error {
		text, err := os.ReadFile(s.newestPath(id))
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(string(text[:max(0, len(text)-1)]), 10, 64)
		read <- n
		return err
	})
	if err == nil {
		return <-read
	}
	if !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("reading the number of a session's newest record; an older one would not be noticed", "session", id, "error", err)
	}
	return 0
}
