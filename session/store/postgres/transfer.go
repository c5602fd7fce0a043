package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/store/transfer"

	"github.com/jackc/pgx/v5/pgconn"
)

// A side is a project in the database, as a side of a copy: one transaction that has locked the project, so
// that no process can enter it, and no writer of the board gets its turn.
type side struct {
	s     *Store
	place task.Place
	scope int64
	c     *sql.Conn // nil unless held
}

// Side returns the project as a side of a copy; place is for rows that have none. The Store must not have
// entered.
func (s *Store) Side(place task.Place) transfer.Side { return &side{s: s, place: place} }

// copyTime is how long one statement of a copy may take, and how long the other side may keep it waiting.
const copyTime = 2 * time.Minute

func (x *side) Where() string { return fmt.Sprintf("project %s in %s", x.s.o.Project, x.s.where) }

func (x *side) querier() querier { return querier{x.s, x.c} }

// Hold implements transfer.Side. A process at a new place waits for the project's row, to which the place's
// row refers; a process at a known place waits for that place's row.
func (x *side) Hold(ctx context.Context) (err error) {
	soon, cancel := x.s.deadline(ctx)
	defer cancel()
	if x.scope, err = x.s.connect(soon); err != nil {
		return err
	}
	if x.c, err = x.s.pool.Conn(soon); err != nil {
		return x.s.explain(&notSent{err})
	}
	begin := fmt.Sprintf(`BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = `+
		`%d; SET LOCAL statement_timeout = %[1]d; SET LOCAL lock_timeout = 8000;
		SET LOCAL search_path = %[2]s; SET LOCAL deepwork.scope = '%[3]d'; SELECT `+
		`pg_advisory_xact_lock(hashtextextended('deepwork writes %[2]s', %[3]d));
		SELECT FROM scopes WHERE id = %[3]d FOR UPDATE; SELECT FROM places WHERE scope = %[3]d FOR UPDATE`,
		copyTime.Milliseconds(), x.s.schema, x.scope)
	if err = raw(x.c, func(p *pgconn.PgConn) error {
		_, err := p.Exec(soon, begin).ReadAll()
		return err
	}); err != nil {
		return x.s.explain(err)
	}
	var p Place
	err = x.querier().QueryRowContext(soon,
		`SELECT machine, host, root FROM places WHERE scope = $1 AND until > clock_timestamp() LIMIT 1`,
		x.scope).Scan(&p.Machine, &p.Host, &p.Root)
	if isNoRows(err) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("a server uses the project in %s (on %v): stop it first; one that was killed counts for %s",
			x.s.where, p, placeLife)
	}

	return x.s.explain(err)
}

// Rows implements transfer.Side.
func (x *side) Rows(ctx context.Context, f func(transfer.Row) error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*copyTime) // many statements
	defer cancel()
	q := x.querier()
	err := transfer.BoardRows(ctx, q, func(r transfer.Row) error {
		for column, v := range r.Values {
			if text, ok := v.(string); ok && strings.Contains(text, nul) {
				r.Values[column] = strings.ReplaceAll(text, nul, "\x00")
			}
		}
		return f(r)
	})
	return x.s.explain(err)
}

// Adapt implements transfer.Side: the work of agents is at this place, repositories are found by their names,
// and texts have only what PostgreSQL accepts.
func (x *side) Adapt(r transfer.Row) transfer.Row {
	v := r.Values
	for column, value := range v {
		if text, ok := value.(string); ok {
			v[column] = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), nul, "\uFFFD")
		}
	}

	if body, has := v["body"].(string); has && v["kind"] == "step" {
		v["body"] = transfer.Placed(body, x.place)
	}

	placed, folder, name := false, "root", "machine_name"
	switch r.Table {
	case "repos":
		v["path"] = ""
	case "attempts":
		placed = v["workspace"] != ""
	case "executions":
		placed = v["state"] != "waiting"
	case "workflow_sessions":
		placed, folder, name = true, "place", "machine"
	}
	if placed && v["machine_id"] == "" {
		v["machine_id"] = x.place.MachineID
		v[name] = x.place.MachineName
		v[folder] = x.place.Root
	}
	return r
}

// Replace implements transfer.Side.
func (x *side) Replace(
	ctx context.Context, fill func(put func(transfer.Row) error, rows func(f func(transfer.Row) error) error) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, 10*copyTime)
	defer cancel()
	q := x.querier()
	if err := transfer.ClearBoard(ctx, q); err != nil {
		return x.s.explain(err)
	}
	board := &transfer.Board{Querier: q}
	err := fill(func(r transfer.Row) error {
		err := board.Put(ctx, r)
		if machine := r.Values["machine_id"]; err == nil && r.Table == "attempts" && machine != "" {
			// Its machine counts as gone from now on, not since the beginning.
			_, err = q.ExecContext(ctx,
				`INSERT INTO places (scope, machine, root, host, until) VALUES ($1, $2, $3, $4, clock_timestamp()) `+
					`ON CONFLICT (machine, root) DO NOTHING`,
				x.scope, machine, r.Values["root"], r.Values["machine_name"])
		}
		return x.s.explain(err)
	}, func(f func(transfer.Row) error) error { return x.Rows(ctx, f) })
	if err != nil {
		return err
	}
	return x.commit(ctx)
}

// commit commits what was written. If the reply to the commit is lost, it waits for the project's lock again,
// and checks whether anything was written.
func (x *side) commit(ctx context.Context) error {
	err := raw(x.c, func(p *pgconn.PgConn) error {
		ctx, cancel := context.WithTimeout(ctx, copyTime)
		defer cancel()
		all, err := p.Exec(ctx, "COMMIT").ReadAll()
		if err == nil && all[0].CommandTag.String() != "COMMIT" {
			err = &notSent{errors.New("the transaction was rolled back, since one of its statements had failed")}
		}
		return err
	})
	if err == nil || notApplied(err) {
		return x.s.explain(err)
	}

	x.Release()
	var now transfer.Counts
	if again := x.Hold(ctx); again != nil {
		return fmt.Errorf("the database did not confirm the copy (%w), and cannot be asked: 'deepwork store status' "+
			"says whether it has it, all or nothing: %w", x.s.explain(err), again)
	}
	now = transfer.Counts{}
	if again := x.Rows(ctx, func(r transfer.Row) error {
		now[r.Table]++
		return nil
	}); again != nil || now.String() == "nothing" {
		return errors.Join(x.s.explain(err), again)
	}

	return nil
}

// Release implements transfer.Side.
func (x *side) Release() {
	if x.c == nil {
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	_ = raw(x.c, func(p *pgconn.PgConn) error { // does nothing after a commit; an error closes the connection
		_, err := p.Exec(ctx, "ROLLBACK").ReadAll()
		return err
	})
	_ = x.c.Close()
	x.c = nil
}
