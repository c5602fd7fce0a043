package main

import (
	"database/sql"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/state/statetest"
	"deepwork/session/store/postgres/pgtest"
)

// TestPostgresScripts drives the command with a database, whose URL is $DB, and whose schema is
// $SCHEMA.
func TestPostgresScripts(t *testing.T) {
	server, err := pgtest.Shared()
	pgtest.Need(t, err)
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/postgres",
		RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			db := server.URL()
			u, err := url.Parse(db)
			testkit.Must(t, err)
			newBrowser(e)
			e.Setenv("DB", db)
			e.Setenv("SCHEMA", u.Query().Get("schema"))
			e.Setenv("GORACE", gorace)
			e.Setenv(config.JobsFoldersEnv, "")
			e.Setenv("HOME", e.WorkDir)
			dir, err := os.MkdirTemp("", "state")
			if err != nil {
				return err
			}
			e.Defer(func() { os.RemoveAll(dir) })
			env, err := statetest.Write(dir, e.WorkDir)
			for name, value := range env {
				e.Setenv(name, value)
			}
			return err
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
