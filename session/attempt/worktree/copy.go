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
	"slices"
	"strings"

	"deepwork/session/git"
)

// A copier copies files of a checkout into a worktree of it. Both are opened as
// roots, so that no symlink leads out of them.
type copier struct {
	k        *Keeper
	name     string // the repository's, for the log
	real     string // the checkout's folder, without symlinks
	prefix   string // the folder in it that is used as the repository, with slashes
	from, to *os.Root
}

// copyAll copies the files of the repository's copy list from the folder that is used as the
// repository to the same place in the worktree. A missing file is skipped with a warning; one
// outside is ErrOutside. An existing copy is replaced.
func (k *Keeper) copyAll(ctx context.Context, e *record) error {
	if len(e.Copy) == 0 {
		return nil
	}
	top, err := git.TopLevel(ctx, e.Repo)
	if git.ExitCode(err) > 0 {
		k.log.Warn("a bare repository has no files to copy", "repo", e.Name, "copy", e.Copy)
		return nil
	} else if err != nil {
		return err
	}
	c := &copier{k: k, name: e.Name, real: canonical(top)}
	if c.prefix, err = filepath.Rel(c.real, canonical(e.Repo)); err != nil {
		return fmt.Errorf("copying files: %w", err)
	}
	c.from, err = os.OpenRoot(c.real)
	if err == nil {
		defer c.from.Close()
		c.to, err = os.OpenRoot(e.Path)
	}
	if err != nil {
		return fmt.Errorf("copying files: %w", err)
	}
	defer c.to.Close()
	for _, name := range e.Copy {
		if err := c.copy(ctx, name); err != nil {
			return fmt.Errorf("copying %q: %w", name, err)
		}
	}
	return nil
}

// copy copies a configured file or folder with its content, except git's own files: those would let
// a worktree write to the checkout's repositories.
func (c *copier) copy(ctx context.Context, name string) error {
	local := filepath.FromSlash(strings.TrimRight(name, "/"))
	dest := filepath.ToSlash(filepath.Join(c.prefix, local))
	if !filepath.IsLocal(local) || dest == "." {
		return fmt.Errorf("%w of the repository; copy takes paths below it", ErrOutside)
	}
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
	if err := c.to.MkdirAll(path.Dir(dest), 0o755); err != nil {
		return fmt.Errorf("%w of the worktree, or a file is in the way: %w", ErrOutside, err)
	}
	start := filepath.Join(c.real, filepath.FromSlash(source))
	return filepath.WalkDir(start, func(at string, d fs.DirEntry, err error) error {
		if at != start && errors.Is(err, fs.ErrNotExist) {
			return nil // it has just vanished
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		rel, err := filepath.Rel(start, at)
		if err != nil {
			return err
		}
		from, to := path.Join(source, filepath.ToSlash(rel)), path.Join(dest, filepath.ToSlash(rel))
		if at != start && strings.EqualFold(d.Name(), ".git") {
			c.k.log.Warn("a repository's own files are not copied into a new worktree", "repo", c.name, "file", from)
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		switch perm := info.Mode().Perm(); info.Mode().Type() {
		case 0:
			return c.file(from, to, perm)
		case fs.ModeDir:
			if err := c.to.Mkdir(to, perm|0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			return c.to.Chmod(to, perm|0o700) // so that it can be filled
		case fs.ModeSymlink:
			return c.link(from, to)
		}
		c.k.log.Warn("what is neither file, folder nor symlink is not copied into a new worktree", "repo", c.name, "file", from)
		return nil
	})
}

// resolve follows the symlinks of a path in the checkout and returns a path in it.
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
	return slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return strings.EqualFold(part, ".git") })
}

// link copies a symlink in a folder as a symlink, unless it leads outside or nowhere.
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

// free removes a file or symlink that a copy will replace.
func (c *copier) free(dest string) error {
	if info, err := c.to.Lstat(dest); err == nil && info.IsDir() {
		return fmt.Errorf("in the worktree %s is a folder", dest)
	}
	if err := c.to.Remove(dest); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (c *copier) file(source, dest string, perm fs.FileMode) error {
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
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(perm), out.Close())
}
