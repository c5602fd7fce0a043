package attempt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/transcript"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/state"
)

// stop_attempt ends the whole group, drops what is queued, keeps the worktree, and a follow-up goes on.
func TestStop(t *testing.T) {
	p, s := opened(t)
	v := s.newTask("! stubborn", "! write work.txt precious", "! fork", "! touch "+p.up, "! sleep 1h")
	r := s.begin(v)
	appears(t, p.up)
	s.reaches(r.AttemptID, task.Running)
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionQueue, Prompt: new("! say never")})
	r = s.stopAttempt(r.AttemptID)
	testkit.True(t, containsAll(deref(r.Notice), "was dropped", "! say never", "Send it again"),
		"of what was queued it says %q", deref(r.Notice))
	testkit.Equal(t, r.State, "stopped")
	testkit.Need(t, r.EndedAt != nil, "%+v", r)
	testkit.Need(t, r.QueuedFollowUp == nil, "%+v", r)
	testkit.Equal(t, strings.Join(r.Repos[0].ChangedFiles, " "), "work.txt")

	now := s.task(v.TaskID)
	testkit.Equal(t, now.Status, "inprogress")
	testkit.True(t, !now.LastAttemptFailed, "%+v", now)
	testkit.True(t, !now.HasInProgressAttempt, "%+v", now)

	groupEnds(t, p.up)
	again := s.stopAttempt(r.AttemptID)
	testkit.True(t, again.State == "stopped" && strings.Contains(deref(again.Notice), "already"),
		"stopped again: %+v", again)
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! say on")})
	r = s.ends(r.AttemptID)
	out := s.output(r.AttemptID)
	testkit.Equal(t, r.State, "completed")
	testkit.Contains(t, out, "agent resumed\non\n")
	testkit.True(t, !strings.Contains(out, "never"), "%s:\n%s", r.State, out)
}

// A link in the place of an attempt's records is not followed, and logged once. Other attempts go
// on; stop_attempt says what hinders it, and the attempt is stopped when its records are back.
func TestRecordsBehindALink(t *testing.T) {
	p, log := newProject(t), new(testkit.Log)
	s := p.open(func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	r := s.runs("! await " + p.hold)
	records, away := s.runOf(r.AttemptID), filepath.Join(p.Root, "..", "away")
	must(t, os.Rename(records, away))
	link(t, away, records)
	testkit.Until(t, "it is logged", func() bool {
		return strings.Contains(log.String(), "cannot tell whether an agent runs")
	})

	other := s.ran("! say on")
	testkit.Equal(t, other.State, "completed", "the other attempt")
	refused(t, testkit.Get(s.StopAttempt(ctx, me, AttemptArgs{the(r.AttemptID)})).Err(), session.StateError,
		"not_stoppable", records+" is a symbolic link")
	must(t, errors.Join(os.Remove(records), os.Rename(away, records)))
	testkit.Equal(t, s.ends(r.AttemptID).State, "stopped")

	x, last := &execution{engine: s.Engine}, lastLogged("")
	for _, why := range []string{"a", "a", "b", "a"} {
		last.log(x, "doubtful", errors.New(why))
	}
	testkit.Equal(t, strings.Count(log.String(), "doubtful"), 3, "logged … times: %s", log)

	// One whose worktree and journal are links by now is stopped, and what they lead to stays; so it is with a log.
	r = s.runs("! await " + p.hold)
	home, untouched := newVictim(t)
	tree := r.Repos[0].WorktreePath
	journal := filepath.Join(s.State().Worktrees(), ".journal", worktree.NameOf(tree)+".json")
	for path, to := range map[string]string{
		tree:    home,
		journal: filepath.Join(home, "profile"),
		filepath.Join(s.records(other.AttemptID), "log"): home,
	} {
		must(t, os.Rename(path, path+".away"))
		link(t, to, path)
	}
	testkit.Equal(t, s.stopAttempt(r.AttemptID).State, "stopped")
	testkit.Fails(t, testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: r.TaskID})).Err(), "link")
	testkit.Fails(t, testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: the(other.AttemptID)})).Err(),
		"not a folder that deepwork made")

	s.follow(FollowUpArgs{Target: the(other.AttemptID), Action: ActionSend, Prompt: new("! say again")})
	now := s.ends(other.AttemptID)
	testkit.True(t, now.State == "failed" && strings.Contains(deref(now.Error), "not a folder that deepwork made"),
		"%+v: %s", now, deref(now.Error))

	untouched()
}

