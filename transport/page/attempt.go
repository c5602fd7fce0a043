package page

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/store"
)

// maxMessages is how many messages of an agent a page shows.
const maxMessages = 200

const (
	// maxTalk is how many bytes of a page the messages may take, about.
	maxTalk = 25_000
	// maxMessage is how many bytes of a message a page shows.
	maxMessage = 8000
	// messageBytes is what a message takes in addition to its text.
	messageBytes = 120
)

type attemptPage struct {
	*attempt.FullAttemptReply
	Task     *attempt.TaskReply
	Messages []attempt.Message
	// Shown is the execution whose messages these are, nil if they are the newest of all. Next is the
	// index for those that follow, 0 if they are all.
	Shown *attempt.Execution
	Next  int64
	Older string // the execution with the messages before these, "" if they are the first
	Open  bool   // the agent waits or runs
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

// onAttempt returns the target that the URL of a request names.
func onAttempt(r *http.Request) attempt.Target {
	return attempt.Target{AttemptID: new(r.PathValue("id"))}
}

func (s *Site) attempt(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	of := onAttempt(r)
	a, err := s.Board.GetAttempt(ctx, who, attempt.AttemptArgs{Target: of})
	if err != nil {
		return nil, err
	}
	p := &attemptPage{FullAttemptReply: a, Open: isOpen(a.State)}
	if p.Task, err = s.Board.GetTask(ctx, who, attempt.TaskArgs{TaskID: a.TaskID}); err != nil {
		return nil, err
	}
	if err := s.messages(ctx, who, r, p); err != nil {
		return nil, err
	}
	if p.review, err = s.reviewOf(ctx, who, r, a); err != nil {
		return nil, err
	}
	return &shown{view: "attempt", title: p.Task.Title, data: p, fresh: true, on: []string{
		store.AttemptChanged + ":" + a.AttemptID, store.TaskChanged + ":" + a.TaskID, outputTopic + ":" + a.AttemptID, commentsTopic + ":" + a.AttemptID,
	}}, nil
}

// isOpen reports whether an agent in a state waits or runs.
func isOpen(state string) bool {
	return state == "waiting" || state == "starting" || state == "running"
}

// messages reads the newest messages, or those of the execution that the URL names.
func (s *Site) messages(ctx context.Context, who session.Caller, r *http.Request, p *attemptPage) error {
	args := attempt.TailArgs{Target: onAttempt(r), Limit: new(maxMessages)}
	if id := r.URL.Query().Get("execution"); id != "" {
		args.ExecutionID, args.AfterIndex = &id, new(int64(-1))
		if after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64); err == nil {
			args.AfterIndex = &after
		}
		for i := range p.Executions {
			if p.Executions[i].ExecutionID == id {
				p.Shown = &p.Executions[i]
			}
		}
	}
	tail, err := s.Board.TailAttempt(ctx, who, args)
	if err != nil {
		return err
	}
	fits, cut := fitting(tail.Messages, args.ExecutionID == nil)
	p.Messages = joined(fits)
	switch {
	case len(fits) == 0:
	case args.ExecutionID == nil:
		if (cut || len(tail.Messages) == maxMessages) && len(p.Executions) > 0 {
			p.Older = p.Executions[0].ExecutionID
		}
	case cut:
		p.Next = fits[len(fits)-1].Index
	case len(tail.Messages) == maxMessages:
		p.Next = tail.NextIndex
	}
	return nil
}

// fitting returns the messages that fit on a page, the newest or the oldest, and whether that leaves out
// others. Those of one line of output stay together.
func fitting(all []attempt.Message, newest bool) (fits []attempt.Message, cut bool) {
	all = slices.Clone(all)
	left := maxTalk
	size := func(m *attempt.Message) int {
		m.Text = jsontext.Clip(m.Text, maxMessage)
		return messageBytes + sizeOf(m.Text)
	}
	if newest {
		i := len(all)
		for i > 0 && left > 0 {
			i--
			left -= size(&all[i])
		}
		return all[i:], i > 0
	}
	n := 0
	for n < len(all) && (left > 0 || all[n].Index == all[n-1].Index) {
		left -= size(&all[n])
		n++
	}
	return all[:n], n < len(all)
}

// joined makes one message of lines of the same kind that follow each other.
func joined(all []attempt.Message) (out []attempt.Message) {
	for _, m := range all {
		last := len(out) - 1
		if last >= 0 && out[last].Kind == m.Kind && (m.Kind == "output" || m.Kind == "system" || m.Kind == "stderr") {
			out[last].Text += "\n" + m.Text
		} else {
			out = append(out, m)
		}
	}
	return out
}

func (s *Site) stopAttempt(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	a, err := s.Board.StopAttempt(ctx, who, attempt.AttemptArgs{Target: onAttempt(r)})
	if err != nil {
		return "", err
	}
	return s.said(who, attemptURL(r), inPages(text(a.Notice))), nil
}

func (s *Site) followUp(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	f, err := s.Board.FollowUp(ctx, who, attempt.FollowUpArgs{Target: onAttempt(r), Action: r.PostForm.Get("action"), Prompt: optional(r, "prompt")})
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
