package postgres

import (
	"context"
	"time"

	"deepwork/catalog/task"
)

// unknownFor is what GoneFor returns for a place whose processes are all forgotten.
const unknownFor = 30 * 24 * time.Hour

// GoneFor returns for how long no process at a place has held a lease, by the clock of the database: 0
// if one does.
func (s *Store) GoneFor(ctx context.Context, p task.Place) (time.Duration, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	scope, err := s.connect(ctx)
	if err != nil {
		return 0, err
	}
	var gone *float64
	err = s.leases.QueryRowContext(ctx, s.text(`SELECT extract(epoch FROM clock_timestamp() - max(expires))::float8
		FROM @members WHERE scope = $1 AND machine = $2 AND root = $3`), scope, p.MachineID, p.Root).Scan(&gone)
	switch {
	case err != nil:
		return 0, s.explain(err)
	case gone == nil:
		return unknownFor, nil
	}
	return max(0, time.Duration(*gone*float64(time.Second))), nil
}
