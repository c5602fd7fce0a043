package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strings"

	"deepwork/session"
	"deepwork/session/store"
)

// faults are queries whose rows, each one text, are what is wrong in the rows of the project $1.
var faults = []struct{ what, do, query string }{
	{"definition %s has another content than its hash says", doRestore,
		`SELECT hash FROM @definitions WHERE scope = $1 AND encode(sha256(data), 'hex') <> hash`},
	{"active session %s, whose server is not known", "call it, so that another server takes it over",
		`SELECT s.id || ' is owned by ' || s.owner FROM @session_records s WHERE scope = $1 AND owner <> '' AND caller <> '' AND NOT EXISTS (SELECT FROM @members m WHERE m.id = s.owner)`},
	{"session %s of its owner, which is at a lower one", doRestore,
		`SELECT s.id || ' is at term ' || s.term FROM @session_records s JOIN @members m ON m.id = s.owner WHERE s.scope = $1 AND s.term > m.term`},
	{"the lease of server %s, which is later than a lease lasts", "see that the clock of the database was not set back; a server that was killed is taken for running until then",
		`SELECT id || ' ends at ' || expires FROM @members WHERE scope = $1 AND expires > clock_timestamp() + interval '16 s'`},
}

const doRestore = "restore the database from a backup: something other than deepwork has changed it"

// Inspect finds what this program never writes: sessions that do not agree with their rows, request ids
// that are lost, definitions with another content, leases that end too late, rows of no project. It
// changes nothing. What the records themselves contain is checked by their reader.
func (s *Store) Inspect(ctx context.Context, o store.RecordOptions) (r session.Report, err error) {
	ctx, cancel := context.WithTimeout(ctx, copyTime)
	defer cancel()
	scope, err := s.connect(ctx)
	if err != nil {
		return r, err
	}
	for _, f := range faults {
		found, err := list(ctx, s, func(rows *sql.Rows, what *string) error { return rows.Scan(what) }, f.query, scope)
		if err != nil {
			return r, err
		}
		for _, what := range found {
			r.Fault(s.where, fmt.Sprintf(f.what, what), f.do)
		}
	}
	tables, err := list(ctx, s, func(rows *sql.Rows, name *string) error { return rows.Scan(name) }, `SELECT tablename FROM pg_tables WHERE schemaname = $1 AND tablename LIKE '%\_all' ORDER BY 1`, s.schema)
	for _, table := range tables {
		var strays int
		if _, err = s.first(ctx, `SELECT count(*) FROM @`+table+` WHERE scope NOT IN (SELECT id FROM @scopes)`, nil, &strays); err != nil {
			return r, s.explain(err)
		}
		if strays > 0 {
			r.Fault(s.where, plural(strays, "%d row of "+table+" belongs to no project", "%d rows of "+table+" belong to no project"), doRestore)
		}
	}
	if err == nil {
		err = s.inspectSessions(ctx, scope, o, &r)
	}
	return r, err
}

// inspectSessions compares the columns of sessions, and their request ids, with their records.
func (s *Store) inspectSessions(ctx context.Context, scope int64, o store.RecordOptions, r *session.Report) error {
	ids := make(map[string]bool)
	_, err := list(ctx, s, func(rows *sql.Rows, _ *struct{}) error {
		var id, owner, caller, body, keys string
		if err := rows.Scan(&id, &owner, &caller, &body, &keys); err != nil {
			return err
		}
		ids[id] = true
		h := o.Head([]byte(body))
		who := ""
		if h.Active {
			who = hex.EncodeToString(h.Caller[:])
		}
		if h.Owner != owner {
			r.Fault(s.where, fmt.Sprintf("session %s is owned by %q, and its record says %q", id, owner, h.Owner), doRestore)
		}
		if who != caller {
			r.Fault(s.where, fmt.Sprintf("session %s is listed for another caller than its record says, or is not active, or not listed", id), doRestore)
		}
		for _, key := range o.Keys(id, []byte(body)) {
			if !strings.Contains(keys, hex.EncodeToString(key[:])) {
				r.Fault(s.where, fmt.Sprintf("session %s has the reply to a call with a request_id that is not stored: the call would be carried out again", id), doRestore)
				break
			}
		}
		return nil
	}, `SELECT s.id, s.owner, coalesce(s.caller, ''), s.body, coalesce(k.keys, '') FROM @session_records s
		LEFT JOIN (SELECT session, string_agg(key, ' ') AS keys FROM @request_ids WHERE scope = $1 GROUP BY session) k ON k.session = s.id
		WHERE s.scope = $1 AND s.body IS NOT NULL`, scope)
	if err != nil {
		return err
	}
	noted, err := list(ctx, s, func(rows *sql.Rows, id *string) error { return rows.Scan(id) },
		`SELECT DISTINCT session FROM @request_ids WHERE scope = $1 AND noted_at < clock_timestamp() - interval '1 minute'`, scope)
	left := 0
	for _, id := range noted {
		if !ids[id] {
			left++
		}
	}
	if left > 0 {
		r.Note(s.where, plural(left, "request ids of %d session that is gone are left", "request ids of %d sessions that are gone are left"), "the next prune removes them")
	}
	return err
}

func plural(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf(many, n)
}
