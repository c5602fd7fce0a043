package machine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"deepwork/session"
)

// FormatVersion is the version of the session file this program writes. A file
// of a newer one is refused and left untouched.
const FormatVersion = 1

// SessionStatus is where a session is in its life.
type SessionStatus string

// The values of SessionStatus.
const (
	Active    SessionStatus = "active"
	Completed SessionStatus = "completed"
	Aborted   SessionStatus = "aborted"
)

// A State is everything a session is, and what its file holds (seed 002,
// "Session and State Model"). A State is never changed once it was made: a
// transition makes the next one, which shares what stayed the same. One goroutine at a
// time may encode states that share parts.
type State struct {
	FormatVersion     int                       `json:"format_version"`
	SessionID         string                    `json:"session_id"`
	JobName           string                    `json:"job_name"`
	WorkflowName      string                    `json:"workflow_name"`
	Goal              string                    `json:"goal"`
	InstanceID        *string                   `json:"instance_id"`
	BranchName        string                    `json:"branch_name"`
	Status            SessionStatus             `json:"status"`
	CurrentStepID     string                    `json:"current_step_id"` // of a group, the primary
	CurrentEntryIndex int                       `json:"current_entry_index"`
	ReportedByStepID  bool                      `json:"reported_by_step_id"` // a member of the current entry was
	StepProgress      OrderedMap[*StepProgress] `json:"step_progress"`       // in the order the steps began
	ParentSessionID   *string                   `json:"parent_session_id"`
	AbortReason       *string                   `json:"abort_reason"`
	StartedAt         time.Time                 `json:"started_at"`
	UpdatedAt         time.Time                 `json:"updated_at"` // of the last transition
	CompletedAt       *time.Time                `json:"completed_at"`
	Identity          string                    `json:"identity"` // the caller it belongs to
	Owner             string                    `json:"owner"`    // the server it belongs to
	Definition        DefinitionRef             `json:"definition"`
	History           []*Withdrawal             `json:"history"` // what go_to_step cleared
	Replies           []*StoredReply            `json:"replies"` // for calls that are repeated
}

// A DefinitionRef says which definition of the job the session runs on.
type DefinitionRef struct {
	Hash   string `json:"hash"`    // of the definition kept beside the session files
	Source string `json:"source"`  // hex SHA-256 of its job.yml
	JobDir string `json:"job_dir"` // absolute
}

// StepProgress is what is known of one step that was begun.
type StepProgress struct {
	StepID          string     `json:"step_id"`
	StartedAt       time.Time  `json:"started_at"`
	CompletedAt     *time.Time `json:"completed_at"`
	Outputs         Outputs    `json:"outputs"`
	Notes           *string    `json:"notes"`
	QualityAttempts int        `json:"quality_attempts"` // those that count
	Unreported      bool       `json:"unreported"`       // a member whose group advanced without a report of it
	Overrides       []Override `json:"overrides"`
	Attempts        []*Attempt `json:"attempts"` // of external reviews

	encoded []byte // its JSON, made by the first State.Encode
}

// An Override is a quality review that was skipped on the caller's word.
type Override struct {
	At       time.Time `json:"at"`
	Identity string    `json:"identity"` // who
	Reason   string    `json:"reason"`
	Skipped  []string  `json:"skipped_reviews"` // run_each of each
}

// A Withdrawal is what one go_to_step cleared.
type Withdrawal struct {
	At       time.Time                 `json:"at"`
	From     string                    `json:"from_step"`
	To       string                    `json:"to_step"`
	Progress OrderedMap[*StepProgress] `json:"step_progress"`

	encoded []byte
}

// A StoredReply is the reply to a transition, kept so that the same call gives
// it again. Stack, and what the parent is at, are not in it: they are added, as they
// are then, when the reply is given.
type StoredReply struct {
	Tool       string          `json:"tool"`
	RequestID  *string         `json:"request_id"`
	ArgsDigest string          `json:"args_digest"`     // of the call's arguments, without request_id
	StepID     string          `json:"step_id"`         // finished_step: which
	EntryIndex int             `json:"entry_index"`     // finished_step: of that step's entry
	Reply      any             `json:"-"`               // *StartReply, *FinishReply, *AbortReply or *GoToReply
	Raw        json.RawMessage `json:"reply"`           // Reply as JSON; made when it is first encoded
	Refusal    *session.Error  `json:"error,omitempty"` // the answer in place of a reply

	encoded []byte
}