// One that waits is stopped and never runs; a follow-up of another too, with what was queued behind it.
func TestStopWaiting(t *testing.T) {
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	s := p.open()
	ran, first := s.ran("! say ran"), s.runs("! await "+p.hold)
	second := s.begin(s.newTask("! say never"))
	refused(t, testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: second.TaskID})).Err(), session.StateError,
		"attempt_running")
	r := s.stopAttempt(second.AttemptID)
	testkit.Equal(t, r.State, "stopped")
	testkit.True(t, !r.Repos[0].Exists, "%+v", r)
	testkit.True(t, r.StartedAt == nil, "%+v", r)

	s.follow(FollowUpArgs{Target: the(ran.AttemptID), Action: ActionSend, Prompt: new("! say never")})
	s.follow(FollowUpArgs{Target: the(ran.AttemptID), Action: ActionQueue, Prompt: new("! say never ever")})
	r = s.stopAttempt(ran.AttemptID)
	testkit.True(t, r.State == "stopped" && r.QueuedFollowUp == nil, "%+v", r)

	must(t, os.WriteFile(p.hold, nil, 0o644))
	s.ends(first.AttemptID)
	s.ends(s.begin(s.newTask("! say last")).AttemptID) // whatever waited before it had its turn
	testkit.Equal(t, s.get(second.AttemptID).State, "stopped", "what was stopped ran")
	testkit.Equal(t, s.get(ran.AttemptID).State, "stopped", "what was stopped ran")
	testkit.True(t, !strings.Contains(s.output(ran.AttemptID), "never"), "what was stopped ran")
	testkit.Equal(t, s.output(second.AttemptID), "", "what was stopped ran")
}

// One whose workspace is being made is stopped, or fails and says why; what was made is undone.
func TestEndsWhileStarting(t *testing.T) {
	for how, orders := range map[string]string{
		"stopped":           "! sleep 1h",
		"stopped elsewhere": "! sleep 1h",
		"failed":            "! say no compiler here\n! exit 4",
	} {
		t.Run(how, func(t *testing.T) {
			p := newProject(t)
			p.Configure(setup("! touch " + p.up + "\n" + orders))
			s := p.open()
			v := s.newTask("! say never")
			r := s.begin(v)
			appears(t, p.up)
			if stopper := s; how != "failed" {
				if how != "stopped" {
					stopper = p.open(passive)
				}
				r := stopper.stopAttempt(r.AttemptID)
				testkit.Equal(t, r.State, "stopped", "the reply: %+v", r)
				testkit.True(t, !r.Repos[0].Exists, "the reply: %+v", r)
				testkit.True(t, r.StartedAt == nil, "the reply: %+v", r)
			}
			r = s.ends(r.AttemptID)
			testkit.Equal(t, r.State, board.State(strings.Fields(how)[0]))
			testkit.True(t, !r.Repos[0].Exists, "%+v, %s", r, deref(r.Error))
			testkit.Need(t, r.StartedAt == nil, "%+v, %s", r, deref(r.Error))
			testkit.True(t, r.LatestSessionID == nil, "%+v, %s", r, deref(r.Error))
			testkit.True(t, how != "failed" || strings.Contains(deref(r.Error), "no compiler here"), "%s",
				deref(r.Error))

			now := s.task(v.TaskID)
			testkit.True(t, now.Status == "inprogress" && now.LastAttemptFailed == (how == "failed"), "%+v", now)
			testkit.True(t, !strings.Contains(p.Git(p.Root, "worktree", "list"), "\n") &&
				p.Git(p.Root, "branch", "--list", "deepwork/*") == "", "worktrees or branches are left")
		})
	}
}

// An agent that another server sees to is stopped too.
func TestStopElsewhere(t *testing.T) {
	p, s := opened(t)
	r, other := s.runs("! sleep 1h"), p.open(passive)
	eve := session.Caller{Identity: "eve", Group: "team", Rights: session.RightAgents, Channel: session.ChannelHTTP}
	for _, who := range []session.Caller{eve, {}} {
		refused(t, testkit.Get(other.StopAttempt(ctx, who, AttemptArgs{the(r.AttemptID)})).Err(), session.ToolError,
			"unknown_attempt")
	}
	x := s.latest(r.AttemptID)
	testkit.True(t, x.StopAsked == nil && x.State == task.Running,
		"a call that was refused has asked for its end: %+v", x)

	began := time.Now()
	// usually half a second
	testkit.True(t, other.stopAttempt(r.AttemptID).State == "stopped" && time.Since(began) < 8*time.Second,
		"it took %v", time.Since(began))
	testkit.Until(t, "counted by its own server", func() bool {
		return s.Stats().Ended[task.Stopped] == 1 && s.Stats().Started == 1
	})
}

// suspended makes a server look at the board once, as one that is suspended later.
func suspended(o *Options) { o.Poll = time.Hour }

// givenUp asks to stop an attempt, and gives up waiting for that.
func (s *server) givenUp(attempt string) {
	s.t.Helper()
	bounded, leave := context.WithCancel(ctx)
	asked := make(chan error, 1)
	go func() { asked <- testkit.Get(s.StopAttempt(bounded, me, AttemptArgs{the(attempt)})).Err() }()
	testkit.Until(s.t, "asked to stop", func() bool { return s.latest(attempt).StopAsked != nil })

	leave()
	testkit.FailsWith(s.t, <-asked, context.Canceled, "a stop that nobody carries out")
	testkit.Equal(s.t, s.latest(attempt).State, task.Running)
}

