package worktree

import (
	"cmp"
	"context"
	"regexp"
	"strings"

	"deepwork/session/git"
)

// A since is where the work of an attempt begins, after a call that moved its branch or the target.
// Git alone does not know it: what is merged is in both.
type since struct {
	// From is the commit that the worktree is compared with, while Common is what its branch and the
	// target have in common. If its agent has merged or rebased since, that is another commit.
	From   string `json:"from"`
	Common string `json:"common"`
	Merged bool   `json:"merged,omitempty"` // it was merged, now or earlier
}

var commitID = regexp.MustCompile(`^[0-9a-f]{40,64}$`)

// begin returns the commit at which the work of an attempt begins, and the one that its branch and the
// target have in common, which is "" if that is nothing.
func (e *record) begin(ctx context.Context, head, target string) (from, common string, err error) {
	if common = head; head != target {
		common, err = git.Line(ctx, inRepo(e.Common, "merge-base", target, head))
		if err != nil && git.ExitCode(err) != 1 {
			return "", "", err
		}
	}
	common, _, _ = strings.Cut(common, "\n")
	from = e.Base
	if s := e.Since; s != nil && commitID.MatchString(s.From) {
		if from = s.From; s.Common == common {
			if id, err := commitOf(ctx, inRepo(e.Common), from); err != nil || id != "" {
				return from, common, err
			}
		}
	}
	own := commitID.MatchString(from) && from != common
	if own {
		if own, err = isAncestor(ctx, e.Common, from, head); err != nil {
			return "", "", err
		}
	}
	switch {
	case own && common == head: // somebody else has merged it
		left, err := e.leftAt(ctx, head, target)
		if err != nil || left != "" {
			return left, common, err
		}
		own = e.Since == nil // else the branch was more likely fast-forwarded to the target
	case own && common != "": // of another target, it may have commits that are not the attempt's
		if own, err = isAncestor(ctx, e.Common, common, from); err != nil {
			return "", "", err
		}
	}
	if !own {
		from = cmp.Or(common, target)
	}
	return from, common, nil
}

// leftAt returns the last commit of a target before a branch was merged into it that the branch has, or
// "" if the target was fast-forwarded to the branch.
func (e *record) leftAt(ctx context.Context, head, target string) (string, error) {
	out, err := git.Line(ctx, inRepo(e.Common, "rev-list", "--first-parent", target, "--not", head))
	if err != nil || out == "" {
		return "", err
	}
	left, err := commitOf(ctx, inRepo(e.Common), out[strings.LastIndexByte(out, '\n')+1:]+"^1")
	if left == head {
		left = ""
	}
	return left, err
}

// isAncestor reports whether a commit, which may be missing, is another one or an ancestor of it.
func isAncestor(ctx context.Context, common, commit, of string) (bool, error) {
	_, err := git.Output(ctx, inRepo(common, "merge-base", "--is-ancestor", commit, of))
	if git.ExitCode(err) > 0 {
		return false, nil
	}
	return err == nil, err
}

// moved has a change record where the work begins once the branch has moved to a commit on its target.
// If others have changed the target since the attempt was last merged, that is a commit of the target
// without the attempt's work, or the target if it cannot be taken out.
func (k *Keeper) moved(ctx context.Context, b *branchView, c *change, now, common string, merged bool) error {
	from := b.from
	if b.common != b.target {
		from = b.target
		if b.from != b.common {
			without, err := k.takenOut(ctx, b, now)
			if err != nil {
				return err
			}
			if without != "" {
				from = without
				c.keep(b, from)
			}
		}
	}
	c.Since = &since{From: from, Common: common, Merged: merged || b.Since != nil && b.Since.Merged}
	return nil
}

// takenOut returns a commit with the files of another one without the work of an attempt, or "" if
// that has conflicts.
func (k *Keeper) takenOut(ctx context.Context, b *branchView, now string) (string, error) {
	var trees [3]string
	for i, commit := range []string{b.head, now, b.from} {
		var err error
		if trees[i], err = treeOf(ctx, b.Common, commit); err != nil {
			return "", err
		}
	}
	result, err := k.apply(ctx, b.record, b.admin, trees[0], trees[1], trees[2])
	if err != nil || len(result.stages) > 0 {
		return "", err
	}
	return standIn(ctx, b.Common, result.tree, "-p", b.target)
}
