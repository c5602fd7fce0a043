package local

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"deepwork/actor/durable"
	"deepwork/session/store"
)

// A definition's file is one line, "sha256:<hex>", over the bytes after it.
const (
	defHead     = "sha256:"
	defHeadSize = len(defHead) + 2*sha256.Size + 1
)

func checkHash(hash string) error {
	if !isHex(hash, 64) {
		return fmt.Errorf("%.80q is not a definition's hash, which is 64 lower-case hexadecimal characters", hash)
	}
	return nil
}

func (s *Store) definitionPath(hash string) string {
	return filepath.Join(s.dir, "definition_"+hash+".json")
}

func sealDefinition(data []byte) []byte {
	h := sha256.Sum256(data)
	out := make([]byte, 0, defHeadSize+len(data))
	out = append(out, defHead...)
	out = hex.AppendEncode(out, h[:])
	return append(append(out, '\n'), data...)
}

func openDefinition(file []byte) ([]byte, error) {
	if len(file) < defHeadSize {
		return nil, errors.New("it does not begin with a checksum line: it was cut off, or is no definition")
	}
	data := file[defHeadSize:]
	if !bytes.Equal(file[:defHeadSize], sealDefinition(data)[:defHeadSize]) {
		return nil, errors.New("its checksum does not match: it was altered")
	}
	return data, nil
}

// verify opens a file of one of the two kinds.
func verify(kind string, file []byte) (body []byte, sum uint64, err error) {
	if kind == "definition" {
		body, err = openDefinition(file)
		return body, 0, err
	}
	return openSealed(file)
}

// freshFor is how old a definition's file may grow before putting it again
// makes it young: PruneDefinitions spares what was put of late, because the
// record that refers to it may not be written yet.
const freshFor = time.Hour

// PutDefinition keeps a job's definition under its hash, durably; one that is
// there already is left as it is, unread. data may be any bytes. It blocks for
// the disk, and on a store's first write for the claim, at most 10 s.
func (s *Store) PutDefinition(hash string, data []byte) error {
	if err := checkHash(hash); err != nil {
		return fmt.Errorf("keeping a definition: %w", err)
	}
	if err := s.putDefinition(hash, data); err != nil {
		return fmt.Errorf("keeping definition %s: %w", hash, err)
	}
	return nil
}

func (s *Store) putDefinition(hash string, data []byte) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.calls.Done()
	path := s.definitionPath(hash)
	if fi, err := os.Lstat(path); err == nil {
		if fi.Mode().IsRegular() {
			now := time.Now()
			if now.Sub(fi.ModTime()) < freshFor || os.Chtimes(path, now, now) == nil {
				return nil
			}
			// Removed in between, or not ours to touch: it is put again, or is there.
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
	if len(data)+defHeadSize > maxRecord {
		return fmt.Errorf("a definition of %d bytes is over the limit of %d", len(data), maxRecord-defHeadSize)
	}
	_, err := s.put(path, sealDefinition(data), putOptions{exclusive: true})
	if errors.Is(err, fs.ErrExist) {
		return nil // another server kept the same
	}
	return err
}

// Definition returns what PutDefinition kept, verified; store.ErrNotFound where there
// is none, *store.DamagedError (its ID is the hash) where it does not verify: then it
// was set aside, and can be put anew.
func (s *Store) Definition(hash string) ([]byte, error) {
	if err := checkHash(hash); err != nil {
		return nil, fmt.Errorf("reading a definition: %w: %w", store.ErrNotFound, err)
	}
	path := s.definitionPath(hash)
	read := func() ([]byte, error) {
		file, _, err := readFile(path)
		if err != nil {
			return nil, err
		}
		data, err := openDefinition(file)
		if err != nil {
			return nil, &durable.BadFileError{Path: path, Reason: err.Error()}
		}
		return data, nil
	}
	data, err := read()
	if bad, ok := errors.AsType[*durable.BadFileError](err); ok {
		err = s.damaged(path, "definition", hash, bad, false, func() (err error) {
			data, err = read()
			return err
		})
	} else if errors.Is(err, fs.ErrNotExist) {
		err = store.ErrNotFound
	} else if err != nil {
		err = durable.Explain(err, path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading definition %s: %w", hash, err)
	}
	return data, nil
}

// PruneDefinitions deletes the definitions that were last put before the cutoff,
// and at least two hours ago, and are not needed. It returns how many.
func (s *Store) PruneDefinitions(cutoff time.Time, needed func(hash string) bool) (int, error) {
	if err := s.begin(); err != nil {
		return 0, fmt.Errorf("pruning definitions: %w", err)
	}
	defer s.calls.Done()
	if spared := time.Now().Add(-2 * freshFor); cutoff.After(spared) {
		cutoff = spared
	}
	removed := 0
	for hash := range s.Definitions() {
		if needed(hash) {
			continue
		}
		path := s.definitionPath(hash)
		if fi, err := os.Lstat(path); err != nil || !fi.ModTime().Before(cutoff) {
			continue
		}
		if err := s.remove(path); err != nil {
			return removed, fmt.Errorf("removing definition %s: %w", hash, err)
		}
		removed++
	}
	return removed, nil
}

// Definitions yields the hashes of the definitions there are, in no order. A
// folder that cannot be read has none, and the log says so.
func (s *Store) Definitions() iter.Seq[string] {
	return func(yield func(string) bool) {
		for entry, err := range s.names() {
			if err != nil {
				s.log.Warn("cannot list the definitions", "error", err)
				return
			}
			rest, ok := strings.CutPrefix(entry.Name(), "definition_")
			if !ok {
				continue
			}
			hash, ok := strings.CutSuffix(rest, ".json")
			if ok && isHex(hash, 64) && !yield(hash) {
				return
			}
		}
	}
}
