package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// An Archive reads, ends and prunes the sessions on disk from outside a server, for the command
// `sessions`; servers may run.
type Archive struct {
	state  *state.Folder
	stores *store.Stores
	log    *slog.Logger
	read   *storedRecords // read only: changes nothing
}

// OpenArchive opens the sessions in the stores of a project, which the caller closes after it. A
// project without any is an empty archive.
func OpenArchive(f *state.Folder, stores *store.Stores, logger *slog.Logger) (*Archive, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	read, err := openRecords(f, stores, true, logger)
	if err != nil {
		return nil, err
	}
	return &Archive{state: f, stores: stores, log: logger, read: read}, nil
}

// Close releases the archive.
func (a *Archive) Close() error {
	return a.read.Close(context.Background())
}

// Requests returns the requests to servers that run.
func (a *Archive) Requests() store.Requests { return a.stores.Database.Requests() }

// writable opens the parts that can be changed. The caller closes them.
func (a *Archive) writable() (*storedRecords, error) {
	return openRecords(a.state, a.stores, false, a.log)
}

// A SessionInfo is a session in a list.
type SessionInfo struct {
	machine.State // without progress, history and replies; if damaged, only SessionID and UpdatedAt

	Status     string // active, completed, aborted; damaged or foreign where Err is set
	Step       string // the current step's id
	Parent     string // the parent's session id, or ""
	OwnerAlive bool   // it runs, so the session is in use
	OwnerText  string // "pid 123 on host …" if known
	Err        error  // why it cannot be read

	open []openStep // for AwaitingAmong
}

