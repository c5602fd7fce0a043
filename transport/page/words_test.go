package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/merge"
	"deepwork/session/store"
	"deepwork/session/workflow"
)

// What was done with a branch is said in words, without what the page beside it shows.
func TestWhatWasDoneWithABranch(t *testing.T) {
	commit := "0123456789abcdef"
	for want, repo := range map[string]merge.Repo{
		"shop: merged into main (01234567).\nThe task is done.": {
			Status: merge.Merged,
			Commit: &commit,
		},
		"shop: merged into main (0123).":                               {Status: merge.Merged, Commit: new("0123")},
		"shop: rebased on main.\nLook.":                                {Status: merge.Rebased, Notice: new("Look.")},
		"shop: there was nothing to do; the branch it is for is main.": {Status: merge.Unchanged, Commit: &commit},
		"shop: has conflicts with main.": {
			Status:    merge.Conflicts,
			Commit:    &commit,
			Notice:    new("Look."),
			Untracked: []string{"a"},
		},
		"shop: pushed; the branch it is for is main.\nIn no commit, and so left in the " +
			"worktree: a, b.": {Status: merge.Pushed, Untracked: []string{"a", "b"}},
		"shop: the merge is undone; the branch it is for is main.\nWhat was there is kept: git -C /r show " +
			"--first-parent refs/x": {Status: merge.Aborted, Rescue: &attempt.Rescue{RepoPath: "/r", Ref: "refs/x"}},
	} {
		repo.RepoName, repo.TargetBranch = "shop", "main"
		testkit.Equal(t, outcome(
			&merge.Reply{Repos: []merge.Repo{repo}, TaskDone: strings.Contains(want, "is done")}), want)
	}
}

// The parts of a file that both sides have changed are shown as each has them, up to a number.
func TestConflictsOfAFile(t *testing.T) {
	part := func(ours, theirs string) string {
		return "same\n<<<<<<< HEAD\n" + ours + "\n||||||| base\nbefore\n=======\r\n" + theirs +
			"\n>>>>>>> other\nsame\n=======\n>>>>>>> no part\n"
	}
	dir := t.TempDir()
	testkit.WriteAll(t, dir, map[string]string{
		"a.txt":    part("mine", "yours") + part("left", "right"),
		"many.txt": strings.Repeat(part("a", "b"), maxConflicts+2),
		"none.txt": "text",
		"cut.txt":  "<<<<<<< HEAD\nmine\n=======\nyours",
	})

	repo := attempt.AttemptRepo{
		WorktreePath: dir,
		Conflicts:    []string{"a.txt", "many.txt", "none.txt", "cut.txt", "deleted.txt"},
	}
	for len(repo.Conflicts) < maxConflictFiles {
		repo.Conflicts = append(repo.Conflicts, "none.txt")
	}
	repo.Conflicts = append(repo.Conflicts, "a.txt")
	all := conflictsOf(repo)
	testkit.Equal(t, len(all), maxConflictFiles+1)

	var got []string
	for _, f := range all {
		text := fmt.Sprint(filepath.Base(f.Path), " ", f.More)
		for _, p := range f.Parts[:min(2, len(f.Parts))] {
			text += fmt.Sprintf(" %d:%s|%s", p.Line, p.Ours, p.Theirs)
		}
		got = append(got, fmt.Sprint(text, " of ", len(f.Parts)))
	}
	testkit.Same(t, got[:5], []string{"a.txt 0 2:mine|yours 13:left|right of 2",
		fmt.Sprintf("many.txt 2 2:a|b 13:a|b of %d", maxConflicts), "none.txt 0 of 0", "cut.txt 0 1:| of 1",
		"deleted.txt 0 of 0"})
	testkit.Equal(t, got[maxConflictFiles], "a.txt 0 of 0", "a file beyond those that are read")
}

