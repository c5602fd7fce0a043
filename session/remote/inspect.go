package remote

import (
	"context"
	"fmt"

	"deepwork/session"
	"deepwork/session/store"
)

// Inspect checks db for runs that this program never writes. It changes nothing and may run
// at the same time as servers. If the database cannot be read, the inspection of the task board,
// which is also in it, reports that.
func Inspect(ctx context.Context, db store.Database) (r session.Report, err error) {
	if !db.Exists() {
		return r, nil
	}
	var n, going int
	if r.Findings, n, going, err = db.Executions().Inspect(ctx); err != nil {
		return r, ctx.Err()
	}
	if n > 0 {
		r.Counts = []session.Count{{N: n, What: "execution", Of: fmt.Sprintf("%d going on", going)}}
	}
	return r, nil
}
