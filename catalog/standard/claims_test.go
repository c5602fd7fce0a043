package standard_test

import (
	"strings"
	"testing"

	"deepwork/catalog/job"
)

// The common info lists what the server refuses. Each claim is tried on the very
// example above it.
func TestServerRefusesWhatTheCommonInfoSays(t *testing.T) {
	found := blocks(load(t)["deepwork_jobs"].CommonInfo, "yaml job")
	if len(found) == 0 {
		t.Fatal("the common info shows no job")
	}
	example := found[0]
	const dependsOnFirst = "    dependencies: [sort_tickets]\n"
	for _, c := range []struct{ claim, old, new, says string }{
		{"an unknown key", "summary: \"Turn", "sumary: x\nsummary: \"Turn", "sumary"},
		{"a key twice", "name: customer_digest", "name: customer_digest\nname: other", "name"},
		{"a second document", "name: customer_digest", "---\nname: other\n---\nname: customer_digest", "document"},
		{"no name", "name: customer_digest", "# nothing", "name"},
		{"no version", "version: \"1.0.0\"", "# nothing", "version"},
		{"no instructions_file", "    instructions_file: steps/sort_tickets.md", "    #", "instructions_file"},
		{"no reviews", "    reviews: []\n", "", "reviews"},
		{"no type of an output", "        type: files\n", "", "type"},
		{"no summary of a workflow", "    summary: \"From", "    # \"From", "summary"},
		{"a version of two numbers", "\"1.0.0\"", "1.0", "version"},
		{"from_step without a dependency", dependsOnFirst, "", "sort_tickets"},
		{"an unknown dependency", dependsOnFirst, "    dependencies: [sort_tickets, sort_mail]\n", "sort_mail"},
		{"a cycle", "    instructions_file: steps/sort_tickets.md", "    dependencies: [write_digest]\n    instructions_file: steps/sort_tickets.md", "write_digest"},
		{"a step before its dependency", "      - sort_tickets\n      - [find_trends, pick_quotes]", "      - [find_trends, pick_quotes]\n      - sort_tickets", "sort_tickets"},
		{"a step beside its dependency", "      - sort_tickets\n      - [find_trends,", "      - [sort_tickets, find_trends,", "sort_tickets"},
		{"a step twice in a workflow", "[find_trends, pick_quotes]", "[find_trends, pick_quotes, find_trends]", "find_trends"},
		{"run_each of no output", "run_each: quotes", "run_each: quote", "quote"},
		{"instructions outside the folder", "steps/sort_tickets.md", "../sort_tickets.md", "../sort_tickets.md"},
	} {
		t.Run(c.claim, func(t *testing.T) {
			if !strings.Contains(example, c.old) {
				t.Fatalf("the example does not hold %q any more", c.old)
			}
			j, ds := job.Parse(t.TempDir(), job.FileName, []byte(strings.Replace(example, c.old, c.new, 1)))
			if j != nil {
				t.Fatalf("it is accepted, with the warnings %v", j.Warnings)
			}
			if !strings.Contains(ds.Error(), c.says) {
				t.Errorf("the fault does not say %q:\n%v", c.says, ds)
			}
		})
	}
}
