package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
)

// A Definition is a job's workflow for a session. It is immutable.
type Definition struct {
	Job      *job.Job
	Workflow *job.Workflow
	Ref      DefinitionRef
	// Notice informs callers about it; "" if it is the current job.
	Notice string
	// Kept means that the current job cannot continue the session: this is the stored definition,
	// with instructions.
	Kept bool

	Texts map[string]string // if stored: the instructions by step
	Data  []byte            // the bundle of Ref, to be stored with the transition that uses it; nil if it is stored
}

// A bundle is the file of a stored definition.
type Bundle struct {
	JobDir       string            `json:"job_dir"`
	Workflow     string            `json:"workflow"`
	Source       string            `json:"source"`       // of job.yml
	Instructions map[string]string `json:"instructions"` // by step id; the readable ones
}

// Encode returns the bundle's bytes and their hash.
func (b *Bundle) Encode() (data []byte, hash string, err error) {
	data, err = jsontext.Encode(b) // the keys of a map are sorted: the same Bundle, the same bytes
	return data, Digest(string(data)), err
}

// DecodeBundle makes a stored definition from a bundle's bytes.
func DecodeBundle(ref DefinitionRef, data []byte) (*Definition, error) {
	var b Bundle
	if err := json.Unmarshal(data, &b); err != nil {
		return nil, fmt.Errorf("reading the kept definition %s: %w", ref.Hash, err)
	}
	j, faults := job.Parse(b.JobDir, job.FileName, []byte(b.Source))
	if j == nil {
		return nil, fmt.Errorf("reading the kept definition %s: %w", ref.Hash, faults)
	}
	wf := j.Workflow(b.Workflow)
	if wf == nil {
		return nil, fmt.Errorf("reading the kept definition %s: it has no workflow %q", ref.Hash, b.Workflow)
	}
	return &Definition{Job: j, Workflow: wf, Ref: ref, Kept: true, Texts: b.Instructions}, nil
}

// KeptTexts returns the instructions of an entry of a stored definition.
func (def *Definition) KeptTexts(entry job.Entry) (Instructions, error) {
	texts := make(Instructions, len(entry))
	for _, id := range entry {
		text, ok := def.Texts[id]
		if !ok {
			return nil, session.NotNow(codes.InstructionsLost,
				"The instructions of step '%s' of job '%s' were not kept, because their file was missing when they should have been. Restore the job, or abort the session with abort_workflow.",
				id, def.Job.Name)
		}
		texts[id] = text
	}
	return texts, nil
}

// Digest returns the hex SHA-256 of a text.
func Digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
