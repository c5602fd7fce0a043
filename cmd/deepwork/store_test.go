package main

import (
	"database/sql"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
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
			u := testkit.Get(url.Parse(db)).Must(t)
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

// A server starts although its database is away: it is not ready, refuses calls, and recovers.
func TestServeWithoutItsDatabase(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	must(t, pg.Stop())
	root := testkit.Dir(t)
	writeFiles(t, root, map[string]string{".deepwork/jobs/j/job.yml": jobText("j", "a"), ".deepwork/jobs/j/a.md": "Do a."})
	testkit.Git(t, root, "init", "-q")
	testkit.Git(t, root, "commit", "-q", "--allow-empty", "-m", "first")
	_, url, log := serveNetwork(t, root, "--transport", "http", "--store", pg.URL(), "--project", "shop")
	go io.Copy(io.Discard, log)
	ready := func() (int, string) {
		r := testkit.Get(http.Get(strings.TrimSuffix(url, "/mcp") + "/readyz")).Must(t)
		defer r.Body.Close()
		text := testkit.Get(io.ReadAll(r.Body)).Must(t)
		return r.StatusCode, string(text)
	}
	if status, text := ready(); status != http.StatusServiceUnavailable || !strings.Contains(text, "store") {
		t.Errorf("without its database it is ready: %d %s", status, text)
	}
	client := connectNetwork(t, url, "")
	start := func() *mcp.CallToolResult {
		r := testkit.Get(client.CallTool(t.Context(), &mcp.CallToolParams{Name: "start_workflow", Arguments: map[string]any{"goal": "g", "job_name": "j", "workflow_name": "w"}})).Must(t)
		return r
	}
	r := start()
	testkit.True(t, r.IsError && strings.Contains(resultText(r), "Waiting: The store"), "a call without the database: %s", resultText(r))
	must(t, pg.Start())
	testkit.Until(t, "it is ready", func() bool { status, _ := ready(); return status == http.StatusOK })
	if r := start(); r.IsError {
		t.Errorf("a call when the database is back: %s", resultText(r))
	}
}
