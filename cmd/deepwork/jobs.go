package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/session/state"
)

func (a *app) jobsCommand() *cobra.Command {
	cmd := a.onProject("", &cobra.Command{
		Use:   "jobs",
		Short: "List the jobs with their workflows and steps",
		Long: `Print a tree of the jobs that a server of this project offers: their workflows,
the steps of each in order, what each step delivers, and what is wrong with the
jobs that cannot be loaded.`,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withCatalog(cmd.Context(), func(root string, jobs *catalog.Catalog) error {
				a.printJobs(root, jobs.Snapshot())
				return nil
			})
		},
	})
	cmd.AddCommand(a.jobsShowCommand())
	return cmd
}

func (a *app) printJobs(root string, snapshot *catalog.Snapshot) {
	if len(snapshot.Jobs) == 0 && len(snapshot.Errors) == 0 {
		fmt.Fprintln(a.out, "There are no jobs. Make an example with 'deepwork init'.")
		return
	}
	var bundled []string
	blank := ""
	for _, j := range snapshot.Jobs {
		if filepath.Dir(j.Dir) == state.Of(root).StandardJobs() && snapshot.Err(j.Name) == nil {
			bundled = append(bundled, fmt.Sprintf("%s (bundled; 'deepwork jobs show %[1]s' prints it): %s", j.Name, j.Summary))
			continue
		}
		fmt.Fprint(a.out, blank)
		a.printJob(root, j)
		blank = "\n"
		if e := snapshot.Err(j.Name); e != nil {
			a.printLoadError(e)
		}
	}
	for i := range snapshot.Errors {
		e := &snapshot.Errors[i]
		if snapshot.Job(e.JobName) != nil {
			continue // printed with the definition that is still in use
		}
		fmt.Fprint(a.out, blank)
		a.out.Heading("", e.JobName, "(cannot be loaded)")
		fmt.Fprintf(a.out, "  in %s\n", inline(a.display(root, e.JobDir)))
		a.printLoadError(e)
		blank = "\n"
	}
	fmt.Fprint(a.out, blank)
	for _, line := range bundled { // they are in every project
		a.out.Clipped(line)
	}
}

func (a *app) printJob(root string, j *job.Job) {
	a.out.Heading("", j.Name, fmt.Sprintf("(%s)", j.Summary))
	fmt.Fprintf(a.out, "  in %s, version %s\n", inline(a.display(root, j.Dir)), inline(j.Version))
	used := map[string]bool{}
	for i := range j.Workflows {
		w := &j.Workflows[i]
		a.out.Heading("  ", w.Name, fmt.Sprintf("(%s)", w.Summary))
		var steps [][2]string
		for n, entry := range w.Entries {
			if len(entry) == 1 {
				steps = append(steps, [2]string{fmt.Sprintf("    %d. %s", n+1, entry[0]), delivers(j.Step(entry[0]))})
			} else {
				steps = append(steps, [2]string{fmt.Sprintf("    %d. concurrently:", n+1)})
				for _, id := range entry {
					steps = append(steps, [2]string{"       - " + id, delivers(j.Step(id))})
				}
			}
			for _, id := range entry {
				used[id] = true
			}
		}
		a.out.Pairs(steps)
		if len(w.Entries) == 0 {
			fmt.Fprintln(a.out, "    no steps")
		}
	}
	var unused []string
	for i := range j.Steps {
		if id := j.Steps[i].ID; !used[id] {
			unused = append(unused, id)
		}
	}
	if len(unused) > 0 {
		fmt.Fprintf(a.out, "  steps in no workflow: %s\n", strings.Join(unused, ", "))
	}
}

// delivers describes what a step delivers: `-> a.md, b.md (files, optional), 1 review`.
func delivers(s *job.Step) string {
	outputs := make([]string, len(s.Outputs))
	for i, o := range s.Outputs {
		var notes []string
		if o.Type == job.Files {
			notes = append(notes, "files")
		}
		if !o.Required {
			notes = append(notes, "optional")
		}
		outputs[i] = inline(o.Name)
		if len(notes) > 0 {
			outputs[i] += " (" + strings.Join(notes, ", ") + ")"
		}
	}
	arrow := "no outputs"
	if len(outputs) > 0 {
		arrow = "-> " + strings.Join(outputs, ", ")
	}
	if n := len(s.Reviews); n > 0 {
		arrow += ", " + count(n, "review")
		if people := len(s.ReviewsBy(true)); people > 0 {
			arrow += fmt.Sprintf(" (%d by a person)", people)
		}
	}
	return arrow
}

func (a *app) printLoadError(e *catalog.LoadError) {
	for _, d := range e.Diagnostics {
		a.out.Text("  ", "error: "+inline(d.String()))
	}
}
