package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"deepwork/actor/durable"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/definition"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/record"
	"deepwork/session/state"
	"deepwork/session/store"
)

// MaxExportBytes is the maximum size of an imported session's export: 64 MiB.
const MaxExportBytes = 64 << 20

// maxRevision is the maximum revision of an imported session. A session that moves beyond 1<<53 could not be
// read, and thus neither ended nor removed.
const maxRevision = 1 << 52

// An Import is a file to be imported as a session of this project.
type Import struct {
	Path  string
	Size  int
	State *machine.State // as in the file; nil if it cannot be read
	AsNow bool           // its definition is not stored here, so the job's current one is used
	Err   error          // why it cannot be imported

	next *machine.State
	def  *machine.Definition // with Data, if it is to be stored
}

// An Importer imports files as sessions of a project. Its methods block for the disk and the store.
type Importer struct {
	Folder      *state.Folder // of the project
	Records     *record.Store
	Definitions *definition.Store // with a catalog
	Files       *Files
	Place       *task.Place // of this process, or nil
	Now         func() time.Time
	Enter       func(context.Context) error // called before anything is written
}

// All returns the paths of all session files in the project.
func (m *Importer) All() ([]string, error) {
	dir, err := m.Folder.OpenTmp()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := fs.Glob(dir.FS(), state.ExportName("????????"))
	for i, name := range names {
		names[i] = filepath.Join(m.Folder.Tmp(), name)
	}

	return names, err
}