// A page has the newest messages that fit, or the oldest, and never a part of those of one line.
func TestMessagesThatFit(t *testing.T) {
	messages := func(size int, indexes ...int64) (all []attempt.Message) {
		for _, i := range indexes {
			all = append(all, attempt.Message{Index: i, Text: strings.Repeat("x", size)})
		}
		return all
	}
	for _, c := range []struct {
		all    []attempt.Message
		newest bool
		want   string
	}{
		{nil, true, "[] false"},
		{messages(10, 1, 2, 3), true, "[1 2 3] false"},
		{messages(10, 1, 2, 3), false, "[1 2 3] false"},
		{messages(maxTalk, 1, 2, 3, 4, 5), true, "[3 4 5] true"}, // each is cut
		{messages(maxTalk, 1, 2, 3, 4, 5), false, "[1 2 3] true"},
		{messages(maxTalk/4-messageBytes, 1, 2, 3, 4, 5), true, "[2 3 4 5] true"},
		{messages(maxTalk/4-messageBytes, 1, 2, 3, 4, 5), false, "[1 2 3 4] true"},
		{messages(maxTalk, 1, 2, 3, 3, 3, 4), false, "[1 2 3 3 3] true"},
	} {
		fits, cut := fitting(c.all, c.newest)
		var indexes []int64
		for _, m := range fits {
			indexes = append(indexes, m.Index)
			testkit.True(t, len(m.Text) <= maxMessage+10, "a text of %d bytes", len(m.Text))
		}
		testkit.Equal(t, fmt.Sprint(indexes, cut), c.want, "%d, newest %t", len(c.all), c.newest)
	}
}

// What needs a person says what it is and offers what the person can do about it.
func TestWhatNeedsAPerson(t *testing.T) {
	complete := &workflow.SessionInfo{Session: store.Session{Status: "completed"}}
	active := &workflow.SessionInfo{Session: store.Session{Status: "active", MovedBy: "gone"}}
	testkit.Equal(t, sessionItem(active).Status, "idle", "of a session whose server has ended")

	for _, c := range []struct {
		a    board.Attention
		of   *workflow.SessionInfo
		want string
	}{
		{board.Attention{Kind: board.AttentionUntrusted}, nil,
			"project, not approved: read what it asks for, then approve it at a terminal. Read… at /trust"},
		{board.Attention{Kind: board.AttentionSource}, nil,
			"execution, waiting_for_you: answer it at that system. Open at /sources"},
		{board.Attention{Kind: board.AttentionBudget}, nil,
			"budget, reached: no agent starts until you raise it. Open at /board"},
		{board.Attention{
			Kind:  board.AttentionStep,
			Waits: &session.AwaitingStep{Step: "s"},
		}, nil,
			"session, waiting_for_you: its review failed: override it, or have the agent do it again. Decide… " +
				"(person) at /sessions/a#decide-a-s"},
		{board.Attention{
			Kind:  board.AttentionStep,
			Waits: &session.AwaitingStep{Step: "s", Review: true},
			Why:   new("A person has to pass it"),
		}, nil, "session, waiting_for_you: A person has to pass it. Pass… (person) at /sessions/a#decide-a-s"},
		{board.Attention{Kind: board.AttentionFailed, State: new(board.Failed)}, nil,
			"agent, failed: read its last messages, then send a follow-up or start another. Open at /attempts/a"},
		{board.Attention{Kind: board.AttentionFailed, State: new(board.Failed), Why: new("It broke.\nBadly.")}, nil,
			"agent, failed: It broke.. Open at /attempts/a"},
		{board.Attention{Kind: board.AttentionConflicts, State: new(board.Failed)}, nil,
			"agent, failed: resolve them, or undo the merge. Resolve… at /attempts/a"},
		{board.Attention{Kind: board.AttentionConflicts, State: new(board.Failed), End: &board.RunEnd{}}, nil,
			"run, failed: resolve them, or undo the merge. Resolve… at /attempts/a"},
		{board.Attention{Kind: board.AttentionRun, State: new(board.Failed), Why: new("It is gone.")}, nil,
			"run, failed: It is gone.. Resume (agents) to /attempts/a/resume"},
		{board.Attention{Kind: board.AttentionRun, State: new(board.Paused), Why: new("It cost 5.")}, nil,
			"run, paused: It cost 5.. Resume… (agents) at /attempts/a#resume"},
		{board.Attention{Kind: board.AttentionReview, State: new(board.Completed)}, nil,
			"agent, completed: . Review at /attempts/a"},
		{board.Attention{Kind: board.AttentionReview, State: new(board.Completed)}, active,
			"agent, completed: . Review at /attempts/a"},
		{board.Attention{Kind: board.AttentionReview, State: new(board.Completed)}, complete,
			"agent, completed: its workflow is complete. Merge… (merge) at /attempts/a?tab=changes"},
		{board.Attention{Kind: board.AttentionReview, State: new(board.Completed), End: &board.RunEnd{}}, nil,
			"run, completed: its workflow is complete. Merge… (merge) at /attempts/a?tab=changes"},
		{board.Attention{Kind: board.AttentionReview, State: new(board.Completed), End: &board.RunEnd{}, InPlace: true},
			nil, "run, completed: its workflow is complete. Done to /tasks/t"},
	} {
		c.a.ID = "a"
		c.a.TaskID = "t"
		c.a.Since = new("2026-01-02T03:04:05Z")
		i := attentionItem(c.a, c.of)
		does := "nothing"
		if d := i.Do; d != nil {
			does = strings.TrimSuffix(d.Label+" ("+d.Right+")",
				" ()") + strings.TrimSuffix(" at "+d.Link+" to "+d.Post, " to ")
			does = strings.Replace(does, " at  to ", " to ", 1)
		}
		testkit.Equal(t, i.Kind+", "+i.Status+": "+i.About+". "+does, c.want)
		testkit.Equal(t, i.Since.Year(), 2026, "%s", c.want)
	}

	merging := personAction{Label: "Merge…", Right: "merge"}
	for want, i := range map[string]*item{
		"Done":   {Changes: &diffstat{}, Do: &merging, About: "its workflow is complete"},
		"Merge":  {Changes: &diffstat{Files: 1}, Do: &merging},
		"Merge…": {Changes: &diffstat{Files: 1, Loose: true}, Do: &merging},
		"Review": {Changes: &diffstat{Files: 1}, Do: &personAction{Label: "Review"}},
	} {
		i.Do = new(*i.Do)
		i.Link = "/attempts/a"
		i.task = "t"
		i.counted()
		testkit.Equal(t, i.Do.Label, want, "%+v", i.Changes)
		testkit.Equal(t, i.About == "no changes: done?", want == "Done", "%s", i.About)
	}
}

