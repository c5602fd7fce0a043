// Package show prints jobs and sessions as text, for people at a terminal and for agents that
// read them as resources.
package show

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"deepwork/catalog/job"
	"deepwork/session/replies"
)

// Takes describes an input of a workflow in short, such as string, required.
func Takes(p job.Parameter) string {
	switch {
	case p.Default != nil:
		return fmt.Sprintf("%s, default: %s", p.Type, *p.Default)
	case p.Required:
		return string(p.Type) + ", required"
	}
	return string(p.Type) + ", optional"
}

// Steps prints the inputs and forms of a job's workflows and each of its steps, even if some instructions
// cannot be read; the error is about those.
func Steps(w io.Writer, j *job.Job, preview func(*job.Step) (*replies.StepInfo, error)) error {
	for _, wf := range j.Workflows {
		if len(wf.Inputs) == 0 {
			continue
		}

		fmt.Fprintf(w, "=== %s/%s takes these inputs ===\n", j.Name, wf.Name)
		for _, p := range wf.Inputs {
			fmt.Fprintf(w, "%s (%s)\n", Inline(p.Name), Inline(Takes(p)))
			printText(w, Indent(p.Description, "  "))
		}
		fmt.Fprintln(w)
	}
	for i := range j.Workflows {
		order(w, j, &j.Workflows[i])
	}

	var failed []error
	for i := range j.Steps {
		info, err := preview(&j.Steps[i])
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if i > len(failed) {
			fmt.Fprintln(w)
		}
		Step(w, j, &j.Steps[i], info)
	}
	return errors.Join(failed...)
}

// order prints the entries of a workflow that has forms or calls others, one per line, with those of a form
// below it.
func order(w io.Writer, j *job.Job, wf *job.Workflow) {
	var lines []string
	plain := true
	for _, part := range wf.Parts() {
		indent := ""
		if part.Form != nil {
			lines = append(lines, Inline(part.Form.String())+":")
			indent = "  "
			plain = false
		}
		for _, e := range part.Entries {
			ids := make([]string, len(e))
			for i, id := range e {
				ids[i] = Inline(id)
				plain = plain && !strings.HasPrefix(id, job.CallPrefix)
			}

			line := indent + strings.Join(ids, ", ")
			if len(e) > 1 {
				line += " (concurrent)"
			}
			lines = append(lines, line)
		}
	}
	if !plain {
		fmt.Fprintf(w, "=== %s/%s does, in this order ===\n%s\n\n", j.Name, wf.Name, strings.Join(lines, "\n"))
	}
}

// Step prints the texts of a step unchanged, under headings: what an agent will read.
func Step(w io.Writer, j *job.Job, s *job.Step, info *replies.StepInfo) {
	fmt.Fprintf(w, "=== %s/%s: %s ===\n", j.Name, s.Ref(), Inline(s.Name))
	fmt.Fprintf(w, "\n--- where ---\n")
	for _, place := range places(j, s) {
		fmt.Fprintln(w, Inline(place))
	}
	fmt.Fprintf(w, "job_dir: %s\n", Inline(info.JobDir))
	fmt.Fprintf(w, "\n--- step_inputs ---\n")
	for _, in := range info.Inputs {
		from := "the user"
		if in.FromStep != "" {
			from = "step " + in.FromStep
		}
		fmt.Fprintf(w, "%s, from %s\n", Inline(in.Name), from)
		printText(w, Indent(in.Description, "  "))
	}
	if len(info.Inputs) == 0 {
		fmt.Fprintln(w, "none")
	}
	if len(info.Checks) > 0 {
		fmt.Fprintf(w, "\n--- step_checks ---\n")
	}
	for _, c := range info.Checks {
		fmt.Fprintf(w, "%s: %s\n", Inline(c.Name), Inline(strings.Join(c.Run, " ")))
		if c.Protect != nil {
			fmt.Fprintf(w, "  protects %s\n", Inline(strings.Join(c.Protect, ", ")))
		}
	}
	fmt.Fprintf(w, "\n--- step_expected_outputs ---\n")
	for _, o := range info.ExpectedOutputs {
		need := "optional"
		if o.Required {
			need = "required"
		}
		fmt.Fprintf(w, "%s (%s, %s), given as: %s\n", Inline(o.Name), o.Type, need, o.Syntax)
		printText(w, Indent(o.Description, "  "))
	}
	if len(info.ExpectedOutputs) == 0 {
		fmt.Fprintln(w, "none")
	}
	fmt.Fprintf(w, "\n--- step_reviews ---\n")
	for _, r := range info.Reviews {
		by := ""
		if r.By != "" {
			by = ", by: " + r.By
		}
		fmt.Fprintf(w, "run_each: %s%s\n", Inline(r.RunEach), by)
		for _, c := range r.Criteria {
			printText(w, Indent(c.Key+": "+c.Value, "  "))
		}
		if r.Guidance != nil {
			printText(w, Indent("additional_review_guidance: "+*r.Guidance, "  "))
		}
	}
	if len(info.Reviews) == 0 {
		fmt.Fprintln(w, "none")
	}
	fmt.Fprintf(w, "\n--- step_instructions ---\n")
	printText(w, info.Instructions)
	fmt.Fprintf(w, "\n--- common_job_info ---\n")
	printText(w, *info.CommonJobInfo)
}

// printText prints a text and ends its last line.
func printText(w io.Writer, text string) {
	text = Plain(text)
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	fmt.Fprint(w, text)
}

// places returns the places of a step in the job's workflows.
func places(j *job.Job, s *job.Step) []string {
	var out []string
	for i := range j.Workflows {
		w := &j.Workflows[i]
		n := w.Find(s.ID)
		if n < 0 || s.Workflow != "" && s.Workflow != w.Name {
			continue
		}
		place := fmt.Sprintf("workflow %s, entry %d of %d", w.Name, n+1, len(w.Entries))
		if f := w.Form(n); f != nil {
			place += ", " + f.String()
		}
		if e := w.Entries[n]; len(e) > 1 && (w.Form(n) == nil || w.Form(n).ForEach == nil) {
			place += ", concurrent: " + strings.Join(e, ", ")
		}
		out = append(out, place)
	}
	if out == nil {
		out = []string{"in no workflow"}
	}
	return out
}
