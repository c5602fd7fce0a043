package worktree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/durable"
	"deepwork/session/git"
)

// ErrNoConflict is returned for a file that is not in conflict or, by Untake, whose conflict is not resolved.
var ErrNoConflict = errors.New("the file has no such conflict")

// The sides of a conflict, with their stages in git's index: the file of the attempt, and that of the target.
const (
	Ours   = "ours"
	Theirs = "theirs"
)

var stages = map[string]string{Ours: " 2", Theirs: " 3"}

// takenRefs is the prefix of the refs of files that TakeSide and Untake have replaced. They are blobs.
const takenRefs = "refs/deepwork/taken/"

// TakeSide resolves the conflict of a file, during a merge in the worktree of an attempt, by the file of one side, or
// removes it if that side has deleted it. Untake undoes this.
//
// Nothing is lost if the process is killed in between. First the bytes of the file are put into the repository, under
// a ref that stays until Untake has restored them; then the file is replaced; then the index says that the conflict is
// resolved, and keeps what it was. Until then TakeSide can be called again, and Untake restores the file as it was
// first.
// Errors: ErrNoConflict, ErrNoMerge, ErrNotKept, ErrInUse, ErrNoWorktree.
func (k *Keeper) TakeSide(ctx context.Context, path, file, side string, inUse func() bool) (err error) {
	defer wrap(&err, "resolving %s in %s", file, path)
	_, err = k.onMerge(ctx, path, inUse, func(b *view) (*Rescue, error) {
		entries, err := b.conflictOf(ctx, "--unmerged", file)
		if err == nil && stages[side] == "" {
			err = ErrNoConflict
		}
		if err == nil {
			_, err = k.keepFile(ctx, b, file, nil)
		}
		if err != nil {
			return nil, err
		}

		k.atPoint("kept")
		var taken []string
		for _, e := range entries {
			if of, ok := strings.CutSuffix(e, stages[side]); ok {
				taken = []string{of}
			}
		}
		if taken != nil {
			_, err = git.Output(ctx, b.call("checkout-index", "--force", "--stage="+stages[side][1:], "--", file))
		} else {
			err = b.replace(file, nil, 0)
		}
		if err != nil {
			return nil, err
		}

		k.atPoint("replaced")
		return nil, b.setIndex(ctx, file, taken)
	})
	return err
}

// Untake puts a file whose conflict was resolved back into conflict, and restores it byte by byte if TakeSide has
// replaced it. kept says where the file is that it was resolved by, nil if one side has the same: its ref names a file
// instead of a commit. If the process is killed in between, the file is in conflict, and TakeSide and Untake can be
// called. The errors are those of TakeSide.
func (k *Keeper) Untake(ctx context.Context, path, file string, inUse func() bool) (kept *Rescue, err error) {
	defer wrap(&err, "restoring the conflict of %s in %s", file, path)
	return k.onMerge(ctx, path, inUse, func(b *view) (kept *Rescue, err error) {
		entries, err := b.conflictOf(ctx, "--resolve-undo", file)
		if err == nil {
			kept, err = k.keepFile(ctx, b, file, entries)
		}
		if err == nil {
			err = b.setIndex(ctx, file, entries)
		}
		if err != nil {
			return nil, err
		}

		k.atPoint("in conflict")
		id, ref, err := b.first(ctx, file)
		if err != nil || id == "" {
			return kept, err
		}
		perm := fs.FileMode(0o666)
		if strings.HasSuffix(ref, "-x") {
			perm = 0o777
		}
		text, err := git.Output(ctx, b.call("cat-file", "blob", id))
		if err == nil {
			err = b.replace(file, []byte(text), perm)
		}
		if err != nil {
			return nil, err
		}

		k.atPoint("restored")
		_, err = git.Output(ctx, inRepo(b.Common, "update-ref", "-d", ref, id))
		return kept, err
	})
}

// Conclude commits a merge in progress whose conflicts are resolved, as the user, with the changes of tracked files.
// It uses Path, Target, Message and InUse of l. The errors are those of TakeSide, and ErrUnfinished while there are
// conflicts.
func (k *Keeper) Conclude(ctx context.Context, l Landing) (err error) {
	defer wrap(&err, "committing the merge in %s", l.Path)
	_, err = k.onMerge(ctx, l.Path, l.InUse, func(b *view) (*Rescue, error) {
		files, err := b.unmerged(ctx)
		if err == nil && len(files) > 0 {
			err = b.finished()
		}
		if err == nil {
			err = git.CheckFilters(ctx, b.call())
		}
		if err == nil {
			_, err = git.Output(ctx, b.asUser("add", "--update", "--sparse", ":/"))
		}
		if err == nil {
			message := l.message(l.Target, b.Branch)
			_, err = git.Output(ctx, b.asUser("commit", "--quiet", "--no-verify", "-m", message))
		}
		return nil, err
	})
	return err
}

