// Command deepwork is an MCP server that guides AI agents through multi-step work, with commands
// for the people who use it. Each subcommand has a file; scripts in testdata drive the built binary.
//
// # The code
//
// Imports lead upwards in this list only:
//
//   - actor: mailboxes, supervision, passivation, child processes (actor/process), durable files
//     (actor/durable), and which servers are running (actor/presence). It does not know the rest.
//   - catalog: definitions. Jobs and their format (catalog/job), hot reload, bundled jobs
//     (catalog/standard), the config (catalog/config), and workflows of other systems (catalog/source).
//   - gate: what a reviewer reads, the pool of reviewers, and their verdicts.
//   - session: what runs. The workflow engine (session/workflow), the connections of agents to it
//     (session/connection), the records of sessions (session/record), their definitions (session/definition), what
//     they are pinned to (session/pin), exports (session/export) and branches (session/branch), the stores
//     (session/store), workflows at other systems (session/remote), the task board (session/board), attempts of
//     agents at its tasks in worktrees (session/attempt), their branches (session/merge), and runs through
//     workflows (session/run).
//   - transport: MCP over stdio, HTTP and SSE, with one package per toolset; who may call, and how much.
//   - cmd/deepwork: the command line, with its demo (demo), the configs of clients (clients), ready-made jobs
//     (library), the
//     plugin for Claude Code (plugin) and the checks of files (validate).
//   - cmd/proof: tests the program from outside with load, faults and figures. It is not shipped.
//
// # Checks
//
// .ci/run runs every check. These measure more:
//
//	go run ./cmd/proof figures          # every promised figure beside its comparison; -write keeps them
//	go run ./cmd/proof load --servers 2 # many real clients on a server; each session is checked
//
// transport/BENCHMARKS.md has the figures. "go run ./cmd/proof load --help" lists the options of load.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"deepwork/actor/process"
	"deepwork/actor/telemetry"
	"deepwork/actor/xslices"
	"deepwork/catalog/jsontext"
	_ "deepwork/cmd/deepwork/early"
	"deepwork/session"
	"deepwork/session/show"
)

// The exit codes of every command.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	if code, first := process.RunAsFirst(); first {
		os.Exit(code)
	}
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Main runs the command line args (without the program's name) on the given streams and returns the
// exit code: 0, 1 if the command failed, 2 for a usage error. It blocks until the command has
// ended.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{
		stopTracing: func() {},
		in:          stdin,
		out:         show.NewScreen(stdout, os.Getenv),
		rawOut:      stdout,
		err:         show.NewScreen(stderr, os.Getenv),
	}
	log.SetOutput(a.err) // also of slog, in commands without a logger of their own
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.Execute()
	a.stopTracing()
	show.EndDrawing()
	if failed := a.out.Err(); err == nil && failed != nil {
		err = fmt.Errorf("writing to stdout: %w", failed)
	}
	return a.report(err)
}

