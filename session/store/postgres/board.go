package postgres

import (
	"reflect"
	"strings"
	"time"

	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/store/sqlstore"
)

// Database returns the task board, the executions and the changes of the project. Its
// Close does nothing: that of the Store disconnects.
func (s *Store) Database() store.Database { return database{s} }

// newStores returns the stores of the database of s.
func newStores(s *Store) *sqlstore.Store {
	return sqlstore.New(database{s}, sqlstore.Options{Where: s.where, Logger: s.o.Logger, Now: s.o.Now, Feed: feed,
		Shared: true, NUL: nul, Claim: " FOR UPDATE SKIP LOCKED", Poll: 2 * time.Second, Hint: s.hinted})
}

// A database is a Store as store.Database and as sqlstore.Database.
type database struct{ *Store }

func (d database) Sessions() store.Sessions     { return d.stores.Sessions() }
func (d database) Board() store.Board           { return d.stores.Board() }
func (d database) Executions() store.Executions { return d.stores.Executions() }
func (d database) Changes() store.Changes       { return d.stores.Changes() }
func (d database) Exists() bool                 { return true }
func (d database) Close() error                 { return nil }

// Damage finds nothing: the server checks its pages and references.
func (d database) Damage(sqlstore.Tx) ([]session.Finding, error) { return nil, nil }

// nul is stored for a NUL character, which PostgreSQL refuses: a code point that no text has.
const nul = "\uFDD0"

// plainText makes a text what PostgreSQL accepts: UTF-8 without NUL.
func plainText(s string) string {
	return replacer.Replace(strings.ToValidUTF8(s, "\uFFFD"))
}

var replacer = strings.NewReplacer(nul, "\uFFFD", "\x00", nul)

// plain returns the arguments of a statement as values that pgx sends as they are.
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
