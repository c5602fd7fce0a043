package worktree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/durable"
	"deepwork/actor/process"
	"deepwork/actor/xslices"
	"deepwork/session/git"
)

// Diff returns git's diff of a worktree since the attempt's work began, merged or not, including untracked
// files; while a merge is in progress there, it is without the files that the merge has changed. It has these
// paths (all, if none are given) and at most maxBytes (1 MiB, if that is less than 1), cut at a line break;
// truncated reports whether there is more. Paths are files and folders, not patterns; they are local to the
// worktree and have slashes. Binary files, and those above 16 MiB, are only named. The options are added to
// those of git diff.
//
// It uses its own index, takes no lock and changes nothing. It blocks until git has ended; git is stopped at
// maxBytes, so that memory is bounded.
func (k *Keeper) Diff(
	ctx context.Context, path, base, target string, paths []string, maxBytes int, options ...string,
) (text string, truncated bool, err error) {
	defer wrap(&err, "comparing the worktree %s", path)
	if !isDir(path) {
		return "", false, fmt.Errorf("%w: there is no such folder", ErrNoWorktree)
	}

	v, err := k.view(ctx, path, base, target)
	if err != nil {
		return "", false, err
	}

	tmp, done, err := k.scratch()
	if err != nil {
		return "", false, err
	}
	defer done()
	index, err := v.indexWithLoose(ctx, tmp)
	if err != nil {
		return "", false, err
	}

	c := v.call(slices.Concat([]string{"diff", "--no-color", "--src-prefix=a/", "--dst-prefix=b/"},
		options, []string{v.from, "--"}, pathspecs(paths))...)
	c.Index, c.Limit = index, maxBytes
	c.Config = []string{"diff.noprefix=false", "diff.mnemonicPrefix=false", "diff.relative=false", "color.ui=false"}
	r, err := git.Once(ctx, c)
	if errors.Is(err, process.ErrTooMuchOutput) {
		return cut(r.Stdout), true, nil
	}
	if err != nil {
		return "", false, err
	}
	return string(r.Stdout), false, nil
}

// cut ends a text after its last complete line or, without one, its last complete character.
func cut(b []byte) string {
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		return string(b[:i+1])
	}
	return strings.ToValidUTF8(string(b), "")
}

// pathspecs converts paths to git's patterns, each of which matches literally.
func pathspecs(paths []string) []string {
	return xslices.Map(paths, func(p string) string {
		if p = path.Clean(filepath.ToSlash(p)); p == "." {
			return ":(top)"
		}
		return ":(top,literal)" + p
	})
}

// emptyBlobs are the ids of an empty file, in both object formats of repositories.
var emptyBlobs = []string{"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
	"473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813"}

// indexWithLoose copies the worktree's index and adds the untracked files to the copy, without their content,
// so that git reads the files themselves. It does not use git add --intent-to-add, which also stages tracked
// files, looks into submodules, and fails if a file has just been removed.
func (v *view) indexWithLoose(ctx context.Context, tmp string) (string, error) {
	index := filepath.Join(tmp, "index")
	c := v.call()
	c.Index = index
	admin, merging := v.admin, v.operation() == "merge"
	if merging {
		admin = "" // the index of what is committed
	}
	if err := copyIndex(ctx, c, admin, v.head); err != nil {
		return "", err
	}

	loose, same, err := git.Changes(ctx, v.call(), "all")
	if err == nil && merging {
		c.Args = []string{"ls-files", "-z"}
		var out string
		out, err = git.Output(ctx, c)
		same = git.Fields(out)
	}
	if err == nil {
		err = assumeUnchanged(ctx, c, same)
	}
	if err != nil || len(loose[untracked]) == 0 {
		return index, err
	}

	var add strings.Builder
	for _, name := range loose[untracked] {
		mode, at := "100644", filepath.Join(v.path, filepath.FromSlash(name))
		info, err := os.Lstat(at)
		switch {
		case err != nil || info.IsDir():
			continue // just removed, or a repository
		case info.Mode().Type() == fs.ModeSymlink:
			mode = "120000"
		case !readable(at):
			continue // git would fail completely
		}

		// by the length of the repository's ids
		fmt.Fprintf(&add, "%s %s\t%s\x00", mode, emptyBlobs[len(v.target)/64], name)
	}

	c.Args, c.Stdin = []string{"update-index", "-z", "--index-info"}, []byte(add.String())
	_, err = git.Output(ctx, c)
	return index, err
}

// assumeUnchanged has git commands with the index of c take files for unchanged.
func assumeUnchanged(ctx context.Context, c git.Command, files []string) error {
	if len(files) == 0 {
		return nil
	}
	c.Args = []string{"update-index", "--assume-unchanged", "-z", "--stdin"}
	c.Stdin = []byte(strings.Join(files, "\x00") + "\x00")
	_, err := git.Output(ctx, c)
	return err
}

func readable(path string) bool {
	f, _, err := durable.OpenRegular(path, os.O_RDONLY)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// maxIndex is the maximum size of an index in bytes: some ten million files.
const maxIndex = 1 << 30

// copyIndex copies the index of a worktree to that of a command, with its time, from which git infers which files may
// have changed just after it was written. Without an index it makes that of head.
func copyIndex(ctx context.Context, to git.Command, admin, head string) error {
	info, err := os.Stat(filepath.Join(admin, "index")) // taken before the copy: an older time is safer
	if admin == "" || errors.Is(err, fs.ErrNotExist) {
		to.Args = []string{"read-tree", head}
		if head == "" {
			return nil
		}
		_, err = git.Output(ctx, to)
		return err
	}
	if err != nil {
		return err
	}
	data, _, err := durable.Read(filepath.Join(admin, "index"), maxIndex)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(to.Index, data, 0o600), os.Chtimes(to.Index, info.ModTime(), info.ModTime()))
}
