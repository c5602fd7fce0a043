package trust

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/process"
)

// maxGrants bounds the file of a project's grants.
const maxGrants = 16 << 20 // bytes

// A Grant is a set that the user approved.
type Grant struct {
	Hash string    `json:"hash"`
	At   time.Time `json:"at"`
	Set  Set       `json:"set"`
}

// A Record holds the user's decisions about one project.
type Record struct {
	Path   string  `json:"path"` // of the project, without links
	Denied bool    `json:"denied,omitempty"`
	Grants []Grant `json:"grants"` // the latest last
	// Checks are the checks of steps that are approved, each separately, the latest last.
	Checks Set `json:"checks,omitempty"`
}

// A Ledger stores the user's decisions about one project in a file outside of it. Its methods may
// be called from any goroutine, and by several processes.
type Ledger struct {
	root string
	file string

	mu   sync.Mutex
	seen fs.FileInfo // of the file that last was read from; nil if it is missing
	last *Record
}

// Granted reports whether the set with a hash is approved.
func (r *Record) Granted(hash string) bool {
	return !r.Denied && slices.ContainsFunc(r.Grants, func(g Grant) bool { return g.Hash == hash })
}

// changed returns what differs from the approved set that is the nearest to a set: files by their names, and keys of the
// config. nil means that no set is approved.
func (r *Record) changed(s Set) (names []string) {
	var nearest []Change
	for _, g := range slices.Backward(r.Grants) {
		c := s.Changes(g.Set)
		if len(c) == 0 {
			return nil
		}
		if nearest == nil || len(c) < len(nearest) {
			nearest = c
		}
	}
	for _, c := range nearest {
		files := c.Files()
		if files == nil {
			files = []string{Word(cmp.Or(c.Is, c.Was).Key) + " in .deepwork/config.yml"}
		}
		names = append(names, files...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

var nothing = &Record{}

// OpenLedger returns the ledger of the project at root, a path without links. It does not touch the
// disk.
func OpenLedger(file, root string) *Ledger { return &Ledger{root: root, file: file} }

// Read returns the record of the project. While the file is unchanged it returns the same record,
// at the cost of one stat. The caller must not change it.
func (l *Ledger) Read() (*Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fi, err := os.Lstat(l.file)
	if errors.Is(err, fs.ErrNotExist) {
		l.seen, l.last = nil, nothing
		return l.last, nil
	}
	if err == nil && fi.Mode().IsRegular() { // at each call: chmod does not change the time of the content
		if fault := durable.FaultOf(l.file, fi); fault != "" {
			return nothing, fmt.Errorf("what was approved cannot be relied on: %s", fault)
		}
	}
	if err == nil && l.seen != nil && os.SameFile(fi, l.seen) && fi.ModTime().Equal(l.seen.ModTime()) && fi.Size() == l.seen.Size() {
		return l.last, nil
	}
	var r Record
	var text []byte
	if err == nil {
		text, fi, err = durable.Read(l.file, maxGrants)
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil && r.Path != l.root {
		err = fmt.Errorf("it is about %s", r.Path)
	}
	if err != nil {
		return nothing, fmt.Errorf("reading what was approved in %s: %w", l.file, err)
	}
	l.seen, l.last = fi, &r
	return l.last, nil
}

// Grant approves a set from now on, and cancels a Deny.
func (l *Ledger) Grant(ctx context.Context, s Set, now time.Time) error {
	return l.change(ctx, func(r *Record) {
		r.Denied = false
		hash := s.Hash()
		r.Grants = slices.DeleteFunc(r.Grants, func(g Grant) bool { return g.Hash == hash })
		r.Grants = append(r.Grants, Grant{hash, now.UTC(), s})
	})
}

// Revoke removes all grants.
func (l *Ledger) Revoke(ctx context.Context) error {
	return l.change(ctx, func(r *Record) { r.Grants, r.Checks = nil, nil })
}

// Deny removes all grants, and refuses everything until the next Grant.
func (l *Ledger) Deny(ctx context.Context) error {
	return l.change(ctx, func(r *Record) { r.Denied, r.Grants, r.Checks = true, nil, nil })
}

func (l *Ledger) change(ctx context.Context, change func(*Record)) error {
	dir := filepath.Dir(l.file)
	if err := (durable.Disk{}).MakeFolder(dir, 0o700); err != nil {
		return fmt.Errorf("keeping what was approved: %w", durable.Explain(err, dir))
	}
	lock, err := durable.Lock(ctx, l.file+".lock")
	if err != nil {
		return fmt.Errorf("keeping what was approved: %w", err)
	}
	r, err := l.Read()
	if err == nil {
		r = &Record{Path: l.root, Denied: r.Denied, Grants: slices.Clone(r.Grants), Checks: r.Checks}
		change(r)
		var text []byte
		if text, err = json.Marshal(r); err == nil { // with indentation, values would not be equal to those of a config
			err = durable.Disk{}.Put(l.file, append(text, '\n'), durable.PutOptions{})
		}
	}
	if err = errors.Join(err, lock.Unlock()); err != nil {
		return fmt.Errorf("keeping what was approved: %w", durable.Explain(err, l.file))
	}
	return nil
}

// InFolders reports whether a project is in one of the folders, by whole path elements, after links
// are resolved.
func InFolders(root string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool {
		return filepath.IsAbs(f) && process.Inside(process.Resolved(f), process.Resolved(root))
	})
}
