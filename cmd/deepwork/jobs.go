package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/actor/durable"
	"deepwork/actor/xslices"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/standard"
	"deepwork/cmd/deepwork/library"
	"deepwork/session/machine"
	"deepwork/session/replies"
	"deepwork/session/show"
)

func (a *app) jobsCommand() *cobra.Command {
	var fromLibrary bool
	cmd := a.onProject("", &cobra.Command{
		Use:   "jobs",
		Short: "List the jobs with their workflows and steps",
		Long: `Print a tree of the jobs that a server of this project offers: their workflows,
the steps of each in order, what each step delivers, its checks and reviews, and what
is wrong with the jobs that cannot be loaded. With --library it lists ready-made jobs
and scripts, which 'deepwork jobs add' copies into the project.`,
		Example: `  deepwork jobs
  deepwork jobs --library`,
		Args: unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if fromLibrary {
				a.out.Pairs(xslices.Map(library.All(), func(p library.Piece) [2]string {
					return [2]string{p.Name, p.Summary}
				}))
				a.out.Prose(a.here("\nCopy one with 'deepwork jobs add NAME', and change it as you like."))
				return nil
			}
			return a.withCatalog(cmd.Context(), func(root string, jobs *catalog.Catalog) error {
				for _, fault := range jobs.FolderFaults() {
					fmt.Fprintf(a.err, "deepwork: %s: %s\n", config.JobsFoldersEnv, inline(fault))
				}
				a.printJobs(root, jobs.Snapshot())
				return nil
			})
		},
	})
	cmd.Flags().BoolVar(&fromLibrary, "library", false,
		"list the ready-made jobs and scripts that come with the program")
	cmd.AddCommand(a.jobsShowCommand(), a.jobsAddCommand(), a.jobsConvertCommand())
	return cmd
}

func (a *app) jobsAddCommand() *cobra.Command {
	return a.onProject("", &cobra.Command{
		Use:   "add NAME",
		Short: "Copy a job or a script of the library into the project",
		Long: `Copy a job or a script of the library into the project: a job to .deepwork/jobs, where
agents find it at once, a script to .deepwork. It is yours to change, and replaces nothing.
It says what to do next.`,
		Example: `  deepwork jobs add fix_bug`,
		Args:    argumentCount(1, 1, "NAME"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return xslices.Map(library.All(), func(p library.Piece) cobra.Completion {
				return cobra.CompletionWithDesc(p.Name, p.Summary)
			}), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			root, err := a.projectRoot()
			if err != nil {
				return err
			}
			if err := canBegin(root); err != nil {
				return err
			}

			piece := library.Find(args[0])
			if piece == nil {
				return fmt.Errorf("the library has no %q; it has %s", args[0],
					strings.Join(xslices.Map(library.All(), func(p library.Piece) string { return p.Name }), ", "))
			}
			path := inline(a.display(root, filepath.Join(root, filepath.FromSlash(piece.Path))))
			err = piece.Add(root)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s is there already, and was left as it is; rename or remove it first", path)
			}
			if err != nil {
				return fmt.Errorf("adding %s: %w", piece.Name, err)
			}

			fmt.Fprintf(a.out, "created  %s\n\nNext:\n", path)
			if piece.Config != "" {
				a.out.Text("  ", "- in .deepwork/config.yml set: "+piece.Config)
			}
			if piece.Checks || piece.Config != "" {
				a.out.Text("  ", "- read what it runs, and approve it: "+a.onPath("deepwork trust"))
			}
			if piece.Say != "" {
				a.out.Text("  ", "- change it as you like: "+a.onPath("deepwork jobs show "+piece.Name)+
					" prints what an agent will read")
				fmt.Fprintf(a.out, "\nSay to your agent:\n\n  %s\n", piece.Say)
			}

			return nil
		},
	})
}

