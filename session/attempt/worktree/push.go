package worktree

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"deepwork/session"
	"deepwork/session/git"
)

// ErrRejected is wrapped with the remote's reason.
var ErrRejected = errors.New("the remote refuses the branch")

// remoteName matches the names of remotes, not URLs or paths.
var remoteName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// Push pushes the commits of an attempt's branch to a remote of its repository, to a branch of the same name,
// with the user's credentials. Commits that its agent made elsewhere are moved to that branch first: see
// adopt. If the user's config has Git LFS, its objects are pushed first; no hook of the repository runs. With
// force, Push replaces the remote branch, but refuses if another repository has pushed to it since, whether
// or not git has fetched that. It does not change the worktree, and does not push uncommitted changes. An
// interrupted call may be repeated. It returns the commit and what was adopted. Errors: ErrRejected,
// ErrNoWorktree, ErrUnfinished, ErrOtherBranch, ErrUnpublished, or git's, for example that it cannot connect.
func (k *Keeper) Push(ctx context.Context, path, remote string, force bool) (r *Landed, err error) {
	defer wrap(&err, "pushing the branch of %s to %q", path, remote)
	if !remoteName.MatchString(remote) {
		return nil, errors.New("it is not the name of a remote; git remote lists them")
	}

	r = &Landed{}
	err = k.onWorktree(ctx, path, nil, func(b *view) error {
		ref, seen := "refs/heads/"+b.Branch, "refs/remotes/"+remote+"/"+b.Branch
		if r.Adopted, err = k.ready(ctx, b); err != nil {
			return err
		}

		commit, err := baseOf(ctx, b.Common, b.Branch)
		if err != nil {
			return err
		}
		r.Before, r.Commit = b.Base, commit
		if err := b.noRepositories(ctx, b.Base, commit); err != nil {
			return err
		}
		before, err := refTip(ctx, inRepo(b.Common), seen)
		if err != nil {
			return err
		}

		c := b.call()
		if top, err := git.TopLevel(ctx, b.Repo); err == nil && top != "" {
			c = git.Command{Dir: top} // a relative URL is relative to the user's checkout
		}
		if err := k.checkRemote(ctx, c, b, remote); err != nil {
			return err
		}

		if err := git.CheckBranch(b.Common, b.Branch, seen, "logs/"+seen); err != nil {
			return err
		}

		if force && before != "" {
			if err := b.replaces(ctx, seen, before, commit); err != nil {
				return err
			}
		}

		c.Network = true
		if err := pushLFS(ctx, c, remote, ref, commit); err != nil {
			return notUsed(ctx, c, err)
		}

		// not the program in the config
		c.Args = []string{"push", "--porcelain", "--no-verify", "--receive-pack=git-receive-pack"}
		if force {
			c.Args = append(c.Args, "--force-with-lease="+ref+":"+before)
		}
		c.Args = append(c.Args, remote, commit+":"+ref)
		out, said, err := git.Run(ctx, c)
		// it may have been deleted there, for example after a merge
		if force && before != "" && strings.Contains(out, "(stale info)") {
			c.Args[len(c.Args)-3] = "--force-with-lease=" + ref + ":"
			out, said, err = git.Run(ctx, c)
		}
		for line := range strings.Lines(out) {
			if why, ok := strings.CutPrefix(line, "!\t"); ok && err != nil {
				if strings.Contains(why, "directory file conflict") ||
					strings.Contains(said, "cannot create '"+ref+"'") {
					why += "\nA branch of the remote has a name that the pushed one begins with, and git allows only " +
						"one of the two: set attempts.branch_prefix."
				}
				return fmt.Errorf("%w: %s\n%s", ErrRejected, strings.TrimSpace(why), strings.TrimSpace(said))
			}
		}
		if err != nil {
			return notUsed(ctx, c, err)
		}

		// git does so only for the branches that the repository fetches, and the next push with force needs
		// it
		_, err = git.Output(ctx, inRepo(b.Common, "update-ref", seen, commit))
		return err
	})
	return r, err
}

// notUsed adds to the error of a command that did not reach a remote which settings of the repository it did not
// follow.
func notUsed(ctx context.Context, c git.Command, err error) error {
	if unused, failed := git.Unreached(ctx, c); failed == nil && len(unused) > 0 {
		return fmt.Errorf("%w\n%s", err, NotRun("to reach the remote", unused))
	}
	return err
}

// checkRemote returns an error if there is no such remote, or if one of its URLs is a repository in the project, in
// a repository of it or in a worktree: whoever prepared that has its hooks and its config run by a push.
func (k *Keeper) checkRemote(ctx context.Context, c git.Command, b *view, remote string) error {
	c.Args = []string{"config", "-z", "--get-regexp", `^remote\.` + regexp.QuoteMeta(remote) + `\.(push)?url$`}
	out, err := git.Output(ctx, c)
	if git.ExitCode(err) == 1 {
		return errors.New("there is no such remote; git remote lists them")
	} else if err != nil {
		return err
	}
	for _, setting := range git.Fields(out) {
		if strings.Count(setting, "\n") > 1 { // one is after the name
			return errors.New("the URL of the remote has a line break: correct it")
		}
	}

	c.Args = []string{"remote", "get-url", "--push", "--all", "--", remote} // with insteadOf
	if out, err = git.Output(ctx, c); err != nil {
		return err
	}
	for given := range strings.Lines(out) {
		at, err := localRepo(c.Dir, strings.TrimRight(given, "\r\n"))
		if err != nil {
			return err
		}
		for _, folder := range []string{k.project, c.Dir, b.Common, k.dir} {
			if at != "" && isBelow(at, folder) {
				return fmt.Errorf("it is the repository at %s, inside %s, whose own hooks and config would run. Move "+
					"it elsewhere, or push yourself: git -C %s push %s %s", at, folder, session.InShell(c.Dir), remote,
					b.Branch)
			}
		}
	}

	return nil
}

