package worktree

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/session/git"
)

// A ConflictError says that commits cannot be combined without a decision. Nothing was changed.
type ConflictError struct {
	Files  []string // relative, with slashes
	Commit string   // the commit of the attempt that conflicts; "" for a merge of all
}

func (e *ConflictError) Error() string { return fmt.Sprintf("there are conflicts in %q", e.Files) }

// A combination is the result of merging two commits.
type combination struct {
	tree   string   // conflicts are marked in its files
	stages []string // "mode id stage\tpath" of each path with conflicts
}

// files lists the paths with conflicts.
func (c combination) files() (out []string) {
	for _, s := range c.stages {
		if _, name, _ := strings.Cut(s, "\t"); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// asUser returns a git command with the user's identity, signing and merge drivers, that sees the
// files of the worktree, for their attributes, and of the repository's refs only these.
func (e *record) asUser(admin string, refs map[string]string, args ...string) git.Command {
	return git.Command{Dir: e.Path, GitDir: admin, WorkTree: e.Path, Args: args, Limit: listLimit, User: true, Refs: refs}
}

// combine merges two commits, which are named in conflict markers as these refs. It changes no
// worktree.
func (k *Keeper) combine(ctx context.Context, e *record, admin string, ours, theirs refMove) (combination, error) {
	refs := map[string]string{ours.Ref: ours.New, theirs.Ref: theirs.New}
	r, err := git.Once(ctx, e.asUser(admin, refs, "merge-tree", "--write-tree", "--no-messages", "-z", ours.Ref, theirs.Ref))
	code := git.ExitCode(err)
	if k.oldGit || code == 129 { // usage: git before 2.38
		return k.combineInFiles(ctx, e, admin, refs, ours, theirs)
	}
	if err != nil && code != 1 {
		return combination{}, err
	}
	fields := git.Fields(string(r.Stdout))
	if len(fields) == 0 || !commitID.MatchString(fields[0]) || (code == 1) != (len(fields) > 1) {
		return combination{}, fmt.Errorf("git merge-tree: unexpected output of %d bytes: %w", len(r.Stdout), err)
	}
	return combination{fields[0], fields[1:]}, nil
}

// combineInFiles is combine in a temporary worktree.
func (k *Keeper) combineInFiles(ctx context.Context, e *record, admin string, refs map[string]string, ours, theirs refMove) (out combination, err error) {
	tmp, done, err := k.scratch("merge-" + rand.Text())
	if err != nil {
		return out, err
	}
	defer done()
	dir := filepath.Join(tmp, "files")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return out, err
	}
	run := func(stdin string, args ...string) (string, error) {
		c := e.asUser(admin, refs, args...)
		c.Stdin = []byte(stdin)
		c.Dir, c.WorkTree, c.Index, c.Head = dir, dir, filepath.Join(tmp, "index"), ours.New
		return git.Output(ctx, c)
	}
	if _, err := run("", "read-tree", "--reset", "-u", ours.New); err != nil {
		return out, err
	}
	_, failed := run("", "merge", "--quiet", "--no-commit", "--no-ff", theirs.Ref)
	if failed != nil && git.ExitCode(failed) < 0 {
		return out, failed
	}
	left, err := run("", "ls-files", "--unmerged", "-z")
	if err != nil {
		return out, err
	}
	if out.stages = git.Fields(left); failed != nil && len(out.stages) == 0 {
		return out, failed
	}
	if len(out.stages) > 0 {
		if err := stageConflicts(run, out.stages); err != nil {
			return out, err
		}
	}
	tree, err := run("", "write-tree")
	out.tree = strings.TrimSpace(tree)
	return out, err
}

// stageConflicts stages paths with conflicts as their files are; of a submodule, which git add refuses
// if it is not there, our commit.
func stageConflicts(run func(stdin string, args ...string) (string, error), stages []string) error {
	var files, repos strings.Builder
	for _, s := range stages {
		info, name, _ := strings.Cut(s, "\t")
		part := strings.Fields(info)
		if part[0] != modeRepo {
			files.WriteString(name + "\x00")
		} else if part[2] != "1" && !strings.Contains(repos.String(), "\t"+name+"\x00") {
			fmt.Fprintf(&repos, "%s %s 0\t%s\x00", part[0], part[1], name)
		}
	}
	if _, err := run(files.String(), "update-index", "--add", "--remove", "-z", "--stdin"); err != nil {
		return err
	}
	_, err := run(repos.String(), "update-index", "-z", "--index-info")
	return err
}

// showConflicts writes those of the files that a sparse checkout leaves out, as git merge does.
func (f *fileMove) showConflicts(ctx context.Context, files []string) error {
	out, err := git.Output(ctx, f.call("ls-files", "-t", "-z"))
	if err != nil {
		return err
	}
	var hidden strings.Builder
	for _, line := range git.Fields(out) {
		if name, is := strings.CutPrefix(line, "S "); is && slices.Contains(files, name) {
			hidden.WriteString(name + "\x00")
		}
	}
	for _, args := range [][]string{{"update-index", "--no-skip-worktree", "-z", "--stdin"}, {"checkout-index", "--quiet", "-z", "--stdin"}} {
		c := f.call(args...)
		if c.Stdin = []byte(hidden.String()); len(c.Stdin) > 0 && err == nil {
			_, err = git.Output(ctx, c)
		}
	}
	return err
}

// commit makes a commit as the user, signed if the user's git commit signs.
func (k *Keeper) commit(ctx context.Context, e *record, admin, tree, message string, parents []string, env ...string) (string, error) {
	c := e.asUser(admin, nil, "config", "--type=bool", "--get", "commit.gpgSign")
	sign, err := git.Line(ctx, c)
	if err != nil && git.ExitCode(err) != 1 {
		return "", err
	}
	c.Args = []string{"commit-tree", tree}
	for _, p := range parents {
		c.Args = append(c.Args, "-p", p)
	}
	if sign == "true" {
		c.Args = append(c.Args, "-S")
	}
	c.Stdin, c.Env, c.Config = []byte(message), env, []string{"core.fsync=all"}
	return git.Line(ctx, c)
}

// apply returns a tree with what changed from another one to a third, as git cherry-pick does.
func (k *Keeper) apply(ctx context.Context, e *record, admin, before, at, after string) (combination, error) {
	// Merging commits of both, as if the one before were the base of both.
	base, err := standIn(ctx, e.Common, before)
	if err != nil {
		return combination{}, err
	}
	ours, err := standIn(ctx, e.Common, at, "-p", base)
	if err != nil {
		return combination{}, err
	}
	theirs, err := standIn(ctx, e.Common, after, "-p", base)
	if err != nil {
		return combination{}, err
	}
	return k.combine(ctx, e, admin, refMove{Ref: "refs/heads/onto", New: ours}, refMove{Ref: "refs/heads/commit", New: theirs})
}

// replay returns the last of new commits that repeat, on the target, those of the attempt that it
// lacks. Merges, and commits that change nothing there, are left out, as by git rebase.
func (k *Keeper) replay(ctx context.Context, b *branchView) (string, error) {
	e, at, list := b.record, b.target, []string{"rev-list", "--reverse", "--topo-order", "--no-merges", b.head, "--not", b.target}
	if own, err := isAncestor(ctx, e.Common, b.from, b.head); err != nil {
		return "", err
	} else if own {
		list = append(list, b.from)
	}
	out, err := git.Output(ctx, inRepo(e.Common, list...))
	if err != nil {
		return "", err
	}
	for _, id := range strings.Fields(out) {
		info, err := git.Output(ctx, inRepo(e.Common, "show", "--no-patch", "--no-notes", "--no-show-signature", "--encoding=UTF-8",
			"--format=%T%n%P%n%an%n%ae%n%ad%n%B", "--date=raw", id))
		if err != nil {
			return "", err
		}
		part := strings.SplitN(info, "\n", 6)
		if len(part) < 6 {
			return "", fmt.Errorf("git show: unexpected output for commit %s", id)
		}
		tree, parent := part[0], part[1]
		if parent == at {
			at = id // it is there already
			continue
		}
		now, err := treeOf(ctx, e.Common, at)
		if err != nil {
			return "", err
		}
		before := emptyTrees[len(id)/64]
		if parent != "" {
			if before, err = treeOf(ctx, e.Common, parent); err != nil {
				return "", err
			}
		}
		if tree == before {
			continue
		}
		result, err := k.apply(ctx, e, b.admin, before, now, tree)
		switch {
		case err != nil:
			return "", err
		case len(result.stages) > 0:
			return "", &ConflictError{Files: result.files(), Commit: id}
		case result.tree == now:
			continue
		}
		if at, err = k.commit(ctx, e, b.admin, result.tree, strings.TrimRight(part[5], "\n")+"\n", []string{at},
			"GIT_AUTHOR_NAME="+part[2], "GIT_AUTHOR_EMAIL="+part[3], "GIT_AUTHOR_DATE=@"+part[4]); err != nil {
			return "", err
		}
	}
	return at, nil
}

// emptyTrees are the ids of an empty tree, in both object formats of repositories.
var emptyTrees = []string{"4b825dc642cb6eb9a060e54bf8d69288fbee4904", "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"}

// standIn makes a commit that only combine uses.
func standIn(ctx context.Context, common, tree string, parent ...string) (string, error) {
	c := inRepo(common, append([]string{"commit-tree", tree, "-m", "base"}, parent...)...)
	c.Env = []string{"GIT_AUTHOR_DATE=@0 +0000", "GIT_COMMITTER_DATE=@0 +0000"}
	return git.Line(ctx, c)
}

func treeOf(ctx context.Context, common, commit string) (string, error) {
	return git.Line(ctx, inRepo(common, "rev-parse", "--verify", commit+"^{tree}"))
}