// While a task is deleted nothing of it is started, by whatever server; a deletion that is refused leaves a
// task that can be worked on, and one that was cut short is finished by the same call again.
func TestNothingIsStartedOfWhatIsDeleted(t *testing.T) {
	p, s := opened(t)
	v := s.newTask("! write loose.txt loose")
	r := s.ends(s.begin(v).AttemptID)
	testkit.Get(s.store().BeginDelete(ctx, v.TaskID)).Must(t) // as another server does
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, s.starting(v))).Err(), session.StateError, "being_deleted",
		"delete_task")
	for _, action := range []string{ActionSend, ActionQueue} {
		refused(t,
			testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{Target: the(r.AttemptID), Action: action, Prompt: new("x")})).
				Err(), session.StateError, "being_deleted", "delete_task")
	}

	// The first server was killed; the next call is refused, and nothing is gone.
	p.Git(p.Root, "worktree", "lock", "--reason", "I work here", r.Repos[0].WorktreePath)
	refused(t, testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Err(), session.StateError,
		"worktree_in_use", "I work here")
	testkit.Equal(t, s.ends(s.begin(v).AttemptID).State, "completed")
	p.Git(p.Root, "worktree", "unlock", r.Repos[0].WorktreePath)
	// As a server leaves it that is killed between the worktrees and the rows.
	testkit.Get(s.store().BeginDelete(ctx, v.TaskID)).Must(t)
	_, _, err := s.Worktrees(testkit.Get(s.store().Attempt(ctx, r.AttemptID)).Must(t)).Remove(ctx, r.AttemptID, false,
		func() bool { return false })
	must(t, err)
	s.stop()
	again := testkit.Get(p.open().DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Must(t)
	ref := "refs/deepwork/rescue/" + r.AttemptID
	kept := Rescue{
		AttemptID: r.AttemptID,
		RepoPath:  p.Root,
		Worktree:  r.Repos[0].WorktreePath,
		Ref:       ref,
		Commit:    p.Git(p.Root, "rev-parse", ref),
	}
	testkit.True(t, slices.Contains(again.Rescued, kept) && p.Git(p.Root, "show", ref+":loose.txt") == "loose",
		"%+v", again)
}

// A follow-up whose reply was lost is carried out once, whatever has become of it when the call is repeated.
func TestRepeatedFollowUp(t *testing.T) {
	p, s := opened(t)
	on := the(s.ran("! say first").AttemptID)
	calls := []FollowUpArgs{{Action: ActionSend, Prompt: new("! await " + p.hold)}, {
		Action: ActionQueue,
		Prompt: new("! say more"),
	}, {Action: ActionCancel}, {Action: ActionQueue, Prompt: new("! say other")}}
	for _, repeated := range []bool{false, true, true} { // the last time when all has ended
		for i, c := range calls {
			c.Target, c.RequestID = on, new("0123"[i:i+1])
			f := testkit.Get(s.FollowUp(ctx, me, c)).Must(t)
			testkit.Same(t, []any{f.Status + deref(f.DroppedPrompt), strings.Contains(deref(f.Notice), "earlier call")},
				[]any{[]string{"started", "queued", "cancelled! say more", "queued"}[i], repeated}, "follow_up")
		}

		if repeated {
			must(t, os.WriteFile(p.hold, nil, 0o644))
			testkit.Until(t, "what was queued has run", func() bool {
				x := s.executions(*on.AttemptID)
				return len(x) == 3 && x[0].EndedAt != nil
			})
		}
	}
	other := FollowUpArgs{Target: on, Action: ActionSend, Prompt: new("! say x"), RequestID: new("0")}
	refused(t, testkit.Get(s.FollowUp(ctx, me, other)).Err(), session.ToolError, "request_id_reused")
}

// A request_id is good for one thing, also if that could not be made again: when that is deleted it says so,
// and makes no second one.
func TestRequestsAfterDeletion(t *testing.T) {
	p, s := opened(t)
	project, _ := s.rootProject()
	create := board.CreateTaskArgs{ProjectID: project, Title: "One", RequestID: new("call-1")}
	v := testkit.Get(s.CreateTask(ctx, me, create)).Must(t)
	start := s.starting(v)
	start.RequestID = new("call-2")
	r := testkit.Get(s.StartTaskAttempt(ctx, me, start)).Must(t)
	s.ends(r.AttemptID)
	p.Git(p.Root, "branch", "-m", "main", "trunk")
	testkit.Equal(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Must(t).AttemptID, r.AttemptID,
		"a repeated call made a second attempt")
	testkit.Equal(t, testkit.Get(s.ListTaskAttempts(ctx, me, board.ListTaskAttemptsArgs{TaskID: v.TaskID})).
		Must(t).Total, 1)

	testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Must(t)
	refused(t, testkit.Get(s.CreateTask(ctx, me, create)).Err(), session.ToolError, "deleted_since", "request_id")
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Err(), session.ToolError, "deleted_since", "request_id")
	refused(t,
		testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{
			ProjectID: nobody,
			Title:     "One",
			RequestID: new("call-3"),
		})).Err(), session.ToolError, "unknown_project", nobody)
}

