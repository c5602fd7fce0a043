package workflow

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// An openStep is a current step that no person has let go on. Whether it waits for one depends on the
// settings.
type openStep struct {
	ID      string    `json:"id"`
	Began   time.Time `json:"began"`
	Given   bool      `json:"given,omitempty"`   // it was handed in for a review by a reviewer
	Failed  time.Time `json:"failed,omitzero"`   // when the newest review failed
	Reviews int       `json:"reviews,omitempty"` // of the step that count
	Asked   time.Time `json:"asked,omitzero"`    // when a person was asked to pass its outputs; zero if nobody is asked now
	Shown   time.Time `json:"shown,omitzero"`    // when the agent was told to review it itself
}

// A waiting is what may wait for a person in an active session: the column of its row.
type waiting struct {
	Steps    []openStep      `json:"steps"`
	Override config.Override `json:"override,omitempty"` // of the session's pin, if it is pinned
	Pin      bool            `json:"pin,omitempty"`
}

// waitingOf returns what may wait for a person in a session, "" if nothing does.
func waitingOf(s *machine.State) string {
	if s.Status != machine.Active {
		return ""
	}
	var w waiting
	for _, entry := range s.StepProgress {
		p := entry.Value
		if !s.IsCurrent(entry.Key) || p.HasGrant() {
			continue
		}
		step := openStep{ID: entry.Key, Began: p.StartedAt, Reviews: p.QualityAttempts}
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

// awaiting returns the open steps of a session that wait for a person: those whose outputs one is asked
// to pass, those whose outputs failed as many reviews as are allowed, and, if only persons may override,
// those that the agent has to review itself.
func awaiting(row store.Session, how Reviewing) (all []session.AwaitingStep) {
	var w waiting
	if row.Waiting == "" || json.Unmarshal([]byte(row.Waiting), &w) != nil {
		return nil
	}
	if (how.Pin || w.Pin) && w.Override.Stricter(how.Override) {
		how.Override = w.Override
	}
	for _, o := range w.Steps {
		step := session.AwaitingStep{SessionID: row.ID, Step: o.ID, Goal: row.Goal, Since: o.Failed}
		switch {
		case !o.Asked.IsZero():
			step.Review, step.Since = true, o.Asked
		case how.Override == config.OverrideNever:
			continue
		case o.Given:
			if o.Failed.IsZero() || o.Reviews < how.MaxAttempts {
				continue
			}
		case how.Override == config.OverrideHuman && !o.Shown.IsZero():
			step.Since = o.Shown
		default:
			continue
		}
		all = append(all, step)
	}
	return all
}

// awaitingBy returns the settings by which steps wait for a person. On a server without reviews only those
// wait that a person is asked to pass.
func (e *Engine) awaitingBy(ctx context.Context) (Reviewing, error) {
	how, err := e.Reviewing(ctx)
	if !e.Reviews {
		how.Override = config.OverrideNever
	}
	return how, err
}

// Awaiting returns the steps that wait for a person, of a caller's active sessions in the project, all if it is
// the owner, and of those of attempts.
func (e *Engine) Awaiting(ctx context.Context, who session.Caller, attempts []string) (all []session.AwaitingStep, err error) {
	how, err := e.awaitingBy(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := e.records.list(ctx, store.SessionQuery{Active: true, Waiting: true, Limit: triedListed})
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if row.AttemptID == "" && (who.Owner || who.Identity == row.Identity) || slices.Contains(attempts, row.AttemptID) {
			all = append(all, awaiting(row, how)...)
		}
	}
	return all, nil
}
