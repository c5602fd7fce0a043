package page

import (
	"context"
	"net/http"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
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
	review
}

// What can be done with its branch: Ahead and Behind in any repository, a merge in progress in one.
func (p *attemptPage) Ahead() bool {
	return p.any(func(r attempt.AttemptRepo) bool { return r.Ahead > 0 })
}
func (p *attemptPage) Behind() bool {
	return p.any(func(r attempt.AttemptRepo) bool { return r.Behind > 0 })
}
func (p *attemptPage) Merging() bool {
	return p.any(func(r attempt.AttemptRepo) bool { return r.Merging })
}

func (p *attemptPage) any(is func(attempt.AttemptRepo) bool) bool {
	for _, r := range p.Repos {
		if r.Exists && is(r) {
			return true
		}
	}
	return false
}

// Done reports whether no agent goes on with it: it is a run that is complete.
func (p *attemptPage) Done() bool { return p.Run != nil && p.Run.Complete() }

// InPlace reports whether it is a run in the project's own folder, which has no diff of its own.
func (p *attemptPage) InPlace() bool { return p.Run != nil && p.Run.Kept.InPlace }

// onAttempt returns the target that the URL of a request names.
func onAttempt(r *http.Request) board.Target {
	return board.Target{AttemptID: new(r.PathValue("id"))}
}

func (s *Site) attempt(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	of := onAttempt(r)
	a, err := s.Board.GetAttempt(ctx, who, attempt.AttemptArgs{Target: of})
	if err != nil {
		return nil, err
	}
	p := &attemptPage{FullAttemptReply: a, Open: isOpen(a.State)}
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
	if err := s.messages(ctx, who, r, p); err != nil {
		return nil, err
	}
	if p.review, err = s.reviewOf(ctx, who, r, a); err != nil {
		return nil, err
	}
	return &shown{view: "attempt", title: p.Task.Title, data: p, on: []string{
		store.AttemptChanged + ":" + a.AttemptID, store.TaskChanged + ":" + a.TaskID, outputTopic + ":" + a.AttemptID, commentsTopic + ":" + a.AttemptID,
	}}, nil
}

// isOpen reports whether an agent in a state waits or runs.
func isOpen(state string) bool {
	return state == "waiting" || state == "starting" || state == "running"
}

func (s *Site) stopAttempt(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	a, err := s.Board.StopAttempt(ctx, who, attempt.AttemptArgs{Target: onAttempt(r)})
	if err != nil {
		return "", err
	}
	return s.said(who, attemptURL(r), inPages(text(a.Notice))), nil
}

func (s *Site) followUp(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	var a attempt.FollowUpArgs
	if err := fill(r, &a); err != nil {
		return "", err
	}
	a.Target = onAttempt(r)
	f, err := s.Board.FollowUp(ctx, who, a)
	if err != nil {
		return "", err
	}
	said := inPages(text(f.Notice))
	switch {
	case f.Status == attempt.FollowUpStarted:
		said = "The agent goes on with it as soon as a slot is free."
	case f.Status == attempt.FollowUpCancelled && f.DroppedPrompt != nil:
		said = "Dropped: " + *f.DroppedPrompt
	}
	return s.said(who, attemptURL(r), said), nil
}

func attemptURL(r *http.Request) string { return "/attempts/" + r.PathValue("id") }

// text returns an optional text, "" if it is missing.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
