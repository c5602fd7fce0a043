package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session/board"
	"deepwork/session/state"
)

// The files of sessions that came with a project: nothing reads them until the user says at the terminal
// that they become sessions of it, and what they say is shown without control characters.
func TestSessionsAreImported(t *testing.T) {
	root := t.TempDir()
	ownUser(t, "")
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": jobText("one", "a", "b"),
		".deepwork/jobs/one/a.md":    "Do it.\n",
	})
	client, _ := startClient(t, root)
	id := beginSession(t, client, "one", "red \x1b[31m text\nand more")
	callTool(t, client, "finished_step", map[string]any{"outputs": map[string]any{}, "session_id": id})
	must(t, client.Close())
	t.Setenv(state.Env, filepath.Join(t.TempDir(), "state")) // another computer
	before := testkit.Get(os.ReadFile(sessionFile(root, id))).Must(t)

	listed, err := commandOn(t, root, "sessions", "list")
	testkit.True(t, err == nil && strings.Contains(listed, "There are no sessions.") && strings.Contains(listed, "'deepwork where --adopt OLDPATH'"), "listed: %s, %v", listed, err)
	out, err := commandOn(t, root, "sessions", "show", id)
	for _, want := range []string{"`deepwork sessions import .deepwork/tmp/session_" + id + ".json`", "`deepwork where --adopt OLD-PATH`"} {
		testkit.True(t, err != nil && strings.Contains(out, want), "the error of an unknown session does not say %q: %v, %s", want, err, out)
	}
	made, _ := os.ReadDir(os.Getenv(state.Env))
	testkit.True(t, len(made) == 0, "reading made %v", made)
	one := []string{"deepwork", "sessions", "import", sessionFile(root, id), "--path", root}
	asksAtNoPipe(t, one...)
	out, screen, err := typing(t, "no", one...)
	testkit.ContainsAll(t, out, []string{"session_" + id + ".json  ", "session " + id + ", active: one/w, at step b, of ", `goal: red  text` + "\n", "  1 step finished\n", "Its definition is not stored here: the job as it is now counts.\n"})
	if err == nil || !strings.Contains(screen, "May agents go on with 1 session? Type yes") || !strings.Contains(out, "nothing was imported") {
		t.Errorf("an answer of no: %v, %q, %q", err, out, screen)
	}
	testkit.Equal(t, string(testkit.Get(os.ReadFile(sessionFile(root, id))).Must(t)), string(before), "after an answer of no")
	if out, _, err = typing(t, "yes", "deepwork", "sessions", "import", "--all", "--path", root); err != nil || !strings.Contains(out, "Imported 1 session.") {
		t.Errorf("an answer of yes: %v, %s", err, out)
	}
	out = mustPrint(t, root, "sessions", "show", id)
	testkit.ContainsAll(t, out, []string{"imported: ", "status:   active"}, "once it is imported")
	if out, err := commandOn(t, root, one[1:4]...); err == nil || !strings.Contains(out, "session "+id+" is in the project already (active)") {
		t.Errorf("importing it again: %v, %s", err, out)
	}
	mustPrint(t, root, "check")
	client, _ = startClient(t, root)
	testkit.Contains(t, string(callTool(t, client, "get_step", map[string]any{"session_id": id})), "and more", "an agent is given")
	testkit.Contains(t, string(callTool(t, client, "finished_step", map[string]any{"outputs": map[string]any{}, "session_id": id})), "workflow_complete", "an agent goes on with")
}

