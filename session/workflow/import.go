package workflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"deepwork/actor/durable"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// MaxExportBytes limits the export of a session that is imported: 64 MiB.
const MaxExportBytes = 64 << 20

// An Import is a file that is to become a session of this project.
type Import struct {
	Path  string
	Size  int
	State *machine.State // as in the file; nil if that cannot be read
	AsNow bool           // its definition is not stored here, so that of the job as it is now counts
	Err   error          // why it cannot be imported

	next *machine.State
	def  *machine.Definition // with Data, if that is stored with it
}

// Exports returns the paths of all files of sessions in the engine's root.
func (e *Engine) Exports() ([]string, error) {
	dir, err := e.State.OpenTmp()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := fs.Glob(dir.FS(), exportName("????????"))
	for i, name := range names {
		names[i] = filepath.Join(e.State.Tmp(), name)
	}
	return names, err
}

// Examine reads files and says what would be imported. It writes nothing. The engine needs a catalog. The
// error is that of the store.
func (e *Engine) Examine(ctx context.Context, paths []string) (all []*Import, err error) {
	if _, err := e.records.list(ctx, store.SessionQuery{Limit: 1}); err != nil {
		return nil, err
	}
	from := map[string]string{} // the path of each session
	for _, path := range paths {
		i := e.examineFile(ctx, path)
		if i.Err == nil {
			if other, twice := from[i.State.SessionID]; twice {
				i.Err = fmt.Errorf("session %s is in %s, too", i.State.SessionID, other)
			}
			from[i.State.SessionID] = path
		}
		all = append(all, i)
	}
	return all, nil
}

func (e *Engine) examineFile(ctx context.Context, path string) *Import {
	i := &Import{Path: path}
	data, err := e.readExport(path)
	if err == nil {
		i.Size = len(data)
		i.State, err = machine.DecodeExport(data)
	}
	if err == nil {
		err = e.examine(ctx, i)
	}
	i.Err = err
	return i
}

// readExport reads a file. No link leads it out of the engine's root.
func (e *Engine) readExport(path string) ([]byte, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if wd, err := os.Getwd(); err == nil { // its name may lead through links
		if rel, err := filepath.Rel(wd, path); err == nil && filepath.IsLocal(rel) {
			if wd, err = filepath.EvalSymlinks(wd); err != nil {
				return nil, err
			}
			path = filepath.Join(wd, rel)
		}
	}
	if rel, err := filepath.Rel(e.Root, path); err == nil && filepath.IsLocal(rel) {
		if err := durable.Inside(e.Root, path); err != nil {
			return nil, err
		}
	}
	f, info, err := durable.OpenRegular(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxExportBytes+1))
	if err == nil && len(data) > MaxExportBytes {
		err = fmt.Errorf("it has %d bytes, and %d are the most", info.Size(), MaxExportBytes)
	}
	return data, err
}

// examine checks a decoded file against what is stored here.
func (e *Engine) examine(ctx context.Context, i *Import) error {
	there, err := e.records.list(ctx, store.SessionQuery{IDs: []string{i.State.SessionID}})
	if err != nil {
		return err
	}
	if len(there) > 0 {
		return fmt.Errorf("session %s is in the project already (%s)", i.State.SessionID, there[0].Status)
	}
	i.next = i.State.Imported(e.now()).In(e.Place)
	return e.define(ctx, i)
}

// define finds the definition with which a session goes on: the one that it had, if that is stored, else
// that of the job as it is now. An ended session needs none.
func (e *Engine) define(ctx context.Context, i *Import) error {
	s := i.next
	def, err := e.definitions.Kept(s.Definition)
	if session.CodeOf(err) != "" { // the store
		return err
	}
	if err != nil || len(s.FaultsWith(def)) > 0 {
		s.Definition, def = machine.DefinitionRef{}, nil
	}
	if def == nil && s.Status == machine.Active {
		i.AsNow = true
		if def, err = e.definitionNow(ctx, s); err != nil {
			return err
		}
		s.Definition, s.CurrentEntryIndex = def.Ref, def.Workflow.Find(s.CurrentStepID)
	}
	i.def = def
	if p := s.Pinned; p != nil {
		if _, err := e.definitions.Kept(p.Definition); err != nil {
			pinned := *p
			pinned.Definition = s.Definition
			s.Pinned = &pinned
		}
	}
	return nil
}

