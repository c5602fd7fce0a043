package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/durable"
	"deepwork/session/git"
)

// listLimit limits a listing of files, in bytes.
const listLimit = 256 << 20

// A repository is identified by the git directory that all its worktrees share, as an absolute path without
// symlinks. It is called common, as in git.

// inRepo returns a git command for a repository itself, not for one of its worktrees.
func inRepo(common string, args ...string) git.Command {
	return git.Command{Dir: common, GitDir: common, Args: args, Limit: listLimit}
}

// call returns a git command for a worktree. It does not trust the .git file, which an agent or the project
// may write. Worktrees are made in folders that the user has approved, so the filters of the user's config
// run.
func call(path, admin string, args ...string) git.Command {
	return git.Command{Dir: path, GitDir: admin, WorkTree: path, Args: args, Limit: listLimit, Filters: true}
}

// findRepo finds the repository that contains a path, which may be a folder inside it.
func findRepo(ctx context.Context, path string) (common string, err error) {
	if info, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrNotRepo, path, err)
	} else if !info.IsDir() {
		return "", fmt.Errorf("%w: %s is a file", ErrNotRepo, path)
	}

	// The path of a bare repository must be the repository itself, not a folder inside it. A work tree may
	// have folders with such names.
	itself := ""
	if !isThere(filepath.Join(path, ".git")) &&
		!slices.ContainsFunc([]string{"HEAD", "objects", "refs"}, func(name string) bool {
			_, err := os.Stat(filepath.Join(path, name))
			return err != nil
		}) {
		itself = path
	}
	gitDir, err := git.Line(ctx,
		git.Command{Dir: path, GitDir: itself, Args: []string{"rev-parse", "--absolute-git-dir"}})
	if err != nil && (git.ExitCode(err) < 0 || git.Said(err, "dubious ownership")) {
		return "", fmt.Errorf("looking at %s: %w", path, err)
	}
	if err == nil {
		common, err = commonDir(gitDir)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrNotRepo, path, err)
	}
	return common, nil
}

