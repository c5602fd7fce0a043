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
	"slices"
	"strings"

	"deepwork/actor/process"
	"deepwork/actor/xslices"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
)

// A File is one file, or one text, that a reviewer judges.
type File struct {
	Output string  // the output's name
	Path   string  // as submitted, relative to the project root; "" for a text
	SHA256 string  // hex, of the content to judge; "" if it could not be read
	Text   *string // nil for a file
}

// A Task is one judgement: one review of a step, or one file of a review whose run_each names an output. It
// is immutable.
type Task struct {
	// Key is stable within a step and its definition: the review's index, its run_each and the
	// target file.
	Key     string
	RunEach string
	// Target is the submitted file if the review is about one file, else nil.
	Target   *string
	Criteria []job.Criteria
	Guidance *string
	Brief    bool     // the reviewer does not get the common information
	Files    []File   // to read, in order
	Others   []string // outputs, with their files, that are named but not judged
	Account  bool     // the author's account of the work is also judged
	// Digest is the hex SHA-256 of everything that a verdict depends on: criteria, guidance, the
	// step's description, each file's output, path and content, and the names in Others. A verdict is
	// valid for this digest only. The author's notes are included only if they are the account that is judged.
	Digest string
	// Do runs in the pool in place of a reviewer, and fills in the verdict. nil means a reviewer runs.
	Do func(context.Context, *Verdict)
}

// Plan returns the tasks for a submission's reviews by reviewers, in the author's order: one for a review of
// the whole step, of a text, or of all files of an output together, and otherwise one for each file of an
// output. An output that was not submitted has no review. hash has the hex SHA-256 of each submitted path, as
// HashFiles returns it. Plan is pure.
func Plan(s Submission, hash map[string]string) []Task {
	var tasks []Task
	for i := range s.Step.Reviews {
		r := &s.Step.Reviews[i]
		out, _ := s.output(r.RunEach)
		files := out.files(hash)
		switch {
		case !s.due(r):
		case s.whole(r):
			tasks = append(tasks, plan(&s, i, nil, allFiles(&s, hash)))
		case r.Together || out.Text != nil:
			tasks = append(tasks, plan(&s, i, nil, files))
		default:
			seen := make(map[string]bool, len(files))
			for _, f := range files {
				if !seen[f.Path] {
					seen[f.Path] = true
					tasks = append(tasks, plan(&s, i, &f.Path, []File{f}))
				}
			}
		}
	}
	return tasks
}

// due reports whether a reviewer has something to judge, because what the review is about was submitted.
func (s *Submission) due(r *job.Review) bool {
	o, _ := s.output(r.RunEach)
	return !r.ByHuman && (s.whole(r) || o.Text != nil || len(o.Paths) > 0)
}

// whole reports whether a review is about all outputs of the step.
func (s *Submission) whole(r *job.Review) bool {
	return r.RunEach == "step" || s.Step.Output(r.RunEach) == nil
}

// Due returns a submission's reviews by reviewers, except those of outputs that were not submitted.
func Due(s Submission) []job.Review {
	return slices.DeleteFunc(slices.Clone(s.Step.Reviews), func(r job.Review) bool { return !s.due(&r) })
}

// PlanHuman returns one task for each of a submission's reviews by people. Unlike Plan's, they are due
// whatever was submitted, and each covers all outputs, so that a person sees the whole.
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
	for i := range s.Outputs {
		files = append(files, s.Outputs[i].files(hash)...)
	}
	return files
}

// files returns the files, or the text, of an output.
func (o *Output) files(hash map[string]string) (files []File) {
	for _, p := range o.Paths {
		files = append(files, File{Output: o.Name, Path: p, SHA256: hash[p]})
	}
	if o.Text != nil {
		sum := sha256.Sum256([]byte(*o.Text))
		files = append(files, File{Output: o.Name, SHA256: hex.EncodeToString(sum[:]), Text: o.Text})
	}
	return files
}

// maxOthers limits the paths of another output that a reviewer gets, in characters.
const maxOthers = 2000

