package job

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

var update = flag.Bool("update", false, "write golden files anew")

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	testkit.Must(t, err)
	return data
}

func validFiles(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/valid/*.yml")
	testkit.Need(t, err == nil && len(names) != 0, "no valid files: %v", err)
	return names
}

// TestParseModel compares the model of report.yml with what the file says.
func TestParseModel(t *testing.T) {
	source := readFile(t, "testdata/valid/report.yml")
	j, ds := Parse("/jobs/report", FileName, source)
	testkit.Must(t, ds.Err())
	check := func(what string, got, want any) {
		t.Helper()
		testkit.True(t, reflect.DeepEqual(got, want), "%s:\n got  %#v\n want %#v", what, got, want)
	}
	check("name", j.Name, "monthly_report")
	check("version", j.Version, "1.0.0")
	check("summary", j.Summary, "Writes the monthly report from raw figures")
	check("description", *j.Description, "Gathers the figures, drafts the report and lets it be checked.\n")
	check("common info", j.CommonInfo, "The report goes to people who have five minutes.\nFigures are in euros.\n")
	check("dir", j.Dir, "/jobs/report")
	check("hash", len(j.Hash), 64)
	check("warnings", len(j.Warnings), 0)

	gather := j.Step("gather")
	check("inputs", gather.Inputs, []Input{{Name: "month", Description: "The month, as 2026-01"}})
	check("outputs", gather.Outputs, []Output{
		{Name: "figures.csv", Type: File, Description: "The figures, one a line", Required: true},
		{Name: "raw_material", Type: Files, Description: "What they were taken from"},
	})
	check("reviews", gather.Reviews, []Review{{
		RunEach:  "figures.csv",
		Criteria: []Criteria{{"Complete", "Is every department in it?"}, {"Sourced", "Does each figure name where it comes from?"}},
		Guidance: new("Ten departments exist."),
	}, {RunEach: "step", ByHuman: true, Criteria: []Criteria{{"Sound", "Would you sign it?"}}}})
	check("instructions file", gather.InstructionsFile, "steps/gather.md")
	check("output by name", gather.Output("raw_material"), &gather.Outputs[1])
	check("unknown output", gather.Output("x"), (*Output)(nil))

	draft := j.Step("draft")
	check("inputs", draft.Inputs, []Input{{File: "figures.csv", FromStep: "gather"}})
	check("dependencies", draft.Dependencies, []string{"gather"})
	check("flags", []any{draft.Exposed, draft.Hidden, *draft.Agent}, []any{true, false, "general-purpose"})
	check("hook script", draft.Hooks.AfterAgent[0].Script, "hooks/spell.sh")
	check("stop hook", draft.StopHooks, []Hook{{Prompt: "Is it short enough?"}})
	check("before_tool", draft.Hooks.BeforeTool[0].Prompt, "Do not touch the figures.")
	check("before_prompt", draft.Hooks.BeforePrompt[0].PromptFile, "hooks/tone.md")
	check("no outputs", j.Step("check_facts").Outputs, []Output(nil))
	check("cleaned path", j.Step("check_style").InstructionsFile, "steps/check_style.md")
	check("unknown step", j.Step("x"), (*Step)(nil))

	full := j.Workflow("full")
	check("entries", full.Entries, []Entry{{"gather"}, {"draft"}, {"check_facts", "check_style"}, {"publish"}})
	check("find", []int{full.Find("check_style"), full.Find("nobody")}, []int{2, -1})
	check("unknown workflow", j.Workflow("x"), (*Workflow)(nil))

	again, ds := Parse(j.Dir, FileName, j.Source)
	testkit.True(t, ds == nil && reflect.DeepEqual(j, again), "parsed again, the job differs: %v", ds)
}

// TestSameJobHoweverSaved: line endings and a byte order mark change nothing
// of what a job says.
func TestSameJobHoweverSaved(t *testing.T) {
	for _, name := range validFiles(t) {
		source := bytes.ReplaceAll(readFile(t, name), []byte("\r\n"), []byte("\n"))
		want, ds := Parse("/d", FileName, source)
		testkit.Need(t, ds == nil, "%s: %v", name, ds)
		for how, changed := range map[string][]byte{
			"BOM":          append([]byte("\xef\xbb\xbf"), source...),
			"CRLF":         bytes.ReplaceAll(source, []byte("\n"), []byte("\r\n")),
			"no last line": bytes.TrimSuffix(source, []byte("\n")),
		} {
			got, ds := Parse("/d", FileName, changed)
			if ds != nil {
				t.Errorf("%s, %s: %v", name, how, ds)
				continue
			}
			for _, j := range append(slices.Collect(maps.Values(got.views)), got) {
				j.Source, j.Hash = want.Source, want.Hash
			}
			testkit.True(t, reflect.DeepEqual(got, want), "%s, %s: got another job", name, how)
		}
	}
}

// TestBOMKeepsPositions: a byte order mark is no column.
func TestBOMKeepsPositions(t *testing.T) {
	_, ds := Parse("/d", FileName, []byte("\xef\xbb\xbfcolour: red\n"))
	testkit.True(t, len(ds) != 0 && ds[len(ds)-1].String()[:13] == "job.yml:1:1: ", "got %v", ds)
}

func TestWarnings(t *testing.T) {
	base := string(readFile(t, "testdata/valid/base.yml"))
	for _, c := range []struct {
		name, old, new string
		want           []string
	}{
		{"none", "x", "x", nil},
		{"step in no workflow", "steps: [gather, draft]", "steps: [gather]", []string{
			`job.yml:13:9: warning: steps[1].id: "draft" is in no workflow, so it never runs: name it in one, or remove it`,
		}},
		{"workflow without steps", "steps: [gather, draft]", "steps: []", []string{
			`job.yml:6:9: warning: steps[0].id: "gather" is in no workflow, so it never runs: name it in one, or remove it`,
			`job.yml:13:9: warning: steps[1].id: "draft" is in no workflow, so it never runs: name it in one, or remove it`,
			`job.yml:32:12: warning: workflows[0].steps: has no steps, so it cannot be started: name some, or remove the workflow`,
		}},
		{"no workflows", "workflows:\n  - name: full\n    summary: All of it\n    steps: [gather, draft]\n", "", []string{
			`job.yml: warning: has no workflows, so none of its steps can be started: add workflows, or let 'deepwork jobs convert' add one of all steps`,
		}},
		{"empty workflows", "workflows:\n  - name: full\n    summary: All of it\n    steps: [gather, draft]\n", "workflows: []", []string{
			`job.yml: warning: has no workflows, so none of its steps can be started: add workflows, or let 'deepwork jobs convert' add one of all steps`,
		}},
		{"dependency twice", "dependencies: [gather]", "dependencies: [gather, gather]", []string{
			`job.yml:25:28: warning: steps[1].dependencies[1]: "gather" appears twice: remove one`,
		}},
		{"left out before a step and a workflow that take its output", "steps: [gather, draft]",
			"inputs: [{name: go, description: G}]\n    steps: [{when: {input: go, is: a}, steps: [gather, {workflow: more, inputs: {it: figures}}]}, {workflow: most, inputs: {it: figures, may: figures, go: go}}, draft]\n" +
				"  - {name: more, summary: M, inputs: [{name: it, description: I}], steps: []}\n  - {name: most, summary: M, inputs: [{name: it, description: I}, {name: may, required: false, description: M}, {name: go, description: G}], steps: []}", []string{
				`job.yml:33:129: warning: workflows[0].steps[1].inputs.it: "figures" may have no value, and then workflow most, which requires the input "it", cannot begin: declare it as required: false`,
				`job.yml:33:162: warning: workflows[0].steps[2]: "draft" takes "figures" from "gather", which the condition may leave out: it has no value then`,
				`job.yml:34:75: warning: workflows[1].steps: has no steps, so it cannot be started: name some, or remove the workflow`,
				`job.yml:35:149: warning: workflows[2].steps: has no steps, so it cannot be started: name some, or remove the workflow`,
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			j, ds := Parse("/d", FileName, []byte(strings.Replace(base, c.old, c.new, 1)))
			testkit.Need(t, ds == nil, "%v", ds)
			var got []string
			for _, w := range j.Warnings {
				got = append(got, w.String())
			}
			testkit.True(t, reflect.DeepEqual(got, c.want), "got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		})
	}
}

// TestEdges: the largest and the smallest that each limit lets pass.
func TestEdges(t *testing.T) {
	base := string(readFile(t, "testdata/valid/base.yml"))
	for name, change := range map[string][2]string{
		"summary of 200 characters": {"Writes a report", strings.Repeat("é", 200)},
		"summary of one":            {"Writes a report", "x"},
		"name of 200":               {"name: report", "name: " + strings.Repeat("a", 200)},
		"output name of 200":        {"figures: {", strings.Repeat("é", 200) + ": {"},
		"version in quotes":         {"1.0.0", `"10.20.30"`},
		"path with dots":            {"steps/draft.md", "..steps/.../draft..md"},
		"path through dot dot":      {"steps/draft.md", "a/../b.md"},
		"boolean in capitals":       {"    name: Draft\n", "    name: Draft\n    exposed: TRUE\n"},
		"text with tag":             {"Be brief.", "!!str 1.0"},
		"yes is text":               {"Be brief.", "yes"},
		"YAML directive":            {"name: report", "%YAML 1.1\n---\nname: report"},
		"workflow a group of one":   {"[gather, draft]", "[[gather], [draft]]"},
		"reviews missing outputs":   {"run_each: report", "run_each: step"},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Need(t, strings.Contains(base, change[0]), "base.yml has changed")
			_, ds := Parse("/d", FileName, []byte(strings.Replace(base, change[0], change[1], 1)))
			testkit.True(t, ds == nil, "%v", ds)
		})
	}
}

// A check without files is bound to less in a group, which validate says.
func TestAGroupsCheckWithoutFilesIsAWarning(t *testing.T) {
	source := strings.Replace(string(readFile(t, "testdata/valid/checks.yml")), "steps: [port]", "steps: [[port, other]]", 1)
	source = strings.Replace(source, "workflows:", "  - {id: other, name: O, description: O, instructions: O, outputs: {}, reviews: []}\nworkflows:", 1)
	j, ds := Parse("/d", FileName, []byte(source))
	testkit.True(t, j != nil && len(j.Warnings) == 2 && strings.Contains(j.Warnings[0].Message, `the check "lint.sh" without files, which here is bound to the outputs alone`), "%v, %v", ds, j)
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"tests/**", "tests/a", true}, {"tests/**", "tests/a/b", true}, {"tests/**", "tests", false}, {"tests/**", "mytests/a", false},
		{"**/*_test.go", "a_test.go", true}, {"**/*_test.go", "x/y/a_test.go", true}, {"**/*_test.go", "x/a.go", false},
		{"*.go", "a.go", true}, {"*.go", "x/a.go", false}, {"./go.mod", "go.mod", true}, {"a?c", "abc", true}, {"a?c", "a/c", false},
		{"**", "anything/at/all", true}, {"src/**/x", "src/x", true}, {"src/**/x", "src/a/b/x", true}, {"a.c", "abc", false}, {"(a+)", "(a+)", true},
	} {
		testkit.Equal(t, Matches([]string{c.pattern}, c.name), c.want, "%s names %s", c.pattern, c.name)
	}
}
