package worktree

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

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
		j, err = parseJournal(k.dir, attempt, data) // it was rewritten before an interruption
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
