package worktree

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"deepwork/actor/durable"
)

// Relocate rewrites the journals after repositories, or the folder of worktrees, which was at from,
// were moved. to returns the current path of what was at a path. It blocks for the disk, and may be
// called again after an error.
func (k *Keeper) Relocate(ctx context.Context, from string, to func(path string) string) error {
	all, err := k.attempts()
	if err != nil {
		return err
	}
	var faults []error
	for _, attempt := range all {
		if err := k.relocate(ctx, from, attempt, to); err != nil {
			faults = append(faults, fmt.Errorf("following the worktrees of attempt %s: %w", attempt, err))
		}
	}
	return errors.Join(faults...)
}

func (k *Keeper) relocate(ctx context.Context, from, attempt string, to func(string) string) error {
	unlock, err := k.lockAttempt(ctx, attempt)
	if err != nil {
		return err
	}
	defer unlock()
	data, _, err := durable.Read(k.journalPath(attempt), maxJournal)
	if missing(err) {
		return nil
	} else if err != nil {
		return err
	}
	j, err := parseJournal(from, attempt, data)
	if err != nil {
		j, err = parseJournal(k.dir, attempt, data) // of before an interruption
	}
	if err != nil {
		return fmt.Errorf("%s %w", k.journalPath(attempt), err)
	}
	for _, e := range j.Trees {
		if err := e.settle(to); err != nil {
			return err
		}
	}
	return k.save(j)
}

// Import moves the worktrees of an attempt, which an earlier version made below from, into this
// keeper's folder, and takes over their journal. Anybody may have written that, so it is used only
// for what the repositories, too, have as worktrees there, and for the branch that the board has,
// which is deleted with the attempt. Without a journal it does nothing. It blocks for the disk, and
// may be called again after an error or a crash.
func (k *Keeper) Import(ctx context.Context, from, attempt, branch string) (err error) {
	defer wrap(&err, "taking over the worktrees of attempt %.100s", attempt)
	if !attemptName.MatchString(attempt) {
		return ErrNotOurs
	}
	unlock, err := k.lockAttempt(ctx, attempt)
	if err != nil {
		return err
	}
	defer unlock()
	earlier := New(Options{Dir: from, Project: k.project})
	j, err := earlier.load(attempt)
	if err != nil || j == nil {
		return err
	}
	if j.Phase != made {
		return fmt.Errorf("%s was cut short: finish it with the deepwork that began it, and then adopt again", j.Phase)
	}
	old, now := earlier.folder(attempt), k.folder(attempt)
	switch {
	case isDir(old) && isThere(now):
		return fmt.Errorf("there are both %s and %s: look which one is needed, and move the other away", old, now)
	case !isDir(old) && !isDir(now):
		return nil // somebody has removed them
	}
	to := func(path string) string {
		if filepath.Dir(path) == old {
			return filepath.Join(now, filepath.Base(path))
		}
		return path
	}
	for i, e := range j.Trees {
		if more, is := strings.CutPrefix(e.Branch, branch); !is || !sameRepo.MatchString(more) || !strings.HasPrefix(branch, BranchPrefix) {
			return fmt.Errorf("%w: its journal names the branch %.100q, the board %.100q: look at what is in %s, and remove it and its journal by hand", ErrNotOurs, e.Branch, branch, old)
		}
		// What is stored of files to copy, commands, rescues and changes is not used.
		e = &record{Tree: Tree{RepoID: e.RepoID, Name: e.Name, Repo: e.Repo, TargetBranch: e.TargetBranch},
			Common: canonical(e.Common), Path: e.Path, Branch: e.Branch, Base: e.Base, Step: ready, Since: e.Since}
		j.Trees[i] = e
		if admin, err := e.adminAt(e.Common, e.Path, to(e.Path)); err != nil {
			return err
		} else if admin == "" || !commitID.MatchString(e.Base) {
			return fmt.Errorf("%w: the repository %s has no such worktree %s", ErrNotOurs, e.Common, e.Path)
		}
	}
	j.Branch, j.Rest = branch, nil
	was := make([]string, len(j.Trees))
	for i, e := range j.Trees {
		was[i], e.Path = e.Path, to(e.Path)
	}
	if err := k.save(j); err != nil { // before they are moved, so that they never lack a journal
		return err
	}
	if isDir(old) {
		if err := (durable.Disk{}).Move(old, now); err != nil {
			return err
		}
	}
	for i, e := range j.Trees {
		e.Path = was[i]
		if err := e.settle(to); err != nil {
			return err
		}
	}
	var disk durable.Disk
	return errors.Join(disk.SyncFolder(k.dir), disk.SyncFolder(from), earlier.forget(attempt))
}

// sameRepo matches what follows the branch's name in the second worktree of a repository.
var sameRepo = regexp.MustCompile(`^(-[0-9]+)?$`)

var commitID = regexp.MustCompile(`^[0-9a-f]{40,64}$`)

// settle gives a worktree's entry its current paths, and corrects those in the files with which git
// finds worktree and repository from each other. git worktree repair does the same, but goes by the
// worktree's .git, which an agent or the project may have written.
func (e *record) settle(to func(string) string) error {
	was, common := e.Path, e.Common
	e.Repo, e.Common, e.Path = to(e.Repo), to(e.Common), to(e.Path)
	admin, err := e.adminAt(common, was, e.Path)
	if err != nil || admin == "" || !isDir(e.Path) {
		return err
	}
	dotGit := filepath.Join(e.Path, ".git")
	for path, text := range map[string]string{filepath.Join(admin, "gitdir"): dotGit, dotGit: "gitdir: " + admin} {
		text = filepath.ToSlash(text) + "\n"
		if data, _, err := durable.Read(path, maxGitFile); err == nil && string(data) == text {
			continue
		}
		if err := (durable.Disk{}).Put(path, []byte(text), durable.PutOptions{Mode: 0o644}); err != nil {
			return err
		}
	}
	return nil
}

// adminAt is admin for a worktree that is known by one of these paths, of a repository that was at
// was or is where it is now when they were linked.
func (e *record) adminAt(was string, paths ...string) (admin string, err error) {
	for _, path := range paths {
		for _, from := range []string{e.Common, was} {
			at := *e
			at.Path = path
			if admin, err = at.adminFrom(from); admin != "" || err != nil {
				return admin, err
			}
		}
	}
	return "", nil
}
