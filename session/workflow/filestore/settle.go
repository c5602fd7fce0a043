package filestore

import "fmt"

// Settle returns when the records that can be read now are on disk. One that
// another server has just written has its name before that is durable, and what
// is told of it must not be undone by a loss of power. It blocks for the disk; a
// ReadOnly store tells nobody, and does nothing.
func (s *Store) Settle() error {
	if s.o.ReadOnly || s.o.NoSync {
		return nil
	}
	err := carryOut(Op{Do: OpSyncDir, Path: s.dir}, func() error { return syncPath(s.dir) })
	if err != nil {
		return explain(fmt.Errorf("syncing the folder %s: %w", s.dir, err), s.dir)
	}
	return nil
}
