package page

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/merge"
	"deepwork/session/store"
)

type attemptPage struct {
	*attempt.FullAttemptReply
	Task     *board.TaskReply
	Messages []message
	// Shown is the execution whose messages these are, nil if they are the newest of all. Next is the
	// index for those that follow, 0 if they are all.
	Shown  *attempt.Execution
	Next   int64
	Older  string   // the execution with the messages before these, "" if they are the first
	Open   bool     // the agent waits or runs
	Of     string   // the id of the execution whose messages these are, "" for all
	Newest bool     // the messages are the newest
	Run    *runView // nil if an agent leads
	// Changes reports whether the tab with the changes is shown, else the one with the conversation, or the steps of a
	// run.
	Changes   bool
	Stat      *diffstat // nil if it is not known yet
	Step      string    // where its workflow is, "" if it is not under way
	Editor    editor
	Conflicts map[string][]conflictFile // of merges in progress, by repository
	review
}

// Primary returns the next action of a person: answer, resolve, resume, follow (up), review, merge, done, or "" for
// none.
func (p *attemptPage) Primary() string {
	ended := p.State == board.Failed || p.State == board.Interrupted || p.State == board.Stopped
	switch {
	case p.Run != nil && p.Run.Asks() != nil:
		return "answer"
	case p.Open:
		return ""
	case p.Merging():
		return "resolve"
	case p.Run != nil && !p.Run.Complete():
		return "resume"
	case ended && p.LatestSessionID != nil && !p.Changes:
		return "follow"
	case (p.Ahead() || p.Loose()) && p.Changes:
		return "merge"
	case p.Ahead() || p.Loose():
		return "review"
	case !ended && p.Task.Status != "done" && p.Task.Status != "cancelled":
		return "done"
	}

	return ""
}

// FilesChanged returns how many files have changed.
func (p *attemptPage) FilesChanged() (n int) {
	if p.Stat != nil {
		return p.Stat.Files
	}
	for _, r := range p.Repos {
		n += r.ChangedCount
	}
	return n
}

// The state of its branch: Ahead, Behind and Loose (uncommitted) hold if they do in any repository.
func (p *attemptPage) Ahead() bool {
	return p.any(func(r attempt.AttemptRepo) bool { return r.Ahead > 0 })
}
func (p *attemptPage) Loose() bool {
	return p.any(func(r attempt.AttemptRepo) bool { return r.Loose > 0 })
}
func (p *attemptPage) Behind() bool {
	return p.any(func(r attempt.AttemptRepo) bool { return r.Behind > 0 })
}
func (p *attemptPage) Merging() bool {
	return p.any(func(r attempt.AttemptRepo) bool { return r.Merging })
}

func (p *attemptPage) any(is func(attempt.AttemptRepo) bool) bool {
	return slices.ContainsFunc(p.Repos, func(r attempt.AttemptRepo) bool { return r.Exists && is(r) })
}

// Done reports whether it is a complete run, which no agent continues.
func (p *attemptPage) Done() bool { return p.Run != nil && p.Run.Complete() }

// InPlace reports whether it's a run in the project's own folder, so that there's no diff.
func (p *attemptPage) InPlace() bool { return p.Run != nil && p.Run.Kept.InPlace }

// onAttempt returns the target that the URL of a request names.
func onAttempt(r *http.Request) board.Target {
	return board.Target{AttemptID: new(r.PathValue("attempt_id"))}
}

func (s *Site) attempt(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	of := onAttempt(r)
	a, err := s.Board.GetAttempt(ctx, who, attempt.AttemptArgs{Target: of})
	if err != nil {
		return nil, err
	}

	asked := r.URL.Query()
	p := &attemptPage{FullAttemptReply: a, Open: a.Open, Conflicts: map[string][]conflictFile{},
		Changes: asked.Get("tab") == "changes" || asked.Has("path") || asked.Has("files") || asked.Has("diff")}
	if !a.Open { // changes of an agent at work would be counted again and again
		p.Stat = s.changes.stat(a.AttemptID)
	}
	if a.WorkflowSession != nil && board.OrEmpty(a.WorkflowStatus) == board.WorkflowActive {
		if at, err := s.Engine.Info(ctx, *a.WorkflowSession); err == nil { // else it is gone
			p.Step = s.stepOf(at)
		}
	}
	if p.Editor, err = s.editor(ctx, who); err != nil {
		return nil, err
	}
	if p.Task, err = s.Board.GetTask(ctx, who, board.TaskArgs{TaskID: a.TaskID}); err != nil {
		return nil, err
	}
	if a.Lead == task.ServerLeads {
		if p.Run, err = s.run(ctx, who, a.AttemptID); err != nil {
			return nil, err
		}
		if agent, err := s.agent(ctx, who, r, p); agent != nil || err != nil {
			return agent, err
		}
	}
	for _, repo := range a.Repos {
		if repo.Merging {
			p.Conflicts[repo.RepoID] = conflictsOf(repo)
		}
	}
	if p.Changes {
		p.review, err = s.reviewOf(ctx, who, r, a)
		p.Stat = p.review.Stat
	} else {
		err = s.messages(ctx, who, r, p)
	}
	if err != nil {
		return nil, err
	}
	return &shown{view: "attempt", title: p.Task.Title, data: p, topics: []string{
		store.AttemptChanged + ":" + a.AttemptID, store.TaskChanged + ":" + a.TaskID, outputTopic + ":" + a.AttemptID,
		commentsTopic + ":" + a.AttemptID, changesTopic,
	}}, nil
}

