package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"deepwork/session/git"
)

// A Rescue is what was kept of a worktree before it was removed: a commit whose
// first parent is the worktree's HEAD and whose tree is what lay there. Where
// something else was staged, the second parent holds the index; commits that
// nothing else reaches are further parents. A repository that was made inside
// has its files there as files, and its git directory, if commits are in it that
// are on no remote, as .deepwork-git.tar beside them.
type Rescue struct {
	Path   string // the worktree, or the attempt's folder for what lay beside the worktrees
	Ref    string // refs/deepwork/rescue/<attempt>; "" where there was nothing to keep
	Commit string // hex; "" likewise
}

// rescueRefs is where rescue commits are. A second one of an attempt in the same
// repository has a suffix: a ref cannot be a folder for others.
const rescueRefs = "refs/deepwork/rescue/"

// keep keeps the work of a worktree under a rescue ref, if there is any, and
// writes into the record where. It changes nothing in the worktree: the index it
// uses is one of its own.
func (k *Keeper) keep(ctx context.Context, j *journal, e *record, mode keeping) error {
	r, admin, there := e.repo(), adminOf(e.Common, e.Path), isDir(e.Path)
	switch {
	case mode == keepNothing, admin == "" && !there, !there && e.Step == dropping:
		return nil
	case !isDir(e.Common):
		return fmt.Errorf("%w: its repository %s is gone; put it back, or remove %s by hand", ErrNotKept, e.Common, e.Path)
	case mode == keepPresent && (!there || bare(e.Path)):
		return nil // no file was checked out yet
	case !there:
		mode = keepPresent // it was removed by hand: of its files nothing is left to keep
	}
	tmp, done, err := k.scratch("keep-" + j.Attempt + "-")
	if err != nil {
		return err
	}
	defer done()
	s := &scan{k: k, repo: r, admin: admin, root: e.Path, tmp: tmp, keeping: mode}
	if err := k.keepScan(ctx, j, e, s); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNotKept, e.Path, err)
	}
	return nil
}

func (k *Keeper) keepScan(ctx context.Context, j *journal, e *record, s *scan) (err error) {
	if s.repo.hash, err = k.line(ctx, s.repo.call("rev-parse", "--show-object-format")); err != nil {
		return err
	}
	if s.headID, err = k.headOf(ctx, s, e); err != nil {
		return err
	}
	if err := s.run(ctx); err != nil {
		return err
	}
	tree, err := "", error(nil)
	if len(s.changes) > 0 {
		if tree, err = s.writeTree(ctx, s.changes); err != nil {
			return err
		}
	}
	staged, err := s.stagedCommit(ctx)
	if err != nil {
		return err
	}
	lost, err := k.inDanger(ctx, j.Attempt, s)
	if err != nil || tree == "" && staged == "" && len(lost) == 0 {
		return err
	}
	if tree == "" {
		if tree, err = s.writeTree(ctx, nil); err != nil {
			return err
		}
	}
	var parents []string
	for _, id := range append([]string{s.headID, staged}, lost...) {
		if id != "" && !slices.Contains(parents, id) {
			parents = append(parents, id)
		}
	}
	message := keptOf + j.Attempt + keptIn + e.Name + "\n\nKept before the worktree was removed.\n"
	e.Ref, e.Commit, err = k.pin(ctx, s, []string{j.Attempt, j.Attempt + "-" + slug(e.Name, "repo")}, tree, parents, message)
	return err
}

// headOf is the commit that a worktree stands on, "" if there is none yet.
func (k *Keeper) headOf(ctx context.Context, s *scan, e *record) (string, error) {
	if s.admin == "" {
		tip, err := k.branchTip(ctx, s.repo, e.Branch)
		if err != nil || tip != "" {
			return tip, err
		}
		return e.Base, nil
	}
	head, err := k.line(ctx, s.call("rev-parse", "--verify", "--quiet", "HEAD^{commit}"))
	if err != nil && git.ExitCode(err) != 1 {
		return "", err
	}
	return head, nil
}

// stagedCommit is a commit of what is in the index and neither in the head nor
// in the files; "" if there is nothing of the kind. Its dates are the head's,
// so that keeping the same again gives the same commit.
func (s *scan) stagedCommit(ctx context.Context) (string, error) {
	empty := hashText("", s.repo.hash) // also of files whose adding is only intended
	staged := map[string]blob{}
	for name, b := range s.index {
		now, changed := s.changes[name]
		if !changed {
			now = s.head[name]
		}
		if b != s.head[name] && b.id != now.id && b.id != empty && b.mode != modeRepo {
			staged[name] = b
		}
	}
	if len(staged) == 0 {
		return "", nil
	}
	tree, err := s.writeTree(ctx, staged)
	if err != nil {
		return "", err
	}
	c := s.call("commit-tree", tree, "-m", "What was staged")
	date := "@0 +0000"
	if s.headID != "" {
		at, err := s.k.line(ctx, s.call("show", "--no-patch", "--format=%ct", s.headID))
		if err != nil {
			return "", err
		}
		date = "@" + at + " +0000"
		c.Args = append(c.Args, "-p", s.headID)
	}
	c.Env = []string{"GIT_AUTHOR_DATE=" + date, "GIT_COMMITTER_DATE=" + date}
	return s.k.line(ctx, c)
}

