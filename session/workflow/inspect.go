package workflow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepwork/actor/presence"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// Inspect checks every session of a project: records, definitions, the consistency of
// steps, times, parents and replies, and leftover files. It writes nothing, waits for no lock and
// may run beside servers; it blocks for the disk. Operations in progress may cause findings:
// inspect again, and see session.Report.Confirmed. The error is a system error.
func Inspect(ctx context.Context, f *state.Folder, stores *store.Stores, logger *slog.Logger) (session.Report, error) {
	read, err := openRecords(f, stores, true, logger)
	if err != nil {
		return session.Report{}, err
	}
	defer read.Close(ctx) // of a read-only store: cannot fail
	i := &inspection{stores: stores, records: read, definitions: map[string]keptDefinition{}, sessions: map[string]*machine.State{}, started: map[requestKey]string{}}
	if err := i.run(ctx); err != nil {
		return session.Report{}, fmt.Errorf("inspecting the sessions: %w", err)
	}
	return i.report, nil
}

// An inspection is one pass over all sessions.
type inspection struct {
	stores      *store.Stores
	records     *storedRecords
	report      session.Report
	definitions map[string]keptDefinition
	sessions    map[string]*machine.State // by id; what others refer to, or nil if unreadable
	backwards   []string                  // records whose times run backwards
	started     map[requestKey]string     // the session that a start_workflow began
}

// A keptDefinition is a definition, or the error of reading it.
type keptDefinition struct {
	def *machine.Definition
	err error
}

func (i *inspection) run(ctx context.Context) error {
	inUse := 0
	alive := store.Census(i.records)
	for info, err := range i.records.List(ctx) {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		s := i.session(info.ID)
		if s != nil && s.Status == machine.Active && s.Owner != "" && alive(s.Owner) {
			inUse++
		}
	}
	i.parents()
	if n := len(i.backwards); n > 0 {
		i.report.Note(slices.Min(i.backwards), fmt.Sprintf("the times of %s run backwards: the clock was set back while they were worked on", machine.Count(n, "session")), "nothing has to be done")
	}
	if err := i.files(ctx); err != nil {
		return err
	}
	active := 0
	for _, s := range i.sessions {
		if s != nil && s.Status == machine.Active {
			active++
		}
	}
	i.report.Counts = append(i.report.Counts, session.Count{N: len(i.sessions), What: "session",
		Of: fmt.Sprintf("%d active, %d of them with a server", active, inUse)})
	return nil
}

// session checks one record on its own. It returns nil if it is unreadable.
func (i *inspection) session(id string) *machine.State {
	path := i.records.path(id)
	s, err := i.records.Peek(id)
	switch {
	case session.CodeOf(err) == "unknown_session":
		return nil // removed meanwhile
	case session.CodeOf(err) == "session_too_new":
		i.sessions[id] = nil
		i.report.Note(path, "it was written by a newer deepwork, and was not looked at", "check it with that version")
		return nil
	case session.CodeOf(err) == codeForeign:
		i.sessions[id] = nil
		if f, ok := errors.AsType[*store.ForeignError](err); ok {
			i.report.Note(path, fmt.Sprintf("session %s %s; nothing reads it", id, f.Finding()),
				fmt.Sprintf("look at it and take it over with `deepwork sessions adopt %s`, or delete it", id))
		}
		return nil
	case err != nil:
		i.sessions[id] = nil
		why := err
		if d, ok := errors.AsType[*store.DamagedError](err); ok {
			why = errors.New(d.Reason)
		} else if e, ok := errors.AsType[*session.Error](err); ok && e.Err != nil {
			why = e.Err
		}
		i.report.Fault(path, fmt.Sprintf("session %s is damaged: %v", id, why),
			"restore the file from a backup, or leave it: the first call that names it has it set aside, and the workflow can be started again")
		return nil
	}
	i.sessions[id] = &machine.State{Status: s.Status, Identity: s.Identity, StartedAt: s.StartedAt, ParentSessionID: s.ParentSessionID}
	for _, what := range i.faults(s) {
		i.report.Fault(path, fmt.Sprintf("session %s: %s", id, what),
			fmt.Sprintf("look at it with `deepwork sessions show %s`; if it cannot go on, end it with `deepwork sessions abort %s` and start the workflow again", id, id))
	}
	if s.ClockWentBack() {
		i.backwards = append(i.backwards, path)
	}
	for _, r := range s.Replies {
		if r.Tool != machine.ToolStart || r.RequestID == nil {
			continue
		}
		k := requestKey{s.Identity, r.Tool, *r.RequestID}
		if other, twice := i.started[k]; twice && s.StartedAt.Sub(i.sessions[other].StartedAt).Abs() < requestHorizon {
			i.report.Fault(path, fmt.Sprintf("session %s and session %s were begun by one call, that with request_id %q", max(id, other), min(id, other), k.id),
				"abort the one that nobody works on")
		}
		i.started[k] = id
	}
	return s
}

