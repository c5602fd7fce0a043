package worktree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/session/git"
)

// A copier copies files of a checkout into a worktree of it. Both are opened as roots, so that no
// symlink leads out of them.
type copier struct {
	log      *slog.Logger // with the repository's name
	real     string       // the checkout's folder, without symlinks
	prefix   string       // the folder in it that is used as the repository
	from, to *os.Root
}

// copyAll copies the files of the repository's copy list from the folder that is used as the
// repository to the same place in the worktree. A missing file is skipped with a warning; one
// outside is ErrOutside. An existing copy is replaced.
func (k *Keeper) copyAll(ctx context.Context, e *record) (err error) {
	if len(e.Copy) == 0 {
		return nil
	}
	defer wrap(&err, "copying files")
	c := &copier{log: k.log.With("repo", e.Name), prefix: e.Folder}
	top, err := git.TopLevel(ctx, e.Repo)
	if git.ExitCode(err) > 0 {
		c.log.Warn("a bare repository has no files to copy", "copy", e.Copy)
		return nil
	} else if err != nil {
		return err
	}
	c.real = canonical(top)
	if c.from, err = os.OpenRoot(c.real); err != nil {
		return err
	}
	defer c.from.Close()
	if c.to, err = os.OpenRoot(e.Path); err != nil {
		return err
	}
	defer c.to.Close()
	for _, name := range e.Copy {
		if err := c.copy(ctx, name); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	return nil
}

// copy copies a configured file or folder with its content, except git's own files: those would let
// a worktree write to the checkout's repositories.
func (c *copier) copy(ctx context.Context, name string) error {
	local := filepath.FromSlash(strings.TrimRight(name, "/"))
	dest := filepath.ToSlash(filepath.Join(c.prefix, local))
	if !filepath.IsLocal(local) || dest == "." || inGit(dest) {
		return fmt.Errorf("%w of the repository; copy takes paths below it, and not git's own", ErrOutside)
	}
	source, err := c.resolve(dest)
	if errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("a file to copy into a new worktree is missing", "file", name)
		return nil
	} else if err != nil {
		return err
	}
	if err := c.to.MkdirAll(path.Dir(dest), 0o755); err != nil {
		return fmt.Errorf("%w of the worktree, or a file is in the way: %w", ErrOutside, err)
	}
	return fs.WalkDir(c.from.FS(), source, func(at string, d fs.DirEntry, err error) error {
		if err = cmp.Or(ctx.Err(), err); err == nil {
			err = c.one(at, path.Join(dest, strings.TrimPrefix(at, source)), d)
		}
		if at != source && errors.Is(err, fs.ErrNotExist) {
			return nil // it has just vanished
		}
		return err
	})
}

// one copies a file, folder or symlink, but not what is in a folder.
func (c *copier) one(source, dest string, d fs.DirEntry) error {
	switch {
	case inGit(source):
		c.log.Warn("a repository's own files are not copied into a new worktree", "file", source)
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	case d.IsDir():
		info, err := d.Info()
		if err != nil {
			return err
		}
		if err := c.to.Mkdir(dest, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return c.to.Chmod(dest, info.Mode().Perm()|0o700) // so that it can be filled
	case d.Type().IsRegular():
		return c.file(source, dest)
	case d.Type() == fs.ModeSymlink:
		return c.link(source, dest)
	}
	c.log.Warn("what is neither file, folder nor symlink is not copied into a new worktree", "file", source)
	return nil
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
		c.log.Warn("a symlink that leads out of the repository is not copied into a new worktree", "file", source, "target", target)
		return nil
	}
	if err := c.to.Remove(dest); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return c.to.Symlink(target, dest)
}

func (c *copier) file(source, dest string) error {
	in, err := c.from.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := c.to.Remove(dest); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := c.to.OpenFile(dest, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm()|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(info.Mode().Perm()), out.Close())
}