// Examine reads files and says what would be imported. It writes nothing. The error is the store's.
func (m *Importer) Examine(ctx context.Context, paths []string) (all []*Import, err error) {
	if _, err := m.Records.List(ctx, store.SessionQuery{Limit: 1}); err != nil {
		return nil, err
	}

	from := map[string]string{} // the path of each session
	for _, path := range paths {
		i := m.examineFile(ctx, path)
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

func (m *Importer) examineFile(ctx context.Context, path string) *Import {
	i := &Import{Path: path}
	data, err := m.read(path)
	if err == nil {
		i.Size = len(data)
		i.State, err = Decode(data)
	}
	if err == nil {
		err = m.examine(ctx, i)
	}
	i.Err = err
	return i
}

// read reads a file. It does not follow links out of the project.
func (m *Importer) read(path string) ([]byte, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if wd, err := os.Getwd(); err == nil { // the name may contain links
		if rel, err := filepath.Rel(wd, path); err == nil && filepath.IsLocal(rel) {
			if wd, err = filepath.EvalSymlinks(wd); err != nil {
				return nil, err
			}
			path = filepath.Join(wd, rel)
		}
	}
	if rel, err := filepath.Rel(m.Folder.Root, path); err == nil && filepath.IsLocal(rel) {
		if err := durable.Inside(m.Folder.Root, path); err != nil {
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

// Decode decodes and validates a session's export, which anybody may have edited.
func Decode(data []byte) (*machine.State, error) {
	var head struct {
		SessionID string `json:"session_id"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("it is not the file of a session: %w", err)
	}
	if !machine.IsSessionID(head.SessionID) {
		return nil, errors.New("it is not the file of a session: it has no session_id")
	}
	s, err := machine.Decode(head.SessionID, data)
	if err != nil {
		return nil, err
	}

	s.Replies = nil // as if no caller had ever retried
	if s.Revision > maxRevision {
		return nil, fmt.Errorf("it was not written by deepwork, or was edited: revision is %d", s.Revision)
	}
	if faults := s.Faults(); len(faults) > 0 {
		return nil, fmt.Errorf("it was not written by deepwork, or was edited: %s", faults[0])
	}
	return s, nil
}

// examine checks a decoded file against the sessions stored here.
func (m *Importer) examine(ctx context.Context, i *Import) error {
	there, err := m.Records.List(ctx, store.SessionQuery{IDs: []string{i.State.SessionID}})
	if err != nil {
		return err
	}
	if len(there) > 0 {
		return fmt.Errorf("session %s is in the project already (%s)", i.State.SessionID, there[0].Status)
	}
	i.next = i.State.Imported(m.Now()).In(m.Place)
	return m.define(ctx, i)
}

// define finds the definition with which a session goes on: its own, if that is stored here, else the job's
// current one. An ended session needs none.
func (m *Importer) define(ctx context.Context, i *Import) error {
	s := i.next
	def, err := m.Definitions.Kept(s.Definition)
	if session.CodeOf(err) != "" { // the error is the store's
		return err
	}
	if err != nil || len(s.FaultsWith(def)) > 0 {
		s.Definition, def = machine.DefinitionRef{}, nil
	}
	if def == nil && s.Status == machine.Active {
		i.AsNow = true
		if def, err = m.Definitions.Now(ctx, s); err != nil {
			return err
		}
		if at := def.Workflow.Find(s.CurrentStepID); !slices.ContainsFunc(s.Displayed(def, at), s.IsCurrent) {
			return errors.New("all steps of its current entry are finished, and it is active: it was edited")
		}
		s.Definition, s.CurrentEntryIndex = def.Ref, def.Workflow.Find(s.CurrentStepID)
	}
	i.def = def
	if p := s.Pinned; p != nil {
		if _, err := m.Definitions.Kept(p.Definition); err != nil {
			pinned := *p
			pinned.Definition = s.Definition
			s.Pinned = &pinned
		}
	}

	return nil
}

// Import makes sessions of the examined files without an Err, parents first. It returns how many it has made;
// these stay if a later one fails.
func (m *Importer) Import(ctx context.Context, all []*Import) (made int, err error) {
	if err := m.Enter(ctx); err != nil {
		return 0, err
	}

	for _, i := range parentsFirst(all) {
		if err := m.importOne(ctx, i); err != nil {
			return made, fmt.Errorf("importing %s: %w", i.Path, err)
		}
		made++
	}
	return made, nil
}

func (m *Importer) importOne(ctx context.Context, i *Import) error {
	s := i.next
	if s.ParentSessionID != nil {
		up, err := m.Records.List(ctx, store.SessionQuery{IDs: []string{*s.ParentSessionID}})
		if err != nil {
			return err
		}
		if len(up) == 0 || up[0].Identity != s.Identity || up[0].AttemptID != "" {
			s.ParentSessionID, s.CalledAs = nil, "" // no session here waits for it
		}
	}

	w := &store.SessionWrite{}
	if i.def != nil {
		w = record.Defining(i.def)
	}
	_, err := m.Records.Write(ctx, nil, store.Session{Root: m.Folder.Root}, s, w)
	if errors.Is(err, store.ErrPending) {
		stored, rerr := m.Records.Read(ctx, s.SessionID, nil)
		if rerr != nil || stored.State.ImportedAt == nil || !stored.State.ImportedAt.Equal(*s.ImportedAt) {
			return fmt.Errorf("whether session %s is in the project now is not known: import it again, which says "+
				"so: %w", s.SessionID, err)
		}
		err = nil
	}

	switch {
	case errors.Is(err, store.ErrExists):
		return session.NotNow(codes.SessionExists, "session %s is in the project already", s.SessionID).Because(err)
	case err != nil:
		return record.NotSaved(s.SessionID, err)
	}
	m.Files.Write(w.Session, s)
	return nil
}

// parentsFirst returns the sessions that can be imported, each after the one in which it is nested. Sessions
// that are nested in a circle come last.
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

// A Claim counts what an export claims and what will not count once it is imported.
type Claim struct {
	Steps     int // finished steps
	Reviews   int // reviewers' verdicts
	Decisions int // decisions of people, and of agents that went on without a verdict
}

// ClaimOf counts what is in an export.
func ClaimOf(s *machine.State) (c Claim) {
	for _, entry := range s.StepProgress {
		p := entry.Value
		if p.Done() {
			c.Steps++
		}
		for _, u := range p.Submissions {
			if u.Reviewed() {
				c.Reviews++
			}
			if v := u.Of(judging.ByPerson); v != nil && (!v.Passed || !p.Done()) {
				c.Decisions++
			}
		}
		c.Decisions += len(p.Overrides)
		if p.HasGrant() {
			c.Decisions++
		}
	}

	return c
}
