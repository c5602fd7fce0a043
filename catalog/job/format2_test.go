package job

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"deepwork/actor/testkit"
)

// The model of a file of format 2 says what the file does.
func TestFormat2(t *testing.T) {
	j, ds := Parse("/jobs/survey", FileName, readFile(t, "testdata/valid/format2.yml"))
	testkit.Must(t, ds.Err())
	shown, err := json.MarshalIndent(struct {
		Name, Summary string
		Format        int
		Workflows     []Workflow
		Warnings      Diagnostics
	}{j.Name, j.Summary, j.Format, j.Workflows, j.Warnings}, "", "\t")
	testkit.Must(t, err)
	testkit.Golden(t, "testdata/format2.golden", string(shown)+"\n", *update)

	ask, again := j.Of("ask"), j.Of("again")
	for name, c := range map[string]struct{ got, want string }{
		"a step of the one workflow":         {ask.Step("prepare").Description, "Prepare the questions"},
		"the step of that name in the other": {again.Step("prepare").Description, "Change the questions"},
		"the step with its workflow":         {j.Step("again/prepare").Description, "Change the questions"},
		"the step without":                   {j.Step("prepare").Description, "Prepare the questions"},
		"the common info of the one":         {ask.CommonInfo, "Be polite."},
		"the common info of the other":       {again.CommonInfo, ""},
	} {
		testkit.True(t, c.got == c.want, "%s: %q, want %q", name, c.got, c.want)
	}
	text, err := Instructions(j, ask.Step("ask"))
	testkit.Must(t, err)
	testkit.Equal(t, cmp.Diff("Ask them.", text), "")
}

// Each fault of a file of format 2 is reported at its place.
func TestFormat2Rules(t *testing.T) {
	base := string(readFile(t, "testdata/valid/format2.yml"))
	var all strings.Builder
	for _, c := range []struct{ name, old, new string }{
		{"steps of the job as well", "step_arguments:", "steps: []\nstep_arguments:"},
		{"workflows as a list", "workflows:\n  ask:", "workflows: [ask]\nother:\n  ask:"},
		{"no step arguments", "step_arguments:", "arguments:"},
		{"a version", "summary: \"Ask people", "version: \"1.0.0\"\nsummary: \"Ask people"},
		{"an unknown type", "type: string", "type: text"},
		{"two arguments of one name", "- name: places", "- name: topic"},
		{"an unknown output", "outputs:\n          questions: {}\n          summary: {required: false}", "outputs:\n          question: {}"},
		{"an input with a review", "topic: {required: true}", "topic: {review: {strategy: individual, instructions: Good}}"},
		{"two steps of one name", "- name: ask\n        instructions", "- name: prepare\n        instructions"},
		{"a step of nothing", "instructions: \"Ask them.\"", "instructions: \"\""},
		{"neither instructions nor a workflow", "instructions: \"Ask them.\"\n        ", ""},
		{"both", "instructions: \"Ask them.\"", "instructions: \"Ask them.\"\n        sub_workflow: {workflow_name: again}"},
		{"a workflow of this job that does not exist", "sub_workflow: {workflow_name: ask}", "sub_workflow: {workflow_name: asks}"},
		{"an unknown strategy", "strategy: individual", "strategy: each"},
		{"a review without instructions", ", instructions: \"Is it what they said?\"", ""},
		{"a requirement that is a list", "Read first: \"The author MUST read what exists.\"", "Read first: [a]"},
		{"a schema outside of the folder", "schemas/summary.json", "../summary.json"},
		{"no valid schema", "{type: object, required: [title]}", "{type: objekt}"},
		{"a schema that refers to another", "{type: object, required: [title]}", "{$ref: \"https://x.test/schema\"}"},
		{"a schema that cannot be checked", "{type: object, required: [title]}", "{pattern: \"(?!a)\"}"},
		{"a schema that is too large", "{type: object, required: [title]}", "{title: \"" + strings.Repeat("x", MaxSchemaBytes) + "\"}"},
		{"a workflow without steps", "    summary: \"Ask again\"\n    steps:", "    summary: \"Ask again\"\n    steps: []\n    other:"},
		{"a name with a blank", "  again:", "  a gain:"},
	} {
		testkit.Need(t, strings.Count(base, c.old) != 0, "%s: the file has no %q", c.name, c.old)
		j, ds := Parse("/jobs/survey", FileName, []byte(strings.Replace(base, c.old, c.new, 1)))
		testkit.True(t, j == nil && len(ds) != 0, "%s: accepted", c.name)
		all.WriteString("# " + c.name + "\n" + ds.Error() + "\n\n")
	}
	testkit.Golden(t, "testdata/format2_rules.golden", all.String(), *update)
}

// Each rule of the mapping of format 2, and each older format, has a file of its own, which the walk of
// TestJobsOfAFolder follows too; the golden says what it becomes.
func TestMapping(t *testing.T) {
	files, err := filepath.Glob("testdata/mapping/*.yml")
	testkit.Must(t, err)
	var all strings.Builder
	rules := 0
	for _, file := range files {
		source := readFile(t, file)
		j, _ := Parse("/jobs/x", FileName, source)
		if j == nil {
			c, err := Convert("", source)
			testkit.Must(t, err)
			var ds Diagnostics
			if j, ds = Parse("/jobs/x", FileName, c.Source); j == nil {
				t.Errorf("%s: %v", file, ds)
				continue
			}
		}
		if rules++; strings.Contains(file, "old_") || strings.Contains(file, "ours_") {
			rules--
		} else if want := fmt.Sprintf("%02d_", rules); !strings.HasPrefix(filepath.Base(file), want) {
			t.Errorf("%s comes where rule %s is expected", file, want)
		}
		steps := j.Steps
		if j.Format == 2 {
			steps = nil // those of the workflows
		}
		shown, err := json.Marshal(struct {
			Name, Summary, Version, CommonInfo string
			Steps                              []Step
			Workflows                          []Workflow
			Warnings                           Diagnostics
		}{j.Name, j.Summary, j.Version, j.CommonInfo, steps, j.Workflows, j.Warnings})
		testkit.Must(t, err)
		all.WriteString("# " + filepath.Base(file) + "\n" + withoutEmpty(t, shown) + "\n")
	}
	testkit.True(t, rules == 28, "%d rules have files, want 28", rules)
	testkit.Golden(t, "testdata/mapping.golden", all.String(), *update)
}

// withoutEmpty returns JSON without the members that have no value, indented.
func withoutEmpty(t *testing.T, data []byte) string {
	var v any
	testkit.Must(t, json.Unmarshal(data, &v))
	var clean func(v any) any
	clean = func(v any) any {
		switch v := v.(type) {
		case []any:
			for i := range v {
				v[i] = clean(v[i])
			}
			if len(v) == 0 {
				return nil
			}
		case map[string]any:
			for key, value := range v {
				if v[key] = clean(value); v[key] == nil || v[key] == "" || v[key] == false {
					delete(v, key)
				}
			}
			if len(v) == 0 {
				return nil
			}
		}
		return v
	}
	out, err := json.MarshalIndent(clean(v), "", " ")
	testkit.Must(t, err)
	return string(out)
}
