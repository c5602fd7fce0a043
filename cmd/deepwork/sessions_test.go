package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/show"
	"deepwork/session/state"
)

// sqlCommand is the script command `sql FILE STATEMENT`, which changes a database.
func sqlCommand(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) != 2, "sql FILE STATEMENT")
	db, err := sql.Open("sqlite", ts.MkAbs(args[0]))
	ts.Check(err)
	defer db.Close()
	_, err = db.Exec(args[1])
	ts.Check(err)
}

// What is only under way is believed by nobody, what stays is.
func TestCheckConfirms(t *testing.T) {
	defer func(was []time.Duration) { checkPauses = was }(checkPauses)
	checkPauses = []time.Duration{0, 0}
	for name, c := range map[string]struct {
		live, note   bool
		looks, found int // expected
	}{
		"while a server runs": {true, false, 3, 1},
		"a note":              {true, true, 1, 1},
		"without a server":    {false, false, 1, 2},
	} {
		looks := 0
		r, err := confirmed(t.Context(), func(context.Context) (r session.Report, err error) {
			looks++
			r.Live = c.live
			if c.note {
				r.Note("a", "stays", "")
				return r, nil
			}
			for where, there := range map[string]bool{"a": true, "b": looks < 3, "c": looks > 1} {
				if there {
					r.Fault(where, "is wrong", "")
				}
			}
			slices.SortFunc(r.Findings, func(x, y session.Finding) int { return strings.Compare(x.Where, y.Where) })
			return r, nil
		})
		testkit.Need(t, err == nil, "%s, after %d looks: %+v, %v", name, looks, r.Findings, err)
		testkit.Need(t, len(r.Findings) == c.found, "%s, after %d looks: %+v, %v", name, looks, r.Findings, err)
		testkit.Equal(t, r.Findings[0].Where, "a", "%s, after %d looks: %+v, %v", name, looks, r.Findings, err)
		testkit.Equal(t, looks, c.looks, "%s, after %d looks: %+v, %v", name, looks, r.Findings, err)
	}
}

// A command that an agent of the board runs has no more rights than the agent.
func TestAnAgentHasNoRightsOnTheCommandLine(t *testing.T) {
	env := map[string]string{}
	getenv := func(name string) string { return env[name] }
	who := callerOf(getenv)
	testkit.True(t, who.Owner && who.Has(session.RightAgents|session.RightMerge), "the user is %+v", who)

	env[config.AttemptEnv], env[config.BoardEnv] = "bce3f921-e215-48ca-8f29-0dd54aedc1ab",
		filepath.Join(t.TempDir(), "board.db")
	who = callerOf(getenv)
	testkit.True(t, !who.Owner && who.Rights == 0, "an agent is %+v", who)
}

// A session that a living server moved last can be aborted beside it, once.
func TestAbortBesideAServer(t *testing.T) {
	t.Parallel()
	root := projectOf(t, jobText("one", "a"))
	client, _ := startClient(t, root)
	id := beginSession(t, client, "one", "Keep it")
	testkit.Equal(t, mustPrint(t, root, "sessions", "abort", id), "aborted "+id+"\n")
	fails(t, root, []string{"sessions", "abort", id}, "was aborted")
	testkit.Equal(t, string(lookup(callTool(t, client, "get_workflows", map[string]any{}), "stack")), "[]",
		"the stack of the server")
}

