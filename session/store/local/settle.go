package local

import "deepwork/actor/durable"

// Settle returns when the records that can be read now are on disk. One that
// another server has just written has its name before that is durable, and what
// is told of it must not be undone by a loss of power. It blocks for the disk; a
// ReadOnly store tells nobody, and does nothing.
func (s *Store) Settle() error {
	if s.o.ReadOnly {
		return nil
	}
	return durable.Explain(s.disk.SyncFolder(s.dir), s.dir)
}
