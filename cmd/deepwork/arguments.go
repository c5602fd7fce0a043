package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/session/board"
	"deepwork/session/outputs"
	"deepwork/transport/tool"
)

// An argumentFlag is a flag that sets an argument of a tool.
type argumentFlag struct {
	argument tool.Argument
	field    reflect.Value
	text     string // as given
}

// argumentFlags adds flags to cmd that set the arguments of a tool in args, a pointer to their struct. A name is that
// of an argument, or argument=flag if the flag is called otherwise. Help and limits come from the argument. Seconds are
// given as a duration.
func argumentFlags(cmd *cobra.Command, args any, names ...string) {
	value := reflect.ValueOf(args).Elem()
	known := map[string]tool.Argument{}
	for _, a := range tool.Arguments(value.Type()) {
		known[a.Name] = a
	}

	for _, both := range names {
		name, flag, renamed := strings.Cut(both, "=")
		if !renamed {
			flag = strings.ReplaceAll(name, "_", "-")
		}
		a, ok := known[name]
		if !ok {
			panic("no argument " + name) // every run of the program would report it
		}
		f := &argumentFlag{argument: a, field: value.FieldByIndex(a.Index)}
		added := cmd.Flags().VarPF(f, flag, "", f.help())
		if a.Kind == "boolean" {
			added.NoOptDefVal = "true"
		}
		if v := f.argument.Values(); v != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(v, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

// help is the argument's description in the form of a flag's help: lower case, no full stop.
func (f *argumentFlag) help() string {
	text, otherwise, has := strings.Cut(f.argument.Description, "Default: ")
	text = cmp.Or(strings.TrimSuffix(strings.TrimSpace(text), "."), strings.ReplaceAll(f.argument.Name, "_", " "))
	if first, n := utf8.DecodeRuneInString(text); len(text) > n && !unicode.IsUpper(rune(text[n])) {
		text = string(unicode.ToLower(first)) + text[n:]
	}
	for _, v := range f.argument.Values() {
		if !strings.Contains(f.argument.Description, v) {
			text += ": " + choices(f.argument.Values())
			break
		}
	}
	if has && otherwise != "false" {
		text += " (default: " + otherwise + ")"
	}
	return text
}

// seconds reports whether the argument is a number of seconds.
func (f *argumentFlag) seconds() bool { return strings.HasSuffix(f.argument.Name, "_seconds") }

// String returns what was given.
func (f *argumentFlag) String() string { return f.text }

// Type names what the flag takes.
func (f *argumentFlag) Type() string {
	switch {
	case f.seconds():
		return "duration"
	case f.argument.Kind == "boolean":
		return "bool"
	case f.argument.Kind == "integer":
		return "int"
	case f.argument.Kind == "number":
		return "number"
	}

	return "text"
}

// Set sets the argument.
func (f *argumentFlag) Set(text string) error {
	var value any
	switch f.argument.Kind {
	case "boolean":
		parsed, err := strconv.ParseBool(text)
		if err != nil {
			return expected("true or false")
		}
		value = parsed
	case "integer", "number":
		n, err := strconv.ParseFloat(text, 64)
		if f.seconds() {
			var d time.Duration
			d, err = time.ParseDuration(text)
			n = d.Seconds()
		}

		least, most := f.argument.Schema.Minimum, f.argument.Schema.Maximum
		if err != nil || f.argument.Kind == "integer" && n != math.Trunc(n) || least != nil && !(n >= *least) ||
			most != nil && !(n <= *most) || f.seconds() && n == 0 {
			return f.expects()
		}
		value = n
		if f.argument.Kind == "integer" {
			value = int(n)
		}
	default:
		if v := f.argument.Values(); v != nil && !slices.Contains(v, text) {
			return expected(choices(v))
		}
		value = text
	}

	to := f.field
	if to.Kind() == reflect.Pointer {
		to.Set(reflect.New(to.Type().Elem()))
		to = to.Elem()
	}
	to.Set(reflect.ValueOf(value).Convert(to.Type()))
	f.text = text
	return nil
}

// expects says which numbers the flag takes.
func (f *argumentFlag) expects() error {
	form := "a number such as 2.5"
	switch {
	case f.seconds():
		return expected(fmt.Sprintf("a time such as 90s, 90m or 2h, at most %v",
			time.Duration(*f.argument.Schema.Maximum)*time.Second))
	case f.argument.Kind == "integer":
		form = "a whole number"
	}
	if least, most := f.argument.Schema.Minimum, f.argument.Schema.Maximum; least != nil && most != nil {
		form += fmt.Sprintf(", from %.0f to %.0f", *least, *most)
	}
	return expected(form)
}

// expected is the error of a flag whose value does not have the form.
func expected(form string) error { return &expectedError{form} }

type expectedError struct{ form string }

func (e *expectedError) Error() string { return "expected " + e.form }

// flagOf returns the flag of cmd that sets an argument of a tool, or "".
func flagOf(cmd *cobra.Command, argument string) (flag string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if v, ok := f.Value.(*argumentFlag); ok && v.argument.Name == argument {
			flag = "--" + f.Name
		}
	})
	return flag
}

// choices joins the values that can be chosen.
func choices(all []string) string {
	last := len(all) - 1
	if last < 1 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

// inputsHelp explains --input in the help of commands.
const inputsHelp = `
--input NAME=VALUE sets an input of the workflow; 'deepwork jobs show JOB' lists them.
NAME=@FILE takes the text of a file (@@ begins a value with one @). Repeat the flag for
a list of files.`

// An inputFlag collects the values of a workflow's inputs, each as NAME=VALUE.
type inputFlag struct {
	values *board.Inputs
	last   string
}

// onInputs adds the flag --input.
func onInputs(cmd *cobra.Command, values *board.Inputs) {
	cmd.Flags().Var(&inputFlag{values: values}, "input",
		"value of an input of the workflow, or NAME=@FILE; may be repeated")
}

// String returns what was given last.
func (f *inputFlag) String() string { return f.last }

// Type names what the flag takes.
func (f *inputFlag) Type() string { return "NAME=VALUE" }

// Set adds a value.
func (f *inputFlag) Set(given string) error {
	name, value, ok := strings.Cut(given, "=")
	if !ok || name == "" {
		return expected("NAME=VALUE, or NAME=@FILE")
	}
	if file, ok := strings.CutPrefix(value, "@"); ok && !strings.HasPrefix(file, "@") {
		text, err := os.ReadFile(file)
		if err != nil {
			return expected("a file that can be read after @: " + err.Error())
		}
		value = string(text)
	} else if ok {
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

// printInputs prints the inputs of a task or a run, and shortens long texts.
func (a *app) printInputs(values outputs.Map) {
	for _, in := range values {
		value := in.Value
		if !value.List && len(value.Paths) == 1 {
			value = outputs.Value{Text: &value.Paths[0]}
		}
		a.fields("input", in.Key+": "+value.Shown())
	}
}

// neededInputs returns the flags for the required inputs that were not given, each with its description, or "".
func neededInputs(w *job.Workflow, given board.Inputs) string {
	var flags []string
	for _, p := range w.Inputs {
		if _, ok := given[p.Name]; ok || !p.Required || p.Default != nil {
			continue
		}

		value := map[job.OutputType]string{
			job.Text:     "TEXT",
			job.File:     "PATH",
			job.Files:    "PATH...",
			job.FilePath: "PATH",
		}[p.Type]
		flags = append(flags, "--input "+p.Name+"="+value+" ("+p.Description+")")
	}
	return strings.Join(flags, " ")
}

// offerInputs completes the inputs of the workflow that the command names.
func (a *app) offerInputs(
	cmd *cobra.Command, args []string, _ string,
) (offers []cobra.Completion, _ cobra.ShellCompDirective) {
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
	return offers,
		cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveKeepOrder
}
