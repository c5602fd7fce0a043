package worktree

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"deepwork/session"
	"deepwork/session/git"
)

// The errors of Merge, Rebase, Update, Abort and Push; each is wrapped with its subject.
var (
	ErrMoved       = errors.New("the branch was moved meanwhile") // call again
	ErrUnfinished  = errors.New("an operation is in progress in the worktree")
	ErrOtherBranch = errors.New("the worktree is not on its own branch")
	ErrNoMerge     = errors.New("no merge is in progress in the worktree")
)

// A ConflictError says that commits cannot be combined without a decision. Nothing was changed.
type ConflictError struct {
	Files  []string // relative, with slashes
	Commit string   // the commit of the attempt that conflicts; "" for a merge of all
}

func (e *ConflictError) Error() string { return fmt.Sprintf("there are conflicts in %q", e.Files) }

// A Way says how Merge brings the commits of a branch into another.
type Way string

// The values of Way.
const (
	WayMerge  Way = "merge"  // always a merge commit
	WaySquash Way = "squash" // one commit with all changes
	WayRebase Way = "rebase" // each commit is repeated on the target
)

// ort names git's default strategy to a person: their config, which our own commands ignore, may name another
// one, such as ours, which drops the work.
const ort = "--strategy=ort"

// A Landing describes what to merge.
type Landing struct {
	Path    string // the worktree
	Target  string // a branch
	Way     Way
	Message string // for the new commit; unused by WayRebase
	Commit  string // the message with which the worktree's changes are committed first; "" means not at all
	Markers bool   // merge files even if they have conflict markers
	// InUse is called before anything is changed; if it returns true, the error is ErrInUse. nil means never
	// in use.
	InUse func() bool
}

// A Landed is the result of Merge, Rebase, Update or Push.
type Landed struct {
	Before string // the branch's old commit; for Push: the commit from which the attempt began
	Commit string // its new commit; the same if there was nothing to do
	// for Update: files to resolve in the worktree, or git's words about conflicts that are in none; then
	// Commit equals Before
	Conflicts []string
	Untracked []string // uncommitted files and folders of the worktree, except copies: see isCopy
	// what the worktree had checked out instead of the attempt's branch, which now has its commits; or ""
	Adopted string
	// Unused has the settings of the repository's config with signing programs that did not run: see NotRun.
	Unused map[string]string
}

// NotRun says which settings of a repository's config were not used, and how to allow them. purpose is what they are
// for.
func NotRun(purpose string, settings map[string]string) string {
	return fmt.Sprintf("Not used %s: %s of the repository's own git config, since a repository does not decide which "+
		"programs run and whom your credentials reach. If you trust it, set it in your own: %s", purpose,
		strings.Join(slices.Sorted(maps.Keys(settings)), ", "), git.InUsers(settings))
}

// Merge brings the commits of an attempt's worktree into its target branch. If the target is not checked out
// anywhere, Merge moves its ref and touches no file. If it is checked out in a worktree without changes, git
// merge --ff-only moves it there. Otherwise the error is a *CheckedOutError. The commits are the user's: see
// git.Command.User.
//
// After a squash or a rebase the attempt's branch is at the new commit too, so that it can be merged again
// later; its old commits stay under refs/deepwork/before.
//
// Other errors are *DirtyError, for tracked files of the worktree that are not committed, *MarkersError,
// *ConflictError, see Update, ErrUnfinished, ErrOtherBranch, ErrUnpublished, ErrNoBranch, ErrMoved, ErrInUse
// and ErrNoWorktree. After an error nothing is changed. Merge blocks until everything is done.
func (k *Keeper) Merge(ctx context.Context, l Landing) (*Landed, error) {
	return k.onBranch(ctx, l, "merging into "+l.Target, func(b *view) (r *Landed, err error) {
		if b.common == b.head {
			hand, err := b.mergedByHand(ctx)
			if err == nil && hand {
				b.Since = &mergeBase{From: b.Base, Common: b.head}
				err = k.save(b.journal)
			}
			if err != nil {
				return nil, err
			}
			return &Landed{Before: b.target, Commit: b.target}, nil
		}

		if !l.Markers {
			if err := b.noMarkers(ctx); err != nil {
				return nil, err
			}
		}
		if err := b.noRepositories(ctx, b.from, b.head); err != nil {
			return nil, err
		}

		if _, err := targetCheckout(ctx, l, b); err != nil {
			return nil, err
		}

		back := func() {} // restores the attempt's branch
		defer func() {
			if err != nil {
				back()
			}
		}()

		now := ""
		switch l.Way {
		case WayMerge:
			now, err = k.commitMerge(ctx, l, b)
		case WaySquash:
			now, err = k.commitMerge(ctx, l, b)
			if err == nil && now != b.target {
				back, err = k.moveTo(ctx, b, func(ctx context.Context) error { return b.reset(ctx, now) })
			}
		case WayRebase:
			back, err = k.moveTo(ctx, b, func(ctx context.Context) (err error) {
				now, err = b.replay(ctx)
				return err
			})
		default:
			err = fmt.Errorf("%q is not a way to merge", l.Way)
		}
		if err != nil {
			return nil, err
		}

		k.atPoint("made the commit")
		if now == b.target { // there is nothing to change
			back()
			return &Landed{Before: b.target, Commit: b.target}, nil
		}

		at, err := targetCheckout(ctx, l, b) // again: signing waits for a person, who may have switched branches
		if err != nil {
			return nil, err
		}

		before := b.Since // first: a later call finds nothing to do, and would not know about the merge
		b.Since = (&mergeBase{From: b.from, Common: b.head})
		if l.Way != WayMerge {
			b.Since.Common = now
			if b.common != b.target { // others have changed the target
				b.Since.From = b.target
			}
		}

		if err := k.save(b.journal); err != nil {
			return nil, err
		}
		if err := advance(ctx, l, b, at, now); err != nil {
			b.Since = before
			return nil, errors.Join(err, k.save(b.journal))
		}

		back = func() {}
		return &Landed{Before: b.target, Commit: now}, nil
	})
}