// localRepo returns the folder of the repository that a URL names, without symlinks, or "" if the URL is one of a
// server, or nothing is there.
func localRepo(dir, given string) (string, error) {
	at, isURL := strings.CutPrefix(given, "file://")
	host, _, hasColon := strings.Cut(given, ":")
	switch {
	case isURL:
		at = at[max(strings.Index(at, "/"), 0):] // without a host, which git ignores
		if decoded, err := url.PathUnescape(at); err == nil {
			at = decoded
		}
		if filepath.VolumeName(strings.TrimPrefix(at, "/")) != "" {
			at = at[1:]
		}
	case strings.HasPrefix(given, "~"):
		return "", fmt.Errorf("its URL is %s: write the folder in full", given)
	case hasColon && !strings.Contains(host, "/") && filepath.VolumeName(given) == "":
		return "", nil
	}
	if at = filepath.FromSlash(at); !filepath.IsAbs(at) {
		at = filepath.Join(dir, at)
	}
	for _, at := range []string{at, at + ".git"} { // as git looks for it
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return real, nil
		}
	}
	return "", nil
}

// isBelow reports whether a path without symlinks is a folder or in it. It compares folders, not names, of which some
// file systems ignore the case.
func isBelow(path, folder string) bool {
	top, _ := os.Stat(folder)
	for ; ; path = filepath.Dir(path) {
		info, _ := os.Stat(path)
		if os.SameFile(info, top) || path == filepath.Dir(path) {
			return os.SameFile(info, top) // false for one that is missing
		}
	}
}

// replaces returns ErrRejected if what git has seen of a branch on a remote has commits that were never in
// the worktree: others have pushed them, and git has fetched them since, as editors have it do.
func (v *view) replaces(ctx context.Context, seen, before, commit string) error {
	had, err := git.Output(ctx, v.call("rev-list", "--walk-reflogs", "HEAD", "--"))
	if err != nil || had == "" { // without a log that is unknown
		return err
	}

	c := inRepo(v.Common, "rev-list", "--max-count=1", "--stdin")
	c.Stdin = []byte(before + "\n^" + commit + "\n^" + strings.ReplaceAll(strings.TrimSpace(had), "\n", "\n^") + "\n")
	own, err := git.Line(ctx, c)
	if err == nil && own != "" {
		at := "git -C " + session.InShell(v.Path)
		err = fmt.Errorf("%w: %s has commits that were not made in the worktree, such as %.12s. This adds them: %s "+
			"merge %[2]s; this replaces them: %[4]s push --force %s %s", ErrRejected, seen, own, at,
			session.InShell(strings.Split(seen, "/")[2]), v.Branch)
	}

	return err
}

// ready puts the commits of a worktree on the attempt's branch, and refuses to push if its submodules have
// unpublished commits. adopted is what was checked out instead of the branch, or "".
func (k *Keeper) ready(ctx context.Context, b *view) (adopted string, err error) {
	free, err := k.lockRepo(ctx, b.Common)
	if err != nil {
		return "", err
	}
	defer free()

	if was, _, err := b.otherCheckout(ctx); err != nil {
		return "", err
	} else if was != "" {
		if err := b.finished(); err != nil {
			return "", err
		}
	}

	if adopted, err = b.adopt(ctx); err != nil {
		return "", err
	}

	moved, err := b.moved(ctx)
	if err != nil {
		return "", err
	} else if len(moved) > 0 {
		return "", &DirtyError{Path: b.Path, Files: moved}
	}

	if err := git.CheckFilters(ctx, b.call()); err != nil {
		return "", err
	}
	b.from = b.Base
	return adopted, b.published(ctx)
}

// pushLFS pushes the Git LFS objects that a commit needs, like LFS's pre-push hook, if the user has set up
// LFS.
func pushLFS(ctx context.Context, c git.Command, remote, ref, commit string) error {
	c.Args = []string{"config", "--show-scope", "--get-regexp", `^filter\.lfs\.(clean|process)$`}
	out, err := git.Output(ctx, c)
	if err != nil && git.ExitCode(err) != 1 {
		return err
	}
	if !strings.Contains("\n"+out, "\nglobal\t") && !strings.Contains("\n"+out, "\nsystem\t") {
		return nil
	}

	none := strings.Repeat("0", len(commit))
	c.Args, c.Stdin = []string{"lfs", "pre-push", remote}, fmt.Appendf(nil, "%s %s %s %s\n", ref, commit, ref, none)
	_, err = git.Output(ctx, c)
	// the config may come from another machine, and the repository may not use LFS
	if git.Said(err, "'lfs' is not a git command") {
		c.Args = []string{"grep", "--quiet", "-e", "filter=lfs", commit, "--", ":(top,glob)**/.gitattributes"}
		c.Stdin = nil
		if _, uses := git.Output(ctx, c); git.ExitCode(uses) == 1 {
			return nil
		}
	}

	return err
}
