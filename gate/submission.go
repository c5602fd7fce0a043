// Package gate reviews the outputs of steps. It writes the instructions of a self-review, plans the
// reviews of a submission, builds the input of an external reviewer, runs reviewers in a bounded
// pool that all sessions share in turns, and reads their verdicts. An unclear verdict is an error
// and never passes a step. It stores nothing: the caller stores verdicts by Task.Digest.
package gate

import "deepwork/catalog/job"

// An Output is the submission for one declared output.
type Output struct {
	Name  string
	Paths []string // as submitted, relative to the project root
}

// A Submission is the outputs of a step, submitted for review.
type Submission struct {
	SessionID string
	Job       *job.Job
	Workflow  string
	Step      *job.Step
	Goal      string
	Outputs   []Output  // in the author's order
	Notes     string    // the author's; may be empty
	Reviewer  *Reviewer // instead of that of the settings; nil means that one
}

// A Reviewer is an external runner; see Settings for its fields.
type Reviewer struct {
	Claude  bool
	Command []string
	Program string
	Allowed func() error
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
