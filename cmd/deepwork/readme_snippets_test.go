package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/cmd/deepwork/docs"
	"deepwork/session"
	"deepwork/session/show"
)

// A snippet is a fenced block of a page: of README.md, or of one of the pages it links to.
type snippet struct {
	kind string // the words after the fence
	page string
	line int // of its first line
	text string
}

// at returns where a line of the snippet is, counted from 0.
func (s snippet) at(line int) string { return fmt.Sprintf("%s:%d", s.page, s.line+line) }

var fenced = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")

// readme returns the text of all pages.
func readme(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, p := range testkit.Pages(t, filepath.Join("..", "..")) {
		text.WriteString(p.Text)
	}
	return text.String()
}

// snippets returns the blocks of all pages, of the kinds named, those of README.md first.
func snippets(t *testing.T, kinds ...string) []snippet {
	t.Helper()
	var found []snippet
	for _, p := range testkit.Pages(t, filepath.Join("..", "..")) {
		for _, s := range snippetsOf(p) {
			if kind, _, _ := strings.Cut(s.kind, " file="); len(kinds) == 0 || slices.Contains(kinds, kind) {
				found = append(found, s)
			}
		}
	}
	testkit.Need(t, len(found) != 0, "no page has a block of %q", kinds)
	return found
}

// snippetsOf returns the blocks of a page.
func snippetsOf(p testkit.Page) (found []snippet) {
	for _, m := range fenced.FindAllStringSubmatchIndex(p.Text, -1) {
		found = append(found, snippet{p.Text[m[2]:m[3]], p.Path, 1 + strings.Count(p.Text[:m[4]], "\n"),
			p.Text[m[4]:m[5]]})
	}
	return found
}

// Each block is of a kind that one of the tests here looks into, or a picture.
func TestReadmeSnippetsAreOfAKnownKind(t *testing.T) {
	known := []string{"sh", "console", "agent", "text", "markdown", "json", "json verdict", "toml", "yaml", "yaml job",
		"yaml config", "yaml user", "yaml sources", "yaml board", "transcript"}
	for _, s := range snippets(t) {
		kind, _, _ := strings.Cut(s.kind, " file=")
		testkit.True(t, slices.Contains(known, kind), "%s: no test reads blocks of %q; the kinds are %q", s.at(0),
			s.kind, known)
	}
	testkit.Equal(t, strings.Count(readme(t), "\n```"), 2*len(snippets(t)),
		"fences of blocks: one is not closed, or indented")
}

// Every YAML block is what the program takes: a job, or a config.
func TestReadmeYAMLIsTaken(t *testing.T) {
	for _, s := range snippets(t, "yaml job") {
		_, faults := job.Parse(t.TempDir(), "README.md", []byte(s.text))
		testkit.True(t, len(faults) == 0, "%s: the job has faults: %v", s.at(0), faults)
	}
	for _, s := range snippets(t, "yaml", "yaml config", "yaml sources", "yaml board") {
		for kind, text := range map[string]string{"": s.text, " with what is commented out": uncommented(s.text)} {
			_, faults := config.Parse("README.md", []byte(text))
			testkit.True(t, len(faults) == 0, "%s: the config%s has faults: %v", s.at(0), kind, faults)
		}
	}
	for _, s := range snippets(t, "yaml user") {
		_, faults := config.ParseUser("README.md", []byte(s.text))
		testkit.True(t, len(faults) == 0, "%s: the user's config has faults: %v", s.at(0), faults)
	}
}

var setting = regexp.MustCompile(`(?m)^(\s*)# ([a-z_]+: )`)

// uncommented turns comments that are settings into settings, but for those that say they are shown elsewhere.
func uncommented(text string) string {
	return setting.ReplaceAllString(regexp.MustCompile(`(?m)^.*# see below$`).ReplaceAllString(text, ""), "$1$2")
}