// A command takes the id of anything that belongs to what it is about. A beginning that several ids have, also of
// other kinds, is refused and lists them.
func TestField20_AnyID(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tried, run := related{"ab12", "cd56", "", "0e78"}, related{"ab34", "ef90", "ef90", ""}
	all := []candidate{{"task", "ab12", "one", at, tried}, {"task", "ab34", "two\nlines", at.Add(time.Second), run},
		{"task", "ad00", "new", at, related{task: "ad00"}},
		{"attempt", "cd56", "on branch b", at.Add(time.Minute), tried}, {"run", "ef90", "on branch c", at, run},
		{"session", "0e78", "active: g", at, tried},
		{"session", "ad99", "active: alone", at, related{session: "ad99"}}}
	for _, c := range []struct {
		kind        idKind
		given, want string
	}{
		{taskIDs, "ab1", "ab12"}, {taskIDs, "AB34", "ab34"}, {taskIDs, "c", "ab12"}, {taskIDs, "0e78", "ab12"},
		{taskIDs, "ef", "ab34"}, {taskIDs, latest, "ab34"},
		{attemptIDs, "ab12", "cd56"}, {attemptIDs, "0e", "cd56"}, {attemptIDs, "ef", "ef90"},
		{attemptIDs, latest, "cd56"},
		{runIDs, "ab3", "ef90"}, {runIDs, "ef9", "ef90"}, {runIDs, latest, "ef90"},
		{sessionIDs, "cd", "0e78"}, {sessionIDs, "ab12", "0e78"}, {sessionIDs, "ad9", "ad99"},
		{taskIDs, "ad", `2 ids begin with "ad"; give more characters: ad00 (task, new), ad99 (session, active: alone)`},
		{taskIDs, "f",
			`there is no task whose id begins with "f"; 'deepwork board tasks' lists them: ab12 (task, one), ab34 ` +
				`(task, two lines), ad00 (task, new)`},
		{sessionIDs, "f",
			`there is no session whose id begins with "f"; 'deepwork sessions list' lists them: 0e78 (session, ` +
				`active: g), ad99 (session, active: alone)`},
		{attemptIDs, "ad00", "the task ad00 has no attempt; 'deepwork board start ad00' makes one"},
		{runIDs, "ab12", "the task ab12 has no run"},
		{taskIDs, "ad99", "the session ad99 has no task"},
	} {
		got, err := c.kind.choose(c.given, all)
		if err != nil {
			got += err.Error()
		}
		testkit.Equal(t, got, c.want, "%s as %s", c.given, c.kind.what)
	}
	testkit.Fails(t, testkit.Get(taskIDs.choose(latest, nil)).Err(), "there is no task yet")

	var many []candidate
	for i := range 300 {
		many = append(many, candidate{kind: "task", id: fmt.Sprintf("a%03d", i), about: "x"})
	}
	err := testkit.Get(taskIDs.choose("a", many)).Err()
	testkit.Fails(t, err, "a009 (task, x), ")
	testkit.True(t, len(err.Error()) <= 1000, "%v", err)
}

// A project that was moved goes on with the attempts that it had, whose work is not committed.
func TestAMovedProjectKeepsItsAttempts(t *testing.T) {
	for name, config := range map[string]string{
		"in the state folder":      "",
		"relative, in the project": "attempts: {worktrees: trees}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newBoardProject(t, config)
			task := p.task("! write new.txt some work")
			a := p.ends(p.start(task).AttemptID)
			writeFiles(t, p.root, map[string]string{
				".deepwork/jobs/one/job.yml": jobText("one", "a", "b"),
				".deepwork/jobs/one/a.md":    "A",
				".deepwork/jobs/one/b.md":    "B",
			})
			id := beginSession(t, p.client, "one", "Goal")
			must(t, p.client.Close())
			if strings.HasPrefix(name, "relative") {
				// as git 2.48 and newer do by worktree.useRelativePaths; older ones read such links
				all := glob(p.root, ".git", "worktrees", "*")
				testkit.Need(t, len(all) != 0, "there is no worktree")

				for _, admin := range all {
					dotGit := strings.TrimSpace(readAll(admin, "gitdir"))
					testkit.Write(t, filepath.Join(admin, "gitdir"),
						testkit.Get(filepath.Rel(admin, dotGit)).Must(t)+"\n")
					testkit.Write(t, dotGit, "gitdir: "+
						testkit.Get(filepath.Rel(filepath.Dir(dotGit), admin)).Must(t)+"\n")
				}
			}
			old := p.root
			p.root = filepath.Join(filepath.Dir(old), "moved", "shop")
			must(t, errors.Join(os.Mkdir(filepath.Dir(p.root), 0o755), os.Rename(old, p.root)))

			// The command was killed before its last step, and is given again.
			before := &state.Folder{
				Root: p.root,
				Base: state.Of(p.root).Base,
				Dir:  filepath.Join(state.Of(p.root).Base, "projects", state.Name(old)),
			}
			must(t, attempt.Relocate(t.Context(), before, old))
			link := filepath.Join(t.TempDir(), "link") // as of a home folder
			must(t, os.Symlink(filepath.Dir(old), link))
			mustPrint(t, p.root, "where", "--adopt", filepath.Join(link, filepath.Base(old)))
			mustPrint(t, p.root, "check")

			p.client, _ = startClient(t, p.root)
			step := callTool(t, p.client, "finished_step",
				map[string]any{"session_id": id, "outputs": map[string]any{}})
			testkit.ContainsAll(t, string(step)+readAll(sessionFile(p.root, id)),
				[]string{`"step_id":"b"`, `"current_step_id": "b"`}, "a session goes on")

			now := p.get(a.AttemptID)
			testkit.True(t,
				!strings.Contains(string(callTool(t, p.client, "get_attempt",
					map[string]any{"attempt_id": a.AttemptID})), old+"/"), "the attempt names the old path: %+v", now)
			diff := func() string {
				return string(callTool(t, p.client, "get_attempt_diff", map[string]any{"attempt_id": a.AttemptID}))
			}
			testkit.Contains(t, diff(), "some work", "the diff")
			callTool(t, p.client, "follow_up",
				map[string]any{"attempt_id": a.AttemptID, "action": "send", "prompt": "! write more.txt more work"})
			testkit.Equal(t, p.ends(a.AttemptID).State, "completed", "after a follow-up")
			testkit.ContainsAll(t, diff(), []string{"some work", "more work"}, "the diff after a follow-up")

			gone := boardCall[attempt.DeleteReply](p, "delete_task", map[string]any{"task_id": task.TaskID})
			testkit.Need(t, len(gone.Rescued) == 1, "what was kept of a deleted task: %+v", gone)
			testkit.Equal(t, gone.Rescued[0].RepoPath, p.root, "what was kept of a deleted task: %+v", gone)
			testkit.True(t, p.git(p.root, "show", gone.Rescued[0].Ref+":more.txt") != "",
				"what was kept of a deleted task: %+v", gone)
			list := p.git(p.root, "worktree", "list")
			testkit.True(t, strings.Count(list, "\n") <= 1, "git still has the worktrees %s", list)
		})
	}
}

