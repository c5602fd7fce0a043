package transport

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The README's tables tell of every tool with every argument it lists, and which of
// them are required.
func TestReadmeTellsOfEveryTool(t *testing.T) {
	data, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ = strings.Cut(name, "`")
			rows[name] = line
		}
	}
	for _, tool := range listTools(t) {
		row, ok := rows[tool.Name]
		if !ok {
			t.Errorf("README.md does not tell of %s", tool.Name)
			continue
		}
		cells := strings.Split(row, " | ")
		if len(cells) != 3 {
			t.Errorf("the row of %s has %d cells", tool.Name, len(cells))
			continue
		}
		input := schemaFrom(t, tool.InputSchema)
		for name := range input.Properties {
			if needed := slices.Contains(input.Required, name); !strings.Contains(cells[1], "`"+name+"`") || needed != strings.Contains(cells[1], "*`"+name+"`*") {
				t.Errorf("README.md tells of %s of %s wrongly, or not at all; required: %v", name, tool.Name, needed)
			}
		}
	}
}
