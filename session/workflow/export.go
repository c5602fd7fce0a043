package workflow

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"deepwork/actor/durable"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// exports are the files .deepwork/tmp/session_<id>.json in the roots of sessions: for people, tools and
// backups (seed 002, "JSON files for transparency"). Nothing reads them but the command that imports
// sessions. They are replaced atomically and not synced, after a transition and before its reply.
type exports struct {
	own *state.Folder // of the engine's root
	log *slog.Logger
	is  func(id string) int64 // the revision that a session has; -1 if it cannot be read

	failing sync.Map // folders whose exports cannot be written, and were logged: root -> true
	checked sync.Map // the revisions that exports were last seen to have: session id -> int64

	spares spares

	mu     sync.Mutex  // guards the following fields
	dir    *os.Root    // the folder of own, if it is open
	opened fs.FileInfo // dir as it was opened
}

// exportName is the name of a session's export.
func exportName(id string) string { return "session_" + id + ".json" }

// write exports a state that is stored. If it cannot, that is logged once and refuses nothing, since the
// session has moved.
func (x *exports) write(row store.Session, s *machine.State) {
	x.writeOver(row, s, s.Revision)
}

// writeOver writes over a file that has at most a revision.
func (x *exports) writeOver(row store.Session, s *machine.State, most int64) {
	err := x.put(row, s, most)
	if err == nil {
		x.failing.Delete(row.Root)
		x.checked.Store(s.SessionID, s.Revision)
		return
	}
	if _, known := x.failing.Swap(row.Root, true); !known {
		x.log.Warn("the files of sessions cannot be written; the sessions themselves are stored", "root", row.Root, "session", s.SessionID, "error", err)
	}
}

// check writes the export of an unchanged session again if it is behind, at most once per revision.
func (x *exports) check(a *sessionActor) {
	if at, known := x.checked.Load(a.id); known && at.(int64) >= a.state.Revision {
		return
	}
	x.writeOver(a.row, a.state, a.state.Revision-1)
}

// put writes the export of a state over a file that has at most a revision, or one that the session never had.
func (x *exports) put(row store.Session, s *machine.State, most int64) error {
	folder := x.own
	if row.Root != folder.Root {
		if _, err := os.Stat(row.Root); errors.Is(err, fs.ErrNotExist) {
			return nil // that of an attempt that was deleted, or of another machine
		}
		if folder = state.Of(row.Root); folder.Root != row.Root {
			return fmt.Errorf("the session's folder %s is not at that path on this machine", row.Root)
		}
	}
	dir, done, err := x.open(folder)
	if err != nil {
		return err
	}
	defer done()
	name := exportName(s.SessionID)
	newest := func() int64 { return max(s.Revision, x.is(s.SessionID)) }
	if most < s.Revision { // else that is seen when the file is replaced
		if revision, usable := revisionOf(dir, name); usable && revision > most && revision <= newest() {
			return nil
		}
	}
	body, err := s.Encode()
	if err != nil {
		return err
	}
	return x.spares.replace(dir, name, version{append(body, '\n'), s.Revision, newest}, folder == x.own)
}

// open opens the folder of exports of a root, and makes it. That of the engine's own root stays open.
func (x *exports) open(folder *state.Folder) (dir *os.Root, done func(), err error) {
	if folder == x.own {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.dir != nil && x.inPlace() {
			return x.dir, func() {}, nil
		}
	}
	dir, err = folder.OpenTmp()
	if errors.Is(err, fs.ErrNotExist) {
		if err = session.MakeSessions(folder, x.log); err == nil {
			dir, err = folder.OpenTmp()
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if folder != x.own {
		return dir, func() { dir.Close() }, nil
	}
	// Others may still use the folder that this one replaces: it is closed when they have ended.
	x.dir, x.opened = dir, nil
	if fi, err := dir.Stat("."); err == nil {
		x.opened = fi
	}
	return dir, func() {}, nil
}

// inPlace reports whether the path of the folder still leads to the open one, without a link.
func (x *exports) inPlace() bool {
	above, err := os.Lstat(filepath.Dir(x.own.Tmp()))
	if err != nil || !above.IsDir() || x.opened == nil {
		return false
	}
	fi, err := os.Lstat(x.own.Tmp())
	return err == nil && os.SameFile(fi, x.opened)
}

// close closes the folder that stays open.
func (x *exports) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.dir != nil {
		x.spares.remove(x.dir)
		x.dir.Close()
		x.dir = nil
	}
}

// headBytes is how much of an export is read for its revision, which is its third key.
const headBytes = 256

// revisionOf returns the revision that an export has, -1 if it has none, and whether it is a regular file with
// no other name.
func revisionOf(dir *os.Root, name string) (revision int64, usable bool) {
	f, fi, err := durable.OpenRegularIn(dir, name, os.O_RDONLY)
	if err != nil {
		return -1, false
	}
	defer f.Close()
	usable = durable.Links(fi) == 1
	head := make([]byte, headBytes)
	n, _ := f.Read(head)
	_, after, found := bytes.Cut(head[:n], []byte("\n  \"revision\": "))
	digits, _, whole := bytes.Cut(after, []byte(","))
	revision, err = strconv.ParseInt(string(digits), 10, 64)
	if !found || !whole || err != nil {
		return -1, usable
	}
	return revision, usable
}

// remove removes the exports of sessions that were pruned, and what else of them is in their roots.
func (x *exports) remove(row store.Session) error {
	folder := state.Of(row.Root)
	dir, err := folder.OpenTmp()
	if err != nil {
		return nil // there are none
	}
	defer dir.Close()
	names, err := fs.Glob(dir.FS(), "quality_review_"+row.ID+"_*.md")
	for _, name := range append(names, exportName(row.ID)) {
		if rerr := dir.Remove(name); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}