// Files that anybody may have written: nothing of them is imported, no link leads out of the project, and an
// agent's shell imports none.
func TestUnfitFilesAreNotImported(t *testing.T) {
	root := t.TempDir()
	ownUser(t, "")
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": jobText("one", "a"),
		".deepwork/jobs/one/a.md":    "Do it.\n",
	})
	client, _ := startClient(t, root)
	id := beginSession(t, client, "one", "Goal")
	must(t, client.Close())
	text := testkit.Get(os.ReadFile(sessionFile(root, id))).Must(t)
	outside := filepath.Join(t.TempDir(), "session_0000000a.json")
	must(t, os.WriteFile(outside, []byte(strings.ReplaceAll(string(text), id, "0000000a")), 0o600))
	link := filepath.Join(root, "session_0000000a.json")
	must(t, os.Symlink(outside, link))
	must(t, os.Symlink(filepath.Dir(outside), filepath.Join(root, "folder")))
	huge := filepath.Join(root, "huge.json")
	must(t, os.WriteFile(huge, text, 0o600))
	must(t, os.Truncate(huge, 64<<20+1))
	file := func(from, to string) string {
		path := filepath.Join(t.TempDir(), "x.json")
		must(t, os.WriteFile(path, []byte(strings.ReplaceAll(strings.Replace(string(text), from, to, 1), id, "0000000b")), 0o600))
		return path
	}
	for name, c := range map[string]struct{ path, want string }{
		"a link":               {link, "link"},
		"a link of a folder":   {filepath.Join(root, "folder", "session_0000000a.json"), "link"},
		"a file that is gone":  {filepath.Join(root, "gone.json"), "no such file"},
		"a folder":             {root, "folder"},
		"too much":             {huge, "has 67108865 bytes"},
		"a job":                {filepath.Join(root, ".deepwork", "jobs", "one", "job.yml"), "not the file of a session"},
		"another step":         {file(`"current_step_id": "a"`, `"current_step_id": "z"`), `current step "z" was never begun`},
		"a contradiction":      {file(`"completed_at": null`, `"completed_at": "2026-01-01T00:00:00Z"`), "was edited"},
		"a job that is gone":   {file(`"job_name": "one"`, `"job_name": "two"`), "job 'two' is gone"},
		"one that is too new":  {file(`"format_version": 1`, `"format_version": 99`), "newer deepwork"},
		"one that is the same": {sessionFile(root, id), "in the project already"},
	} {
		out, err := commandOn(t, root, "sessions", "import", c.path)
		if err == nil || !strings.Contains(out, "refused: ") || !strings.Contains(strings.Join(strings.Fields(out), " "), c.want) || !strings.Contains(out, "nothing can be imported") {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
	out := mustPrint(t, root, "sessions", "list")
	testkit.True(t, strings.Count(out, "\n") == 2, "listed: %s", out)
	t.Setenv("DEEPWORK_ATTEMPT_ID", "x")
	if out, err := commandOn(t, root, "sessions", "import", outside); err == nil || !strings.Contains(out, "only a person decides this") {
		t.Errorf("an agent: %v, %s", err, out)
	}
}

// A database that was damaged: calls and commands are refused with its path, nothing moves it while a server
// runs, and once it is set aside its sessions go on from their files.
func TestADamagedDatabaseIsSetAside(t *testing.T) {
	root := t.TempDir()
	ownUser(t, "")
	writeFiles(t, root, map[string]string{
		".deepwork/jobs/one/job.yml": jobText("one", "a"),
		".deepwork/jobs/one/a.md":    "Do it.\n",
	})
	client, _ := startClient(t, root)
	id := beginSession(t, client, "one", "Goal")
	database := state.Of(root).Database()
	out, err := commandOn(t, root, "check", "--set-aside")
	testkit.True(t, err != nil && strings.Contains(out, "a server runs on this project"), "beside a server: %v, %s", err, out)
	must(t, client.Close())
	text := testkit.Get(os.ReadFile(database)).Must(t)
	copy(text[4096:], make([]byte, len(text)-8192))
	must(t, os.WriteFile(database, text, 0o600))

	client, _ = startClient(t, root)
	r := testkit.Get(client.CallTool(t.Context(), &mcp.CallToolParams{Name: "get_step", Arguments: map[string]any{"session_id": id}})).Must(t)
	if said := resultText(r); codeOf(r) != "store_damaged" || !strings.Contains(said, database) || !strings.Contains(said, "deepwork check --set-aside") {
		t.Errorf("a call: %v, %s", codeOf(r), said)
	}
	must(t, client.Close())
	if out, err := commandOn(t, root, "check"); err == nil || !strings.Contains(out, database) || !strings.Contains(out, "deepwork check --set-aside") {
		t.Errorf("check: %v, %s", err, out)
	}
	testkit.Equal(t, string(testkit.Get(os.ReadFile(database)).Must(t)), string(text), "the damaged database was changed")
	mustPrint(t, root, "check", "--set-aside")
	aside := glob(database + ".damaged-*")
	testkit.True(t, len(aside) != 0 && readAll(aside[0]) == string(text) && !fileExists(database), "set aside are %v", aside)
	if out, _, err := typing(t, "yes", "deepwork", "sessions", "import", "--all", "--path", root); err != nil || !strings.Contains(out, "Imported 1 session.") {
		t.Errorf("imported: %v, %s", err, out)
	}
	client, _ = startClient(t, root)
	testkit.Contains(t, string(callTool(t, client, "finished_step", map[string]any{"outputs": map[string]any{}, "session_id": id})), "workflow_complete", "an agent goes on with")
}

// A step that waits for a person in the workspace of an attempt needs attention, and the session is
// found from the project by its id: shown, listed and overridden while its server runs.
func TestSessionsOfAttempts(t *testing.T) {
	onPostgres(t)
	p := newBoardProject(t, "quality_gate: {override: human}\n")
	writeFiles(t, p.root, map[string]string{".deepwork/jobs/release/job.yml": reviewedJob("release", isItGood, "a")})
	testkit.Equal(t, mustPrint(t, p.root, "sessions", "list"), "There are no sessions.\n", "at first")
	gate, open := p.gate("go")
	x := p.start(p.workflowTask("! write out.txt done", "! review "+gate))
	var item board.Attention
	p.eventually(func() string {
		items := boardCall[board.AttentionReply](p, "needs_attention", map[string]any{}).Items
		i := slices.IndexFunc(items, func(i board.Attention) bool { return i.Kind == board.AttentionStep })
		if i < 0 {
			return fmt.Sprintf("nothing waits: %+v\n%s", items, p.output(x.AttemptID))
		}
		item = items[i]
		return ""
	})
	now := p.get(x.AttemptID)
	testkit.True(t, deref(now.WorkflowSession) == item.ID && strings.HasPrefix(item.Title, "Step a: ") && item.Since != nil, "%+v of %+v", item, now)
	var printed []board.Attention
	if err := json.Unmarshal([]byte(mustPrint(t, p.root, "board", "--json")), &printed); err != nil || !slices.ContainsFunc(printed, func(i board.Attention) bool { return i.ID == item.ID && i.Command == item.Command }) {
		t.Errorf("deepwork board: %+v, %v", printed, err)
	}
	for _, id := range []string{item.ID, item.ID[:5], "latest"} {
		out := mustPrint(t, p.root, "sessions", "show", id)
		testkit.True(t, strings.Contains(out, "session:  "+item.ID) && strings.Contains(out, "attempt:  "+x.AttemptID), "show %s: %s", id, out)
	}
	out := mustPrint(t, p.root, "sessions", "list")
	testkit.True(t, strings.Contains(out, "ATTEMPT") && strings.Contains(out, item.ID+"  active") && strings.Contains(out, x.AttemptID[:8]), "list: %s", out)
	words := strings.Fields(strings.Replace(item.Command, "TEXT", "seen", 1))
	if out, _, err := typing(t, "yes", append(words, "--path", p.root)...); err != nil || !strings.Contains(out, "The agent was asked to have its outputs judged by") || !strings.Contains(out, "Overridden.") {
		t.Errorf("%v: %v\n%s", words, err, out)
	}
	for _, i := range boardCall[board.AttentionReply](p, "needs_attention", map[string]any{}).Items {
		testkit.True(t, i.ID != item.ID, "it still waits: %+v", i)
	}
	open()
	if now := p.ends(x.AttemptID); deref(now.WorkflowStatus) != "completed" {
		t.Errorf("%+v\n%s", now, p.output(x.AttemptID))
	}
	if out := mustPrint(t, p.root, "sessions", "show", item.ID); !strings.Contains(out, "status:   completed") || !strings.Contains(out, "overridden by a person") {
		t.Errorf("at the end: %s", out)
	}
}
