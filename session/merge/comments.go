package merge

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/xslices"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
)

// CommentArgs are the arguments of comment_attempt.
type CommentArgs struct {
	board.Target
	Comments  []CommentArg `json:"comments" arg:"To add" max:"100"`
	Remove    []string     `json:"remove" arg:"UUIDs of comments, or all" max:"100"`
	Send      bool         `json:"send" arg:"Default: false"`
	RequestID *string      `json:"request_id" arg:"Any text, for retries"`
}

// A CommentArg is a comment in the arguments of comment_attempt.
type CommentArg struct {
	File string  `json:"file" arg:"Path" max:"4096"`
	Line int     `json:"line" arg:"From 1" min:"1"`
	Side *string `json:"side" arg:"old: the file before. Default: new" enum:"new,old"`
	Text string  `json:"text" arg:"The comment" max:"5000"`
	Repo *string `json:"repo" arg:"Name, if several"` // or id
}

// CommentsReply answers comment_attempt.
type CommentsReply struct {
	AttemptID string    `json:"attempt_id" jsonschema:"UUID of the attempt"`
	Comments  []Comment `json:"comments" jsonschema:"the comments that wait to be sent, by file and line"`
	Count     int       `json:"count" jsonschema:"number of comments"`
	Sent      *string   `json:"sent"`
	Prompt    *string   `json:"prompt" jsonschema:"the follow-up that was sent"`
	Notice    *string   `json:"notice" jsonschema:"a hint, such as why none were sent"`
}

// Tags implements fieldtag.Tagger.
func (CommentsReply) Tags() map[string]string {
	return map[string]string{
		"Sent": `jsonschema:"started (now, or as soon as a slot is free), queued (for when the agent ends; until ` +
			`then they are listed), or null if none"`,
	}
}

// Comment is a comment on a line of an attempt's diff.
type Comment struct {
	CommentID string `json:"comment_id" jsonschema:"UUID of the comment"`
	RepoID    string `json:"repo_id" jsonschema:"UUID of the repository"`
	RepoName  string `json:"repo_name" jsonschema:"name of the repository"`
	File      string `json:"file" jsonschema:"path relative to the worktree"`
	Line      int    `json:"line" jsonschema:"number of the line on that side"`
	Side      string `json:"side" jsonschema:"new (the file in the worktree) or old (the file before the attempt)"`
	Quote     string `json:"quote" jsonschema:"the line as it was"`
	Text      string `json:"text" jsonschema:"the comment"`
	Queued    bool   `json:"queued" jsonschema:"whether it is in the queued follow-up"`
	By        string `json:"made_by" jsonschema:"name of the caller who made it"`
	CreatedAt string `json:"created_at" jsonschema:"when it was made, RFC 3339 in UTC"`
}

// allComments in Remove means all comments that are not queued.
const allComments = "all"

const (
	maxQuote    = 300     // characters of a quoted line
	commentDiff = 4 << 20 // bytes of the diff of a file that is searched for a line
	sendTries   = 3
)