// Every key that the config's decoder takes is in one of the blocks, where it belongs.
func TestReadmeShowsEveryConfigKey(t *testing.T) {
	var shown []map[string]any
	for _, s := range snippets(t, "yaml", "yaml config", "yaml user", "yaml sources", "yaml board") {
		var top map[string]any
		err := yaml.Unmarshal([]byte(uncommented(s.text)), &top)
		testkit.Need(t, err == nil, "%s: %v", s.at(0), err)
		shown = append(shown, top)
	}

	keys := decoderKeys(nil)
	for _, known := range []string{"git.branch", "projects.repos.copy", "executors.*.variants.*.prompt",
		"http.tokens.rights", "sessions.keep_ended"} {
		testkit.True(t, slices.ContainsFunc(keys, func(path []string) bool { return strings.Join(path, ".") == known }),
			"the decoder was not seen to know %s", known)
	}

	for _, path := range keys {
		if i := slices.Index(path, "variants"); i >= 0 { // a variant has the keys of its executor, as the README says
			path = slices.Delete(path, i, min(i+2, len(path)))
		}
		is := slices.ContainsFunc(shown, func(top map[string]any) bool { return hasKey(top, path) })
		testkit.True(t, is, "no page shows the config key %s", strings.Join(path, "."))
	}
}

// The blocks of JSON and TOML configure clients, and start the server with options that it has.
func TestReadmeClientsStartTheServer(t *testing.T) {
	for _, s := range snippets(t, "json") {
		var v struct {
			Servers map[string]struct {
				Command string   `json:"command"`
				Args    []string `json:"args"`
			} `json:"mcpServers"`
		}

		d := json.NewDecoder(strings.NewReader(s.text))
		d.DisallowUnknownFields()
		err := d.Decode(&v)
		testkit.True(t, err == nil && len(v.Servers) != 0, "%s: this configures no client: %v", s.at(0), err)

		for _, server := range v.Servers {
			testkit.Need(t, server.Command == "deepwork", "%s: %+v does not start the server", s.at(0), server)
			testkit.Need(t, len(server.Args) > 0, "%s: %+v does not start the server", s.at(0), server)
			testkit.Need(t, server.Args[0] == "serve", "%s: %+v does not start the server", s.at(0), server)
			runnable(t, s.at(0), server.Args)
		}
	}

	line := regexp.MustCompile(`(?m)^args = (\[.*\])$`)
	for _, s := range snippets(t, "toml") {
		m := line.FindStringSubmatch(s.text)
		testkit.Need(t, strings.HasPrefix(s.text, "[mcp_servers.deepwork]\ncommand = \"deepwork\"\n") && m != nil,
			"%s: this does not start the server:\n%s", s.at(0), s.text)
		var args []string
		must(t, json.Unmarshal([]byte(m[1]), &args))
		runnable(t, s.at(0), args)
	}
}

// Every command line in the blocks for the shell is one: a command that there is,
// with options it has and as many arguments as it takes.
func TestReadmeCommandLines(t *testing.T) {
	t.Parallel()
	checked := 0
	all := snippets(t, "sh")
	begins := regexp.MustCompile(`^go run \./cmd/deepwork demo( +#.*)?\ngo test \./\.\.\.( +#.*)?\n$`).
		MatchString(all[0].text)
	testkit.True(t, begins, "%s begins with %q", all[0].at(0), all[0].text)

	for _, s := range all {
		if s.kind != "sh" { // a script
			continue
		}

		for i, text := range strings.Split(strings.TrimSuffix(s.text, "\n"), "\n") {
			words := shellWords(text)
			if len(words) == 0 {
				continue
			}
			checkCommand(t, s.at(i), words)
			checked++
		}
	}

	// A command in the running text is checked as far as it is written there.
	prose := fenced.ReplaceAllString(readme(t), "")
	for _, m := range regexp.MustCompile("`((?:deepwork|go run|go test) [^`]+)`").FindAllStringSubmatch(prose, -1) {
		text := strings.ReplaceAll(m[1], `\|`, "|")
		if words := shellWords(strings.NewReplacer("[", " ", "]", " ", "…", "").Replace(text)); words[0] == "deepwork" {
			named(t, text, words[1:])
		} else {
			checkCommand(t, "README.md", words)
		}
		checked++
	}
	testkit.True(t, checked >= 30, "the pages have %d command lines; were they found?", checked)
}