// A piece of work has one row, whatever part of it needs a person: sessions are pieces with those nested in them,
// unless only a nested one goes on; runs and attempts with their sessions.
func TestAPieceOfWorkHasOneRow(t *testing.T) {
	in := func(id, parent, attempt, status string) *workflow.SessionInfo {
		return &workflow.SessionInfo{Session: store.Session{ID: id, Parent: parent, AttemptID: attempt, Status: status}}
	}
	of := flowsOf([]*workflow.SessionInfo{
		in("leaf", "middle", "", "active"),
		in("middle", "chat", "", "active"),
		in("chat", "", "", "active"),
		in("alone", "over", "", "active"),
		in("old", "over", "", "completed"),
		in("over", "", "", "aborted"),
		in("lost", "pruned", "", "active"),
		in("of-run", "", "run", "active"),
		in("older", "", "run", "completed"),
		in("below-run", "of-run", "run", "active"),
		in("itself", "itself", "", "active"),
	})
	for id, want := range map[string]string{
		"leaf": "chat", "chat": "chat", "alone": "over", "lost": "lost", "of-run": "run", "below-run": "run",
		"run": "run", "attempt": "attempt", "itself": "itself",
	} {
		testkit.Equal(t, of.piece(id), want, "the piece of %s", id)
	}
	testkit.Equal(t, of["run"].ID, "of-run", "the workflow of the run")
	for id, want := range map[string]bool{
		"leaf": true, "middle": true, "chat": false, "alone": false, "old": true, "over": false, "lost": false,
	} {
		testkit.Equal(t, of.nested(of[id]), want, "%s is shown with another one", id)
	}

	step := func(id, attempt string) board.Attention {
		return board.Attention{
			Kind:  board.AttentionStep,
			ID:    id,
			Waits: &session.AwaitingStep{SessionID: id, Step: "s", AttemptID: attempt},
		}
	}
	var got []string
	for _, i := range needsOf([]board.Attention{
		{Kind: board.AttentionFailed, ID: "other", TaskID: "t", State: new(board.Failed)},
		{Kind: board.AttentionRun, ID: "run", TaskID: "t", State: new(board.Interrupted)},
		step("below-run", "run"), step("chat", ""), step("leaf", ""), step("elsewhere", "run"), step("chat", ""),
	}, of) {
		got = append(got, fmt.Sprintf("%s at %s and %d more", i.Kind, i.Link, i.Others))
	}
	testkit.Same(t, got, []string{"session at /sessions/below-run#decide-below-run-s and 2 more",
		"session at /sessions/chat#decide-chat-s and 2 more", "agent at /attempts/other and 0 more"}, "the rows")
}

