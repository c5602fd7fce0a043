package worktree

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"deepwork/actor/process"
	"deepwork/session/contain"
	"deepwork/session/git"
)

// Take takes the commits of a contained agent, which has ended, out of its private folder, and removes that unless an
// operation of git is in progress in it.
func (k *Keeper) Take(ctx context.Context, path string) error {
	return k.onWorktree(ctx, path, nil, func(v *view) error {
		if v.Private == nil || v.Private.Operation != "" {
			return nil // onWorktree has taken them
		}
		v.Private = nil
		if err := k.save(v.journal); err != nil {
			return err
		}
		return os.RemoveAll(k.privateOf(v.journal, v.record))
	})
}

// takeAll takes out the commits of contained agents in an attempt's worktrees, or in the one at a path. The attempt
// must be locked.
func (k *Keeper) takeAll(ctx context.Context, j *journal, path string) (err error) {
	for _, e := range j.Trees {
		if (path == "" || path == e.Path) && isDir(e.Path) {
			err = errors.Join(err, k.take(ctx, j, e))
		}
	}
	return err
}

// look prints, of the worktree whose folder in the git folder is its argument: HEAD's commit, its branch, the branch's
// commit, and after an empty line a bundle of what the commits in its input do not reach. Commits without a branch
// and stashed ones get refs, by which they are kept.
const look = `
export GIT_DIR="$1" GIT_NO_REPLACE_OBJECTS=1
git rev-parse -q --verify 'HEAD^{commit}' || echo none
git symbolic-ref -q HEAD || echo none
git rev-parse -q --verify "refs/heads/$2^{commit}" || echo none
git symbolic-ref -q HEAD >/dev/null || git update-ref refs/detached HEAD
n=0
for id in $(git rev-parse -q --verify refs/stash >/dev/null && git rev-list -g refs/stash --); do
	git update-ref "refs/stashes/$n" "$id"
	n=$((n + 1))
done
echo
known=$(cat)
new=$(printf '%s\n' "$known" | git rev-list --count --all --stdin) || exit 1
[ "$new" = 0 ] || printf '%s\n' "$known" | git bundle create -q - --all --stdin
`

// maxBundle limits what comes out of a private folder at once, in bytes.
const maxBundle = 8 << 30

// take moves the attempt's branch, and what the worktree has checked out, to where a contained agent has them, and
// keeps its other commits under attemptRefs. The attempt must be locked.
func (k *Keeper) take(ctx context.Context, j *journal, e *record) (err error) {
	if e.Private == nil {
		return nil
	}
	defer wrap(&err, "taking out the commits of the contained agent in %s", e.Path)
	admin, err := e.folder()
	if err != nil || admin == "" {
		return cmp.Or(err, ErrNoWorktree)
	}
	v := &view{record: e, checkout: checkout{e.Path, admin}, journal: j}
	scratch, done, err := k.scratch()
	if err != nil {
		return err
	}
	defer done()
	said, bundle, err := k.lookInside(ctx, v, scratch)
	if err != nil {
		return err
	}
	head, on, tip := said[0], said[1], said[2]

	unlock, err := k.lockRepo(ctx, e.Common)
	if err != nil {
		return err
	}
	defer unlock()
	if bundle != "" {
		c := inRepo(e.Common, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
			bundle, "+refs/*:"+j.attemptRefs()+"*")
		c.Config = []string{"fetch.fsckObjects=true", "transfer.fsckObjects=true"}
		c.Env = []string{"GIT_ALLOW_PROTOCOL=file"}
		if _, err := git.Output(ctx, c); err != nil {
			return fmt.Errorf("git does not accept them: %w", err)
		}
	}
	k.atPoint("fetched " + e.Name)

	own, err := branchTip(ctx, e.Common, e.Branch)
	if err != nil {
		return err
	}
	if tip != "" && tip != own {
		behind, err := isAncestor(ctx, e.Common, tip, own)
		if err != nil {
			return err
		}
		ahead := own == "" || own == e.Private.Tip
		if !ahead && !behind {
			if ahead, err = isAncestor(ctx, e.Common, own, tip); err != nil {
				return err
			}
		}
		if !ahead && !behind {
			return fmt.Errorf("%w: the commits of its contained agent are kept as %sheads/%s. Merge them into the "+
				"branch", ErrMoved, j.attemptRefs(), e.Branch)
		} else if !ahead {
			tip = own // somebody has merged them
		}
	}
	if tip != "" && tip != own {
		c := inRepo(e.Common, "update-ref", "refs/heads/"+e.Branch, tip, cmp.Or(own, strings.Repeat("0", len(tip))))
		if _, err := git.Output(ctx, c); err != nil {
			return err
		}
	}
	k.atPoint("moved " + e.Name)
	was, err := commitOf(ctx, v.call(), "HEAD")
	if err != nil {
		return err
	}
	if err := v.checkOut(ctx, head, on); err != nil {
		return err
	}
	now := private{Tip: cmp.Or(tip, e.Private.Tip), Operation: git.InProgress(v.adminIn(k.privateOf(j, e))),
		Began: e.Private.Began}
	undone := now.Began != "" && now.Operation == "" && git.InProgress(v.admin) == now.Began
	if (head != was || tip != own || undone) && head != "" {
		if _, err := git.Output(ctx, v.call("reset", "--quiet")); err != nil {
			return err
		}
	}
	if now == *e.Private {
		return nil
	}
	e.Private = &now
	return k.save(j)
}

