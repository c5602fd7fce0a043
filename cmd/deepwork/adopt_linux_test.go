package main

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"deepwork/actor/durable"
	"deepwork/session/attempt"
	"deepwork/session/state"
)

// asEarlier makes the state of a project what earlier versions had in the project: an attempt is
// running, and its server is gone. Nothing of it is known to this installation afterwards.
func (p *boardProject) asEarlier(attemptID string) {
	t := p.t
	t.Helper()
	must(t, p.client.Close())
	now, old := state.Of(p.root).Dir, filepath.Join(p.root, ".deepwork")
	for _, name := range []string{"board.db", "worktrees", "logs"} {
		must(t, os.Rename(filepath.Join(now, name), filepath.Join(old, name)))
	}
	definitions, err := filepath.Glob(filepath.Join(state.Of(p.root).Definitions(), "*.json"))
	must(t, err)
	for _, path := range definitions {
		must(t, os.Rename(path, filepath.Join(old, "tmp", filepath.Base(path))))
	}
	replace := func(path string) {
		text, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), now, old)), 0o600))
	}
	replace(filepath.Join(old, "worktrees", ".journal", attemptID+".json"))
	admins, err := filepath.Glob(filepath.Join(p.root, ".git", "worktrees", "*", "gitdir"))
	must(t, err)
	for _, path := range admins {
		replace(path)
	}
	db, err := sql.Open("sqlite", filepath.Join(old, "board.db"))
	must(t, err)
	for query, args := range map[string][]any{
		`UPDATE attempt_repos SET worktree = replace(worktree, ?, ?)`:                                                                          {now, old},
		`UPDATE attempts SET workspace = replace(workspace, ?, ?)`:                                                                             {now, old},
		`UPDATE attempts SET state = 'running' WHERE id = ?`:                                                                                   {attemptID},
		`UPDATE executions SET state = 'running', owner = '0123456789abcdef', pid = 1, ended_at = NULL, exit_code = NULL WHERE attempt_id = ?`: {attemptID},
	} {
		_, err := db.ExecContext(t.Context(), query, args...)
		must(t, err)
	}
	must(t, db.Close())
	must(t, os.RemoveAll(now))
	t.Setenv(state.Env, filepath.Join(t.TempDir(), "state"))
}

func TestStateOfAnEarlierVersionIsAdopted(t *testing.T) {
	p := newBoardProject(t)
	task := p.task("! write new.txt some work")
	id := p.ends(p.start(task).AttemptID).AttemptID
	session := beginSession(t, p.client, "release", "Go on")
	p.asEarlier(id)
	board := filepath.Join(p.root, ".deepwork", "board.db")
	adopt := []string{"deepwork", "adopt", "--path", p.root}
	asksAtNoPipe(t, adopt...)
	out, screen, err := typing(t, "no", adopt...)
	for _, want := range []string{board, "1 task and 1 attempt, of which 1 wait or run", "worktrees of 1 attempt", "repository of attempts: " + p.root, session + "  ", "goal: Go on"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not show %q: %s", want, out)
		}
	}
	if err == nil || !strings.Contains(screen, "Type yes") || !strings.Contains(out, "nothing was adopted") {
		t.Errorf("an answer of no: %v, %q, %q", err, out, screen)
	}
	if made, _ := os.ReadDir(os.Getenv(state.Env)); len(made) > 0 {
		t.Errorf("an answer of no made %v", made)
	}
	lock, err := durable.Lock(t.Context(), filepath.Join(p.root, ".deepwork", "tmp", "server_0123456789abcdef.lock"))
	must(t, err)
	if out, _, err := typing(t, "yes", adopt...); err == nil || !strings.Contains(out, "server_0123456789abcdef.lock: stop it first") {
		t.Errorf("while an old server runs: %v, %s", err, out)
	}
	must(t, lock.Unlock())

	// What cannot be taken over stays, and the command is given again.
	stray := filepath.Join(p.root, ".deepwork", "worktrees", uuid.NewString())
	must(t, os.Mkdir(stray, 0o755))
	if out, _, err := typing(t, "yes", adopt...); err == nil || !strings.Contains(out, stray+" has no journal") {
		t.Errorf("with a stray folder: %v, %s", err, out)
	}
	if out := mustPrint(t, p.root, "where"); !strings.Contains(out, board) {
		t.Errorf("where, when not all is adopted: %s", out)
	}
	must(t, os.Remove(stray))
	if out, _, err := typing(t, "yes", adopt...); err != nil || !strings.Contains(out, "Adopted the task board.") || !strings.Contains(out, "Adopted 1 session.") {
		t.Fatalf("an answer of yes: %v, %s", err, out)
	}
	if out := mustPrint(t, p.root, "where"); strings.Contains(out, "earlier version") {
		t.Errorf("where, when all is adopted: %s", out)
	}
	if kept, _ := filepath.Glob(filepath.Join(p.root, ".deepwork", "tmp", "adopted-*", "board.db")); len(kept) != 1 {
		t.Errorf("the old board is in %v", kept)
	}
	if out := mustPrint(t, p.root, "adopt"); !strings.Contains(out, "nothing of an earlier version") {
		t.Errorf("once more: %s", out)
	}
	mustPrint(t, p.root, "check")

	p.client, _ = startClient(t, p.root)
	a := p.get(id)
	if a.State != "interrupted" || deref(a.Error) == "" || !strings.Contains(p.output(id), "all done") {
		t.Errorf("the attempt: %+v\n%s", a, p.output(id))
	}
	callTool(t, p.client, "get_step", map[string]any{"session_id": session})
	boardCall[attempt.FollowUpReply](p, "follow_up", map[string]any{"attempt_id": id, "action": "send", "prompt": "! write more.txt more work"})
	if a = p.ends(id); a.State != "completed" {
		t.Errorf("after a follow-up: %+v\n%s", a, p.output(id))
	}
	diff := string(callTool(t, p.client, "get_attempt_diff", map[string]any{"attempt_id": id}))
	if !strings.Contains(diff, "some work") || !strings.Contains(diff, "more work") {
		t.Errorf("the diff: %s", diff)
	}
	if gone := boardCall[attempt.DeleteReply](p, "delete_task", map[string]any{"task_id": task.TaskID}); len(gone.Rescued) != 1 {
		t.Errorf("what was kept of a deleted task: %+v", gone)
	}
}

// A board of this installation is not mixed with one that is in the project.
func TestABoardWithTasksIsNotReplaced(t *testing.T) {
	p := newBoardProject(t)
	id := p.ends(p.start(p.task("! say hello")).AttemptID).AttemptID
	p.asEarlier(id)
	p.client, _ = startClient(t, p.root)
	p.find()
	mine := p.task("mine")
	must(t, p.client.Close())
	out, _, err := typing(t, "yes", "deepwork", "adopt", "--path", p.root)
	if err == nil || !strings.Contains(out, "it has tasks already") {
		t.Errorf("%v, %s", err, out)
	}
	p.client, _ = startClient(t, p.root)
	p.getTask(mine.TaskID)
	if _, err := os.Stat(filepath.Join(p.root, ".deepwork", "worktrees", id)); err != nil {
		t.Error(err)
	}
}
