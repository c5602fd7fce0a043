package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"deepwork/session"
)

// encode gives the session file's JSON: keys in State's order, indented by two
// spaces, ending in "\n}". What did not change since it was last encoded is not
// encoded again, so that a step late in a long workflow costs what the first did.
func (s *State) encode() ([]byte, error) {
	size := 8192
	for _, p := range s.StepProgress {
		if b := p.Value.encoded.Load(); b != nil {
			size += len(*b) + len(p.Key) + 16
		}
	}
	e := encoder{buf: make([]byte, 0, size)}
	e.buf = append(e.buf, '{')
	e.field("format_version", s.FormatVersion)
	e.field("session_id", s.SessionID)
	e.field("job_name", s.JobName)
	e.field("workflow_name", s.WorkflowName)
	e.field("goal", s.Goal)
	e.field("instance_id", s.InstanceID)
	e.field("branch_name", s.BranchName)
	e.field("status", s.Status)
	e.field("current_step_id", s.CurrentStepID)
	e.field("current_entry_index", s.CurrentEntryIndex)
	e.field("reported_by_step_id", s.ReportedByStepID)
	e.key("step_progress")
	e.open('{')
	for i, p := range s.StepProgress {
		e.element(i)
		e.string(p.Key)
		e.buf = append(e.buf, ": "...)
		e.cached(&p.Value.encoded, func() { e.progress(p.Value) })
	}
	e.close('}', len(s.StepProgress))
	e.field("parent_session_id", s.ParentSessionID)
	e.field("abort_reason", s.AbortReason)
	e.field("started_at", s.StartedAt)
	e.field("updated_at", s.UpdatedAt)
	e.field("completed_at", s.CompletedAt)
	e.field("identity", s.Identity)
	e.field("owner", s.Owner)
	e.field("definition", s.Definition)
	e.key("history")
	e.open('[')
	for i, w := range s.History {
		e.element(i)
		e.cached(&w.encoded, func() { e.value(w, "    ") })
	}
	e.close(']', len(s.History))
	e.key("replies")
	e.open('[')
	for i, r := range s.Replies {
		e.element(i)
		if r.Raw == nil && e.err == nil {
			r.Raw, e.err = marshal(r.Reply)
		}
		e.cached(&r.encoded, func() { e.reply(r) })
	}
	e.close(']', len(s.Replies))
	if e.err != nil {
		return nil, fmt.Errorf("encoding session %s: %w", s.SessionID, e.err)
	}
	return append(e.buf, "\n}"...), nil
}

// An encoder writes the indented object by hand around json.Marshal's values,
// because elements are taken from their caches and most fields are simple.
type encoder struct {
	buf   []byte
	inner bool // within an element: keys are indented deeper
	count int  // keys so far
	err   error
}

func (e *encoder) key(name string) {
	if e.count > 0 {
		e.buf = append(e.buf, ',')
	}
	e.count++
	indent := "\n  \""
	if e.inner {
		indent = "\n      \""
	}
	e.buf = append(append(append(e.buf, indent...), name...), "\": "...)
}

func (e *encoder) field(name string, v any) {
	e.key(name)
	if e.inner {
		e.value(v, "      ")
	} else {
		e.value(v, "  ")
	}
}

// object writes an element that is an object, by its fields.
func (e *encoder) object(fields func()) {
	outer := e.count
	e.count, e.inner = 0, true
	e.buf = append(e.buf, '{')
	fields()
	e.buf = append(e.buf, "\n    }"...)
	e.count, e.inner = outer, false
}

// progress writes what is known of a step; it is what json.Marshal gives.
func (e *encoder) progress(p *StepProgress) {
	e.object(func() {
		e.field("step_id", p.StepID)
		e.field("started_at", p.StartedAt)
		e.field("completed_at", p.CompletedAt)
		e.field("outputs", p.Outputs)
		e.field("notes", p.Notes)
		e.field("quality_attempts", p.QualityAttempts)
		e.field("unreported", p.Unreported)
		e.field("overrides", p.Overrides)
		e.field("attempts", p.Attempts)
	})
}

// reply writes a stored reply; it is what json.Marshal gives.
func (e *encoder) reply(r *StoredReply) {
	e.object(func() {
		e.field("tool", r.Tool)
		e.field("request_id", r.RequestID)
		e.field("args_digest", r.ArgsDigest)
		e.field("step_id", r.StepID)
		e.field("entry_index", r.EntryIndex)
		e.key("reply")
		e.indent(r.Raw, "      ")
	})
}

func (e *encoder) string(s string) { e.value(s, "") }

