package main

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"

	"deepwork/actor/testkit"
	"deepwork/session/remote"
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
	if r := start(); !r.IsError || !strings.Contains(resultText(r), "Waiting: The store") {
		t.Errorf("a call without the database: %s", resultText(r))
	}
	must(t, pg.Start())
	testkit.Until(t, "it is ready", func() bool { status, _ := ready(); return status == http.StatusOK })
	if r := start(); r.IsError {
		t.Errorf("a call when the database is back: %s", resultText(r))
	}
}

// An elsewhere is two projects: the servers of one are the source of the other's.
type elsewhere struct {
	t           *testing.T
	inner, root string
	url         string // of the source
	source      *exec.Cmd
	log         *testkit.Log // of all servers of the source
	drained     sync.WaitGroup
}

func newElsewhere(t *testing.T) *elsewhere {
	top := testkit.Dir(t)
	e := &elsewhere{t: t, inner: filepath.Join(top, "inner"), root: filepath.Join(top, "outer"), log: &testkit.Log{}}
	writeFiles(t, e.inner, map[string]string{".deepwork/jobs/j/job.yml": jobText("j", "a", "b"), ".deepwork/jobs/j/a.md": "Do it."})
	t.Cleanup(e.drained.Wait)
	e.serve("0")
	writeFiles(t, e.root, map[string]string{".deepwork/config.yml": fmt.Sprintf(
		"workflow_tools:\n  reply_within: 100ms\n  status_interval: 300ms\n  sources: [{name: inner, url: %q}]\n", e.url)})
	return e
}

// serve starts the source.
func (e *elsewhere) serve(port string) {
	var log *bufio.Reader
	e.source, e.url, log = serveNetwork(e.t, e.inner, "--transport", "http", "--port", port, "--toolsets", "workflows,source")
	e.drained.Go(func() { io.Copy(e.log, log) })
}

// kill ends the source as a crash would.
func (e *elsewhere) kill() {
	must(e.t, e.source.Process.Kill())
	e.drained.Wait()
	e.source.Wait()
}

// again starts the source at the address that it had.
func (e *elsewhere) again() {
	at := testkit.Get(url.Parse(e.url)).Must(e.t)
	e.serve(at.Port())
}

// call makes a call of a server of the outer project.
func (e *elsewhere) call(client *mcp.ClientSession, tool, id string) remote.Run {
	e.t.Helper()
	args := map[string]any{"execution_id": id}
	if tool == "j-w" {
		args = map[string]any{"goal": "g"}
	}
	var x remote.Run
	must(e.t, json.Unmarshal(callTool(e.t, client, tool, args), &x))
	return x
}

// start starts an execution and returns its id and that of the session at the source.
func (e *elsewhere) start(client *mcp.ClientSession) (id, session string) {
	e.t.Helper()
	testkit.Until(e.t, "the tool", func() bool {
		list := testkit.Get(client.ListTools(e.t.Context(), nil)).Must(e.t)
		for _, tool := range list.Tools {
			if tool.Name == "j-w" {
				if want := "[From the source inner; an agent must perform the steps there] W"; !strings.HasPrefix(tool.Description, want) {
					e.t.Fatalf("it is described as %s", tool.Description)
				}
				return true
			}
		}
		return false
	})
	x := e.call(client, "j-w", "")
	if x.State != remote.Running {
		e.t.Fatalf("got %+v", x)
	}
	e.reaches(client, x.ExecutionID, func(now remote.Run) bool { x = now; return now.SourceExecutionID != nil })
	return x.ExecutionID, *x.SourceExecutionID
}

func (e *elsewhere) reaches(client *mcp.ClientSession, id string, is func(remote.Run) bool) {
	e.t.Helper()
	testkit.Until(e.t, "the state", func() bool { return is(e.call(client, "workflow_status", id)) })
}

// step finishes a step at the source, as an agent there does.
func (e *elsewhere) step(session, step string) {
	e.t.Helper()
	agent := connectNetwork(e.t, e.url, "")
	callTool(e.t, agent, "finished_step", map[string]any{"session_id": session, "step_id": step, "outputs": map[string]any{}})
	agent.Close()
}

// status returns the status of a session as the source answers it.
func (e *elsewhere) status(session string) string {
	e.t.Helper()
	agent := connectNetwork(e.t, e.url, "")
	defer agent.Close()
	var x struct{ Status string }
	must(e.t, json.Unmarshal(callTool(e.t, agent, "workflows-status-tool", map[string]any{"workflow_id": "j/w", "execution_id": session}), &x))
	return x.Status
}

// An execution outlives both servers, each killed while it runs.
func TestExecutionElsewhereOutlivesKilledServers(t *testing.T) {
	t.Parallel()
	e := newElsewhere(t)
	client, server := startClient(t, e.root)
	id, session := e.start(client)
	e.kill()
	e.again()
	e.step(session, "a")
	e.reaches(client, id, func(x remote.Run) bool {
		return x.Progress != nil && strings.Contains(x.Progress.Message, "'b'")
	})
	must(t, server.Process.Kill())
	client.Close()
	client, _ = startClient(t, e.root)
	e.reaches(client, id, func(x remote.Run) bool { return x.State == remote.Running })
	e.step(session, "b")
	e.reaches(client, id, func(x remote.Run) bool { return x.State == remote.Completed })
	if x := e.call(client, "cancel_execution", id); x.State != remote.Completed || string(x.Result) != "{}" {
		t.Errorf("one that has ended was cancelled: %+v", x)
	}

	// What another deepwork polls is not in the log, unless it fails.
	e.status(session)
	e.kill()
	polls := 0
	for line := range strings.Lines(e.log.String()) {
		if strings.Contains(line, "tool=workflows-status-tool") {
			polls++
		}
	}
	if polls != 1 || e.log.Count("tool=workflows-execute-tool") == 0 {
		t.Errorf("%d lines of polls, want that of one call of another client:\n%s", polls, e.log.String())
	}
}