// What a name has that is not seen, or moves the text around it, is shown as an escape.
func TestPlainShowsWhatIsNotSeen(t *testing.T) {
	for _, r := range "\x00\x7f\u0085\u00ad\u034f\u061c\u115f\u1160\u17b4\u180e\u200b\u200d\u200e\u2028" +
		"\u2029\u202e\u2060\u2065\u2069\u2800\u3164\ufeff\uffa0\ufff0\ue000\U000e0001\U000e0041\U000e0100\U0010fffd" {
		text := "a" + string(r) + "b"
		got := plain(text)
		testkit.True(t, !strings.ContainsRune(got, r) && strings.HasPrefix(got, `a\u`), "%U is shown as %q", r, got)
		var back string
		err := json.Unmarshal([]byte(`"`+got+`"`), &back)
		testkit.True(t, err == nil && back == text, "%U is %q in JSON: %v", r, back, err)
	}
	for _, text := range []string{"Größe 漢字 ключ العربية", "a\nb\tc", "\u00a0\u3000", "❤️ 👍🏽 ✓ → e\u0301",
		"👩\u200d💻 🏳️\u200d🌈 👩🏽\u200d⚕️ می\u200cخواهم क्\u200dष"} {
		testkit.Equal(t, plain(text), text, "is shown as")
	}
	for _, text := range []string{"\u200d", "👩\u200d", "\u200d💻", "👩\u200dx", "1\u200d+", "a\u200dم", "\xff\u200d"} {
		got := plain(text)
		testkit.True(t, !strings.ContainsAny(got, "\u200c\u200d"),
			"%+q is shown as %+q: a joiner that joins nothing is not seen", text, got)
	}
	testkit.Equal(t, inline("a\r\nb\tc\rd\x1b[1m"), `a\nb\tc\u000dd\u001b[1m`,
		"a name with newlines and colors is shown as")
}

// A newline in a name does not make the rest of an error look like another message.
func TestAnErrorAtExitIsOneMessage(t *testing.T) {
	var b strings.Builder
	a := &app{err: show.NewScreen(&b, os.Getenv)}
	a.report(&fs.PathError{Op: "open", Path: "x\u2028\ndeepwork: all is well", Err: errors.New("no")})
	testkit.Equal(t, b.String(), "deepwork: open x\\u2028\n  deepwork: all is well: no\n")
}

