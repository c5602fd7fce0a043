package page

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/merge"
	"deepwork/session/store"
)

// integrate merges, rebases or pushes an attempt, undoes a merge in progress, or changes the branch that
// it is for.
func (s *Site) integrate(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	// onBranch fills the arguments of one of these, and sets its target.
	onBranch := func(args any, of *board.Target) error {
		*of = onAttempt(r)
		return fill(r, args)
	}
	var done *merge.Reply
	var err error
	switch what := r.PathValue("what"); what {
	case "merge":
		var a merge.MergeArgs
		if err = onBranch(&a, &a.Target); err == nil {
			done, err = merge.Merge(ctx, s.Board, who, a)
		}
	case "rebase", "abort":
		var a merge.BranchArgs
		do := merge.Rebase
		if what == "abort" {
			do = merge.Abort
		}
		if err = onBranch(&a, &a.Target); err == nil {
			done, err = do(ctx, s.Board, who, a)
		}
	case "push":
		var a merge.PushArgs
		if err = onBranch(&a, &a.Target); err == nil {
			done, err = merge.Push(ctx, s.Board, who, a)
		}
	case "target":
		var a merge.TargetArgs
		if err = onBranch(&a, &a.Target); err == nil {
			done, err = merge.ChangeTarget(ctx, s.Board, who, a)
		}
	default:
		err = session.Wrong(codes.UnknownWay, "There is nothing called %q to do with an attempt.", what)
	}
	s.Touch(store.AttemptChanged + ":" + r.PathValue("id")) // branches may have moved
	if err != nil {
		return "", err
	}
	return s.said(who, attemptURL(r), outcome(done)), nil
}

// outcomes say in words what was done with a branch; they are followed by the branch that it is for.
var outcomes = map[string]string{
	merge.Merged:     "merged into",
	merge.Unchanged:  "there was nothing to do; the branch it is for is",
	merge.Rebased:    "rebased on",
	merge.Updated:    "not moved there yet, but its branch now has all of",
	merge.Conflicts:  "has conflicts with",
	merge.Aborted:    "the merge is undone; the branch it is for is",
	merge.Pushed:     "pushed; the branch it is for is",
	merge.Retargeted: "is now for",
}

// outcome says what a call did, for people.
func outcome(r *merge.Reply) string {
	var lines []string
	for _, m := range r.Repos {
		line := m.RepoName + ": " + outcomes[m.Status] + " " + m.TargetBranch
		if m.Commit != nil && m.Status != merge.Unchanged && m.Status != merge.Conflicts {
			line += " (" + (*m.Commit)[:min(8, len(*m.Commit))] + ")"
		}
		lines = append(lines, line+".")
		if m.Notice != nil && m.Status != merge.Conflicts { // which the page shows
			lines = append(lines, inPages(*m.Notice))
		}
		if n := len(m.Untracked); n > 0 && m.Status != merge.Conflicts {
			lines = append(lines, fmt.Sprintf("In no commit, and so left in the worktree: %s.", strings.Join(m.Untracked[:min(n, 20)], ", ")))
		}
		if m.Rescue != nil {
			lines = append(lines, fmt.Sprintf("What was there is kept: git -C %s show %s", m.Rescue.RepoPath, m.Rescue.Ref))
		}
	}
	if r.TaskDone {
		lines = append(lines, "The task is done.")
	}
	return strings.Join(lines, "\n")
}

// inPages returns a message for agents as people read it beside forms, which are named in place of tools.
func inPages(message string) string { return toForms.Replace(message) }

var toForms = strings.NewReplacer(
	"by hand or with follow_up", "by hand or with a follow-up", "have the agent do it with follow_up", "have the agent do it with a follow-up",
	", or undo it with abort_merge", ", or undo the merge", "abort_merge undoes it", "or undo the merge",
	"Stop it with stop_attempt", "Stop it", "or call stop_attempt first", "or stop the agent first", "Call stop_attempt first", "Stop the agent first",
	"Call follow_up to have it done", "Send it again to have it done", "with start_task_attempt", "", "Use action queue to send this prompt", "Queue this prompt", "Merge it with way merge or squash", "Merge it as a merge commit or as one commit",
	"and call again", "and try again", "Call again", "Try again", "call again", "try again", "then call again", "then try again",
	"; list_executors describes them", "", "; list_executors lists the available ones", "", "Ask your user to raise", "Raise", "once your user has done this: ", "after this: ",
	"list_tasks gives the tasks of a project", "The board shows those that you see", "Pass an id as the tools give it, such as", "An id looks like",
	"get_workflows lists the workflows", "the page Jobs lists the workflows", "Set the status of those to done with update_task once they are", "Move those to done once they are",
	"Call delete_task again", "Delete it again", "Call get_attempt to see its state", "Reload the page to see its state", "Check with get_task or get_attempt whether", "Reload the page to see whether",
	"Call comment_attempt with attempt_id alone for those that wait", "Reload the page for those that wait", "; follow_up with action cancel drops a queued follow-up", "", "drop it first with follow_up and action cancel", "drop it first",
	"get_attempt lists its executions", "the page lists its executions", ", or change depends_on of this one", ", or remove it from those that this one waits for",
)