// CommentAttempt collects comments on lines of an attempt's diff, and sends them to its agent as one
// follow-up. Until then the board keeps them. Any caller that sees the attempt can send them.
func CommentAttempt(ctx context.Context, e *attempt.Engine, who session.Caller, a CommentArgs) (*CommentsReply, error) {
	named := a.RequestID
	a.RequestID = nil
	b, id, err := e.ViewOfAttempt(ctx, who, a.Target)
	if err != nil {
		return nil, err
	}

	changes := len(a.Comments)+len(a.Remove) > 0
	if changes || a.Send {
		if err := e.MayStart(b.Who); err != nil {
			return nil, err
		}
	}

	at, err := b.Attempt(ctx, id)
	if err != nil {
		return nil, board.AttemptFault("reading the attempt", err, id)
	}

	request, done, err := b.Repeated(ctx, "comment_attempt", named, a)
	if err != nil {
		return nil, err
	}

	var added []string
	if done != "" {
		added, err = b.ChangeComments(ctx, id, nil, nil, request) // returns the comments that the earlier call added
	} else if changes || named != nil {
		added, err = changeComments(ctx, e, b, at, a, request)
	}
	if err != nil {
		return nil, board.AttemptFault("changing the comments", err, id)
	}

	r := &CommentsReply{AttemptID: id}
	if a.Send {
		err := sendComments(ctx, e, who, b, at, r, done != "", added)
		refusal, refused := errors.AsType[*session.Error](err)
		switch {
		case refused && changes && done == "": // a refused call must have changed nothing
			r.Notice = new("The comments are kept, but were not sent: " + refusal.For(session.Anyone))
		case err != nil:
			return nil, err
		}
	}

	all, err := b.Comments(ctx, id)
	if err != nil {
		return nil, board.Midway(board.Fault("reading the comments", err))
	}
	r.Comments, r.Count = make([]Comment, len(all)), len(all)
	for i, c := range all {
		r.Comments[i] = Comment{
			CommentID: c.ID,
			RepoID:    c.RepoID,
			RepoName:  nameOfRepo(at, c.RepoID),
			File:      c.File,
			Line:      c.Line,
			Side:      c.Side,
			Quote:     c.Quote,
			Text:      c.Text,
			Queued:    c.Queued,
			By:        c.Identity,
			CreatedAt: board.Stamp(c.CreatedAt),
		}
	}

	return r, nil
}

// changeComments checks the comments of a call, then removes and adds.
func changeComments(
	ctx context.Context, e *attempt.Engine, b board.View, at *task.Attempt, a CommentArgs, request task.Request,
) ([]string, error) {
	if len(a.Comments) > task.MaxComments {
		return nil, board.Fault("", fmt.Errorf("%w: comments has %d, and at most %d may wait", task.ErrComments,
			len(a.Comments), task.MaxComments))
	}

	waiting, err := b.Comments(ctx, at.ID)
	if err != nil {
		return nil, err
	}

	remove := a.Remove
	if slices.Contains(remove, allComments) {
		remove = nil
		for _, c := range waiting {
			if !c.Queued {
				remove = append(remove, c.ID)
			}
		}
	}

	lines, add := &commented{e: e, b: b, at: at, files: map[[3]string]map[int]string{}}, []task.Comment(nil)
	for i, given := range a.Comments {
		c, err := lines.comment(ctx, fmt.Sprintf("comments[%d]", i), given)
		if err != nil {
			return nil, err
		}
		add = append(add, *c)
	}
	left := slices.DeleteFunc(slices.Clone(waiting), func(c task.Comment) bool { return slices.Contains(remove, c.ID) })
	if err := board.CheckText("the follow-up with all comments that wait", commentsPrompt(at, append(left, add...)),
		board.MaxPrompt); err != nil && len(add) > 0 {
		return nil, err
	}
	added, err := b.ChangeComments(ctx, at.ID, remove, add, request)
	if errors.Is(err, task.ErrSent) {
		return nil, session.Wrong(codes.UnknownComment,
			"Nothing was changed: %v, or it is queued.", err).
			Next("see those that wait", "comment_attempt", "attempt_id", at.ID).
			Next("drop a queued follow-up", "follow_up", "action", attempt.ActionCancel, "attempt_id", at.ID).
			With("argument", "remove").Because(err)
	}
	return added, err
}