// The user's own flag wins over a pin, and the session says that it did.
func TestNoQualityGateOverAPinIsRecorded(t *testing.T) {
	ownUser(t, "quality_gate: {agent_review_command: reviewer task.txt, override: never, pin: true}\n")
	root := projectOf(t, strings.Replace(jobText("one", "a"), "reviews: []", "reviews: "+isItGood, 1))
	client, _ := startClient(t, root)
	id := beginSession(t, client, "one", "Pin it")
	must(t, client.Close())
	client, _ = startClient(t, root, "--no-quality-gate")
	r := callTool(t, client, "finished_step", map[string]any{"outputs": map[string]any{}, "session_id": id})
	testkit.Equal(t, string(lookup(r, "status")), `"workflow_complete"`, "the flag does not win: %s", r)
	testkit.ContainsAll(t, mustPrint(t, root, "sessions", "show", id, "--json"), []string{"weakened", "and is off"})
	testkit.ContainsAll(t, mustPrint(t, root, "sessions", "show", id),
		[]string{"weakened", "and is off", "evidence: not reviewed, because the server ran without reviews"})
}

// Field names, nulls and punctuation of a step's reply have at most 600 characters, and 100 more per output
// or input; of two steps with the same text only the requirements' step_quality_criteria repeat one.
func TestTheFrameOfAStepsReplyIsSmall(t *testing.T) {
	root := projectOf(t, strings.NewReplacer("steps: [collect, ask, draft]", "steps: [[collect, ask], draft]",
		"id: collect, name: A, description: A, instructions_file: a.md, outputs: {}",
		`id: collect, name: Collect, description: Collects the changes, instructions_file: collect.md,
     outputs: {changes: {type: file, description: One row per change}, sources: {type: files, description: What `+
			`was read, required: false}, extra: {type: file, description: More, required: false}}`,
		"id: draft, name: A, description: A, instructions_file: a.md, outputs: {}, reviews: []",
		`id: draft, name: Draft, description: Drafts the notes, instructions_file: draft.md, dependencies: [collect],
     inputs: [{name: tone, description: How to say it}, {file: changes, from_step: collect}, {file: sources, `+
			`from_step: collect}, {file: extra, from_step: collect}],
     outputs: {notes: {type: file, description: The notes}}, reviews: [{run_each: step, quality_criteria: `+
			`{complete: "Is every change of changes.md in the notes?"}}]`).
		Replace(jobText("one", "collect", "ask", "draft")), ".deepwork/jobs/one/collect.md", "Collect the changes.\n",
		".deepwork/jobs/one/draft.md", "Draft the notes.\n",
		"docs/changes.md", "| 1 | faster |\n", "src/a.md", "a\n", "src/b.md", "b\n")
	client, _ := startClient(t, root)
	started := callTool(t, client, "start_workflow",
		map[string]any{"goal": "Notes", "job_name": "one", "workflow_name": "w", "instance_id": "x"})
	id := strings.Trim(string(lookup(started, "begin_step.session_id")), `"`)
	testkit.Equal(t, string(lookup(started, "begin_step.step_inputs")), "[]", "the first step has inputs")
	callTool(t, client, "finished_step",
		map[string]any{"session_id": id, "step_id": "ask", "outputs": map[string]any{}})
	next := callTool(t, client, "finished_step", map[string]any{
		"session_id": id,
		"step_id":    "collect",
		"outputs":    map[string]any{"sources": []string{"src/a.md", "src/b.md"}, "changes": "docs/changes.md"},
	})
	for name, reply := range map[string]json.RawMessage{
		"start_workflow": started,
		"finished_step":  next,
		"get_step":       callTool(t, client, "get_step", map[string]any{"session_id": id}),
	} {
		values := 0
		texts := map[string]int{}
		parts := 0
		var walk func(v any)
		walk = func(v any) {
			switch v := v.(type) {
			case string:
				encoded, _ := json.Marshal(v)
				values += len(encoded) - 2
				texts[v]++
				testkit.True(t, len(v) <= len("1 of 2") || !strings.Contains(v, " ") || texts[v] != 2 ||
					strings.HasSuffix(v, "?"), "%s repeats %q", name, v)
			case []any:
				for _, e := range v {
					walk(e)
				}
			case map[string]any:
				for key, e := range v {
					if list, ok := e.([]any); ok && (key == "step_inputs" || key == "step_expected_outputs") {
						parts += len(list)
					}
					if files, ok := e.(map[string]any); ok && key == "outputs" {
						parts += len(files)
					}
					walk(e)
				}
			}
		}

		var decoded any
		must(t, json.Unmarshal(reply, &decoded))
		walk(decoded)
		testkit.True(t, len(reply)-values <= 600+100*parts,
			"%s: the frame has %d characters, with %d inputs and outputs:\n%s", name, len(reply)-values, parts, reply)
	}
}
