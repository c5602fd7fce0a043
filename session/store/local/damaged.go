package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"deepwork/actor/durable"
	"deepwork/session/store"
)

// damaged sets the file at path aside and returns the store.DamagedError. check reads the file
// again: if it is good by then, because its owner has written, damaged returns nil and the result
// of check counts.
func (s *Store) damaged(ctx context.Context, path, kind, id string, bad *durable.BadFileError, held bool, check func() error) error {
	out := &store.DamagedError{ID: id, Path: path, Reason: bad.Reason}
	if s.o.ReadOnly {
		return out // the next writer sets it aside
	}
	good := false
	err := s.claimed(ctx, held, func() error {
		// Two servers may find it at once, and the other has set it aside.
		err := check()
		bad, ok := errors.AsType[*durable.BadFileError](err)
		if errors.Is(err, fs.ErrNotExist) {
			aside, err := s.paths(ctx, func(name string) bool { return strings.HasPrefix(name, "damaged_"+kind+"_"+id+"_") })
			if n := len(aside); n > 0 {
				out.Path, out.Aside = aside[n-1], true
			}
			return err
		}
		if !ok {
			good = err == nil
			return err
		}
		out.Reason = bad.Reason
		aside, err := s.setAside(path, "damaged", kind, id)
		if err != nil {
			return err
		}
		out.Path, out.Aside = aside, true
		// The owner may have written between the check and the move: then the moved file is good,
		// and is moved back unless there is a newer one.
		if data, _, err := durable.Read(aside, maxRecord); err == nil {
			if _, bad := errors.AsType[*durable.BadFileError](s.verify(kind, id, data)); !bad {
				if err := s.disk.MoveNew(aside, path); err != nil && !errors.Is(err, fs.ErrExist) {
					return err
				}
				err = check()
				good = err == nil
				return err
			}
		}
		s.log.Warn("a damaged record was set aside", "id", id, "path", out.Path, "reason", out.Reason)
		return nil
	})
	if _, foreign := errors.AsType[*durable.ForeignError](err); good || foreign {
		return err
	}
	if err != nil {
		s.log.Warn("a damaged record could not be set aside", "id", id, "path", path, "error", err)
	}
	return out
}

// makeWay preserves a file at a record's path that this store did not write or read last, before
// the record is replaced.
func (s *Store) makeWay(id string) error {
	path := s.RecordPath(id)
	known, isKnown := s.recall(id)
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if isKnown {
			s.log.Warn("a session's record had vanished; it is written again", "id", id, "path", path)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		aside, err := s.setAside(path, "damaged", "session", id)
		if err != nil {
			return fmt.Errorf("%s is %s and cannot be moved out of the way: %w", path, durable.Kind(fi.Mode()), err)
		}
		s.log.Warn("what was in a record's place was set aside", "id", id, "path", aside, "reason", "it is "+durable.Kind(fi.Mode()))
		return nil
	}
	if isKnown && known.sameFile(stampOf(fi)) {
		return nil
	}
	_, st, err := s.readRecord(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	foreign, ok := errors.AsType[*durable.ForeignError](err)
	if ok && !isKnown {
		return &store.ForeignError{ID: id, Path: path, Reason: foreign.Reason}
	}
	if err == nil && isKnown && st.sum == known.sum {
		return nil // the same content in another file
	}
	why, reason := "replaced", "it is not what this server wrote or read last"
	if err != nil {
		why, reason = "damaged", err.Error()
		if bad, ok := errors.AsType[*durable.BadFileError](err); ok {
			reason = bad.Reason
		} else if foreign != nil {
			why = "replaced"
		}
	}
	aside, err := s.keep(path, why, "session", id)
	if err != nil {
		return fmt.Errorf("keeping what is at %s: %w", path, err)
	}
	s.log.Warn("a record that was changed from outside was set aside", "id", id, "path", aside, "reason", reason)
	return nil
}

// keep gives a file a second name, so that it never is without one, or moves it if files have one
// name only.
func (s *Store) keep(path, why, kind, id string) (string, error) {
	if name, err := s.aside(s.disk.Link, path, why, kind, id); err == nil {
		return name, nil
	}
	return s.setAside(path, why, kind, id)
}

// setAside moves the file at path to an unused name.
func (s *Store) setAside(path, why, kind, id string) (string, error) {
	return s.aside(s.disk.MoveNew, path, why, kind, id)
}

// aside calls move with names that contain the reason, the record and the time, until one is
// unused.
func (s *Store) aside(move func(from, to string) error, path, why, kind, id string) (string, error) {
	for range 100 {
		name := filepath.Join(filepath.Dir(path), why+"_"+kind+"_"+id+"_"+time.Now().UTC().Format("20060102T150405.000000000Z")+".json")
		err := move(path, name)
		if err == nil {
			return name, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", durable.Explain(err, path)
		}
	}
	return "", fmt.Errorf("setting %s aside: every name was taken", path)
}

// Damaged lists the files that were set aside, damaged or replaced, by absolute path, sorted. It is
// empty for a folder that does not exist.
func (s *Store) Damaged(ctx context.Context) ([]string, error) {
	out, err := s.paths(ctx, isAside)
	if err != nil {
		return nil, fmt.Errorf("looking for damaged sessions: %w", err)
	}
	return out, nil
}

func isAside(name string) bool {
	why, rest, _ := strings.Cut(name, "_")
	return (why == "damaged" || why == "replaced") && strings.HasSuffix(rest, ".json") &&
		(strings.HasPrefix(rest, "session_") || strings.HasPrefix(rest, "definition_"))
}

// verify returns the error of a file that is not a record of ours, or definition.
func (s *Store) verify(kind, id string, file []byte) (err error) {
	if kind == "definition" {
		_, err = s.openDefinition(id, file)
	} else {
		_, _, err = durable.Unseal(s.RecordPath(id), file, s.sealer)
	}
	return err
}