// lockTrees has the worktrees of an attempt be worked on.
func (s *server) lockTrees(r *AttemptReply) *durable.FileLock {
	s.t.Helper()
	lock, err := durable.TryLock(filepath.Join(s.State().Worktrees(), ".journal", "locks",
		"attempt-"+worktree.NameOf(r.Repos[0].WorktreePath)+".lock"))
	testkit.Need(s.t, err == nil && lock != nil, "%v %v", lock, err)
	return lock
}

// An attempt that is started while the worktrees of others go would be deleted
// with the task and its worktree left: it is refused from the first moment on.
func TestDeleteKeepsStartsOut(t *testing.T) {
	p := newProject(t)
	s, other := p.open(), p.open()
	v := s.newTask("! say x")
	r := s.ends(s.begin(v).AttemptID)
	lock, done := s.lockTrees(r), make(chan error, 1)
	go func() {
		_, err := s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})
		done <- err
	}()
	testkit.Until(t, "being removed", func() bool { return len(testkit.Get(s.store().Deleting(ctx)).Must(t)) > 0 })

	refused(t, testkit.Get(other.StartTaskAttempt(ctx, me, other.starting(v))).Err(), session.StateError,
		"being_deleted", "delete_task")
	must(t, errors.Join(lock.Unlock(), <-done))
}

// delete_task removes rows and worktrees, and no work: what is not committed is
// under a ref, and branches with commits stay.
func TestDeleteTask(t *testing.T) {
	p, s := opened(t)
	v := s.newTask("! write done.txt committed", "! commit half of it", "! write loose.txt loose",
		"! write README changed")
	first := s.ends(s.begin(v).AttemptID)
	second := s.ends(s.begin(v, func(a *StartArgs) { a.Executor, a.Prompt = "TEST", new("! say only") }).AttemptID)
	third := s.ran("! say another task")
	servers := testkit.Get(state.Find(first.Repos[0].WorktreePath)).Must(t) // in the workspace
	must(t, servers.Make())
	testkit.Need(t, servers.Dir != s.State().Dir && Exists(servers.Dir), "%v", servers.Dir)

	nested := filepath.Join(first.Repos[0].WorktreePath, "nested")
	p.Git(p.Root, "init", "-q", nested)
	p.Git(nested, "-c", "user.name=Una", "-c", "user.email=una@example.com", "commit", "-q", "--allow-empty", "-m",
		"nowhere else")
	refused(t, testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Err(), session.StateError,
		"work_not_kept", first.AttemptID, "refs/deepwork/rescue/"+second.AttemptID)
	must(t, os.RemoveAll(nested))
	r := testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Must(t)
	testkit.Need(t, r.TaskID == v.TaskID, "%+v", r)
	testkit.Need(t, r.Deleted, "%+v", r)
	testkit.Need(t, len(r.Rescued) == 2, "%+v", r)

	for _, kept := range r.Rescued {
		testkit.True(t, (kept.AttemptID == first.AttemptID || kept.AttemptID == second.AttemptID), "%+v", kept)
		testkit.Equal(t, kept.RepoPath, p.Root)
		testkit.True(t, strings.HasPrefix(kept.Ref, "refs/deepwork/rescue/"+kept.AttemptID), "%+v", kept)
		testkit.Equal(t, p.Git(p.Root, "rev-parse", kept.Ref), kept.Commit)
		for name, want := range map[string]string{"loose.txt": "loose", "README": "changed", "done.txt": "committed"} {
			testkit.Equal(t, p.Git(p.Root, "show", kept.Ref+":"+name), want, "%s of %s", name, kept.Ref)
		}
	}
	testkit.Equal(t, p.Git(p.Root, "log", "-1", "--format=%s", first.WorkspaceBranch), "half of it", "the branch")

	refused(t, testkit.Get(s.GetTask(ctx, me, board.TaskArgs{TaskID: v.TaskID})).Err(), session.ToolError,
		"unknown_task")
	refused(t, testkit.Get(s.GetAttempt(ctx, me, AttemptArgs{the(first.AttemptID)})).Err(), session.ToolError,
		"unknown_attempt")
	testkit.True(t, !Exists(first.Repos[0].WorktreePath),
		"folders of the attempt, or the state of its servers, are left")
	testkit.True(t, !Exists(s.records(first.AttemptID)),
		"folders of the attempt, or the state of its servers, are left")
	testkit.True(t, !Exists(servers.Dir), "folders of the attempt, or the state of its servers, are left")
	testkit.True(t, Exists(third.Repos[0].WorktreePath), "more is gone, or left")
	testkit.Equal(t, s.get(third.AttemptID).State, "completed", "more is gone, or left")
	testkit.True(t, Exists(s.State().Dir), "more is gone, or left")
	testkit.Equal(t, strings.Count(p.Git(p.Root, "worktree", "list"), "\n"), 1, "more is gone, or left")
}

