package machine

import (
	"encoding/json"
	"fmt"
	"slices"

	"deepwork/session"
)

// IsSessionID tells whether a text is 8 lower-case hexadecimal characters.
func IsSessionID(text string) bool {
	if len(text) != 8 {
		return false
	}
	for _, c := range []byte(text) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Decode reads a session file's JSON and checks what the rest relies on.
func Decode(id string, data []byte) (*State, error) {
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
	if s.Status == Active && s.Progress(s.CurrentStepID) == nil {
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
			if slices.ContainsFunc(p.Value.Attempts, badAttempt) {
				return fmt.Errorf("history[%d].step_progress of %q has an attempt that is none", i, p.Key)
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
