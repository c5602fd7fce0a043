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
	"deepwork/catalog/config"
	"deepwork/session/board"
	"deepwork/session/state"
	"deepwork/session/store/postgres/pgtest"
)

// finishing returns a function that finishes a step with an output of a project's session, and returns its
// status and feedback.
func finishing(t *testing.T, client **mcp.ClientSession) func(id, step, file string) (status, feedback string) {
	return func(id, step, file string) (status, feedback string) {
		t.Helper()
		r := callTool(t, *client, "finished_step", map[string]any{
			"outputs":    map[string]any{"out": file},
			"step_id":    step,
			"session_id": id,
			"notes":      "Mind the end",
		})
		return strings.Trim(string(lookup(r, "status")), `"`), string(lookup(r, "feedback"))
	}
}

// finishOnly finishes the current step of a session, without outputs.
func finishOnly(t *testing.T, client *mcp.ClientSession, id string) string {
	t.Helper()
	return string(callTool(t, client, "finished_step", map[string]any{"outputs": map[string]any{}, "session_id": id}))
}

// The files of sessions that came with a project: nothing reads them until the user says at the terminal
// that they become sessions of it, and what they say is shown without control characters.
func TestSessionsAreImported(t *testing.T) {
	ownUser(t, "")
	root := projectOf(t, jobText("one", "a", "b"))
	client, _ := startClient(t, root)
	id := beginSession(t, client, "one", "red \x1b[31m text\nand more")
	finishOnly(t, client, id)
	must(t, client.Close())
	t.Setenv(state.Env, filepath.Join(t.TempDir(), "state")) // another computer
	before := readAll(sessionFile(root, id))

	testkit.ContainsAll(t, mustPrint(t, root, "sessions", "list"),
		[]string{"There are no sessions.", "'deepwork where --adopt OLDPATH --path " + root + "'"})
	fails(t, root, []string{"sessions", "show", id}, "`deepwork sessions import "+root+"/.deepwork/tmp/session_"+id+
		".json --path "+root+"`", "`deepwork where --adopt OLD-PATH --path "+root+"`")
	testkit.Equal(t, len(glob(os.Getenv(state.Env), "*")), 0, "what reading made")
	one := []string{"deepwork", "sessions", "import", sessionFile(root, id), "--path", root}
	asksAtNoPipe(t, one...)
	types(t, false, "no", one, "session_"+id+".json  ", "session "+id+", active: one/w, at step b, of ",
		`goal: red  text`+"\n", "  1 step finished\n",
		"Its definition is not stored here: the job as it is now counts.\n",
		"May agents go on with 1 session? Type yes", "nothing was imported")
	testkit.Equal(t, readAll(sessionFile(root, id)), before, "after an answer of no")
	types(t, true, "yes", []string{"deepwork", "sessions", "import", "--all", "--path", root}, "Imported 1 session.")
	testkit.ContainsAll(t, mustPrint(t, root, "sessions", "show", id), []string{"imported: ", "status:   active"},
		"once it is imported")
	fails(t, root, one[1:4], "session "+id+" is in the project already (active)")

	// before it asks
	fails(t, root, []string{"sessions", "drop", id, "b[3]", "--reason", "obsolete"},
		"'b[3]' is not a step of an unfinished item")
	mustPrint(t, root, "check")
	client, _ = startClient(t, root)
	testkit.Contains(t, string(callTool(t, client, "get_step", map[string]any{"session_id": id})), "and more",
		"an agent is given")
	testkit.Contains(t, finishOnly(t, client, id), "workflow_complete", "an agent goes on with")
}

