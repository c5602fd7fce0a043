package worktree

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"deepwork/actor/durable"
)

// Where a keeper has its things:
//
//	<dir>/<attempt>/<repo>                the worktrees
//	<dir>/.journal/trash/<name>           what is being deleted, on the same disk
//	<journal>/<attempt>.json              what was begun for an attempt
//	<journal>/locks, tmp                  locks and temporary files
//	<journal>/removed/<name>              names what is ours in the trash
//
// The folder of worktrees may be in a project, where others write too: there nothing is
// used or removed but what a journal names, and no link is followed.

// privateFolder is the folder in Dir that does not belong to an attempt.
const privateFolder = ".journal"

var trashFolder = filepath.Join(privateFolder, "trash")

// folder returns the attempt's folder, which contains its worktrees.
func (k *Keeper) folder(attempt string) string { return filepath.Join(k.dir, attempt) }

func (k *Keeper) locks() string { return filepath.Join(k.journal, "locks") }

// temp returns the folder of temporary files, which Recover removes after a crash.
func (k *Keeper) temp() string { return filepath.Join(k.journal, "tmp") }

func (k *Keeper) removed() string { return filepath.Join(k.journal, "removed") }

// private reports whether nobody else writes to the folder of worktrees.
func (k *Keeper) private() bool { return k.journal == filepath.Join(k.dir, privateFolder) }

// unlinked returns ErrNotOurs if one of the keeper's own folders, a worktree, or the folder that it
// is in is a link: its target is not ours.
func (k *Keeper) unlinked(paths ...string) error {
	own := []string{filepath.Join(k.dir, privateFolder), filepath.Join(k.dir, trashFolder), k.journal, k.locks(), k.temp(), k.removed()}
	if rel, err := filepath.Rel(k.project, k.dir); k.project != "" && err == nil && filepath.IsLocal(rel) {
		for at := k.dir; at != k.project; at = filepath.Dir(at) {
			own = append(own, at)
		}
	}
	for _, path := range paths {
		if parent := filepath.Dir(path); parent != k.dir {
			own = append(own, parent)
		}
		own = append(own, path)
	}
	for _, path := range own {
		info, err := os.Lstat(path)
		if err == nil && info.Mode()&(fs.ModeSymlink|fs.ModeIrregular) != 0 {
			return fmt.Errorf("%w: %s is %s; remove it, what it leads to is left alone", ErrNotOurs, path, durable.Kind(info.Mode()))
		} else if err != nil && !missing(err) {
			return err
		}
	}
	return nil
}

// Safe returns ErrNotOurs if one of the keeper's folders is a link.
func (k *Keeper) Safe() error { return k.unlinked() }

// discard moves a folder of an attempt out of the way at once; empty then deletes it, which may
// take long. Recover deletes what a crash leaves of it. A missing folder is not an error.
func (k *Keeper) discard(path, attempt string) (empty func(), err error) {
	nothing := func() {}
	if err := k.unlinked(path); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(k.dir)
	if missing(err) {
		return nothing, nil
	} else if err != nil {
		return nil, err
	}
	defer root.Close()
	rel, err := filepath.Rel(k.dir, path)
	if err != nil {
		return nil, err
	}
	if _, err := root.Lstat(rel); missing(err) {
		return nothing, nil
	}
	name := attempt + "-" + rand.Text()
	if err := errors.Join(root.MkdirAll(trashFolder, 0o700), os.MkdirAll(k.removed(), 0o700)); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(k.removed(), name), nil, 0o600); err != nil {
		return nil, err
	}
	var disk durable.Disk
	if err := disk.SyncFolder(k.removed()); err != nil {
		return nil, err
	}
	if err := root.Rename(rel, filepath.Join(trashFolder, name)); err != nil {
		return nil, errors.Join(err, os.Remove(filepath.Join(k.removed(), name)))
	}
	if err := errors.Join(disk.SyncFolder(filepath.Dir(path)), disk.SyncFolder(filepath.Join(k.dir, trashFolder))); err != nil {
		return nil, err
	}
	return func() {
		if err := k.empty(name); err != nil {
			k.log.Warn("a removed worktree could not be deleted; the next start tries again", "folder", filepath.Join(k.dir, trashFolder, name), "error", err)
		}
	}, nil
}

// empty deletes a folder that was moved to the trash under a name.
func (k *Keeper) empty(name string) error {
	root, err := os.OpenRoot(k.dir)
	if err == nil {
		defer root.Close()
		err = removeAll(root, filepath.Join(trashFolder, name))
	}
	if err != nil && !missing(err) {
		return err
	}
	return os.Remove(filepath.Join(k.removed(), name))
}

// removeAll deletes a folder, even if folders in it are read-only, as in package caches.
func removeAll(root *os.Root, name string) error {
	if root.RemoveAll(name) == nil {
		return nil
	}
	fs.WalkDir(root.FS(), filepath.ToSlash(name), func(at string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			root.Chmod(filepath.FromSlash(at), 0o700) // before it is read
		}
		return nil
	})
	return root.RemoveAll(name)
}

// sweep deletes removed worktrees and temporary files that earlier processes left.
func (k *Keeper) sweep() {
	old := func(folder string, remove func(name string, age time.Duration) error) {
		list, _ := os.ReadDir(folder) // it may be missing
		for _, f := range list {
			info, err := f.Info()
			if err != nil {
				continue
			}
			if err := remove(f.Name(), time.Since(info.ModTime())); err != nil {
				k.log.Warn("what is left of a removed worktree could not be deleted", "path", filepath.Join(folder, f.Name()), "error", err)
			}
		}
	}
	old(k.removed(), func(name string, age time.Duration) error {
		if !isThere(filepath.Join(k.dir, trashFolder, name)) && age < abandoned {
			return nil // a call is about to move a folder there
		}
		return k.empty(name)
	})
	old(k.temp(), func(name string, age time.Duration) error {
		if age < abandoned {
			return nil
		}
		return os.RemoveAll(filepath.Join(k.temp(), name))
	})
}
