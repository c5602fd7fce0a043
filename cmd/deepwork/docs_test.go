package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/cmd/deepwork/demo"
	"deepwork/session/show"
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
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || filepath.Base(path) == "faults.go" ||
			strings.Contains(filepath.ToSlash(path), "cmd/proof/") || strings.HasSuffix(filepath.Dir(path), "test") ||
			filepath.Base(filepath.Dir(path)) == "testkit" {
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
	testkit.Generated(t, docsFolder+"/reference/commands.md", "## All commands", b.String(), *update,
		"go test ./cmd/deepwork -run TestCommandsDocument -update")
}

// The page about traces has all spans.
func TestTracesDocument(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n| span | what | parent | attributes |\n|---|---|---|---|\n")
	for _, k := range spans.Kinds {
		keys := strings.ReplaceAll(strings.Trim(fmt.Sprintf("%q", k.Keys), "[]"), `"`, "`")
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, k.What, k.Parent, keys)
	}
	testkit.Generated(t, docsFolder+"/reference/traces.md", "## All spans", b.String(), *update,
		"go test ./cmd/deepwork -run TestTracesDocument -update")
}

// describe writes the section of a command.
func describe(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n### %s\n\n", c.CommandPath())
	for p := range strings.SplitSeq(strings.TrimSpace(cmp.Or(c.Long, c.Short+".")), "\n\n") {
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
		shared := c.Name() != "serve" &&
			(f.Name == "path" || f.Name == "store" || f.Name == "project" && c.Parent().Name() != "board")
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

// runDemo plays the demo in a folder of the test.
func runDemo(t *testing.T, out io.Writer) error {
	t.Helper()
	d := demo.Demo{
		Out:  show.NewScreen(out, os.Getenv),
		Dir:  t.TempDir(),
		Self: testkit.Get(exec.LookPath("deepwork")).Must(t),
		Turn: func() {},
	}
	return d.Run(t.Context())
}

// The demo ends if nobody reads its output any more, as after `deepwork demo | head`.
func TestDemoUnread(t *testing.T) {
	t.Parallel()
	unread := writerFunc(func(p []byte) (int, error) {
		if bytes.Contains(p, []byte("3. In your terminal")) {
			return 0, os.ErrClosed
		}
		return len(p), nil
	})
	err := runDemo(t, unread)
	testkit.True(t, errors.Is(err, os.ErrClosed) && strings.Contains(err.Error(), "chapter 3"),
		"run = %v, want that its output is closed", err)
}

// The job that README.md shows is the demo's, and its chat is what the demo prints, in this order, but for
// ids: each line that ends with … is shown in part. README.md is about one screen and a half, and each of the
// two is short.
func TestReadmeShowsTheDemo(t *testing.T) {
	t.Parallel()
	page := string(testkit.Get(os.ReadFile(filepath.Join("..", "..", "README.md"))).Must(t))
	testkit.True(t, strings.Count(page, "\n") <= 125, "README.md has %d lines; expected at most 125",
		strings.Count(page, "\n"))

	block := func(kind string) string {
		t.Helper()
		_, text, found := strings.Cut(page, "\n```"+kind+"\n")
		text, _, closed := strings.Cut(text, "```\n")
		testkit.Need(t, found && closed, "README.md has no block of %s", kind)
		return text
	}
	for kind, most := range map[string]int{"yaml job": 17, "transcript": 15} {
		lines := strings.Count(strings.ReplaceAll(block(kind), "\n\n", "\n"), "\n")
		testkit.True(t, lines <= most, "README.md has %d lines of %s; expected at most %d", lines, kind, most)
	}
	testkit.Equal(t, block("yaml job"), string(testkit.Get(os.ReadFile("demo/jobs/newsletter/job.yml")).Must(t)),
		"the job of README.md")

	var printed bytes.Buffer
	must(t, runDemo(t, &printed))
	mask := func(text string) string { return regexp.MustCompile(`\b[0-9a-f]{8}\b`).ReplaceAllString(text, "#") }
	rest := "\n" + mask(printed.String())
	for line := range strings.Lines(mask(block("transcript"))) {
		_, after, found := strings.Cut(rest, "\n"+strings.TrimSuffix(line, "…\n"))
		testkit.Need(t, found, "the demo does not print %q after the lines before it in README.md:\n%s", line, &printed)
		rest = "\n" + after
	}
}

// What the demo says to try next are commands, and init lays out the workflow that they run.
func TestDemoTries(t *testing.T) {
	story := string(testkit.Get(os.ReadFile("demo/story.txt")).Must(t))
	lines := regexp.MustCompile(`(?m)^  deepwork .*`).FindAllString(story, -1)
	testkit.Need(t, len(lines) >= 4 && strings.Contains(story, "\n  deepwork run release_notes/write "),
		"the story ends with %q", lines)

	for _, line := range lines {
		if words := shellWords(strings.TrimSpace(line)); words[0] != "claude" {
			checkCommand(t, "demo", words)
		}
	}

	root := t.TempDir()
	mustPrint(t, root, "init")
	testkit.Contains(t, string(testkit.Get(os.ReadFile(filepath.Join(root, ".deepwork/jobs/release_notes/job.yml"))).
		Must(t)), "- name: write\n")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// rooms are the parts of the house from top to bottom (main.go): a package imports those of its own room and
// of the rooms below, never above. catalog and gate are side by side, and so are those of session.
var rooms = [][]string{{"cmd"}, {"transport"}, {"session"}, {"catalog", "gate"}, {"actor"}}

// floor returns how far from the top the room of a package is, or -1.
func floor(pkg string) int {
	room, _, _ := strings.Cut(pkg, "/")
	return slices.IndexFunc(rooms, func(side []string) bool { return slices.Contains(side, room) })
}

// TestImportsRunDown reads every file and keeps the direction of the house, and the size of its parts.
func TestImportsRunDown(t *testing.T) {
	root := filepath.Join("..", "..")
	module, _, _ := strings.Cut(strings.TrimPrefix(readAll(root, "go.mod"), "module "), "\n")
	files := 0
	crossed := map[string]bool{}
	held := map[string]int{}
	set := token.NewFileSet()
	must(t, walkSources(root, func(name string) error {
		if !strings.HasSuffix(name, ".go") {
			return nil
		}

		files++
		from := filepath.ToSlash(testkit.Get(filepath.Rel(root, filepath.Dir(name))).Must(t))
		file := testkit.Get(parser.ParseFile(set, name, nil, parser.SkipObjectResolution)).Must(t)
		for _, spec := range file.Imports {
			to, ours := strings.CutPrefix(testkit.Get(strconv.Unquote(spec.Path.Value)).Must(t), module+"/")
			testkit.True(t, !ours || floor(from) >= 0 && floor(to) >= floor(from),
				"%s imports %s: imports run down from room to room of %v", name, to, rooms)
			if ours && floor(from) != floor(to) {
				crossed[from+" -> "+to] = true
			}
		}
		if strings.HasSuffix(name, "_test.go") {
			return nil
		}
		held[from]++
		testkit.True(t, held[from] <= 30, "%s has over 30 files: make two packages of it", from)

		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			lines := set.Position(f.Body.Rbrace).Line - set.Position(f.Body.Lbrace).Line
			testkit.True(t, lines <= 90, "%s: a function has %d lines; expected at most 90",
				set.Position(f.Pos()), lines)
		}

		return nil
	}))
	testkit.True(t, files >= 100 && len(crossed) >= 10,
		"only %d files with %d imports between rooms were read: is the house still at %s?", files, len(crossed), root)
}

// walkSources calls visit with each file of the project, but for those of tests' data and of other projects.
func walkSources(root string, visit func(name string) error) error {
	return filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			return visit(name)
		case name != root && (strings.HasPrefix(d.Name(), ".") ||
			slices.Contains([]string{"testdata", "node_modules", "dist"}, d.Name())):
			return fs.SkipDir
		}
		return nil
	})
}

