package execution

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"deepwork/actor/presence"
)

// recordFormat is the version of a record's format; a newer one is left alone.
const recordFormat = 1

// The stages of a run that has not ended, beside Running, which is one whose
// source has given it an id. Whoever finds a record of a server that is gone
// reads from them what may have happened.
const (
	waiting  State = "waiting"  // for a slot: nothing has been sent
	starting State = "starting" // its request may have been sent
)

// A record is a run as it stands on disk. One that an actor has published is not
// changed any more: next makes another.
type record struct {
	FormatVersion     int             `json:"format_version"`
	ExecutionID       string          `json:"execution_id"`
	Server            string          `json:"server"` // the owner
	Identity          string          `json:"identity"`
	Source            string          `json:"source"`
	WorkflowID        string          `json:"workflow_id"`
	WorkflowName      string          `json:"workflow_name"`
	Async             bool            `json:"async"`
	State             State           `json:"state"`
	SourceExecutionID *string         `json:"source_execution_id"`
	StatusSupported   bool            `json:"status_supported"`
	StartedAt         time.Time       `json:"started_at"`
	Timeout           time.Duration   `json:"timeout_ns"` // 0: none
	Deadline          *time.Time      `json:"deadline"`   // nil: none, or not at the source yet
	EndedAt           *time.Time      `json:"ended_at"`
	Error             *string         `json:"error"`
	Result            json.RawMessage `json:"result"`                    // a short one
	ResultKept        bool            `json:"result_kept"`               // a long one, in a file of its own
	ResultSum         string          `json:"result_checksum,omitempty"` // of that file; "": an older version wrote it
}

func (r *record) next() *record {
	n := *r
	return &n
}

// over tells whether nothing more will be learned of it.
func (r *record) over() bool { return r.EndedAt != nil || !r.StatusSupported }

// holds is the error of what is not the long result of this run.
func (r *record) holds(data []byte) error {
	if !json.Valid(data) {
		return errors.New("it is no JSON")
	}
	if r.ResultSum != "" && checksum(data) != r.ResultSum {
		return errAltered
	}
	return nil
}

// run is what a caller is told.
func (r *record) run() Execution {
	s := r.State
	if s == waiting || s == starting {
		s = Running
	}
	return Execution{
		ExecutionID: r.ExecutionID, SourceExecutionID: r.SourceExecutionID,
		WorkflowID: r.WorkflowID, WorkflowName: r.WorkflowName, Source: r.Source,
		State: s, Result: r.Result, Error: r.Error,
		StartedAt: r.StartedAt, EndedAt: r.EndedAt, StatusSupported: r.StatusSupported,
	}
}

// lastSeen is the time by which a run that is over grows old.
func (r *Execution) lastSeen() time.Time {
	if r.EndedAt != nil {
		return *r.EndedAt
	}
	return r.StartedAt
}

var errNewer = errors.New("it was written by a newer deepwork")

// parseRecord reads the record of a run; errNewer: it is not for this version.
func parseRecord(data []byte) (*record, error) {
	var head struct {
		FormatVersion int `json:"format_version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	if head.FormatVersion > recordFormat {
		return nil, errNewer
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	ended := r.EndedAt != nil
	switch {
	case r.FormatVersion != recordFormat:
		return nil, fmt.Errorf("format_version is %d", r.FormatVersion)
	case !isID(r.ExecutionID):
		return nil, fmt.Errorf("execution_id is %.60q", r.ExecutionID)
	case r.StartedAt.IsZero() || !presence.IsID(r.Server):
		return nil, errors.New("started_at or server is missing")
	}
	switch r.State {
	case waiting, starting, Running:
		if ended {
			return nil, fmt.Errorf("it is %s and has ended", r.State)
		}
	case Completed, Failed, Cancelled, TimedOut, Unknown:
		if !ended {
			return nil, fmt.Errorf("it is %s and has not ended", r.State)
		}
	default:
		return nil, fmt.Errorf("state is %.60q", r.State)
	}
	if r.State == Running && r.StatusSupported && r.SourceExecutionID == nil {
		return nil, errors.New("it runs and has no source_execution_id")
	}
	if string(r.Result) == "null" {
		r.Result = nil
	}
	return &r, nil
}

// clip bounds a text to so many characters.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := 0
	for range limit - 1 {
		_, n := utf8.DecodeRuneInString(s[end:])
		if end += n; end >= len(s) {
			return s
		}
	}
	return s[:end] + "…"
}
