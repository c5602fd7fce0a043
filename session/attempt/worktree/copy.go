package worktree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// A copier copies files of a checkout into a worktree of it. Both are opened as
// roots, so that no symlink leads out of them.
type copier struct {
	k        *Keeper
	ctx      context.Context
	name     string // the repository's, for the log
	real     string // the checkout's folder, without symlinks
	from, to *os.Root
}

// copyAll copies what the repository's copy list names: from the folder that is
// called the repository to the same place in the worktree. What is missing is
// skipped with a warning; what leads outside is ErrOutside. A copy that is there
// already is replaced.
func (k *Keeper) copyAll(ctx context.Context, e *record) error {
	if len(e.Copy) == 0 {
		return nil
	}
	r, err := k.findRepo(ctx, e.Repo)
	if err != nil {
		return err
	}
	if r.top == "" {
		k.log.Warn("a bare repository has no files to copy", "repo", e.Name, "copy", e.Copy)
		return nil
	}
	c := &copier{k: k, ctx: ctx, name: e.Name}
	if c.real, err = filepath.EvalSymlinks(r.top); err != nil {
		return fmt.Errorf("copying files: %w", err)
	}
	if c.from, err = os.OpenRoot(c.real); err != nil {
		return fmt.Errorf("copying files: %w", err)
	}
	defer c.from.Close()
	if c.to, err = os.OpenRoot(e.Path); err != nil {
		return fmt.Errorf("copying files: %w", err)
	}
	defer c.to.Close()
	for _, name := range e.Copy {
		if err := c.entry(r.prefix, name); err != nil {
			return fmt.Errorf("copying %q: %w", name, err)
		}
	}
	return nil
}

// entry copies what the config names.
func (c *copier) entry(prefix, name string) error {
	local := filepath.FromSlash(strings.TrimRight(name, "/"))
	if !filepath.IsLocal(local) || filepath.Clean(local) == "." && prefix == "" {
		return fmt.Errorf("%w of the repository; copy takes paths below it", ErrOutside)
	}
	dest := path.Join(prefix, filepath.ToSlash(local))
	if inGit(dest) {
		return fmt.Errorf("%w: a worktree has git files of its own", ErrOutside)
	}
	source, err := c.resolve(dest)
	if errors.Is(err, fs.ErrNotExist) {
		c.k.log.Warn("a file to copy into a new worktree is missing", "repo", c.name, "file", name)
		return nil
	} else if err != nil {
		return err
	}
	info, err := c.from.Lstat(source)
	if err != nil {
		return err
	}
	if err := c.parents(path.Dir(dest)); err != nil {
		return err
	}
	return c.copy(source, dest, info)
}

// resolve follows the symlinks of a path in the checkout, to a path in it.
func (c *copier) resolve(name string) (string, error) {
	real, err := filepath.EvalSymlinks(filepath.Join(c.real, filepath.FromSlash(name)))
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(c.real, real)
	if err != nil || !filepath.IsLocal(rel) || inGit(filepath.ToSlash(rel)) {
		return "", fmt.Errorf("%w of the repository: it is %s", ErrOutside, real)
	}
	return filepath.ToSlash(rel), nil
}

// inGit reports whether a path is git's own.
func inGit(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if strings.EqualFold(part, ".git") {
			return true
		}
	}
	return false
}

// parents makes the folders above a copy.
func (c *copier) parents(dir string) error {
	if dir == "." {
		return nil
	}
	if err := c.to.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("%w of the worktree, or a file is in the way: %w", ErrOutside, err)
	}
	return nil
}

func (c *copier) copy(source, dest string, info fs.FileInfo) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return c.file(source, dest, mode.Perm())
	case mode.IsDir():
		return c.folder(source, dest, mode.Perm())
	case mode.Type() == fs.ModeSymlink:
		return c.link(source, dest)
	}
	c.k.log.Warn("what is neither file, folder nor symlink is not copied into a new worktree", "repo", c.name, "file", source)
	return nil
}

// folder copies a folder with all that is in it, but for git's own files: those
// would let a worktree write into the checkout's repositories.
func (c *copier) folder(source, dest string, perm fs.FileMode) error {
	if err := c.to.Mkdir(dest, perm|0o700); err != nil {
		if info, look := c.to.Lstat(dest); look != nil || !info.IsDir() {
			return err
		}
		if err := c.to.Chmod(dest, perm|0o700); err != nil {
			return err
		}
	}
	dir, err := c.from.Open(source)
	if err != nil {
		return err
	}
	list, err := dir.ReadDir(-1)
	dir.Close()
	if err != nil {
		return err
	}
	for _, f := range list {
		if strings.EqualFold(f.Name(), ".git") {
			c.k.log.Warn("a repository's own files are not copied into a new worktree", "repo", c.name, "file", path.Join(source, f.Name()))
			continue
		}
		info, err := f.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it vanished just now
		} else if err != nil {
			return err
		}
		if err := c.copy(path.Join(source, f.Name()), path.Join(dest, f.Name()), info); err != nil {
			return err
		}
	}
	return c.to.Chmod(dest, perm)
}

// link copies a symlink in a folder as a symlink; one that leads outside, or
// nowhere, is left out.
func (c *copier) link(source, dest string) error {
	target, err := c.from.Readlink(source)
	if err != nil {
		return err
	}
	if _, err := c.resolve(source); err != nil || filepath.IsAbs(target) {
		c.k.log.Warn("a symlink that leads out of the repository is not copied into a new worktree", "repo", c.name, "file", source, "target", target)
		return nil
	}
	if err := c.free(dest); err != nil {
		return err
	}
	return c.to.Symlink(target, dest)
}

// free removes a file or symlink that a copy is to replace.
func (c *copier) free(dest string) error {
	info, err := c.to.Lstat(dest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("in the worktree %s is a folder", dest)
	}
	return c.to.Remove(dest)
}

func (c *copier) file(source, dest string, perm fs.FileMode) (err error) {
	if err := c.free(dest); err != nil {
		return err
	}
	in, err := c.from.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := c.to.OpenFile(dest, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm|0o200)
	if err != nil {
		return err
	}
	defer func() {
		if e := out.Close(); err == nil {
			err = e
		}
	}()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Chmod(perm)
}
