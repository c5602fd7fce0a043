package attempt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/store"
)

// moves writes a transition of a session of an attempt's workspace.
func (s *server) moves(attempt string, to store.Session) {
	s.t.Helper()
	sessions, w := s.Database.Sessions(), &store.SessionWrite{Session: to, Before: -1, Frame: "{}"}
	if all := testkit.Get(sessions.ListSessions(ctx, store.SessionQuery{IDs: []string{to.ID}})).Must(s.t); len(all) > 0 {
		w.Before = all[0].Revision
	}
	w.Revision, w.AttemptID, w.StartedAt, w.UpdatedAt = w.Before+1, attempt, time.Now(), time.Now()
	written, err := sessions.WriteSession(ctx, w)
	testkit.Need(s.t, err == nil && written, "session %s was not written: %v", to.ID, err)
}

// Seed 004, "Workspace context data".
func TestReq004_GetContext(t *testing.T) {
	p, s := opened(t)
	project, repo := s.rootProject()
	v := s.newTask("! await " + p.hold)
	r := s.reaches(s.begin(v).AttemptID, task.Running)
	env := map[string]string{config.AttemptEnv: r.AttemptID, config.BoardEnv: s.boardPath()}
	getenv := func(k string) string { return env[k] }
	w := board.FindWorkspace(r.Repos[0].WorktreePath, func(string) string { return "" })
	testkit.Need(t, w != nil && w.Attempt == r.AttemptID && w.ByPath, "the folder of a workspace was not recognized: %+v", w)
	testkit.True(t, testkit.Get(w.Confirm(ctx, s.Database)).Must(t), "the database does not confirm the workspace")
	for _, root := range []string{p.Root, filepath.Dir(filepath.Dir(r.Repos[0].WorktreePath)), "/"} {
		testkit.Equal(t, board.FindWorkspace(root, func(string) string { return "" }), nil, "%s is taken for a workspace", root)
		testkit.Equal(t, testkit.Get(board.FindWorkspace(root, getenv).Confirm(ctx, s.Database)).Must(t), false, "%s is taken for the workspace", root)
	}
	c := testkit.Get(board.OpenContext(r.AttemptID, s.Database)).Must(t)
	got := testkit.Get(c.GetContext(ctx)).Must(t)
	testkit.Equal(t, fmt.Sprint(got.ProjectID, got.ProjectName, got.TaskID, got.TaskTitle, got.TaskStatus, got.AttemptID, got.WorkspaceBranch, got.WorkflowSessionID),
		fmt.Sprint(project, "shop", v.TaskID, v.Title, "inprogress", r.AttemptID, r.WorkspaceBranch, (*string)(nil)))
	testkit.Same(t, got.WorkspaceRepos, []board.ContextRepo{{RepoID: repo, RepoName: "shop", TargetBranch: "main", WorktreePath: r.Repos[0].WorktreePath}})
	must(t, os.WriteFile(p.hold, nil, 0o644))
	s.ends(r.AttemptID)
	testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: v.TaskID})).Must(t)
	refused(t, testkit.Get(c.GetContext(ctx)).Err(), session.ToolError, "unknown_attempt", r.AttemptID)
}

// A task with a workflow is to be reviewed only when that is complete.
func TestTaskWaitsForItsWorkflow(t *testing.T) {
	p, s := opened(t)
	project, _ := s.rootProject()
	v := testkit.Get(s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: project, Title: "Notes", Description: new("! prompt\n! await " + p.hold), JobName: new("release"), WorkflowName: new("write")})).Must(t)
	r := s.begin(v)
	s.reaches(r.AttemptID, task.Running)
	c := testkit.Get(board.OpenContext(r.AttemptID, s.Database)).Must(t)
	s.moves(r.AttemptID, store.Session{ID: "0123abcd", Job: "release", Workflow: "write", Status: board.WorkflowActive, Step: "collect"})
	s.moves(r.AttemptID, store.Session{ID: "0123abce", Job: "other", Workflow: "write", Status: board.WorkflowCompleted, Step: "nested"}) // is not the task's
	got := testkit.Get(c.GetContext(ctx)).Must(t)
	testkit.True(t, deref(got.WorkflowSessionID) == "0123abcd" && deref(got.WorkflowStep) == "collect" && deref(got.WorkflowStatus) == "active" && deref(got.JobName) == "release", "%+v", got)
	must(t, os.WriteFile(p.hold, nil, 0o644))
	r = s.ends(r.AttemptID)
	now := s.task(v.TaskID)
	testkit.True(t, r.State == "completed" && now.Status == "inprogress" && !now.LastAttemptFailed && deref(r.WorkflowStep) == "collect", "%+v %+v", r, now)
	out := s.output(r.AttemptID)
	testkit.True(t, containsAll(out, "release/write", "start_workflow", "get_context", "workflow_complete"), "the prompt:\n%s", out)
	must(t, os.Remove(p.hold))
	s.follow(FollowUpArgs{Target: the(r.AttemptID), Action: ActionSend, Prompt: new("! await " + p.hold)})
	s.moves(r.AttemptID, store.Session{ID: "99999999", Job: "release", Workflow: "write", Status: board.WorkflowActive, Step: "collect"})
	s.moves(r.AttemptID, store.Session{ID: "0123abcd", Job: "release", Workflow: "write", Status: board.WorkflowCompleted, Step: "draft"})
	// The end of one that was begun before, by mistake say, undoes nothing.
	s.moves(r.AttemptID, store.Session{ID: "99999999", Job: "release", Workflow: "write", Status: board.WorkflowAborted, Step: "collect"})
	must(t, os.WriteFile(p.hold, nil, 0o644))
	s.ends(r.AttemptID)
	testkit.Equal(t, s.task(v.TaskID).Status, "inreview")
}

