package main

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"deepwork/actor/testkit"
	"deepwork/session/store/postgres/pgtest"
)

// TestPostgresScripts drives the command with a database, whose URL is $DB, and whose schema is
// $SCHEMA.
func TestPostgresScripts(t *testing.T) {
	t.Parallel()
	server, err := pgtest.Shared()
	pgtest.Need(t, err)
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/postgres",
		RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			db := server.URL()
			u, err := url.Parse(db)
			testkit.Must(t, err)
			e.Setenv("DB", db)
			e.Setenv("SCHEMA", u.Query().Get("schema"))
			e.Setenv("HOME", e.WorkDir)
			return setUpScript(e)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"agent":   agent,
			"exits":   exits,
			"capture": capture,
			"sql":     sqlCommand,
			"visit":   visit,
			"pg": func(ts *testscript.TestScript, neg bool, args []string) { // pg STATEMENT: @ is the schema and a dot
				db, err := sql.Open("pgx", server.At(""))
				ts.Check(err)
				defer db.Close()
				_, err = db.Exec(strings.ReplaceAll(args[0], "@", ts.Getenv("SCHEMA")+"."))
				ts.Check(err)
			},
		},
	})
}
