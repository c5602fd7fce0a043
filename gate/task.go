// Package gate reviews the outputs of steps. It writes the instructions of a self-review, plans the
// reviews of a submission, builds the input of an external reviewer, runs reviewers in a bounded
// pool that all sessions share in turns, and reads their verdicts. An unclear verdict is an error
// and never passes a step. It stores nothing: the caller stores verdicts by Task.Digest.
package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"deepwork/catalog/job"
)

// A File is one file that a reviewer judges.
type File struct {
	Output string // the output's name
	Path   string // as submitted, relative to the project root
	SHA256 string // hex, of the content to judge; "" if it could not be read
}

// A Task is one judgement: one review of a step, or one file of a review whose
// run_each names an output. It is immutable.
type Task struct {
	// Key is stable within a step and its definition: the review's index, its run_each and the
	// target file.
	Key     string
	RunEach string
	// Target is the submitted file, if the review is of one file; else nil.
	Target   *string
	Criteria []job.Criteria
	Guidance *string
	Files    []File // to be read, in order
	// Digest is the hex SHA-256 of everything that a verdict depends on: criteria, guidance, the
	// step's description, and each file's output, path and content. A verdict is valid for this
	// digest only. The author's notes are not included.
	Digest string
	// Do is run in the pool in place of a reviewer; its error is the verdict's. nil means a reviewer.
	Do func(context.Context) error
}

// Plan returns the reviews of a submission by reviewers, in the author's order: one task for a review
// of the whole step or of a `file` output, one for each file of a `files` output. An output that was
// not submitted has no review. hash has the hex SHA-256 of each submitted path, as HashFiles returns
// it. Plan is pure.
func Plan(s Submission, hash map[string]string) []Task {
	var tasks []Task
	for i := range s.Step.Reviews {
		r := &s.Step.Reviews[i]
		if r.ByHuman {
			continue
		}
		if r.RunEach == "step" || s.Step.Output(r.RunEach) == nil {
			tasks = append(tasks, plan(&s, i, nil, allFiles(&s, hash)))
			continue
		}
		paths, _ := s.paths(r.RunEach)
		seen := make(map[string]bool, len(paths))
		for _, p := range paths {
			if !seen[p] {
				seen[p] = true
				tasks = append(tasks, plan(&s, i, &p, []File{{r.RunEach, p, hash[p]}}))
			}
		}
	}
	return tasks
}

// PlanHuman returns the reviews of a submission by people, one task for each. Unlike those of Plan they
// are due whatever was submitted, and each is of all outputs: a person sees what they belong to.
func PlanHuman(s Submission, hash map[string]string) (tasks []Task) {
	for i := range s.Step.Reviews {
		if s.Step.Reviews[i].ByHuman {
			tasks = append(tasks, plan(&s, i, nil, allFiles(&s, hash)))
		}
	}
	return tasks
}

func allFiles(s *Submission, hash map[string]string) []File {
	var files []File
	for _, o := range s.Outputs {
		for _, p := range o.Paths {
			files = append(files, File{o.Name, p, hash[p]})
		}
	}
	return files
}

func plan(s *Submission, i int, target *string, files []File) Task {
	r := &s.Step.Reviews[i]
	t := Task{
		Key: fmt.Sprintf("%d/%s", i, r.RunEach), RunEach: r.RunEach, Target: target,
		Criteria: r.Criteria, Guidance: r.Guidance, Files: files,
	}
	if target != nil {
		t.Key += "/" + *target
	}
	t.Digest = digest(s, &t)
	return t
}

// digest hashes each text after its length, so that no two tasks give the same bytes.
func digest(s *Submission, t *Task) string {
	h := sha256.New()
	put := func(text string) { fmt.Fprintf(h, "%d:", len(text)); io.WriteString(h, text) }
	put("deepwork review 1")
	put(s.Step.Description)
	put(t.RunEach)
	fmt.Fprintf(h, "%d criteria;", len(t.Criteria))
	for _, c := range t.Criteria {
		put(c.Name)
		put(c.Question)
	}
	if t.Guidance != nil {
		put(*t.Guidance)
	}
	fmt.Fprintf(h, "%d files;", len(t.Files))
	for _, f := range t.Files {
		put(f.Output)
		put(f.Path)
		put(f.SHA256)
	}
	return hex.EncodeToString(h.Sum(nil))
}

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