// Nothing offers a command with a person's verdict in it, since an agent that reads it could run it: no message, page,
// document or help. The command has no flags for one.
func TestNoCommandHasAVerdict(t *testing.T) {
	verdict := regexp.MustCompile(
		`sessions review[^\n]*(?:--(?:pass|fail)\b|(?:STEP|ID|%s|\}\})\]* ` +
			`(?:pass|fail)\b)|--(?:pass|fail)\b[^\n]*--feedback`)
	for _, offered := range []string{"deepwork sessions review ID STEP --pass", "`deepwork sessions review %s %s pass`",
		"or --fail --feedback TEXT in place of --pass --feedback"} {
		testkit.True(t, verdict.MatchString(offered), "%q is not found", offered)
	}

	files := 0
	must(t, walkSources(filepath.Join("..", ".."), func(name string) error {
		if strings.HasSuffix(name, "_test.go") ||
			!slices.Contains([]string{".go", ".md", ".html", ".json", ".yml", ".js"}, filepath.Ext(name)) {
			return nil
		}

		files++
		text, err := os.ReadFile(name)
		testkit.Equal(t, verdict.FindString(string(text)), "", "%s", name)
		return err
	}))
	testkit.True(t, files >= 300, "only %d files were read", files)

	var a app
	a.sessionsReviewCommand().Flags().VisitAll(func(f *pflag.Flag) {
		testkit.True(t, !slices.Contains([]string{"pass", "fail", "feedback", "yes"}, f.Name),
			"--%s holds a verdict", f.Name)
	})
}

