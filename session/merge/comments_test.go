package merge

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
)

func (s *server) comment(a CommentArgs) *CommentsReply {
	s.t.Helper()
	return testkit.Get(CommentAttempt(ctx, s.Engine, me, a)).Must(s.t)
}

// noComment checks why comments are refused.
func (s *server) noComment(a CommentArgs, kind session.Kind, code string, mentions ...string) {
	s.t.Helper()
	refused(s.t, testkit.Get(CommentAttempt(ctx, s.Engine, me, a)).Err(), kind, code, mentions...)
}

// on is a comment on a line.
func on(file string, line int, text string) CommentArg {
	return CommentArg{File: file, Line: line, Text: text}
}

// Comments on lines of a diff are collected, survive a restart, can be removed, and become one
// follow-up that quotes their lines, once.
func TestCommentsBecomeOneFollowUp(t *testing.T) {
	p := newProject(t)
	testkit.Write(t, filepath.Join(p.Root, "long.txt"), strings.Repeat("same\n", 50))
	p.commit(p.Root, "gone.txt", "was here\n")
	s := p.open()
	r := s.done("! write dir/a.go package a", "! write long.txt changed", "! commit Add", "! write loose.txt \tone \x1b[31mtwo")
	testkit.Write(t, filepath.Join(r.Repos[0].WorktreePath, "long.txt"), strings.Repeat("same\n", 49)+"last\r\n")
	must(t, os.Remove(filepath.Join(r.Repos[0].WorktreePath, "gone.txt")))
	target := the(r.AttemptID)
	one := s.comment(CommentArgs{Target: target, Comments: []CommentArg{on("loose.txt", 1, "Why?\n")}})
	testkit.True(t, one.Count == 1 && one.Sent == nil && one.Comments[0].Quote == "\tone [31mtwo" && one.Comments[0].By == "local", "%s", asJSON(one))
	s.stop()
	s = p.open()
	more := s.comment(CommentArgs{Target: target, Comments: []CommentArg{on("long.txt", 50, "Not the last."), on("dir/../dir/a.go", 1, "Name it b."), on("long.txt", 10, "Far from a change."),
		{File: "gone.txt", Line: 1, Side: new("old"), Text: "Keep it.", Repo: &r.Repos[0].RepoName}, on("loose.txt", 1, "dropped")}})
	for _, c := range more.Comments {
		if c.Text == "dropped" {
			more = s.comment(CommentArgs{Target: target, Remove: []string{c.CommentID}})
		}
	}
	testkit.Equal(t, more.Count, 5)
	testkit.Same(t, s.comment(CommentArgs{Target: target}), more)
	sent := s.comment(CommentArgs{Target: target, Send: true})
	const want = `These are review comments on your changes. Address each of them, and commit. A quoted line is as it was when the comment was made.

## dir/a.go

Line 1:
> package a

Name it b.

## gone.txt

Line 1 of the version before your changes:
> was here

Keep it.

## long.txt

Line 10:
> same

Far from a change.

Line 50:
> last

Not the last.

## loose.txt

Line 1:
> ` + "\tone [31mtwo" + `

Why?
`
	testkit.True(t, deref(sent.Sent) == "started" && deref(sent.Prompt) == want && sent.Count == 0, "sent %s, %d wait:\n%s", deref(sent.Sent), sent.Count, deref(sent.Prompt))
	r = s.ends(r.AttemptID)
	x := testkit.Get(testkit.Get(s.Store(ctx)).Must(t).LatestExecution(ctx, r.AttemptID)).Must(t)
	testkit.True(t, x.Prompt == want && x.FollowUp, "the agent got %q", x.Prompt)
	s.noComment(CommentArgs{Target: target, Send: true}, session.StateError, "no_comments", r.AttemptID)
	testkit.Equal(t, len(s.get(r.AttemptID).Executions), 2, "sent twice")
}

// While the agent runs, comments are queued; a call that is repeated adds and sends nothing again; and
// comments that cannot be sent are kept.
func TestCommentsOfARunningAgent(t *testing.T) {
	p := newProject(t)
	hold, s := filepath.Join(p.Root, "..", "hold"), p.open()
	r := s.begin(s.newTask("! write a.txt a", "! touch "+hold+".ready", "! await "+hold))
	testkit.Until(t, "ready", func() bool { return attempt.Exists(hold + ".ready") })
	target := the(r.AttemptID)
	s.reaches(r.AttemptID, task.Running)
	call := CommentArgs{Target: target, Comments: []CommentArg{on("a.txt", 1, "First.")}, Send: true, RequestID: new("x")}
	first := s.comment(call)
	testkit.True(t, deref(first.Sent) == "queued" && first.Count == 1 && first.Comments[0].Queued && first.Notice != nil, "%s", asJSON(first))
	again := s.comment(call)
	testkit.True(t, again.Sent == nil && again.Count == 1 && strings.Contains(deref(again.Notice), "before"), "repeated: %s", asJSON(again))
	both := s.comment(CommentArgs{Target: target, Comments: []CommentArg{on("a.txt", 1, "Second.")}, Send: true})
	testkit.True(t, deref(both.Sent) == "queued" && both.Count == 2, "%s", asJSON(both))
	testkit.ContainsAll(t, asJSON(s.get(r.AttemptID).QueuedFollowUp), []string{"First.", "Second."})
	s.noComment(CommentArgs{Target: target, Remove: []string{both.Comments[0].CommentID}}, session.ToolError, "unknown_comment", both.Comments[0].CommentID)
	testkit.Get(s.FollowUp(ctx, me, attempt.FollowUpArgs{Target: target, Action: attempt.ActionQueue, Prompt: new("! say of a person")})).Must(t)
	kept := s.comment(CommentArgs{Target: target, Comments: []CommentArg{on("a.txt", 1, "Third.")}, Send: true})
	testkit.True(t, kept.Sent == nil && kept.Count == 3 && !kept.Comments[0].Queued, "another one is queued: %s", asJSON(kept))
	testkit.ContainsAll(t, deref(kept.Notice), []string{"kept", "queued"})
	s.noComment(CommentArgs{Target: target, Send: true}, session.StateError, "follow_up_queued", "cancel")
	must(t, os.WriteFile(hold, nil, 0o644))
	testkit.Until(t, "followed up", func() bool {
		now := s.get(r.AttemptID).Executions
		return len(now) > 1 && now[0].Prompt == "! say of a person"
	})
	s.ends(r.AttemptID)
	testkit.Equal(t, s.comment(CommentArgs{Target: target, Remove: []string{"all"}}).Count, 0)
}

