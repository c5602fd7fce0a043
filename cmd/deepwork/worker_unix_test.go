//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/merge"
	"deepwork/session/store/postgres/pgtest"
)

// A worker on another machine runs what a server's own machine cannot, until a signal ends it.
func TestAWorkerRunsTheAttemptsOfOthers(t *testing.T) {
	url := pgtest.URL(t)
	t.Setenv(config.StoreEnv, url)
	t.Setenv(config.ProjectEnv, "shop")
	top := testkit.Dir(t)
	here, there := filepath.Join(top, "here"), filepath.Join(top, "there")
	writeFiles(t, here, map[string]string{"README": "hello\n"})
	inGit(t, here)
	testkit.Git(t, top, "clone", "-q", here, there)
	testkit.Git(t, there, "remote", "remove", "origin")
	writeFiles(t, here, map[string]string{".deepwork/config.yml": "executors: {CODER: {command: [./not-installed]}}\n"})
	writeFiles(t, there, map[string]string{".deepwork/config.yml": boardConfig})

	p := &boardProject{t: t, root: here}
	p.client, p.server = startClient(t, here)
	p.find()
	made := p.start(p.task("! write note.txt from the worker", "! context", "! say it works"))
	testkit.Need(t, made.State == "queued", "it was not left to the worker: %+v", made)

	worker := exec.CommandContext(t.Context(), "deepwork", "worker", "--executors", "CODER", "--max", "1")
	worker.Env = append(os.Environ(),
		userEnv(t, "trusted_folders: ["+top+"]\nworker: {projects: {shop: \""+filepath.ToSlash(there)+"\"}}\n")...)
	log := &testkit.Log{}
	worker.Stderr = log
	must(t, worker.Start())
	t.Cleanup(func() {
		worker.Process.Kill()
		worker.Wait()
	})

	eventually(t, func() (bool, any) { return p.get(made.AttemptID).State == "completed", log })
	// The agent's own deepwork found the board, too.
	testkit.ContainsAll(t, p.output(made.AttemptID), []string{"it works", made.AttemptID})
	diff := boardCall[merge.DiffReply](p, "get_attempt_diff", map[string]any{"attempt_id": made.AttemptID})
	testkit.True(t, len(diff.Diffs) == 1 && strings.Contains(diff.Diffs[0].Diff, "+from the worker"),
		"the changes are %+v", diff)

	must(t, worker.Process.Signal(syscall.SIGTERM))
	testkit.Works(t, worker.Wait(), "the worker ended with …: %s", log.String())
	testkit.True(t, !strings.Contains(log.String(), "level=ERROR") && !strings.Contains(log.String(), url),
		"the worker logged %s", log.String())
}
