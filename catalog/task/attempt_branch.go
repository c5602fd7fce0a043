package task

import (
	"context"
	"fmt"
)

// BranchTaken tells whether an attempt of the board has a branch of this name,
// be it made already or not.
func (b *Board) BranchTaken(ctx context.Context, branch string) (taken bool, err error) {
	err = b.read(ctx, "looking for a branch", func(t tx) error {
		var one int
		taken, err = t.one(`SELECT 1 FROM attempts WHERE branch = ? LIMIT 1`, []any{branch}, &one)
		return err
	})
	return taken, err
}

// SetBranch gives an attempt whose worktrees are not made yet another branch, or
// returns ErrNotFound; ErrInvalid: one of them is made. Two servers may have drawn
// the same name in one moment.
func (b *Board) SetBranch(ctx context.Context, attemptID, branch string) error {
	now := b.stamp()
	return b.write(ctx, "renaming the branch of an attempt", func(t tx) error {
		if err := t.touch(attemptID, now); err != nil {
			return err
		}
		var one int
		made, err := t.one(`SELECT 1 FROM attempt_repos WHERE attempt_id = ? AND base_commit IS NOT NULL`, []any{attemptID}, &one)
		if err != nil {
			return err
		}
		if made {
			return fmt.Errorf("%w: attempt %q has its worktrees already", ErrInvalid, attemptID)
		}
		_, err = t.exec(`UPDATE attempts SET branch = ? WHERE id = ?`, branch, attemptID)
		return err
	})
}

// WorktreeFolders returns the folders that attempts have theirs in, each once, in
// no order: the config may have named several in the course of time.
func (b *Board) WorktreeFolders(ctx context.Context) (folders []string, err error) {
	err = b.read(ctx, "listing the folders of worktrees", func(t tx) error {
		// <folder>/<attempt>/<repo>
		folders, err = t.strings(`SELECT DISTINCT substr(worktree, 1, instr(worktree, attempt_id) - 2) FROM attempt_repos
			WHERE instr(worktree, attempt_id) > 2`)
		return err
	})
	return folders, err
}
