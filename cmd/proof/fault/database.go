package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
)

// A database injects faults into the database.
type database struct {
	plan    Plan
	commits atomic.Int64
}

// connected prepares a connection: SQLite itself limits the file and reports when a commit begins.
func (d *database) connected(c sqlite.ExecQuerierContext, _ string) error {
	if d.plan.Pages > 0 {
		_, err := c.ExecContext(context.Background(), fmt.Sprintf("PRAGMA max_page_count = %d", d.plan.Pages), nil)
		if err != nil {
			return err
		}
	}

	if d.plan.Commit > 0 || d.plan.Slow > 0 {
		c.(sqlite.HookRegisterer).RegisterCommitHook(d.commit)
	}
	return nil
}

// commit kills the process where the plan says so: before a commit, while it is written and synced, or shortly after.
func (d *database) commit() int32 {
	if d.plan.Slow > 0 {
		time.Sleep(rand.N(d.plan.Slow))
	}
	if int(d.commits.Add(1)) == d.plan.Commit {
		if d.plan.Late == 0 {
			die()
		}
		time.AfterFunc(d.plan.Late, die)
	}
	return 0
}
