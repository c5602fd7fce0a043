package catalog

import (
	"io/fs"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"deepwork/catalog/internal/stamp"
)

// relist is how long after a folder could not be listed it is tried again.
const relist = time.Second

// A folder is one place where jobs are looked for, as it was when last looked
// at. It is immutable: a look returns another one.
type folder struct {
	at       stamp.Path
	standard bool        // its entries come with the binary; it is not looked at
	stamp    stamp.Stamp // of the listing
	racy     bool        // another entry may have left the same stamp
	due      time.Time   // when to list again though nothing was heard; zero: never
	newest   stamp.Stamp
	seen     time.Time
	names    []string // directories and links that the listing has, sorted
	entries  []*entry // sorted by name: those of names, and those that vanish
	fault    string   // why it cannot be listed; "" where it can, or is missing
}

// find returns where the entry of this name is, or would be.
func (f *folder) find(name string) (int, bool) {
	return slices.BinarySearchFunc(f.entries, name, func(e *entry, name string) int {
		return strings.Compare(e.name, name)
	})
}

// entry returns the entry of this name, or nil.
func (f *folder) entry(name string) *entry {
	if i, ok := f.find(name); ok {
		return f.entries[i]
	}
	return nil
}

// stale tells, without changing anything, whether the folder's listing may have
// changed. It is called from any goroutine.
func (f *folder) stale() bool {
	if f.standard {
		return false
	}
	if f.at.Stat() != f.stamp {
		return true
	}
	if !f.racy {
		return false
	}
	names, err := subdirectories(f.at.Name())
	return err != nil || !slices.Equal(names, f.names)
}

// list reads the folder anew. The entries of what it returns are still those of
// f; names that came or went are returned for a look at each.
func (f *folder) list() (n *folder, touched []string) {
	c := *f
	n = &c
	n.due, n.racy = time.Time{}, false
	st := n.at.Stat()
	now := time.Now()
	if st != n.newest {
		n.newest, n.seen = st, now
	}
	n.stamp = st
	switch st.Kind {
	case stamp.Absent:
		n.names, n.fault = nil, ""
	case stamp.Dir:
		names, err := subdirectories(n.at.Name())
		if err != nil {
			// Its entries may still be reached: the last listing stays.
			// What hinders may have nothing to do with the folder (too many open
			// files), so its stamp would not tell when it is over.
			n.fault, n.due = err.Error(), now.Add(relist)
			break
		}
		n.names, n.fault = names, ""
		// The stamp is older than the listing, so whatever came in between shows
		// as a change at the next comparison.
		age := max(st.Age(now), now.Sub(n.seen))
		if n.racy = age < stamp.Racy; n.racy {
			n.due = now.Add(stamp.Racy - age)
		}
	default:
		n.names, n.fault = nil, "it is not a directory that can be read"
	}
	if dev, ino := st.Identity(); ino != 0 {
		if d, i := f.stamp.Identity(); d == dev && i == ino {
			return n, difference(f.names, n.names)
		}
	}
	// Another folder has taken its place, and its files that of the old ones,
	// whatever they are called.
	return n, append(difference(f.names, n.names), n.names...)
}

// with returns the folder with these entries in place of those of the same
// names. Entries that are nothing any more are left out.
func (f *folder) with(changed map[string]*entry) *folder {
	n := *f
	n.entries = make([]*entry, 0, len(f.entries)+len(changed))
	added := 0
	for _, e := range f.entries {
		if c, ok := changed[e.name]; ok {
			e = c
			added++
		}
		if f.keeps(e) {
			n.entries = append(n.entries, e)
		}
	}
	if added == len(changed) {
		return &n
	}
	for name, e := range changed {
		if _, old := f.find(name); !old && f.keeps(e) {
			n.entries = append(n.entries, e)
		}
	}
	slices.SortFunc(n.entries, func(a, b *entry) int { return strings.Compare(a.name, b.name) })
	return &n
}

// keeps tells whether an entry belongs into the folder.
func (f *folder) keeps(e *entry) bool {
	if e.phase != absent {
		return true
	}
	i := sort.SearchStrings(f.names, e.name)
	return i < len(f.names) && f.names[i] == e.name
}

// subdirectories lists what may be a job's directory, sorted: directories, and
// links, which may lead to one.
func subdirectories(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(list))
	for _, d := range list {
		// Windows calls some links to directories irregular.
		if d.IsDir() || d.Type()&(fs.ModeSymlink|fs.ModeIrregular) != 0 {
			names = append(names, d.Name())
		}
	}
	return names, nil
}

// difference returns what is in one of two sorted lists and not in the other.
func difference(a, b []string) []string {
	var out []string
	for len(a) > 0 && len(b) > 0 {
		switch c := strings.Compare(a[0], b[0]); {
		case c == 0:
			a, b = a[1:], b[1:]
		case c < 0:
			out, a = append(out, a[0]), a[1:]
		default:
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}
