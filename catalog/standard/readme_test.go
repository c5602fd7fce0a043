package standard_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
)

// repository is the root of the module, as seen from this package's tests.
const repository = "../.."

var (
	link     = regexp.MustCompile(`\]\(([^)#]+)\)`)
	anchor   = regexp.MustCompile(`\]\(#([^)]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	setting  = regexp.MustCompile(`(?m)^(\s*)# ([a-z_]+: )`)
	toolName = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|.*$")
)

func readme(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestReadmeJobIsValid(t *testing.T) {
	if checkJobs(t, "README.md", readme(t)) == 0 {
		t.Error("README.md shows no job")
	}
}

func TestReadmeJSONParses(t *testing.T) {
	found := blocks(readme(t), "json")
	for _, block := range found {
		var v struct {
			Servers map[string]struct {
				Command string   `json:"command"`
				Args    []string `json:"args"`
			} `json:"mcpServers"`
		}
		if err := json.Unmarshal([]byte(block), &v); err != nil {
			t.Errorf("README.md: %v\n%s", err, block)
		} else if s := v.Servers["deepwork"]; s.Command != "deepwork" || len(s.Args) == 0 || s.Args[0] != "serve" {
			t.Errorf("README.md: this does not start the server:\n%s", block)
		}
	}
	if len(found) == 0 {
		t.Error("README.md shows no .mcp.json")
	}
}

// The config is valid as it is shown, gives the defaults it claims to be, and
// is valid as well with every setting that is commented out.
func TestReadmeConfigIsTheDefault(t *testing.T) {
	found := blocks(readme(t), "yaml config")
	if len(found) != 1 {
		t.Fatalf("README.md shows %d configs, want 1", len(found))
	}
	got, want := current(t, found[0]), current(t, "")
	if got.QualityGate.DefaultMaxAttempts != want.QualityGate.DefaultMaxAttempts ||
		got.QualityGate.ReplyWithin != want.QualityGate.ReplyWithin ||
		got.QualityGate.MaxInlineFiles != want.QualityGate.MaxInlineFiles ||
		got.QualityGate.DefaultTimeout != want.QualityGate.DefaultTimeout ||
		got.Git != want.Git {
		t.Errorf("README.md shows\n%+v\nthe defaults are\n%+v", got, want)
	}
	all := setting.ReplaceAllString(found[0], "$1$2")
	if all == found[0] {
		t.Error("no setting is commented out; the test's pattern is stale")
	}
	if c := current(t, all); len(c.QualityGate.AgentReviewCommand) != 2 {
		t.Errorf("agent_review_command is %q", c.QualityGate.AgentReviewCommand)
	}
}

func current(t *testing.T, source string) *config.Config {
	t.Helper()
	root := t.TempDir()
	testkit.Write(t, filepath.Join(root, ".deepwork", "config.yml"), source)
	c, err := config.Open(root).Current(t.Context())
	if err != nil {
		t.Fatalf("the config is refused: %v\n%s", err, source)
	}
	return c
}

func TestReadmeLinksLeadSomewhere(t *testing.T) {
	text := readme(t)
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		if _, err := os.Stat(filepath.Join(repository, filepath.FromSlash(m[1]))); err != nil {
			t.Errorf("README.md links to %s: %v", m[1], err)
		}
	}
	headings := make(map[string]bool)
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		headings[strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")] = true
	}
	for _, m := range anchor.FindAllStringSubmatch(text, -1) {
		if !headings[m[1]] {
			t.Errorf("README.md links to the heading #%s, which it does not have", m[1])
		}
	}
}

// What the bundled jobs may say of tools is what the document of all tools has,
// which is made from their schemas; and the README names every one, and the commands.
func TestReadmeNamesEveryToolAndCommand(t *testing.T) {
	text := readme(t)
	document, err := os.ReadFile(filepath.Join(repository, "transport", "TOOLS.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]bool)
	for _, m := range toolName.FindAllStringSubmatch(text, -1) {
		rows[m[1]] = true
	}
	for tool, arguments := range tools {
		if !rows[tool] {
			t.Errorf("README.md has no row for the tool %s", tool)
		}
		_, section, found := strings.Cut(string(document), "\n### "+tool+"\n")
		if !found {
			t.Errorf("TOOLS.md does not tell of %s", tool)
			continue
		}
		section, _, _ = strings.Cut(section, "\n### ")
		section, _, _ = strings.Cut(section, "\n| field of the reply |")
		for _, argument := range arguments {
			if !strings.Contains(section, "\n| `"+argument+"` |") {
				t.Errorf("%s has no argument %s, says TOOLS.md", tool, argument)
			}
		}
	}
	for _, c := range commands {
		if !strings.Contains(text, "`deepwork "+c) {
			t.Errorf("README.md does not name the command deepwork %s", c)
		}
	}
}
