package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"deepwork/actor/testkit"
	"deepwork/session/spans"
)

var update = flag.Bool("update", false, "renew the generated pages of the documentation")

// docsFolder is where the pages of the documentation are.
const docsFolder = "docs"

// The page of environment variables has each that the program reads or sets.
func TestEveryEnvironmentVariableIsDocumented(t *testing.T) {
	page := string(testkit.Get(os.ReadFile(docsFolder + "/reference/environment.md")).Must(t))
	name, found := regexp.MustCompile(`"(DEEPWORK_[A-Z_]+)"`), 0
	must(t, walkSources(filepath.Join("..", ".."), func(path string) error {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "faults.go" || strings.Contains(filepath.ToSlash(path), "cmd/proof/") || strings.HasSuffix(filepath.Dir(path), "test") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			found++
			testkit.Contains(t, page, "`"+m[1]+"`", "%s: environment.md does not describe", path)
		}
		return err
	}))
	testkit.True(t, found >= 10, "only %d variables were found", found)
}

// The page of commands has the help of each command.
func TestCommandsDocument(t *testing.T) {
	var b strings.Builder
	var add func(*cobra.Command)
	add = func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		if c.HasParent() && (!c.HasSubCommands() || c.Flags().HasFlags()) || c.Name() == "completion" {
			describe(&b, c)
		}
		if c.Name() == "completion" { // the help of its shells is cobra's
			return
		}
		for _, sub := range c.Commands() {
			add(sub)
		}
	}
	add((&app{}).root())
	testkit.Generated(t, docsFolder+"/reference/commands.md", "## All commands", b.String(), *update, "go test ./cmd/deepwork -run TestCommandsDocument -update")
}

// The page about traces has all spans.
func TestTracesDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n| span | what | parent | attributes |\n|---|---|---|---|\n")
	for _, k := range spans.Kinds {
		keys := make([]string, len(k.Keys))
		for i, key := range k.Keys {
			keys[i] = "`" + string(key) + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, k.What, k.Parent, strings.Join(keys, " "))
	}
	testkit.Generated(t, docsFolder+"/reference/traces.md", "## All spans", b.String(), *update, "go test ./cmd/deepwork -run TestTracesDocument -update")
}

// describe writes the section of a command.
func describe(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n### %s\n\n", c.CommandPath())
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	for p := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if strings.HasPrefix(p, " ") || strings.Contains(p, "\n ") {
			p = "```text\n" + p + "\n```"
		}
		fmt.Fprintf(b, "%s\n\n", p)
	}
	fmt.Fprintf(b, "```text\n%s\n", c.UseLine())
	if c.HasExample() {
		fmt.Fprintf(b, "\n%s\n", strings.Trim(c.Example, "\n"))
	}
	b.WriteString("```\n")
	first := true
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		shared := c.Name() != "serve" && (f.Name == "path" || f.Name == "store" || f.Name == "project" && c.Parent().Name() != "board")
		if f.Hidden || f.Name == "help" || shared { // the head of the page describes those
			return
		}
		if first {
			b.WriteString("\n| option | meaning |\n|---|---|\n")
			first = false
		}
		name, usage := pflag.UnquoteUsage(f)
		option := strings.TrimSpace("--" + f.Name + " " + name)
		if f.Shorthand != "" {
			option = "-" + f.Shorthand + ", " + option
		}
		if !slices.Contains([]string{"", "false", "0", "0s", "[]"}, f.DefValue) && !strings.Contains(usage, "default") {
			usage += "; default: " + f.DefValue
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", option, strings.NewReplacer("|", `\|`, "<", `\<`).Replace(usage))
	})
}
