package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/store/transfer"

	"github.com/jackc/pgx/v5/pgconn"
)

// A side is a project in the database as a side of a copy: one transaction, which has locked the
// project, so that no process can take a lease on it, or renew one that has ended, and none of the
// board's writers gets its turn.
type side struct {
	s     *Store
	o     store.RecordOptions
	place task.Place
	scope int64
	c     *sql.Conn // nil unless held
	board *transfer.Board
}

// Side returns the project as a side of a copy; place is that of what has none. The Store must not have
// entered.
func (s *Store) Side(o store.RecordOptions, place task.Place) transfer.Side {
	return &side{s: s, o: o, place: place}
}

// copyTime is how long one statement of a copy may take, and how long the other side may keep it
// waiting.
const copyTime = 2 * time.Minute

func (x *side) Where() string { return fmt.Sprintf("project %s in %s", x.s.o.Project, x.s.where) }

func (x *side) querier() querier { return querier{x.s, x.c} }

// Hold implements transfer.Side. A process that takes its first lease waits for the row of the project,
// to which that of the lease refers; one that had a lease waits for its own row.
func (x *side) Hold(ctx context.Context) (err error) {
	soon, cancel := x.s.deadline(ctx)
	defer cancel()
	if x.scope, err = x.s.connect(soon); err != nil {
		return err
	}
	if x.c, err = x.s.pool.Conn(soon); err != nil {
		return x.s.explain(&notSent{err})
	}
	begin := fmt.Sprintf(`BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = %d; SET LOCAL statement_timeout = %[1]d; SET LOCAL lock_timeout = 8000;
		SET LOCAL search_path = %[2]s; SET LOCAL deepwork.scope = '%[3]d'; SELECT pg_advisory_xact_lock(hashtextextended('deepwork writes %[2]s', %[3]d));
		SELECT FROM scopes WHERE id = %[3]d FOR UPDATE; SELECT FROM members WHERE scope = %[3]d FOR UPDATE`, copyTime.Milliseconds(), x.s.schema, x.scope)
	if err = raw(x.c, func(p *pgconn.PgConn) error {
		_, err := p.Exec(soon, begin).ReadAll()
		return err
	}); err != nil {
		return x.s.explain(err)
	}
	var m Member
	err = x.querier().QueryRowContext(soon, `SELECT id, host, pid, root, since FROM members WHERE scope = $1 AND expires > clock_timestamp() LIMIT 1`, x.scope).Scan(&m.ID, &m.Host, &m.PID, &m.Root, &m.Since)
	if none(err) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("a server uses the project in %s (%v): stop it first; one that was killed counts for 6 seconds", x.s.where, m)
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
	if err != nil {
		return x.s.explain(err)
	}
	err = transfer.Records(x.o, func(f func(string, []byte) error) error {
		rows, err := q.QueryContext(ctx, `SELECT id, body FROM session_records WHERE scope = $1 AND body IS NOT NULL ORDER BY updated_at, id`, x.scope)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id, body string
			if err := rows.Scan(&id, &body); err != nil {
				return err
			}
			if err := f(id, []byte(body)); err != nil {
				return err
			}
		}
		return rows.Err()
	}, func(hash string) (data []byte, err error) {
		err = q.QueryRowContext(ctx, `SELECT data FROM definitions WHERE scope = $1 AND hash = $2`, x.scope, hash).Scan(&data)
		if none(err) {
			err = fmt.Errorf("the definition %s, which a session names, is not there: run deepwork check", hash)
		}
		return data, err
	}, f)
	return x.s.explain(err)
}

// Adapt implements transfer.Side: what an agent has worked on lies at this place, repositories are found
// by their names, and text has what PostgreSQL accepts.
func (x *side) Adapt(r transfer.Row) transfer.Row {
	v := r.Values
	if r.Table == transfer.Definitions || r.Table == transfer.Sessions {
		return r // which have what PostgreSQL accepts, and checksums
	}
	for column, value := range v {
		if text, ok := value.(string); ok {
			v[column] = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), nul, "\uFFFD")
		}
	}
	placed := false
	switch r.Table {
	case "repos":
		v["path"] = ""
	case "attempts":
		placed = v["workspace"] != ""
	case "executions":
		placed = v["state"] != "waiting"
	}
	if placed && v["machine_id"] == "" {
		v["machine_id"], v["machine_name"], v["root"] = x.place.MachineID, x.place.MachineName, x.place.Root
	}
	return r
}