// Files that anybody may have written: nothing of them is imported, no link leads out of the project, and an
// agent's shell imports none.
func TestUnfitFilesAreNotImported(t *testing.T) {
	ownUser(t, "")
	root := projectOf(t, jobText("one", "a"))
	client, _ := startClient(t, root)
	id := beginSession(t, client, "one", "Goal")
	must(t, client.Close())
	text := readAll(sessionFile(root, id))
	outside := filepath.Join(t.TempDir(), "session_0000000a.json")
	testkit.Write(t, outside, strings.ReplaceAll(text, id, "0000000a"))
	link := filepath.Join(root, "session_0000000a.json")
	must(t, os.Symlink(outside, link))
	must(t, os.Symlink(filepath.Dir(outside), filepath.Join(root, "folder")))
	file := func(from, to string) string {
		path := filepath.Join(t.TempDir(), "x.json")
		testkit.Write(t, path, strings.ReplaceAll(strings.Replace(text, from, to, 1), id, "0000000b"))
		return path
	}
	for _, c := range []struct{ path, want string }{
		{link, "link"}, {filepath.Join(root, "folder", "session_0000000a.json"), "link"},
		// it could not be read once it is stored
		{file(`"revision": 0`, `"revision": 9007199254740992`), "revision is 9007199254740992"},
		{file(`"current_step_id": "a"`, `"current_step_id": "z"`), `current step "z" was never begun`},
		{file(`"job_name": "one"`, `"job_name": "two"`), "job 'two' is gone"},
		{file(`"format_version": 1`, `"format_version": 99`), "newer deepwork"},
	} {
		fails(t, root, []string{"sessions", "import", c.path}, "refused: ", c.want, "nothing can be imported")
	}
	testkit.Equal(t, strings.Count(mustPrint(t, root, "sessions", "list"), "\n"), 2)

	t.Setenv("DEEPWORK_ATTEMPT_ID", "x")
	fails(t, root, []string{"sessions", "import", outside}, "only a person decides this")
}

// A step that waits for a person in the workspace of an attempt needs attention, and the session is
// found from the project by its id: shown, listed and overridden while its server runs.
func TestSessionsOfAttempts(t *testing.T) {
	t.Setenv(config.StoreEnv, pgtest.URL(t))
	t.Setenv("CI", "") // there, a store needs the name of its project
	p := newBoardProject(t, "quality_gate: {override: human}\n")
	writeFiles(t, p.root, map[string]string{".deepwork/jobs/release/job.yml": reviewedJob("release", isItGood, "a")})
	testkit.Equal(t, mustPrint(t, p.root, "sessions", "list"), "There are no sessions.\n", "at first")

	gate, open := p.gate("go")
	x := p.start(p.workflowTask("! write out.txt done", "! review "+gate))
	var item board.Attention
	eventually(t, func() (bool, any) {
		items := boardCall[board.AttentionReply](p, "needs_attention", map[string]any{}).Items
		i := slices.IndexFunc(items, func(i board.Attention) bool { return i.Kind == board.AttentionStep })
		item = append(items, item)[max(i, 0)]
		return i >= 0, items
	})
	now := p.get(x.AttemptID)
	testkit.Equal(t, deref(now.WorkflowSession), item.ID, "%+v of %+v", item, now)
	testkit.True(t, strings.HasPrefix(item.Title, "Step a: "), "%+v of %+v", item, now)
	testkit.True(t, item.Since != nil, "%+v of %+v", item, now)

	var printed []board.Attention
	must(t, json.Unmarshal([]byte(mustPrint(t, p.root, "board", "--json")), &printed))
	testkit.True(t, slices.ContainsFunc(printed, func(i board.Attention) bool {
		return i.ID == item.ID && i.Command == item.Command+" --path "+p.root
	}), "deepwork board: %+v", printed)
	for _, id := range []string{item.ID, item.ID[:5], "latest"} {
		testkit.ContainsAll(t, mustPrint(t, p.root, "sessions", "show", id),
			[]string{"session:  " + item.ID, "attempt:  " + x.AttemptID, "place:    " + now.Repos[0].WorktreePath}, id)
	}
	testkit.ContainsAll(t, mustPrint(t, p.root, "sessions", "list"),
		[]string{"ATTEMPT", item.ID + "  active", x.AttemptID[:8]})
	words := strings.Fields(strings.Replace(item.Command, "TEXT", "seen", 1))
	types(t, true, "yes", append(words, "--path", p.root), "The agent was asked to have its outputs judged by",
		"Overridden.")
	for _, i := range boardCall[board.AttentionReply](p, "needs_attention", map[string]any{}).Items {
		testkit.True(t, i.ID != item.ID, "it still waits: %+v", i)
	}

	open()
	testkit.Equal(t, deref(p.ends(x.AttemptID).WorkflowStatus), "completed")
	testkit.ContainsAll(t, mustPrint(t, p.root, "sessions", "show", item.ID),
		[]string{"status:   completed", "overridden by a person"}, "at the end")
}

const byAPerson = `[{run_each: out, by: human, quality_criteria: {good: "Is it good?"}}]`

