package page

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"deepwork/session"
	"deepwork/session/attempt"
)

const (
	// commentsTopic is the topic of the comments on an attempt's diff: comments:ATTEMPT.
	commentsTopic = "comments"
	// maxDiff is how many bytes of a diff a page shows; files that are left out have pages of their own.
	maxDiff = 40_000
)

// A review is what an attempt has changed, and the comments on it.
type review struct {
	Tree     folder
	Diffs    []fileDiff
	Cut      bool   // a part of the diff is left out
	Split    bool   // the diff is shown side by side
	Path     string // of the one file that is shown, "" for all
	Comments []attempt.Comment
	Waiting  int // comments that are not queued
}

func (s *Site) reviewOf(ctx context.Context, who session.Caller, r *http.Request, a *attempt.FullAttemptReply) (v review, err error) {
	asked := r.URL.Query()
	v.Split, v.Path = asked.Get("diff") == "split", asked.Get("path")
	args := attempt.DiffArgs{Target: onAttempt(r), MaxBytes: new(maxDiff)}
	if v.Path != "" {
		args.Paths, args.MaxBytes = []string{v.Path}, new(4*maxDiff)
	}
	diff, err := s.Board.GetAttemptDiff(ctx, who, args)
	if err != nil {
		return v, err
	}
	comments, err := s.Board.CommentAttempt(ctx, who, attempt.CommentArgs{Target: onAttempt(r)})
	if err != nil {
		return v, err
	}
	v.Comments, v.Cut = comments.Comments, diff.Truncated
	for _, c := range v.Comments {
		if !c.Queued {
			v.Waiting++
		}
	}
	for _, d := range diff.Diffs {
		files := parseDiff(d.RepoName, d.Diff)
		for i := range files {
			files[i].RepoID = d.RepoID
			files[i].place(v.Comments)
		}
		v.Diffs = append(v.Diffs, files...)
	}
	v.grow(a)
	return v, nil
}

// place puts comments at the lines that they are on.
func (f *fileDiff) place(all []attempt.Comment) {
	for _, c := range all {
		if c.RepoID != f.RepoID || c.File != f.File {
			continue
		}
		i := slices.IndexFunc(f.Lines, func(l diffLine) bool {
			return c.Side == "new" && l.New == c.Line && l.Kind != "hunk" || c.Side == "old" && l.Old == c.Line && l.Kind != "hunk"
		})
		if i >= 0 {
			f.Lines[i].Comments = append(f.Lines[i].Comments, c)
		}
	}
}

// grow makes the tree of all changed files. Those of the diff are links into the page.
func (v *review) grow(a *attempt.FullAttemptReply) {
	seen := map[[2]string]bool{}
	put := func(repo, file string, t treeFile) {
		t.Name = path.Base(file)
		for _, c := range v.Comments {
			if c.RepoName == repo && c.File == file {
				t.Comments++
			}
		}
		dir := path.Dir(file)
		if len(a.Repos) > 1 {
			dir = path.Join(repo, dir)
		}
		seen[[2]string{repo, file}] = true
		v.Tree.add(dir, t)
	}
	for i, d := range v.Diffs {
		put(d.Repo, d.File, treeFile{Link: fmt.Sprintf("#file-%d", i), Added: d.Added, Removed: d.Removed, Here: true})
	}
	for _, repo := range a.Repos {
		for _, file := range repo.ChangedFiles {
			if !seen[[2]string{repo.RepoName, file}] {
				put(repo.RepoName, file, treeFile{Link: "?path=" + url.QueryEscape(file)})
			}
		}
	}
	v.Tree.join()
}

// comment adds a comment to a line.
func (s *Site) comment(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	line, _ := strconv.Atoi(r.PostForm.Get("line")) // 0 is refused
	return s.onComments(ctx, who, r, attempt.CommentArgs{Comments: []attempt.CommentArg{{
		Repo: optional(r, "repo"), File: r.PostForm.Get("file"), Line: line, Side: optional(r, "side"), Text: r.PostForm.Get("text"),
	}}})
}

// removeComment removes a comment, or all that wait.
func (s *Site) removeComment(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	return s.onComments(ctx, who, r, attempt.CommentArgs{Remove: []string{r.PostForm.Get("comment")}})
}

// sendComments sends all comments as one follow-up.
func (s *Site) sendComments(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	return s.onComments(ctx, who, r, attempt.CommentArgs{Send: true})
}

func (s *Site) onComments(ctx context.Context, who session.Caller, r *http.Request, a attempt.CommentArgs) (string, error) {
	a.Target = onAttempt(r)
	done, err := s.Board.CommentAttempt(ctx, who, a)
	if err != nil {
		return "", err
	}
	s.Touch(commentsTopic + ":" + done.AttemptID)
	said := inPages(text(done.Notice))
	if done.Sent != nil {
		said = cmp.Or(said, "The agent goes on with the comments as soon as a slot is free.")
	}
	next := back(r, attemptURL(r))
	if i := strings.Index(next, "notice="); i > 0 { // of an earlier result
		next = next[:i-1]
	}
	return s.said(who, next, said), nil
}
