package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
)

// servedFrom returns the reply of get_workflows of a server that a client starts in a folder, and that of
// start_workflow.
func servedFrom(t *testing.T, dir string, args ...string) (listed string, started *mcp.CallToolResult) {
	t.Helper()
	args = append([]string{"serve", "--log-level", "error"}, args...)
	server := exec.CommandContext(t.Context(), "deepwork", args...)
	server.Dir, server.Stderr = dir, t.Output()
	client := testkit.Get(connect(t.Context(), server)).Must(t)
	defer client.Close()
	start := &mcp.CallToolParams{Name: "start_workflow", Arguments: map[string]any{
		"goal": "g", "job_name": "deepwork_jobs", "workflow_name": "new_job",
	}}
	listed = string(callTool(t, client, "get_workflows", map[string]any{}))
	return listed, testkit.Get(client.CallTool(t.Context(), start)).Must(t)
}

// A client may start its server in any folder: it serves the project around that, or the client's own, and none begins
// by accident.
func TestAServerThatIsStartedInAnyFolder(t *testing.T) {
	ownUser(t, "")
	home := testkit.Dir(t)
	t.Setenv("HOME", home)
	root := projectOf(t, jobText("one", "a"))
	below := filepath.Join(root, "src", "deep")
	must(t, os.MkdirAll(below, 0o755))
	for _, args := range [][]string{nil, {"--path", "."}} {
		listed, started := servedFrom(t, below, args...)
		testkit.Contains(t, listed, "and serves the project "+root+": paths are relative to that.")
		testkit.True(t, !started.IsError, "%s", resultText(started))
	}
	testkit.True(t, !fileExists(filepath.Join(below, ".deepwork")), "the folder became a project")

	repository := testkit.Dir(t)
	writeFiles(t, repository, map[string]string{"README": "hello\n"})
	inGit(t, repository)
	inside := filepath.Join(repository, "src")
	must(t, os.MkdirAll(inside, 0o755))
	nowhere := []string{home, string(filepath.Separator), inside}
	for _, dir := range nowhere {
		listed, started := servedFrom(t, dir, "--path", ".")
		testkit.Contains(t, listed, "is not a project, and none begins in ")
		testkit.True(t, started.IsError, "a project began in %s", dir)
		testkit.Contains(t, resultText(started), "start the server with --path")
	}

	t.Setenv(clientFolderEnv, root)
	for _, dir := range nowhere {
		listed, started := servedFrom(t, dir)
		testkit.Contains(t, listed, "and serves the project "+root)
		testkit.True(t, !started.IsError, "%s", resultText(started))
	}

	fresh := testkit.Dir(t) // neither the client's folder nor a search takes the place of a folder that can begin one
	t.Setenv(clientFolderEnv, fresh)
	_, started := servedFrom(t, repository)
	testkit.True(t, !started.IsError, "%s", resultText(started))
	testkit.True(t, !fileExists(filepath.Join(fresh, ".deepwork")), "it began in the client's folder")
}