func TestTimes(t *testing.T) {
	from := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		time.Second - 1:               "< 1 s",
		time.Second:                   "1 s",
		time.Minute - 1:               "59 s",
		time.Minute:                   "1 min",
		time.Hour - 1:                 "59 min",
		time.Hour:                     "1 h 0 min",
		26*time.Hour + 30*time.Minute: "26 h 30 min",
	} {
		testkit.Equal(t, duration(from, new(from.Add(d))), want)
	}

	text := func(at time.Time) *string { return new(at.Format(time.RFC3339Nano)) }
	ended := func(from, to *string) compared {
		return compared{FullAttemptReply: &attempt.FullAttemptReply{AttemptReply: attempt.AttemptReply{
			StartedAt: from,
			EndedAt:   to,
		}}}
	}
	testkit.Equal(t, ended(text(from), text(from.Add(time.Minute))).Took()+ended(text(from), nil).Took()+ended(nil,
		text(from)).Took(), "1 min")

	for given, want := range map[string]string{
		"":        "0s",
		" 1.5 ":   "1m30s",
		"1e6":     "16666h40m0s",
		"1000001": "",
		"0":       "",
		"-1":      "",
		"NaN":     "",
		"x":       "",
	} {
		got, err := minutes(&http.Request{PostForm: url.Values{"max_minutes": {given}}})
		testkit.True(t, err != nil && want == "" || err == nil && got.String() == want, "%q: %s, %v", given, got, err)
	}
}

// The filters of the history select when something began; the narrower ones count.
func TestTimesOfTheHistory(t *testing.T) {
	zone := time.FixedZone("there", 2*60*60)
	now := time.Date(2026, 3, 20, 9, 30, 0, 0, zone)
	day := func(d int) time.Time { return time.Date(2026, 3, d, 0, 0, 0, 0, zone) }
	for asked, want := range map[[3]string]task.HistoryQuery{
		{}:                               {},
		{"1"}:                            {Since: now.AddDate(0, 0, -1)},
		{"", "2026-03-02", "2026-03-04"}: {Since: day(2), Until: day(5)},
		{"7", "2026-03-02"}:              {Since: now.AddDate(0, 0, -7)},
		{"30", "2026-03-02"}:             {Since: day(2)},
		{"-1", "yesterday", "3/4"}:       {},
	} {
		p, q := historyPage{asked: url.Values{"days": {asked[0]}, "since": {asked[1]}, "until": {asked[2]}}},
			task.HistoryQuery{}
		p.between(&q, now)
		testkit.Same(t, q, want, asked)
	}

	half := historyPage{Totals: task.HistoryTotals{Judged: 3, FirstTry: 2, Seconds: new(90.5)}}
	testkit.Equal(t, fmt.Sprint(half.Rate(), half.Took()), "661 min")
	testkit.Equal(t, fmt.Sprint(new(historyPage).Rate(), new(historyPage).Took()), "0")
}

// The status of an error page says whose mistake it was.
func TestStatusOfErrors(t *testing.T) {
	busy, wrong := session.NotNow(codes.BoardBusy, "Later."), session.Wrong(codes.OutOfRange, "Wrong.")
	for method, all := range map[string]map[error]int{
		"GET": {
			os.ErrClosed: 500,
			fmt.Errorf("reading: %w", store.ErrUnavailable): 503,
			busy:                                  409,
			wrong:                                 404,
			&refusal{status: 418, message: "tea"}: 418,
		},
		"POST": {
			session.NotNow(codes.RightNeeded, "No."): 403,
			busy:                                     409,
			wrong:                                    400,
			session.Wrong(codes.UnknownSession, "Unknown."): 404,
		},
	} {
		for err, want := range all {
			testkit.Equal(t, statusOf(httptest.NewRequest(method, "/", nil), err), want, "%s, %v", method, err)
		}
	}
}