// ReplyOf returns a copy of a stored reply, or the error that was the answer.
func ReplyOf[R any](s *StoredReply) (*R, error) {
	if s.Refusal != nil {
		return nil, cloneError(s.Refusal)
	}
	if r, ok := s.Reply.(*R); ok {
		c := *r
		return &c, nil
	}
	r := new(R)
	if err := json.Unmarshal(s.Raw, r); err != nil {
		return nil, fmt.Errorf("reading the stored reply to %s: %w", s.Tool, err)
	}
	return r, nil
}

// cloneError returns a copy, to which its owner may add details.
func cloneError(e *session.Error) *session.Error {
	c := *e
	c.Details = maps.Clone(e.Details)
	return &c
}

// KeptRequests is how many replies to calls with a request_id a session keeps.
const KeptRequests = 8

// Progress returns what is known of a step, or nil.
func (s *State) Progress(stepID string) *StepProgress {
	p, _ := s.StepProgress.Get(stepID)
	return p
}

// Next returns a copy to be changed; slices are cloned where they are changed.
func (s *State) Next(at time.Time) *State {
	n := *s
	n.UpdatedAt = at
	return &n
}

// setProgress replaces the progress of a step in a clone of the map.
func (s *State) setProgress(changed ...*StepProgress) {
	m := make(OrderedMap[*StepProgress], len(s.StepProgress), len(s.StepProgress)+len(changed))
	copy(m, s.StepProgress)
	for _, p := range changed {
		m = m.Set(p.StepID, p)
	}
	s.StepProgress = m
}

// Done reports whether the step was finished. p may be nil.
func (p *StepProgress) Done() bool { return p != nil && p.CompletedAt != nil }

// clone copies a step's progress without its cached encoding.
func (p *StepProgress) clone() *StepProgress {
	n := *p
	n.encoded = nil
	return &n
}

// remember adds a reply and forgets those that no retry can ask for any more:
// finished_step's of entries before the one that ended last, and all but the
// newest few of calls with a request_id.
func (s *State) remember(r *StoredReply, oldestEntry int) {
	kept := make([]*StoredReply, 0, len(s.Replies)+1)
	requests := 0
	if r.RequestID != nil {
		requests++
	}
	for _, o := range slices.Backward(s.Replies) {
		byStep := o.Tool == ToolFinish && o.StepID != "" && o.EntryIndex >= oldestEntry
		byRequest := o.RequestID != nil && requests < KeptRequests
		if byRequest {
			requests++
		}
		first := o.Tool == ToolAbort && o.RequestID == nil
		if byStep || byRequest || first {
			kept = append(kept, o)
		}
	}
	slices.Reverse(kept)
	s.Replies = append(kept, r)
}

// StoredReply returns the reply to a call with this request_id.
func (s *State) StoredReply(tool, requestID string) *StoredReply {
	return s.findReply(func(r *StoredReply) bool { return r.Tool == tool && r.RequestID != nil && *r.RequestID == requestID })
}

// findReply returns the newest reply that matches, or nil.
func (s *State) findReply(match func(*StoredReply) bool) *StoredReply {
	for _, r := range slices.Backward(s.Replies) {
		if match(r) {
			return r
		}
	}
	return nil
}

// KeepAnswer keeps the answer to a finished_step that moved nothing, a reply or a
// refusal, under the call's request_id. It returns s if the call has none.
func (s *State) KeepAnswer(c Call, entry int, reply *FinishReply, refusal *session.Error) *State {
	if c.RequestID == nil {
		return s
	}
	stored := c.stored(reply)
	stored.EntryIndex = entry
	if refusal != nil {
		stored.Refusal = cloneError(refusal)
	}
	n := s.Next(s.UpdatedAt)
	n.remember(stored, 0)
	return n
}

// Alias keeps a reply under the request_id of a call that repeats the one it was
// given to. It returns s if there is one under it, if the call has none, or if the
// session has ended, since then the call can move nothing.
func (s *State) Alias(r *StoredReply, c Call) *State {
	if s.Status != Active || c.RequestID == nil || s.StoredReply(c.Tool, *c.RequestID) != nil {
		return s
	}
	stored := c.stored(r.Reply) // no StepID: it is there for its request_id alone
	stored.EntryIndex, stored.Raw = r.EntryIndex, r.Raw
	n := s.Next(s.UpdatedAt)
	n.remember(stored, r.EntryIndex)
	return n
}

// The names of the tools, as replies and request ids are filed under them.
const (
	ToolStart  = "start_workflow"
	ToolFinish = "finished_step"
	ToolAbort  = "abort_workflow"
	ToolGoTo   = "go_to_step"
)
