package local

import (
	"fmt"
	"os"
	"time"

	"deepwork/actor/durable"
)

// Who else is here. A server that enters the folder leaves a mark that all see
// by one stat: the time of the claim lock's file. So one that was found to be
// alone knows, at that price, that nobody else can have written since.

// entered leaves the mark; the caller holds the claim lock, and its own lock
// file is locked already.
func (s *Store) entered() error {
	path := s.claim.Path
	before, err := os.Stat(path)
	if err != nil {
		return durable.Explain(fmt.Errorf("entering the session folder: %w", err), path)
	}
	// The clock may have been set back, or be coarse: each mark is another one.
	now := time.Now()
	if !now.After(before.ModTime().Add(time.Second)) {
		now = before.ModTime().Add(time.Second)
	}
	if err := os.Chtimes(path, now, now); err != nil {
		return durable.Explain(fmt.Errorf("entering the session folder: %w", err), path)
	}
	return nil
}

// Entered returns a mark that changes whenever a server enters the folder, this
// one included. It costs a stat, and does not block. An error says that it
// cannot be told.
func (s *Store) Entered() (mark int64, err error) {
	fi, err := os.Stat(s.claim.Path)
	if err != nil {
		return 0, fmt.Errorf("asking who has entered the session folder: %w", err)
	}
	return fi.ModTime().UnixNano(), nil
}

// Alone tells whether no other server lives in the folder. Asked after Entered,
// and with the same mark later, it tells that nobody has written since either.
// It reads the folder's names.
func (s *Store) Alone() (bool, error) {
	others, _ := s.member.Others()
	return len(others) == 0, nil
}
