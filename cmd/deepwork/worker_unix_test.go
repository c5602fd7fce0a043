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
	"deepwork/session/attempt"
	"deepwork/session/merge"
	"deepwork/session/state/statetest"
	"deepwork/session/store/postgres/pgtest"
)

// A worker on another machine runs what a server's own machine cannot, until a signal ends it.
func TestAWorkerRunsTheAttemptsOfOthers(t *testing.T) {
	url := pgtest.URL(t)
	t.Setenv(config.StoreEnv, url)
	t.Setenv(config.ProjectEnv, "shop")
	top := testkit.Dir(t)
	t.Setenv("HOME", top)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Setenv(config.JobsFoldersEnv, "")
	here, there := filepath.Join(top, "here"), filepath.Join(top, "there")
	writeFiles(t, here, map[string]string{"README": "hello\n"})
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"commit", "-q", "-m", "first"}} {
		testkit.Git(t, here, args...)
	}
	testkit.Git(t, top, "clone", "-q", here, there)
	testkit.Git(t, there, "remote", "remove", "origin")
	writeFiles(t, here, map[string]string{".deepwork/config.yml": "executors: {CODER: {command: [./not-installed]}}\n"})
	writeFiles(t, there, map[string]string{".deepwork/config.yml": boardConfig})

	p := &boardProject{t: t, root: here}
	p.client, p.server = startClient(t, here)
	p.find()
	made := p.start(p.task("! write note.txt from the worker", "! context", "! say it works"))
	testkit.Need(t, made.State == "queued", "it was not left to the worker: %+v", made)

	env := testkit.Get(statetest.Write(filepath.Join(top, "worker"), top)).Must(t)
	var own string
	worker := exec.CommandContext(t.Context(), "deepwork", "worker", "--executors", "CODER", "--max", "1")
	worker.Env = os.Environ()
	for name, value := range env {
		worker.Env = append(worker.Env, name+"="+value)
		if name == "XDG_CONFIG_HOME" || name == "APPDATA" {
			own = filepath.Join(value, "deepwork", config.FileName)
		}
	}
	text := testkit.Get(os.ReadFile(own)).Must(t)
	must(t, os.WriteFile(own, append(text, "worker: {projects: {shop: \""+filepath.ToSlash(there)+"\"}}\n"...), 0o600))
	log := &testkit.Log{}
	worker.Stderr = log
	must(t, worker.Start())
	t.Cleanup(func() {
		worker.Process.Kill()
		worker.Wait()
	})

	var r *attempt.AttemptReply
	testkit.Eventually(t, func() string {
		if r = p.get(made.AttemptID); r.State != "completed" {
			return "the attempt is " + r.State.Words() + "; the worker says\n" + log.String()
		}
		return ""
	})
	tail := boardCall[attempt.TailReply](p, "tail_attempt", map[string]any{"attempt_id": made.AttemptID, "raw": true})
	var lines []string
	for _, e := range tail.Entries {
		lines = append(lines, e.Text)
	}
	// The agent's own deepwork found the board, too.
	out := strings.Join(lines, "\n")
	testkit.True(t, strings.Contains(out, "it works") && strings.Contains(out, made.AttemptID), "the output is %s", out)
	diff := boardCall[merge.DiffReply](p, "get_attempt_diff", map[string]any{"attempt_id": made.AttemptID})
	testkit.True(t, len(diff.Diffs) == 1 && strings.Contains(diff.Diffs[0].Diff, "+from the worker"), "the changes are %+v", diff)
	must(t, worker.Process.Signal(syscall.SIGTERM))
	testkit.Works(t, worker.Wait(), "the worker ended with …: %s", log.String())
	testkit.True(t, !strings.Contains(log.String(), "level=ERROR") && !strings.Contains(log.String(), url), "the worker logged %s", log.String())
}

// A worker refuses to start for an executor that does not exist, and in a folder that is not of the
// repository to which the name of the project is bound.
func TestAWorkerThatCannotWork(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	top := testkit.Dir(t)
	shop, none := filepath.Join(top, "shop"), filepath.Join(top, "none")
	writeFiles(t, none, map[string]string{".deepwork/config.yml": boardConfig})
	writeFiles(t, shop, map[string]string{"README": ""})
	testkit.Git(t, shop, "init", "-q")
	testkit.Git(t, shop, "commit", "-q", "--allow-empty", "-m", "first")
	env := testkit.Get(statetest.Write(filepath.Join(top, "state"), top)).Must(t)
	run := func(args ...string) (string, error) {
		c := exec.Command("deepwork", args...)
		c.Env = append(os.Environ(), config.StoreEnv+"="+url, config.ProjectEnv+"=shop")
		for name, value := range env {
			c.Env = append(c.Env, name+"="+value)
			if name == "XDG_CONFIG_HOME" || name == "APPDATA" {
				writeFiles(t, filepath.Join(value, "deepwork"), map[string]string{config.FileName: "worker: {projects: {shop: \"" + none + "\"}}\n"})
			}
		}
		out, err := c.CombinedOutput()
		return string(out), err
	}
	out, err := run("board", "add", "x", "--path", shop)
	testkit.Need(t, err == nil, "%v: %s", err, out)
	if out, err := run("worker", "--executors", "CODER,NOPE"); err == nil || !strings.Contains(out, `no project of worker.projects has an executor "NOPE"; there are CLAUDE_CODE, CODER, CODEX, `) {
		t.Errorf("an executor that does not exist: %v: %s", err, out)
	}
	if out, err := run("worker", "--executors", "CODER"); err == nil || !strings.Contains(out, none+" is in no repository") || !strings.Contains(out, "the repository with the root commit") {
		t.Errorf("a folder without a repository: %v: %s", err, out)
	}
}

// Without projects or a store there is nothing to work on, and the error says what to set.
func TestAWorkerWithoutAnything(t *testing.T) {
	env := testkit.Get(statetest.Write(t.TempDir(), t.TempDir())).Must(t)
	run := func(more ...string) string {
		c := exec.Command("deepwork", append([]string{"worker"}, more...)...)
		c.Env = append(os.Environ(), config.StoreEnv+"=")
		for name, value := range env {
			c.Env = append(c.Env, name+"="+value)
		}
		out, err := c.CombinedOutput()
		testkit.Fails(t, err, "", "%q succeeded", more)
		return string(out)
	}
	for want, args := range map[string][]string{"worker.projects": nil, "--max -1": {"--max", "-1"}, "--executors is empty": {"--executors", ""}} {
		testkit.Contains(t, run(args...), want, "%q", args)
	}
}
