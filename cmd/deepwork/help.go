package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"deepwork/actor/xslices"
	"deepwork/cmd/deepwork/docs"
	"deepwork/session/show"
)

// widestHelp is the greatest width of paragraphs of help: longer lines are hard to read.
const widestHelp = 100

func init() {
	cobra.AddTemplateFunc("beside", func(width, padding int, short string) string {
		left := padding + 3 // the name is indented by two
		return strings.ReplaceAll(show.Wrap(short, width-left), "\n", "\n"+strings.Repeat(" ", left))
	})
	cobra.AddTemplateFunc("usages", func(cmd *cobra.Command, width int, ofStore bool) string {
		some := pflag.NewFlagSet("", pflag.ContinueOnError)
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if _, ok := f.Annotations[storeFlag]; ok == ofStore {
				some.AddFlag(f)
			}
		})
		return some.FlagUsagesWrapped(width)
	})
}

// storeFlag annotates flags that only users of a shared store need.
const storeFlag = "deepwork_store"

// helpGroups are the commands that the help lists first, in this order of groups.
var helpGroups = []struct {
	title    string
	commands []string
}{
	{"To begin:", []string{"demo", "init", "jobs", "validate", "serve", "ui"}},
	{"To have work done:", []string{"board", "run", "sessions", "trust"}},
}

// groupHelp lists the commands that most people need before the others.
func groupHelp(root *cobra.Command) {
	for _, g := range helpGroups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, name := range g.commands {
			cmd, _, err := root.Find([]string{name})
			if err != nil || cmd == root {
				panic("no command " + name) // every run of the program would report it
			}
			cmd.GroupID = g.title
		}
	}
}

// groupFlags lists the store's flags last in the help of all commands, and wraps flags at a width; 0 means no limit.
func groupFlags(root *cobra.Command, width int) {
	const flags, trimmed = "{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}",
		"{{usages . %d %v | trimTrailingWhitespaces}}"
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), flags,
		fmt.Sprintf(trimmed+"{{if usages . 0 true}}\n\nSeveral machines:\n"+trimmed+"{{end}}", width, false, width,
			true), 1))
}

// fitHelp wraps the help of all commands at a width.
func fitHelp(root *cobra.Command, width int) {
	root.SetUsageTemplate(strings.NewReplacer(
		`Use "{{.CommandPath}} [command] --help" for more information about a command.`,
		`"{{.CommandPath}} [command] --help" says more about a command.`,
		"{{rpad .Name .NamePadding }} {{.Short}}",
		fmt.Sprintf("{{rpad .Name .NamePadding }} {{beside %d .NamePadding .Short}}", width),
	).Replace(root.UsageTemplate()))

	var fit func(*cobra.Command)
	fit = func(cmd *cobra.Command) {
		paragraphs := strings.Split(cmp.Or(cmd.Long, cmd.Short), "\n\n")
		for i, p := range paragraphs { // except those with indented lines
			if !strings.HasPrefix(p, " ") && !strings.Contains(p, "\n ") {
				paragraphs[i] = show.Wrap(strings.ReplaceAll(p, "\n", " "), min(width, widestHelp))
			}
		}
		cmd.Long = strings.Join(paragraphs, "\n\n")
		for _, sub := range cmd.Commands() {
			fit(sub)
		}
	}
	fit(root)
}

// helpCommand shows the help of a command, or a page of the documentation.
func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command or topic]",
		Short: "Help about a command or a topic",
		Long:  `Show the help of a command, or a topic of the documentation. "deepwork help topics" lists the topics.`,
		Example: `  deepwork help run
  deepwork help first-workflow`,
		ValidArgsFunction: func(
			cmd *cobra.Command, args []string, _ string,
		) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}

			shown := slices.DeleteFunc(slices.Clone(cmd.Root().Commands()), func(c *cobra.Command) bool {
				return !c.IsAvailableCommand()
			})
			commands := xslices.Map(shown, func(c *cobra.Command) string {
				return cobra.CompletionWithDesc(c.Name(), c.Short)
			})
			topics := xslices.Map(docs.Topics(), func(t docs.Topic) string {
				return cobra.CompletionWithDesc(t.Name, t.Title)
			})
			return append(commands, topics...), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if of, rest, err := cmd.Root().Find(args); err == nil && (len(rest) == 0 || of.HasParent()) {
				if len(rest) > 0 && of.HasSubCommands() {
					return unknownCommand(of, rest)
				}

				of.InitDefaultHelpFlag()
				if topic, _ := docs.Find(strings.Join(args, " ")); topic != nil && of.HasParent() {
					defer fmt.Fprintf(a.out, "\n'deepwork help %s' prints %q of the documentation.\n", topic.Name,
						topic.Title)
				}
				return of.Help()
			}
			return a.printTopic(cmd, strings.Join(args, " "))
		},
	}
}

// printTopic prints a page of the documentation, laid out at a terminal, else as Markdown. "topics" lists all.
func (a *app) printTopic(cmd *cobra.Command, name string) error {
	if name == "topics" {
		a.out.Pairs(xslices.Map(docs.Topics(), func(t docs.Topic) [2]string { return [2]string{t.Name, t.First} }))
		return nil
	}

	topic, near := docs.Find(name)
	if topic == nil {
		hint := "'deepwork help topics' lists the topics" + didYouMean(cmd.Root(), name)
		if near != nil {
			hint = "did you mean " + strings.Join(near[:min(len(near), 5)], ", ") + "?"
		}
		return usagef(cmd, "no command or topic %q; %s", name, hint)
	}
	text := topic.Text
	if width := a.out.Width(); width > 0 {
		text = topic.ForTerminal(min(width, widestHelp))
	}
	_, err := fmt.Fprint(a.out, text)
	return err
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this binary",
		Example: `  deepwork version --json`,
		Args:    argumentCount(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			v := readBuild()
			if !a.json {
				_, err := fmt.Fprintln(a.out, v)
				return err
			}
			return a.printJSON(v)
		},
	}
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON")
	return cmd
}

// version is the release's, set by the linker (.ci/release); "" in other builds.
var version string

// A build describes how this binary was built.
type build struct {
	Version  string `json:"version"` // of the release, or as Go derives it from tags and commits
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"` // of the commit
	Modified bool   `json:"modified"`       // the checkout had uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuild() build {
	b := build{Version: "dev", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(version, strings.TrimSuffix(info.Main.Version, "(devel)"), b.Version)
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}

	return b
}

// String returns the output line of `deepwork version`.
func (b build) String() string {
	words := []string{"deepwork", b.Version}
	if b.Commit != "" {
		words = append(words, "commit", b.Commit[:min(12, len(b.Commit))])
	}
	if b.Time != "" {
		words = append(words, b.Time)
	}
	if b.Modified {
		words = append(words, "modified")
	}
	return strings.Join(append(words, b.Go, b.Platform), " ")
}

// printJSON prints v as JSON indented by two spaces.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
