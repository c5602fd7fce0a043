package transport

import (
	"os"
	"strings"
	"testing"
)

// The README's tables tell of every tool that there is and of no other; arguments
// and replies are in TOOLS.md, which it links to.
func TestReadmeTellsOfEveryTool(t *testing.T) {
	data, err := os.ReadFile("README.md")
	must(t, err)
	if !strings.Contains(string(data), "]("+toolsDoc+")") {
		t.Errorf("README.md does not link to %s", toolsDoc)
	}
	_, section, found := strings.Cut(string(data), "\n## Tools\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("README.md has no section of tools")
	}
	rows := map[string]bool{}
	for line := range strings.Lines(section) {
		if name, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ = strings.Cut(name, "`")
			rows[name] = true
		}
	}
	for _, tool := range listTools(t) {
		if !rows[tool.Name] {
			t.Errorf("README.md does not tell of %s", tool.Name)
		}
		delete(rows, tool.Name)
	}
	for name := range rows {
		t.Errorf("README.md names %s, which is not a tool", name)
	}
}