// Starting agents needs the right agents; without it nothing is made, and whether
// what the call names exists is not said.
func TestStartingAgentsNeedsTheRight(t *testing.T) {
	s := newProject(t).open()
	project, repo := s.rootProject()
	ann := session.Caller{Identity: "ann", Rights: session.RightAgents}
	v := testkit.Get(s.CreateTask(ctx, ann, board.CreateTaskArgs{ProjectID: project, Title: "Mine"})).Must(t)
	start := func(who session.Caller, id string) error {
		return testkit.Get(s.StartTaskAttempt(ctx, who, StartArgs{TaskID: id, Executor: "TEST", Repos: []RepoArgs{{repo, "main"}}, RequestID: new("r")})).Err()
	}
	follow := func(who session.Caller, id, action string) error {
		return testkit.Get(s.FollowUp(ctx, who, FollowUpArgs{Target: the(id), Action: action, Prompt: new("more")})).Err()
	}
	without := ann
	without.Rights = session.RightMerge | session.RightPerson
	for _, id := range []string{v.TaskID, nobody} {
		refused(t, start(without, id), session.StateError, "right_needed", "ann", "deepwork token new ann --rights agents")
	}
	testkit.Equal(t, testkit.Get(s.ListTaskAttempts(ctx, ann, board.ListTaskAttemptsArgs{TaskID: v.TaskID})).Must(t).Total, 0)
	must(t, start(ann, v.TaskID))
	id := testkit.Get(s.ListTaskAttempts(ctx, ann, board.ListTaskAttemptsArgs{TaskID: v.TaskID})).Must(t).Attempts[0].AttemptID
	s.ends(id)
	for _, action := range []string{ActionSend, ActionQueue} {
		for _, id := range []string{id, nobody} {
			refused(t, follow(without, id, action), session.StateError, "right_needed")
		}
	}
	must(t, follow(without, id, ActionCancel))
	got := s.get(id)
	testkit.True(t, got.State == "completed" && got.QueuedFollowUp == nil, "%+v", got)
	must(t, follow(ann, id, ActionSend))
	s.ends(id)
}