// definitionNow returns the definition of a session's job as it is now, to be stored.
func (e *Engine) definitionNow(ctx context.Context, s *machine.State) (*machine.Definition, error) {
	j, why, err := e.definitions.usable(ctx, s)
	if err != nil {
		return nil, err
	}
	if j == nil {
		return nil, session.NotNow("definition_lost", "Session '%s' cannot go on: its definition is not stored here, and job '%s' %s.", s.SessionID, s.JobName, cmp.Or(why, "was not loaded"))
	}
	def := &machine.Definition{Job: j, Workflow: j.Workflow(s.WorkflowName)}
	entry := def.Workflow.Entries[def.Workflow.Find(s.CurrentStepID)]
	texts, err := e.definitions.Texts(def, entry)
	if err == nil {
		def, err = e.definitions.Keep(def, texts)
	}
	if err == nil && !pending(s, entry) {
		err = fmt.Errorf("all steps of its current entry are finished, and it is active: it was edited")
	}
	return def, err
}

func pending(s *machine.State, entry job.Entry) bool { return slices.ContainsFunc(entry, s.IsCurrent) }

// Import makes sessions of what was examined and has no Err, parents first. It returns how many it has
// made, which stay if a later one fails.
func (e *Engine) Import(ctx context.Context, all []*Import) (made int, err error) {
	if err := e.enter(ctx); err != nil {
		return 0, err
	}
	for _, i := range parentsFirst(all) {
		if err := e.importOne(ctx, i); err != nil {
			return made, fmt.Errorf("importing %s: %w", i.Path, err)
		}
		made++
	}
	return made, nil
}

func (e *Engine) importOne(ctx context.Context, i *Import) error {
	s := i.next
	if s.ParentSessionID != nil {
		up, err := e.records.list(ctx, store.SessionQuery{IDs: []string{*s.ParentSessionID}})
		if err != nil {
			return err
		}
		if len(up) == 0 || up[0].Identity != s.Identity || up[0].AttemptID != "" {
			s.ParentSessionID = nil
		}
	}
	w := &store.SessionWrite{}
	if i.def != nil {
		w = defining(i.def)
	}
	_, err := e.records.write(ctx, nil, store.Session{Root: e.Root}, s, w)
	if errors.Is(err, store.ErrPending) {
		if stored, rerr := e.records.read(ctx, s.SessionID, nil); rerr == nil && stored.state.ImportedAt != nil && stored.state.ImportedAt.Equal(*s.ImportedAt) {
			err = nil
		}
	}
	switch {
	case errors.Is(err, store.ErrExists):
		return session.NotNow("session_exists", "session %s is in the project already", s.SessionID).Because(err)
	case err != nil:
		return notSaved(s.SessionID, err)
	}
	e.exports.write(w.Session, s)
	e.notifyMoved(nil, s)
	return nil
}

// missing is the error for a session that is not stored. It names a file that can be imported.
func (r *records) missing(id string) *session.Error {
	e, dir := r.unknown(id), filepath.Join(r.root, ".deepwork", "tmp")
	if info, err := os.Lstat(filepath.Join(dir, exportName(id))); err == nil && info.Mode().IsRegular() {
		e.Message += fmt.Sprintf(" A file of it is in the project: `deepwork sessions import %s` makes it a session, if the user wants that and runs it at a terminal.", filepath.Join(".deepwork", "tmp", exportName(id)))
	}
	files, err := fs.Glob(os.DirFS(dir), exportName("????????"))
	if err != nil || len(files) == 0 {
		return e
	}
	if stored, err := r.list(context.Background(), store.SessionQuery{Limit: 1}); err == nil && len(stored) == 0 {
		e.Message += " The project has files of sessions, and its database has no session: if the folder was moved here, `deepwork where --adopt OLD-PATH` takes over what it had there."
	}
	return e
}

// parentsFirst returns those that can be imported, each after the one in which it is nested. Those that are
// nested in a circle come last.
func parentsFirst(all []*Import) (sorted []*Import) {
	left := map[string]*Import{}
	for _, i := range all {
		if i.Err == nil {
			left[i.State.SessionID] = i
		}
	}
	var add func(i *Import)
	add = func(i *Import) {
		if left[i.State.SessionID] != i {
			return
		}
		delete(left, i.State.SessionID)
		if up := i.State.ParentSessionID; up != nil && left[*up] != nil {
			add(left[*up])
		}
		sorted = append(sorted, i)
	}
	for _, i := range all {
		if i.Err == nil {
			add(i)
		}
	}
	return sorted
}
