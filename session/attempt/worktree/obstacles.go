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
	"time"

	"deepwork/actor/wait"
)

// A git that is killed with its server leaves its lock files, and a half-made worktree, which
// prevents git from working with all the others. The following functions remove those that can only
// be ours.

// interrupted reports whether a step of one worktree that uses git was begun and not ended.
func (j *journal) interrupted(e *record) bool {
	return e.Step == branching || e.Step == adding || e.Step == dropping || j.Phase == removing && e.Step == ready
}

// clearOwn clears the repositories in which a git was killed during a step of this attempt. The
// journal is as another process left it.
func (k *Keeper) clearOwn(ctx context.Context, j *journal) error {
	for _, e := range j.Trees {
		if j.interrupted(e) && isDir(e.Common) {
			unlock, err := k.lockRepo(ctx, e.Common, j)
			if err != nil {
				return err
			}
			unlock()
		}
	}
	return nil
}

// clearObstacles removes from a repository, which is locked, the files that killed servers left of
// attempts' worktrees and that block every git command. Calls for those attempts cannot do it: they
// wait for the lock. own is as for lockRepo; for that attempt the locks of its refs are removed
// too.
func (k *Keeper) clearObstacles(ctx context.Context, common string, own *journal) error {
	if own == nil && !obstructed(common) {
		return nil
	}
	all, err := k.attempts()
	if err != nil {
		return err
	}
	var paths, refs []string // of worktrees that git was creating or removing; of own
	var begun []time.Time    // when the steps were begun
	for _, attempt := range all {
		j := own
		if own == nil || attempt != own.Attempt {
			if k.busy(attempt) {
				continue
			}
			if j, err = k.load(attempt); err != nil || j == nil {
				continue // Recover reports it
			}
		}
		for _, e := range j.Trees {
			if e.Common != common || !j.interrupted(e) {
				continue
			}
			if e.Step == adding || e.Step == dropping { // otherwise its work may not be rescued yet
				paths = append(paths, canonical(e.Path))
			}
			if j == own {
				refs = append(refs, "refs/heads/"+e.Branch)
			}
			begun = append(begun, j.Changed)
		}
	}
	if len(begun) == 0 {
		return nil
	}
	if own != nil {
		list, _ := os.ReadDir(filepath.Join(common, filepath.FromSlash(rescueRefs))) // missing: no locks
		for _, f := range list {
			if name, ok := strings.CutSuffix(f.Name(), ".lock"); ok && strings.HasPrefix(name, own.Attempt) {
				refs = append(refs, rescueRefs+name)
			}
		}
	}
	for _, admin := range admins(common) {
		witness, place := halfOf(admin), filepath.Join(admin, "gitdir")
		if nameless := witness == place || !isThere(place); nameless && len(paths) > 0 {
			// A git was killed during worktree add before it wrote the worktree's path, or during
			// worktree remove after it deleted it.
			switch reason, locked := lockedBy(admin); {
			case !locked:
				witness = admin
			case reason == initializing || reason == "":
				witness = filepath.Join(admin, "locked")
			default:
				continue
			}
		} else if nameless || witness == "" || !slices.Contains(paths, pathOf(admin)) {
			continue
		}
		if err := k.clearStale(ctx, witness, begun, func() error { return removeNamed(admin) }); err != nil {
			return err
		}
	}
	return k.clearRefLocks(ctx, common, begun, refs...)
}

// obstructed reports whether a repository has files that prevent git from working.
func obstructed(common string) bool {
	return isThere(filepath.Join(common, packedLock)) || isThere(filepath.Join(common, packedNew)) ||
		slices.ContainsFunc(admins(common), func(admin string) bool { return halfOf(admin) != "" })
}

// halfOf returns the evidence that a worktree is half-made, or half-removed: an empty file of its
// administrative folder, or the folder if a file is missing. It returns "" for a complete one.
func halfOf(admin string) string {
	for _, name := range []string{"gitdir", "HEAD", "commondir"} {
		path := filepath.Join(admin, name)
		switch info, err := os.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
			return admin
		case err == nil && info.Size() == 0:
			return path
		}
	}
	return ""
}

// clearRefLocks removes the lock of a ref that is only ours, and that of the packed refs, which
// deleting a ref holds briefly, if it is as old as our step.
func (k *Keeper) clearRefLocks(ctx context.Context, common string, begun []time.Time, refs ...string) error {
	for _, ref := range refs {
		lock := filepath.Join(common, filepath.FromSlash(ref)+".lock")
		if err := os.Remove(lock); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the lock of a git that was killed: %w", err)
		}
	}
	lock, draft := filepath.Join(common, packedLock), filepath.Join(common, packedNew)
	witness := lock
	if isThere(draft) {
		witness = draft // git writes this file, and never the lock
	}
	return k.clearStale(ctx, witness, begun, func() error {
		if err := os.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return os.Remove(lock)
	})
}

// packedLock is the lock of a repository's packed refs; packedNew is the file that its holder
// writes, and refuses to replace.
const (
	packedLock = "packed-refs.lock"
	packedNew  = "packed-refs.new"
)

// staleAfter is how long a lock that may belong to another program must stay unchanged.
const staleAfter = 10 * time.Second

// stepLasts is how long a step lasts at most: later files belong to another program.
const stepLasts = time.Hour

// clearStale removes a lock that was created during a step that began at one of these times, and
// that does not change for a while, so that no process is using it.
func (k *Keeper) clearStale(ctx context.Context, lock string, begun []time.Time, remove func() error) error {
	before, err := os.Lstat(lock)
	if err != nil || before.ModTime().Before(slices.MinFunc(begun, time.Time.Compare).Add(-time.Second)) ||
		before.ModTime().After(slices.MaxFunc(begun, time.Time.Compare).Add(stepLasts)) {
		return nil
	}
	for end := time.Now().Add(k.stale); time.Now().Before(end); {
		if err := wait.For(ctx, k.stale/20); err != nil {
			return err
		}
		now, err := os.Lstat(lock)
		if err != nil || !os.SameFile(before, now) || now.Size() != before.Size() || !now.ModTime().Equal(before.ModTime()) {
			return nil
		}
	}
	if err := remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the lock of a git that was killed: %w", err)
	}
	return nil
}
