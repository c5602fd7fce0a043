// Package export writes the sessions of a project to files, and imports sessions from such files.
//
// To change it, know these: Files, spare; Importer, Import.
package export

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"deepwork/actor/durable"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/machine"
	"deepwork/session/state"
	"deepwork/session/store"
)

// Files are the files .deepwork/tmp/session_<id>.json in the roots of sessions, for people, tools and backups
// (seed 002, "JSON files for transparency"). Only an Importer reads them. They are replaced atomically,
// without syncing, after a transition and before its reply.
type Files struct {
	Own      *state.Folder         // the state of the process's root
	Attempt  string                // in whose workspace the process is; "" outside
	Place    *task.Place           // the place of the process; nil in a store of one machine
	Revision func(id string) int64 // the session's current revision; -1 if it cannot be read
	Logger   *slog.Logger

	failing sync.Map // folders whose failed writes were logged: root -> true
	checked sync.Map // the revision that an export was last seen with: session id -> int64

	spares  spareFiles
	buffers sync.Pool // of *[]byte

	mu  sync.Mutex // guards dir
	dir *folder    // the folder of Own, once open
}

// A folder is an open folder of exports.
type folder struct {
	*os.Root
	self *os.File    // dir itself
	info fs.FileInfo // when it was opened
}

func (f *folder) Close() error { return errors.Join(f.self.Close(), f.Root.Close()) }

// RootOf returns the folder of a session's files on this machine. It is the process's own root, since the
// checkout may have had another path where the session began. For a command that asks about the session, it
// is the session's.
func (x *Files) RootOf(row store.Session) string {
	if row.AttemptID == x.Attempt && x.Place != nil {
		return x.Own.Root
	}
	return row.Root
}

// Write exports a stored state. A failure is only logged, once, since the session has moved already.
func (x *Files) Write(row store.Session, s *machine.State) {
	x.writeOver(row, s, s.Revision)
}

// writeOver replaces an export whose revision is at most most.
func (x *Files) writeOver(row store.Session, s *machine.State, most int64) {
	root := x.RootOf(row)
	err := x.put(root, s, most)
	if err == nil {
		x.failing.Delete(root)
		x.checked.Store(s.SessionID, s.Revision)
		return
	}
	if _, known := x.failing.Swap(root, true); !known {
		x.Logger.Warn("the files of sessions cannot be written; the sessions themselves are stored", "root", root,
			"session", s.SessionID, "error", err)
	}
}

// Check writes the export of an unchanged session again if it is behind, at most once per revision.
func (x *Files) Check(row store.Session, s *machine.State) {
	if at, known := x.checked.Load(s.SessionID); known && at.(int64) >= s.Revision {
		return
	}
	x.writeOver(row, s, s.Revision-1)
}

// Forget makes the next Check of a session read its export again.
func (x *Files) Forget(id string) { x.checked.Delete(id) }

