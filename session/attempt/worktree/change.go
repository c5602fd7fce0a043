package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepwork/actor/durable"
	"deepwork/session/git"
)

// A change moves branches to other commits, together with the files of the worktrees that have them
// checked out. It is in the journal from before its first step until after its last. The refs move
// last: a change that was interrupted before the first of them moved is taken back, else finished.
type change struct {
	Files []*fileMove `json:"files,omitempty"`
	Refs  []refMove   `json:"refs,omitempty"`
	Merge *unfinished `json:"merge,omitempty"` // instead of Refs
	Abort string      `json:"abort,omitempty"` // the commit that the worktree is reset to
	// Keep are refs for commits that no branch has once Refs have moved.
	Keep  []refMove `json:"keep,omitempty"`
	Since *since    `json:"since,omitempty"` // nil means as before
}

// A fileMove changes the index and the files of a worktree, which were clean.
type fileMove struct {
	Path  string `json:"path"`
	Admin string `json:"git_dir"` // its own
	From  string `json:"from"`    // the commit that is checked out
	To    string `json:"to"`      // a commit or tree
}

// A refMove changes a ref.
type refMove struct {
	Ref string `json:"ref"`
	Old string `json:"old"`
	New string `json:"new"`
}

// An unfinished merge has conflicts, which are left in the worktree.
type unfinished struct {
	Theirs  string   `json:"theirs"`
	message string   // of the commit that will end it
	stages  []string // the conflicts, as update-index --index-info reads them
}

func (f *fileMove) call(args ...string) git.Command {
	return git.Command{Dir: f.Path, GitDir: f.Admin, WorkTree: f.Path, Args: args, Limit: listLimit}
}

// carryOut makes a change or, after an error, nothing of it. The repository must be locked.
func (k *Keeper) carryOut(ctx context.Context, j *journal, e *record, c *change) error {
	e.Change = c
	if err := k.save(j); err != nil {
		return err
	}
	k.at("change begun")
	if err := k.advance(ctx, e, c); err != nil {
		if undo := k.settle(context.WithoutCancel(ctx), j, e); undo != nil {
			k.log.Error("a merge that failed could not be undone; the next call for the attempt, or the next start, tries again", "attempt", j.Attempt, "error", undo)
		}
		return err
	}
	e.changed(c)
	err := k.save(j)
	k.at("change ended")
	return err
}

// changed records that a change is complete.
func (e *record) changed(c *change) {
	e.Change = nil
	if c.Since != nil {
		e.Since = c.Since
	}
}

// keep has a change keep a commit under a ref of its own.
func (c *change) keep(b *branchView, commit string) {
	c.Keep = append(c.Keep, refMove{Ref: "refs/deepwork/before/" + b.journal.Attempt + "-" + commit[:12], New: commit})
}

func (k *Keeper) advance(ctx context.Context, e *record, c *change) error {
	for _, f := range c.Files {
		if err := f.move(ctx); err != nil {
			return err
		}
		k.at("files moved")
	}
	if c.Merge != nil {
		return k.leaveMerge(ctx, c.Files[0], c.Merge)
	}
	if c.Abort != "" {
		return k.reset(ctx, e, c.Abort)
	}
	for _, r := range c.Keep {
		if _, err := git.Output(ctx, inRepo(e.Common, "update-ref", r.Ref, r.New)); err != nil {
			return err
		}
		k.at("old commits kept")
	}
	if err := moveRefs(ctx, e.Common, c.Refs); err != nil {
		for _, r := range c.Refs {
			if tip, look := refTip(ctx, inRepo(e.Common), r.Ref); look == nil && tip != r.Old {
				return fmt.Errorf("%w: %s is at %.12s, no longer at %.12s", ErrMoved, r.Ref, tip, r.Old)
			}
		}
		return err
	}
	k.at("refs moved")
	return nil
}

// moveRefs moves refs in one transaction, of which a crash may leave a part.
func moveRefs(ctx context.Context, common string, refs []refMove) error {
	var list strings.Builder
	for _, r := range refs {
		fmt.Fprintf(&list, "update %s %s %s\n", r.Ref, r.New, r.Old)
	}
	c := inRepo(common, "update-ref", "-m", "deepwork", "--stdin")
	c.Stdin = []byte(list.String())
	_, err := git.Output(ctx, c)
	return err
}

// move changes the index and the files, filtered and sparse as by git merge --ff-only. That would also
// move the ref, before other worktrees and refs can follow; it runs on the repository itself, with the
// programs that its config has at that moment; and it overwrites ignored files.
func (f *fileMove) move(ctx context.Context) error {
	inTheWay, err := f.inTheWay(ctx)
	if err != nil {
		return err
	}
	if len(inTheWay) > 0 {
		return &DirtyError{Path: f.Path, Files: inTheWay}
	}
	if _, err := git.Output(ctx, f.call("update-index", "-q", "--refresh")); err != nil && git.ExitCode(err) != 1 {
		return err
	}
	_, err = git.Output(ctx, f.call("read-tree", "-m", "-u", f.From, f.To))
	return err
}

