package worktree

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"deepwork/session/git"
)

// ErrRejected is wrapped with the remote's reason.
var ErrRejected = errors.New("the remote refuses the branch")

// remoteName matches the names of remotes, not URLs or paths.
var remoteName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// Push pushes the commits of an attempt's branch to a remote of its repository, to a branch of the
// same name, with the user's credentials. The objects of Git LFS are pushed first if the user's config
// has LFS; no hook of the repository runs. With force it replaces the branch, which is refused if
// another than this repository has pushed to it since. It changes nothing in the worktree, whose
// changes that are not committed stay behind; a call that was interrupted may be repeated. It returns
// the commit. Errors: ErrRejected, ErrNoWorktree, or git's, for example that it cannot connect.
func (k *Keeper) Push(ctx context.Context, path, remote string, force bool) (commit string, err error) {
	defer wrap(&err, "pushing the branch of %s to %q", path, remote)
	if !remoteName.MatchString(remote) {
		return "", errors.New("it is not the name of a remote; git remote lists them")
	}
	err = k.onWorktree(ctx, path, nil, func(b *view) error {
		ref, seen := "refs/heads/"+b.Branch, "refs/remotes/"+remote+"/"+b.Branch
		if commit, err = refTip(ctx, inRepo(b.Common), ref); err != nil {
			return err
		} else if commit == "" {
			return fmt.Errorf("%w: %q in %s", ErrNoBranch, b.Branch, b.Common)
		}
		before, err := refTip(ctx, inRepo(b.Common), seen)
		if err != nil {
			return err
		}
		c := b.call("config", "--get", "remote."+remote+".url")
		if _, err := git.Output(ctx, c); git.ExitCode(err) == 1 {
			return errors.New("there is no such remote; git remote lists them")
		} else if err != nil {
			return err
		}
		if err := git.CheckBranch(b.Common, b.Branch, seen, "logs/"+seen); err != nil {
			return err
		}
		c.Network = true
		if err := pushLFS(ctx, c, remote, ref, commit); err != nil {
			return err
		}
		c.Args = []string{"push", "--porcelain", "--no-verify", "--receive-pack=git-receive-pack"} // not the program of the config
		if force {
			c.Args = append(c.Args, "--force-with-lease="+ref+":"+before)
		}
		c.Args = append(c.Args, remote, commit+":"+ref)
		out, said, err := git.Run(ctx, c)
		for line := range strings.Lines(out) {
			if why, is := strings.CutPrefix(line, "!\t"); is && err != nil {
				return fmt.Errorf("%w: %s\n%s", ErrRejected, strings.TrimSpace(why), strings.TrimSpace(said))
			}
		}
		return err
	})
	return commit, err
}

// pushLFS pushes the objects of Git LFS that a commit needs, as its pre-push hook does, if the user has
// LFS set up.
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
	return err
}