// inDanger lists the commits that nothing reaches once the worktree is gone: its
// detached HEAD, detached commits that it has left, what a merge, a cherry-pick
// or an autostash under way has at hand, and its private refs.
func (k *Keeper) inDanger(ctx context.Context, attempt string, s *scan) ([]string, error) {
	ids := append([]string{s.headID}, s.commits...)
	if s.admin != "" {
		ids = append(ids, leftBehind(s.admin)...)
		for _, name := range []string{"MERGE_HEAD", "CHERRY_PICK_HEAD", "MERGE_AUTOSTASH", "rebase-merge/autostash", "rebase-apply/autostash"} {
			data, err := os.ReadFile(filepath.Join(s.admin, filepath.FromSlash(name)))
			if err != nil && !missing(err) {
				return nil, err
			}
			ids = append(ids, strings.Fields(string(data))...)
		}
		out, err := k.git(ctx, s.call("for-each-ref", "--format=%(objectname)", "refs/worktree"))
		if err != nil {
			return nil, err
		}
		ids = append(ids, strings.Fields(out)...)
	}
	var known []string
	for _, id := range ids {
		if id == "" {
			continue
		}
		// The reflog may tell of commits that were cleaned up long since.
		if id, err := k.line(ctx, s.repo.call("rev-parse", "--verify", "--quiet", id+"^{commit}")); err == nil {
			known = append(known, id)
		} else if git.ExitCode(err) < 0 {
			return nil, err
		}
	}
	return k.unreached(ctx, s.repo, attempt, known)
}

// detached is how git notes that a checkout leaves a commit that is on no branch.
var detached = regexp.MustCompile(`\tcheckout: moving from [0-9a-f]{40,64} to `)

// leftBehind reads from the reflog of a worktree's HEAD which commits were left:
// those of which git warns that they are left behind.
func leftBehind(admin string) []string {
	data, err := os.ReadFile(filepath.Join(admin, "logs", "HEAD"))
	if err != nil {
		return nil // it keeps no reflog
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		if old, _, ok := strings.Cut(line, " "); ok && detached.MatchString(line) {
			out = append(out, old)
		}
	}
	return out
}

// pin makes a commit and the first of some refs that is free its ref. What is
// kept already is not kept twice.
func (k *Keeper) pin(ctx context.Context, s *scan, names []string, tree string, parents []string, message string) (ref, commit string, err error) {
	for n := 0; ; n++ {
		name := names[min(n, len(names)-1)]
		if n >= len(names) {
			name = fmt.Sprintf("%s-%d", name, n-len(names)+2)
		}
		ref = rescueRefs + name
		tip, err := k.refTip(ctx, s.repo, ref)
		if err != nil {
			return "", "", err
		}
		if tip != "" {
			have, err := k.line(ctx, s.repo.call("show", "--no-patch", "--format=%T %P", tip))
			if err != nil {
				return "", "", err
			}
			if have == strings.TrimRight(tree+" "+strings.Join(parents, " "), " ") || have == tree+" "+strings.Join(parents, " ") {
				return ref, tip, nil
			}
			continue
		}
		if commit == "" {
			c := s.repo.call("commit-tree", tree, "-m", message)
			c.Config = []string{"core.fsync=all"}
			for _, p := range parents {
				c.Args = append(c.Args, "-p", p)
			}
			if commit, err = k.line(ctx, c); err != nil {
				return "", "", err
			}
		}
		k.at("rescue commit")
		c := s.repo.call("update-ref", ref, commit, "")
		c.Config = []string{"core.fsync=all"}
		if _, err := k.git(ctx, c); err == nil {
			k.at("rescue ref")
			return ref, commit, nil
		} else if tip, look := k.refTip(ctx, s.repo, ref); look != nil || tip == "" {
			return "", "", err
		} // somebody took the name just now
	}
}

// keepRest keeps what lies in the attempt's folder beside the worktrees: an agent
// that has several works there.
func (k *Keeper) keepRest(ctx context.Context, j *journal) error {
	folder, ours := k.folder(j.Attempt), map[string]bool{}
	var r *repo
	for _, e := range j.Trees {
		ours[e.Name] = e.Step != dropped
		if r == nil && isDir(e.Common) {
			r = e.repo()
		}
	}
	list, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrNotKept, err)
	}
	more := false
	for _, f := range list {
		more = more || !ours[f.Name()]
	}
	if !more {
		return nil
	}
	if r == nil {
		return fmt.Errorf("%w: its repositories are gone; remove %s by hand", ErrNotKept, folder)
	}
	tmp, done, err := k.scratch("keep-" + j.Attempt + "-")
	if err != nil {
		return err
	}
	defer done()
	s := &scan{k: k, repo: r, root: folder, tmp: tmp, skip: ours}
	err = func() error {
		if r.hash, err = k.line(ctx, r.call("rev-parse", "--show-object-format")); err != nil {
			return err
		}
		if err := s.run(ctx); err != nil {
			return err
		}
		// A worktree that was moved here, or made here, may stand on commits of its own.
		lost, err := k.unreached(ctx, r, j.Attempt, slices.DeleteFunc(s.commits, func(id string) bool { return id == "" }))
		if err != nil || len(s.changes) == 0 && len(lost) == 0 {
			return err
		}
		tree, err := s.writeTree(ctx, s.changes)
		if err != nil {
			return err
		}
		j.Rest = &Rescue{Path: folder}
		j.Rest.Ref, j.Rest.Commit, err = k.pin(ctx, s, []string{j.Attempt + "-workspace"}, tree, lost,
			keptOf+j.Attempt+keptBeside+"\n\nKept before its folder was removed.\n")
		return err
	}()
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNotKept, folder, err)
	}
	return nil
}

// bare reports whether nothing but git's own file is in a worktree.
func bare(path string) bool {
	list, err := os.ReadDir(path)
	return err == nil && (len(list) == 0 || len(list) == 1 && list[0].Name() == ".git")
}
