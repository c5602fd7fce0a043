package worktree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/session/git"
)

// A repo is a repository that was found.
type repo struct {
	common string // the git directory that all its worktrees share, absolute and resolved
	top    string // the top of the checkout that the path is in; "" for a bare one
	prefix string // the folder in it that was meant, with slashes; "" for the top
	hash   string // "sha1" or "sha256"; "" until it was asked for
}

// call is a run of git on the repository as such, on no worktree of it.
func (r *repo) call(args ...string) git.Command {
	return git.Command{Dir: r.common, GitDir: r.common, Args: args}
}

// findRepo finds the repository that a path is in. A folder inside a repository
// stands for that repository.
func (k *Keeper) findRepo(ctx context.Context, path string) (*repo, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNotRepo, path, err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%w: %s is a file", ErrNotRepo, path)
	}
	out, err := k.git(ctx, git.Command{Dir: path, Args: []string{"rev-parse", "--is-inside-work-tree", "--absolute-git-dir"}})
	if err != nil {
		if git.ExitCode(err) < 0 {
			return nil, fmt.Errorf("looking at %s: %w", path, err)
		}
		return nil, fmt.Errorf("%w: %s: %w", ErrNotRepo, path, err)
	}
	inside, gitDir, told := strings.Cut(strings.TrimRight(out, "\r\n"), "\n")
	if !told {
		return nil, fmt.Errorf("looking at %s: git told %q, and no directory", path, out)
	}
	r := &repo{}
	if r.common, err = commonDir(gitDir); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNotRepo, path, err)
	}
	if strings.TrimSpace(inside) != "true" {
		return r, nil
	}
	if r.top, err = k.line(ctx, git.Command{Dir: path, Args: []string{"rev-parse", "--show-toplevel"}}); err != nil {
		return nil, fmt.Errorf("looking at %s: %w", path, err)
	}
	prefix, err := k.line(ctx, git.Command{Dir: path, Args: []string{"rev-parse", "--show-prefix"}})
	if err != nil {
		return nil, fmt.Errorf("looking at %s: %w", path, err)
	}
	r.top, r.prefix = filepath.FromSlash(r.top), strings.TrimSuffix(prefix, "/")
	return r, nil
}

// commonDir is the directory that a git directory shares with others of the
// same repository: itself, unless it is a worktree's.
func commonDir(gitDir string) (string, error) {
	gitDir = filepath.FromSlash(gitDir)
	data, err := os.ReadFile(filepath.Join(gitDir, "commondir"))
	switch {
	case err == nil:
		common := strings.TrimRight(string(data), "\r\n")
		if !filepath.IsAbs(common) {
			common = filepath.Join(gitDir, common)
		}
		gitDir = common
	case !os.IsNotExist(err):
		return "", err
	}
	return filepath.EvalSymlinks(gitDir)
}

// branchTip is the commit of a branch, or "" if there is no such branch.
func (k *Keeper) branchTip(ctx context.Context, r *repo, branch string) (string, error) {
	return k.refTip(ctx, r, "refs/heads/"+branch)
}

// refTip is what a ref of that very name holds, or "".
func (k *Keeper) refTip(ctx context.Context, r *repo, ref string) (string, error) {
	// Not rev-parse: that would take main~3 for a branch.
	id, err := k.line(ctx, r.call("show-ref", "--verify", "--hash", "--", ref))
	if err != nil {
		if git.Said(err, "not a valid ref") {
			return "", nil
		}
		return "", err
	}
	return id, nil
}

// base is the commit of a target branch, or ErrNoBranch with what to do.
func (k *Keeper) base(ctx context.Context, r *repo, path, branch string) (string, error) {
	if branch != "" {
		tip, err := k.branchTip(ctx, r, branch)
		if err != nil || tip != "" {
			return tip, err
		}
	}
	all, err := k.Branches(ctx, path)
	if err != nil {
		return "", err
	}
	switch n := len(all); {
	case n == 0:
		return "", fmt.Errorf("%w: %q in %s: the repository has no branch with commits; commit something first", ErrNoBranch, branch, path)
	case n > 10:
		all = append(all[:10:10], fmt.Sprintf("… (%d more)", n-10))
	}
	return "", fmt.Errorf("%w: %q in %s; its branches are: %s", ErrNoBranch, branch, path, strings.Join(all, ", "))
}

// CheckRepo returns ErrNotRepo or ErrNoBranch if a worktree cannot be made of
// it: repo must be a repository, bare or not, or a folder in one, and branch a
// local branch with commits. It runs git and waits for it.
func (k *Keeper) CheckRepo(ctx context.Context, repo, branch string) error {
	r, err := k.findRepo(ctx, repo)
	if err != nil {
		return err
	}
	_, err = k.base(ctx, r, repo, branch)
	return err
}

// Branches lists the local branches of a repository that have commits, the one
// that is checked out at repo first, the others by name. It runs git and waits
// for it; what is no repository is ErrNotRepo.
func (k *Keeper) Branches(ctx context.Context, repo string) ([]string, error) {
	if _, err := k.findRepo(ctx, repo); err != nil {
		return nil, err
	}
	out, err := k.git(ctx, git.Command{Dir: repo, Args: []string{"for-each-ref", "--format=%(refname)", "refs/heads"}, Limit: listLimit})
	if err != nil {
		return nil, fmt.Errorf("listing the branches of %s: %w", repo, err)
	}
	all := strings.Fields(out) // a ref has no blanks
	for i, name := range all {
		all[i] = strings.TrimPrefix(name, "refs/heads/")
	}
	head, err := k.line(ctx, git.Command{Dir: repo, Args: []string{"symbolic-ref", "--quiet", "HEAD"}})
	if err != nil && git.ExitCode(err) != 1 { // 1: detached
		return nil, fmt.Errorf("reading the current branch of %s: %w", repo, err)
	}
	head = strings.TrimPrefix(head, "refs/heads/")
	slices.Sort(all)
	if i := slices.Index(all, head); i > 0 {
		all = slices.Insert(slices.Delete(all, i, i+1), 0, head)
	}
	return all, nil
}
