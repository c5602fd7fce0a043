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

// ErrUnsynced means that a file has its new content, which may not survive a crash.
var ErrUnsynced = errors.New("the file was written, but may not survive a crash")

// PutOptions configures Put. The zero value of a field means its default.
type PutOptions struct {
	// Temp is the name of the temporary file, in the same folder; a star in it is replaced by a
	// random string. A name without a star must be used by this caller only, and a file that a
	// crash has left there is removed first. The default is ".<name>.*.tmp". A crash may leave a
	// file behind.
	Temp string

	// Mode is the permissions of the new file, regardless of the umask; default 0600.
	Mode fs.FileMode
}

// Put replaces the content of a file with data, atomically and durably. When it returns nil the new
// file is on disk; when it returns an error, also on a full disk, the old one is unchanged, except
// with ErrUnsynced, when the new content is in place. A link at path is itself replaced, not its
// target; a folder is not replaced. Concurrent Puts to one path are safe if Temp has a star; one of
// them is the last.
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
		os.Remove(temp) // the error of the move says more
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := d.SyncFolder(filepath.Dir(path)); err != nil {
		return fmt.Errorf("writing %s: %w: %w", path, ErrUnsynced, err)
	}
	return nil
}

// Fill creates a file with this content and mode (0600 if mode is 0) and syncs it. With an error
// there is no file.
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
			_ = os.Remove(path) // the error of the write says more
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
