package workflow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepwork/actor/durable"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// Inspect checks every session of the project: the states, definitions, the consistency of
// steps, times, parents and replies, and the exports in the roots on this machine. It writes nothing and
// may run beside servers; it blocks for the disk. Operations in progress may cause findings:
// inspect again, and see session.Report.Confirmed. The error is a system error.
func (e *Engine) Inspect(ctx context.Context) (session.Report, error) {
	i := &inspection{engine: e, definitions: map[string]keptDefinition{}, sessions: map[string]*machine.State{}, started: map[requestKey]string{}}
	if err := i.run(ctx); err != nil {
		return session.Report{}, fmt.Errorf("inspecting the sessions: %w", err)
	}
	return i.report, nil
}

// An inspection is one pass over all sessions.
type inspection struct {
	engine      *Engine
	report      session.Report
	definitions map[string]keptDefinition
	sessions    map[string]*machine.State // by id; what others refer to, or nil if unreadable
	backwards   []string                  // sessions whose times run backwards
	started     map[requestKey]string     // the session that a start_workflow began
	behind      []string                  // exports that differ from their sessions
}

// A keptDefinition is a definition, or the error of reading it.
type keptDefinition struct {
	def *machine.Definition
	err error
}

func (i *inspection) run(ctx context.Context) error {
	all, err := i.engine.List(ctx)
	if err != nil {
		return err
	}
	inUse, active := 0, 0
	for _, info := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i.session(ctx, info.Session); i.sessions[info.ID] != nil && info.Status == string(machine.Active) {
			active++
			if info.InUse {
				inUse++
			}
		}
	}
	i.parents()
	if n := len(i.backwards); n > 0 {
		i.report.Note(slices.Min(i.backwards), fmt.Sprintf("the times of %s run backwards: the clock was set back while they were worked on", machine.Count(n, "session")), "nothing has to be done")
	}
	if n := len(i.behind); n > 0 {
		i.report.Note(slices.Min(i.behind), fmt.Sprintf("%s in .deepwork/tmp differ from the sessions, which are in the database: they were edited, or could not be written", machine.Count(n, "file")), "nothing has to be done: nothing reads them, and a session's next call writes its file again")
	}
	if i.report.Live, err = i.engine.Stores.Others(ctx); err != nil {
		return err
	}
	i.report.Counts = append(i.report.Counts, session.Count{N: len(i.sessions), What: "session",
		Of: fmt.Sprintf("%d active, %d of them with a server", active, inUse)})
	return i.reviews()
}

// where returns where a session is, for messages.
func where(id string) string { return "session " + id }

// session checks one session on its own.
func (i *inspection) session(ctx context.Context, row store.Session) {
	id := row.ID
	r, err := i.engine.records.read(ctx, id, nil)
	switch {
	case session.CodeOf(err) == "unknown_session":
		return // removed meanwhile
	case err != nil:
		i.sessions[id] = nil
		why := err
		if e, ok := errors.AsType[*session.Error](err); ok && e.Err != nil {
			why = e.Err
		}
		i.report.Fault(where(id), fmt.Sprintf("it cannot be read: %v", why), "restore the database from a backup, or start the workflow again")
		return
	}
	s := r.state
	i.sessions[id] = &machine.State{Status: s.Status, Identity: s.Identity, StartedAt: s.StartedAt, ParentSessionID: s.ParentSessionID}
	do := fmt.Sprintf("look at it with `deepwork sessions show %s`; if it cannot go on, end it with `deepwork sessions abort %s` and start the workflow again", id, id)
	if now := rowOf(r.row, s); now != r.row {
		i.report.Fault(where(id), "its row contradicts its state", do)
	}
	for _, what := range i.faults(s) {
		i.report.Fault(where(id), what, do)
	}
	if s.ClockWentBack() {
		i.backwards = append(i.backwards, where(id))
	}
	for _, r := range s.Replies {
		if r.Tool != machine.ToolStart || r.RequestID == nil {
			continue
		}
		k := requestKey{s.Identity, r.Tool, *r.RequestID}
		if other, twice := i.started[k]; twice {
			i.report.Fault(where(id), fmt.Sprintf("session %s and session %s were begun by one call, that with request_id %q", max(id, other), min(id, other), k.id),
				"abort the one that nobody works on")
		}
		i.started[k] = id
	}
	i.export(r)
}

// exportLate is how long an export may differ from its session.
const exportLate = 10 * time.Second