// targetCheckout returns the worktree that has the target checked out, or nil. It is an error if that
// worktree cannot be moved.
func targetCheckout(ctx context.Context, l Landing, b *view) (*checkout, error) {
	all, err := b.checkoutsOf(ctx, l.Target)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	at := all[0]
	files, _, err := at.changed(ctx)
	if err == nil && len(files) > 0 {
		files, err = b.touched(ctx, files)
	}
	if err != nil {
		return nil, err
	}
	held := byHand(l, b, at.path, files)
	held.Operation = at.operation()
	if len(all) > 1 {
		held.Also = all[1].path
	}
	if held.Operation != "" || held.Also != "" || len(files) > 0 {
		return nil, held
	}
	return &at, nil
}

// touched returns those changed files of a checkout that the attempt also changes; git merges beside edits of
// others.
func (v *view) touched(ctx context.Context, files []string) ([]string, error) {
	from := v.from
	if from == "" {
		var err error
		if from, _, err = v.begin(ctx, v.head, v.target); err != nil {
			return nil, err
		}
	}
	c := v.call("diff-tree", "-r", "-z", "--name-only", "--no-renames", from, v.head)
	out, err := git.Output(ctx, c)
	if err != nil {
		return nil, err
	}
	loose, err := v.changedFiles(ctx, "all") // they may be committed first
	own := git.Fields(out)
	for _, names := range loose {
		own = append(own, names...)
	}
	return slices.DeleteFunc(files, func(name string) bool {
		return !slices.ContainsFunc(own, func(of string) bool {
			return of == name || strings.HasPrefix(of, name+"/") || strings.HasPrefix(name, of+"/")
		})
	}), err
}

// advance moves the target to a descendant of its present commit.
func advance(ctx context.Context, l Landing, b *view, at *checkout, now string) error {
	ref := "refs/heads/" + l.Target
	c := inRepo(b.Common, "update-ref", "-m", "deepwork", ref, now, b.target)
	if at != nil {
		c = at.call("merge", "--ff-only", "--quiet", "--no-overwrite-ignore", "--no-stat", "--no-squash", "--commit",
			"--no-autostash", "--no-verify-signatures", now)
		if !strings.Contains(l.Target, "=") {
			c.Config = []string{"branch." + l.Target + ".mergeOptions="}
		}
	}

	ctx = context.WithoutCancel(ctx)
	_, said, err := git.Run(ctx, c)
	if err == nil {
		tip, err := refTip(ctx, inRepo(b.Common), ref)
		if err == nil && tip != now {
			err = fmt.Errorf("git has reported no error, but %s is at %.12s instead of %.12s, and the work is "+
				"not in it", ref, tip, now)
		}
		return err
	}

	if tip, look := refTip(ctx, inRepo(b.Common), ref); look == nil && tip != b.target {
		return fmt.Errorf("%w: %s is at %.12s, no longer at %.12s", ErrMoved, ref, tip, b.target)
	}
	if files := inTheWay(said); at != nil && len(files) > 0 {
		held := byHand(l, b, at.path, files)
		tracked, others, _ := at.changed(ctx)
		held.Hidden = !slices.ContainsFunc(append(tracked, others...), func(name string) bool {
			return slices.Contains(files, name)
		})
		return held
	}
	if at == nil {
		return err
	}
	if files, _, look := at.changed(ctx); look == nil && len(files) > 0 { // git changes them before it moves the branch
		_, undo := git.Output(ctx, at.call("read-tree", "-m", "-u", now, b.target))
		err = errors.Join(err, undo)
	}

	return err
}

