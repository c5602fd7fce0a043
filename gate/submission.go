// Package gate reviews the outputs of steps. It writes the instructions of a self-review, plans the
// reviews of a submission, builds the input of an external reviewer, runs reviewers in a bounded
// pool that all sessions share in turns, and reads their verdicts. An unclear verdict is an error
// and never passes a step. It stores nothing: the caller stores verdicts by Task.Digest.
package gate

import (
	"fmt"
	"strings"

	"deepwork/catalog/job"
)

// An Output is the submission for one declared output.
type Output struct {
	Name  string
	Paths []string // as submitted, relative to the project root
}

// An Input is what earlier steps submitted for a declared input. It is for reference: it is neither
// judged nor a part of what a verdict is given for (Task.Digest).
type Input struct {
	Name        string
	Description string
	FromStep    string
	Paths       []string // as submitted, relative to the project root
	Omitted     int      // further paths, not listed
}

// A Submission is the outputs of a step, submitted for review.
type Submission struct {
	SessionID string
	Job       *job.Job
	Workflow  string
	Step      *job.Step
	Goal      string
	Inputs    []Input
	Outputs   []Output  // in the author's order
	Notes     string    // the author's; may be empty
	Reviewer  *Reviewer // instead of that of the settings; nil means that one
}

// A Reviewer is an external runner; see Settings for its fields.
type Reviewer struct {
	Claude   bool
	Command  []string
	Program  string
	Allowed  func() error
	Name     string
	Argument bool
	Env      []string
	Answer   func(stdout []byte) []byte
	Ended    func(stdout []byte) error
}

// writeInputs writes the inputs as paths, under a heading of their own. Nothing is inlined.
func (s *Submission) writeInputs(b *strings.Builder) {
	if len(s.Inputs) == 0 {
		return
	}
	b.WriteString("## Inputs (for reference; judge only the outputs)\n\nThe files that the step worked from. Read one if a criterion refers to it.\n\n")
	for _, in := range s.Inputs {
		fmt.Fprintf(b, "- `%s`, from step `%s`: %s\n", in.Name, in.FromStep, oneLine(in.Description))
		for _, p := range in.Paths {
			fmt.Fprintf(b, "  - %s\n", code(p))
		}
		switch {
		case in.Omitted > 0:
			fmt.Fprintf(b, "  - and %d more, not listed\n", in.Omitted)
		case len(in.Paths) == 0:
			b.WriteString("  - (no file was submitted)\n")
		}
	}
	b.WriteString("\n")
}

// paths returns the paths submitted for an output; ok reports whether it was submitted.
func (s *Submission) paths(output string) (paths []string, ok bool) {
	for _, o := range s.Outputs {
		if o.Name == output {
			return o.Paths, true
		}
	}
	return nil, false
}
