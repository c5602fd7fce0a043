package worktree

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"deepwork/session/git"
)

// A Status is what was changed in one worktree since its target branch.
type Status struct {
	Exists  bool     // false: the folder is gone, and the rest is zero
	Ahead   int      // commits of the worktree that the target has not
	Behind  int      // commits of the target that the worktree has not
	Changed []string // committed, uncommitted and untracked files, sorted, relative, with slashes
}

// Status looks at a worktree. Where the target branch is gone, or target is "",
// base stands for it. Files of a repository inside the worktree are listed one by
// one. It takes no lock and changes nothing, an agent may be at work there; it
// blocks until git has looked.
func (k *Keeper) Status(ctx context.Context, path, base, target string) (Status, error) {
	if !isDir(path) {
		return Status{}, nil
	}
	st, err := k.status(ctx, path, base, target)
	if err != nil {
		return Status{}, fmt.Errorf("looking at the worktree %s: %w", path, err)
	}
	return st, nil
}

func (k *Keeper) status(ctx context.Context, path, base, target string) (Status, error) {
	v, err := k.view(ctx, path, base, target)
	if err != nil {
		return Status{}, err
	}
	st := Status{Exists: true}
	changed := map[string]bool{}
	if v.head != "" {
		out, err := k.line(ctx, v.call("rev-list", "--left-right", "--count", v.target+"..."+v.head))
		if err != nil {
			return Status{}, err
		}
		behind, ahead, _ := strings.Cut(out, "\t")
		st.Behind, _ = strconv.Atoi(behind)
		st.Ahead, _ = strconv.Atoi(ahead)
		if out, err = k.git(ctx, v.call("diff-tree", "-r", "-z", "--name-only", "--no-renames", v.from, v.head)); err != nil {
			return Status{}, err
		}
		for _, name := range git.Fields(out) {
			changed[name] = true
		}
	}
	out, err := k.git(ctx, v.call("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=no"))
	if err != nil {
		return Status{}, err
	}
	for _, line := range git.Fields(out) {
		if len(line) > 3 {
			changed[line[3:]] = true
		}
	}
	loose, err := v.loose(ctx)
	if err != nil {
		return Status{}, err
	}
	for _, name := range loose {
		changed[name] = true
	}
	st.Changed = slices.Sorted(maps.Keys(changed))
	return st, nil
}

// A view is a worktree as Status and Diff see it.
type view struct {
	k      *Keeper
	path   string
	admin  string
	head   string // its commit; "" means none
	target string // the target's commit
	from   string // where it left the target
}

func (v *view) call(args ...string) git.Command {
	return git.Command{Dir: v.path, GitDir: v.admin, WorkTree: v.path, Args: args, Limit: listLimit}
}

// view returns what a worktree is compared with.
func (k *Keeper) view(ctx context.Context, path, base, target string) (v *view, err error) {
	v = &view{k: k, path: path}
	if v.admin, err = k.locate(path); err != nil {
		return nil, err
	}
	common, err := commonDir(v.admin)
	if err != nil {
		return nil, err
	}
	if target != "" {
		if v.target, err = k.branchTip(ctx, &repo{common: common}, target); err != nil {
			return nil, err
		}
	}
	if v.target == "" && commitID.MatchString(base) {
		if v.target, err = k.line(ctx, v.call("rev-parse", "--verify", "--quiet", base+"^{commit}")); err != nil && git.ExitCode(err) < 0 {
			return nil, err
		}
	}
	if v.target == "" {
		return nil, fmt.Errorf("neither the branch %q nor the commit %q is in the repository", target, base)
	}
	if v.head, err = k.line(ctx, v.call("rev-parse", "--verify", "--quiet", "HEAD^{commit}")); err != nil && git.ExitCode(err) != 1 {
		return nil, err
	}
	v.from = v.target
	if v.head != "" {
		from, err := k.line(ctx, v.call("merge-base", v.target, v.head))
		if err != nil && git.ExitCode(err) != 1 { // 1: they have nothing in common
			return nil, err
		}
		if from != "" {
			v.from, _, _ = strings.Cut(from, "\n")
		}
	}
	return v, nil
}

// commitID is what a base looks like.
var commitID = regexp.MustCompile(`^[0-9a-f]{40,64}$`)

// locate finds the administrative folder of a worktree: by its .git file, or,
// where an agent has removed or replaced that, by the journal. It never looks
// above the worktree: there is the main checkout.
func (k *Keeper) locate(path string) (string, error) {
	if data, err := os.ReadFile(filepath.Join(path, ".git")); err == nil {
		if admin, ok := strings.CutPrefix(strings.TrimRight(string(data), "\r\n"), "gitdir: "); ok {
			admin = filepath.FromSlash(admin)
			if !filepath.IsAbs(admin) {
				admin = filepath.Join(path, admin)
			}
			if common, err := commonDir(admin); err == nil {
				if found := adminOf(common, path); found != "" {
					return found, nil
				}
			}
		}
	}
	attempt := filepath.Base(filepath.Dir(path))
	if attemptName.MatchString(attempt) {
		j, err := k.load(attempt)
		if err != nil {
			return "", err
		}
		if j != nil {
			for _, e := range j.Trees {
				if filepath.Clean(e.Path) == filepath.Clean(path) {
					if admin := adminOf(e.Common, e.Path); admin != "" {
						return admin, nil
					}
				}
			}
		}
	}
	return "", ErrNoWorktree
}

// loose lists the untracked files that are not ignored, those of repositories
// inside included.
func (v *view) loose(ctx context.Context) ([]string, error) {
	untracked, _, err := v.k.untracked(ctx, v.call())
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range untracked {
		dir, is := strings.CutSuffix(name, "/")
		if !is {
			out = append(out, name)
			continue
		}
		inner, err := v.k.filesOf(ctx, v.path, dir)
		if err != nil {
			if git.ExitCode(err) < 0 && !errors.Is(err, os.ErrNotExist) {
				return nil, err
			}
			inner = []string{name} // it cannot be read: it is named as a whole
		}
		out = append(out, inner...)
	}
	return out, nil
}