// A person looks at what waits and decides, with a server that runs and without one; the agent's next call collects
// that. They are shown what has changed since they failed it, and can edit it. Nobody without a terminal can.
func TestAPersonReviewsAtTheTerminal(t *testing.T) {
	ownUser(t, "")
	root := projectOf(t, reviewedJob("one", byAPerson, "a", "b"), "out.txt", "done\nsame\n", "edit.sh",
		"#!/bin/sh\necho edited > \"$1\"\n")
	must(t, os.Chmod(filepath.Join(root, "edit.sh"), 0o755))
	client, _ := startClient(t, root)
	finish := finishing(t, &client)
	id := beginSession(t, client, "one", "Close it")
	becomes := func(want, step, says string) {
		t.Helper()
		status, feedback := finish(id, step, "out.txt")
		testkit.True(t, status == want && strings.Contains(feedback, says), "%s, %s", status, feedback)
	}
	review := func(args ...string) []string {
		return slices.Concat([]string{"deepwork", "sessions", "review"}, args, []string{"--path", root})
	}
	types(t, true, "", review(), "Nothing waits for your review.")
	types(t, false, "", review(id, "a"), "does not wait for a person")
	becomes("needs_work", "a", "Waiting: ")
	testkit.ContainsAll(t, mustPrint(t, root, "board"),
		[]string{"step_waits", "deepwork sessions review " + id + " a --path " + root + "\n"}, "what needs a person")
	testkit.Contains(t, mustPrint(t, root, "sessions", "show", id), "waits for a person, asked ", "sessions show")

	// Not by stdin, not without a decision, not without words for the agent.
	asksAtNoPipe(t, review(id, "a")...)
	types(t, true, "what\nfail\n\r\nquit", review(id), "Nothing was recorded: a fail needs words",
		"Nothing was recorded.")
	becomes("needs_work", "a", "Waiting: ")

	// By the server that owns the session: first back to the agent, then on.
	types(t, true, "fail\nSay more\rin the end\r", review(), "Close it", "question: the review of out",
		"good: Is it good?", "Mind the end", filepath.Join(root, "out.txt"), "    done\n    same\n",
		"Failed. Now tell your agent to go on. It gets your words.")
	becomes("needs_work", "a", `: Say more\nin the end`)
	writeFiles(t, root, map[string]string{"out.txt": "more\x1b[2J\u202e\nsame\n"})
	becomes("needs_work", "a", "Waiting: ")
	writeFiles(t, root, map[string]string{"out.txt": "for the eyes of the person\n"})
	shown := types(t, false, "pass", review(), "'out.txt' changed after the agent handed in",
		"have the agent hand in the outputs as they are now, and look at those.")
	testkit.True(t, !strings.Contains(shown, "for the eyes"), "files that were swapped: %s", shown)
	writeFiles(t, root, map[string]string{"out.txt": "more\x1b[2J\u202e\nsame\n"})
	types(t, true, "view\npass Well done", review(id, "a"), "    -done\n    +more\\u001b[2J\\u202e\n     same\n",
		"    more\\u001b[2J\\u202e\n    same\n", "Passed. Now tell your agent to go on.")
	becomes("next_step", "a", "")

	// An edit is what is judged from then on; then the next that waits is offered. With no server.
	becomes("needs_work", "b", "Waiting: ")
	other := beginSession(t, client, "one", "Close it")
	finish(other, "a", "edit.sh")
	must(t, client.Close())
	t.Setenv("EDITOR", filepath.Join(root, "edit.sh"))
	types(t, true, "edit\npass\ny\nquit", review(), "    edited\n", "(What has changed since the last hand-in:)",
		"    +edited\n", "Passed. ", "Waiting for your review: 1 more", other)
	types(t, false, "pass", review(id, "b"), "has answered already")
	client, _ = startClient(t, root)
	becomes("workflow_complete", "b", "")
	evidence := mustPrint(t, root, "sessions", "show", id)
	testkit.Equal(t, strings.Count(evidence, "evidence: passed by a person, who reviewed these outputs, "), 2,
		"%s", evidence)
	testkit.Contains(t, evidence, "reason: Well done")
}

