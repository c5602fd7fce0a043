package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/store/sqlstore"
)

// Database returns the task board, the executions and the changes of the project. Its Close does nothing,
// since the Store's disconnects.
func (s *Store) Database() store.Database { return database{s} }

// newStores returns the stores of the database of s.
func newStores(s *Store) *sqlstore.Store {
	return sqlstore.New(database{s}, sqlstore.Options{Where: s.where, Logger: s.o.Logger, Now: s.o.Now, Feed: feed,
		Shared: true, SkipLocked: " FOR NO KEY UPDATE SKIP LOCKED", NUL: nul, Poll: 2 * time.Second, Hint: s.hinted})
}

// A database is a Store in its roles as store.Database and sqlstore.Dialect.
type database struct{ *Store }

func (d database) Sessions() store.Sessions     { return d.stores.Sessions() }
func (d database) Board() store.Board           { return d.stores.Board() }
func (d database) RemoteRuns() store.RemoteRuns { return d.stores.RemoteRuns() }
func (d database) LongCalls() store.LongCalls   { return d.stores.LongCalls() }
func (d database) Work() store.Work             { return d.stores.Work() }
func (d database) Schedules() store.Schedules   { return d.stores.Schedules() }
func (d database) Changes() store.Changes       { return d.stores.Changes() }
func (d database) Exists() bool                 { return true }
func (d database) Close() error                 { return nil }

// Damage finds nothing, since the server checks its pages and references.
func (d database) Damage(sqlstore.Tx) []session.Finding { return nil }

// Transactions do not commit in the order of their ids, or of the positions of their rows. So the position of
// a follower is a snapshot: the follower has read the rows of all transactions that are finished in it. New
// rows are those of transactions that are finished in the current snapshot but were not in that one, whatever
// their ids. So writers do not wait for each other. A long transaction, in any database of the server, does
// not delay the changes of others, as it would if followers read up to the oldest transaction in progress.
//
// scopes.pruned is the highest id of a transaction whose rows were removed. A follower may have missed them
// if a transaction with an id up to that one has finished since its snapshot. Rows with ids above the
// server's came in a dump from another server, and are ignored until this server reaches them.
//
// A position becomes unknown when the server is restarted or replaced by its standby, since it may then give
// the same ids to other transactions. There is one gap: if a process of the server crashes, the server goes
// on without a restart, and may reuse ids that it had not written to disk. A follower that does not look
// before they are used up misses those changes. Followers must read from the primary: the snapshots of a
// standby do not list all transactions in progress.
const (
	snapshots = `WITH x AS MATERIALIZED (SELECT feed_snapshot(?1) AS seen, pg_current_snapshot() AS latest) `
	newRows   = ` FROM changes, x WHERE xid >= pg_snapshot_xmin(seen) AND NOT pg_visible_in_snapshot(xid, seen) ` +
		`AND pg_visible_in_snapshot(xid, latest)`
)

var feed = sqlstore.Feed{
	State: snapshots + `SELECT feed_position(),
			seen IS NOT NULL AND NOT EXISTS (SELECT FROM scopes WHERE id = scope() AND pruned < ` +
		`pg_snapshot_xmax(latest) AND (pruned >= pg_snapshot_xmax(seen)
				OR EXISTS (SELECT FROM pg_snapshot_xip(seen) AS running WHERE running <= pruned AND ` +
		`pg_visible_in_snapshot(running, latest)))),
			EXISTS (SELECT` + newRows + `)
		FROM x`,
	After: snapshots + `SELECT kind, id` + newRows + ` ORDER BY xid, position`,
	// Only one process prunes at a time; others do not wait.
	Prune: `WITH mine AS MATERIALIZED (SELECT FROM scopes WHERE id = scope() FOR NO KEY UPDATE SKIP LOCKED),
			gone AS (DELETE FROM changes WHERE EXISTS (SELECT FROM mine)
				AND (at < ?1 OR (xid, position) <= (SELECT xid, position FROM changes ORDER BY xid DESC, position ` +
		`DESC LIMIT 1 OFFSET ?2)) RETURNING xid)
		UPDATE scopes SET pruned = greatest(CASE WHEN pruned < pg_snapshot_xmax(pg_current_snapshot()) THEN pruned END,
				(SELECT xid FROM gone WHERE xid < pg_snapshot_xmax(pg_current_snapshot()) ORDER BY xid DESC LIMIT 1))
			WHERE id = scope() AND EXISTS (SELECT FROM gone)`,
}

// A singleReader runs a reading statement in one round trip. Without a transaction there is no search path,
// so the statement names the project's rows in each table, and the clock, in full.
type singleReader struct {
	s     *Store
	scope int64
}

var named = regexp.MustCompile(`(FROM|JOIN) ([a-z_]+) `)

func (l singleReader) text(query string) string {
	if known, ok := l.s.looks.Load(query); ok {
		return known.(string)
	}

	text := named.ReplaceAllStringFunc(query, func(source string) string {
		before, table, _ := strings.Cut(strings.TrimSuffix(source, " "), " ")
		if strings.Contains(query, table+" (") { // defined by the statement itself
			return source
		}
		return fmt.Sprintf("%s (SELECT * FROM @%s_all WHERE scope = %d) ", before, table, l.scope)
	})
	text = l.s.text(strings.ReplaceAll(text, "unixepoch(", "@unixepoch("))
	l.s.looks.Store(query, text)
	return text
}

func (l singleReader) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errors.ErrUnsupported
}

func (l singleReader) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return l.s.pool.QueryContext(ctx, l.text(query), plain(args)...)
}

func (l singleReader) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return l.s.pool.QueryRowContext(ctx, l.text(query), plain(args)...)
}

// nul stands for a NUL character, which PostgreSQL does not store: a code point that occurs in no text.
const nul = "\uFDD0"

// plainText converts a text to what PostgreSQL accepts: UTF-8 without NUL.
func plainText(s string) string {
	return replacer.Replace(strings.ToValidUTF8(s, "\uFFFD"))
}

var replacer = strings.NewReplacer(nul, "\uFFFD", "\x00", nul)

// plain returns the arguments of a statement as values that pgx sends unchanged.
func plain(args []any) []any {
	all := make([]any, len(args))
	for i, a := range args {
		v := reflect.ValueOf(a)
		for v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		switch v.Kind() {
		case reflect.Invalid, reflect.Pointer:
		case reflect.String:
			all[i] = plainText(v.String())
		case reflect.Int, reflect.Int64:
			all[i] = v.Int()
		case reflect.Bool:
			all[i] = v.Bool()
		default:
			all[i] = a
		}
	}
	return all
}