// commonDir returns the directory that a git directory shares with all worktrees, without symlinks.
func commonDir(gitDir string) (string, error) {
	data, _, err := durable.Read(filepath.Join(gitDir, "commondir"), maxGitFile)
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

// branchTip returns the commit of a branch, or "" if there is no such branch.
func branchTip(ctx context.Context, common, branch string) (string, error) {
	return refTip(ctx, inRepo(common), "refs/heads/"+branch)
}

// refTip returns the value of the ref with exactly this name, or "".
func refTip(ctx context.Context, c git.Command, ref string) (string, error) {
	// rev-parse would take main~3 for a branch.
	c.Args = []string{"show-ref", "--verify", "--hash", "--", ref}
	id, err := git.Line(ctx, c)
	if !git.Said(err, "not a valid ref") {
		return id, err
	}

	// show-ref also says so about a ref that it cannot read.
	c.Args = []string{"for-each-ref", "--format=%(objectname) %(refname)", ref}
	found, warnings, err := git.Run(ctx, c)
	for line := range strings.Lines(found + warnings) {
		before, ok := strings.CutSuffix(strings.TrimSpace(line), " "+ref)
		if ok && strings.Contains(before, " ") {
			return "", fmt.Errorf("git cannot read %s in %s (%s)", ref, c.GitDir, strings.TrimSpace(line))
		} else if ok {
			return before, nil
		}
	}

	return "", err
}

// commitOf returns the commit to which a name refers, or "" if git finds none.
func commitOf(ctx context.Context, c git.Command, name string) (string, error) {
	c.Args = []string{"rev-parse", "--verify", "--quiet", name + "^{commit}"}
	id, err := git.Line(ctx, c)
	if git.ExitCode(err) == 1 {
		return "", nil
	}
	return id, err
}

// baseOf returns the commit of a target branch, or ErrNoBranch.
func baseOf(ctx context.Context, common, branch string) (tip string, err error) {
	if branch != "" {
		tip, err = branchTip(ctx, common, branch)
	}
	if err == nil && tip == "" {
		err = fmt.Errorf("%w: %q in %s", ErrNoBranch, branch, common)
	}
	return tip, err
}

// Folder returns the path of a folder in the work tree of its repository, or "" at the top and for a bare
// repository. It runs git.
func Folder(ctx context.Context, repo string) string {
	top, err := git.TopLevel(ctx, repo)
	if err != nil {
		return ""
	}
	rel, err := filepath.Rel(canonical(top), canonical(repo))
	if err != nil || rel == "." || !filepath.IsLocal(rel) {
		return ""
	}
	return rel
}

// CheckRepo returns ErrNotRepo or ErrNoBranch if a worktree cannot be created: repo must be a repository,
// bare or not, or a folder in one, and branch a local branch with commits. It runs git and waits for it.
func CheckRepo(ctx context.Context, repo, branch string) error {
	_, _, err := findBase(ctx, repo, branch)
	return err
}

// findBase finds the repository at a path and the commit of a branch in it, for a worktree.
func findBase(ctx context.Context, repo, branch string) (common, base string, err error) {
	common, err = findRepo(ctx, repo)
	if err == nil {
		err = ownGitDir(repo)
	}
	if err == nil {
		base, err = baseOf(ctx, common, branch)
	}
	return common, base, err
}

// ownGitDir returns an error if the .git of the repository around path is a symbolic link: branches and
// worktrees would be written where it leads, which may be another repository.
func ownGitDir(path string) error {
	for dir := path; ; dir = filepath.Dir(dir) {
		at := filepath.Join(dir, ".git")
		fi, err := os.Lstat(at)
		switch {
		case err == nil && fi.Mode()&(fs.ModeSymlink|fs.ModeIrregular) != 0:
			return fmt.Errorf("%s is a link, and git would write where it leads: replace it with what it points to, "+
				"or name that repository", at)
		case err == nil || dir == filepath.Dir(dir):
			return nil
		}
	}
}

// Branches lists the local branches of a repository that have commits: first the one that is checked out at
// repo, then the others by name. It runs git and waits for it.
func Branches(ctx context.Context, repo string) ([]string, error) {
	out, err := git.Output(ctx, git.Command{Dir: repo, Limit: listLimit,
		Args: []string{"for-each-ref", "--sort=refname", "--sort=-HEAD", "--format=%(refname:lstrip=2)", "refs/heads"}})
	if err != nil {
		return nil, fmt.Errorf("listing the branches of %s: %w", repo, err)
	}
	return strings.Fields(out), nil // refs have no white space
}

// MergedBranches returns those of some branches of a repository that are in a target branch, each with its commit. It
// runs git once.
func MergedBranches(ctx context.Context, repo, target string, branches []string) (map[string]string, error) {
	args := []string{"for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", "--merged=refs/heads/" + target}
	for _, branch := range branches {
		args = append(args, "refs/heads/"+branch)
	}
	out, err := git.Output(ctx, git.Command{Dir: repo, Args: args, Limit: listLimit})
	if err != nil {
		return nil, fmt.Errorf("looking for merged branches in %s: %w", repo, err)
	}
	merged := map[string]string{}
	for line := range strings.Lines(out) {
		commit, branch, _ := strings.Cut(strings.TrimSpace(line), " ")
		merged[branch] = commit
	}
	return merged, nil
}

// CurrentBranch returns the branch that is checked out at a repository, "" if none is. It runs git
// and waits for it.
func CurrentBranch(ctx context.Context, repo string) (string, error) {
	branch, err := git.Line(ctx, git.Command{Dir: repo, Args: []string{"symbolic-ref", "--quiet", "HEAD"}})
	if git.ExitCode(err) == 1 {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the current branch of %s: %w", repo, err)
	}
	return strings.TrimPrefix(branch, "refs/heads/"), nil // --short would be longer if a tag has the same name
}

// isAncestor reports whether a commit, which may be missing, is another one or its ancestor.
func isAncestor(ctx context.Context, common, commit, of string) (bool, error) {
	_, err := git.Output(ctx, inRepo(common, "merge-base", "--is-ancestor", commit, of))
	if git.ExitCode(err) > 0 {
		return false, nil
	}
	return err == nil, err
}

// maxGitFile is the maximum size in bytes of git's files that hold a path.
const maxGitFile = 1 << 20

// For each worktree git has an administrative folder below the repository's worktrees/. It has the worktree's
// HEAD and index, and in the file gitdir its path (gitrepository-layout(5)).

// admins lists the administrative folders of a repository's worktrees.
func admins(common string) []string {
	parent := filepath.Join(common, "worktrees")
	list, _ := os.ReadDir(parent) // git removes the folder with the last worktree
	var out []string
	for _, f := range list {
		if f.IsDir() {
			out = append(out, filepath.Join(parent, f.Name()))
		}
	}
	return out
}

// adminOf returns the administrative folder of the worktree at a path, which may be missing, or "" if the
// repository has no such worktree.
func adminOf(common, path string) string {
	want := canonical(path)
	for _, admin := range admins(common) {
		if pathOf(admin) == want {
			return admin
		}
	}
	return ""
}

// folder is adminOf for a worktree in the journal. It returns ErrNotOurs if git would assign the folder to
// another repository.
func (e *record) folder() (string, error) {
	admin := adminOf(e.Common, e.Path)
	if admin == "" {
		return "", nil
	}
	common, err := commonDir(admin)
	if errors.Is(err, os.ErrNotExist) || err == nil && common != canonical(e.Common) {
		err = fmt.Errorf("%w: %s must name the repository %s but names another; correct it", ErrNotOurs,
			filepath.Join(admin, "commondir"), e.Common)
	}
	return admin, err
}

// pathOf returns the path of an administrative folder's worktree, without symlinks, or "" if it is
// unknown.
func pathOf(admin string) string {
	data, _, err := durable.Read(filepath.Join(admin, "gitdir"), maxGitFile)
	if err != nil || len(data) == 0 {
		return ""
	}
	at := filepath.FromSlash(strings.TrimRight(string(data), "\r\n"))
	if !filepath.IsAbs(at) {
		at = filepath.Join(admin, at) // worktree.useRelativePaths
	}
	return canonical(filepath.Dir(at))
}

// canonical resolves the symlinks of a path, as far as it exists.
func canonical(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}

	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(canonical(parent), filepath.Base(path))
}

