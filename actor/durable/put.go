package durable

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrUnsynced says that a file has its new content, but that this may not be on
// disk: whether it is there after a crash is not known.
var ErrUnsynced = errors.New("the file was written, but may not survive a crash")

// PutOptions say how Put writes a file. The zero value of a field is its default.
type PutOptions struct {
	// Temp names the file that is written before it takes its place, in the same
	// folder. A star in it becomes something random. Without one the name is the
	// caller's alone, and what a crash has left under it is removed first. By
	// default it is ".<name>.*.tmp". A crash may leave one behind.
	Temp string

	// Mode are the permissions of the new file, which the umask does not narrow;
	// by default only its owner may read and write it.
	Mode fs.FileMode
}

// Put makes data the content of a file, whole or not at all, and durably: when it
// returns nil the file is on disk, and when it returns an error the old one is
// still there, untouched, also where the disk is full. ErrUnsynced is the one
// error with the new content in place. What stands at the path is replaced, a
// link itself and not what it leads to; a folder is not. Concurrent Puts of one
// path are safe where Temp has a star; one of them is the last.
func (d Disk) Put(path string, data []byte, o PutOptions) error {
	dir, name := filepath.Split(path)
	temp := o.Temp
	if temp == "" {
		temp = "." + name + ".*.tmp"
	}
	if before, after, star := strings.Cut(temp, "*"); star {
		temp = before + rand.Text()[:12] + after
	} else if err := os.Remove(dir + temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	temp = dir + temp
	if err := d.Fill(temp, data, o.Mode); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := d.Move(temp, path); err != nil {
		os.Remove(temp) // the move's own error tells more
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := d.SyncFolder(filepath.Dir(path)); err != nil {
		return fmt.Errorf("writing %s: %w: %w", path, ErrUnsynced, err)
	}
	return nil
}

// Fill makes a file that is on disk, whole, when it returns, and has mode, or 0600 if
// that is 0; with an error there is none.
func (d Disk) Fill(path string, data []byte, mode fs.FileMode) (err error) {
	f, err := d.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			os.Remove(path) // the write's own error tells more
		}
	}()
	if mode != 0 {
		if err := f.Chmod(mode); err != nil {
			return err
		}
	}
	if _, err := d.Write(f, data); err != nil {
		return err
	}
	return d.Sync(f)
}