// A comment that is not about a line of the diff is refused with what is wrong, and so are too many and too long ones.
func TestCommentsThatAreRefused(t *testing.T) {
	p := newProject(t)
	s := p.open()
	r := s.done("! write dir/a.txt a", "! write image x")
	testkit.Write(t, filepath.Join(r.Repos[0].WorktreePath, "image"), "\x00\x01\n")
	target := the(r.AttemptID)
	refuse := func(c CommentArg, code string, mentions ...string) {
		t.Helper()
		s.noComment(CommentArgs{Target: target, Comments: []CommentArg{on("dir/a.txt", 1, "fine"), c}}, session.ToolError, code, append(mentions, "comments[1]")...)
	}
	refuse(on("dir/a.txt", 3, "x"), "not_in_diff", "line 3", "last line is 1")
	refuse(on("dir/a.txt", 0, "x"), "not_in_diff", "line 0")
	refuse(CommentArg{File: "dir/a.txt", Line: 1, Side: new("old"), Text: "x"}, "not_in_diff", "old")
	refuse(CommentArg{File: "dir/a.txt", Line: 1, Side: new("left"), Text: "x"}, "unknown_side", "left")
	refuse(CommentArg{File: "dir/a.txt", Line: 1, Repo: new("other"), Text: "x"}, "unknown_repo", "other", "shop")
	for file, code := range map[string]string{"dir": "not_in_diff", "README": "not_in_diff", "no-such": "not_in_diff", "image": "not_in_diff", "../home": "bad_path", "/etc/passwd": "bad_path"} {
		refuse(on(file, 1, "x"), code, `"`+file+`"`) // README is unchanged
	}
	refuse(on("dir/a.txt", 1, " \n"), "missing_comment")
	refuse(on("dir/a.txt", 1, "a\x00b"), "not_text")
	refuse(on("dir/a.txt", 1, strings.Repeat("é", task.MaxComment+1)), "too_long", fmt.Sprint(task.MaxComment+1))
	many := slices.Repeat([]CommentArg{on("dir/a.txt", 1, "x")}, task.MaxComments+1)
	s.noComment(CommentArgs{Target: target, Comments: many}, session.ToolError, "too_many_comments", "101")
	long := slices.Repeat([]CommentArg{on("dir/a.txt", 1, strings.Repeat("x", task.MaxComment))}, board.MaxPrompt/task.MaxComment)
	s.noComment(CommentArgs{Target: target, Comments: long}, session.ToolError, "too_long", "all comments")
	testkit.Equal(t, s.comment(CommentArgs{Target: target, Comments: many[1:]}).Count, task.MaxComments, "comments")
	s.noComment(CommentArgs{Target: target, Comments: many[:1]}, session.ToolError, "too_many_comments", "101")
	refused(t, testkit.Get(CommentAttempt(ctx, s.Engine, session.Caller{Identity: "local"}, CommentArgs{Target: target, Send: true})).Err(), session.StateError, "right_needed")

	// Its workspace is gone, so nothing can be sent.
	must(t, os.RemoveAll(r.Repos[0].WorktreePath))
	s.noComment(CommentArgs{Target: target, Send: true}, session.StateError, "workspace_gone")
	s.noComment(CommentArgs{Target: target, Remove: []string{"all"}, Comments: many[:1]}, session.StateError, "workspace_gone")
	testkit.Equal(t, s.comment(CommentArgs{Target: target}).Count, task.MaxComments, "a refused call left comments")
}

// The lines of a diff are found by their file and side, whatever they and the names look like.
func TestLinesOfADiff(t *testing.T) {
	t.Parallel()
	testkit.Same(t, diffLines("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a/y\n+++ b/y\n same\n\\ No newline\ndiff --git a/z b/z\n--- /dev/null\n+++ \"b/\\303\\251 \\\"\"\t\n@@ -0,0 +1 @@\n+z\n", `é "`, "new"), map[int]string{1: "z"})
	for side, want := range map[string]map[int]string{"new": {1: "++ b/y", 2: "same"}, "old": {1: "-- a/y", 2: "same"}} {
		testkit.Same(t, diffLines("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a/y\n+++ b/y\n same\n", "x", side), want, "%s", side)
	}
}