// A follow-up that begins while its worktree is being removed waits for the end of
// the removal, and does not run in what is left.
func TestStartGivesWayToRemoval(t *testing.T) {
	s := newProject(t).open()
	r := s.ran("! say x")
	lock := s.lockTrees(r)
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! say never")})
	s.reaches(r.AttemptID, task.Starting)
	must(t, errors.Join(os.RemoveAll(r.Repos[0].WorktreePath), lock.Unlock()))
	r = s.ends(r.AttemptID)
	testkit.Equal(t, r.State, "failed")
	testkit.Contains(t, deref(r.Error), "is gone")
	testkit.True(t, !strings.Contains(s.output(r.AttemptID), "never"), "%+v: %s", r, deref(r.Error))
}

// stream returns the lines that a real agent printed.
func stream(t *testing.T, name string) []string {
	t.Helper()
	return strings.Split(strings.TrimSpace(
		string(testkit.Get(os.ReadFile(filepath.Join("transcript", "testdata", name+".jsonl"))).Must(t))), "\n")
}

// However the output is cut into pages, the messages are the same, also of lines that are logged in
// pieces, with lines on stderr in between.
func TestMessagesByPage(t *testing.T) {
	var entries []runner.Entry
	log := func(stream, text string) {
		for ; len(text) > runner.MaxLine; text = text[runner.MaxLine:] {
			entries = append(entries, runner.Entry{
				Index:  int64(len(entries)),
				Time:   time.Unix(0, 0),
				Stream: stream,
				Text:   text[:runner.MaxLine],
			})
			if len(entries)%2 == 0 {
				entries = append(entries, runner.Entry{
					Index:  int64(len(entries)),
					Time:   time.Unix(0, 0),
					Stream: runner.Stderr,
					Text:   "in between",
				})
			}
		}
		entries = append(entries, runner.Entry{
			Index:  int64(len(entries)),
			Time:   time.Unix(0, 0),
			Stream: stream,
			Text:   text,
		})
	}
	log(runner.System, "started")
	for _, line := range stream(t, "codex_tools") {
		log(runner.Stdout, line)
	}
	log(runner.Stdout, fmt.Sprintf(`{"type":"item.completed","item":{"id":"9","type":"agent_message","text":%q}}`,
		strings.Repeat("long ", 50_000)))
	log(runner.Stdout, "plain")
	log(runner.Stdout, `{"torn":"`+strings.Repeat("x", runner.MaxLine))
	entries = entries[:len(entries)-1] // its end is missing
	log(runner.System, "ended")
	whole, next := messagesOf(entries, len(entries), true)
	testkit.Need(t, next == int64(len(entries)-1) && len(whole) >= 14, "%d messages, next %d", len(whole), next)

	for _, most := range []int{1, 2, 3, 7} {
		var all []Message
		after := int64(-1)
		for after < next {
			page := entries[after+1:]
			got, now := messagesOf(page[:min(len(page), most+linePieces)], most, false)
			testkit.Need(t, now > after, "with pages of %d lines it does not go on after %d", most, after)
			all, after = append(all, got...), now
		}
		testkit.Same(t, all, whole, "with pages of %d lines", most)
	}
}

// A line whose end is missing is given when its agent has ended, or when it is longer than any.
func TestMessageWithoutAnEnd(t *testing.T) {
	piece := runner.Entry{Index: 7, Stream: runner.Stdout, Text: `{"` + strings.Repeat("x", runner.MaxLine-2)}
	all, next := messagesOf([]runner.Entry{piece}, 9, false)
	testkit.True(t, len(all) <= 0 && next == 6, "%d messages, next %d", len(all), next)
	all, next = messagesOf([]runner.Entry{piece}, 9, true)
	testkit.Need(t, len(all) == 1, "%d messages, next %d", len(all), next)
	testkit.Equal(t, next, 7, "%d messages, next %d", len(all), next)
	testkit.True(t, all[0].Cut, "%d messages, next %d", len(all), next)

	var long []runner.Entry
	for i := range linePieces {
		piece.Index = int64(i)
		long = append(long, piece)
	}
	all, next = messagesOf(long, 9, false)
	testkit.Need(t, len(all) == 1, "%d messages, next %d", len(all), next)
	testkit.Equal(t, next, linePieces-1, "%d messages, next %d", len(all), next)
	testkit.Equal(t, len(all[0].Text), transcript.MaxText, "%d messages, next %d", len(all), next)
}

