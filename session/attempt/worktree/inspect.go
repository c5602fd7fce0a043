package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/git"
)

// An Expected is an attempt as recorded on the board, for Inspect to compare with the disk.
type Expected struct {
	task.Attempt
	Deleting bool // its worktrees are being removed
}

const (
	doServe  = "start a server on the project (deepwork serve): it finishes this"
	doByHand = "look what is in it, and remove it by hand"
	doDelete = "delete the attempt's task with delete_task, and start a new attempt if it is still wanted"
)

// Inspect compares the folder with the attempts that should have their worktrees in it, which are
// all on the board, and finds work that crashes interrupted. It changes nothing and runs git once
// or twice per repository. It ignores attempts that a Create or Remove is working on. Faults are
// real only if a second inspection confirms them, see session.Report.Confirmed.
func (k *Keeper) Inspect(ctx context.Context, expected []Expected) (session.Report, error) {
	i := &inspection{k: k, expected: map[string]Expected{}, repos: map[string]*repoView{}, journals: map[string]bool{}, halfDone: map[string]bool{}}
	for _, e := range expected {
		i.expected[e.ID] = e
	}
	if err := k.unlinked(); err != nil {
		i.report.Fault(k.dir, err.Error(), doByHand)
		return i.report, nil
	}
	err := errors.Join(i.journaled(), i.folders())
	for _, e := range expected {
		if !e.Made() || e.Deleting || i.halfDone[e.ID] || i.k.busy(e.ID) {
			continue
		}
		for _, t := range e.Repos {
			if err == nil {
				err = i.tree(ctx, e, t)
			}
		}
	}
	if err != nil {
		return session.Report{}, fmt.Errorf("inspecting the worktrees in %s: %w", k.dir, err)
	}
	return i.report, nil
}

type inspection struct {
	k        *Keeper
	expected map[string]Expected
	repos    map[string]*repoView // by path
	journals map[string]bool      // attempts that have one
	halfDone map[string]bool      // attempts that are reported as such
	report   session.Report
}

// journaled checks the journals, and the other files in their folder.
func (i *inspection) journaled() error {
	all, err := i.k.attempts()
	if err != nil {
		return err
	}
	left := 0
	for _, attempt := range all {
		j, err := i.k.load(attempt)
		path := i.k.journalPath(attempt)
		e, known := i.expected[attempt]
		busy := i.k.busy(attempt)
		i.journals[attempt] = busy || err != nil || j != nil
		switch {
		case busy:
		case errors.Is(err, ErrNotOurs):
			i.report.Fault(i.k.folder(attempt), err.Error(), doByHand)
		case err != nil:
			i.report.Fault(path, fmt.Sprintf("the journal of attempt %s cannot be used: %v", attempt, err), "restore it from a backup, or move it away and "+doByHand)
		case j == nil:
			left++
		case j.Board != i.k.board: // of a board that somebody else inspects
		case j.Phase == made && !known:
			i.report.Fault(i.k.folder(attempt), fmt.Sprintf("there are worktrees of attempt %s, which is not on the board", attempt),
				"start a server on the project: it removes them, and keeps first what is not committed")
		case isThere(i.k.gone(attempt)):
			i.halfDone[attempt] = true
			i.report.Fault(path, fmt.Sprintf("the worktrees of attempt %s are half-done: removing was cut short", attempt), doServe)
		case j.Phase == creating && !(known && e.State.Open()):
			i.halfDone[attempt] = true
			i.report.Fault(path, fmt.Sprintf("the worktrees of attempt %s are half-done: creating was cut short", attempt), doServe)
		}
	}
	if left > 0 {
		i.report.Note(i.k.journal, fmt.Sprintf("locks and drafts of removed or unfinished worktrees: %d", left), "the next server removes those that nobody uses")
	}
	return nil
}

// folders checks for folders without an owner.
func (i *inspection) folders() error {
	list, err := os.ReadDir(i.k.dir)
	if err != nil && !missing(err) {
		return err
	}
	for _, f := range list {
		name := strings.TrimSuffix(f.Name(), ".removing")
		e, known := i.expected[name]
		path := filepath.Join(i.k.dir, f.Name())
		switch {
		case !f.IsDir() || strings.HasPrefix(name, ".") || i.journals[name] || i.k.busy(name):
		case !isDir(path): // removed in the meantime
		case !known && !i.k.private(): // in a shared folder it may be another project's
		case !known:
			i.report.Fault(path, "it is a folder of no attempt of the board", doByHand)
		case !e.Made() && !e.State.Open():
			i.report.Fault(path, fmt.Sprintf("attempt %s has no worktrees and is over, and this folder is left", name), doByHand)
		}
	}
	return nil
}