func (s *Site) stopped(who session.Caller, r *http.Request, a *attempt.AttemptReply) string {
	return s.withNotice(who, sameTab(r), board.OrEmpty(a.Notice))
}

func (s *Site) followedUp(who session.Caller, r *http.Request, f *attempt.FollowUpReply) string {
	said := board.OrEmpty(f.Notice)
	switch {
	case f.Status == attempt.FollowUpStarted:
		said = "The agent goes on with it as soon as a slot is free."
	case f.Status == attempt.FollowUpCancelled && f.DroppedPrompt != nil:
		said = "Dropped: " + *f.DroppedPrompt
	}
	return s.withNotice(who, sameTab(r), said)
}

// sameTab returns the page of the attempt that an action was for, on the tab that its form was on.
func sameTab(r *http.Request) string {
	at := attemptURL(r)
	if from := back(r, at); strings.HasPrefix(from, at+"?") {
		return from
	}
	return at
}

func attemptURL(r *http.Request) string { return "/attempts/" + r.PathValue("attempt_id") }

// An agentPage shows one process of an agent of a run.
type agentPage struct {
	attemptPage
	Agent *board.RunStep
}

// agent returns the page of the process that the URL names, or nil if it is not one of an agent of the run.
func (s *Site) agent(ctx context.Context, who session.Caller, r *http.Request, p *attemptPage) (*shown, error) {
	for i, x := range p.Run.RunReply.Steps {
		if x.ExecutionID != r.URL.Query().Get("execution") {
			continue
		}

		v := &agentPage{*p, &p.Run.RunReply.Steps[i]}
		if err := s.messages(ctx, who, r, &v.attemptPage); err != nil {
			return nil, err
		}
		return &shown{
			view:   "agent",
			title:  x.StepID + " · " + p.Task.Title,
			data:   v,
			topics: []string{store.AttemptChanged + ":" + p.AttemptID, outputTopic + ":" + p.AttemptID},
		}, nil
	}

	return nil, nil
}

// integrate returns the action of a call that may move an attempt's branch, even if it fails.
func integrate[A any](
	s *Site, do func(context.Context, *attempt.Engine, session.Caller, A) (*merge.Reply, error),
) action {
	act := call(func(ctx context.Context, who session.Caller, args A) (*merge.Reply, error) {
		return do(ctx, s.Board, who, args)
	}, nil, func(who session.Caller, r *http.Request, done *merge.Reply) string {
		next := sameTab(r)
		if done.TaskDone { // the page Now shows the next one
			next = back(r, next)
		}
		return s.withNotice(who, next, outcome(done))
	})
	return func(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
		defer s.Touch(store.AttemptChanged + ":" + r.PathValue("attempt_id"))
		return act(ctx, who, r)
	}
}

// outcomes say what was done with a branch. The name of the target branch follows.
var outcomes = map[string]string{
	merge.Merged:     "merged into",
	merge.Unchanged:  "there was nothing to do; the branch it is for is",
	merge.Rebased:    "rebased on",
	merge.Updated:    "not moved there yet, but its branch now has all of",
	merge.Conflicts:  "has conflicts with",
	merge.Aborted:    "the merge is undone; the branch it is for is",
	merge.Pushed:     "pushed; the branch it is for is",
	merge.Retargeted: "is now for",
	merge.Taken:      "a file is resolved in its merge with",
	merge.Untaken:    "a file is in conflict again, as it was, in its merge with",
	merge.Concluded:  "the merge is committed; the branch it is for is",
}

// outcome tells people what a call did.
func outcome(r *merge.Reply) string {
	var lines []string
	for _, m := range r.Repos {
		line := m.RepoName + ": " + outcomes[m.Status] + " " + m.TargetBranch
		if m.Commit != nil && m.Status != merge.Unchanged && m.Status != merge.Conflicts {
			line += " (" + (*m.Commit)[:min(8, len(*m.Commit))] + ")"
		}
		lines = append(lines, line+".")
		if m.Notice != nil && m.Status != merge.Conflicts { // which the page shows
			lines = append(lines, *m.Notice)
		}
		if n := len(m.Untracked); n > 0 && m.Status != merge.Conflicts {
			lines = append(lines, fmt.Sprintf("In no commit, and so left in the worktree: %s.",
				strings.Join(m.Untracked[:min(n, 20)], ", ")))
		}
		if m.Rescue != nil {
			lines = append(lines, fmt.Sprintf("What was there is kept: git -C %s show --first-parent %s",
				session.InShell(m.Rescue.RepoPath), m.Rescue.Ref))
		}
	}
	if r.TaskDone {
		lines = append(lines, "The task is done.")
	}
	return strings.Join(lines, "\n")
}