// tail_attempt reads what an agent does, raw output remains, and what each execution used is summed
// for the attempt and the task; a failed execution counts, and says why it failed.
func TestOutputAndCostOfAgents(t *testing.T) {
	s := newProject(t).open()
	orders := func(name string, more ...string) (lines []string) {
		for _, line := range stream(t, name) {
			lines = append(lines, "! say "+line)
		}
		return append(lines, more...)
	}
	v := s.newTask(orders("claude", "! nonsense")...)
	r := s.ends(s.begin(v).AttemptID)
	testkit.Equal(t, r.State+": "+board.State(deref(r.Error)),
		"failed: The agent ended with exit code 97. Its last lines on stderr:\nnonsense unknown order \"nonsense\"")

	want := &board.Cost{
		USD:        new(0.01574),
		Executions: 1,
		Input:      new(int64(48)),
		Cached:     new(int64(9200)),
		Output:     new(int64(160)),
		Turns:      new(int64(5)),
	}
	testkit.Same(t, r.Cost, want, "it cost")
	testkit.Same(t, s.task(v.TaskID).Cost, want, "it cost")

	tail := testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: the(r.AttemptID), AfterIndex: new(int64(-1))})).Must(t)
	var said []Message
	var kinds []string
	for _, m := range tail.Messages {
		if m.Kind != runner.System && m.Kind != runner.Stderr { // whose order is another
			said, kinds = append(said, m), append(kinds, m.Kind)
		}
	}
	got := strings.Join(kinds, " ")
	testkit.Need(t, got == "output reasoning message tool_call tool_result tool_call tool_call tool_result "+
		"tool_result tool_call tool_result message" && len(tail.Entries) == 0, "%v", got)
	testkit.Equal(t, said[3].Tool, "Bash")
	testkit.Equal(t, said[3].CallID, said[4].CallID)
	testkit.Equal(t, said[4].Text, "hello")
	testkit.Contains(t, s.output(r.AttemptID), stream(t, "claude")[0], "the raw output")

	// A follow-up of an agent that reports nothing.
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! say more")})
	want.Executions, want.Unknown = 2, 1
	r = s.ends(r.AttemptID)
	testkit.Equal(t, r.State, "completed")
	testkit.Same(t, r.Cost, want, "both cost")
	testkit.Same(t, s.task(v.TaskID).Cost, want, "all cost")

	first := &board.ExecutionCost{
		USD:    want.USD,
		Input:  want.Input,
		Cached: want.Cached,
		Output: want.Output,
		Turns:  want.Turns,
	}
	each := s.executions(r.AttemptID)
	testkit.Same(t, []*board.ExecutionCost{each[0].Cost, each[1].Cost}, []*board.ExecutionCost{{}, first}, "each cost")

	// An agent that reports no cost.
	want = &board.Cost{
		Executions: 1,
		Unknown:    1,
		Input:      new(int64(1000)),
		Cached:     new(int64(5000)),
		Output:     new(int64(200)),
		Turns:      new(int64(1)),
	}
	testkit.Same(t, s.ran(orders("codex")...).Cost, want, "the other one cost")
}

// What each execution was asked, how it ended and what it printed can be read after the ones that followed
// it, one by one.
func TestEarlierExecutionsStayVisible(t *testing.T) {
	p, s := opened(t)
	r := s.ran("! prompt", "! say first", "! nonsense")
	on := the(r.AttemptID)
	s.follow(FollowUpArgs{Target: on, Action: ActionSend, Prompt: new("! say second")})
	s.ends(r.AttemptID)
	s.follow(FollowUpArgs{Target: on, Action: ActionSend, Prompt: new("! say third\n! await " + p.hold)})
	s.reaches(r.AttemptID, task.Running)
	s.prints(r.AttemptID, "third")
	x := s.executions(r.AttemptID)
	testkit.Need(t, len(x) == 3, "the executions are %s", asJSON(x))

	var reply *TailReply
	for i, c := range []struct {
		state               board.State
		final, prompt, says string
	}{{board.Running, "", "! say third", "|third|"}, {board.Completed, "done", "! say second", "|second|done|"},
		{board.Failed, "first", "# Add a basket", "|first|"}} {
		testkit.Equal(t, x[i].State, c.state, "execution %d is %s", i, asJSON(x[i]))
		testkit.True(t, strings.HasPrefix(x[i].Prompt, c.prompt), "execution %d is %s", i, asJSON(x[i]))
		testkit.Equal(t, deref(x[i].FinalMessage), c.final, "execution %d is %s", i, asJSON(x[i]))

		reply = testkit.Get(s.TailAttempt(ctx, me, TailArgs{
			Target:      on,
			ExecutionID: &x[i].ExecutionID,
			AfterIndex:  new(int64(-1)),
			Limit:       new(MaxTail),
		})).Must(t)
		said := texts(reply.Messages, "output")
		for _, other := range []string{"|third|", "|second|", "|first|"} {
			testkit.Equal(t, strings.Contains(said, other), strings.Contains(c.says, other),
				"execution %d said %s", i, said)
		}
		testkit.True(t, strings.Contains(said, c.says) && reply.State == c.state, "%s: %s", reply.State, said)
	}
	rest := testkit.Get(s.TailAttempt(ctx, me,
		TailArgs{Target: on, ExecutionID: &x[2].ExecutionID, AfterIndex: &reply.NextIndex, Wait: new(20.0)})).Must(t)
	testkit.Need(t, len(rest.Messages) == 0, "after the first: %+v", rest)
	testkit.Equal(t, rest.NextIndex, reply.NextIndex, "after the first: %+v", rest)
	testkit.Contains(t, deref(x[2].Error), "unknown order \"nonsense\"", "after the first: %+v", rest)

	refused(t, testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: on, ExecutionID: &r.AttemptID})).Err(),
		session.ToolError, "unknown_execution", r.AttemptID)

	// A call that waits for the next line gets it.
	at := testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: on, Limit: new(1)})).Must(t).NextIndex
	must(t, os.WriteFile(p.hold, nil, 0o644))
	more := testkit.Get(s.TailAttempt(ctx, me, TailArgs{Target: on, AfterIndex: &at, Wait: new(20.0), Raw: new(true)})).
		Must(t)
	testkit.True(t, len(more.Entries) > 0 && more.Entries[0].Index == at+1, "after %d: %+v", at, more)
	s.ends(r.AttemptID)

	// One that waits has no output yet, whatever others printed before.
	command := p.open(passive)
	s.stop()
	command.follow(FollowUpArgs{Target: on, Action: ActionSend, Prompt: new("! say fourth")})
	reply = testkit.Get(command.TailAttempt(ctx, me,
		TailArgs{Target: on, ExecutionID: &command.executions(r.AttemptID)[0].ExecutionID, Wait: new(0.1)})).Must(t)
	testkit.Need(t, len(reply.Messages) == 0, "%+v", reply)
	testkit.Equal(t, reply.State, "queued")
	testkit.Equal(t, reply.NextIndex, -1)
}

