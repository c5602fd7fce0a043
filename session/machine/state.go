package machine

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/judging"
	"deepwork/session/outputs"
	"deepwork/session/replies"
)

// FormatVersion is the version of a session's JSON that this program writes. A session of a newer version is
// refused and left unchanged.
const FormatVersion = 1

// SessionStatus is the status of a session.
type SessionStatus string

// The values of SessionStatus.
const (
	Active    SessionStatus = "active"
	Completed SessionStatus = "completed"
	Aborted   SessionStatus = "aborted"
)

// A State is the state of a session, and the content of its export (seed 002, "Session and State Model"). A
// State never changes: a transition makes the next one, which shares unchanged parts. States that share parts
// must not be encoded concurrently.
type State struct {
	FormatVersion int                  `json:"format_version"`
	SessionID     string               `json:"session_id"`
	Revision      int64                `json:"revision"` // incremented by Next
	JobName       string               `json:"job_name"`
	WorkflowName  string               `json:"workflow_name"`
	Goal          string               `json:"goal"`
	Inputs        outputs.Map          `json:"inputs,omitempty"` // values of the workflow's inputs
	InstanceID    *string              `json:"instance_id"`
	BranchName    string               `json:"branch_name"`
	BranchStatus  replies.BranchStatus `json:"branch_status"`
	// no transition has recorded yet that the branch was made
	BranchDue         bool          `json:"branch_due,omitempty"`
	Status            SessionStatus `json:"status"`
	CurrentStepID     string        `json:"current_step_id"` // in a group, that of the primary
	CurrentEntryIndex int           `json:"current_entry_index"`
	// a member of the current entry was reported by its step_id
	ReportedByStepID bool                               `json:"reported_by_step_id"`
	StepProgress     jsontext.OrderedMap[*StepProgress] `json:"step_progress"` // in the order the steps began
	ParentSessionID  *string                            `json:"parent_session_id"`
	// the step of the parent that this session is; "" if an agent began it
	CalledAs string `json:"called_as,omitempty"`
	// begun by a run that gives items their own worktrees, if their form asks for that
	Isolated bool `json:"isolated,omitempty"`
	// it is a step, or nested in one, during which other agents may change its folder
	Shared      bool       `json:"shared,omitempty"`
	AbortReason *string    `json:"abort_reason"`
	StartedAt   time.Time  `json:"started_at"`
	UpdatedAt   time.Time  `json:"updated_at"` // the time of the last transition
	CompletedAt *time.Time `json:"completed_at"`
	Identity    string     `json:"identity"` // the caller to whom the session belongs
	// the place of the server that last moved it; nil in a store of one machine
	Place *task.Place `json:"place,omitempty"`
	// the attempt of the task board whose agent began it; "" if a person did
	AttemptID string `json:"attempt_id,omitempty"`
	// when it was imported: reviews and decisions in an export are no evidence; nil if begun here
	ImportedAt *time.Time    `json:"imported_at,omitempty"`
	Definition DefinitionRef `json:"definition"`
	// the hash of job.yml at each place that has moved it, by task.Place.Key; "" in a store of one machine
	Sources map[string]string `json:"sources"`
	// the traceparent of what the session belongs to; "" if nothing was exported when it began
	Trace    string         `json:"trace,omitempty"`
	Pinned   *Pinned        `json:"pinned,omitempty"`   // nil means nothing is pinned
	Weakened []Weakening    `json:"weakened,omitempty"` // edits that removed or weakened pinned reviews
	History  []*Withdrawal  `json:"history"`            // what go_to_step and rounds cleared
	Replies  []*StoredReply `json:"replies"`            // to answer repeated calls

	frame []byte // the JSON without the lists, cached by encodeFrame
}

// IsSessionID reports whether a text is 8 lower-case hexadecimal characters.
func IsSessionID(text string) bool {
	id, err := hex.DecodeString(text)
	return err == nil && len(id) == 4 && strings.ToLower(text) == text
}

