package fault

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"deepwork/actor/durable"
)

// An Image is the folder with the durable state of the disk. Killing a process does not lose what
// it wrote without syncing: the system still has it. Therefore servers record what a power failure
// leaves of each folder: the content of each file, by its identity, as of its last sync, and the
// names in the folder as of the last sync of the folder. The content of a file that is overwritten
// is undefined until its next sync.
type Image struct {
	Dir     string
	Folders []string // that it is of; servers need not say
}

// of is the image of one folder, by the name of which it is kept.
func (i Image) of(folder string) Image {
	return Image{filepath.Join(i.Dir, filepath.Base(folder)), []string{folder}}
}

func (i Image) content(file string) string { return filepath.Join(i.Dir, "file-"+file) }

// names is the file with the names as of a sync; the latest counts.
func (i Image) names(begun int64) string {
	return filepath.Join(i.Dir, fmt.Sprintf("names-%020d", begun))
}

// syncing records the content of a file once sync has made it durable.
func (i Image) syncing(path string, sync func() error) error {
	file, err := identity(path)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := sync(); err != nil {
		return err
	}
	return replace(i.content(file), data)
}

// writing forgets the content of a file, which is undefined from the write to the next sync.
func (i Image) writing(path string) error {
	file, err := identity(path)
	if err == nil {
		err = os.Remove(i.content(file))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // never synced
	}
	return err
}

// naming records the names in a folder once sync has made them durable.
func (i Image) naming(dir string, sync func() error) error {
	// With a lock, so that a later read of the names has a later time.
	lock, err := durable.Lock(context.Background(), filepath.Join(i.Dir, "lock"))
	if err != nil {
		return err
	}
	begun := time.Now().UnixNano()
	names, err := namesIn(dir)
	if err = errors.Join(err, lock.Unlock()); err != nil {
		return err
	}
	if err := sync(); err != nil {
		return err
	}
	text, err := json.Marshal(names)
	if err != nil {
		return err
	}
	return replace(i.names(begun), text)
}

// Sync records the names in one of the folders: another program has synced it.
func (i Image) Sync(folder string) error {
	return i.of(folder).naming(folder, func() error { return nil })
}

// replace replaces a file of the image atomically, even if the process is killed.
func replace(path string, data []byte) error {
	temp := filepath.Join(filepath.Dir(path), "new-"+rand.Text())
	return errors.Join(os.WriteFile(temp, data, 0o600), os.Rename(temp, path))
}

// namesIn returns the records in a folder, with their identities.
func namesIn(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := map[string]string{}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".json" || !e.Type().IsRegular() {
			continue
		}
		if file, err := identity(filepath.Join(dir, e.Name())); err == nil {
			names[e.Name()] = file
		}
	}
	return names, nil
}

// CutPower makes the folders what the disk has when the power fails, and restarts the image. All
// servers must have ended. Unsynced names are undone or, with keepNames, have reached the disk;
// unsynced content is lost or, with torn, cut to its first half.
func (i Image) CutPower(keepNames, torn bool) error {
	for _, dir := range i.Folders {
		if err := i.of(dir).cutPower(dir, keepNames, torn); err != nil {
			return err
		}
	}
	return i.Reset()
}

func (i Image) cutPower(dir string, keepNames, torn bool) error {
	now, err := namesIn(dir)
	if err != nil {
		return err
	}
	names := now
	if !keepNames {
		names = map[string]string{}
		if all, _ := filepath.Glob(filepath.Join(i.Dir, "names-*")); len(all) > 0 {
			text, err := os.ReadFile(slices.Max(all))
			if err == nil {
				err = json.Unmarshal(text, &names)
			}
			if err != nil {
				return fmt.Errorf("reading the names on disk: %w", err)
			}
		}
	}
	contents := map[string][]byte{}
	for name, file := range names {
		data, err := os.ReadFile(i.content(file))
		if err != nil && torn {
			if data, err = os.ReadFile(filepath.Join(dir, name)); err == nil {
				data = data[:len(data)/2]
			}
		}
		contents[name] = data
	}
	for name := range now {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for name, data := range contents {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Reset sets the image to the folders. No server may run.
func (i Image) Reset() error {
	for _, dir := range i.Folders {
		if err := i.of(dir).reset(dir); err != nil {
			return err
		}
	}
	return nil
}

func (i Image) reset(dir string) error {
	if err := errors.Join(os.RemoveAll(i.Dir), os.MkdirAll(i.Dir, 0o700)); err != nil {
		return err
	}
	synced := func() error { return nil }
	names, err := namesIn(dir)
	if err != nil {
		return err
	}
	for name := range names {
		if err := i.syncing(filepath.Join(dir, name), synced); err != nil {
			return err
		}
	}
	return i.naming(dir, synced)
}
