package workflow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"deepwork/actor/durable"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// A ForeignSession is a session's file that was not sealed by this installation for this
// project, or an older version of one that was. All that it says is anybody's text.
type ForeignSession struct {
	ID         string
	State      *machine.State // nil where Err is set
	Size       int            // of the file, in bytes
	Definition int            // bytes of the definition that goes with it; 0 if it is not there
	Reason     string         // why it is not ours
	Err        error          // why it cannot be adopted

	file, body, definition, pinned []byte
}

// Foreign returns the sessions with these ids that were not sealed here, or all, if there
// are no ids. It changes nothing.
func (a *Archive) Foreign(ctx context.Context, ids ...string) (found []ForeignSession, err error) {
	if a.read.files == nil {
		return nil, errors.New("sessions in a database are not adopted: those that were files of the project move with deepwork store copy")
	}
	if len(ids) == 0 {
		for info, err := range a.read.List(ctx) {
			if err != nil {
				return nil, fmt.Errorf("listing the sessions: %w", err)
			}
			if _, err := a.read.Peek(info.ID); session.CodeOf(err) == codeForeign {
				ids = append(ids, info.ID)
			}
		}
		slices.Sort(ids)
	}
	locks, err := filepath.Glob(filepath.Join(a.state.Tmp(), "server_*.lock"))
	for _, path := range locks {
		if locked, _ := durable.Locked(path); locked {
			return nil, fmt.Errorf("a server of an earlier version runs here, which holds %s: stop it first", path)
		}
	}
	for _, id := range ids {
		_, err := a.read.Peek(id)
		if err == nil {
			return nil, fmt.Errorf("session %s is of this installation and project already", id)
		} else if session.CodeOf(err) != codeForeign {
			return nil, err
		}
		f := ForeignSession{ID: id}
		older, _ := errors.AsType[*store.ForeignError](err)
		if f.file, f.Reason, err = a.read.files.Foreign(ctx, id); err != nil {
			return nil, fmt.Errorf("reading session %s: %w", id, err)
		}
		if older.Older {
			f.Reason = cmp.Or(f.Reason, older.Reason)
		}
		f.Size = len(f.file)
		if f.Err = f.read(ctx, a.read); f.Err != nil {
			f.State = nil
		}
		found = append(found, f)
	}
	return found, nil
}

// read makes the record that the session would have, and returns why it cannot be.
func (f *ForeignSession) read(ctx context.Context, r *storedRecords) error {
	s, err := machine.Decode(f.ID, f.file)
	if err != nil {
		return err
	}
	next := *s
	next.Seq = max(s.Seq+1, r.Newest(ctx, f.ID))
	if !r.Alive(s.Owner) { // else that server may know it as it was, and goes on with that
		next.Owner = ""
	}
	if f.body, err = next.Encode(); err != nil {
		return err
	}
	if f.State, err = machine.Decode(f.ID, f.body); err != nil {
		return err
	}
	faults := f.State.Faults()
	if f.definition = r.files.ForeignDefinition(s.Definition.Hash); f.definition != nil {
		f.Definition = len(f.definition)
		def, err := machine.DecodeBundle(s.Definition, f.definition)
		if err != nil {
			return err
		}
		faults = append(faults, f.State.FaultsWith(def)...)
	}
	if s.Pinned != nil && s.Pinned.Definition.Hash != s.Definition.Hash {
		f.pinned = r.files.ForeignDefinition(s.Pinned.Definition.Hash)
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}

// Adopt seals sessions that Foreign returned, each as it was then. A running server may
// resume them from then on.
func (a *Archive) Adopt(ctx context.Context, sessions []ForeignSession) (err error) {
	w, err := a.writable()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close(ctx)) }()
	for _, f := range sessions {
		if f.Err != nil {
			return fmt.Errorf("adopting session %s: %w", f.ID, f.Err)
		}
		if f.definition != nil {
			if err := w.PutDefinition(f.State.Definition.Hash, f.definition); err != nil {
				return err
			}
		}
		if f.pinned != nil {
			if err := w.PutDefinition(f.State.Pinned.Definition.Hash, f.pinned); err != nil {
				return err
			}
		}
		for _, key := range keysOf(f.State) {
			if err := w.NoteRequest(ctx, key, f.ID); err != nil {
				return err
			}
		}
		w.NoteActive(f.State)
		if err := w.files.Adopt(ctx, f.ID, f.file, f.body); err != nil {
			return err
		}
		w.newest(ctx, f.State)
	}
	return nil
}

// The seal of a review file is its last line, a comment.
const reviewSealHead, reviewSealTail = "\n<!-- deepwork ", " -->\n"

// sealReview returns what is in the review file at path whose text this is.
func sealReview(s durable.Sealer, path, text string) ([]byte, error) {
	seal, err := s.Sign(filepath.Base(path), []byte(text))
	return []byte(text + reviewSealHead + seal + reviewSealTail), err
}

// reviewOf begins the line that says what a review file is about, as JSON.
const reviewOf = "\n<!-- of "

// submitted is what a review file is about.
type submitted struct {
	Digest string             `json:"digest"`
	Files  []machine.FileHash `json:"files"`
}

// readReviewed returns what the review file at path is about. It is zero if the file was not written
// here, or is not as it was written.
func readReviewed(s durable.Sealer, path string) (of submitted) {
	text, err := readReview(s, path)
	_, line, _ := strings.Cut(string(text[max(bytes.LastIndex(text, []byte(reviewOf)), 0):]), reviewOf)
	line, whole := strings.CutSuffix(line, reviewSealTail)
	if err != nil || !whole || json.Unmarshal([]byte(line), &of) != nil {
		return submitted{}
	}
	return of
}

// verifyReview returns why a review file was not written here, or is not as it was written.
func verifyReview(s durable.Sealer, path string) error {
	_, err := readReview(s, path)
	return err
}

// readReview returns the text of a review file, or nil if it does not exist.
func readReview(s durable.Sealer, path string) ([]byte, error) {
	const most = 64 << 20
	file, _, err := durable.Read(path, most)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		if bad, ok := errors.AsType[*durable.BadFileError](err); ok {
			return nil, errors.New(bad.Reason)
		}
		return nil, err
	}
	n := max(bytes.LastIndex(file, []byte(reviewSealHead)), 0)
	seal := strings.TrimPrefix(string(file[n:]), reviewSealHead)
	seal, _ = strings.CutSuffix(seal, reviewSealTail)
	return file[:n], s.Verify(filepath.Base(path), file[:n], seal)
}
