package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"deepwork/actor/durable"
	"deepwork/session/store"
)

// A definition's file is one line, "sha256:" and its hash, and then the definition: it
// is named for its content.
const defHead = "sha256:"

func checkHash(hash string) error {
	if !isHex(hash, 64) {
		return fmt.Errorf("%.80q is not a definition's hash, which is 64 lower-case hexadecimal characters", hash)
	}
	return nil
}

func (s *Store) definitionPath(hash string) string {
	return filepath.Join(s.state.Definitions(), "definition_"+hash+".json")
}

// definitionHash takes the hash from a definition's file name.
func definitionHash(name string) (string, bool) { return between(name, "definition_", ".json", 64) }

// openDefinition returns the definition in a file, verified.
func openDefinition(hash string, file []byte) ([]byte, error) {
	head, data, _ := bytes.Cut(file, []byte("\n"))
	sum := sha256.Sum256(data)
	switch content := hex.EncodeToString(sum[:]); {
	case !bytes.HasPrefix(head, []byte(defHead)):
		return nil, errors.New("it does not begin with a checksum line: it was cut off, or is no definition")
	case string(head) != defHead+content:
		return nil, errors.New("its checksum does not match: it was altered")
	case content != hash:
		return nil, errors.New("its content has another hash than its name")
	}
	return data, nil
}

// freshFor is how old a definition's file may grow before putting it again renews it:
// PruneDefinitions spares recent ones, because the record that refers to one may not be written
// yet.
const freshFor = time.Hour

// PutDefinition stores a job's definition under its hash, the SHA-256 of data, durably; an existing
// one is not changed or read.
func (s *Store) PutDefinition(ctx context.Context, hash string, data []byte) error {
	if err := checkHash(hash); err != nil {
		return fmt.Errorf("keeping a definition: %w", err)
	}
	if err := s.do(ctx, call{id: hash}, func() error { return s.putDefinition(ctx, hash, data) }); err != nil {
		return fmt.Errorf("keeping definition %s: %w", hash, err)
	}
	return nil
}

func (s *Store) putDefinition(ctx context.Context, hash string, data []byte) error {
	path := s.definitionPath(hash)
	if fi, err := os.Lstat(path); err == nil {
		if fi.Mode().IsRegular() {
			now := time.Now()
			if now.Sub(fi.ModTime()) < freshFor || os.Chtimes(path, now, now) == nil {
				return nil
			}
			// Removed meanwhile, or not ours to touch: put it again, unless it exists.
			if _, err := os.Lstat(path); err == nil {
				return nil
			}
		}
		aside, err := s.setAside(path, "damaged", "definition", hash)
		if err != nil {
			return fmt.Errorf("%s is %s and cannot be moved out of the way: %w", path, durable.Kind(fi.Mode()), err)
		}
		s.log.Warn("what stood in a definition's place was set aside", "hash", hash, "path", aside)
	}
	file := append([]byte(defHead+hash+"\n"), data...)
	if len(file) > maxRecord {
		return fmt.Errorf("a definition of %d bytes is over the limit of %d", len(data), maxRecord-(len(file)-len(data)))
	}
	_, err := s.put(ctx, path, file, func(temp string) error { return s.disk.MoveNew(temp, path) })
	if errors.Is(err, fs.ErrExist) {
		return nil // another server stored the same
	}
	return err
}

// Definition returns a stored definition, verified; store.ErrNotFound if there is none,
// *store.DamagedError (its ID is the hash) if it does not verify: then it was set aside, and can be
// put again.
func (s *Store) Definition(ctx context.Context, hash string) ([]byte, error) {
	if err := checkHash(hash); err != nil {
		return nil, fmt.Errorf("reading a definition: %w: %w", store.ErrNotFound, err)
	}
	path := s.definitionPath(hash)
	var data []byte
	read := func() error {
		file, _, err := durable.Read(path, maxRecord)
		if err != nil {
			return err
		}
		if data, err = openDefinition(hash, file); err != nil {
			return &durable.BadFileError{Path: path, Reason: err.Error()}
		}
		return nil
	}
	err := s.do(ctx, call{reads: true}, func() error {
		err := read()
		if bad, ok := errors.AsType[*durable.BadFileError](err); ok {
			return s.damaged(ctx, path, "definition", hash, bad, false, read)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading definition %s: %w", hash, durable.Explain(err, path))
	}
	return data, nil
}

// PruneDefinitions deletes unneeded definitions that were last put before the cutoff, and at least
// two hours ago. It returns how many.
func (s *Store) PruneDefinitions(ctx context.Context, cutoff time.Time, needed func(hash string) bool) (int, error) {
	if spared := time.Now().Add(-2 * freshFor); cutoff.After(spared) {
		cutoff = spared
	}
	removed := 0
	err := s.do(ctx, call{}, func() error {
		entries, err := names(ctx, s.state.Definitions())
		for _, entry := range entries {
			hash, ok := definitionHash(entry.Name())
			if !ok || needed(hash) {
				continue
			}
			path := s.definitionPath(hash)
			if fi, err := os.Lstat(path); err != nil || !fi.ModTime().Before(cutoff) {
				continue
			}
			if err := s.remove(path); err != nil {
				return fmt.Errorf("removing definition %s: %w", hash, err)
			}
			removed++
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("pruning definitions: %w", err)
	}
	return removed, nil
}