// An attempt that waits for those of others does not say how many there are, and
// their branches are no branches to begin at.
func TestNothingIsSaidOfOthersAttempts(t *testing.T) {
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	s := p.open()
	project, repo := s.rootProject()
	first, eve := s.runs("! await "+p.hold), session.Caller{Identity: "eve", Group: "team", Rights: session.RightAgents}
	v := testkit.Get(s.CreateTask(ctx, eve, board.CreateTaskArgs{ProjectID: project, Title: "Hers"})).Must(t)
	begin := func(who session.Caller, branch string) (*AttemptReply, error) {
		return s.StartTaskAttempt(ctx, who, StartArgs{TaskID: v.TaskID, Executor: "TEST", Repos: []RepoArgs{{repo, branch}}})
	}
	// hidden is refused to her, and the refusal names none of the owner's branches.
	hidden := func(branch, mention string) string {
		t.Helper()
		err := testkit.Get(begin(eve, branch)).Err()
		refused(t, err, session.ToolError, "unknown_branch", mention)
		testkit.Lacks(t, strings.SplitAfter(err.Error(), "Its branches: ")[1], []string{first.WorkspaceBranch})
		return strings.ReplaceAll(err.Error(), branch, "BRANCH")
	}
	testkit.Equal(t, hidden(first.WorkspaceBranch, "main"), hidden("deepwork/none", "main"))
	r := testkit.Get(begin(eve, "main")).Must(t)
	testkit.Equal(t, deref(r.Notice), "It waits for a slot.")
	testkit.Contains(t, deref(s.get(r.AttemptID).Notice), "and 0 wait before it", "the owner is told")
	must(t, os.WriteFile(p.hold, nil, 0o644))
	s.ends(first.AttemptID)
	s.ends(r.AttemptID)
	r = testkit.Get(begin(me, first.WorkspaceBranch)).Must(t) // the owner may begin anywhere
	s.ends(r.AttemptID)
	r = testkit.Get(begin(eve, r.WorkspaceBranch)).Must(t) // of the owner, at her task
	s.ends(r.AttemptID)
	// The second worktree of one git repository has its own branch.
	for _, whose := range []*AttemptReply{first, r} {
		p.Git(p.Root, "branch", whose.WorkspaceBranch+"-2", whose.WorkspaceBranch)
	}
	hidden(first.WorkspaceBranch+"-2", r.WorkspaceBranch+"-2")
	s.ends(testkit.Get(begin(eve, r.WorkspaceBranch+"-2")).Must(t).AttemptID)
	// A branch stays hidden when its task is deleted; with commits it is kept.
	p.Git(p.Root, "branch", "kept", first.WorkspaceBranch)
	testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: first.TaskID})).Must(t)
	p.Git(p.Root, "branch", first.WorkspaceBranch, "kept")
	hidden(first.WorkspaceBranch, "main")
}

// In the workspace of an attempt every call is one of its maker, who may not start agents there.
func TestAnAgentIsItsMaker(t *testing.T) {
	p, s := opened(t)
	project, _ := s.rootProject()
	of := func(who session.Caller, title string) *board.Task {
		return testkit.Get(s.CreateTask(ctx, who, board.CreateTaskArgs{ProjectID: project, Title: title})).Must(t)
	}
	ann := session.Caller{Identity: "ann", Group: "team", Rights: session.RightAgents}
	bob := session.Caller{Identity: "bob", Group: "team", Rights: session.RightAgents}
	his, hers := of(bob, "bob's"), of(ann, "ann's")
	of(me, "the owner's")
	of(session.Caller{Identity: "eve"}, "eve's")
	alone := of(session.Caller{Identity: "bob"}, "bob's alone")
	for _, c := range []struct {
		who  session.Caller
		task *board.Task
		sees string
	}{
		{ann, his, "ann's bob's"},
		{bob, hers, "bob's alone ann's bob's"},
		{me, hers, "ann's bob's"}, // the text of a task leads no agent to what only the owner sees
		{me, alone, "bob's alone bob's"},
	} {
		start := s.starting(c.task)
		r := testkit.Get(s.StartTaskAttempt(ctx, c.who, start)).Must(t)
		s.ends(r.AttemptID)
		inside := p.open(func(o *Options) { o.Passive, o.Attempt = true, r.AttemptID })
		got := testkit.Get(inside.ListTasks(ctx, me, board.ListTasksArgs{ProjectID: project})).Must(t)
		var titles []string
		for _, v := range got.Tasks {
			titles = append(titles, v.Title)
		}
		testkit.True(t, strings.Join(titles, " ") == c.sees && got.Total == len(titles), "an agent sees %q of %d", titles, got.Total)
		refused(t, testkit.Get(inside.StartTaskAttempt(ctx, me, start)).Err(), session.StateError, "right_needed", "Create a task")
		refused(t, testkit.Get(inside.RunWorkflow(ctx, me, aText())).Err(), session.StateError, "right_needed")
		refused(t, testkit.Get(inside.FollowUp(ctx, me, FollowUpArgs{Target: the(r.AttemptID), Action: ActionQueue, Prompt: new("more")})).Err(), session.StateError, "right_needed")
		inside.stop()
	}
	gone := p.open(func(o *Options) { o.Passive, o.Attempt = true, nobody })
	testkit.Equal(t, testkit.Get(gone.ListTasks(ctx, me, board.ListTasksArgs{ProjectID: project})).Must(t).Total, 0)
	// What an agent makes is its maker's.
	r := s.ran()
	inside := p.open(func(o *Options) { o.Passive, o.Attempt = true, r.AttemptID })
	a := board.CreateTaskArgs{ProjectID: project, Title: "More", RequestID: new("one")}
	v := testkit.Get(inside.CreateTask(ctx, session.Caller{}, a)).Must(t)
	testkit.Equal(t, testkit.Get(s.CreateTask(ctx, me, a)).Must(t).TaskID, v.TaskID)
}