// leaveMerge leaves a merge with conflicts in a worktree whose files have them already, for git commit
// to end it. MERGE_HEAD makes it a merge, so it is written last.
func (k *Keeper) leaveMerge(ctx context.Context, f *fileMove, m *unfinished) error {
	if err := f.showConflicts(ctx, combination{stages: m.stages}.files()); err != nil {
		return err
	}
	var list strings.Builder
	for _, s := range m.stages {
		_, name, _ := strings.Cut(s, "\t")
		fmt.Fprintf(&list, "0 %s\t%s\x00", strings.Repeat("0", len(f.From)), name)
	}
	c := f.call("update-index", "-z", "--index-info")
	c.Stdin = []byte(list.String() + strings.Join(m.stages, "\x00") + "\x00")
	if _, err := git.Output(ctx, c); err != nil {
		return err
	}
	k.at("conflicts staged")
	for _, file := range [][2]string{{"ORIG_HEAD", f.From + "\n"}, {"MERGE_MSG", m.message + "\n"}, {"MERGE_MODE", "no-ff"}, {"MERGE_HEAD", m.Theirs + "\n"}} {
		if err := (durable.Disk{}).Put(filepath.Join(f.Admin, file[0]), []byte(file[1]), durable.PutOptions{Mode: 0o644}); err != nil {
			return err
		}
	}
	k.at("merge left")
	return nil
}

// settle ends a change that was interrupted, if there is one: it is taken back, unless it was complete.
// The repository must be locked.
func (k *Keeper) settle(ctx context.Context, j *journal, e *record) (err error) {
	c := e.Change
	if c == nil {
		return nil
	}
	defer wrap(&err, "ending the merge that was interrupted in %s", e.Path)
	var rest []refMove
	done, begun := false, []time.Time{j.Changed}
	for _, r := range slices.Concat(c.Refs, c.Keep) {
		name := filepath.FromSlash(r.Ref) + ".lock"
		if err := k.clearLock(ctx, filepath.Join(e.Common, name), begun); err != nil {
			return err
		}
	}
	for _, r := range c.Refs {
		tip, err := refTip(ctx, inRepo(e.Common), r.Ref)
		if err != nil {
			return err
		}
		done = done || tip == r.New
		if tip == r.Old {
			rest = append(rest, r)
		}
	}
	admin, err := e.admin()
	if err != nil {
		return err
	}
	for _, f := range c.Files {
		for _, name := range []string{"index.lock", "HEAD.lock"} {
			if err := k.clearLock(ctx, filepath.Join(f.Admin, name), begun); err != nil {
				return err
			}
		}
	}
	switch {
	case done:
		err = moveRefs(ctx, e.Common, rest)
	case admin == "":
	case c.Abort != "":
		if err := k.clearLock(ctx, filepath.Join(admin, "index.lock"), begun); err != nil {
			return err
		}
		err = k.reset(ctx, e, c.Abort)
	case c.Merge != nil && mergeHead(admin) == c.Merge.Theirs:
	default:
		for _, f := range c.Files {
			if err := k.putBack(ctx, f); err != nil {
				return err
			}
		}
		for _, r := range c.Keep {
			if tip, look := refTip(ctx, inRepo(e.Common), r.Ref); look == nil && tip != "" && err == nil {
				_, err = git.Output(ctx, inRepo(e.Common, "update-ref", "-d", r.Ref, r.New))
			}
		}
	}
	if err != nil {
		return err
	}
	if e.Change = nil; done {
		e.changed(c)
	}
	return k.save(j)
}

func (k *Keeper) clearLock(ctx context.Context, lock string, begun []time.Time) error {
	return k.clearStale(ctx, lock, begun, func() error { return os.Remove(lock) })
}

// settleAll ends the changes of an attempt that were interrupted.
func (k *Keeper) settleAll(ctx context.Context, j *journal) error {
	for _, e := range j.Trees {
		if e.Change == nil || !isDir(e.Common) {
			continue
		}
		unlock, err := k.lockRepo(ctx, e.Common, j)
		if err != nil {
			return err
		}
		err = k.settle(ctx, j, e)
		unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// reset resets the worktree of an attempt to a commit, and ends a merge in it. Untracked files stay.
func (k *Keeper) reset(ctx context.Context, e *record, commit string) error {
	admin, err := e.admin()
	if err != nil {
		return err
	} else if admin == "" {
		return fmt.Errorf("%w: %s", ErrNoWorktree, e.Path)
	}
	for _, name := range []string{"MERGE_HEAD", "MERGE_MODE", "MERGE_MSG", "AUTO_MERGE"} {
		if err := os.Remove(filepath.Join(admin, name)); err != nil && !missing(err) {
			return err
		}
		k.at("removed " + name)
	}
	c := git.Command{Dir: e.Path, GitDir: admin, WorkTree: e.Path, Args: []string{"reset", "--hard", "--quiet", "--no-recurse-submodules", commit}}
	_, err = git.Output(ctx, c)
	k.at("reset")
	return err
}

// mergeHead returns the commit that a merge in progress merges, or "".
func mergeHead(admin string) string {
	data, _, err := durable.Read(filepath.Join(admin, "MERGE_HEAD"), maxGitFile)
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// changing reports whether a change of one of its worktrees was interrupted, or is being made.
func (j *journal) changing() bool {
	return slices.ContainsFunc(j.Trees, func(e *record) bool { return e.Change != nil })
}