// lockedBy reports whether a worktree is locked (git worktree lock), and why.
func lockedBy(admin string) (reason string, locked bool) {
	data, _, err := durable.Read(filepath.Join(admin, "locked"), maxGitFile)
	return strings.TrimSpace(string(data)), err == nil && admin != ""
}

// dropAdmin removes the repository's entry of a worktree whose folder is gone. The repository must be locked.
func dropAdmin(ctx context.Context, common, path string) error {
	admin := adminOf(common, path)
	if admin == "" {
		return nil
	}

	// a program has recreated the folder
	if reason, locked := lockedBy(admin); locked && reason == initializing || isThere(path) {
		return removeHalfMade(common, admin)
	}
	_, err := git.Output(ctx, inRepo(common, "worktree", "remove", "--force", pathOf(admin)))
	if err != nil && adminOf(common, path) != "" {
		return fmt.Errorf("removing the worktree %s: %w", path, err)
	}

	return nil
}

// initializing is the reason with which git locks a worktree while adding it.
const initializing = "initializing"

// removeHalfMade removes what a killed worktree add has left of an entry. Its files may be empty, which makes
// git fail in the whole repository.
func removeHalfMade(common, admin string) error {
	root, err := os.OpenRoot(common)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.RemoveAll(filepath.Join("worktrees", filepath.Base(admin))); err != nil {
		return fmt.Errorf("removing what a git that was killed has left: %w", err)
	}
	return nil
}
