package main

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/session/board"
	"deepwork/session/workflow/machine"
)

// inputsHelp is how the help of commands says what --input takes.
const inputsHelp = `
--input NAME=VALUE gives the workflow what it takes; 'deepwork jobs show JOB' lists it.
NAME=@FILE takes the text of a file (@@ begins a value with one @). A list of files is
given by repeating the flag.`

// An inputFlag collects the values of a workflow's inputs, each as NAME=VALUE.
type inputFlag struct {
	values *board.Inputs
	last   string
}

// onInputs adds --input.
func onInputs(cmd *cobra.Command, values *board.Inputs) {
	cmd.Flags().Var(&inputFlag{values: values}, "input", "value of an input of the workflow, or NAME=@FILE; may be repeated")
}

// String returns what was given last.
func (f *inputFlag) String() string { return f.last }

// Type names what the flag takes.
func (f *inputFlag) Type() string { return "NAME=VALUE" }

// Set adds a value.
func (f *inputFlag) Set(given string) error {
	name, value, is := strings.Cut(given, "=")
	if !is || name == "" {
		return expected("NAME=VALUE, or NAME=@FILE")
	}
	if file, is := strings.CutPrefix(value, "@"); is && !strings.HasPrefix(file, "@") {
		text, err := os.ReadFile(file)
		if err != nil {
			return expected("a file that can be read after @: " + err.Error())
		}
		value = string(text)
	} else if is {
		value = file
	}
	if *f.values == nil {
		*f.values = board.Inputs{}
	}
	all, again := (*f.values)[name]
	all.Paths, all.List = append(all.Paths, value), again
	(*f.values)[name], f.last = all, given
	return nil
}

// printInputs prints the values of the inputs of a task or a run; a long text is shortened.
func (a *app) printInputs(values machine.Outputs) {
	for _, in := range values {
		value := in.Value
		if !value.List && len(value.Paths) == 1 {
			value = machine.OutputValue{Text: &value.Paths[0]}
		}
		a.fields("input", in.Key+": "+value.Shown())
	}
}

// neededInputs returns the flags that are missing for a workflow, each with what its input is; "" if none
// are.
func neededInputs(w *job.Workflow, given board.Inputs) string {
	var flags []string
	for _, p := range w.Inputs {
		if _, is := given[p.Name]; is || !p.Required || p.Default != nil {
			continue
		}
		value := map[job.OutputType]string{job.Text: "TEXT", job.File: "PATH", job.Files: "PATH...", job.FilePath: "PATH"}[p.Type]
		flags = append(flags, "--input "+p.Name+"="+value+" ("+p.Description+")")
	}
	return strings.Join(flags, " ")
}

// offerInputs completes the inputs of the workflow that the command names.
func (a *app) offerInputs(cmd *cobra.Command, args []string, _ string) (offers []cobra.Completion, _ cobra.ShellCompDirective) {
	name := strings.Join(args, "")
	if job := cmd.Flags().Lookup("job"); job != nil {
		name = job.Value.String() + "/" + cmd.Flags().Lookup("workflow").Value.String()
	}
	of, flow, _ := strings.Cut(name, "/")
	err := a.withCatalog(cmd.Context(), func(_ string, jobs *catalog.Catalog) error {
		j := jobs.Snapshot().Job(of)
		if j == nil || j.Workflow(flow) == nil {
			return errors.New("no workflow " + name)
		}
		for _, p := range j.Workflow(flow).Inputs {
			offers = append(offers, cobra.CompletionWithDesc(p.Name+"=", oneLine(p.Description, titleWidth)))
		}
		return nil
	})
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
	}
	return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveKeepOrder
}