// onMerge calls do for a worktree with a merge in progress. The attempt and the repository are locked.
func (k *Keeper) onMerge(
	ctx context.Context, path string, inUse func() bool, do func(b *view) (*Rescue, error),
) (kept *Rescue, err error) {
	err = k.onWorktree(ctx, path, inUse, func(b *view) error {
		free, err := k.lockRepo(ctx, b.Common)
		if err != nil {
			return err
		}
		defer free()

		if b.operation() != "merge" {
			return ErrNoMerge
		}
		kept, err = do(b)
		return err
	})
	return kept, err
}

// conflictOf returns the entries of a file in the index, each a mode, an id and a stage: those of its conflict with
// --unmerged, those of its resolved conflict with --resolve-undo.
func (b *view) conflictOf(ctx context.Context, which, file string) (entries []string, err error) {
	out, err := git.Output(ctx, b.call("ls-files", which, "-z"))
	for _, line := range git.Fields(out) {
		if e, ok := strings.CutSuffix(line, "\t"+file); ok && !strings.HasPrefix(e, modeRepo) {
			entries = append(entries, e)
		}
	}
	if err == nil && len(entries) == 0 {
		err = ErrNoConflict
	}
	return entries, err
}

// resolved lists the files whose conflicts in the merge in progress are resolved.
func (b *view) resolved(ctx context.Context) (files []string, err error) {
	out, err := git.Output(ctx, b.call("ls-files", "--resolve-undo", "-z"))
	for _, line := range git.Fields(out) {
		_, name, _ := strings.Cut(line, "\t")
		files = append(files, name)
	}
	return slices.Compact(files), err
}

// setIndex replaces the entries of a file in the index.
func (b *view) setIndex(ctx context.Context, file string, entries []string) error {
	c := b.call("update-index", "-z", "--index-info")
	c.Stdin = fmt.Appendf(nil, "0 %0*d\t%s\x00", len(b.head), 0, file)
	for _, e := range entries {
		c.Stdin = fmt.Appendf(c.Stdin, "%s\t%s\x00", e, file)
	}
	_, err := git.Output(ctx, c)
	return err
}

// maxTaken is how many bytes a file may have that keepFile keeps.
const maxTaken = 64 << 20

// keepFile keeps the bytes of a file of the worktree under a ref, and returns nil if there is no such file, or if its
// id is in one of these entries. Without entries, the first that it keeps of a file is the one that first returns. It
// refuses anything but a regular file.
func (k *Keeper) keepFile(ctx context.Context, b *view, file string, entries []string) (*Rescue, error) {
	at := filepath.Join(b.Path, filepath.FromSlash(file))
	data, info, err := durable.Read(at, maxTaken)
	if missing(err) {
		return nil, nil
	}
	id := ""
	if err == nil {
		c := inRepo(b.Common, "hash-object", "-w", "--stdin")
		c.Stdin, c.Config = data, []string{"core.fsync=all"}
		id, err = git.Line(ctx, c)
	}
	first := ""
	if err == nil {
		first, _, err = b.first(ctx, file)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotKept, err)
	}

	ref := b.takenRef(file)
	switch {
	case id == first, slices.ContainsFunc(entries, func(e string) bool { return strings.Contains(e, id) }):
		return nil, nil
	case first != "" || entries != nil:
		ref = takenRefs + b.journal.attemptID() + "-" + id
	case info.Mode()&0o111 != 0:
		ref += "-x"
	}
	if _, err = git.Output(ctx, inRepo(b.Common, "update-ref", ref, id)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotKept, err)
	}
	return &Rescue{Path: at, Ref: ref, Commit: id}, nil
}

// takenRef returns the beginning of the ref of a file as it was before TakeSide replaced it in the merge in progress.
func (b *view) takenRef(file string) string {
	merge, _, _ := durable.Read(filepath.Join(b.admin, "MERGE_HEAD"), maxGitFile) // there is one during a merge
	sum := sha256.Sum256(append(merge, file...))
	return takenRefs + b.journal.attemptID() + "-" + hex.EncodeToString(sum[:8])
}

// first returns the id and the ref of a file as it was before TakeSide replaced it in the merge in progress, or "".
func (b *view) first(ctx context.Context, file string) (id, ref string, err error) {
	line, err := git.Line(ctx, inRepo(b.Common, "for-each-ref", "--format=%(objectname) %(refname)",
		b.takenRef(file)+"*"))
	id, ref, _ = strings.Cut(line, " ")
	return id, ref, err
}

// replace replaces a file of the worktree, or removes it if data is nil.
func (b *view) replace(file string, data []byte, perm fs.FileMode) error {
	root, err := os.OpenRoot(b.Path)
	if err != nil {
		return err
	}
	defer root.Close()
	name := filepath.FromSlash(file)
	err = root.Remove(name)
	if data == nil || err != nil && !missing(err) {
		return err
	}
	return errors.Join(root.MkdirAll(filepath.Dir(name), 0o777), root.WriteFile(name, data, perm))
}
