package workflow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepwork/actor/presence"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/store/local"
	"deepwork/session/workflow/machine"
)

// Inspect checks every session of the project at root: whether its record and its
// definition verify, whether what it says of steps, times, parents and replies can
// be, and at what was set aside or left over. It writes nothing, waits for no lock
// and may run beside servers; it blocks for the disk. What is under way may be among
// the findings: inspect again, and see session.Report.Confirmed. The error is one of
// the system.
func Inspect(ctx context.Context, root string, logger *slog.Logger) (session.Report, error) {
	read, err := openRecords(root, local.Options{Logger: logger, ReadOnly: true})
	if err != nil {
		return session.Report{}, err
	}
	defer read.Close() // of what changes nothing: it cannot fail
	i := &inspection{records: read, definitions: map[string]*keptDefinition{}, sessions: map[string]*seen{}, started: map[requestKey]string{}}
	if err := i.run(ctx); err != nil {
		return session.Report{}, fmt.Errorf("inspecting the sessions: %w", err)
	}
	return i.report, nil
}

// An inspection is one look at all sessions.
type inspection struct {
	records     *fileRecords
	report      session.Report
	definitions map[string]*keptDefinition
	sessions    map[string]*seen
	backwards   []string              // records whose times run backwards
	started     map[requestKey]string // the session that a start_workflow began
}

// What is remembered of a session, for what others say of it.
type seen struct {
	parent, identity string
	status           SessionStatus
	startedAt        time.Time
	unknown          bool // its record cannot be read
}

// A keptDefinition is a definition that was read, or why it was not.
type keptDefinition struct {
	def *machine.Definition
	err error
}

func (i *inspection) run(ctx context.Context) error {
	inUse := 0
	alive := map[string]bool{}
	for info, err := range i.records.List() {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		s := i.session(info.ID)
		if s == nil || s.Status != Active || s.Owner == "" {
			continue
		}
		lives, asked := alive[s.Owner]
		if !asked {
			lives = i.records.Alive(s.Owner)
			alive[s.Owner] = lives
		}
		if lives {
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
		if s.status == Active {
			active++
		}
	}
	i.report.Counts = append(i.report.Counts, session.Count{N: len(i.sessions), What: "session",
		Of: fmt.Sprintf("%d active, %d of them with a server", active, inUse)})
	return nil
}

// session checks one record on its own. It returns nil if there is none that can be read.
func (i *inspection) session(id string) *State {
	path := i.records.RecordPath(id)
	s, err := i.records.Peek(id)
	switch {
	case session.CodeOf(err) == "unknown_session":
		return nil // removed while we looked
	case session.CodeOf(err) == "session_too_new":
		i.sessions[id] = &seen{unknown: true}
		i.report.Note(path, "it was written by a newer deepwork, and was not looked at", "check it with that version")
		return nil
	case err != nil:
		i.sessions[id] = &seen{unknown: true}
		why := err
		if d, ok := errors.AsType[*store.DamagedError](err); ok {
			why = errors.New(d.Reason)
		} else if e, ok := errors.AsType[*session.Error](err); ok && e.Err != nil {
			why = e.Err
		}
		i.report.Fault(path, fmt.Sprintf("session %s is damaged: %v", id, why),
			"restore the file from a backup, or leave it: the first call that names it has it set aside, and the workflow can be started anew")
		return nil
	}
	i.sessions[id] = &seen{status: s.Status, identity: s.Identity, startedAt: s.StartedAt}
	if s.ParentSessionID != nil {
		i.sessions[id].parent = *s.ParentSessionID
	}
	for _, what := range i.faults(s) {
		i.report.Fault(path, fmt.Sprintf("session %s: %s", id, what),
			fmt.Sprintf("look at it with `deepwork sessions show %s`; if it cannot go on, end it with `deepwork sessions abort %s` and start the workflow anew", id, id))
	}
	if s.ClockWentBack() {
		i.backwards = append(i.backwards, path)
	}
	for _, r := range s.Replies {
		if r.Tool != ToolStart || r.RequestID == nil {
			continue
		}
		k := requestKey{s.Identity, r.Tool, *r.RequestID}
		if other, twice := i.started[k]; twice && i.near(id, other) {
			i.report.Fault(path, fmt.Sprintf("session %s and session %s were begun by one call, that with request_id %q", max(id, other), min(id, other), k.id),
				"abort the one that nobody works on")
		}
		i.started[k] = id
	}
	return s
}

// near reports whether two sessions began so close to each other that a request_id