// What does not fit on the screen is shown by $PAGER, without what could move the cursor or hide text.
func TestALongReviewIsPaged(t *testing.T) {
	ownUser(t, "")
	root := projectOf(t, reviewedJob("one", byAPerson, "a"), "long.txt", strings.Repeat("a line\n", 60)+
		"\x1b[2Jthe \u202eend\n", "short.txt", "a line\n", "pager.sh", "#!/bin/sh\necho PAGED\nexec cat\n")
	must(t, os.Chmod(filepath.Join(root, "pager.sh"), 0o755))
	t.Setenv("PAGER", filepath.Join(root, "pager.sh"))
	client, _ := startClient(t, root)
	for file, paged := range map[string]bool{"long.txt": true, "short.txt": false} {
		id := beginSession(t, client, "one", "Close it")
		finishing(t, &client)(id, "a", file)
		got := strings.ReplaceAll(types(t, true, "quit",
			[]string{"sh", "-c", "exec deepwork sessions review " + id + " --path " + root + " >/dev/tty"},
			"    a line\r\n"), "\r", "")
		testkit.True(t, !strings.Contains(got, "\x1b[2J") && !strings.Contains(got, "\u202e"), "%s: %s", file, got)
		testkit.True(t, strings.Contains(got, "PAGED") == paged && strings.Contains(got, `the \u202eend`) == paged,
			"%s: %s", file, got)
		// beside the content, and again where the answer is typed
		_, asked, _ := strings.Cut(got, `the \u202eend`)
		testkit.Equal(t, strings.Contains(asked, "question:"), paged, "%s: %s", file, got)
	}
}

// A person overrides a review at the terminal, with a server that runs and without one; the agent's
// next call goes on, once. The evidence distinguishes a person from an agent.
func TestAPersonOverridesAtTheTerminal(t *testing.T) {
	ownUser(t, "")
	root := projectOf(t, reviewedJob("one", isItGood, "a", "b", "c"), ".deepwork/config.yml",
		"quality_gate: {override: human}\n", "out.txt", "done\n")
	client, server := startClient(t, root)
	id := beginSession(t, client, "one", "Close it")
	becomes := func(want, step, when string) {
		t.Helper()
		got, _ := finishing(t, &client)(id, step, "out.txt")
		testkit.Equal(t, got, want, when)
	}
	override := func(step string) []string {
		return []string{"deepwork", "sessions", "override", id, step, "--reason", "I looked at it", "--path", root}
	}
	becomes("needs_work", "a", "the agent alone")

	// Not by stdin, not without a yes.
	asksAtNoPipe(t, override("a")...)
	types(t, false, "no", override("a"), "nothing was overridden")
	becomes("needs_work", "a", "after a no")

	// By the server that owns the session.
	testkit.Contains(t, mustPrint(t, root, "sessions", "list"), fmt.Sprintf("pid %d ", server.Process.Pid))
	types(t, true, "yes", override("a"), "Close it", "good: Is it good?", "quality_review_"+id+"_a.md",
		"handed in sha256:d117fa006ba9 out.txt", "Skip these reviews of step a", "Overridden.")
	writeFiles(t, root, map[string]string{"out.txt": "other\n"})
	becomes("needs_work", "a", "other outputs than the person saw")
	writeFiles(t, root, map[string]string{"out.txt": "done\n"})
	becomes("next_step", "a", "after the person's override")
	becomes("needs_work", "b", "the next step")
	types(t, false, "yes", override("a"), "is not to be finished now")

	// With no server, and used up by the step's end.
	must(t, client.Close())
	types(t, true, "yes", override("b"))
	testkit.Contains(t, mustPrint(t, root, "sessions", "show", id), "a person (local, terminal) overrode its reviews",
		"before it is used")
	client, _ = startClient(t, root)
	becomes("next_step", "b", "after the person's override")
	text := mustPrint(t, root, "sessions", "show", id)
	testkit.True(t, strings.Count(text, "evidence: overridden by a person, ") == 2 &&
		!strings.Contains(text, "has not used yet"), "%s", text)
	testkit.ContainsAll(t, text, []string{"finished with sha256:", "reason: I looked at it"})
	text = mustPrint(t, root, "sessions", "show", id, "--json")
	testkit.Equal(t, strings.Count(text, `"kind": "override_by_person"`), 2, "verdicts as JSON: %s", text)
	testkit.Equal(t, strings.Count(text, `"channel": "terminal"`), 4, "overrides and verdicts as JSON: %s", text)

	// go_to_step takes it back; never means nobody.
	types(t, true, "yes", override("c"))
	callTool(t, client, "go_to_step", map[string]any{"step_id": "c", "session_id": id})
	becomes("needs_work", "c", "after go_to_step")
	writeFiles(t, root, map[string]string{".deepwork/config.yml": "quality_gate: {override: never}\n"})
	types(t, false, "yes", override("c"), "not even a person")
}
