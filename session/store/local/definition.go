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

// A definition's file is one line, the seal of the definition, and then the definition:
// it is named for the hash of its content.

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

// openDefinition returns the definition in a file, verified. Errors: *durable.BadFileError
// and *durable.ForeignError; else what the sealer said.
func (s *Store) openDefinition(hash string, file []byte) ([]byte, error) {
	path := s.definitionPath(hash)
	head, data, _ := bytes.Cut(file, []byte("\n"))
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != hash {
		return nil, &durable.BadFileError{Path: path, Reason: "its checksum does not match: it was altered"}
	}
	return data, s.sealer.Verify(filepath.Base(path), data, string(head))
}

// freshFor is how old a definition's file may grow before putting it again renews it:
// PruneDefinitions spares recent ones, because the record that refers to one may not be written
// yet.
const freshFor = time.Hour

// PutDefinition keeps a job's definition under its hash, the SHA-256 of data, durably;
// one that exists is left as it is, and only sealed if it was sealed elsewhere.
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
	path, place := s.definitionPath(hash), durable.Disk.MoveNew
	// there makes a file of another server durable: that server may not have synced the folder yet.
	there := func() error { return s.disk.SyncFolder(filepath.Dir(path)) }
	_, err := s.readDefinition(ctx, hash)
	bad, damaged := errors.AsType[*store.DamagedError](err)
	_, foreign := errors.AsType[*store.ForeignError](err)
	switch {
	case err == nil:
		now := time.Now()
		if fi, err := os.Lstat(path); err == nil && now.Sub(fi.ModTime()) < freshFor || os.Chtimes(path, now, now) == nil {
			return there()
		}
		// Removed in between, or not ours to touch: it is put again, or is there.
		if _, err := os.Lstat(path); err == nil {
			return there()
		}
	case foreign:
		place = durable.Disk.Move // its content is the same, by its hash
	case damaged && bad.Aside, errors.Is(err, fs.ErrNotExist):
	default:
		return err
	}
	seal, err := s.sealer.Sign(filepath.Base(path), data)
	if err != nil {
		return err
	}
	file := append([]byte(seal+"\n"), data...)
	if len(file) > maxRecord {
		return fmt.Errorf("a definition of %d bytes is over the limit of %d", len(data), maxRecord-(len(file)-len(data)))
	}
	_, err = s.put(ctx, path, file, func(d durable.Disk, temp string) error { return place(d, temp, path) })
	if errors.Is(err, fs.ErrExist) {
		return there() // another server stored the same
	}
	return err
}

// Definition returns what PutDefinition kept, verified; store.ErrNotFound if there is
// none, *store.ForeignError if it was not sealed here, *store.DamagedError (its ID is the
// hash) if it does not verify: then it was set aside, and can be put again.
func (s *Store) Definition(ctx context.Context, hash string) ([]byte, error) {
	if err := checkHash(hash); err != nil {
		return nil, fmt.Errorf("reading a definition: %w: %w", store.ErrNotFound, err)
	}
	var data []byte
	err := s.do(ctx, call{reads: true}, func() (err error) {
		data, err = s.readDefinition(ctx, hash)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading definition %s: %w", hash, durable.Explain(err, s.definitionPath(hash)))
	}
	return data, nil
}

// readDefinition is Definition, with fs.ErrNotExist if there is none.
func (s *Store) readDefinition(ctx context.Context, hash string) (data []byte, err error) {
	path := s.definitionPath(hash)
	read := func() error {
		file, _, err := durable.Read(path, maxRecord)
		if err == nil {
			data, err = s.openDefinition(hash, file)
		}
		return err
	}
	err = read()
	if bad, ok := errors.AsType[*durable.BadFileError](err); ok {
		err = s.damaged(ctx, path, "definition", hash, bad, false, read)
	}
	if foreign, ok := errors.AsType[*durable.ForeignError](err); ok {
		err = &store.ForeignError{ID: hash, Path: path, Reason: foreign.Reason}
	}
	return data, err
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