// checkOut makes the worktree have checked out what its agent has, without touching files: the attempt's branch, or a
// commit if it is another branch or none.
func (v *view) checkOut(ctx context.Context, head, on string) error {
	if head == "" {
		return nil
	}
	own := "refs/heads/" + v.Branch
	if on == own {
		_, err := git.Output(ctx, v.call("symbolic-ref", "HEAD", own))
		return err
	}
	_, err := git.Output(ctx, v.call("update-ref", "--no-deref", "HEAD", head))
	return err
}

// idOrNone matches the id of a commit.
var idOrNone = regexp.MustCompile(`^(none|[0-9a-f]{40}|[0-9a-f]{64})$`)

// lookInside runs look in the private folder of a worktree, contained itself. It returns its three lines, "" for none,
// and the file with the bundle, "" if there are no new commits.
func (k *Keeper) lookInside(ctx context.Context, v *view, scratch string) (said [3]string, bundle string, err error) {
	known, err := git.Output(ctx, inRepo(v.Common, "for-each-ref", "--format=^%(objectname)"))
	if err != nil {
		return said, "", err
	}
	p, err := contain.New(v.Common)
	if err != nil {
		return said, "", err
	}
	dir := k.privateOf(v.journal, v.record)
	objects, err := objectsOf(filepath.Join(v.Common, "objects"))
	if err != nil {
		return said, "", err
	}
	p.Alone = true
	v.mountPrivate(p, dir, objects)
	p.Program(gitProgram())

	out, err := os.Create(filepath.Join(scratch, "out"))
	if err != nil {
		return said, "", err
	}
	defer out.Close()
	_, err = p.Run(ctx, process.Spec{
		Command: []string{"/bin/sh", "-c", look, "sh",
			filepath.Join(v.Common, "worktrees", filepath.Base(v.admin)), v.Branch},
		Stdin: []byte(known), Stdout: out, StdoutLimit: maxBundle,
	}, func(contain.Refusal) {})
	if err != nil {
		return said, "", err
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return said, "", err
	}
	first := make([]byte, 4096)
	n, _ := io.ReadFull(out, first)
	head, _, ok := bytes.Cut(first[:n], []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	if !ok || len(lines) != 3 || !idOrNone.MatchString(lines[0]) || !idOrNone.MatchString(lines[2]) {
		return said, "", fmt.Errorf("git says something unexpected in its private folder: %.300q", head)
	}
	for i, line := range lines {
		if line != "none" {
			said[i] = line
		}
	}
	if _, err := out.Seek(int64(len(head)+2), io.SeekStart); err != nil {
		return said, "", err
	}
	to, err := os.Create(filepath.Join(scratch, "bundle"))
	if err != nil {
		return said, "", err
	}
	size, err := io.Copy(to, out)
	if err = errors.Join(err, to.Close()); err != nil || size == 0 {
		return said, "", err
	}
	return said, to.Name(), nil
}

// gitProgram returns the path of git.
func gitProgram() string {
	path, err := process.Look("git")
	if err != nil {
		return "/usr/bin/git"
	}
	return path
}