// costs is the order to an agent to report a cost.
func costs(usd string) string {
	return `! say {"type":"result","subtype":"success","result":"done","total_cost_usd":` + usd +
		`,"num_turns":1,"modelUsage":{"m":{"inputTokens":1}}}`
}

func upTo(usd float64) func(*config.Config) {
	return func(c *config.Config) { c.Attempts.MaxCostUSD = &config.Limit{Max: usd, File: ".deepwork/config.yml"} }
}

// Once the executions have cost what they may, nothing starts: calls are refused, and what waits says
// why, until the limit is raised. What failed or was deleted counts.
func TestBudgetOfCosts(t *testing.T) {
	p := newProject(t)
	p.Configure(upTo(0.3))
	s := p.open()
	first := s.newTask(costs("0.1"))
	s.ends(s.begin(first).AttemptID)
	failed, long := s.newTask(costs("0.2"), "! exit 3"), s.runs("! await "+p.hold, costs("0.05"))
	send := FollowUpArgs{Target: the(long.AttemptID), Action: ActionQueue, Prompt: new(costs("0.01"))}
	testkit.Get(s.FollowUp(ctx, me, send)).Must(t)
	b := s.ends(s.begin(failed).AttemptID)
	testkit.Need(t, b.State == "failed", "%+v", b)

	testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: first.TaskID})).Must(t)
	next := s.newTask("! say hello")
	start := s.starting(next)
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Err(), session.StateError, "budget_reached",
		"cost 0.3 USD", "attempts.max_cost_usd is 0.3", "raise attempts.max_cost_usd in .deepwork/config.yml")
	for _, action := range []string{ActionSend, ActionQueue} {
		refused(t,
			testkit.Get(s.FollowUp(ctx, me, FollowUpArgs{
				Target: the(b.AttemptID),
				Action: action,
				Prompt: new("more"),
			})).Err(), session.StateError, "budget_reached", "0.3 USD")
	}

	eve := session.Caller{Identity: "eve", Rights: session.RightAgents}
	own := testkit.Get(s.CreateTask(ctx, eve, board.CreateTaskArgs{ProjectID: next.ProjectID, Title: "x"})).Must(t)
	_, err := s.StartTaskAttempt(ctx, eve, StartArgs{TaskID: own.TaskID, Executor: "TEST", Repos: start.Repos})
	refused(t, err, session.StateError, "budget_reached", "attempts.max_cost_usd is 0.3")
	testkit.True(t, !strings.Contains(fmt.Sprint(err), "USD"), "it says the costs of others: %v", err)

	// What was queued before waits.
	must(t, os.WriteFile(p.hold, nil, 0o644))
	s.reaches(long.AttemptID, task.Waiting)
	testkit.Until(t, "the figures of metrics", func() bool {
		return s.Stats().Spent == task.Spent{Executions: 3, MicroUSD: 350_000, InputTokens: 3}
	})

	held := "Nothing that waits is started, since a budget of this project is reached: the executions that have " +
		"ended cost 0.35 USD, and attempts.max_cost_usd is 0.3."
	for _, notice := range []*string{s.get(long.AttemptID).Notice,
		testkit.Get(s.ListTaskAttempts(ctx, me, board.ListTaskAttemptsArgs{TaskID: long.TaskID})).Must(t).Notice} {
		testkit.Contains(t, deref(notice), held)
	}

	items := func() (all []board.Attention) {
		other := func(i board.Attention) bool { return i.Kind != board.AttentionBudget }
		return slices.DeleteFunc(testkit.Get(s.NeedsAttention(ctx, me)).Must(t).Items, other)
	}
	got := items()
	testkit.Need(t, len(got) == 1, "%+v, since %s", got, *b.EndedAt)
	testkit.Equal(t, got[0].ID, "attempts.max_cost_usd", "%+v, since %s", got, *b.EndedAt)
	testkit.Equal(t, *got[0].Since, *b.EndedAt, "%+v, since %s", got, *b.EndedAt)
	testkit.Equal(t, got[0].Title, "Budget reached: 0.35 of 0.3 USD (attempts.max_cost_usd)", "%+v, since %s", got,
		*b.EndedAt)

	s.stop()
	s = p.open()
	start.RequestID = new("again")
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Err(), session.StateError, "budget_reached", "0.35 USD")
	p.Configure(upTo(0.355))
	testkit.True(t, s.ends(long.AttemptID).State == "completed" && len(items()) == 1, "it has %d items", len(items()))
	p.Configure(upTo(1))
	started := testkit.Get(s.StartTaskAttempt(ctx, me, start)).Must(t)
	p.Configure(upTo(0))
	testkit.Equal(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Must(t).AttemptID, started.AttemptID,
		"the repeated request")
	testkit.Equal(t, len(items()), 1, "a limit of 0 is not reached")
	p.Configure(func(*config.Config) {})
	s.ends(started.AttemptID)
	testkit.Same(t, items(), nil)
}

