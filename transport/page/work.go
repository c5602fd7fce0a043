package page

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/merge"
	"deepwork/session/run"
	"deepwork/session/store"
)

// A workPage shows a piece of work: a chat session, an attempt of an agent, or a run.
type workPage struct {
	*attempt.FullAttemptReply                  // zero for a chat session
	At, Part                  string           // its path, and the query of the one session that is shown, or ""
	Task                      *board.TaskReply // nil for a chat session
	Session                   *sessionView     // whose steps are shown; nil if none has begun, or it cannot be read
	Steps                     *runView         // nil if there are none
	Run                       *runView         // Steps of a run, else nil
	Decisions                 []*decision
	Undecided                 int // decisions that are left out
	Trace                     board.Trace
	Place                     string // which step of its workflow it is at, "" if none
	Messages                  []message
	// Shown is the execution whose messages these are, nil if they are the newest of all. Next is the
	// index for those that follow, 0 if they are all.
	Shown  *attempt.Execution
	Next   int64
	Older  string         // the execution with the messages before these, "" if they are the first
	Of     string         // the id of the execution whose messages these are, "" for all
	Agent  *board.RunStep // that execution, of a run
	Newest bool           // the messages are the newest
	// Changes reports whether the tab with the changes is shown, else the one with the steps and the conversation.
	Changes   bool
	Stat      *diffstat // nil if it is not known yet
	Editor    editor
	Conflicts map[string][]conflictFile // of merges in progress, by repository
	// The state of its branch, in any repository. Loose means that something is in no commit.
	Ahead, Behind, Loose, Merging bool
	review
}

// Title returns what the work is about.
func (p *workPage) Title() string {
	switch {
	case p.Task != nil:
		return p.Task.Title
	case p.Session.Goal != "":
		return p.Session.Goal
	}
	return p.Session.ID
}

// Took returns how long its agent last worked, "" before it has ended.
func (p *workPage) Took() string { return took(p.StartedAt, p.EndedAt) }

// Reasons says, in a sentence each, why the work goes wrong, unless a card says so.
func (p *workPage) Reasons() (all []string) {
	if p.Run == nil && p.Why != "" {
		all = append(all, p.Why)
	}
	if p.Session != nil && p.Session.State.AbortReason != nil {
		all = append(all, "Aborted: "+*p.Session.State.AbortReason)
	}
	if p.Steps == nil || p.Run != nil {
		return all
	}
	p.Steps.Tree.Each(func(x *run.Step, _ int) {
		if text := x.Progress.Why().Sentence(); text != "" && x.Current() && p.Decision(x) == nil {
			all = append(all, text)
		}
	})
	return all
}

// Decision returns the card of a step, or nil.
func (p *workPage) Decision(x *run.Step) *decision {
	for _, d := range p.Decisions {
		if d.SessionID == x.SessionID && d.Step == x.ID {
			return d
		}
	}
	return nil
}

// maxWaits is how many steps that wait a page names at its top.
const maxWaits = 20

// Waits returns the steps of a live run that wait for something else than a decision.
func (p *workPage) Waits() (all []*run.Step) {
	p.Run.Tree.Rows(func(x *run.Step, _ int) {
		if x.Why != "" && len(all) < maxWaits && p.Decision(x) == nil {
			all = append(all, x)
		}
	})
	return all
}

// Primary returns the next action of a person: decide, resolve, resume, follow (up), review, merge, done, or "" for
// none.
func (p *workPage) Primary() string {
	ended := p.State == board.Failed || p.State == board.Interrupted || p.State == board.Stopped
	switch {
	case len(p.Decisions) > 0:
		return "decide"
	case p.Open || p.Task == nil:
		return ""
	case p.Merging:
		return "resolve"
	case p.Run != nil && !p.Run.Complete():
		return "resume"
	case ended && p.LatestSessionID != nil && !p.Changes:
		return "follow"
	case (p.Ahead || p.Loose) && p.Changes:
		return "merge"
	case p.Ahead || p.Loose:
		return "review"
	case !ended && p.Task.Status != "done" && p.Task.Status != "cancelled":
		return "done"
	}

	return ""
}

// FilesChanged returns how many files have changed.
func (p *workPage) FilesChanged() (n int) {
	if p.Stat != nil {
		return p.Stat.Files
	}
	for _, r := range p.Repos {
		n += r.ChangedCount
	}
	return n
}

// Done reports whether it is a complete run, which no agent continues.
func (p *workPage) Done() bool { return p.Run != nil && p.Run.Complete() }

