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

	"deepwork/actor/process"
	"deepwork/session/git"
)

// Diff returns the changes of a worktree since the attempt's work begins, merged or not, as git prints
// them, including untracked files, of these paths (all, if none), at most maxBytes (1 MiB, if that is
// less than 1); truncated reports whether there is more. The diff is cut at a line break. Paths are
// local to the worktree, with slashes, and are files and folders, not patterns. Binary files, and
// those above 16 MiB, are only named. The options are added to those of git diff.
//
// It uses its own index, takes no lock and changes nothing. It blocks until git has ended;
// git is stopped at maxBytes, so that memory is bounded.
func (k *Keeper) Diff(ctx context.Context, path, base, target string, paths []string, maxBytes int, options ...string) (text string, truncated bool, err error) {
	defer wrap(&err, "comparing the worktree %s", path)
	if !isDir(path) {
		return "", false, fmt.Errorf("%w: there is no such folder", ErrNoWorktree)
	}
	v, err := k.view(ctx, path, base, target)
	if err != nil {
		return "", false, err
	}
	tmp, done, err := scratch()
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

// cut ends a text after its last complete line or, if there is none, character.
func cut(b []byte) string {
	if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
		return string(b[:i+1])
	}
	return strings.ToValidUTF8(string(b), "")
}

// pathspecs converts paths to git's patterns, each of which matches literally.
func pathspecs(paths []string) []string {
	var out []string
	for _, p := range paths {
		if p = path.Clean(filepath.ToSlash(p)); p == "." {
			out = append(out, ":(top)")
		} else {
			out = append(out, ":(top,literal)"+p)
		}
	}
	return out
}

// indexWithLoose copies the worktree's index and adds the untracked files to the copy, without
// their content: git then reads the files themselves.
func (v *view) indexWithLoose(ctx context.Context, tmp string) (string, error) {
	index := filepath.Join(tmp, "index")
	run := func(args ...string) error {
		c := v.call(args...)
		c.Index = index
		_, err := git.Output(ctx, c)
		return err
	}
	err := copyIndex(filepath.Join(v.admin, "index"), index)
	if errors.Is(err, fs.ErrNotExist) {
		if err = nil; v.head != "" {
			err = run("read-tree", v.head)
		}
	}
	if err != nil {
		return "", err
	}
	loose, err := v.loose(ctx)
	if err != nil || len(loose[untracked]) == 0 {
		return index, err
	}
	add := []string{"add", "--intent-to-add", "--ignore-errors", "--sparse", "--", "."}
	for _, name := range loose[untracked] {
		if strings.HasSuffix(name, "/") { // a repository
			add = append(add, ":(top,exclude,literal)"+name)
		}
	}
	if err = run(add...); git.ExitCode(err) > 0 {
		err = nil // some files, which git cannot read or which have just vanished, are left out
	}
	return index, err
}

// copyIndex copies an index with its time, from which git infers which files may have changed just
// after it was written.
func copyIndex(from, to string) error {
	info, err := os.Stat(from) // before the copy: an older time is safer
	if err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(to, data, 0o600), os.Chtimes(to, info.ModTime(), info.ModTime()))
}
