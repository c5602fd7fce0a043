//go:build unix

package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// A file of the ledger: an inode, and how often it was made anew; or the name of
// one that only grows.
type fileKey struct {
	inode uint64
	made  int
	name  string
}

// A stock is what a ledger says of the disk.
type stock struct {
	names    map[string]map[string]fileKey // by folder
	contents map[fileKey][]byte            // what each file was synced with last
	made     map[uint64]int
}

// onDisk reads from a ledger what is on the disk.
func onDisk(path string) (*stock, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s := &stock{map[string]map[string]fileKey{}, map[fileKey][]byte{}, map[uint64]int{}}
	told := map[fileKey][]byte{} // what a file was to be synced with
	var entries []entry
	done := map[string]bool{}
	for line := range bytes.Lines(text) {
		var e entry
		if json.Unmarshal(line, &e) != nil {
			continue // a process was killed while it wrote this
		}
		done[e.ID] = done[e.ID] || e.Do == "done"
		entries = append(entries, e)
	}
	for _, e := range entries {
		switch {
		case e.Do == "created":
			s.made[e.Inode]++
		case e.Do == "syncing":
			key := s.key(e.Name, e.Inode)
			if int64(len(told[key])) < e.From {
				return nil, fmt.Errorf("the ledger tells of a file from byte %d on, and before of %d", e.From, len(told[key]))
			}
			told[key] = append(told[key][:e.From:e.From], e.Data...)
			if done[e.ID] {
				s.contents[key] = told[key]
			}
		case e.Do == "naming" && done[e.ID]:
			s.name(e.Dir, e.Names)
		}
	}
	return s, nil
}

// name makes these the names of a folder.
func (s *stock) name(dir string, names map[string]uint64) {
	s.names[dir] = map[string]fileKey{}
	for name, inode := range names {
		s.names[dir][name] = s.key(name, inode)
	}
}

func (s *stock) key(name string, inode uint64) fileKey {
	if growing(name) {
		return fileKey{name: name}
	}
	return fileKey{inode: inode, made: s.made[inode]}
}

// powerCut makes of folders what the disk has when the power fails, and begins
// the ledger anew. All servers have ended. Names that were not synced are undone,
// or, with keepNames, have reached the disk by themselves; what a file holds that
// was never synced is decided by torn: nothing, or its first half.
func powerCut(dirs []string, path string, keepNames, torn bool) error {
	disk, err := onDisk(path)
	if err != nil {
		return fmt.Errorf("reading the ledger: %w", err)
	}
	for _, dir := range dirs {
		if err := disk.restore(dir, keepNames, torn); err != nil {
			return err
		}
	}
	return rebase(dirs, path)
}

// restore is powerCut for one folder.
func (s *stock) restore(dir string, keepNames, torn bool) error {
	now, err := namesOf(dir)
	if err != nil {
		return err
	}
	if keepNames {
		s.name(filepath.Base(dir), now)
	}
	kept := map[string][]byte{}
	for name, key := range s.names[filepath.Base(dir)] {
		data, synced := s.contents[key]
		if !synced && torn {
			if data, err = os.ReadFile(filepath.Join(dir, name)); err == nil {
				data = data[:len(data)/2]
			}
		}
		kept[name] = data
	}
	for name := range now {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for name, data := range kept {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// rebase begins a ledger with what is in the folders, all of it durable. No server
// runs.
func rebase(dirs []string, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := openLedger(path)
	if err != nil {
		return err
	}
	defer l.file.Close()
	for _, dir := range dirs {
		if err := l.all(dir); err != nil {
			return err
		}
	}
	return nil
}

// all tells that a folder with all that is in it is durable.
func (l *ledger) all(dir string) error {
	names, err := namesOf(dir)
	if err != nil {
		return err
	}
	for name := range names {
		done, err := l.syncing(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := done(nil); err != nil {
			return err
		}
	}
	done, err := l.naming(dir)
	if err != nil {
		return err
	}
	return done(nil)
}
