package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session/store/postgres/pgtest"
)

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
		r, err := http.Get(strings.TrimSuffix(url, "/mcp") + "/readyz")
		must(t, err)
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		must(t, err)
		return r.StatusCode, string(text)
	}
	if status, text := ready(); status != http.StatusServiceUnavailable || !strings.Contains(text, "store") {
		t.Errorf("without its database it is ready: %d %s", status, text)
	}
	client := connectNetwork(t, url, "")
	start := func() *mcp.CallToolResult {
		r, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "start_workflow", Arguments: map[string]any{"goal": "g", "job_name": "j", "workflow_name": "w"}})
		must(t, err)
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