// A DefinitionRef refers to the definition of a session's job.
type DefinitionRef struct {
	Hash   string `json:"hash"`    // of the stored definition
	Source string `json:"source"`  // hex SHA-256 of its job.yml
	JobDir string `json:"job_dir"` // absolute
}

// Pinned says how the steps of a session were to be reviewed when it began.
type Pinned struct {
	// a Reviewer constant of package pin, or the words of a command as a JSON list
	Reviewer   string          `json:"reviewer"`
	Override   config.Override `json:"override"`
	Pin        bool            `json:"pin"`        // the session ignores an edit that weakens its reviews
	Definition DefinitionRef   `json:"definition"` // with the criteria
}

// A Weakening is an edit that removed or weakened reviews before a step was finished.
type Weakening struct {
	At   time.Time `json:"at"`
	Step string    `json:"step"` // the finished step
	What []string  `json:"what"`
}

// StepProgress is the progress of a step that has begun.
type StepProgress struct {
	StepID       string             `json:"step_id"`
	StartedAt    time.Time          `json:"started_at"`
	CompletedAt  *time.Time         `json:"completed_at"`
	Outputs      outputs.Map        `json:"outputs"`
	Notes        *string            `json:"notes"`
	QualityTries int                `json:"quality_attempts"`        // number of tries that count
	FailedChecks int                `json:"failed_checks,omitempty"` // number of failed tries of its checks
	Protected    *Protected         `json:"protected,omitempty"`     // by its checks; nil if they protect no files
	Unreported   bool               `json:"unreported"`              // a member not reported before its group moved on
	Overrides    []judging.Override `json:"overrides"`
	// what was handed in, the oldest first
	Submissions []*judging.Submission `json:"submissions"`
	Finished    int64                 `json:"finished_with,omitempty"` // the id of the submission; 0 means none
	// a person's override, for the next finished_step
	Granted *judging.Override `json:"granted_override,omitempty"`
	// where its outputs were delivered; nil in a store of one machine
	Place *task.Place `json:"place,omitempty"`

	// the items in its outputs over which a for_each iterates
	Lists map[string][]json.RawMessage `json:"lists,omitempty"`
	// on the first step of a repeated form; nil means the first round
	Round   *replies.Round    `json:"round,omitempty"`
	Child   string            `json:"child,omitempty"`   // the session of a step that is a workflow
	Ended   *judging.RoundEnd `json:"ended,omitempty"`   // on the last step of a round: see judging.Now
	Dropped *judging.Override `json:"dropped,omitempty"` // a person dropped its item
	// the folder in which its item is worked on until it is merged, relative to the session's; "" means the
	// session's, "." means that the item gets one later
	Folder string `json:"folder,omitempty"`

	encoded []byte // the JSON, cached by State.Encode
}

// A Withdrawal is the progress that one go_to_step, or a new round, cleared.
type Withdrawal struct {
	At       time.Time                          `json:"at"`
	From     string                             `json:"from_step"`
	To       string                             `json:"to_step"`
	Progress jsontext.OrderedMap[*StepProgress] `json:"step_progress"`

	encoded []byte
}

// A StoredReply is the reply to a transition, stored to answer a repeated call. It lacks Stack and the
// parent's position; their current values are added when the reply is sent.
type StoredReply struct {
	Tool       string          `json:"tool"`
	RequestID  *string         `json:"request_id"`
	ArgsDigest string          `json:"args_digest"`     // of the call's arguments, without request_id
	StepID     string          `json:"step_id"`         // finished_step: the finished step
	EntryIndex int             `json:"entry_index"`     // finished_step: the index of its entry
	Reply      any             `json:"-"`               // *StartReply, *FinishReply, *AbortReply or *GoToReply
	Raw        json.RawMessage `json:"reply"`           // Reply as JSON, set when first encoded
	Refusal    *session.Error  `json:"error,omitempty"` // an error returned instead of a reply
	CallID     string          `json:"call_id,omitempty"`
	Named      bool            `json:"named,omitempty"` // finished_step: the call named its session
	Revision   int64           `json:"revision"`        // the state's revision after the call; identifies the reply

	encoded []byte
}

