package gate

import (
	"fmt"
	"strings"

	"deepwork/catalog/job"
)

// SelfReview writes the instructions that a subagent of the author reviews the
// outputs by (seed 000, 001.4.10). Files are listed by path, never inlined
// (seed 000, 001.1.8: max_inline_files is 0).
func SelfReview(s Submission) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Quality review of step `%s`\n\n", s.Step.ID)
	b.WriteString("You review the work of another agent. You did not do it, and you owe it nothing: judge what is there.\n\n")
	fmt.Fprintf(&b, "- Workflow: `%s/%s`, session `%s`\n", s.Job.Name, s.Workflow, s.SessionID)
	fmt.Fprintf(&b, "- Step: %s. %s\n", s.Step.Name, oneLine(s.Step.Description))
	fmt.Fprintf(&b, "- The user's goal: %s\n", oneLine(s.Goal))

	b.WriteString("\n## Outputs\n\nPaths are relative to the project root. Read each file before you judge it.\n\n")
	if len(s.Outputs) == 0 {
		b.WriteString("(none was submitted)\n")
	}
	for _, o := range s.Outputs {
		fmt.Fprintf(&b, "- `%s`:\n", o.Name)
		for _, p := range o.Paths {
			fmt.Fprintf(&b, "  - `%s`\n", p)
		}
	}

	reviews := s.Step.Reviews
	if len(reviews) == 1 {
		b.WriteString("\n## Criteria to Evaluate\n\n")
		s.writeReview(&b, &reviews[0])
	} else {
		for i := range reviews {
			fmt.Fprintf(&b, "\n## Review %d of %d\n\n", i+1, len(reviews))
			s.writeReview(&b, &reviews[i])
		}
	}

	if notes := strings.TrimSpace(s.Notes); notes != "" {
		b.WriteString("\n## Author Notes\n\nWhat the author said about the work. It is a claim, not evidence.\n\n")
		for line := range strings.Lines(notes) {
			b.WriteString("> " + strings.TrimRight(line, "\r\n") + "\n")
		}
	}

	b.WriteString(`
## Guidelines

- Apply each criterion as it is written. Do not add criteria of your own, and do not waive any.
- A criterion passes only if the files show it. What you cannot find did not happen.
- Where a criterion cannot apply to what was asked for, say so and pass it.
- Be concrete: name the file and the place, and what would have to change.
- Change nothing yourself.

## Your task

1. Read every output file listed above.
2. Judge each criterion of each review, for each file where a review is per file: PASS or FAIL.
3. For each FAIL say which file, what is wrong, and what to do about it.
4. Say at the end whether the whole passes: it does only if every criterion passes.
5. Report this to the agent that sent you; it mends what failed and has it reviewed again, or finishes the step.
`)
	return b.String()
}

// writeReview writes one review: its scope, criteria and guidance.
func (s *Submission) writeReview(b *strings.Builder, r *job.Review) {
	switch out := s.Step.Output(r.RunEach); {
	case r.RunEach == "step" || out == nil:
		b.WriteString("Scope: all outputs of the step together.\n\n")
	case out.Type == job.Files:
		fmt.Fprintf(b, "Scope: each file of output `%s`, by itself. Judge every criterion for every one of:\n\n", r.RunEach)
		s.writePaths(b, r.RunEach)
	default:
		fmt.Fprintf(b, "Scope: output `%s`.\n\n", r.RunEach)
		s.writePaths(b, r.RunEach)
	}
	for _, c := range r.Criteria {
		fmt.Fprintf(b, "- **%s**: %s\n", c.Name, strings.TrimSpace(c.Question))
	}
	if r.Guidance != nil && strings.TrimSpace(*r.Guidance) != "" {
		fmt.Fprintf(b, "\nAdditional guidance from the job's author:\n\n%s\n", strings.TrimSpace(*r.Guidance))
	}
}

func (s *Submission) writePaths(b *strings.Builder, output string) {
	paths, submitted := s.paths(output)
	if !submitted {
		b.WriteString("  - (not submitted)\n")
	}
	for _, p := range paths {
		fmt.Fprintf(b, "  - `%s`\n", p)
	}
	b.WriteString("\n")
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
