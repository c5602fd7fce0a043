package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
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
		for _, m := range fenced.FindAllStringSubmatchIndex(p.Text, -1) {
			s := snippet{p.Text[m[2]:m[3]], p.Path, 1 + strings.Count(p.Text[:m[4]], "\n"), p.Text[m[4]:m[5]]}
			if len(kinds) == 0 || slices.Contains(kinds, s.kind) {
				found = append(found, s)
			}
		}
	}
	if len(found) == 0 {
		t.Fatalf("no page has a block of %q", kinds)
	}
	return found
}

// Each block is of a kind that one of the tests here looks into, or a picture.
func TestReadmeSnippetsAreOfAKnownKind(t *testing.T) {
	known := []string{"sh", "json", "json verdict", "toml", "yaml", "yaml job", "yaml config", "yaml user", "yaml sources", "yaml board", "mermaid", "transcript"}
	for _, s := range snippets(t) {
		if !slices.Contains(known, s.kind) {
			t.Errorf("%s: no test reads blocks of %q; the kinds are %q", s.at(0), s.kind, known)
		}
	}
	if fences := strings.Count(readme(t), "\n```"); fences != 2*len(snippets(t)) {
		t.Errorf("the pages have %d fences, and %d blocks: one is not closed, or indented", fences, len(snippets(t)))
	}
}

// Every YAML block is what the program takes: a job, or a config.
func TestReadmeYAMLIsTaken(t *testing.T) {
	for _, s := range snippets(t, "yaml job") {
		if _, faults := job.Parse(t.TempDir(), "README.md", []byte(s.text)); len(faults) > 0 {
			t.Errorf("%s: the job has faults: %v", s.at(0), faults)
		}
	}
	for _, s := range snippets(t, "yaml", "yaml config", "yaml sources", "yaml board") {
		for kind, text := range map[string]string{"": s.text, " with what is commented out": uncommented(s.text)} {
			if _, faults := config.Parse("README.md", []byte(text)); len(faults) > 0 {
				t.Errorf("%s: the config%s has faults: %v", s.at(0), kind, faults)
			}
		}
	}
	for _, s := range snippets(t, "yaml user") {
		if _, faults := config.ParseUser("README.md", []byte(s.text)); len(faults) > 0 {
			t.Errorf("%s: the user's config has faults: %v", s.at(0), faults)
		}
	}
}

var setting = regexp.MustCompile(`(?m)^(\s*)# ([a-z_]+: )`)

// uncommented turns comments that are settings into settings, but for those that
// say they are shown elsewhere.
func uncommented(text string) string {
	return setting.ReplaceAllString(regexp.MustCompile(`(?m)^.*# see below$`).ReplaceAllString(text, ""), "$1$2")
}

// Every key that the config's decoder takes is in one of the blocks, where it
// belongs.
func TestReadmeShowsEveryConfigKey(t *testing.T) {
	var shown []map[string]any
	for _, s := range snippets(t, "yaml", "yaml config", "yaml user", "yaml sources", "yaml board") {
		var top map[string]any
		if err := yaml.Unmarshal([]byte(uncommented(s.text)), &top); err != nil {
			t.Fatalf("%s: %v", s.at(0), err)
		}
		shown = append(shown, top)
	}
	for _, path := range decoderKeys(nil) {
		if i := slices.Index(path, "variants"); i >= 0 { // a variant has the keys of its executor, as the README says
			path = slices.Delete(path, i, min(i+2, len(path)))
		}
		if !slices.ContainsFunc(shown, func(top map[string]any) bool { return hasKey(top, path) }) {
			t.Errorf("no page shows the config key %s", strings.Join(path, "."))
		}
	}
}

// The blocks of JSON and TOML configure clients, and start the server with options
// that it has.
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
		if err := d.Decode(&v); err != nil || len(v.Servers) == 0 {
			t.Errorf("%s: this configures no client: %v", s.at(0), err)
		}
		for _, server := range v.Servers {
			if server.Command != "deepwork" || len(server.Args) == 0 || server.Args[0] != "serve" {
				t.Errorf("%s: %s %q does not start the server", s.at(0), server.Command, server.Args)
			}
			runnable(t, s.at(0), server.Args)
		}
	}
	line := regexp.MustCompile(`(?m)^args = (\[.*\])$`)
	for _, s := range snippets(t, "toml") {
		m := line.FindStringSubmatch(s.text)
		var args []string
		if !strings.HasPrefix(s.text, "[mcp_servers.deepwork]\ncommand = \"deepwork\"\n") || m == nil || json.Unmarshal([]byte(m[1]), &args) != nil {
			t.Errorf("%s: this does not start the server:\n%s", s.at(0), s.text)
			continue
		}
		runnable(t, s.at(0), args)
	}
}

// Every command line in the blocks for the shell is one: a command that there is,
// with options it has and as many arguments as it takes.
func TestReadmeCommandLines(t *testing.T) {
	checked := 0
	all := snippets(t, "sh")
	if want := []string{"go run ./cmd/deepwork demo", "go test ./..."}; !slices.Equal(commandsOf(all[0].text), want) {
		t.Errorf("%s begins with %q, and is to begin with %q", all[0].at(0), commandsOf(all[0].text), want)
	}
	for _, s := range all {
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
	if checked < 30 {
		t.Errorf("the pages have %d command lines; were they found?", checked)
	}
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
				if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(dir))); err != nil {
					t.Errorf("%s: %v", at, err)
				}
			}
		}
	case words[0] == ".ci/release" && len(words) == 3:
		if _, err := os.Stat(filepath.Join("..", "..", ".ci", "release")); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	case slices.Contains([]string{"caddy", "cd", "chmod", "createuser", "docker", "export"}, words[0]), slices.Equal(words[:min(3, len(words))], []string{"claude", "mcp", "add"}):
		// not ours
	default:
		t.Errorf("%s: nobody knows how to check %q", at, words)
	}
}

// runnable checks a command line of ours as the program does. A command that works
// in a project is run, in one that does not exist: that far it must come, past all
// that is checked of its options.
func runnable(t *testing.T, at string, args []string) {
	t.Helper()
	cmd, rest, err := (&app{}).root().Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err == nil {
		err = cmd.ValidateRequiredFlags()
	}
	if err != nil {
		t.Errorf("%s: deepwork %s: %v", at, strings.Join(args, " "), err)
		return
	}
	if cmd.Flags().Lookup("path") == nil {
		return
	}
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	var stdout, stderr bytes.Buffer
	code := Main(append(slices.Clone(args), "--path", nowhere), strings.NewReader(""), &stdout, &stderr)
	if code != exitFailure || !strings.Contains(stderr.String(), "nowhere") {
		t.Errorf("%s: deepwork %s gives exit code %d before it looks for the project: %s", at, strings.Join(args, " "), code, stderr.String())
	}
}

// named checks that a command is there, and every option that is named with it.
func named(t *testing.T, text string, args []string) {
	t.Helper()
	cmd, _, err := (&app{}).root().Find(args)
	if err != nil || !cmd.HasParent() {
		t.Errorf("a page names `%s`: there is no such command (%v)", text, err)
		return
	}
	for _, word := range args {
		if name, ok := strings.CutPrefix(word, "--"); ok && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
			t.Errorf("a page names `%s`: there is no --%s", text, name)
		}
	}
}

// commandsOf gives the command lines of a block.
func commandsOf(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if words := shellWords(line); len(words) > 0 {
			all = append(all, strings.Join(words, " "))
		}
	}
	return all
}

// shellWords splits a command line as the shell does, as far as the README uses it:
// quotes, comments and redirections.
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