func (a *app) printJobs(root string, snapshot *catalog.Snapshot) {
	missing := snapshot.Missing()
	if len(snapshot.Jobs) == 0 && len(snapshot.Errors) == 0 {
		fmt.Fprintln(a.out, a.here("There are no jobs. Make an example with 'deepwork init'."))
		return
	}

	var bundled []string
	blank := ""
	for _, j := range snapshot.Jobs {
		if filepath.Dir(j.Dir) == a.standard && snapshot.Err(j.Name) == nil {
			bundled = append(bundled,
				a.here(fmt.Sprintf("%s (bundled; 'deepwork jobs show %[1]s' prints it): ", j.Name))+j.Summary)
			for _, w := range j.Workflows {
				bundled = append(bundled, "  "+j.Name+"/"+w.Name+": "+w.Summary)
			}
			continue
		}

		fmt.Fprint(a.out, blank)
		a.printJob(root, j)
		blank = "\n"
		if e := snapshot.Err(j.Name); e != nil {
			a.printLoadError(e)
		}
		for i := range missing {
			if missing[i].JobDir == j.Dir {
				a.printLoadError(&missing[i])
			}
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
		a.out.Text("", line)
	}
}

func (a *app) printJob(root string, j *job.Job) {
	a.out.Heading("", j.Name, fmt.Sprintf("(%s)", j.Summary))
	version := ""
	if j.Version != "" { // format 2 has none
		version = ", version " + inline(j.Version)
	}
	fmt.Fprintf(a.out, "  in %s%s\n", inline(a.display(root, j.Dir)), version)
	for i := range j.Workflows {
		w := &j.Workflows[i]
		of := j.Of(w.Name)
		a.out.Heading("  ", w.Name, fmt.Sprintf("(%s)", w.Summary))
		a.out.Pairs(xslices.Map(w.Inputs, func(p job.Parameter) [2]string {
			return [2]string{"    takes " + p.Name, "(" + inline(show.Takes(p)+") "+p.Description)}
		}))

		var steps [][2]string
		n := 0
		for _, part := range w.Parts() {
			indent := "    "
			each := part.Form != nil && part.Form.ForEach != nil
			if part.Form != nil {
				steps = append(steps, [2]string{indent + inline(part.Form.String()) + ":"})
				indent += "  "
			}
			for k, entry := range part.Entries {
				number := "   "
				if !each || k == 0 { // the steps of a for_each are one entry
					n++
					number = fmt.Sprintf("%d. ", n)
				}
				if len(entry) == 1 {
					steps = append(steps, [2]string{indent + number + entry[0], delivers(of.Step(entry[0]))})
					continue
				}
				steps = append(steps, [2]string{indent + number + "concurrently:"})
				for _, id := range entry {
					steps = append(steps, [2]string{indent + "   - " + id, delivers(of.Step(id))})
				}
			}
		}
		a.out.Pairs(steps)
		if len(w.Entries) == 0 {
			fmt.Fprintln(a.out, "    no steps")
		}
	}
}

// delivers describes a step's outputs, checks and reviews: `-> a.md, b.md (files, optional), 1 check (go), 1 review`.
func delivers(s *job.Step) string {
	if s.Call != nil {
		return "-> its outputs"
	}

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
	checks := slices.DeleteFunc(slices.Clone(s.Checks), func(c job.StepCheck) bool { return c.Ends })
	if n := len(checks); n > 0 {
		names := xslices.Map(checks, func(c job.StepCheck) string { return c.Name })
		arrow += fmt.Sprintf(", %s (%s)", count(n, "check"), inline(strings.Join(names, ", ")))
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
		a.out.Text("  ", "error: "+a.here(inline(d.String())))
	}
}

func (a *app) jobsShowCommand() *cobra.Command {
	return a.onProject("print JSON, as the tools' begin_step has it", &cobra.Command{
		Use:   "show JOB[/WORKFLOW|/STEP]",
		Short: "Print what an agent will read",
		Example: `  deepwork jobs show newsletter/weekly
  deepwork jobs show newsletter/write`,
		Long: `Print what an agent will read at each step of a job, or of a workflow, or at one step: the
instructions, the outputs it must deliver, the reviews they face and what every
step of the job is told. --json prints the begin_step that the tools return; the
session's own fields, session_id, branch_name, branch_status and the paths of
inputs, are absent.`,
		Args: argumentCount(1, 1, "JOB, JOB/WORKFLOW or JOB/STEP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withCatalog(cmd.Context(), func(_ string, jobs *catalog.Catalog) error {
				return a.showJob(cmd.Context(), jobs, args[0])
			})
		},
	})
}

