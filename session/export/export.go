// Package export writes the sessions of a project to files, and makes sessions of such files.
//
// To change it, know these: Files, spare; Importer, Import.
package export

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"deepwork/actor/durable"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// Files are the files .deepwork/tmp/session_<id>.json in the roots of sessions: for people, tools and
// backups (seed 002, "JSON files for transparency"). Nothing reads them but an Importer. They are replaced
// atomically and not synced, after a transition and before its reply.
type Files struct {
	Own      *state.Folder         // of the process's root
	Attempt  string                // in whose workspace the process is; "" outside
	Place    *task.Place           // of the process; nil in a store of one machine
	Revision func(id string) int64 // that a session has now; -1 if it cannot be read
	Logger   *slog.Logger

	failing sync.Map // folders whose exports cannot be written, and were logged: root -> true
	checked sync.Map // the revisions that exports were last seen to have: session id -> int64

	spares  spares
	buffers sync.Pool // of *[]byte

	mu  sync.Mutex // guards dir
	dir *folder    // that of Own, if it is open
}

// A folder of exports that is open.
type folder struct {
	*os.Root
	self *os.File    // the same
	info fs.FileInfo // as it was opened
}

func (f *folder) Close() error { return errors.Join(f.self.Close(), f.Root.Close()) }

// RootOf returns the folder of a session's files here: the process's own, though the checkout may have another
// path where the session began, or that of the session, about which a command asks.
func (x *Files) RootOf(row store.Session) string {
	if row.AttemptID == x.Attempt && x.Place != nil {
		return x.Own.Root
	}
	return row.Root
}

// Write exports a state that is stored. If it cannot, that is logged once and refuses nothing, since the
// session has moved.
func (x *Files) Write(row store.Session, s *machine.State) {
	x.writeOver(row, s, s.Revision)
}

// writeOver writes over a file that has at most a revision.
func (x *Files) writeOver(row store.Session, s *machine.State, most int64) {
	root := x.RootOf(row)
	err := x.put(root, s, most)
	if err == nil {
		x.failing.Delete(root)
		x.checked.Store(s.SessionID, s.Revision)
		return
	}
	if _, known := x.failing.Swap(root, true); !known {
		x.Logger.Warn("the files of sessions cannot be written; the sessions themselves are stored", "root", root, "session", s.SessionID, "error", err)
	}
}

// Check writes the export of an unchanged session again if it is behind, at most once per revision.
func (x *Files) Check(row store.Session, s *machine.State) {
	if at, known := x.checked.Load(s.SessionID); known && at.(int64) >= s.Revision {
		return
	}
	x.writeOver(row, s, s.Revision-1)
}

// Forget lets the next Check of a session look at its export.
func (x *Files) Forget(id string) { x.checked.Delete(id) }

// put writes the export of a state over a file that has at most a revision, or one that the session never had.
func (x *Files) put(root string, s *machine.State, most int64) error {
	of := x.Own
	if root != of.Root {
		if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
			return nil // that of an attempt that was deleted, or of another machine
		}
		if of = state.Of(root); of.Root != root {
			return fmt.Errorf("the session's folder %s is not at that path on this machine", root)
		}
	}
	dir, err := x.open(of)
	if err != nil {
		return err
	}
	if of != x.Own {
		defer dir.Close()
	}
	name := state.ExportName(s.SessionID)
	newest := func() int64 { return max(s.Revision, x.Revision(s.SessionID)) }
	if most < s.Revision { // else that is seen when the file is replaced
		if revision, usable := revisionOf(dir.Root, name); usable && revision > most && revision <= newest() {
			return nil
		}
	}
	buf, _ := x.buffers.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	defer x.buffers.Put(buf)
	if *buf, err = s.AppendTo((*buf)[:0]); err != nil {
		return err
	}
	*buf = append(*buf, '\n')
	return x.spares.replace(dir, name, version{*buf, s.Revision, newest}, of == x.Own)
}

// open opens the folder of exports of a root, and makes it. That of the process's own root stays open; the caller closes
// any other.
func (x *Files) open(of *state.Folder) (*folder, error) {
	if of == x.Own {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.dir != nil && x.inPlace() {
			return x.dir, nil
		}
	}
	root, err := of.OpenTmp()
	if errors.Is(err, fs.ErrNotExist) {
		if err = session.MakeSessions(of, x.Logger); err == nil {
			root, err = of.OpenTmp()
		}
	}
	if err != nil {
		return nil, err
	}
	dir := &folder{Root: root}
	if dir.self, err = root.Open("."); err == nil {
		dir.info, err = dir.self.Stat()
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	if of == x.Own {
		x.dir = dir // others may still use the one that it replaces: it is closed when they have ended
	}
	return dir, nil
}

// inPlace reports whether the path of the folder still leads to the open one, without a link.
func (x *Files) inPlace() bool {
	above, err := os.Lstat(filepath.Dir(x.Own.Tmp()))
	if err != nil || !above.IsDir() {
		return false
	}
	fi, err := os.Lstat(x.Own.Tmp())
	return err == nil && os.SameFile(fi, x.dir.info)
}

// Close closes the folder that stays open.
func (x *Files) Close() {
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

// Remove removes the exports of a session that was pruned, and what else of it is in its folders.
func (x *Files) Remove(row store.Session) (err error) {
	for _, root := range slices.Compact([]string{x.RootOf(row), row.Root}) {
		dir, oerr := state.Of(root).OpenTmp()
		if oerr != nil {
			continue // there are none
		}
		names, gerr := fs.Glob(dir.FS(), "quality_review_"+row.ID+"_*.md")
		err = errors.Join(err, gerr)
		for _, name := range append(names, state.ExportName(row.ID)) {
			if rerr := dir.Remove(name); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
				err = errors.Join(err, rerr)
			}
		}
		dir.Close()
	}
	return err
}

// late is how long an export may differ from its session.
const late = 10 * time.Second

// Behind returns the path of the export of a session that was moved last at this place, if it differs from the
// session for longer than it may, else "". It waits for nobody at the other end of a pipe, and reads no more
// than it needs.
func (x *Files) Behind(row store.Session, s *machine.State) (path string) {
	root := x.RootOf(row)
	if p := row.PlaceOf(); x.Place != nil && (p == nil || !p.Is(*x.Place)) || time.Since(s.UpdatedAt) < late {
		return ""
	}
	if _, err := os.Stat(root); err != nil {
		return "" // the workspace of an attempt that was deleted
	}
	path = filepath.Join(root, ".deepwork", "tmp", state.ExportName(row.ID))
	body, err := s.Encode()
	if err != nil {
		return path
	}
	f, _, err := durable.OpenRegular(path, os.O_RDONLY)
	if err != nil {
		return path
	}
	defer f.Close()
	have, err := io.ReadAll(io.LimitReader(f, int64(len(body))+2))
	if err != nil || !bytes.Equal(have, append(body, '\n')) {
		return path
	}
	return ""
}