// tree checks a worktree that should exist.
func (i *inspection) tree(ctx context.Context, e Expected, t task.AttemptRepo) error {
	r, err := i.repos[t.RepoPath], error(nil)
	if r == nil {
		if r, err = lookAt(ctx, t.RepoPath); err != nil {
			return err
		}
		i.repos[t.RepoPath] = r
	}
	if r.err != nil {
		i.report.Fault(t.RepoPath, fmt.Sprintf("the repository of attempt %s cannot be used: %v", e.ID, r.err), "put the repository back, or "+doDelete)
		return nil
	}
	if !isDir(t.Worktree) {
		i.report.Fault(t.Worktree, fmt.Sprintf("the worktree of attempt %s is gone; commits of it are on branch %s", e.ID, e.Branch), doDelete)
		return nil
	}
	admin := adminOf(r.common, t.Worktree)
	if admin == "" {
		i.report.Fault(t.Worktree, fmt.Sprintf("the repository %s does not know this worktree of attempt %s", t.RepoPath, e.ID),
			"run `git worktree repair "+t.Worktree+"` in the repository")
		return nil
	}
	if ok, err := r.has(ctx, *t.BaseCommit); err != nil {
		return err
	} else if !ok {
		i.report.Fault(t.RepoPath, fmt.Sprintf("the commit %s, at which attempt %s began, is not in the repository", *t.BaseCommit, e.ID), "fetch it, or "+doDelete)
	}
	data, err := os.ReadFile(filepath.Join(admin, "HEAD"))
	if err != nil {
		i.report.Fault(t.Worktree, fmt.Sprintf("the worktree of attempt %s has no HEAD: %v", e.ID, err), "run `git worktree repair` in the repository, or "+doDelete)
		return nil
	}
	at := strings.TrimSpace(string(data))
	if branch, on := strings.CutPrefix(at, "ref: "); on {
		if r.refs[branch] == "" {
			i.report.Note(t.Worktree, fmt.Sprintf("the worktree of attempt %s is on the branch %s, which has no commit", e.ID, strings.TrimPrefix(branch, "refs/heads/")), "make it again if it was deleted by mistake")
			return nil
		}
		at = r.refs[branch]
	}
	if ok, err := r.has(ctx, at); err != nil {
		return err
	} else if !ok {
		i.report.Fault(t.Worktree, fmt.Sprintf("the worktree of attempt %s is at the commit %.64s, which is not in the repository", e.ID, at), "fetch it, or check out another in the worktree")
	}
	return nil
}

// A repoView is the state of a repository.
type repoView struct {
	common string
	err    error             // why it cannot be used
	refs   map[string]string // branches and rescue refs, and their commits
	broken []string          // git's messages about refs that it cannot read
}

// lookAt reads the refs of a repository. If it is not one, the result has err set.
func lookAt(ctx context.Context, path string) (*repoView, error) {
	v := &repoView{refs: map[string]string{}}
	if v.common, v.err = findRepo(ctx, path); v.err != nil {
		return v, ctx.Err()
	}
	var out, warnings string
	out, warnings, v.err = git.Run(ctx, inRepo(v.common, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/deepwork"))
	if v.err != nil {
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

// has reports whether a repository has a commit.
func (r *repoView) has(ctx context.Context, id string) (bool, error) {
	_, err := git.Output(ctx, inRepo(r.common, "cat-file", "-e", id+"^{commit}"))
	if err != nil && git.ExitCode(err) < 0 {
		return false, err
	}
	return err == nil, nil
}

// InspectRepo checks that each rescue ref of a repository can be read, and that its commit exists
// with all its files and all commits that nothing else reaches. It changes nothing, and runs git a
// few times per rescue ref. kept is their number.
func InspectRepo(ctx context.Context, path string) (r session.Report, kept int, err error) {
	defer wrap(&err, "inspecting the repository %s", path)
	v, err := lookAt(ctx, path)
	if err != nil || v.err != nil { // an attempt that needs it reports the latter
		return r, 0, err
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
		_, err := git.Output(ctx, inRepo(v.common, "rev-list", "--objects", "--quiet", "--no-walk", id))
		if err == nil {
			_, err = git.Output(ctx, inRepo(v.common, "rev-list", "--objects", "--quiet", id, "--not", "--branches", "--tags", "--remotes"))
		}
		if err != nil && git.ExitCode(err) < 0 {
			return r, 0, err
		} else if err != nil {
			r.Fault(v.common, fmt.Sprintf("what %s keeps is not all there: %v", ref, err), do)
		}
	}
	return r, kept, nil
}
