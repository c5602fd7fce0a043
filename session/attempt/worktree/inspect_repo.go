package worktree

import (
	"context"
	"fmt"
	"strings"

	"deepwork/session"
	"deepwork/session/git"
)

// A repoView is what a repository was found to have.
type repoView struct {
	*repo
	err     error             // why it cannot be used
	refs    map[string]string // branches and rescue refs, and what they hold
	broken  []string          // what git says of refs that it cannot read
	commits map[string]bool   // those that were asked for, and whether they are there
}

// lookAt reads the refs of a repository. If it is not one, the result has err set.
func (k *Keeper) lookAt(ctx context.Context, path string) (*repoView, error) {
	v := &repoView{refs: map[string]string{}, commits: map[string]bool{}}
	if v.repo, v.err = k.findRepo(ctx, path); v.err != nil {
		return v, ctx.Err()
	}
	out, warnings, err := k.gitBoth(ctx, git.Command{
		Dir: v.common, GitDir: v.common, Limit: listLimit,
		Args: []string{"for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/deepwork"},
	})
	if err != nil {
		v.err = err
		return v, ctx.Err()
	}
	for line := range strings.Lines(out) {
		if ref, id, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			v.refs[ref] = id
		}
	}
	for line := range strings.Lines(warnings) {
		if strings.Contains(line, rescueRefs) {
			v.broken = append(v.broken, strings.TrimSpace(line))
		}
	}
	return v, nil
}

// hasCommit reports whether a repository has a commit.
func (k *Keeper) hasCommit(ctx context.Context, r *repoView, id string) (bool, error) {
	if there, asked := r.commits[id]; asked {
		return there, nil
	}
	_, err := k.git(ctx, r.call("cat-file", "-e", id+"^{commit}"))
	if err != nil && git.ExitCode(err) < 0 {
		return false, err
	}
	r.commits[id] = err == nil
	return err == nil, nil
}

// InspectRepo looks at the rescue refs of a repository: whether each can be read,
// and whether the commit it names is there with all its files and all that
// nothing else reaches. It changes nothing, and runs
// git a few times for each rescue ref. kept is how many there are.
func (k *Keeper) InspectRepo(ctx context.Context, path string) (r session.Report, kept int, err error) {
	v, err := k.lookAt(ctx, path)
	if err != nil {
		return r, 0, fmt.Errorf("inspecting the repository %s: %w", path, err)
	}
	if v.err != nil {
		return r, 0, nil // reported if an attempt needs it
	}
	const do = "look for the objects in another clone or a backup (git fsck lists them), or delete the ref with git update-ref -d if what it kept is not needed"
	for _, what := range v.broken {
		r.Fault(v.common, "a rescue ref cannot be read: "+what, do)
	}
	for ref, id := range v.refs {
		if !strings.HasPrefix(ref, rescueRefs) {
			continue
		}
		kept++
		for _, args := range [][]string{
			{"rev-list", "--objects", "--quiet", "--no-walk", id},
			{"rev-list", "--objects", "--quiet", id, "--not", "--branches", "--tags", "--remotes"},
		} {
			_, err := k.git(ctx, v.call(args...))
			if err == nil {
				continue
			}
			if git.ExitCode(err) < 0 {
				return r, 0, fmt.Errorf("inspecting the repository %s: %w", path, err)
			}
			r.Fault(v.common, fmt.Sprintf("what %s keeps is not all there: %v", ref, err), do)
			break
		}
	}
	return r, kept, nil
}