// Put implements transfer.Side.
func (x *side) Put(ctx context.Context, r transfer.Row) error {
	ctx, cancel := context.WithTimeout(ctx, copyTime)
	defer cancel()
	q := x.querier()
	if x.board == nil {
		if err := transfer.ClearBoard(ctx, q); err != nil {
			return x.s.explain(err)
		}
		for _, table := range []string{"session_records", "request_ids", "definitions"} { // what is left of sessions that were pruned
			if _, err := q.ExecContext(ctx, "DELETE FROM "+table+" WHERE scope = $1", x.scope); err != nil {
				return x.s.explain(err)
			}
		}
		x.board = &transfer.Board{Querier: q}
	}
	switch r.Table {
	case transfer.Sessions:
		return x.s.explain(x.session(ctx, q, r.Values["id"].(string), r.Values["body"].(string)))
	case transfer.Definitions:
		_, err := q.ExecContext(ctx, `INSERT INTO definitions (scope, hash, data) VALUES ($1, $2, $3)`, x.scope, r.Values["hash"], []byte(r.Values["data"].(string)))
		return x.s.explain(err)
	}
	err := x.board.Put(ctx, r)
	if machine := r.Values["machine_id"]; err == nil && r.Table == "attempts" && machine != "" {
		// Its machine counts as gone from now on, not since ever.
		_, err = q.ExecContext(ctx, `INSERT INTO members (id, scope, term, expires, machine, host, pid, root)
			SELECT $1, $2::bigint, 1, clock_timestamp(), $3, $4, 0, $5 WHERE NOT EXISTS (SELECT FROM members WHERE scope = $2::bigint AND machine = $3 AND root = $5)`,
			randomHex(), x.scope, machine, r.Values["machine_name"], r.Values["root"])
	}
	return x.s.explain(err)
}

// session inserts a session with what goes with it; its owner, which does not live, becomes one of the
// processes whose lease has ended.
func (x *side) session(ctx context.Context, q querier, id, body string) error {
	h, term, caller := x.o.Head([]byte(body)), 0, ""
	if h.Owner != "" {
		term = 1
		if _, err := q.ExecContext(ctx, `INSERT INTO members (id, scope, term, expires, machine, host, pid, root)
			VALUES ($1, $2, 1, clock_timestamp(), $3, $4, 0, $5) ON CONFLICT DO NOTHING`, h.Owner, x.scope, x.place.MachineID, x.place.MachineName, x.place.Root); err != nil {
			return err
		}
	}
	if h.Active {
		caller = hex.EncodeToString(h.Caller[:])
	}
	_, err := q.ExecContext(ctx, `INSERT INTO session_records (scope, id, owner, term, version, transition, caller, body) VALUES ($1, $2, $3, $4, 1, $5, $6, $7)`,
		x.scope, id, h.Owner, term, randomHex(), caller, body)
	for _, key := range x.o.Keys(id, []byte(body)) {
		if err == nil {
			_, err = q.ExecContext(ctx, `INSERT INTO request_ids (scope, key, session) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, x.scope, hex.EncodeToString(key[:]), id)
		}
	}
	return err
}

// Commit implements transfer.Side. If the reply to the commit is lost, it waits for the lock of the
// project again, and looks whether there is anything.
func (x *side) Commit(ctx context.Context, verify func() error) error {
	if err := verify(); err != nil {
		return err
	}
	err := raw(x.c, func(p *pgconn.PgConn) error {
		ctx, cancel := context.WithTimeout(ctx, copyTime)
		defer cancel()
		all, err := p.Exec(ctx, "COMMIT").ReadAll()
		if err == nil && all[0].CommandTag.String() != "COMMIT" {
			err = &notSent{errors.New("the transaction was rolled back, since one of its statements had failed")}
		}
		return err
	})
	if err == nil || sure(err) {
		return x.s.explain(err)
	}
	x.Release()
	var now transfer.Counts
	if again := x.Hold(ctx); again != nil {
		return fmt.Errorf("the database did not confirm the copy (%w), and cannot be asked: deepwork store status says whether it has it, all or nothing: %w", x.s.explain(err), again)
	}
	now = transfer.Counts{}
	if again := x.Rows(ctx, func(r transfer.Row) error { now[r.Table]++; return nil }); again != nil || now.String() == "nothing" {
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
	x.c, x.board = nil, nil
}