// checkCommand checks one command line of the shell.
func checkCommand(t *testing.T, at string, words []string) {
	t.Helper()
	switch {
	case words[0] == "deepwork":
		runnable(t, at, words[1:])
	case len(words) > 3 && slices.Equal(words[:3], []string{"go", "run", "./cmd/deepwork"}):
		runnable(t, at, words[3:])
	case words[0] == "go" && len(words) > 2 && slices.Contains([]string{"run", "test", "install"}, words[1]):
		for _, w := range words[2:] {
			if dir, ok := strings.CutPrefix(strings.TrimSuffix(w, "/..."), "./"); ok {
				testkit.Works(t, testkit.Get(os.Stat(filepath.Join("..", "..", filepath.FromSlash(dir)))).Err(), "%s",
					at)
			}
		}
	case words[0] == ".ci/release" && len(words) == 3:
		testkit.Works(t, testkit.Get(os.Stat(filepath.Join("..", "..", ".ci", "release"))).Err(), "%s", at)
	case slices.Contains([]string{"cd", "chmod", "createuser", "docker", "echo", "export", "git", "mkdir", ".ci/run"},
		words[0]), slices.Equal(words[:min(3, len(words))], []string{"claude", "mcp", "add"}):
		// not ours
	default:
		t.Errorf("%s: nobody knows how to check %q", at, words)
	}
}

// parsed is the command of a command line, which has options that it knows and as many arguments as it takes.
func parsed(args []string) (*cobra.Command, error) {
	cmd, rest, err := (&app{}).root().Find(args)
	if err == nil {
		err = cmp.Or(cmd.ParseFlags(rest), cmd.ValidateArgs(cmd.Flags().Args()))
	}
	return cmd, err
}

// runnable checks a command line of ours as the program does. A command that works in a project is run, in
// one that does not exist: that far it must come, past all that is checked of its options.
func runnable(t *testing.T, at string, args []string) {
	t.Helper()
	cmd, err := parsed(args)
	if err = cmp.Or(err, cmd.ValidateRequiredFlags()); err != nil {
		t.Errorf("%s: deepwork %s: %v", at, strings.Join(args, " "), err)
		return
	}
	if cmd.Flags().Lookup("path") == nil {
		return
	}

	nowhere := filepath.Join(t.TempDir(), "nowhere")
	var stdout, stderr bytes.Buffer
	testkit.Equal(t, Main(append(slices.Clone(args), "--path", nowhere), strings.NewReader(""), &stdout, &stderr),
		exitFailure, "%s", at)
	testkit.Contains(t, stderr.String(), "nowhere", "%s", at)
}

// named checks that a command is there, and every option that is named with it.
func named(t *testing.T, text string, args []string) {
	t.Helper()
	if args[0] == "help" {
		if len(args) < 2 || args[1] == "topics" || args[1] == "TOPIC" {
			return
		}
		if found, _ := docs.Find(args[1]); found != nil {
			return
		}
		args = args[1:]
	}
	cmd, _, err := (&app{}).root().Find(args)
	testkit.Need(t, err == nil && cmd.HasParent(), "a text names `%s`: there is no such command (%v)", text, err)

	for _, word := range args {
		name, ok := strings.CutPrefix(word, "--")
		if ok && name != "help" && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
			t.Errorf("a page names `%s`: there is no --%s", text, name)
		}
	}
}

// shellWords splits a command line as the shell does, as far as the README uses it: quotes, comments and redirections.
func shellWords(line string) []string {
	var words []string
	for _, m := range regexp.MustCompile(`"([^"]*)"|'([^']*)'|(\S+)`).FindAllStringSubmatch(line, -1) {
		switch word := m[1] + m[2] + m[3]; {
		case strings.HasPrefix(m[3], "#"):
			return words
		case regexp.MustCompile(`^[0-9]?>`).MatchString(m[3]):
		default:
			words = append(words, word)
		}
	}
	return words
}