// commitMerge makes the commit of a merge or squash. For a squash that changes nothing it returns the
// target's commit.
func (k *Keeper) commitMerge(ctx context.Context, l Landing, b *view) (string, error) {
	r, err := git.Once(ctx, b.asUser("merge-tree", "--write-tree", "--no-messages", "--name-only", "-z",
		b.target, b.head))
	if err != nil && git.ExitCode(err) != 1 {
		return "", err
	}
	fields := git.Fields(string(r.Stdout))
	if err != nil && len(fields) > 0 {
		return "", &ConflictError{Files: fields[1:]} // empty if the conflict is in no file: see conflictMessages
	} else if err != nil || len(fields) != 1 {
		return "", fmt.Errorf("git merge-tree: unexpected output of %d bytes: %w", len(r.Stdout), err)
	}

	c := b.asUser("commit-tree", fields[0], "-p", b.target)
	if l.Way == WayMerge {
		c.Args = append(c.Args, "-p", b.head)
	} else if tree, err := treeOf(ctx, b.Common, b.target); err != nil || tree == fields[0] {
		return b.target, err
	}
	if b.signs { // commit-tree ignores the setting
		c.Args = append(c.Args, "-S")
	}
	c.Stdin, c.Config = []byte(l.message(b.Branch, l.Target)), []string{"core.fsync=all"}
	return git.Line(ctx, c)
}

// message returns the message of a commit that merges a branch.
func (l Landing) message(from, into string) string {
	if text := strings.TrimSpace(l.Message); text != "" {
		return text + "\n"
	}
	return fmt.Sprintf("Merge branch '%s' into %s\n", from, into)
}

// byHand says why a target cannot be moved where it is checked out.
func byHand(l Landing, b *view, path string, files []string) *CheckedOutError {
	at := "git -C " + session.InShell(path)
	command := at + " merge " + ort + " --no-ff refs/heads/" + b.Branch // a tag may have the same name
	switch l.Way {
	case WaySquash:
		command = at + " merge " + ort + " --squash refs/heads/" + b.Branch + " && " + at + " commit"
	case WayRebase:
		command = "git -C " + session.InShell(b.Path) + " rebase " + session.InShell("refs/heads/"+l.Target) + " && " +
			at + " merge " + ort + " --ff-only refs/heads/" + b.Branch
	}
	return &CheckedOutError{Branch: l.Target, Path: path, Files: files, Command: command}
}

// Rebase repeats the commits of an attempt's worktree on top of its current target branch. It uses only Path,
// Target and InUse of l. The old commits stay under refs/deepwork/before. It returns the errors of Merge;
// after a *ConflictError nothing is changed, and Update can be called instead.
func (k *Keeper) Rebase(ctx context.Context, l Landing) (*Landed, error) {
	return k.onBranch(ctx, l, "rebasing onto "+l.Target, func(b *view) (*Landed, error) {
		now := b.head
		_, err := k.moveTo(ctx, b, func(ctx context.Context) (err error) {
			now, err = b.replay(ctx)
			return err
		})
		return &Landed{Before: b.head, Commit: now}, err
	})
}

// moveTo calls do, which moves the attempt's branch, and its worktree, to other commits, and keeps the old
// ones under a ref of their own. back undoes that; after an error it is undone already.
func (k *Keeper) moveTo(ctx context.Context, b *view, do func(context.Context) error) (back func(), err error) {
	ref := "refs/deepwork/before/" + b.journal.attemptID() + "-" + b.head[:12]
	known, err := refTip(ctx, inRepo(b.Common), ref)
	if err == nil {
		_, err = git.Output(ctx, inRepo(b.Common, "update-ref", ref, b.head))
	}
	if err != nil {
		return func() {}, err
	}

	// What git has begun must be completed even if the caller's context ends.
	ctx = context.WithoutCancel(ctx)
	back = func() {
		now, err := commitOf(ctx, b.call(), "HEAD")
		if err == nil && now != b.head {
			err = b.reset(ctx, b.head)
		}
		if err == nil && known == "" {
			_, err = git.Output(ctx, inRepo(b.Common, "update-ref", "-d", ref, b.head))
		}
		if err != nil {
			k.log.Error("the branch of an attempt could not be taken back after a merge that failed; its old commits "+
				"are under a ref", "attempt", b.journal.Attempt, "ref", ref, "error", err)
		}
	}
	if err = do(ctx); err != nil {
		back()
		return func() {}, err
	}
	if now, look := commitOf(ctx, b.call(), "HEAD"); look == nil && now == b.head {
		back() // nothing was moved
		return func() {}, nil
	}
	return back, nil
}