func (e *encoder) value(v any, prefix string) {
	if e.err != nil {
		return
	}
	switch v := v.(type) { // what most fields are needs no reflection
	case string:
		if plain(v) {
			e.buf = append(append(append(e.buf, '"'), v...), '"')
			return
		}
	case *string:
		if v == nil {
			e.buf = append(e.buf, "null"...)
			return
		}
		e.value(*v, prefix)
		return
	case int:
		e.buf = strconv.AppendInt(e.buf, int64(v), 10)
		return
	case bool:
		e.buf = strconv.AppendBool(e.buf, v)
		return
	case time.Time:
		if v.Year() >= 0 && v.Year() < 10000 {
			e.buf = append(e.buf, '"')
			e.buf = append(v.AppendFormat(e.buf, time.RFC3339Nano), '"')
			return
		}
	case *time.Time:
		if v == nil {
			e.buf = append(e.buf, "null"...)
			return
		}
		e.value(*v, prefix)
		return
	case []Override:
		if v == nil {
			e.buf = append(e.buf, "null"...)
			return
		}
	case []*Attempt:
		if v == nil {
			e.buf = append(e.buf, "null"...)
			return
		}
	}
	raw, err := marshal(v)
	if err != nil {
		e.err = err
		return
	}
	e.indent(raw, prefix)
}

// indent appends a JSON value, indented where it has an inside.
func (e *encoder) indent(raw []byte, prefix string) {
	if e.err != nil {
		return
	}
	if len(raw) == 0 || raw[0] != '{' && raw[0] != '[' {
		e.buf = append(e.buf, raw...)
		return
	}
	out := bytes.NewBuffer(e.buf) // appends to it
	if e.err = json.Indent(out, raw, prefix, "  "); e.err == nil {
		e.buf = out.Bytes()
	}
}

// plain tells whether a string is its own JSON.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func (e *encoder) open(b byte) { e.buf = append(e.buf, b) }

func (e *encoder) element(i int) {
	if i > 0 {
		e.buf = append(e.buf, ',')
	}
	e.buf = append(e.buf, "\n    "...)
}

func (e *encoder) close(b byte, n int) {
	if n > 0 {
		e.buf = append(e.buf, "\n  "...)
	}
	e.buf = append(e.buf, b)
}

// cached appends the indented JSON of an immutable element.
func (e *encoder) cached(cache *atomic.Pointer[[]byte], write func()) {
	if b := cache.Load(); b != nil {
		e.buf = append(e.buf, *b...)
		return
	}
	start := len(e.buf)
	write()
	if e.err == nil {
		b := slices.Clone(e.buf[start:])
		cache.Store(&b)
	}
}

// marshal is json.Marshal that leaves <, > and & readable.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

var sessionIDPattern = regexp.MustCompile(`^[0-9a-f]{8}$`)

// decode reads a session file's JSON and checks what the rest relies on.
func decode(id string, data []byte) (*State, error) {
	var head struct {
		FormatVersion int `json:"format_version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("reading session %s: %w", id, err)
	}
	if head.FormatVersion > FormatVersion {
		return nil, session.NotNow("session_too_new",
			"Session '%s' was written by a newer deepwork (file format %d, this program knows %d). It was left untouched; use that version, or a newer one.",
			id, head.FormatVersion, FormatVersion).With("session_id", id)
	}
	s := new(State)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("reading session %s: %w", id, err)
	}
	if err := s.check(id); err != nil {
		return nil, fmt.Errorf("reading session %s: %w", id, err)
	}
	return s, nil
}

// check tells whether a state could be one of ours.
func (s *State) check(id string) error {
	switch {
	case s.FormatVersion < 1:
		return fmt.Errorf("format_version is %d", s.FormatVersion)
	case s.SessionID != id:
		return fmt.Errorf("session_id is %q", s.SessionID)
	case s.Status != Active && s.Status != Completed && s.Status != Aborted:
		return fmt.Errorf("status is %q", s.Status)
	case s.JobName == "" || s.WorkflowName == "":
		return fmt.Errorf("job_name or workflow_name is empty")
	case s.CurrentEntryIndex < 0:
		return fmt.Errorf("current_entry_index is %d", s.CurrentEntryIndex)
	case s.CurrentStepID == "":
		return fmt.Errorf("current_step_id is empty")
	case s.Status != Active && s.CompletedAt == nil:
		return fmt.Errorf("completed_at is null in a session that is %s", s.Status)
	}
	for _, p := range s.StepProgress {
		if p.Value == nil || p.Value.StepID != p.Key {
			return fmt.Errorf("step_progress of %q is not that step's", p.Key)
		}
		if slices.ContainsFunc(p.Value.Attempts, badAttempt) {
			return fmt.Errorf("step_progress of %q has an attempt that is none", p.Key)
		}
	}
	if s.Status == Active && s.progress(s.CurrentStepID) == nil {
		return fmt.Errorf("current step %q was never begun", s.CurrentStepID)
	}
	for i, w := range s.History {
		if w == nil {
			return fmt.Errorf("history[%d] is null", i)
		}
		for _, p := range w.Progress {
			if p.Value == nil {
				return fmt.Errorf("history[%d].step_progress of %q is null", i, p.Key)
			}
		}
	}
	for i, r := range s.Replies {
		if r == nil {
			return fmt.Errorf("replies[%d] is null", i)
		}
	}
	return nil
}

func badAttempt(a *Attempt) bool { return a == nil || slices.Contains(a.Verdicts, nil) }