// TestTopLevel keeps the top level to the rooms: dot files aside, nothing else is there.
func TestTopLevel(t *testing.T) {
	want := slices.Concat(slices.Concat(rooms...), []string{"go.mod", "go.sum", "README.md", "LICENSE"})
	entries := testkit.Get(os.ReadDir(filepath.Join("..", ".."))).Must(t)
	for _, e := range entries {
		testkit.True(t, strings.HasPrefix(e.Name(), ".") || slices.Contains(want, e.Name()),
			"%s is at the top level; expected only %v", e.Name(), want)
	}
}

// hasKey reports whether a path is in a value; a list has what an item has, and "*" is any entry.
func hasKey(v any, path []string) bool {
	if len(path) == 0 {
		return true
	}

	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, func(item any) bool { return hasKey(item, path) })
	case map[string]any:
		for name, value := range v {
			if (path[0] == name || path[0] == "*") && hasKey(value, path[1:]) {
				return true
			}
		}
	}

	return false
}

var keysExpected = regexp.MustCompile(`expected a mapping with the keys (.*)`)

// decoderKeys returns the paths of all keys below one. It learns them from the fault of a config that
// has a text in their place. In a path "[]" is an item of a list, and "*" any entry of a mapping.
func decoderKeys(above []string) (all [][]string) {
	fault := faultAt(above)
	in := func(name string) []string { return append(slices.Clone(above), name) }
	if m := keysExpected.FindStringSubmatch(fault); m != nil {
		for key := range strings.SplitSeq(m[1], ", ") {
			all = append(append(all, in(key)), decoderKeys(in(key))...)
		}
	} else if strings.Contains(fault, "expected a mapping of ") {
		all = decoderKeys(in("*"))
	} else if strings.Contains(fault, "expected a list of ") {
		all = decoderKeys(in("[]"))
	}
	for i, path := range all {
		all[i] = slices.DeleteFunc(slices.Clone(path), func(s string) bool { return s == "[]" && len(above) == 0 })
	}

	return all
}

// faultAt returns what is expected in a config in place of the text x at a path, or "".
func faultAt(path []string) string {
	text := "x"
	for _, name := range slices.Backward(path) {
		switch name {
		case "[]":
			text = "[" + text + "]"
		case "*":
			text = "{X: " + text + "}"
		default:
			text = "{" + name + ": " + text + "}"
		}
	}
	_, faults := config.ParseUser("config.yml", []byte(text))
	for _, f := range faults {
		if strings.Contains(f.Message, "; expected ") {
			return f.Message
		}
	}

	return ""
}