func (a *app) showJob(ctx context.Context, jobs *catalog.Catalog, name string) error {
	jobName, stepID, one := strings.Cut(name, "/")
	snapshot, err := jobs.Fresh(ctx)
	if err != nil {
		return fmt.Errorf("loading job %s: %w", jobName, err)
	}
	j, err := findJob(snapshot, jobName)
	if err != nil {
		return err
	}
	preview := func(step *job.Step) (*replies.StepInfo, error) { return machine.Preview(j, step) }
	if filepath.Dir(j.Dir) == a.standard {
		// Bundled jobs are read from a temporary folder: only servers write them to their own.
		scratch, err := durable.TempFolder("", "deepwork-jobs-")
		if err != nil {
			return fmt.Errorf("unpacking the bundled job %s: %w", jobName, err)
		}
		defer os.RemoveAll(scratch)
		if err := os.CopyFS(scratch, standard.FS()); err != nil {
			return fmt.Errorf("unpacking the bundled job %s: %w", jobName, err)
		}

		unpacked := *j
		unpacked.Dir = filepath.Join(scratch, filepath.Base(j.Dir))
		preview = func(step *job.Step) (*replies.StepInfo, error) {
			info, err := machine.Preview(&unpacked, step)
			if err == nil {
				info.JobDir = j.Dir
			}
			return info, err
		}
	}
	if !one {
		return a.showSteps(j, preview)
	}
	step := j.Step(stepID)
	if w := j.Workflow(stepID); step == nil && w != nil {
		part := *j
		part.Workflows = []job.Workflow{*w}
		part.Steps = slices.DeleteFunc(slices.Clone(j.Steps), func(s job.Step) bool {
			return s.Workflow != w.Name && w.Find(s.ID) < 0
		})
		return a.showSteps(&part, preview)
	}
	if step == nil {
		all := xslices.Map(j.Steps, func(x job.Step) string { return x.Ref() })
		return fmt.Errorf("job %s has no step or workflow %q; there are the steps %s%s", j.Name, stepID,
			strings.Join(all, ", "), nearest(stepID, all))
	}
	info, err := preview(step)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(info)
	}
	show.Step(a.out, j, step, info)
	return nil
}

// findJob returns a job; its error lists the available jobs, or this job's errors.
func findJob(snapshot *catalog.Snapshot, name string) (*job.Job, error) {
	if j := snapshot.Job(name); j != nil {
		return j, nil
	}
	if e := snapshot.Err(name); e != nil {
		return nil, fmt.Errorf("job %s cannot be loaded:\n%s", name, indent(e.Diagnostics.Error(), "  "))
	}
	if len(snapshot.Jobs) == 0 {
		return nil, fmt.Errorf("there is no job %q: no jobs were found; make an example with 'deepwork init'", name)
	}
	all := xslices.Map(snapshot.Jobs, func(j *job.Job) string { return j.Name })
	return nil, fmt.Errorf("there is no job %q; there are %s%s", name, strings.Join(all, ", "), nearest(name, all))
}

// showSteps prints every step of a job, even if the instructions of one cannot be read.
func (a *app) showSteps(j *job.Job, preview func(*job.Step) (*replies.StepInfo, error)) error {
	if !a.json {
		return show.Steps(a.out, j, preview)
	}

	var failed []error
	infos := make([]*replies.StepInfo, 0, len(j.Steps))
	for i := range j.Steps {
		info, err := preview(&j.Steps[i])
		if err != nil {
			failed = append(failed, err)
			continue
		}
		infos = append(infos, info)
	}
	return errors.Join(append(failed, a.printJSON(infos))...)
}

func (a *app) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [job|run]",
		Short: "Print the JSON Schema of job.yml, or of the events of a run",
		Example: `  deepwork schema > job.schema.json
  deepwork schema run`,
		Long: `Print the JSON Schema (draft 2020-12) of job.yml, in both of its forms, for editors:
"deepwork init" keeps it as .deepwork/job.schema.json. "deepwork schema run" prints that
of the events that "deepwork run --json" prints, one per line.`,
		Args: argumentCount(0, 1, "job or run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			schema := job.Schema()
			if len(args) > 0 && args[0] != "job" {
				schema = runEventSchema
				if args[0] != "run" {
					return usagef(cmd, "there is no schema %q; give job or run", args[0])
				}
			}
			_, err := a.out.Write(schema)
			return err
		},
	}
}

//go:embed run_event.schema.json
var runEventSchema []byte
