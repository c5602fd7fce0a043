package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/store/local"
	"deepwork/session/workflow/machine"
)

// An Archive reads and tends the sessions on disk from outside a server: it is
// what the command line's `sessions` uses, beside servers that run.
type Archive struct {
	root    string
	log     *slog.Logger
	read    *fileRecords // read only: changes nothing on disk
	written *fileRecords // made when something is to be changed
}

// OpenArchive opens the sessions of the project at root. A project without any
// is an empty archive.
func OpenArchive(root string, logger *slog.Logger) (*Archive, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	read, err := openRecords(root, local.Options{Logger: logger, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	return &Archive{root: root, log: logger, read: read}, nil
}

// Close releases the archive.
func (a *Archive) Close() error {
	var err error
	if a.written != nil {
		err = a.written.Close()
	}
	return errors.Join(err, a.read.Close())
}

func (a *Archive) writable() (*fileRecords, error) {
	if a.written == nil {
		w, err := openRecords(a.root, local.Options{Logger: a.log})
		if err != nil {
			return nil, err
		}
		a.written = w
	}
	return a.written, nil
}

// A SessionInfo is a session in a list.
type SessionInfo struct {
	SessionID    string
	JobName      string
	WorkflowName string
	Goal         string
	Status       string // active, completed, aborted; damaged where Err is set
	Step         string // the current step's id
	Parent       string // the parent's session id, or ""
	Identity     string // who started it
	StartedAt    time.Time
	UpdatedAt    time.Time // of the last transition
	Owner        string    // the server that owns it, or ""
	OwnerAlive   bool      // it runs, so the session is in use
	OwnerText    string    // "pid 123 on host …" where it is known
	Err          error     // why it cannot be read
}

// List returns every session, the one that moved last first.
func (a *Archive) List(ctx context.Context) ([]SessionInfo, error) {
	var out []SessionInfo
	alive := map[string]bool{}
	for info, err := range a.read.List() {
		if err != nil {
			return nil, fmt.Errorf("listing the sessions: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, err := a.read.Load(info.ID)
		if session.CodeOf(err) == "unknown_session" {
			continue // removed while we read
		}
		if err != nil {
			out = append(out, SessionInfo{SessionID: info.ID, Status: "damaged", UpdatedAt: info.ModTime.UTC(), Err: err})
			continue
		}
		i := SessionInfo{
			SessionID: s.SessionID, JobName: s.JobName, WorkflowName: s.WorkflowName, Goal: s.Goal,
			Status: string(s.Status), Step: s.CurrentStepID, Identity: s.Identity,
			StartedAt: s.StartedAt, UpdatedAt: s.UpdatedAt, Owner: s.Owner,
		}
		if s.ParentSessionID != nil {
			i.Parent = *s.ParentSessionID
		}
		if s.Status == machine.Active && s.Owner != "" {
			lives, known := alive[s.Owner]
			if !known {
				lives = a.read.Alive(s.Owner)
				alive[s.Owner] = lives
			}
			if i.OwnerAlive = lives; lives {
				i.OwnerText = a.read.Describe(s.Owner)
			}
		}
		out = append(out, i)
	}
	slices.SortFunc(out, func(x, y SessionInfo) int { return y.UpdatedAt.Compare(x.UpdatedAt) })
	return out, nil
}

// Damaged lists the files of sessions that were set aside, by absolute path.
func (a *Archive) Damaged() ([]string, error) { return a.read.Damaged(context.Background()) }

// Read returns one session.
func (a *Archive) Read(id string) (*machine.State, error) {
	if !machine.IsSessionID(id) {
		return nil, session.Wrong("bad_session_id", "'%s' is no session id: it is 8 hexadecimal characters, as `deepwork sessions list` shows it.", jsontext.Clip(id, 100))
	}
	return a.read.Load(id)
}

// Show returns one session's whole record, as JSON of the file's own shape.
func (a *Archive) Show(ctx context.Context, id string) (json.RawMessage, error) {
	s, err := a.Read(id)
	if err != nil {
		return nil, err
	}
	return s.Encode()
}

// Abort ends an active session. A server that is running and owns it is asked to;
// it is refused if that does not answer.
func (a *Archive) Abort(ctx context.Context, id, reason string, requests store.Requests) error {
	if _, err := a.Read(id); err != nil {
		return err
	}
	w, err := a.writable()
	if err != nil {
		return err
	}
	owner := ""
	_, err = w.Update(id, func(s *machine.State) (*machine.State, error) {
		if s.Status != machine.Active {
			return nil, s.Ended()
		}
		if s.Owner != w.Server() && w.Alive(s.Owner) {
			owner = s.Owner
			return nil, nil
		}
		next, _ := s.Abort(machine.Call{Tool: machine.ToolAbort}, reason, time.Now().UTC().Truncate(time.Microsecond))
		next.Owner = ""
		return next, nil
	})
	if err != nil || owner == "" {
		return err
	}
	arguments, err := jsontext.Encode(reason)
	if err != nil {
		return err
	}
	_, err = requests.Ask(ctx, store.Request{Kind: store.OfSession, Target: id, Action: actionAbort, Arguments: arguments, Channel: "terminal"})
	if errors.Is(err, store.ErrNotAnswered) {
		return session.NotNow("session_owned",
			"Session '%s' is in use by a deepwork server that is running (%s). It was asked to abort the session and has not answered yet. Look whether it did with `deepwork sessions show %s`, or stop that server and call again.", id, w.Describe(owner), id)
	}
	return err
}

// Prunable returns the sessions that ended before the cutoff.
func (a *Archive) Prunable(ctx context.Context, cutoff time.Time) ([]SessionInfo, error) {
	all, err := a.List(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(s SessionInfo) bool {
		ended := s.Status == string(machine.Completed) || s.Status == string(machine.Aborted)
		return !ended || !s.UpdatedAt.Before(cutoff)
	}), nil
}

// Prune removes the files of sessions that ended before the cutoff, and
// definitions kept before it that no session needs any more. It returns the
// sessions' ids.
func (a *Archive) Prune(ctx context.Context, cutoff time.Time) ([]string, error) {
	old, err := a.Prunable(ctx, cutoff)
	if err != nil {
		return nil, err
	}
	w, err := a.writable()
	if err != nil {
		return nil, err
	}
	var removed []string
	for _, s := range old {
		if err := w.Remove(ctx, s.SessionID); err != nil {
			return removed, fmt.Errorf("removing session %s: %w", s.SessionID, err)
		}
		removed = append(removed, s.SessionID)
		notes, err := filepath.Glob(filepath.Join(TmpDir(a.root), "quality_review_"+s.SessionID+"_*.md"))
		for _, path := range notes {
			err = errors.Join(err, os.Remove(path))
		}
		if err != nil {
			return removed, fmt.Errorf("removing the review files of session %s: %w", s.SessionID, err)
		}
	}
	needed := map[string]bool{}
	for info, err := range a.read.List() {
		if err != nil {
			return removed, fmt.Errorf("listing the sessions: %w", err)
		}
		s, err := a.read.Load(info.ID)
		if err != nil {
			return removed, nil // what an unreadable session needs is not known: keep every definition
		}
		needed[s.Definition.Hash] = true
	}
	_, err = w.PruneDefinitions(ctx, cutoff, func(hash string) bool { return needed[hash] })
	return removed, err
}

// ActiveIn lists the active sessions that run a job, for `validate --watch`.
func (a *Archive) ActiveIn(ctx context.Context, jobName string) ([]SessionInfo, error) {
	all, err := a.List(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(s SessionInfo) bool {
		return s.Status != string(machine.Active) || s.JobName != jobName
	}), nil
}