// put exports a state over a file whose revision is at most most, or is one that the session never had.
func (x *Files) put(root string, s *machine.State, most int64) error {
	of := x.Own
	if root != of.Root {
		if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
			return nil // the workspace of a deleted attempt, or of another machine
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
	if most < s.Revision { // otherwise that is noticed when the file is replaced
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

// open opens the folder of exports of a root, which it creates if necessary. That of the process's own root
// stays open; the caller closes any other.
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
		x.dir = dir // others may still use the old folder, which is closed once they are done
	}
	return dir, nil
}

// inPlace reports whether the folder's path still leads to the open folder, without a link.
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

// headBytes is how much of an export is read to find its revision, the third key.
const headBytes = 256

// revisionOf returns an export's revision, -1 if it has none, and whether it is a regular file without other
// names.
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

// Remove removes the exports of a pruned session, and its other files.
func (x *Files) Remove(row store.Session) (err error) {
	for _, root := range slices.Compact([]string{x.RootOf(row), row.Root}) {
		dir, oerr := state.Of(root).OpenTmp()
		if oerr != nil {
			continue // no such files
		}
		names, gerr := fs.Glob(dir.FS(), "quality_review_"+row.ID+"_*")
		err = errors.Join(err, gerr)
		for _, name := range append(names, state.ExportName(row.ID)) {
			if rerr := dir.RemoveAll(name); rerr != nil {
				err = errors.Join(err, rerr)
			}
		}
		dir.Close()
	}

	return err
}

// late is how long an export may lag behind its session.
const late = 10 * time.Second

// Behind returns the path of the export of a session that last moved at this place, if it has differed from
// the session for too long, else "". It does not block on a pipe, and reads no more than it needs.
func (x *Files) Behind(row store.Session, s *machine.State) (path string) {
	root := x.RootOf(row)
	if p := row.PlaceOf(); x.Place != nil && (p == nil || !p.Is(*x.Place)) || time.Since(s.UpdatedAt) < late {
		return ""
	}
	if _, err := os.Stat(root); err != nil {
		return "" // the workspace of a deleted attempt
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

// spareFiles are files in the folder of exports that are rewritten and then exchanged with an export, whose
// old file becomes a spare. Creating a file and renaming it over another costs ten times as much: some file
// systems then write it to disk at once (auto_da_alloc of ext4). Each spare is reused only after all others,
// so that readers who opened the old export have finished.
type spareFiles struct {
	mu    sync.Mutex
	free  []string // names, the most recently used last
	made  int
	swept bool
}

const (
	mostSpares  = 8
	sparePrefix = ".session_"
	// spareLife is the age from which spares count as left behind by killed servers.
	spareLife = time.Hour
)

// A version is the content of an export, and its revision.
type version struct {
	body     []byte
	revision int64
	newest   func() int64 // the session's current revision
}

// replace atomically replaces a file by an export. If two processes do so at the same time, the higher
// revision stays: one that finds that it has replaced a newer export puts that back. Without keep, the
// replaced file does not become a spare.
func (s *spareFiles) replace(dir *folder, name string, v version, keep bool) error {
	spare, err := s.fill(dir, v.body, keep)
	if err == nil {
		err = exchange(dir.self, spare, name)
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrNotExist):
		if err = dir.Rename(spare, name); err == nil {
			s.drop()
			return nil
		}
	case err == nil:
		at := v.revision // the revision in place
		revision, usable := revisionOf(dir.Root, spare)
		for err == nil && revision > at && revision <= v.newest() {
			at = revision
			if err = exchange(dir.self, spare, name); err == nil {
				revision, usable = revisionOf(dir.Root, spare)
			}
		}
		if err == nil && usable && keep {
			s.mu.Lock()
			s.free = append(s.free, spare)
			s.mu.Unlock()
			return nil
		}
	}

	s.drop()
	if spare != "" {
		err = errors.Join(err, dir.RemoveAll(spare))
	}
	return err
}

// fill writes a body to a spare that nobody else uses, and returns its name, or "" with an error. It uses an
// old spare only if reuse is set.
func (s *spareFiles) fill(dir *folder, body []byte, reuse bool) (name string, err error) {
	var f *os.File
	var size int64
	if name = s.take(dir, reuse); name != "" {
		var fi fs.FileInfo
		if f, fi, err = durable.OpenRegularIn(dir.Root, name, os.O_WRONLY); err == nil {
			size = fi.Size()
			if durable.Links(fi) != 1 || fi.Mode().Perm() != 0o600 && f.Chmod(0o600) != nil {
				f.Close()
				f = nil
			}
		}
	}
	if f == nil { // there is no spare, or somebody replaced it by a link or linked it elsewhere
		if name != "" {
			_ = dir.RemoveAll(name) // if this fails, a later server removes it
		}
		name = sparePrefix + strings.ToLower(rand.Text())
		if f, err = dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return "", err
		}
	}
	_, err = f.Write(body)
	if err == nil && size > int64(len(body)) {
		err = f.Truncate(int64(len(body)))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, dir.Remove(name))
	}
	return name, nil
}

// take returns the name of a spare that nobody else uses, or "" if a new one is needed.
func (s *spareFiles) take(dir *folder, reuse bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.swept {
		s.swept = true
		sweep(dir)
	}

	if reuse && s.made >= mostSpares && len(s.free) > 0 {
		name := s.free[0]
		s.free = s.free[1:]
		return name
	}

	s.made++
	return ""
}

// drop forgets a spare that is gone.
func (s *spareFiles) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made--
}

// remove removes the spares.
func (s *spareFiles) remove(dir *folder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.free {
		_ = dir.Remove(name) // if this fails, a later server removes it
	}
	s.free = nil
}

// sweep removes the spares of killed servers.
func sweep(dir *folder) {
	names, err := fs.Glob(dir.FS(), sparePrefix+"*")
	if err != nil {
		return
	}
	for _, name := range names {
		if fi, err := dir.Lstat(name); err == nil && fi.Mode().IsRegular() && time.Since(fi.ModTime()) > spareLife {
			_ = dir.Remove(name) // the next server tries again
		}
	}
}