// ReplyOf returns a copy of a stored reply, or the error that was returned instead.
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

// cloneError returns a copy to which its owner may add details.
func cloneError(e *session.Error) *session.Error {
	c := *e
	c.Details = maps.Clone(e.Details)
	return &c
}

// keptItems is the number of stored replies about items.
const keptItems = 64

// KeptRequests is the number of stored replies to calls with a request_id.
const KeptRequests = 8

// Progress returns the progress of a step, or nil.
func (s *State) Progress(stepID string) *StepProgress {
	p, _ := s.StepProgress.Get(stepID)
	return p
}

// Next returns a copy that may be changed; clone its slices before changing them.
func (s *State) Next(at time.Time) *State {
	n := *s
	n.Revision++
	n.UpdatedAt, n.frame = at, nil
	return &n
}

// setProgress replaces the progress of steps in a clone of the map.
func (s *State) setProgress(changed ...*StepProgress) {
	m := make(jsontext.OrderedMap[*StepProgress], len(s.StepProgress), len(s.StepProgress)+len(changed))
	copy(m, s.StepProgress)
	for _, p := range changed {
		m = m.Set(p.StepID, p)
	}
	s.StepProgress = m
}

// FailedTries returns how many tries of the session's steps have failed, with those that were withdrawn.
func (s *State) FailedTries() (n int) {
	all := s.StepProgress
	for _, w := range s.History {
		all = append(slices.Clip(all), w.Progress...)
	}
	for _, p := range all {
		n += p.Value.FailedChecks + p.Value.FailedTries()
	}
	return n
}

// Done reports whether the step was finished. p may be nil.
func (p *StepProgress) Done() bool { return p != nil && p.CompletedAt != nil }

// clone copies a step's progress without its cached encoding.
func (p *StepProgress) clone() *StepProgress {
	n := *p
	n.encoded = nil
	return &n
}