func plan(s *Submission, i int, target *string, files []File) Task {
	r := &s.Step.Reviews[i]
	t := Task{
		Key: fmt.Sprintf("%d/%s", i, r.RunEach), RunEach: r.RunEach, Target: target,
		Criteria: r.Criteria, Guidance: r.Guidance, Brief: r.Brief, Files: files, Account: r.Account,
	}
	if r.OtherOutputs {
		for _, o := range s.Outputs {
			switch {
			case o.Name == r.RunEach:
			case o.Text != nil:
				t.Others = append(t.Others, "`"+o.Name+"`: a text")
			default:
				t.Others = append(t.Others, "`"+o.Name+"`: "+
					jsontext.Clip(strings.Join(xslices.Map(o.Paths, plainName), ", "), maxOthers))
			}
		}
	}

	if target != nil {
		t.Key += "/" + *target
	}

	t.Digest = digest(s, &t)
	return t
}

// digest hashes each text after its length, so that different tasks never hash the same bytes.
func digest(s *Submission, t *Task) string {
	h := sha256.New()
	put := func(text string) {
		fmt.Fprintf(h, "%d:", len(text))
		io.WriteString(h, text)
	}
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

	for _, o := range t.Others {
		put(o)
	}

	if t.Account {
		put(s.Notes)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// An Output is the submission for one declared output.
type Output struct {
	Name  string
	Paths []string // as submitted, relative to the project root; for a folder, the files in it
	Text  *string  // nil means paths
}

// An Input is the value of a declared input, for reference only: it is neither judged nor part of what a
// verdict applies to (Task.Digest).
type Input struct {
	Name        string
	Description string
	FromStep    string   // that made it; "" if the workflow was started with it
	Text        *string  // nil means files
	Paths       []string // as submitted, relative to the project root
	Omitted     int      // number of further paths, or bytes of the text, that are left out
}

// A Submission is the outputs of a step, submitted for review.
type Submission struct {
	SessionID string
	Job       *job.Job
	Workflow  string
	Step      *job.Step
	Goal      string
	Root      string // where its files are, relative to the root of the settings; "" means there
	Inputs    []Input
	Outputs   []Output  // in the author's order
	Notes     string    // the author's notes; may be empty
	Reviewer  *Reviewer // replaces the one in the settings; nil keeps that
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
	Run      func(context.Context, process.Spec) (process.Result, error)
	From     func() string
}

// common quotes what every step of the workflow is told.
func (s *Submission) common() string {
	return section("Common information",
		"What the job's author tells each step of the workflow. It is background, not your task.", s.Job.CommonInfo)
}

// writeInputs writes the inputs under their own heading: texts quoted, files as paths.
func (s *Submission) writeInputs(b *strings.Builder) {
	if len(s.Inputs) == 0 {
		return
	}

	b.WriteString("## Inputs (for reference; judge only the outputs)\n\nWhat the step worked from. Read a file if a " +
		"criterion refers to it.\n\n")
	for _, in := range s.Inputs {
		from := "from the start of the workflow"
		if in.FromStep != "" {
			from = "from step `" + in.FromStep + "`"
		}
		fmt.Fprintf(b, "- `%s`, %s: %s\n", in.Name, from, oneLine(in.Description))
		for _, p := range in.Paths {
			fmt.Fprintf(b, "  - %s\n", code(p))
		}

		switch {
		case in.Text != nil:
			for line := range strings.Lines(quote(*in.Text)) {
				b.WriteString("  " + line)
			}
			if in.Omitted > 0 {
				fmt.Fprintf(b, "\n  and %d more bytes, left out\n", in.Omitted)
			}
		case in.Omitted > 0:
			fmt.Fprintf(b, "  - and %d more, not listed\n", in.Omitted)
		case len(in.Paths) == 0:
			b.WriteString("  - (it has no value)\n")
		}
	}
	b.WriteString("\n")
}

// output returns the submission for an output; ok reports whether there is one.
func (s *Submission) output(name string) (o Output, ok bool) {
	for _, o := range s.Outputs {
		if o.Name == name {
			return o, true
		}
	}
	return Output{}, false
}

// JudgesAccount reports whether a reviewer judges the author's account of a step.
func JudgesAccount(st *job.Step) bool {
	return slices.ContainsFunc(st.ReviewsBy(false), func(r job.Review) bool { return r.Account })
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