// export checks the export of a session that was moved last on this machine.
func (i *inspection) export(r *record) {
	here := i.engine.Place
	if p := r.row.PlaceOf(); here != nil && (p == nil || p.MachineID != here.MachineID) || time.Since(r.state.UpdatedAt) < exportLate {
		return
	}
	if _, err := os.Stat(r.row.Root); err != nil {
		return // the workspace of an attempt that was deleted
	}
	path := filepath.Join(r.row.Root, ".deepwork", "tmp", exportName(r.row.ID))
	body, err := r.state.Encode()
	if err == nil {
		err = hasExactly(path, append(body, '\n'))
	}
	if err != nil {
		i.behind = append(i.behind, path)
	}
}

// hasExactly returns an error unless a path is that of a file with this content. It waits for nobody at the
// other end of a pipe, and reads no more than it needs.
func hasExactly(path string, content []byte) error {
	f, _, err := durable.OpenRegular(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	have, err := io.ReadAll(io.LimitReader(f, int64(len(content))+1))
	if err == nil && !bytes.Equal(have, content) {
		err = errors.New("it has other content")
	}
	return err
}

// faults returns the faults of a readable session.
func (i *inspection) faults(s *machine.State) []string {
	faults := s.Faults()
	if s.Definition.Hash == "" {
		if s.Status == machine.Active { // else its job was edited before its last step: that one was not stored
			faults = append(faults, "it names no definition")
		}
		return faults
	}
	k := i.definition(s.Definition)
	if k.err != nil {
		return append(faults, fmt.Sprintf("its definition %s cannot be used: %v", s.Definition.Hash, k.err))
	}
	return append(faults, s.FaultsWith(k.def)...)
}

// definition reads the definition of a session; each is read once.
func (i *inspection) definition(ref machine.DefinitionRef) keptDefinition {
	k, known := i.definitions[ref.Hash]
	if known { // what was kept under one hash by two job folders differs in nothing but the reference
		return k
	}
	data, err := i.engine.records.definition(ref.Hash)
	switch {
	case errors.Is(err, store.ErrNotFound):
		k.err = errors.New("it is not there")
	case err != nil:
		k.err = err
	case machine.Digest(string(data)) != ref.Hash:
		k.err = errors.New("its content has another hash than its name")
	default:
		k.def, k.err = machine.DecodeBundle(ref, data)
	}
	i.definitions[ref.Hash] = k
	return k
}

// parents checks how sessions are nested. Parents that were pruned, or are already reported as
// unreadable, are skipped.
func (i *inspection) parents() {
	up := func(s *machine.State) (id string, parent *machine.State) {
		if s == nil || s.ParentSessionID == nil {
			return "", nil
		}
		return *s.ParentSessionID, i.sessions[*s.ParentSessionID]
	}
	for id, s := range i.sessions {
		path := where(id)
		at, parent := up(s)
		if parent != nil && parent.Identity != s.Identity {
			i.report.Fault(path, fmt.Sprintf("session %s of %q is nested in session %s of %q", id, s.Identity, at, parent.Identity),
				"abort it and start the workflow again")
		}
		on := []string{id}
		for parent != nil && !slices.Contains(on, at) {
			on = append(on, at)
			at, parent = up(parent)
		}
		if parent != nil && at == id && id == slices.Min(on) { // reported once per cycle
			i.report.Fault(path, "sessions are nested in a circle: "+strings.Join(append(on, id), " in "), "abort one of them")
		}
	}
}

// reviews finds unneeded instructions of self-reviews.
func (i *inspection) reviews() error {
	dir := i.engine.State.Tmp()
	drafts, err := fs.Glob(os.DirFS(dir), ".review-*")
	notes, err2 := fs.Glob(os.DirFS(dir), "quality_review_????????_*.md")
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	drafts = slices.DeleteFunc(drafts, func(name string) bool {
		fi, err := os.Lstat(filepath.Join(dir, name))
		return err != nil || time.Since(fi.ModTime()) < time.Minute
	})
	for _, name := range notes {
		id := strings.TrimPrefix(name, "quality_review_")[:8]
		if _, known := i.sessions[id]; machine.IsSessionID(id) && !known {
			drafts = append(drafts, name)
		}
	}
	if n := len(drafts); n > 0 {
		i.report.Note(filepath.Join(dir, drafts[0]), machine.Count(n, "file")+" with review instructions that no session needs", "delete them at will")
	}
	return nil
}