// remember adds a reply and drops those that no call can repeat any more: finished_step's for entries before
// the last ended one, and all but the newest few of calls with a request_id.
func (s *State) remember(r *StoredReply, oldestEntry int) {
	kept := make([]*StoredReply, 0, len(s.Replies)+1)
	requests, items := 0, 0
	if r.RequestID != nil {
		requests++
	}
	for _, o := range slices.Backward(s.Replies) {
		byStep := o.Tool == ToolFinish && o.StepID != "" && o.EntryIndex >= oldestEntry
		if _, _, item := job.SplitItem(o.StepID); byStep && item {
			items++
			byStep = items < keptItems
		}

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
	r.Revision = s.Revision
	s.Replies = append(kept, r)
}

// weaken records how the reviews are weaker than the pinned ones, unless that is already recorded. s is being
// made.
func (s *State) weaken(stepID string, what []string, at time.Time) {
	what = slices.DeleteFunc(slices.Clone(what), func(text string) bool {
		return slices.ContainsFunc(s.Weakened, func(w Weakening) bool { return slices.Contains(w.What, text) })
	})
	if len(what) > 0 {
		s.Weakened = append(slices.Clone(s.Weakened), Weakening{at, stepID, what})
	}
}

// StoredReply returns the reply to a call with this request_id, or nil.
func (s *State) StoredReply(tool, requestID string) *StoredReply {
	return s.findReply(func(r *StoredReply) bool {
		return r.Tool == tool && r.RequestID != nil && *r.RequestID == requestID
	})
}

// OwnReply returns the reply that an earlier application of the same call stored, or nil.
func (s *State) OwnReply(c Call) *StoredReply {
	return s.findReply(func(r *StoredReply) bool { return c.ID != "" && r.CallID == c.ID })
}

// WithSource returns the state with the hash of job.yml at the place that moves the session.
func (s *State) WithSource(place, hash string) *State {
	if now, known := s.Sources[place]; known && now == hash {
		return s
	}

	n := *s
	n.frame, n.Sources = nil, maps.Clone(s.Sources)
	if n.Sources == nil {
		n.Sources = map[string]string{}
	}
	n.Sources[place] = hash
	return &n
}

// In returns the state of a session at a place.
func (s *State) In(p *task.Place) *State {
	if s.Place == p {
		return s
	}
	n := *s
	n.Place, n.frame = p, nil
	return &n
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

// KeepAnswer stores the answer to a finished_step that moved nothing, a reply or a refusal, under the call's
// request_id. Without a request_id it returns s.
func (s *State) KeepAnswer(c Call, entry int, reply *replies.Finish, refusal *session.Error) *State {
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

// Alias stores a reply under the request_id of a call that repeats the original one. It returns s if a reply
// is stored under it already, if the call has no request_id, or if the session has ended and the call can no
// longer move anything.
func (s *State) Alias(r *StoredReply, c Call) *State {
	if s.Status != Active || c.RequestID == nil || s.StoredReply(c.Tool, *c.RequestID) != nil {
		return s
	}

	stored := c.stored(r.Reply) // without StepID: stored only for its request_id
	stored.EntryIndex, stored.Raw = r.EntryIndex, r.Raw
	n := s.Next(s.UpdatedAt)
	n.remember(stored, r.EntryIndex)
	return n
}

// The names of the tools in stored replies and request ids.
const (
	ToolStart  = "start_workflow"
	ToolFinish = "finished_step"
	ToolAbort  = "abort_workflow"
	ToolGoTo   = "go_to_step"
)

// imported is the reason that a review in progress becomes void in an imported session.
const imported = "the session was imported while its review ran"

// Imported returns a decoded export as the state of a session that is imported at this time. Decisions of
// reviewers and people stay readable but finish no step: verdicts and evidence are marked, and what the next
// finished_step would rely on is dropped. The session belongs to no attempt and no place.
func (s *State) Imported(at time.Time) *State {
	n := s.Next(at)
	// a revision that no process has in memory, even of a removed session with this id
	n.Revision = max(n.Revision, at.UnixMicro())
	n.ImportedAt = &at
	n.AttemptID = ""
	n.Place = nil
	n.BranchDue = false
	n.StepProgress = importedSteps(s.StepProgress, at)
	n.History = slices.Clone(s.History)
	for i, w := range n.History {
		n.History[i] = &Withdrawal{At: w.At, From: w.From, To: w.To, Progress: importedSteps(w.Progress, at)}
	}
	return n
}

func importedSteps(steps jsontext.OrderedMap[*StepProgress], at time.Time) jsontext.OrderedMap[*StepProgress] {
	all := slices.Clone(steps)
	for i, entry := range all {
		p := entry.Value.clone()
		p.Granted = nil
		p.Place = nil
		p.Protected = nil
		p.Folder = ""
		p.Submissions, p.QualityTries = nil, 0
		for _, u := range entry.Value.left(imported, at).Submissions {
			n := *u
			n.Imported, n.Told = true, true
			if n.Counts() {
				p.QualityTries++
			}
			if !n.FailedBy(judging.ByShape) || n.ID == p.Finished {
				p.Submissions = append(p.Submissions, &n)
			}
		}
		all[i].Value = p
	}
	return all
}

// Branch returns the git branch made for the session, or "". An imported session has no branch of its own.
func (s *State) Branch() string {
	made := s.BranchStatus == replies.BranchCreated || s.BranchStatus == replies.BranchCheckedOut
	if !made || s.ImportedAt != nil {
		return ""
	}
	return s.BranchName
}

// BranchInWords returns the name of the session's branch for people. The branch may not exist in git.
func (s *State) BranchInWords() string {
	if s.BranchStatus == replies.BranchNamed || s.BranchStatus == replies.BranchOutsideGit {
		return s.BranchName + " (" + string(s.BranchStatus) + ")"
	}
	return s.BranchName
}
