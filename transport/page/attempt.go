package page

import (
	"context"
	"net/http"

	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/store"
)

// maxMessages is how many messages of an agent a page shows.
const maxMessages = 200

type attemptPage struct {
	*attempt.FullAttemptReply
	Task     *attempt.TaskReply
	Messages []attempt.Message
	Diffs    []fileDiff
	Cut      bool // a part of the diff is left out
	Split    bool // the diff is shown side by side
	Open     bool // the agent waits or runs
}

func (s *Site) attempt(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	if s.Board == nil {
		return nil, errNoBoard
	}
	id := r.PathValue("id")
	of := attempt.Target{AttemptID: &id}
	a, err := s.Board.GetAttempt(ctx, who, attempt.AttemptArgs{Target: of})
	if err != nil {
		return nil, err
	}
	p := &attemptPage{FullAttemptReply: a, Split: r.URL.Query().Get("diff") == "split"}
	switch a.State {
	case "waiting", "starting", "running":
		p.Open = true
	}
	if p.Task, err = s.Board.GetTask(ctx, who, attempt.TaskArgs{TaskID: a.TaskID}); err != nil {
		return nil, err
	}
	tail, err := s.Board.TailAttempt(ctx, who, attempt.TailArgs{Target: of, Limit: new(maxMessages)})
	if err != nil {
		return nil, err
	}
	p.Messages = tail.Messages
	if len(a.Repos) > 0 && a.Repos[0].Exists {
		diff, err := s.Board.GetAttemptDiff(ctx, who, attempt.DiffArgs{Target: of})
		if err != nil {
			return nil, err
		}
		p.Cut = diff.Truncated
		for _, d := range diff.Diffs {
			p.Diffs = append(p.Diffs, parseDiff(d.RepoName, d.Diff)...)
		}
	}
	return &shown{view: "attempt", title: p.Task.Title, data: p, on: []string{store.AttemptChanged + ":" + id, store.TaskChanged + ":" + a.TaskID, outputTopic + ":" + id}}, nil
}

func (s *Site) stopAttempt(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	if s.Board == nil {
		return "", errNoBoard
	}
	id := r.PathValue("id")
	_, err := s.Board.StopAttempt(ctx, who, attempt.AttemptArgs{Target: attempt.Target{AttemptID: &id}})
	return "/attempts/" + id, err
}

func (s *Site) followUp(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	if s.Board == nil {
		return "", errNoBoard
	}
	id := r.PathValue("id")
	_, err := s.Board.FollowUp(ctx, who, attempt.FollowUpArgs{Target: attempt.Target{AttemptID: &id}, Action: r.PostForm.Get("action"), Prompt: optional(r, "prompt")})
	return "/attempts/" + id, err
}

// integrate merges, rebases or pushes an attempt, or aborts a merge.
func (s *Site) integrate(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	if s.Board == nil {
		return "", errNoBoard
	}
	id := r.PathValue("id")
	of := attempt.Target{AttemptID: &id}
	var err error
	switch what := r.PathValue("what"); what {
	case "merge":
		_, err = s.Board.MergeAttempt(ctx, who, attempt.MergeArgs{Target: of, Way: optional(r, "way"), Message: optional(r, "message")})
	case "rebase":
		_, err = s.Board.RebaseAttempt(ctx, who, attempt.MergeArgs{Target: of})
	case "push":
		_, err = s.Board.PushAttempt(ctx, who, attempt.PushArgs{Target: of, Remote: optional(r, "remote")})
	case "abort":
		_, err = s.Board.AbortMerge(ctx, who, attempt.AbortArgs{Target: of})
	default:
		err = session.Wrong("unknown_way", "There is nothing called %q to do with an attempt.", what)
	}
	return "/attempts/" + id, err
}