// InPlace reports whether it's a run in the project's own folder, so that there's no diff.
func (p *workPage) InPlace() bool { return p.Run != nil && p.Run.Kept.InPlace }

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
	p := &workPage{FullAttemptReply: a, At: attemptURL(r), Of: asked.Get("execution"),
		Conflicts: map[string][]conflictFile{},
		Changes:   asked.Get("tab") == "changes" || asked.Has("path") || asked.Has("files") || asked.Has("diff")}
	if !a.Open { // changes of an agent at work would be counted again and again
		p.Stat, _ = s.changes.stat(a.AttemptID)
	}
	if p.Editor, err = s.editor(ctx, who); err != nil {
		return nil, err
	}
	if p.Task, err = s.Board.GetTask(ctx, who, board.TaskArgs{TaskID: a.TaskID}); err != nil {
		return nil, err
	}
	if err := s.attemptSteps(ctx, who, asked, p); err != nil {
		return nil, err
	}
	for _, repo := range a.Repos {
		if !repo.Exists {
			continue
		}
		p.Ahead, p.Behind = p.Ahead || repo.Ahead > 0, p.Behind || repo.Behind > 0
		p.Loose, p.Merging = p.Loose || repo.Loose > 0, p.Merging || repo.Merging
		if repo.Merging {
			p.Conflicts[repo.RepoID] = conflictsOf(repo)
		}
	}
	switch {
	case p.Changes:
		p.review, err = s.reviewOf(ctx, who, r, a)
		p.Stat = p.review.Stat
	case p.Run == nil || p.Of != "":
		err = s.messages(ctx, who, r, p)
	}
	if err != nil {
		return nil, err
	}
	topics := []string{
		store.AttemptChanged + ":" + a.AttemptID, store.TaskChanged + ":" + a.TaskID, outputTopic + ":" + a.AttemptID,
		commentsTopic + ":" + a.AttemptID, childrenTopic + ":" + a.AttemptID, changesTopic,
	}
	return &shown{view: "work", title: p.Title(), data: p, topics: topics}, nil
}

// attemptSteps reads the steps of an attempt: of the session that the URL names, else of all of a run, or of the
// session that an agent began last.
func (s *Site) attemptSteps(ctx context.Context, who session.Caller, asked url.Values, p *workPage) error {
	id := asked.Get("session")
	if id != "" {
		p.Part = "?" + url.Values{"session": {id}}.Encode()
	}
	var reply *board.RunReply
	if p.Lead == task.ServerLeads {
		var err error
		if reply, err = s.run(ctx, who, p); err != nil {
			return err
		}
		p.Trace = reply.Trace
		for i := range reply.Steps {
			if reply.Steps[i].ExecutionID == p.Of {
				p.Agent = &reply.Steps[i]
			}
		}
	}
	all, err := s.sessions(ctx)
	if err != nil {
		return err
	}
	at, root := id, flowsOf(all)[p.AttemptID]
	switch {
	case id != "":
	case reply != nil:
		at = board.OrEmpty(reply.SessionID)
	case root != nil:
		at = root.ID
	}
	if at != "" {
		v, err := s.readSession(ctx, who, at)
		switch {
		case err == nil && v.AttemptID == p.AttemptID:
			p.Session = v
		case p.Part != "":
			return cmp.Or(err, unknownSession(id))
		} // else the page says what is known without it
	}
	switch {
	case reply != nil:
		if p.Part != "" {
			reply.SessionID = &id
		}
		view := run.Look(ctx, reply, s.reader, run.LastSaid(ctx, s.Board, who, reply))
		p.Run = &runView{View: view}
		return s.steps(ctx, who, asked.Get("step"), p, p.Run)
	case p.Session != nil:
		return s.sessionSteps(ctx, who, asked.Get("step"), p)
	}
	return nil
}

// run returns the run that a page is about. One that has ended is read again only if it has changed.
func (s *Site) run(ctx context.Context, who session.Caller, p *workPage) (*board.RunReply, error) {
	read := func() (*board.RunReply, error) {
		return s.Board.GetRun(ctx, who, board.RunArgs{RunID: p.AttemptID})
	}
	if p.Open {
		return read()
	}
	known, err := remember(s.feed, p.AttemptID, []string{store.AttemptChanged + ":" + p.AttemptID}, read)
	if err != nil {
		return nil, err
	}
	return new(*known), nil
}

// sessionSteps reads the steps of a session that no server leads.
func (s *Site) sessionSteps(ctx context.Context, who session.Caller, only string, p *workPage) error {
	p.Place = s.stepOf(p.Session.SessionInfo)
	view := run.Look(ctx, &board.RunReply{SessionID: &p.Session.ID, Open: true}, s.reader, nil)
	return s.steps(ctx, who, only, p, &runView{View: view})
}

// steps adds steps to a page, or the only one, and what waits for a person there.
func (s *Site) steps(ctx context.Context, who session.Caller, only string, p *workPage, v *runView) error {
	if v.Fault != nil {
		s.Logger.Debug("the sessions of a page cannot be read", "page", p.At, "error", v.Fault)
	}
	p.Steps = v
	v.fit(only)
	return s.decide(ctx, who, p)
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