// List returns every session, the last changed one first.
func (a *Archive) List(ctx context.Context) ([]SessionInfo, error) {
	var out []SessionInfo
	alive := store.Census(a.read)
	for info, err := range a.read.List(ctx) {
		if err != nil {
			return nil, fmt.Errorf("listing the sessions: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if i, err := a.info(info.ID, info.ModTime, alive); err == nil {
			out = append(out, *i)
		}
	}
	slices.SortFunc(out, func(x, y SessionInfo) int { return y.UpdatedAt.Compare(x.UpdatedAt) })
	return out, nil
}

// Workspaces returns the workspaces of the project's attempts that are on this machine and have
// sessions of their own, the newest attempt's first. A run in place works in the project itself.
func (a *Archive) Workspaces(ctx context.Context) ([]task.Workspace, error) {
	if !a.stores.Database.Exists() {
		return nil, nil
	}
	var here task.Place
	if a.stores.Place != nil {
		here = *a.stores.Place
	}
	all, err := a.stores.Database.Board().Workspaces(ctx, here)
	return slices.DeleteFunc(all, func(w task.Workspace) bool {
		_, err := os.Stat(filepath.Join(w.Path, ".deepwork", "tmp"))
		return err != nil || w.Path == a.state.Root
	}), err
}

// Info returns one session, as List does. Its error is session.Error unknown_session if there is none.
func (a *Archive) Info(id string) (*SessionInfo, error) { return a.info(id, time.Time{}, a.read.Alive) }

func (a *Archive) info(id string, changed time.Time, alive func(server string) bool) (*SessionInfo, error) {
	s, err := a.read.Load(id)
	if session.CodeOf(err) == "unknown_session" {
		return nil, err // removed meanwhile
	}
	if err != nil {
		status := "damaged"
		if session.CodeOf(err) == codeForeign {
			status = "foreign"
		}
		return &SessionInfo{State: machine.State{SessionID: id, UpdatedAt: changed.UTC()}, Status: status, Err: err}, nil
	}
	bare := *s
	bare.StepProgress, bare.History, bare.Replies = nil, nil, nil
	i := &SessionInfo{State: bare, Status: string(s.Status), Step: s.CurrentStepID, open: openSteps(s)}
	if s.ParentSessionID != nil {
		i.Parent = *s.ParentSessionID
	}
	if s.Status == machine.Active && s.Owner != "" {
		if i.OwnerAlive = alive(s.Owner); i.OwnerAlive {
			i.OwnerText = a.read.Describe(s.Owner)
		}
	}
	return i, nil
}

// Damaged lists the session files that were set aside, by absolute path.
func (a *Archive) Damaged() ([]string, error) {
	if a.read.files == nil {
		return nil, nil
	}
	return a.read.files.Damaged(context.Background())
}

// Read returns one session.
func (a *Archive) Read(id string) (*machine.State, error) {
	if !machine.IsSessionID(id) {
		return nil, session.Wrong("bad_session_id", "'%s' is not a session id: expected 8 hexadecimal characters, as `deepwork sessions list` shows it.", jsontext.Clip(id, 100))
	}
	return a.read.Load(id)
}

// Show returns one session's record as JSON, like its file.
func (a *Archive) Show(ctx context.Context, id string) (json.RawMessage, error) {
	s, err := a.Read(id)
	if err != nil {
		return nil, err
	}
	return s.Encode()
}

// Abort ends an active session. It asks the running server that owns it, and fails if that does not
// answer.
func (a *Archive) Abort(ctx context.Context, id, reason string, requests store.Requests) error {
	return a.change(ctx, id, requests, actionAbort, reason, func(s *machine.State) (*machine.State, error) {
		if s.Status != machine.Active {
			return nil, s.Ended()
		}
		next, _ := s.Abort(machine.Call{Tool: machine.ToolAbort}, reason, now())
		next.Owner = ""
		return next, nil
	})
}

// Override records that a person at a terminal overrides the reviews of a current step, whose next
// finished_step then goes on without them. mode is the configured one; a running server that owns
// the session applies its own. given is GivenFor of the session that they were shown.
func (a *Archive) Override(ctx context.Context, id, stepID, given, reason string, mode config.Override, requests store.Requests) error {
	g := grant{Step: stepID, Override: machine.Override{GivenFor: given, Identity: session.LocalIdentity, Channel: session.ChannelTerminal, Reason: reason}}
	return a.change(ctx, id, requests, actionOverride, g, func(s *machine.State) (*machine.State, error) {
		if p := s.Pinned; mode == config.OverrideNever || p != nil && p.Pin && p.Override == config.OverrideNever {
			return nil, nobodyMay(id, stepID)
		}
		g.Override.At = now()
		return s.Grant(stepID, g.Override)
	})
}

// Review records a person's decision about a step that waits for them: about the outputs with a digest,
// which they were shown. An answer is refused if its files have changed since they were handed in.
func (a *Archive) Review(ctx context.Context, id, stepID, digest string, answer machine.Answer, requests store.Requests) error {
	d := decision{stepID, digest, answer}
	return a.change(ctx, id, requests, actionReview, d, func(s *machine.State) (*machine.State, error) {
		if err := asHandedIn(ctx, a.state.Root, s, stepID, digest); err != nil {
			return nil, err
		}
		d.Answer.At = now()
		return s.Answer(stepID, digest, d.Answer)
	})
}

// AsHandedIn returns why a person cannot decide about outputs of a step, or nil: it does not wait
// for one, other outputs than those with the digest were handed in since, or its files have changed.
func (a *Archive) AsHandedIn(ctx context.Context, s *machine.State, stepID, digest string) error {
	return asHandedIn(ctx, a.state.Root, s, stepID, digest)
}

// GivenFor returns what was handed in last for a step, to a reviewer or for a review by the agent
// itself: its digest, "" if nothing was, and its files.
func (a *Archive) GivenFor(s *machine.State, stepID string) (digest string, files []machine.FileHash) {
	if p := s.Progress(stepID); p != nil && p.Question.Open() {
		return p.Question.Digest, p.Question.Files
	}
	if last := s.Progress(stepID).Newest(); last != nil {
		return last.Digest, last.Files
	}
	of := readReviewed(a.read.Sealer(), filepath.Join(a.state.Tmp(), "quality_review_"+s.SessionID+"_"+stepID+".md"))
	return of.Digest, of.Files
}

// Step returns a step of a session, as in the definition that was kept when the session last moved.
func (a *Archive) Step(s *machine.State, stepID string) (*job.Step, error) {
	def, err := a.Definition(s)
	if err != nil {
		return nil, err
	}
	if def.Workflow.Find(stepID) < 0 {
		return nil, fmt.Errorf("session %s has no step %q", s.SessionID, stepID)
	}
	return def.Job.Step(stepID), nil
}

// Definition returns the definition that was kept when a session last moved.
func (a *Archive) Definition(s *machine.State) (*machine.Definition, error) {
	data, err := a.read.Definition(s.Definition.Hash)
	if err != nil {
		return nil, fmt.Errorf("reading the definition of session %s: %w", s.SessionID, err)
	}
	return machine.DecodeBundle(s.Definition, data)
}

// now is the time of a transition that a command makes.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// change makes a transition of a session, or asks the running server that owns it to carry out an
// action with an argument instead.
func (a *Archive) change(ctx context.Context, id string, requests store.Requests, action string, argument any, transition func(*machine.State) (*machine.State, error)) (err error) {
	if _, err := a.Read(id); err != nil {
		return err
	}
	w, err := a.writable()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close(ctx)) }()
	owner := ""
	_, err = w.Update(id, func(s *machine.State) (*machine.State, error) {
		if s.Status == machine.Active && s.Owner != w.Server() && w.Alive(s.Owner) {
			owner = s.Owner
			return nil, nil
		}
		return transition(s)
	})
	if err != nil || owner == "" {
		return err
	}
	arguments, err := jsontext.Encode(argument)
	if err != nil {
		return err
	}
	return askOwner(ctx, requests, id, w.Describe(owner), action, arguments)
}