// sendComments sends all waiting comments as one follow-up, exactly once. If the agent runs, the follow-up
// waits for its end. A repeated call sends only if some of the comments that it had added still wait.
func sendComments(
	ctx context.Context, e *attempt.Engine, who session.Caller, b board.View, at *task.Attempt, r *CommentsReply,
	repeated bool, added []string,
) error {
	for range sendTries {
		all, err := b.Comments(ctx, at.ID)
		if err != nil {
			return board.AttemptFault("reading the comments", err, at.ID)
		}
		waits := slices.ContainsFunc(all, func(c task.Comment) bool {
			return !c.Queued && (len(added) == 0 || slices.Contains(added, c.ID))
		})
		switch {
		case repeated && !waits:
			r.Notice = new("The comments of this request_id were sent or removed before.")
			return nil
		case len(all) == 0:
			return session.NotNow(codes.NoComments,
				"No comments on attempt %s wait to be sent. Add one first.", at.ID).
				Next("see those that were sent", "get_attempt", "attempt_id", at.ID).With("attempt_id", at.ID)
		}
		ids := xslices.Map(all, func(c task.Comment) string { return c.ID })
		prompt := commentsPrompt(at, all)
		f, err := e.FollowUp(ctx, who, attempt.FollowUpArgs{
			Target:   board.Target{AttemptID: &at.ID},
			Action:   attempt.ActionQueue,
			Prompt:   &prompt,
			Comments: ids,
		})
		if errors.Is(err, task.ErrSent) {
			continue // removed by another call meanwhile
		}
		if err != nil {
			return err
		}
		r.Sent, r.Prompt = &f.Status, &prompt
		if f.Status == attempt.FollowUpQueued {
			r.Notice = new("The agent is running: it gets the comments when it ends. If the queued follow-up is " +
				"dropped until then, they wait again.")
		}

		return nil
	}
	return session.NotNow(codes.CommentsChanged,
		"The comments on attempt %s are being sent or removed by other calls.", at.ID).
		Next("see those that wait", "comment_attempt", "attempt_id", at.ID).With("attempt_id", at.ID)
}

// commentsPrompt returns the text of the follow-up with these comments, which are in order.
func commentsPrompt(at *task.Attempt, all []task.Comment) string {
	var text strings.Builder
	text.WriteString("These are review comments on your changes. Address each of them, and commit. A quoted line is " +
		"as it was when the comment was made.\n")

	file := ""
	for _, c := range all {
		name := attempt.ShownPath(c.File)
		if len(at.Repos) > 1 {
			name = nameOfRepo(at, c.RepoID) + ": " + name
		}
		if name != file {
			fmt.Fprintf(&text, "\n## %s\n", name)
			file = name
		}

		version := ""
		if c.Side == task.OldSide {
			version = " of the version before your changes"
		}
		fmt.Fprintf(&text, "\nLine %d%s:\n> %s\n\n%s\n", c.Line, version, c.Quote, strings.TrimSpace(c.Text))
	}

	return text.String()
}

func nameOfRepo(at *task.Attempt, id string) string {
	for _, r := range at.Repos {
		if r.RepoID == id {
			return r.RepoName
		}
	}
	return id
}

// commented is the diff on which one call comments.
type commented struct {
	e     *attempt.Engine
	b     board.View
	at    *task.Attempt
	files map[[3]string]map[int]string // lines by repository, file and side
}

// comment checks a comment, and quotes its line.
func (d *commented) comment(ctx context.Context, field string, given CommentArg) (*task.Comment, error) {
	c := &task.Comment{
		File: path.Clean(filepath.ToSlash(given.File)),
		Line: given.Line,
		Side: task.NewSide,
		Text: given.Text,
	}

	if strings.TrimSpace(c.Text) == "" {
		return nil, session.Wrong(codes.MissingComment, "%s.text is blank. Say what the agent should change.",
			field).With("argument", field+".text")
	}
	if err := board.CheckText(field+".text", c.Text, task.MaxComment); err != nil {
		return nil, err
	}
	if err := checkPath(field+".file", given.File); err != nil {
		return nil, err
	}

	if given.Side != nil {
		c.Side = *given.Side
	}
	if c.Side != task.NewSide && c.Side != task.OldSide {
		return nil, session.Wrong(codes.UnknownSide,
			"%s.side is %q. Use new, for the file in the worktree, or old, for the file before the attempt.", field,
			board.Clip(c.Side)).
			With("argument", field+".side").With("value", board.Clip(c.Side))
	}
	repo, err := d.repo(field, given.Repo)
	if err != nil {
		return nil, err
	}
	c.RepoID = repo.RepoID
	key := [3]string{repo.RepoID, c.File, c.Side}
	if d.files[key] == nil {
		diff, err := d.diff(ctx, repo, c.File)
		if err != nil {
			return nil, err
		}
		d.files[key] = diffLines(diff, c.File, c.Side)
	}
	lines := d.files[key]
	line, there := lines[c.Line]
	if !there {
		return nil, d.missing(field, repo, c, lines)
	}
	c.Quote = jsontext.Clip(attempt.Printable(strings.ToValidUTF8(line, "?"), "\t"), maxQuote)
	return c, nil
}

