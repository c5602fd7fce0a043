package catalog

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"deepwork/actor"
	"deepwork/catalog/internal/stamp"
)

// A placement is where the standard jobs were laid out, and what their files
// looked like then. It is immutable.
type placement struct {
	base    string // holds the jobs' directories, absolute
	private bool   // base is a temporary folder of this catalog, removed by Close
	files   []placedFile
}

// A placedFile is one file as it was found good.
type placedFile struct {
	at    stamp.Path
	stamp stamp.Stamp
}

// intact tells whether no file was touched since.
func (p *placement) intact() bool {
	for _, f := range p.files {
		if f.at.Stat() != f.stamp {
			return false
		}
	}
	return true
}

// standardOnDisk sees to it that the folders of the standard jobs hold what the
// binary has. While they do it costs a look at each file and waits for nobody.
func (c *Catalog) standardOnDisk(ctx context.Context) error {
	if c.bundle == nil || len(c.bundle.files) == 0 {
		return nil
	}
	if p := c.placed.Load(); p != nil && p.intact() {
		return nil
	}
	_, err := actor.Ask(ctx, c.owner, func(reply actor.Reply[struct{}]) message { return layOut{reply} })
	return err
}

// standardFailed logs why the standard jobs are not on disk, each reason once in
// a row.
func (c *Catalog) standardFailed(err error) {
	text := err.Error()
	if was := c.failed.Swap(&text); was == nil || *was != text {
		c.options.Logger.Error("standard jobs cannot be started: their folders cannot be written", "error", err)
	}
}

// layOut writes what of the standard jobs is not on disk. In a project that
// cannot be written to they go to a temporary folder, and the jobs' directories
// with them. The owner alone calls it.
func (c *Catalog) layOut() error {
	old := c.placed.Load()
	if old != nil && old.intact() {
		return nil // somebody else asked first
	}
	base := standardDir(c.options.Root)
	if old != nil && old.private {
		base = old.base
	}
	p, err := c.place(base)
	if err == nil {
		c.placed.Store(p)
		return nil
	}
	private, tempErr := os.MkdirTemp("", "deepwork-standard-jobs-")
	if tempErr != nil {
		return errors.Join(err, tempErr)
	}
	p, tempErr = placeIn(c.bundle, private, "")
	if tempErr != nil {
		return errors.Join(err, tempErr, os.RemoveAll(private))
	}
	p.private = true
	if old != nil && old.private {
		if err := os.RemoveAll(old.base); err != nil {
			c.options.Logger.Warn("temporary folder left behind", "folder", old.base, "error", err)
		}
	}
	c.options.Logger.Warn("standard jobs are in a temporary folder, as they cannot be written into the project",
		"folder", private, "error", err)
	c.placed.Store(p)
	c.moveStandard(private)
	return nil
}

// place lays the jobs out in base, which is the project's folder for them or a
// temporary one from before.
func (c *Catalog) place(base string) (*placement, error) {
	if base != standardDir(c.options.Root) {
		p, err := placeIn(c.bundle, base, "")
		if err == nil {
			p.private = true
		}
		return p, err
	}
	below, err := filepath.Rel(c.options.Root, base)
	if err != nil {
		return nil, err
	}
	return placeIn(c.bundle, c.options.Root, below)
}

// moveStandard publishes the standard jobs as they are in another directory.
func (c *Catalog) moveStandard(dir string) {
	st := c.state.Load()
	next := &state{snap: st.snap, due: st.due, folders: append([]*folder(nil), st.folders...)}
	for i, f := range next.folders {
		if f.standard {
			next.folders[i] = c.bundle.folder(dir)
		}
	}
	c.publish(outcome{next: next, visible: true})
}

// placeIn makes root/below hold the bundle's files. What is in their place and
// differs is replaced, atomically, so that two servers may do it at once; other
// files there are left alone. Nothing is written outside root, wherever links in
// it lead.
func placeIn(b *bundle, root, below string) (*placement, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	p := &placement{base: filepath.Join(root, below)}
	for _, file := range b.files {
		name := path.Join(filepath.ToSlash(below), file.name)
		at := stamp.At(filepath.Join(root, filepath.FromSlash(name)))
		// The stamp is taken first: a change after it shows.
		st := at.Stat()
		if !holds(r, name, file.data) {
			if err := replace(r, name, file.data); err != nil {
				return nil, fmt.Errorf("writing %s: %w", at.Name(), err)
			}
			st = at.Stat()
		}
		p.files = append(p.files, placedFile{at, st})
	}
	return p, nil
}

// holds tells whether a regular file has this content.
func holds(r *os.Root, name string, data []byte) bool {
	fi, err := r.Lstat(name)
	if err != nil || !fi.Mode().IsRegular() || fi.Size() != int64(len(data)) {
		return false
	}
	got, err := r.ReadFile(name)
	return err == nil && bytes.Equal(got, data)
}

// replace puts a file in the place of whatever is there, at once.
func replace(r *os.Root, name string, data []byte) error {
	dir, base := path.Split(name)
	if err := makeDirs(r, path.Clean(dir)); err != nil {
		return err
	}
	if fi, err := r.Lstat(name); err == nil && fi.IsDir() {
		if err := r.RemoveAll(name); err != nil {
			return err
		}
	}
	temp := path.Join(dir, "."+base+"."+rand.Text()[:8]+".tmp")
	err := writeNew(r, temp, data)
	if err == nil {
		err = r.Rename(temp, name)
	}
	if err != nil {
		_ = r.Remove(temp) // the first error is the one to tell
	}
	return err
}

// writeNew writes a file that does not exist. It is not synced: one that a crash
// tears differs, and is written again.
func writeNew(r *os.Root, name string, data []byte) error {
	f, err := r.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// makeDirs is MkdirAll that removes files of ours in the way: below the folder
// of standard jobs there is nothing but what a bundle had.
func makeDirs(r *os.Root, dir string) error {
	err := r.MkdirAll(dir, 0o755)
	if err == nil {
		return nil
	}
	for at := dir; ; at = path.Dir(at) {
		if base := path.Base(at); at == "." || base == "tmp" || base == ".deepwork" {
			return err
		}
		fi, statErr := r.Lstat(at)
		if errors.Is(statErr, fs.ErrNotExist) || statErr == nil && fi.IsDir() {
			continue
		}
		if statErr == nil {
			if r.Remove(at) == nil {
				return r.MkdirAll(dir, 0o755)
			}
		}
	}
}
