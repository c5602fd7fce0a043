package attempt

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
)

// Starting agents needs the right agents; without it nothing is made, and whether
// what the call names exists is not said.
func TestStartingAgentsNeedsTheRight(t *testing.T) {
	s := newProject(t).open()
	project, repo := s.rootProject()
	ann := session.Caller{Identity: "ann", Rights: session.RightAgents}
	v := testkit.Get(s.CreateTask(ctx, ann, board.CreateTaskArgs{ProjectID: project, Title: "Mine"})).Must(t)
	start := func(who session.Caller, id string) error {
		_, err := s.StartTaskAttempt(ctx, who, StartArgs{TaskID: id, Executor: "TEST", Repos: []RepoArgs{{repo, "main"}}, RequestID: new("r")})
		return err
	}
	follow := func(who session.Caller, id, action string) error {
		_, err := s.FollowUp(ctx, who, FollowUpArgs{Target: the(id), Action: action, Prompt: new("more")})
		return err
	}
	without := ann
	without.Rights = session.RightMerge | session.RightPerson
	for _, id := range []string{v.TaskID, nobody} {
		refused(t, start(without, id), session.StateError, "right_needed", "ann", "deepwork token new ann --rights agents")
	}
	testkit.Equal(t, testkit.Get(s.ListTaskAttempts(ctx, ann, board.ListTaskAttemptsArgs{TaskID: v.TaskID})).Must(t).Total, 0)
	must(t, start(ann, v.TaskID))
	r := testkit.Get(s.ListTaskAttempts(ctx, ann, board.ListTaskAttemptsArgs{TaskID: v.TaskID})).Must(t)
	id := r.Attempts[0].AttemptID
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
	hold := filepath.Join(p.Root, "..", "hold")
	s := p.open()
	project, repo := s.rootProject()
	first := s.begin(s.newTask("! await " + hold))
	s.reaches(first.AttemptID, task.Running)
	eve := session.Caller{Identity: "eve", Group: "team", Rights: session.RightAgents}
	v := testkit.Get(s.CreateTask(ctx, eve, board.CreateTaskArgs{ProjectID: project, Title: "Hers"})).Must(t)
	begin := func(who session.Caller, branch string) (*AttemptReply, error) {
		return s.StartTaskAttempt(ctx, who, StartArgs{TaskID: v.TaskID, Executor: "TEST", Repos: []RepoArgs{{repo, branch}}})
	}
	_, hidden := begin(eve, first.WorkspaceBranch)
	_, missing := begin(eve, "deepwork/none")
	refused(t, hidden, session.ToolError, "unknown_branch", "main")
	got, want := strings.ReplaceAll(hidden.Error(), first.WorkspaceBranch, "deepwork/none"), missing.Error()
	testkit.True(t, got == want, "%s, want %s", got, want)
	r := testkit.Get(begin(eve, "main")).Must(t)
	testkit.Equal(t, deref(r.Notice), "It waits for a slot.")
	testkit.Contains(t, deref(s.get(r.AttemptID).Notice), "and 0 wait before it", "the owner is told")
	must(t, os.WriteFile(hold, nil, 0o644))
	s.ends(first.AttemptID)
	s.ends(r.AttemptID)
	r, err := begin(me, first.WorkspaceBranch) // the owner may begin anywhere
	must(t, err)
	s.ends(r.AttemptID)
	r, err = begin(eve, r.WorkspaceBranch) // of the owner, at her task
	must(t, err)
	s.ends(r.AttemptID)
	// The second worktree of one git repository has its own branch.
	for _, whose := range []*AttemptReply{first, r} {
		p.Git(p.Root, "branch", whose.WorkspaceBranch+"-2", whose.WorkspaceBranch)
	}
	_, err = begin(eve, first.WorkspaceBranch+"-2")
	refused(t, err, session.ToolError, "unknown_branch", r.WorkspaceBranch+"-2")
	testkit.True(t, !strings.Contains(strings.SplitAfter(err.Error(), "Its branches: ")[1], first.WorkspaceBranch), "%v", err)
	second := testkit.Get(begin(eve, r.WorkspaceBranch+"-2")).Must(t)
	s.ends(second.AttemptID)
	// A branch stays hidden when its task is deleted; with commits it is kept.
	p.Git(p.Root, "branch", "kept", first.WorkspaceBranch)
	testkit.Get(s.DeleteTask(ctx, me, DeleteArgs{TaskID: first.TaskID})).Must(t)
	p.Git(p.Root, "branch", first.WorkspaceBranch, "kept")
	_, err = begin(eve, first.WorkspaceBranch)
	refused(t, err, session.ToolError, "unknown_branch", "main")
	_, rest, _ := strings.Cut(err.Error(), "Its branches: ")
	testkit.True(t, !strings.Contains(rest, first.WorkspaceBranch), "%v", err)
}

// In the workspace of an attempt every call is one of its maker, who may not start agents there.
func TestAnAgentIsItsMaker(t *testing.T) {
	p, s := opened(t)
	project, repo := s.rootProject()
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
		r := testkit.Get(s.StartTaskAttempt(ctx, c.who, StartArgs{TaskID: c.task.TaskID, Executor: "TEST", Repos: []RepoArgs{{repo, "main"}}})).Must(t)
		s.ends(r.AttemptID)
		inside := p.open(func(o *Options) { o.Passive, o.Attempt = true, r.AttemptID })
		got := testkit.Get(inside.ListTasks(ctx, me, board.ListTasksArgs{ProjectID: project})).Must(t)
		var titles []string
		for _, v := range got.Tasks {
			titles = append(titles, v.Title)
		}
		testkit.Equal(t, strings.Join(titles, " "), c.sees, "an agent")
		testkit.Equal(t, got.Total, len(titles), "an agent")
		refused(t, testkit.Get(inside.StartTaskAttempt(ctx, me, StartArgs{TaskID: c.task.TaskID, Executor: "TEST", Repos: []RepoArgs{{repo, "main"}}})).Err(), session.StateError, "right_needed", "Create a task")
		refused(t, testkit.Get(inside.RunWorkflow(ctx, me, RunWorkflowArgs{JobName: "texts", WorkflowName: "write", Goal: "more", Executor: new("TEST")})).Err(), session.StateError, "right_needed")
		refused(t, testkit.Get(inside.FollowUp(ctx, me, FollowUpArgs{Target: the(r.AttemptID), Action: ActionQueue, Prompt: new("more")})).Err(), session.StateError, "right_needed")
		inside.stop()
	}
	gone := p.open(func(o *Options) { o.Passive, o.Attempt = true, nobody })
	testkit.Equal(t, testkit.Get(gone.ListTasks(ctx, me, board.ListTasksArgs{ProjectID: project})).Must(t).Total, 0)
}

// What an agent makes is its maker's.
func TestTasksOfAnAgentAreItsMakers(t *testing.T) {
	p, s := opened(t)
	project, _ := s.rootProject()
	r := s.begin(s.newTask())
	s.ends(r.AttemptID)
	inside := p.open(func(o *Options) { o.Passive, o.Attempt = true, r.AttemptID })
	a := board.CreateTaskArgs{ProjectID: project, Title: "More", RequestID: new("one")}
	v := testkit.Get(inside.CreateTask(ctx, session.Caller{}, a)).Must(t)
	testkit.Equal(t, testkit.Get(s.CreateTask(ctx, me, a)).Must(t).TaskID, v.TaskID)
}