// requestHorizon is how long a request_id identifies one call.
const requestHorizon = 24 * time.Hour

// faults returns the faults of a readable session.
func (i *inspection) faults(s *machine.State) []string {
	faults := s.Faults()
	if s.Owner != "" && !presence.IsID(s.Owner) {
		faults = append(faults, fmt.Sprintf("its owner %.60q is the id of no server", s.Owner))
	}
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
	data, err := i.records.Definition(ref.Hash)
	f, foreign := errors.AsType[*store.ForeignError](err)
	switch d, damaged := errors.AsType[*store.DamagedError](err); {
	case errors.Is(err, store.ErrNotFound):
		k.err = errors.New("it is not there")
	case damaged:
		k.err = errors.New(d.Reason)
	case foreign:
		k.err = errors.New("it was not written by this installation: " + f.Reason)
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
		path := i.records.path(id)
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

// files checks the other files of the folder.
func (i *inspection) files(ctx context.Context) error {
	live, err := i.records.others(ctx)
	if err != nil {
		return err
	}
	i.report.Live = live
	files := i.records.files
	if files == nil {
		r, err := i.stores.Inspect(ctx, RecordOptions(true, nil))
		if err != nil {
			return err
		}
		i.report.Findings = append(i.report.Findings, r.Findings...)
		return i.reviews()
	}
	aside, err := files.Damaged(ctx)
	if err != nil {
		return err
	}
	for _, path := range aside {
		what, do := "a record that was changed by somebody else was set aside when its server wrote it again", "look what was changed, and delete it when it is not needed"
		if strings.HasPrefix(filepath.Base(path), "damaged_") {
			what, do = "a damaged file was set aside", "restore what it was from a backup if it is needed, then delete it"
		}
		i.report.Fault(path, what, do)
	}
	strangers, err := files.Strangers(ctx)
	if err != nil {
		return err
	}
	for _, path := range strangers {
		i.report.Fault(path, "its name is that of no session or definition, so nothing ever reads it", "give it its right name back, or delete it")
	}
	left, err := files.Leftovers(ctx)
	if err != nil {
		return err
	}
	if n := len(left); n > 0 {
		i.report.Note(left[0], machine.Count(n, "file")+" left by servers that were killed", "the next server that writes removes them")
	}
	return i.reviews()
}

// reviews finds unneeded instructions of self-reviews.
func (i *inspection) reviews() error {
	dir := i.records.state.Tmp()
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
		} else if err := verifyReview(i.records.Sealer(), filepath.Join(dir, name)); err != nil {
			i.report.Note(filepath.Join(dir, name), "review instructions that this installation did not write for this project, or not as they are: "+err.Error(), "delete them: the next review of the step writes them again")
		}
	}
	if n := len(drafts); n > 0 {
		i.report.Note(filepath.Join(dir, drafts[0]), machine.Count(n, "file")+" with review instructions that no session needs", "delete them at will")
	}
	return nil
}
