package record

import (
	"encoding/json"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// An OpenStep is a current step that no person has let go on. Whether it waits for one depends on the
// settings.
type OpenStep struct {
	ID      string    `json:"id"`
	Began   time.Time `json:"began"`
	Given   bool      `json:"given,omitempty"`   // it was handed in for a review by a reviewer
	Failed  time.Time `json:"failed,omitzero"`   // when the newest review failed
	Reviews int       `json:"reviews,omitempty"` // of the step that count
	Asked   time.Time `json:"asked,omitzero"`    // when a person was asked to pass its outputs; zero if nobody is asked now
	Shown   time.Time `json:"shown,omitzero"`    // when the agent was told to review it itself
}

// A Waiting is what may wait for a person in an active session: the column of its row.
type Waiting struct {
	Steps    []OpenStep      `json:"steps"`
	Override config.Override `json:"override,omitempty"` // of the session's pin, if it is pinned
	Pin      bool            `json:"pin,omitempty"`
}

// waitingOf returns what may wait for a person in a session, "" if nothing does.
func waitingOf(s *machine.State) string {
	if s.Status != machine.Active {
		return ""
	}
	var w Waiting
	for _, entry := range s.StepProgress {
		p := entry.Value
		if !s.IsCurrent(entry.Key) || p.HasGrant() {
			continue
		}
		step := OpenStep{ID: entry.Key, Began: p.StartedAt, Reviews: p.QualityAttempts}
		if p.Question.Open() {
			step.Asked = p.Question.AskedAt
		}
		if p.Shown != nil {
			step.Shown = p.Shown.At
		}
		if last := p.Newest(); last != nil {
			step.Given = true
			if last.State == machine.AttemptFailed && last.ClosedAt != nil {
				step.Failed = *last.ClosedAt
			}
		}
		if !step.Asked.IsZero() || !step.Shown.IsZero() || !step.Failed.IsZero() {
			w.Steps = append(w.Steps, step)
		}
	}
	if w.Steps == nil {
		return ""
	}
	if p := s.Pinned; p != nil {
		w.Override, w.Pin = p.Override, p.Pin
	}
	text, err := jsontext.Encode(w)
	if err != nil {
		return ""
	}
	return string(text)
}

// WaitingIn returns what may wait for a person in a session of the store.
func WaitingIn(row store.Session) (w Waiting) {
	if row.Waiting == "" || json.Unmarshal([]byte(row.Waiting), &w) != nil {
		return Waiting{}
	}
	return w
}