// missing explains why a line cannot be commented on.
func (d *commented) missing(field string, repo *task.AttemptRepo, c *task.Comment, lines map[int]string) error {
	if len(lines) == 0 {
		return session.Wrong(codes.NotInDiff,
			"%s: %q has no lines of side %s in the changes of repository %s. An added file has only "+
				"the side new, a deleted one only old, a binary one neither.", field+".file",
			board.Clip(c.File), c.Side, repo.RepoName).
			Next("see the changed files", "get_attempt_diff", "attempt_id", d.at.ID).
			With("argument", field+".file").With("value", board.Clip(c.File))
	}

	last := 0
	for n := range lines {
		last = max(last, n)
	}
	hint := fmt.Sprintf("Its last line is %d.", last)
	if d.at.Elsewhere(d.e.Here) {
		hint = "The attempt is on another machine: name a line of its diff."
	}
	return session.Wrong(codes.NotInDiff, "%s: %q has no line %d on side %s. %s", field+".line", board.Clip(c.File),
		c.Line, c.Side, hint).
		With("argument", field+".line").With("value", c.Line)
}

// repo finds the repository of a comment.
func (d *commented) repo(field string, given *string) (*task.AttemptRepo, error) {
	if given == nil && len(d.at.Repos) == 1 {
		return &d.at.Repos[0], nil
	}
	if attempt.InPlace(d.at) {
		return nil, session.NotNow(codes.InPlace,
			"The run %s works in the project itself, so it has no diff whose lines could be commented.", d.at.ID).
			Next("send it a message", "follow_up", "attempt_id", d.at.ID).With("attempt_id", d.at.ID)
	}

	var names []string
	for i, r := range d.at.Repos {
		if given != nil && (r.RepoName == *given || r.RepoID == *given) {
			return &d.at.Repos[i], nil
		}
		names = append(names, r.RepoName)
	}
	if given == nil {
		return nil, session.Wrong(codes.MissingArgument,
			"%s.repo is missing, and the attempt has several repositories: %s.", field,
			board.Enumerate(names, "none")).With("argument", field+".repo")
	}
	return nil, session.Wrong(codes.UnknownRepo, "%s.repo: the attempt has no repository %q, but %s.", field,
		board.Clip(*given), board.Enumerate(names, "none")).
		With("argument", field+".repo").With("value", board.Clip(*given))
}

// diff returns the changes of a file with all its lines. On another machine it returns the stored changes.
func (d *commented) diff(ctx context.Context, repo *task.AttemptRepo, file string) (string, error) {
	if d.at.Elsewhere(d.e.Here) {
		diffs, _, err := attempt.SavedDiff(ctx, d.b, d.at, attempt.ReportedDiff)
		for _, saved := range diffs {
			if saved.RepoID == repo.RepoID {
				return saved.Diff, err
			}
		}
		return "", err
	}
	if repo.BaseCommit == nil || !attempt.Exists(repo.Worktree) {
		return "", session.NotNow(codes.WorkspaceGone,
			"The worktree %s of attempt %s does not exist, so its diff has no lines. The commits of the attempt are "+
				"on the branch %s.", repo.Worktree, d.at.ID, d.at.Branch).With("attempt_id", d.at.ID)
	}
	diff, _, err := d.e.Worktrees((d.at)).Diff(ctx, repo.Worktree, *repo.BaseCommit, repo.TargetBranch, []string{file},
		commentDiff, "--unified=99999999")
	if err != nil && ctx.Err() == nil {
		return "", attempt.GitFailed("The worktree "+repo.Worktree+" cannot be compared", err)
	}
	return diff, err
}