// An app is one run of the program: its streams and the flags that commands share.
type app struct {
	in     io.Reader
	out    *show.Screen
	rawOut io.Writer // stdout as it is, for the protocol
	err    *show.Screen

	path          string // --path, or what was found without it
	found         bool   // path was found, and commands find it again
	standard      string // folder of the bundled jobs that withCatalog has loaded
	saidProject   bool   // boardFolder has named the project of an attempt
	saidElsewhere bool   // elsewhere has named another state
	json          bool   // --json
	raw           bool   // --raw
	store         string // --store
	project       string // --project, of the store

	stopTracing func() // sends the spans that wait
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "deepwork",
		Short: "Guide AI agents through multi-step work",
		Long: `deepwork is an MCP server that guides AI agents through multi-step work and
keeps the state of that work safe. Jobs are folders under .deepwork/jobs.

Begin with "deepwork init" in a project; "deepwork demo" shows it at work, and
"deepwork help topics" lists the documentation.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              unknownCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:           readBuild().String(),
		CompletionOptions: cobra.CompletionOptions{DisableNoDescFlag: true},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagFault)
	root.AddCommand(
		a.onStore(a.serveCommand()),
		a.onStore(a.uiCommand()),
		a.workerCommand(),
		a.initCommand(),
		a.validateCommand(),
		a.jobsCommand(),
		a.sessionsCommand(),
		a.runCommand(),
		a.boardCommand(),
		a.storeCommand(),
		a.onStore(a.checkCommand()),
		a.containCommand(),
		a.schemaCommand(),
		a.hookCommand(),
		a.tokenCommand(),
		a.trustCommand(),
		a.notifyCommand(),
		a.onStore(a.whereCommand()),
		a.demoCommand(),
		a.versionCommand(),
	)
	root.SetHelpCommand(a.helpCommand())
	root.InitDefaultCompletionCmd()
	if cmd, _, err := root.Find([]string{"completion"}); err == nil {
		for _, shell := range group(cmd).Commands() {
			shell.Args = argumentCount(0, 0, "")
		}
	}

	groupHelp(root)
	if a.out != nil { // without one, the tests read the commands
		groupFlags(root, a.out.Width())
	}
	if a.out != nil && a.out.Width() > 0 {
		fitHelp(root, a.out.Width())
	}
	a.offer(root)
	return root
}

var unindented = regexp.MustCompile(`\n(\S)`)

// report prints an error once and returns its exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}

	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}

	// a newline in a name must not begin what looks like another message
	text := strings.TrimRight(a.here(forPeople(err).Error()), "\n")
	a.err.Fail("deepwork", unindented.ReplaceAllString(plain(text), "\n  $1"))
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	return exitFailure
}

// An exitError fails a command that has already printed why.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// A usageError is an invalid command line: one line and where to look.
type usageError struct {
	command string // "deepwork serve"
	message string
}

func (e *usageError) Error() string {
	return fmt.Sprintf("%s (see '%s --help')", e.message, e.command)
}

// usagef returns a usageError of cmd, on one line.
func usagef(cmd *cobra.Command, format string, args ...any) error {
	message := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	return &usageError{command: cmd.CommandPath(), message: message}
}

// unknownCommand refuses arguments of a command that only has subcommands.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef(cmd, "unknown command %q for %q%s", args[0], cmd.CommandPath(), didYouMean(cmd, args[0]))
}

// didYouMean names the subcommands whose names are like a word, "" if none are.
func didYouMean(cmd *cobra.Command, word string) string {
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(word); len(near) > 0 {
		return ", did you mean " + strings.Join(near, " or ") + "?"
	}
	return ""
}

// nearest names the one of some words that another word is like, "" if none is.
func nearest(word string, all []string) string {
	if near := jsontext.Nearest(word, all); near != "" {
		return ", did you mean " + near + "?"
	}
	return ""
}

// group makes cmd a command that only has subcommands.
func group(cmd *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(subs...)
	cmd.Args = unknownCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return usagef(cmd, "%s needs one of %s", commandName(cmd),
			strings.Join(xslices.Map(cmd.Commands(), func(sub *cobra.Command) string { return sub.Name() }), ", "))
	}
	return cmd
}

// commandName returns the name of a command without the program's, with which messages begin.
func commandName(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), "deepwork ")
}

// argumentCount checks the number of arguments; names is how help names them.
func argumentCount(least, most int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef(cmd, "%s needs %s", commandName(cmd), names)
		case most >= 0 && len(args) > most && most == 0:
			return usagef(cmd, "%s takes no arguments, found %q", commandName(cmd), args[0])
		case most >= 0 && len(args) > most:
			return usagef(cmd, "%s takes %s and no more, found %q", commandName(cmd), names, args[most])
		}
		return nil
	}
}

// flagForms are the values that flags expect, by their type.
var flagForms = map[string]string{
	"bool":     "true or false",
	"int":      "a whole number",
	"float64":  "a number such as 2.5",
	"time":     "a date such as 2026-11-30, or 2026-11-30T08:00:00Z",
	"duration": "a time such as 90s, 90m or 2h",
}

// flagFault returns the usage error of a flag that cannot be read; the command may be what is misspelled.
func flagFault(cmd *cobra.Command, err error) error {
	if given := cmd.Flags().Args(); cmd.HasSubCommands() && len(given) > 0 {
		if misspelled := cmd.ValidateArgs(given); misspelled != nil {
			return misspelled
		}
	}

	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		form := flagForms[wrong.GetFlag().Value.Type()]
		if e, ok := errors.AsType[*expectedError](err); ok {
			form = e.form
		}
		if form != "" {
			return usagef(cmd, "--%s is %q; expected %s", wrong.GetFlag().Name, wrong.GetValue(), form)
		}
	}
	return usagef(cmd, "%v", err)
}

// forPeople words a refusal for people: without the prefix that tells agents its kind, and with commands for tools.
func forPeople(err error) error {
	refused, ok := errors.AsType[*session.Error](err)
	if !ok {
		return err
	}
	before, after, _ := strings.Cut(err.Error(), refused.Error())
	return errors.New(before + refused.For(show.People) + after)
}

// What is printed comes from others: names, goals and notes of agents.
var (
	plain   = show.Plain
	inline  = show.Inline
	oneLine = show.OneLine
	indent  = show.Indent
	count   = show.Count

	indentRest = show.IndentRest
	optional   = show.Optional
)

// logFlags are the flags of a command that logs.
type logFlags struct {
	level  string
	format string
	file   string
}

var (
	logLevels  = []string{"debug", "info", "warn", "error"}
	logFormats = []string{"text", "json"}
)

func (f *logFlags) register(cmd *cobra.Command, level string) {
	flags := cmd.Flags()
	flags.StringVar(&f.level, "log-level", level, "lowest level that is logged: "+strings.Join(logLevels, ", "))
	flags.StringVar(&f.format, "log-format", "text", "text or json")
	flags.StringVar(&f.file, "log-file", "", "append the log to this `file` instead of writing it to stderr")
	_ = cmd.RegisterFlagCompletionFunc("log-level",
		cobra.FixedCompletions(logLevels, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("log-format",
		cobra.FixedCompletions(logFormats, cobra.ShellCompDirectiveNoFileComp))
}

// check refuses values that are not allowed.
func (f *logFlags) check(cmd *cobra.Command) error {
	if !slices.Contains(logLevels, f.level) {
		return usagef(cmd, "--log-level %q is not one of %s", f.level, strings.Join(logLevels, ", "))
	}
	if !slices.Contains(logFormats, f.format) {
		return usagef(cmd, "--log-format %q is not one of %s", f.format, strings.Join(logFormats, ", "))
	}
	return nil
}

// open returns the logger, and a function that closes it. It writes to stderr, or appends to a file that only its owner
// may read, since it tells what people work on.
func (f *logFlags) open(stderr io.Writer) (logger *slog.Logger, close func() error, err error) {
	w, close := stderr, func() error { return nil }
	if f.file != "" {
		file, err := os.OpenFile(f.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, fmt.Errorf("opening the log file: %w", err)
		}
		w, close = file, file.Close
	}

	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, nil, fmt.Errorf("--log-level: %w", err)
	}
	options := &slog.HandlerOptions{Level: level}
	if f.format == "json" {
		return slog.New(telemetry.LogHandler(slog.NewJSONHandler(w, options))), close, nil
	}
	return slog.New(telemetry.LogHandler(slog.NewTextHandler(w, options))), close, nil
}