// The fields of a form are the arguments of the tool that have their names; a blank one is not given.
func TestFieldsOfAForm(t *testing.T) {
	type arguments struct {
		Name   string   `json:"name" arg:"N" required:"true"`
		Note   *string  `json:"note" arg:"N"`
		Open   *bool    `json:"open" arg:"O"`
		Count  *int     `json:"count" arg:"C"`
		Cost   *float64 `json:"cost" arg:"C"`
		Labels []string `json:"labels" arg:"L"`
	}

	for body, want := range map[string]any{
		"":                           arguments{Name: "of the path"},
		"name=+a+&note=+b+&open=on":  arguments{Name: " a ", Note: new("b"), Open: new(true)},
		"note=++&open=&count=&cost=": arguments{},
		"count=5.0&cost=2.5":         arguments{Count: new(5), Cost: new(2.5)},
		"labels=a+b&labels=c":        arguments{Labels: []string{"a", "b", "c"}},
		"labels=":                    arguments{Labels: []string{}},
		"count=2.5":                  "not a whole one",
		"count=two":                  "is not a number",
		"cost=x":                     "is not a number",
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		testkit.Must(t, r.ParseForm())
		if body == "" {
			r.SetPathValue("name", "of the path")
		}
		var got arguments
		err := fill(r, &got)
		if refused, wrong := want.(string); wrong {
			testkit.Fails(t, err, refused, "%s", body)
			continue
		}
		testkit.Works(t, err, "%s", body)
		testkit.Same(t, any(got), want, "%s", body)
	}
}

// A list is shown in parts, each with the address of the next, and all of it is counted.
func TestPartsOfAList(t *testing.T) {
	of := func(name string, n int) nowList {
		l := nowList{Name: name}
		for i := range n {
			l.Items = append(l.Items, &item{Title: fmt.Sprint("item ", i)})
		}
		return l
	}
	for _, c := range []struct {
		l      nowList
		filter string
		alone  bool
		from   int
		want   string
	}{
		{of("needs", maxItems), "", false, 0, fmt.Sprintf("%d of %d, 0 more", maxItems, maxItems)},
		{of("needs", maxItems+1), "", false, 0,
			fmt.Sprintf("%d of %d, 1 more /?list=needs&q=", maxItems, maxItems+1)},
		{of("recent", maxRecent+1), "", false, 0,
			fmt.Sprintf("%d of %d, 1 more /?list=recent&q=", maxRecent, maxRecent+1)},
		{of("recent", maxAlone+2), "", true, 0,
			fmt.Sprintf("%d of %d, 2 more /?from=%d&list=recent&q=", maxAlone, maxAlone+2, maxAlone)},
		{of("needs", maxAlone+2), "", true, maxAlone, fmt.Sprintf("2 of %d, 0 more", maxAlone+2)},
		{of("needs", 2), "", true, 5, "0 of 2, 0 more"},
		{of("needs", 2), "", true, -5, "2 of 2, 0 more"},
		{of("needs", maxAlone), "42", false, 0, "1 of 1, 0 more"},
		{of("needs", 2), "nothing", false, 0, "0 of 0, 0 more"},
	} {
		got := c.l.part(c.filter, c.alone, c.from)
		testkit.Equal(t, strings.TrimSpace(fmt.Sprintf("%d of %d, %d more %s", len(got.Items), got.Total, got.More,
			got.Next)), c.want, "%s from %d", c.l.Name, c.from)
		testkit.Equal(t, got.None != "", c.filter != "")
	}
}

// Lines of output that follow each other are one message, and a result is with its call.
func TestMessagesAreJoined(t *testing.T) {
	one := func(kind, text, call string) attempt.Message {
		return attempt.Message{Kind: kind, Text: text, CallID: call}
	}
	var got []string
	for _, m := range joined([]attempt.Message{
		one("tool_result", "lost", "x"), one("message", "a", ""), one("message", "b", ""), one("output", "c", ""),
		one("output", "d", ""), one("stderr", "e", ""), one("stderr", "f", ""), one("system", "g", ""),
		one("system", "h", ""),
		one("tool_call", "i", "1"), one("tool_call", "j", "2"), one("tool_call", "k", ""), one("tool_result", "l", "2"),
		one("tool_result", "m", "1"), one("tool_result", "n", ""), one("error", "o", "1"),
	}) {
		text := m.Kind + " " + m.Text
		if m.Result != nil {
			text += " = " + m.Result.Text
		}
		got = append(got, text)
	}
	testkit.Same(t, got, []string{"tool_result lost", "message a", "message b", "output c\nd", "stderr e\nf",
		"system g\nh", "tool_call i = m", "tool_call j = l", "tool_call k", "tool_result n", "error o"})
}
