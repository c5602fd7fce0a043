//go:build unix

package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
	Name  string            `json:"name,omitempty"`  // syncing: of a file that only grows
	From  int64             `json:"from,omitempty"`  // syncing: where Data stands in the file; what is before it was told
	Data  []byte            `json:"data,omitempty"`  // syncing
	Dir   string            `json:"dir,omitempty"`   // naming: the folder's own name
	Names map[string]uint64 `json:"names,omitempty"` // naming
}

// A ledger is one process's hold on it. Its methods may be called by many
// goroutines.
type ledger struct {
	file  *os.File
	lock  *flock.Flock // held for a naming, which must be in the order of its entries
	mu    sync.Mutex
	count int
	told  map[string]int64 // how much of each file that only grows, by path
}

func openLedger(path string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the ledger: %w", err)
	}
	return &ledger{file: f, lock: flock.New(path + ".lock"), told: map[string]int64{}}, nil
}

func (l *ledger) append(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	// At the end of the file, on a line of its own: a process that is killed in the
	// middle of a long one spoils no other's.
	_, err = l.file.Write(slices.Concat([]byte{'\n'}, line, []byte{'\n'}))
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

// growing tells whether a file is only appended to, under a name that no other
// file ever has.
func growing(path string) bool { return strings.HasSuffix(path, ".jsonl") }

// syncing tells that a file is being synced.
func (l *ledger) syncing(path string) (done func(error) error, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	inode, err := inodeOf(path)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	e := entry{Do: "syncing", Inode: inode, Data: data}
	if growing(path) {
		e.Name = filepath.Base(path)
		e.From = min(l.told[path], int64(len(data)))
		e.Data = data[e.From:]
		l.told[path] = int64(len(data))
	}
	return l.begin(e)
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
	return l.begin(entry{Do: "naming", Dir: filepath.Base(dir), Names: names})
}

// begin writes down what begins. The lock is held.
func (l *ledger) begin(e entry) (done func(error) error, err error) {
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

// kinds are the files of which the ledger tells: records of sessions, journals of
// runs, long results, and what was set aside of them.
var kinds = []string{".json", ".jsonl", ".result"}

// namesOf lists what is in a folder of those kinds.
func namesOf(dir string) (map[string]uint64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := map[string]uint64{}
	for _, e := range entries {
		if !slices.Contains(kinds, filepath.Ext(e.Name())) {
			continue
		}
		if fi, err := e.Info(); err == nil {
			names[e.Name()] = inode(fi)
		}
	}
	return names, nil
}
