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
	"strings"
	"sync"
	"syscall"

	"github.com/gofrs/flock"
)

// kill -9 does not lose what a process has written and not synced: the system
// still has it. What a loss of power leaves is therefore kept beside the folder,
// by the servers themselves, in a ledger that all of them append to: the content
// of each file that was synced, and the names of the folder at each time that it
// was. From that, powerCut makes the folder what the disk would have.

// An entry is a line of the ledger. A sync is told before it begins, with what it
// will make durable, and again when it is done.
type entry struct {
	Do    string            `json:"do"`              // created, syncing, naming, done
	ID    string            `json:"id,omitempty"`    // of a sync
	Inode uint64            `json:"inode,omitempty"` // created, syncing
	Data  []byte            `json:"data,omitempty"`  // syncing
	Names map[string]uint64 `json:"names,omitempty"` // naming
}

// A ledger is one process's hold on it. Its methods may be called by many
// goroutines.
type ledger struct {
	file  *os.File
	lock  *flock.Flock // held for a naming, which must be in the order of its entries
	mu    sync.Mutex
	count int
}

func openLedger(path string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the ledger: %w", err)
	}
	return &ledger{file: f, lock: flock.New(path + ".lock")}, nil
}

func (l *ledger) append(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = l.file.Write(append(line, '\n')) // in one piece, at the end
	return err
}

// created tells that a file is new: what its inode held before is nobody's.
func (l *ledger) created(path string) error {
	inode, err := inodeOf(path)
	if err != nil {
		return err
	}
	return l.append(entry{Do: "created", Inode: inode})
}

// syncing tells that a file is being synced.
func (l *ledger) syncing(path string) (done func(error) error, err error) {
	inode, err := inodeOf(path)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return l.begin(entry{Do: "syncing", Inode: inode, Data: data})
}

// naming tells that a folder is being synced.
func (l *ledger) naming(dir string) (done func(error) error, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.lock.Lock(); err != nil {
		return nil, err
	}
	defer l.lock.Unlock()
	names, err := namesOf(dir)
	if err != nil {
		return nil, err
	}
	return l.beginLocked(entry{Do: "naming", Names: names})
}

func (l *ledger) begin(e entry) (done func(error) error, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.beginLocked(e)
}

func (l *ledger) beginLocked(e entry) (done func(error) error, err error) {
	l.count++
	e.ID = fmt.Sprintf("%d-%d", os.Getpid(), l.count)
	if err := l.append(e); err != nil {
		return nil, err
	}
	return func(err error) error {
		if err != nil {
			return err
		}
		return l.append(entry{Do: "done", ID: e.ID})
	}, nil
}

func inodeOf(path string) (uint64, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	return inode(fi), nil
}

func inode(fi fs.FileInfo) uint64 { return uint64(fi.Sys().(*syscall.Stat_t).Ino) }

// namesOf lists the records of a folder, and what was set aside.
func namesOf(dir string) (map[string]uint64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := map[string]uint64{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		if fi, err := e.Info(); err == nil {
			names[e.Name()] = inode(fi)
		}
	}
	return names, nil
}

// A file of the ledger: an inode, and how often it was made anew.
type fileKey struct {
	inode uint64
	made  int
}

// A stock is what a ledger says of the disk.
type stock struct {
	names    map[string]fileKey
	contents map[fileKey][]byte // what each file was synced with last
	made     map[uint64]int
}

// durable reads from a ledger what is on the disk.
func durable(path string) (*stock, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s := &stock{map[string]fileKey{}, map[fileKey][]byte{}, map[uint64]int{}}
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
		case e.Do == "syncing" && done[e.ID]:
			s.contents[fileKey{e.Inode, s.made[e.Inode]}] = e.Data
		case e.Do == "naming" && done[e.ID]:
			s.name(e.Names)
		}
	}
	return s, nil
}

// name makes these the names of the folder.
func (s *stock) name(names map[string]uint64) {
	clear(s.names)
	for name, inode := range names {
		s.names[name] = fileKey{inode, s.made[inode]}
	}
}

// powerCut makes of a folder what the disk has when the power fails, and begins
// the ledger anew. All servers have ended. Names that were not synced are undone,
// or, with keepNames, have reached the disk by themselves; what a file holds that
// was never synced is decided by torn: nothing, or its first half.
func powerCut(dir, path string, keepNames, torn bool) error {
	disk, err := durable(path)
	if err != nil {
		return fmt.Errorf("reading the ledger: %w", err)
	}
	now, err := namesOf(dir)
	if err != nil {
		return err
	}
	if keepNames {
		disk.name(now)
	}
	kept := map[string][]byte{}
	for name, key := range disk.names {
		data, synced := disk.contents[key]
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
	return rebase(dir, path)
}

// rebase begins a ledger with what is in a folder, all of it durable. No server
// runs.
func rebase(dir, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := openLedger(path)
	if err != nil {
		return err
	}
	defer l.file.Close()
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
