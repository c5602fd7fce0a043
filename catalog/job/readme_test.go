package job

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// The page has a table for each object of the schema, with a row for each key that says whether it is required.
func TestDocumentationDescribesEveryKey(t *testing.T) {
	type object struct {
		Properties map[string]any
		Required   []string
	}
	var schema struct {
		Defs map[string]object `json:"$defs"`
	}
	testkit.Must(t, json.Unmarshal(Schema(), &schema))
	page := readFile(t, "../../cmd/deepwork/docs/reference/job-file.md")
	for name, o := range schema.Defs {
		title := strings.ToUpper(name[:1]) + name[1:]
		_, section, _ := strings.Cut(string(page), "\n### "+title+"\n")
		section, _, _ = strings.Cut(section, "\n### ")
		for key := range o.Properties {
			required := "no"
			if slices.Contains(o.Required, key) {
				required = "yes"
			}
			described := func(line string) bool {
				cells := strings.Split(line, " | ")
				return len(cells) == 3 && strings.Contains(cells[0], "`"+key+"`") && cells[1] == required
			}
			testkit.True(t, slices.ContainsFunc(strings.Split(section, "\n"), described), "job-file.md has no row for %s under the heading %s that says required: %s", key, title, required)
		}
	}
}
