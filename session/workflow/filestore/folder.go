package filestore

import (
	"errors"
	"fmt"
	"io/fs"

	"deepwork/actor/durable"
)

// makeFolder makes the store's folder where it is missing, for this user alone,
// and what is above it as usual.
func (s *Store) makeFolder() error {
	err := s.disk.MakeFolder(s.dir, 0o700)
	if err == nil {
		return nil
	}
	path := s.dir
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		path = e.Path
	}
	return durable.Explain(fmt.Errorf("making the session folder: %w", err), path)
}
