package record

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"deepwork/actor/xslices"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/store"
)

// An Inspection is one pass over all sessions. Operations in progress may cause findings, so inspect again,
// and see session.Report.Confirmed.
type Inspection struct {
	Report session.Report
	// Behind returns the path of a session's export if it differs and is to be reported, else "".
	Behind func(*Record) string

	store       *Store
	definitions map[string]keptDefinition
	sessions    map[string]*machine.State // by id; nil if unreadable; for references of other sessions
	backwards   []string                  // sessions whose times run backwards
	started     map[Request]string        // the session that each start_workflow began
	behind      []string                  // exports that differ from their sessions
}

// A keptDefinition is a definition, or the error from reading it.
type keptDefinition struct {
	def *machine.Definition
	err error
}

// maxNamed is the maximum number of exports that a finding names.
const maxNamed = 50

// Inspect checks sessions: their states, definitions, the consistency of steps, times, parents and replies, and their
// exports. It writes nothing and may run while servers do; it blocks for the disk. The error is ctx's.
func (r *Store) Inspect(ctx context.Context, all []store.Session, i *Inspection) error {
	i.store = r
	i.definitions = map[string]keptDefinition{}
	i.sessions = map[string]*machine.State{}
	i.started = map[Request]string{}
	for _, row := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		i.session(ctx, row.ID)
	}

	i.parents()
	if n := len(i.backwards); n > 0 {
		i.Report.Note(slices.Min(i.backwards),
			fmt.Sprintf("the times of %s run backwards: the clock was set back while they were worked on",
				machine.Count(n, "session")), "nothing has to be done")
	}
	if n := len(i.behind); n > 0 {
		slices.Sort(i.behind)
		files := machine.Count(n, "file") + " in .deepwork/tmp"
		names := xslices.Map(i.behind[:min(n, maxNamed)], filepath.Base)
		if n > maxNamed {
			names = append(names, "…")
		}
		if n > 1 {
			files += " (" + strings.Join(names, ", ") + ")"
		}
		i.Report.Note(i.behind[0], files+" differ from the sessions, which are in the database: they were edited, or "+
			"could not be written",
			"nothing has to be done: nothing reads them, and a session's next call writes its file again")
	}

	return nil
}

// Found reports whether a session exists, and whether it could be read.
func (i *Inspection) Found(id string) (there, readable bool) {
	s, there := i.sessions[id]
	return there, s != nil
}

// Len returns the number of sessions.
func (i *Inspection) Len() int { return len(i.sessions) }

// where returns where a session is, for messages.
func where(id string) string { return "session " + id }

// triesIn matches the numbers of tries in the column of what may wait for a person: earlier versions also
// counted tries that passed.
var triesIn = regexp.MustCompile(`"reviews":\d+,?`)

// session checks one session on its own.
func (i *Inspection) session(ctx context.Context, id string) {
	r, err := i.store.Read(ctx, id, nil)
	switch {
	case session.CodeOf(err) == codes.UnknownSession:
		return // removed meanwhile
	case err != nil:
		i.sessions[id] = nil
		why := err
		if e, ok := errors.AsType[*session.Error](err); ok && e.Err != nil {
			why = e.Err
		}
		i.Report.Fault(where(id), fmt.Sprintf("it cannot be read: %v", why),
			"restore the database from a backup, or start the workflow again")
		return
	}

	s := r.State
	i.sessions[id] = &machine.State{
		Status:          s.Status,
		Identity:        s.Identity,
		StartedAt:       s.StartedAt,
		ParentSessionID: s.ParentSessionID,
	}
	do := fmt.Sprintf("look at it with `deepwork sessions show %s`; if it cannot go on, end it with `deepwork "+
		"sessions abort %s` and start the workflow again", id, id)
	was, now := r.Row, RowOf(r.Row, s)
	was.Waiting, now.Waiting = triesIn.ReplaceAllString(was.Waiting, ""), triesIn.ReplaceAllString(now.Waiting, "")
	if now != was {
		i.Report.Fault(where(id), "its row contradicts its state", do)
	}
	for _, what := range i.faults(s) {
		i.Report.Fault(where(id), what, do)
	}
	if s.ClockWentBack() {
		i.backwards = append(i.backwards, where(id))
	}
	for _, r := range s.Replies {
		if r.Tool != machine.ToolStart || r.RequestID == nil {
			continue
		}
		k := Request{s.Identity, r.Tool, *r.RequestID}
		if other, twice := i.started[k]; twice {
			i.Report.Fault(where(id), fmt.Sprintf("session %s and session %s were begun by one call, that with "+
				"request_id %q", max(id, other), min(id, other), k.ID),
				"abort the one that nobody works on")
		}
		i.started[k] = id
	}
	if path := i.Behind(r); path != "" {
		i.behind = append(i.behind, path)
	}
}

// faults returns the faults of a readable session.
func (i *Inspection) faults(s *machine.State) []string {
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

// definition returns the definition of a session. Each one is read only once.
func (i *Inspection) definition(ref machine.DefinitionRef) keptDefinition {
	k, known := i.definitions[ref.Hash]
	if known { // two job folders with one hash differ only in the reference
		return k
	}
	data, err := i.store.Definition(ref.Hash)
	switch {
	case errors.Is(err, store.ErrNotFound):
		k.err = errors.New("it is not there")
	case err != nil:
		k.err = err
	case session.Digest(string(data)) != ref.Hash:
		k.err = errors.New("its content has another hash than its name")
	default:
		k.def, k.err = machine.DecodeBundle(ref, data)
	}
	i.definitions[ref.Hash] = k
	return k
}

// parents checks how sessions are nested. It skips parents that were pruned, or are already reported as
// unreadable.
func (i *Inspection) parents() {
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
			i.Report.Fault(path, fmt.Sprintf("session %s of %q is nested in session %s of %q", id, s.Identity, at,
				parent.Identity),
				"abort it and start the workflow again")
		}

		on := []string{id}
		for parent != nil && !slices.Contains(on, at) {
			on = append(on, at)
			at, parent = up(parent)
		}
		if parent != nil && at == id && id == slices.Min(on) { // reported once per cycle
			i.Report.Fault(path, "sessions are nested in a circle: "+strings.Join(append(on, id), " in "),
				"abort one of them")
		}
	}
}