// Unknown costs are no cost of 0: they have a limit of their own. With prices, those of later executions are
// known; of the totals of a conversation, an execution has what its earlier ones have not.
func TestBudgetOfUnknownCosts(t *testing.T) {
	p := newProject(t)
	limit := func(unknown, price float64) {
		p.Configure(func(c *config.Config) {
			upTo(0.5)(c)
			c.Attempts.MaxUnknown = &config.Limit{Max: unknown, File: "mine.yml"}
			if price > 0 {
				c.Prices = map[string]config.Price{"TEST": {Input: price}}
			}
		})
	}
	limit(2, 0)
	s := p.open()
	codex := func(thread string, tokens int) string {
		return fmt.Sprintf("! say {\"type\":\"thread.started\",\"thread_id\":%q}\n! say "+
			"{\"type\":\"turn.started\"}\n! say "+
			"{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":%d,\"output_tokens\":0}}", thread, tokens)
	}
	a := s.ran(codex("t", 100_000))
	more := func(tokens int) {
		t.Helper()
		testkit.Get(s.FollowUp(ctx, me,
			FollowUpArgs{Target: the(a.AttemptID), Action: ActionSend, Prompt: new(codex("t", tokens))})).Must(t)
		s.ends(a.AttemptID)
	}
	more(300_000) // in total
	start := s.starting(s.newTask("! say nothing known"))
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Err(), session.StateError, "budget_reached",
		"2 executions have ended with an unknown cost", "attempts.max_unknown is 2",
		"raise attempts.max_unknown in mine.yml, and give prices of the models in")
	limit(3, 1)
	more(700_000)
	c := s.get(a.AttemptID).Cost
	testkit.Need(t, c != nil, "%+v, want 0.4 USD for the last 400,000 of 700,000 tokens, and 2 that are unknown", c)
	testkit.Equal(t, c.Unknown, 2,
		"%+v, want 0.4 USD for the last 400,000 of 700,000 tokens, and 2 that are unknown", c)
	testkit.Equal(t, deref(c.USD), 0.4,
		"%+v, want 0.4 USD for the last 400,000 of 700,000 tokens, and 2 that are unknown", c)
	testkit.Equal(t, deref(c.Input), 700_000,
		"%+v, want 0.4 USD for the last 400,000 of 700,000 tokens, and 2 that are unknown", c)

	more(800_000)
	refused(t, testkit.Get(s.StartTaskAttempt(ctx, me, start)).Err(), session.StateError, "budget_reached",
		"cost 0.5 USD")
}

// The agents of one run have the prices of their own executors, also those whose programs report totals
// of a conversation and no model.
func TestCostsOfTwoExecutors(t *testing.T) {
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Prices = map[string]config.Price{"DEAR": {Input: 10}, "CHEAP": {Input: 1}} })
	s := p.open()
	a, b := s.ran("! say hello"), s.store()
	for i, x := range []struct {
		executor, thread string
		input            int64 // in all
	}{{"DEAR", "a", 1e6}, {"CHEAP", "b", 1e6}, {"DEAR", "a", 2e6}, {"CHEAP", "b", 3e6}} {
		u := testkit.Get(s.usageOf(ctx, b, a.AttemptID, x.executor,
			&transcript.Usage{Models: map[string]transcript.Tokens{"": {Input: x.input}}, Thread: x.thread})).Must(t)
		must(t, b.AddUse(ctx, task.Use{
			AttemptID:   a.AttemptID,
			ExecutionID: fmt.Sprint(i),
			Executor:    x.executor,
			Reported:    true,
			Usage:       *u,
		}))
	}
	c := s.get(a.AttemptID).Cost
	testkit.Need(t, c != nil, "they cost %+v, want 23 USD", c)
	testkit.Equal(t, deref(c.USD), 23, "they cost %+v, want 23 USD", c)
	testkit.Equal(t, c.Unknown, 1, "they cost %+v, want 23 USD", c) // and the agent itself
}
