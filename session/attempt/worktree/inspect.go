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

// name returns the name of the folder of its worktrees.
func (e *Expected) name() string {
	if len(e.Repos) == 0 {
		return e.ID
	}
	return NameOf(e.Repos[0].Worktree)
}

const (
	doServe  = "start a server on the project ('deepwork serve'): it finishes this"
	doByHand = "look what is in it, and remove it by hand"
	doDelete = "remove the attempt's task ('deepwork board rm' also takes the attempt's id), and add it again if it " +
		"is still wanted"
)

// Inspect compares the folder with the attempts on the board that should have their worktrees in it, and
// finds work that crashes interrupted. It changes nothing and runs git a few times per worktree. It ignores
// attempts on which a Create or Remove is working. Faults are real only if a second inspection confirms them,
// see session.Report.Confirmed.
func (k *Keeper) Inspect(ctx context.Context, expected []Expected) (session.Report, error) {
	i := &inspection{
		k:        k,
		expected: map[string]Expected{},
		named:    map[string]Expected{},
		journals: map[string]bool{},
		halfDone: map[string]bool{},
	}
	for _, e := range expected {
		i.expected[e.ID] = e
		i.named[e.name()] = e
	}
	if err := k.Safe(); err != nil {
		i.report.Fault(k.dir, err.Error(), doByHand)
		return i.report, nil
	}

	err := errors.Join(i.journaled(), i.folders())
	for _, e := range expected {
		if !e.Made() || e.Deleting || i.halfDone[e.name()] || i.k.busy(e.name()) {
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
	expected map[string]Expected // by id
	named    map[string]Expected // by the name of their folder
	journals map[string]bool     // attempts with a journal
	halfDone map[string]bool     // attempts reported as half done
	report   session.Report
}

// journaled checks the journals.
func (i *inspection) journaled() error {
	all, err := i.k.attempts()
	if err != nil {
		return err
	}
	for _, attempt := range all {
		j, err := i.k.load(attempt)
		path := i.k.journalPath(attempt)
		id := attempt
		if j != nil {
			id = j.attemptID()
		}
		e, known := i.expected[id]
		busy := i.k.busy(attempt)
		i.journals[attempt] = busy || err != nil || j != nil
		switch {
		case busy:
		case errors.Is(err, ErrNotOurs):
			i.report.Fault(i.k.folder(attempt), err.Error(), doByHand)
		case err != nil:
			i.report.Fault(path, fmt.Sprintf("the journal of attempt %s cannot be used: %v", attempt, err),
				"restore it from a backup, or move it away and "+doByHand)
		case j == nil: // removed meanwhile
		case j.Board != i.k.board: // another board's inspection reports it
		case j.Phase == made && !known:
			i.report.Fault(i.k.folder(attempt),
				fmt.Sprintf("there are worktrees of attempt %s, which is not on the board", id),
				"start a server on the project: it removes them, and keeps first what is not committed")
		case isThere(i.k.removalPath(attempt)):
			i.halfDone[attempt] = true
			i.report.Fault(path, fmt.Sprintf("the worktrees of attempt %s are half-done: removing was cut short", id),
				doServe)
		case known && e.Made() && attempt != e.name(): // of an item of its run, which makes it again if it is resumed
		case j.Phase == creating && !(known && e.State.Open()):
			i.halfDone[attempt] = true
			i.report.Fault(path, fmt.Sprintf("the worktrees of attempt %s are half-done: creating was cut short", id),
				doServe)
		}
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
		e, known := i.named[name]
		path := filepath.Join(i.k.dir, f.Name())
		switch {
		case !f.IsDir() || strings.HasPrefix(name, ".") || i.journals[name] || i.k.busy(name):
		case !isDir(path): // removed meanwhile
		case !known && !i.k.private(): // in a shared folder it may belong to another project
		case !known:
			i.report.Fault(path, "it is a folder of no attempt of the board", doByHand)
		case !e.Made() && !e.State.Open():
			i.report.Fault(path, fmt.Sprintf("attempt %s has no worktrees and is over, and this folder is left", name),
				doByHand)
		}
	}

	return nil
}

// tree checks a worktree that should exist.
func (i *inspection) tree(ctx context.Context, e Expected, t task.AttemptRepo) error {
	common, err := findRepo(ctx, t.RepoPath)
	if ctx.Err() != nil {
		return ctx.Err()
	} else if err != nil {
		do := "put the repository back, or " + doDelete
		if !errors.Is(err, ErrNotRepo) {
			do = "correct that"
		}
		i.report.Fault(t.RepoPath, fmt.Sprintf("the repository of attempt %s cannot be used: %v", e.ID, err), do)
		return nil
	}
	if !isDir(t.Worktree) {
		i.report.Fault(t.Worktree, fmt.Sprintf("the worktree of attempt %s is gone; commits of it are on branch %s",
			e.ID, e.Branch), doDelete)
		return nil
	}
	admin := adminOf(common, t.Worktree)
	if admin == "" {
		i.report.Fault(t.Worktree, fmt.Sprintf("the repository %s does not know this worktree of attempt %s",
			t.RepoPath, e.ID),
			fmt.Sprintf("run git -C %s worktree repair %s, or if git cannot do that, %s; what is not committed is kept",
				session.InShell(t.RepoPath), session.InShell(t.Worktree), doDelete))
		return nil
	}

	if id, err := commitOf(ctx, inRepo(common), *t.BaseCommit); err != nil && git.ExitCode(err) < 0 {
		return err
	} else if id == "" {
		i.report.Fault(t.RepoPath, fmt.Sprintf("the commit %s, at which attempt %s began, is not in the repository",
			*t.BaseCommit, e.ID), "fetch it, or "+doDelete)
	}

	head, err := commitOf(ctx, inRepo(admin), "HEAD")
	if err != nil && git.ExitCode(err) < 0 {
		return err
	} else if head != "" {
		return nil
	}
	what := fmt.Sprintf("the worktree of attempt %s is on a branch or a commit that is not in the repository", e.ID)
	if _, err := git.Line(ctx, inRepo(admin, "symbolic-ref", "--quiet", "HEAD")); err == nil {
		i.report.Note(t.Worktree, what, "make the branch again if it was deleted by mistake")
	} else {
		i.report.Fault(t.Worktree, what, "fetch the commit, or check out another in the worktree")
	}

	return nil
}

// InspectRepo checks that each rescue ref of a repository can be read, and that its commit exists with all
// its files and with all commits that nothing else reaches. It changes nothing, and runs git a few times per
// rescue ref. kept is the number of rescue refs.
func InspectRepo(ctx context.Context, path string) (r session.Report, kept int, err error) {
	defer wrap(&err, "inspecting the repository %s", path)
	common, err := findRepo(ctx, path)
	if err != nil { // an attempt that needs it reports that
		return r, 0, ctx.Err()
	}
	out, warnings, err := git.Run(ctx, inRepo(common, "for-each-ref", "--format=%(refname)", rescueRefs))
	if err != nil && git.ExitCode(err) < 0 {
		return r, 0, err
	}

	const do = "look for the objects in another clone or a backup (git fsck lists them), or delete the ref with git " +
		"update-ref -d if what it kept is not needed"
	for line := range strings.Lines(warnings) {
		if strings.Contains(line, rescueRefs) {
			r.Fault(common, "a rescue ref cannot be read: "+strings.TrimSpace(line), do)
		}
	}

	for _, ref := range strings.Fields(out) {
		kept++
		_, err := git.Output(ctx, inRepo(common, "rev-list", "--objects", "--quiet", "--no-walk", ref))
		if err == nil {
			_, err = git.Output(ctx, inRepo(common, "rev-list", "--objects", "--quiet", ref, "--not", "--branches",
				"--tags", "--remotes"))
		}
		if err != nil && git.ExitCode(err) < 0 {
			return r, 0, err
		} else if err != nil {
			r.Fault(common, fmt.Sprintf("what %s keeps is not all there: %v", ref, err), do)
		}
	}

	return r, kept, nil
}