// The examples in the help are valid commands, and every command of the board and of runs has one.
func TestExamplesInHelp(t *testing.T) {
	example := regexp.MustCompile(`deepwork ([^<>)]*)`)
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			check(sub)
		}

		hasNone := c.Example == "" && !c.Hidden &&
			regexp.MustCompile(`^deepwork (board|run) `).MatchString(c.CommandPath()) && c.Name() != "projects"
		testkit.True(t, !hasNone, "the help of %s has no example", c.CommandPath())

		for line := range strings.Lines(c.Example) {
			found := example.FindStringSubmatch(line)
			testkit.Need(t, found != nil, "an example of %s: %q", c.CommandPath(), line)
			cmd, err := parsed(shellWords(found[1]))
			testkit.True(t, err == nil && strings.HasPrefix(cmd.CommandPath(), c.CommandPath()),
				"an example of %s: %q: %v", c.CommandPath(), line, err)
		}
	}
	check((&app{}).root())
}

// What the README says of http are the defaults.
func TestReadmeHTTP(t *testing.T) {
	c, faults := config.Parse("config.yml", []byte(snippets(t, "yaml config")[0].text))
	testkit.Need(t, faults == nil, "%v", faults)
	testkit.Same(t, c.HTTP, config.Default().HTTP, "README.md shows, and not the defaults")
}

// The README's example of a verdict is one.
func TestReadmeVerdict(t *testing.T) {
	block := snippets(t, "json verdict")[0].text
	var v struct {
		Passed   *bool   `json:"passed"`
		Feedback *string `json:"feedback"`
		Results  []struct {
			Criterion string  `json:"criterion"`
			Passed    *bool   `json:"passed"`
			Feedback  *string `json:"feedback"`
		} `json:"criteria_results"`
	}
	d := json.NewDecoder(strings.NewReader(block))
	d.DisallowUnknownFields()
	must(t, d.Decode(&v))
	testkit.Need(t, v.Passed != nil, "README.md's verdict is not one:\n%s", block)
	testkit.Need(t, v.Feedback != nil, "README.md's verdict is not one:\n%s", block)
	testkit.Need(t, len(v.Results) == 1, "README.md's verdict is not one:\n%s", block)
	testkit.True(t, v.Results[0].Passed != nil, "README.md's verdict is not one:\n%s", block)
}

// withoutCommand are the tools for which people need no command.
var withoutCommand = []string{"start_workflow", "finished_step", "go_to_step", "call_workflow_tool",
	"list_workflow_tools", "refresh_workflow_tools", "workflow_status", "cancel_execution", "get_context"}

// Every tool has a command, or is known to have none, so that no message for people names one.
func TestMessagesForPeopleNameNoTools(t *testing.T) {
	data := testkit.Get(os.ReadFile("../../transport/testdata/tools_list.json")).Must(t)
	var tools []struct{ Name string }
	var in any
	must(t, json.Unmarshal(data, &in))
	if list, ok := in.(map[string]any)["tools"]; ok {
		in = list
	}
	data = testkit.Get(json.Marshal(in)).Must(t)
	must(t, json.Unmarshal(data, &tools))
	testkit.Need(t, len(tools) >= 30, "only %d tools", len(tools))

	for _, tool := range tools {
		if strings.HasPrefix(tool.Name, "workflows-") { // of another system
			continue
		}
		_, ok := show.Commands[tool.Name]
		ok = ok != slices.Contains(withoutCommand, tool.Name)
		testkit.True(t, ok, "show.Commands lacks %s", tool.Name)
		got := session.NotNow("x", "It is over.").Next("begin again", tool.Name).For(show.People)
		testkit.True(t, !strings.Contains(got, tool.Name) && strings.HasPrefix(got, "It is over."), "%s: %q",
			tool.Name, got)
	}
}

// A wording is a word or phrase not to write, and what to write instead.
type wording struct{ not, but string }

