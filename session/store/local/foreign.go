package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"deepwork/actor/durable"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
)

// A sealer signs the files of the project; its errors are for agents.
type sealer struct{ *state.Folder }

func (s sealer) Sign(name string, content []byte) (string, error) {
	if err := session.MakeState(s.Folder); err != nil {
		return "", err
	}
	return s.Folder.Sign(name, content)
}

// Sealer returns what signs the files of a project.
func Sealer(f *state.Folder) durable.Sealer { return sealer{f} }

// Foreign returns a record's file as it is, if it is whole, and why it is not ours, "" if it was
// sealed here; store.ErrNotFound for any other. What is in it is anybody's.
func (s *Store) Foreign(ctx context.Context, id string) (file []byte, reason string, err error) {
	path := s.RecordPath(id)
	var data []byte
	err = s.do(ctx, call{reads: true}, func() (err error) {
		if err := checkID(id); err != nil {
			return err
		}
		data, _, err = readFile(path)
		if err == nil {
			_, _, err = durable.Unseal(path, bytes.Clone(data), s.sealer)
		}
		return err
	})
	if foreign, ok := errors.AsType[*durable.ForeignError](err); ok {
		return data, foreign.Reason, nil
	}
	if err == nil {
		return data, "", nil
	}
	return nil, "", fmt.Errorf("%w: %w", store.ErrNotFound, err)
}

// ForeignDefinition returns the definition that goes with a hash, no matter who sealed it, also
// where earlier versions kept it; nil if there is none.
func (s *Store) ForeignDefinition(hash string) []byte {
	if checkHash(hash) != nil {
		return nil
	}
	path := s.definitionPath(hash)
	for _, path := range []string{path, filepath.Join(s.dir, filepath.Base(path))} {
		file, _, err := durable.Read(path, maxRecord)
		_, data, _ := bytes.Cut(file, []byte("\n"))
		if sum := sha256.Sum256(data); err == nil && hex.EncodeToString(sum[:]) == hash {
			return data
		}
	}
	return nil
}

// Adopt replaces a file that Foreign returned by a record, and seals it. It does nothing
// if the file is another by now.
func (s *Store) Adopt(ctx context.Context, id string, file, body []byte) error {
	err := s.do(ctx, call{id: id}, func() error {
		if err := checkID(id); err != nil {
			return err
		}
		return s.claimed(ctx, false, func() error {
			now, fi, err := readFile(s.RecordPath(id))
			if err == nil && !bytes.Equal(now, file) {
				err = errors.New("its file has changed since it was shown; look at it again")
			}
			if err != nil {
				return err
			}
			s.remember(id, stampOf(fi)) // what is replaced is known
			return s.changed(id, s.write(ctx, id, body, false))
		})
	})
	if err != nil {
		return fmt.Errorf("adopting session %.40s: %w", id, err)
	}
	return nil
}