// reset moves the attempt's branch and its worktree to a commit.
func (b *view) reset(ctx context.Context, to string) error {
	_, said, err := git.Run(ctx,
		b.call("switch", "--quiet", "--no-overwrite-ignore", "--no-recurse-submodules", "--force-create", b.Branch, to))
	return b.dirty(said, err)
}

// dirty returns a *DirtyError if git refused to overwrite files of the worktree.
func (b *view) dirty(said string, err error) error {
	if files := inTheWay(said); err != nil && len(files) > 0 {
		return &DirtyError{Path: b.Path, Files: files}
	}
	return err
}

// replay repeats on the target those commits of the attempt that it lacks, except merges and commits that
// change nothing there, and returns the last one. After an error everything is as before.
func (b *view) replay(ctx context.Context) (now string, err error) {
	upstream := b.target
	if own, err := isAncestor(ctx, b.Common, b.from, b.target); err != nil {
		return "", err
	} else if !own { // with another target it may have commits that are not the attempt's
		upstream = b.from
	}
	c := b.asUser("rebase", "--merge", "--quiet", "--no-autostash", "--no-stat", "--no-verify", "--no-fork-point",
		"--empty=drop", "--no-keep-empty",
		"--onto", b.target, upstream)

	c.Config = []string{"rebase.updateRefs=false", "rebase.rebaseMerges=false", "rebase.autoSquash=false",
		"rebase.missingCommitsCheck=ignore"}
	out, said, err := git.Run(ctx, c)
	if err == nil {
		return commitOf(ctx, b.call(), "HEAD")
	}
	// git rebase, unlike git merge, refuses to work beside them
	if _, same, look := git.Changes(ctx, b.call(), "no"); look == nil && len(same) > 0 && b.operation() == "" {
		return "", &ConflictError{Files: same}
	}
	err = b.dirty(said, err)
	if files, look := b.unmerged(ctx); look == nil && len(files)+len(conflictMessages(out)) > 0 {
		id, _ := commitOf(ctx, b.call(), "REBASE_HEAD")
		err = &ConflictError{Files: files, Commit: id}
	}

	if b.operation() == "rebase" {
		if _, abort := git.Output(ctx, b.asUser("rebase", "--abort")); abort != nil {
			return "", errors.Join(err, abort)
		}
	}

	return "", err
}

// Update merges the target branch into an attempt's worktree. It uses only Path, Target, Message and InUse of
// l. Conflicts are left in the worktree with the merge in progress: git commit completes it there, or Abort
// undoes it. It returns the errors of Merge.
func (k *Keeper) Update(ctx context.Context, l Landing) (*Landed, error) {
	return k.onBranch(ctx, l, "merging from "+l.Target, func(b *view) (*Landed, error) {
		ctx := context.WithoutCancel(ctx)
		c := b.asUser("merge", "--quiet", "--ff", "--commit", "--no-squash", "--no-stat", "--no-autostash",
			"--no-verify-signatures", "--no-verify",
			"-m", strings.TrimSpace(l.message(l.Target, b.Branch)), "refs/heads/"+l.Target)
		c.Config = []string{"branch." + b.Branch + ".mergeOptions="}
		out, said, err := git.Run(ctx, c)
		r := &Landed{Before: b.head, Commit: b.head}
		if err != nil {
			files, look := b.unmerged(ctx)
			if len(files) == 0 {
				files = conflictMessages(out)
			}
			if look == nil && len(files) > 0 {
				r.Conflicts = files
				return r, nil
			}

			err = b.dirty(said, err)
			if b.operation() == "merge" { // for example because it cannot be signed
				_, abort := git.Output(ctx, b.call("merge", "--abort"))
				err = errors.Join(err, abort)
			}

			return nil, err
		}
		r.Commit, err = commitOf(ctx, b.call(), "HEAD")
		return r, err
	})
}

// conflictMessages returns git's words about conflicts that are in no file. For example, if the files of a
// folder were moved to several others, git does not know where a new file belongs.
func conflictMessages(out string) (all []string) {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "CONFLICT") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

func treeOf(ctx context.Context, common, commit string) (string, error) {
	return git.Line(ctx, inRepo(common, "rev-parse", "--verify", commit+"^{tree}"))
}