// Prune removes the files of sessions that ended before the cutoff, and the definitions that no
// session needs then, except those that were put within the last two hours. It returns the sessions'
// ids, and the number of definitions. A dry run removes nothing, and counts no definitions.
func (a *Archive) Prune(ctx context.Context, cutoff time.Time, dryRun bool) (old []string, definitions int, err error) {
	all, err := a.List(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, s := range all {
		if (s.Status == string(machine.Completed) || s.Status == string(machine.Aborted)) && s.UpdatedAt.Before(cutoff) {
			old = append(old, s.SessionID)
		}
	}
	if dryRun {
		return old, 0, nil
	}
	if err := a.state.OwnTmp(); err != nil {
		return nil, 0, err
	}
	w, err := a.writable()
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, w.Close(ctx)) }()
	if len(old) > 0 {
		if err := w.NoteNewest(ctx, pruned, max(cutoff.UnixMicro(), w.Newest(ctx, pruned))); err != nil {
			return nil, 0, err
		}
	}
	for i, id := range old {
		if err := w.Remove(ctx, id); err != nil {
			return old[:i], 0, fmt.Errorf("removing session %s: %w", id, err)
		}
		notes, err := fs.Glob(os.DirFS(a.state.Tmp()), "quality_review_"+id+"_*.md")
		for _, name := range notes {
			err = errors.Join(err, os.Remove(filepath.Join(a.state.Tmp(), name)))
		}
		if err != nil {
			return old[:i+1], 0, fmt.Errorf("removing the review files of session %s: %w", id, err)
		}
	}
	if all, err = a.List(ctx); err != nil {
		return old, 0, err
	}
	needed := map[string]bool{}
	for _, s := range all {
		if s.Err != nil {
			return old, 0, nil // an unreadable session may need any definition: keep them all
		}
		needed[s.Definition.Hash] = true
		if s.Pinned != nil {
			needed[s.Pinned.Definition.Hash] = true
		}
	}
	definitions, err = w.PruneDefinitions(ctx, now(), func(hash string) bool { return needed[hash] })
	return old, definitions, err
}