// unplain are those that texts for people and agents do not have.
var unplain = []wording{
	{`mend(s|ed|ing)?`, "fix, correct"},
	{`heed(s|ed|ing)?`, "follow, read"},
	{`tend(s|ed|ing)? (to|it|them)`, "look after"},
	{`candid(ly)?`, "honest"},
	{`what there is`, "available"},
	{`\w*[^e\s] is none`, "is not a ..."}, // but "there is none",
	{`let be`, "ignored"},
	{`(be|is|are) told of`, "be notified of"},
	{`tells? of`, "reports, describes"},
	{`besides`, "also, in addition"},
	{`whoever`, "any caller that"},
	{`anew`, "again"},
	{`where (it|they) can`, "if possible"},
	{`one (file|line|row|bullet|review|step|processor|task|fault|question|name) an? [a-z]+`, "one X per Y"},
	{`as ever`, "as before"},
	{`by (itself|themselves)`, "automatically"},
	{`(nil|null): none`, "nil means none"},
	{`is to be an?`, "expected a"},
	{`there is something about`, "reports false if"},
	{`seen to`, "dispatched, done"},
}

// unchosen are words for which the glossary has others. The pages have none of them; those of commands and tools are
// made from the help and the descriptions.
var unchosen = []wording{
	{`faults?|faulty`, "error, with an error"},
	{`(review|submission) attempts?|attempts? (at|of) a (step|review)`, "try; an attempt is an agent's work on a task"},
	{`execution session|work session`, "session"},
	{`executions? (of|at) (a |its |other )?(source|system|workflow)s?`, "remote run"},
	{`deepwork adopt`, "deepwork where --adopt"},
	{`work trees?|working trees?`, "worktree"},
	{`sub-agents?|sub agents?`, "subagent"},
	{`tool sets?`, "toolset"},
	{`(USD|minutes|agents) that it may \w+`, "max cost, max time"},
	{`whose cost is unknown`, "with an unknown cost"},
	{`as many \w+ (at once )?as there are`, "no limit on"},
	{`for instance|e\.g\.|i\.e\.`, "for example, that is"},
	{`in order to|utili[sz]e[sd]?|please`, "to, use"},
	{`parallel(ly)? steps?`, "steps that run at the same time, a group"},
}

// wordsOf returns a function, since only one test needs the expression.
func wordsOf(list []wording) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp {
		var all []string
		for _, w := range list {
			all = append(all, w.not)
		}
		return regexp.MustCompile(`(?i)\b(` + strings.Join(all, "|") + `)\b`)
	})
}

var unplainWords, unchosenWords = wordsOf(unplain), wordsOf(unchosen)

// The texts that people and agents read have none of the words above: pages, the document of tools,
// templates, jobs, and what the program's Go files have between quotes (help, errors, descriptions of tools).
func TestTextsAreInPlainWords(t *testing.T) {
	t.Parallel()
	texts, literals := 0, 0
	err := walkSources(filepath.Join("..", ".."), func(path string) error {
		switch name := filepath.Base(path); {
		case strings.HasSuffix(name, "_test.go"):
		case strings.HasSuffix(name, ".go"):
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					literals++
					text, _ := strconv.Unquote(l.Value)
					checkWords(t, unplainWords(), path, text)
					for _, m := range regexp.MustCompile(`deepwork help ([a-z/-]+)`).FindAllStringSubmatch(text, -1) {
						named(t, m[0], []string{"help", m[1]})
					}
				}
				return true
			})
		case strings.HasSuffix(name, ".md"), strings.HasSuffix(name, ".yml"), strings.HasSuffix(name, ".example"),
			strings.HasSuffix(name, ".html"), strings.HasSuffix(name, ".schema.json"):
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			texts++
			checkWords(t, unplainWords(), path, string(data))
		}

		return nil
	})
	for _, p := range testkit.Pages(t, filepath.Join("..", "..")) {
		checkWords(t, unchosenWords(), p.Path, p.Text)
	}
	testkit.Need(t, err == nil, "%d texts and %d literals were read: %v", texts, literals, err)
	testkit.True(t, texts >= 30, "%d texts and %d literals were read: %v", texts, literals, err)
	testkit.True(t, literals >= 1000, "%d texts and %d literals were read: %v", texts, literals, err)
}

func checkWords(t *testing.T, not *regexp.Regexp, path, text string) {
	t.Helper()
	for _, at := range not.FindAllStringIndex(text, -1) {
		from, to := max(0, at[0]-30), min(len(text), at[1]+30)
		t.Errorf("%s: %q in %q; see the lists in this file for what to write instead", path, text[at[0]:at[1]],
			text[from:to])
	}
}
