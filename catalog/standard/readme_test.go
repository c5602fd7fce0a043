package standard_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// repository is the root of the module, as seen from this package's tests.
const repository = "../.."

var (
	link     = regexp.MustCompile(`\]\(([^)]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	toolName = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|.*$")
)

// readme returns the text of README.md and of the pages of the parts.
func readme(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, p := range testkit.Pages(t, repository) {
		text.WriteString(p.Text)
	}
	return text.String()
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

// Every link of a page leads to a file, and to a heading of it if it names one.
func TestReadmeLinksLeadSomewhere(t *testing.T) {
	for _, p := range testkit.Pages(t, repository) {
		for _, m := range link.FindAllStringSubmatch(p.Text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join(repository, filepath.FromSlash(p.Path))
			if file != "" {
				target = filepath.Join(filepath.Dir(target), filepath.FromSlash(file))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", p.Path, m[1], err)
			} else if anchor != "" && !hasHeading(t, target, anchor) {
				t.Errorf("%s links to the heading %s, which is not there", p.Path, m[1])
			}
		}
	}
}

func hasHeading(t *testing.T, path, anchor string) bool {
	t.Helper()
	data, err := os.ReadFile(path)
	testkit.Must(t, err)
	for _, m := range heading.FindAllStringSubmatch(string(data), -1) {
		if strings.ReplaceAll(strings.ToLower(m[1]), " ", "-") == anchor {
			return true
		}
	}
	return false
}

// README.md is at most 400 lines, and links to every page, so that each can be found.
func TestReadmeIsShortAndLinksToEveryPage(t *testing.T) {
	pages := testkit.Pages(t, repository)
	if lines := strings.Count(pages[0].Text, "\n"); lines > 400 {
		t.Errorf("README.md has %d lines; expected at most 400", lines)
	}
	for _, p := range pages[1:] {
		if !strings.Contains(pages[0].Text, "]("+p.Path) {
			t.Errorf("README.md does not link to %s", p.Path)
		}
	}
}

// README.md says why each module is needed that go.mod requires directly, and names no other.
func TestReadmeGivesTheReasonOfEveryDependency(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(repository, "go.mod"))
	testkit.Must(t, err)
	text := testkit.Pages(t, repository)[0].Text
	_, section, found := strings.Cut(text, "\n## Dependencies\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("README.md has no section of dependencies")
	}
	named := make(map[string]bool)
	for _, m := range regexp.MustCompile("`([a-z.]+\\.[a-z]+/[^`]+)`").FindAllStringSubmatch(section, -1) {
		named[m[1]] = true
	}
	required := regexp.MustCompile(`(?m)^(?:\t|require )([^\s/]+\.[^\s]+) v[^\s]+$`).FindAllStringSubmatch(string(data), -1)
	if len(required) < 10 {
		t.Fatalf("go.mod requires %d modules; were they found?", len(required))
	}
	for _, m := range required {
		if !named[m[1]] {
			t.Errorf("README.md gives no reason for %s", m[1])
		}
		delete(named, m[1])
	}
	delete(named, "honnef.co/go/tools") // a tool, which go.mod marks as indirect
	for name := range named {
		t.Errorf("README.md names %s, which go.mod does not require", name)
	}
}

// What the bundled jobs may say of tools is what the document of all tools has,
// which is made from their schemas; and the README names every one, and the commands.
func TestReadmeNamesEveryToolAndCommand(t *testing.T) {
	text := readme(t)
	document, err := os.ReadFile(filepath.Join(repository, "transport", "TOOLS.md"))
	testkit.Must(t, err)
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
