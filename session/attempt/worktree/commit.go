package worktree

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/session/git"
)

// Commit commits all changed and untracked files of a worktree, as the user, except untracked copies (see
// Tree.Copy). During a merge this completes it. The error is ErrUnfinished while a merge has conflicts, or
// during another operation.
func (k *Keeper) Commit(ctx context.Context, path, message string) (err error) {
	defer wrap(&err, "committing the changes in %s", path)
	return k.onWorktree(ctx, path, nil, func(b *view) error {
		merging := b.operation() == "merge"
		files, err := b.unmerged(ctx)
		if err == nil && (!merging || len(files) > 0) {
			err = b.finished()
		}
		if err == nil {
			err = git.CheckFilters(ctx, b.call())
		}
		if err != nil {
			return err
		}
		return b.commitAll(ctx, message, merging)
	})
}

// commitAll commits the changes and the untracked files of a worktree, except untracked copies (see
// Tree.Copy). During a merge this completes it. It refuses a repository that was made inside the worktree: a
// commit would keep only the id of that repository's commit.
func (b *view) commitAll(ctx context.Context, message string, merging bool) error {
	loose, same, err := git.Changes(ctx, b.call(), "all")
	if err != nil {
		return err
	}
	for xy, names := range loose {
		for _, name := range names { // T: it replaces a file
			at := filepath.Join(b.Path, name)
			if xy == untracked && strings.HasSuffix(name, "/") ||
				xy[1] == 'T' && isDir(at) && isThere(filepath.Join(at, ".git")) {
				return fmt.Errorf("%s is a git repository of its own, whose files are not committed with the rest: "+
					"move it away, or remove its .git", at)
			}
		}
	}

	ctx = context.WithoutCancel(ctx)
	tracked := []string{":/"}
	for _, name := range same {
		tracked = append(tracked, ":(exclude,top,literal)"+name)
	}
	others := tracked
	for _, name := range b.Copy {
		others = append(others, ":(exclude,top,literal)"+filepath.ToSlash(filepath.Join(b.Folder, name)))
	}
	for which, files := range map[string][]string{"--update": tracked, "--all": others} { // in any order
		c := b.asUser("add", which, "--sparse", "--pathspec-from-file=-", "--pathspec-file-nul")
		c.Stdin = []byte(strings.Join(files, "\x00"))
		if _, err := git.Output(ctx, c); err != nil {
			return err
		}
	}

	_, err = git.Output(ctx, b.call("diff", "--cached", "--quiet"))
	if err == nil && !merging || err != nil && git.ExitCode(err) != 1 {
		return err // nothing is staged, or that is unknown
	}
	if _, err := git.Output(ctx, b.asUser("commit", "--quiet", "--no-verify", "-m", message)); err != nil {
		return err
	}

	b.head, err = commitOf(ctx, b.call(), "HEAD")
	return err
}

// isCopy reports whether an untracked file of the worktree is a copy, see Tree.Copy, or, if the name ends
// with a slash, whether all files in that folder are. Files in a copied folder that are not in the checkout
// are an agent's work.
func (e *record) isCopy(name string) bool {
	if folder, ok := strings.CutSuffix(name, "/"); ok {
		return filepath.WalkDir(filepath.Join(e.Path, filepath.FromSlash(folder)),
			func(at string, f fs.DirEntry, err error) error {
				within, _ := filepath.Rel(e.Path, at) // at is below e.Path
				if err != nil || f.Name() == ".git" || !f.IsDir() && !e.isCopy(filepath.ToSlash(within)) {
					return fs.ErrInvalid
				}
				return nil
			}) == nil
	}
	return slices.ContainsFunc(e.Copy, func(copied string) bool {
		copied = filepath.ToSlash(filepath.Join(e.Folder, copied))
		within, ok := strings.CutPrefix(name, copied+"/")
		return name == copied || ok &&
			isThere(filepath.Join(e.Repo, strings.TrimPrefix(copied, filepath.ToSlash(e.Folder)+"/"),
				filepath.FromSlash(within)))
	})
}
