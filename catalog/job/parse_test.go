package job

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

var update = flag.Bool("update", false, "write golden files anew")

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	return testkit.Get(os.ReadFile(name)).Must(t)
}

func validFiles(t testing.TB) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/valid/*.yml")
	testkit.Need(t, err == nil && len(names) != 0, "no valid files: %v", err)
	return names
}

// The model of a job says what its file does.
func TestParseModel(t *testing.T) {
	for _, name := range []string{"report", "format2"} {
		source := readFile(t, "testdata/valid/"+name+".yml")
		j, ds := Parse("/jobs/"+name, FileName, source)
		testkit.Must(t, ds.Err())
		shown := testkit.Get(json.Marshal(struct {
			*Job
			Workflows    []Workflow
			Source, Hash bool
		}{j, j.Workflows, string(j.Source) == string(source), len(j.Hash) == 64})).Must(t)
		testkit.Golden(t, "testdata/"+name+".golden", withoutEmpty(t, shown)+"\n", *update)
		again, ds := Parse(j.Dir, FileName, j.Source)
		testkit.True(t, ds == nil && reflect.DeepEqual(j, again), "parsed again, the job differs: %v", ds)
	}
	j, _ := Parse("/jobs/report", FileName, readFile(t, "testdata/valid/report.yml"))
	gather, full := j.Step("gather"), j.Workflow("full")
	testkit.Equal(t, gather.Output("raw_material"), &gather.Outputs[1])
	testkit.Need(t, gather.Output("x") == nil, "what is unknown is found")
	testkit.Need(t, j.Step("x") == nil, "what is unknown is found")
	testkit.True(t, j.Workflow("x") == nil, "what is unknown is found")
	testkit.Same(t, []int{full.Find("check_style"), full.Find("nobody")}, []int{2, -1})
}

// TestSameJobHoweverSaved: line endings and a byte order mark change nothing of what a job says.
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
			testkit.Need(t, ds == nil, "%s, %s: %v", name, how, ds)
			for _, j := range append(slices.Collect(maps.Values(got.views)), got) {
				j.Source, j.Hash = want.Source, want.Hash
			}
			testkit.True(t, reflect.DeepEqual(got, want), "%s, %s: got another job", name, how)
		}
	}
	_, ds := Parse("/d", FileName, []byte("\xef\xbb\xbfcolour: red\n")) // a byte order mark is no column
	testkit.Contains(t, ds.Error(), "job.yml:1:1: colour: ")
}

// A check without files is bound to less in a group, and in a workflow that is done for each item, which validate says.
func TestAGroupsCheckWithoutFilesIsAWarning(t *testing.T) {
	source := strings.NewReplacer("steps: [port]", "steps: [[port, other]]", "workflows:",
		"  - {id: other, name: O, description: O, instructions: O, outputs: {list: {type: string, description: L}}, "+
			"reviews: []}\nworkflows:").Replace(string(readFile(t, "testdata/valid/checks.yml")))
	j, ds := Parse("/d", FileName, []byte(source))
	testkit.Need(t, j != nil, "%v, %v", ds, j)
	testkit.Need(t, len(j.Warnings) == 2, "%v, %v", ds, j)
	testkit.Contains(t, j.Warnings[0].Message,
		`the check "lint.sh" without files, which here is bound to the outputs alone`)
	j, ds = Parse("/d", FileName,
		[]byte(strings.Replace(source, "[[port, other]]",
			"[other, {for_each: list, steps: [{workflow: w}]}]\n  - {name: w, summary: W, steps: [port]}", 1)))
	testkit.Need(t, j != nil, "%v, %v", ds, j)
	testkit.Need(t, len(j.Warnings) == 2, "%v, %v", ds, j)
	testkit.True(t, strings.HasPrefix(j.Warnings[0].Message,
		`"port" of workflow w has the check "lint.sh" without files`), "%v, %v", ds, j)
}

func TestPatterns(t *testing.T) {
	for pattern, names := range map[string]string{ // with ! before those that it doesn't name
		"tests/**": "tests/a tests/a/b !tests !mytests/a", "**/*_test.go": "a_test.go x/y/a_test.go !x/a.go",
		"*.go": "a.go !x/a.go", "./go.mod": "go.mod",
		"a?c": "abc !a/c", "**": "anything/at/all", "src/**/x": "src/x src/a/b/x", "a.c": "!abc", "(a+)": "(a+)",
	} {
		for name := range strings.FieldsSeq(names) {
			testkit.Equal(t, Matches([]string{pattern}, strings.TrimPrefix(name, "!")), name[0] != '!', "%s names %s",
				pattern, name)
		}
	}
}

func TestFormat2(t *testing.T) {
	j, ds := Parse("/jobs/survey", FileName, readFile(t, "testdata/valid/format2.yml"))
	testkit.Must(t, ds.Err())
	ask, again := j.Of("ask"), j.Of("again")
	is := func(got, want, what string) { testkit.Equal(t, got, want, what) }
	is(ask.Step("prepare").Description, "Prepare the questions", "a step of the one workflow")
	is(again.Step("prepare").Description, "Change the questions", "the step of that name in the other")
	is(j.Step("again/prepare").Description, "Change the questions", "the step with its workflow")
	is(j.Step("prepare").Description, "Prepare the questions", "the step without")
	is(ask.CommonInfo+again.CommonInfo, "Be polite.", "the common info of the one, and none of the other")
	testkit.Equal(t, testkit.Get(Instructions(j, ask.Step("ask"))).Must(t), "Ask them.")
}

// Each rule of the mapping of format 2, and each older format, has a file of its own, which the walk of
// TestJobsOfAFolder follows too; the golden says what it becomes.
func TestMapping(t *testing.T) {
	var all strings.Builder
	rules := 0
	for _, file := range testkit.Get(filepath.Glob("testdata/mapping/*.yml")).Must(t) {
		source := readFile(t, file)
		j, _ := Parse("/jobs/x", FileName, source)
		if j == nil {
			var ds Diagnostics
			j, ds = Parse("/jobs/x", FileName, testkit.Get(Convert("", source)).Must(t).Source)
			testkit.Need(t, j != nil, "%s: %v", file, ds)
		}
		if !strings.Contains(file, "old_") && !strings.Contains(file, "ours_") {
			rules++
			testkit.Contains(t, file, fmt.Sprintf("/%02d_", rules), "a rule has no file")
		}
		steps := j.Steps
		if j.Format == 2 {
			steps = nil // those of the workflows
		}
		shown := testkit.Get(json.Marshal(struct {
			Name, Summary, Version, CommonInfo string
			Steps                              []Step
			Workflows                          []Workflow
			Warnings                           Diagnostics
		}{j.Name, j.Summary, j.Version, j.CommonInfo, steps, j.Workflows, j.Warnings})).Must(t)
		all.WriteString("# " + filepath.Base(file) + "\n" + withoutEmpty(t, shown) + "\n")
	}
	testkit.True(t, rules == 28, "%d rules have files, want 28", rules)
	testkit.Golden(t, "testdata/mapping.golden", all.String(), *update)
}

// withoutEmpty returns JSON without the members that have no value, or are lists of none, indented.
func withoutEmpty(t *testing.T, data []byte) string {
	var indented bytes.Buffer
	testkit.Must(t, json.Indent(&indented, data, "", " "))
	text := indented.String()
	empty := regexp.MustCompile(`\n *"\w+": (null|""|false|0|\[(\s|null|,)*\]|\{\s*\}),?`)
	for was := ""; was != text; {
		was, text = text, empty.ReplaceAllString(text, "")
	}
	return regexp.MustCompile(`,(\s*[\]}])`).ReplaceAllString(text, "$1")
}

func formsExample(t *testing.T, edits ...string) *Workflow {
	t.Helper()
	source := strings.NewReplacer(edits...).
		Replace(string(testkit.Get(os.ReadFile("testdata/valid/forms.yml")).Must(t)))
	j, faults := Parse("/job", FileName, []byte(source))
	testkit.Need(t, j != nil, "%v", faults)
	return j.Workflow("migrate")
}

func TestFormsInWords(t *testing.T) {
	var said []string
	w := formsExample(t)
	for _, p := range w.Parts() {
		form := ""
		if p.Form != nil {
			first, after := w.Span(p.Form)
			form = fmt.Sprintf("%s (%d to %d): ", p.Form, first, after)
		}
		said = append(said, form+fmt.Sprint(p.Entries))
	}
	testkit.Same(t, said, []string{
		"[[list_endpoints]]",
		"for each of endpoints, 4 at once (1 to 2): [[port] [verify measure] [workflow:note]]",
		`if output needs_docs is "yes" (2 to 3): [[write_docs]]`,
		`if input mode is one of "careful", "1", "true" (3 to 5): [[read_all] [workflow:other_job/audit]]`,
		`in rounds until output state is not "broken", at most 5 (5 to 6): [[fix]]`,
		"for each of endpoints, 4 at once (6 to 7): [[tidy]]",
		"[[workflow:publish]]",
	})

	testkit.Equal(t, (&Condition{Run: []string{"go", "test"}}).String(), "go test passes")
	for text, want := range map[string]string{
		"yes":   "true false true",
		" yes ": "true false true",
		"no":    "false true false",
		"b":     "false true true",
	} {
		got := fmt.Sprint((&Condition{Is: new("yes")}).Holds(text), (&Condition{IsNot: new(" yes")}).Holds(text),
			(&Condition{In: []string{"yes ", "b"}}).Holds(text))
		testkit.Equal(t, got, want, "%q", text)
	}
}

// An item that has a worktree of its own ends with its merge, and others can be worked on at the same time.
func TestIsolatedItems(t *testing.T) {
	w := formsExample(t)
	isolated := w.Isolated()
	testkit.Same(t, isolated.Entries[6], Entry{"tidy", "merge:tidy"})
	testkit.Same(t, isolated.Entries[1], w.Entries[1], "without isolation")
	testkit.Same(t, w.Entries[6], Entry{"tidy"}, "the workflow itself")
	testkit.Same(t, isolated.Isolated().Entries, isolated.Entries, "twice")

	var merges, shared, before []bool
	for i := range w.Entries {
		merges, shared, before = append(merges, isolated.Form(i).Merges()), append(shared, isolated.Shared(i)),
			append(before, w.Shared(i))
	}
	testkit.Same(t, merges, []bool{false, false, false, false, false, false, true, false})
	testkit.Same(t, shared, []bool{false, true, false, false, false, false, false, false})
	testkit.Same(t, before, []bool{false, true, false, false, false, false, true, false})

	alone := formsExample(t, "at_once: 4", "at_once: 1", "steps: [tidy]", "steps: [tidy], at_once: 1")
	testkit.True(t, alone.Shared(1) && !alone.Shared(6), "of items one after the other, only groups share the folder")
	testkit.Need(t, w.Form(-1) == nil, "there is a form outside of the workflow, or it is not known what merges")
	testkit.Need(t, w.Form(len(w.Forms)) == nil,
		"there is a form outside of the workflow, or it is not known what merges")
	testkit.True(t, IsMerge("merge:tidy[1]"), "there is a form outside of the workflow, or it is not known what merges")
	testkit.True(t, !IsMerge("tidy"), "there is a form outside of the workflow, or it is not known what merges")
}

func TestEditsOfForms(t *testing.T) {
	w := formsExample(t)
	for _, c := range []struct {
		old, now string
		same     bool
	}{
		{"Moves one module", "Moves it", true},
		{"steps: [port, [verify, measure],", "steps: [port, verify, measure,", false},
		{"at_once: 4", "at_once: 5", false},
		{"title: {value: Moved}", "title: {value: Ported}", false}, {"at_most: 5", "at_most: 6", false},
	} {
		testkit.Equal(t, w.SameForms(formsExample(t, c.old, c.now)), c.same, "%s", c.now)
	}
}

func TestIDsOfItems(t *testing.T) {
	for id, want := range map[string]string{
		"port[3]":  "port 3 true",
		"port":     "port 0 false",
		"port[03]": "port[03] 0 false",
		"port[-1]": "port[-1] 0 false",
		"port[x]":  "port[x] 0 false",
		"port[1":   "port[1 0 false",
		"port[0]":  "port 0 true",
	} {
		step, index, item := SplitItem(id)
		testkit.Equal(t, fmt.Sprint(step, " ", index, " ", item), want)
		testkit.Equal(t, !item || Item(step, index) == id, true)
	}
}

func TestDefaultsOfSteps(t *testing.T) {
	testkit.Equal(t, (&Step{ID: "a"}).Ref()+" "+(&Step{ID: "a", Workflow: "w"}).Ref(), "a w/a")
	testkit.Equal(t, (&StepCheck{}).Limit()+(&StepCheck{Timeout: time.Second}).Limit(), DefaultCheckTimeout+time.Second)
	testkit.Equal(t, (&StepCheck{Override: "never"}).Never() && !(&StepCheck{Override: "human"}).Never(), true)

	s := &Step{
		Reviews: []Review{{RunEach: "a", ByHuman: true}, {RunEach: "b"}},
		Outputs: []Output{{Name: "x"}, {Name: "y"}},
	}
	testkit.Equal(t, s.ReviewsBy(true)[0].RunEach+s.ReviewsBy(false)[0].RunEach+s.Output("y").Name, "aby")
	testkit.Equal(t, s.HasSchema(), false)

	s.Outputs[1].Schema.File = "s.json"
	testkit.Equal(t, s.HasSchema(), true)
	testkit.True(t, s.Output("z") == nil, "there is an output z")
}

func earlier(t *testing.T, versions string) []byte {
	return readFile(t, "testdata/earlier/"+versions+".yml")
}

// A file of an earlier format says in its first line which it is and what to do. What it is converted to
// loads, and nothing of its quality checks is lost.
func TestConvert(t *testing.T) {
	for _, versions := range []string{"0.1 to 0.6", "0.7"} {
		source := earlier(t, versions)
		_, ds := Parse("/jobs/old", FileName, source)
		told := ds // none of which costs a quality check
		c := testkit.Get(Convert("", source)).Must(t)
		j, ds := Parse("/jobs/old", FileName, c.Source)
		testkit.Need(t, j != nil, "%s: %v\n%s", versions, ds, c.Source)
		testkit.Golden(t, "testdata/convert_"+versions+".golden", string(c.Source)+"---\n"+strings.Join(c.Notes, "\n")+
			"\n---\n"+c.Changelog+"\n---\n"+told.Error()+"\n", *update)
		testkit.FailsWith(t, testkit.Get(Convert("", c.Source)).Err(), ErrCurrent, "%s: converted twice", versions)
	}

	for _, current := range validFiles(t) {
		if name := filepath.Base(current); name == "minimal.yml" || name == "report.yml" {
			continue // they have something that is converted
		}
		testkit.FailsWith(t, testkit.Get(Convert("", readFile(t, current))).Err(), ErrCurrent,
			"%s is converted", current)
	}
}

// What each kind of file becomes: the notes say it, and the new file has it.
func TestConvertEachPart(t *testing.T) {
	dir := t.TempDir()
	write(t, "Is it \nshort?\n", dir, "hooks", "short.md")
	const base = "name: x\nversion: \"1.0.0\"\nsummary: X\ncommon_job_info_provided_to_all_steps_at_runtime: X\n"
	const step = "id: a, name: A, description: Do A, "
	const workflows = "workflows: [{name: w, summary: W, steps: [a]}]\n"
	for _, c := range []struct{ name, source, has, note string }{
		{"no workflows", base + "steps: [{" + step + "instructions: A, outputs: {}, reviews: []}]\n", "steps: [a]",
			"the new workflow full has all of them"},
		{"no instructions", strings.Replace(base, "common_job_info_provided_to_all_steps_at_runtime", "description",
			1) + workflows + "steps: [{" + step + "outputs: [a.md]}]\n", "instructions: Do A",
			"its description is the instructions"},
		{"a missing dependency", base + "steps: [{" + step +
			"instructions: A, outputs: {o: {type: file, description: " +
			"O}}, reviews: []}, {id: b, name: B, description: B, instructions: B, inputs: [{file: o, from_step: a}], " +
			"outputs: {}, reviews: []}]\n",
			"dependencies:", "step b: a is now among its dependencies"},
		{"the file of an output", base + "steps: [{" + step + "instructions: A, outputs: {o: {type: file, " +
			"description: O}}, reviews: []}, {id: b, name: B, description: B, instructions: B, inputs: [{file: " +
			"out/o.md, from_step: a}], dependencies: [a], outputs: {}, reviews: []}]\n",
			"file: o", "the input out/o.md of step a is now the output o"},
		{"a file that no step makes", base + workflows + "steps: [{" + step +
			"instructions: A, inputs: [{file: x.md}], outputs: {}, reviews: []}]\n", "name: x.md", "is asked for"},
		{"a hook's prompt file", base + workflows + "steps: [{" + step + "instructions: A, outputs: {}, reviews: [], " +
			"hooks: {after_agent: [{prompt_file: hooks/short.md}]}}]\n", "Does it pass this check? Is it",
			"prompts of its hooks are now a review"},
		{"hooks that two steps share",
			base + "steps: [{" + step +
				"instructions: A, outputs: {}, reviews: [], stop_hooks: &h [{prompt: Good}]}, " +
				"{id: b, name: B, description: B, instructions: B, outputs: {}, reviews: [], stop_hooks: *h}]\n",
			"check_1", "step b: the prompts of its hooks are now a review"},
		{"criteria of a review as a list",
			base + workflows + "steps: [{" + step +
				"instructions: A, outputs: {o: {type: file, description: O}}, reviews: [{run_each: o, " +
				"quality_criteria: [\"Is it good?\"]}]}]\n", "criterion_1:", "now have names"},
		{"criteria that YAML takes for mappings, and one that is a text",
			strings.Replace(base, "common_job_info_provided_to_all_steps_at_runtime", "description", 1) + "steps: [{" +
				step + "instructions: A, outputs: [{a.md: The text}], quality_criteria: [{Complete: \"Is it " +
				"complete?\"}, {Complete: \"Is it all?\"}]}, {id: b, name: B, description: B, instructions: B, " +
				"outputs: , reviews: , quality_criteria: \"Is it good?\"}]\n",
			"Complete_: 'Is it all?'", "step b: its quality_criteria are now a review"},
		{"criteria in lists of their own",
			base + workflows + "steps: [{" + step +
				"outputs: [a.md], quality_criteria: [{Complete: [\"Is it complete?\", \"Is it all?\"]}, [\"Is it " +
				"good?\"]]}]\n",
			"Is it complete? Is it all?", "its quality_criteria are now a review"},
		{"a described output", base + workflows + "steps: [{" + step + "outputs: [{file: a.md, doc_spec: s.md, " +
			"description: The text}], reviews: []}]\n", "a.md; The text; it must conform to s.md", "named by its path"},
		{"merge keys", base + workflows + "steps:\n  - &a {" + step + "outputs: [a.md], quality_criteria: [\"Is it " +
			"good?\"]}\n  - {<<: *a, id: b, outputs: [b.md]}\n  - {<<: [*a], id: c}\n",
			"id: c", "step c: its quality_criteria are now a review"},
		{"comments of lines that end with CRLF",
			strings.ReplaceAll("# Mine.\n"+base+"steps: [{"+step+"instructions: A, outputs: {}, reviews: []}]\n", "\n",
				"\r\n"), "# Mine.\n", "the new workflow full has all of them"},
		{"hooks before and after", base + workflows + "steps: [{" + step + "instructions: A, outputs: {}, reviews: " +
			"[], hooks: {after_agent: [{script: x.sh}], before_tool: [{prompt: B}]}, stop_hooks: [{prompt: Good}]}]\n",
			"check_1", "hooks before_tool and before_prompt"},
		{"an approval", base + "steps: [{id: approve_it, name: A, description: A, instructions: A, outputs: {}, " +
			"reviews: []}]\n", "approve_it", "by: human"},
	} {
		made, err := Convert(dir, []byte(c.source))
		testkit.Need(t, err == nil, "%s: %v", c.name, err)
		j, ds := Parse(dir, FileName, made.Source)
		testkit.True(t, j != nil, "%s: %v\n%s", c.name, ds, made.Source)
		testkit.Contains(t, string(made.Source), c.has, c.name)
		testkit.Contains(t, strings.Join(made.Notes, "\n"), c.note, c.name)
	}
}

// Nothing of a file is lost when it is converted: what the new format has no place for is in comments at its end.
func TestConvertLosesNoWord(t *testing.T) {
	const source = `# Mine.
name: x
version: "1.0.0"
summary: X
description: Be careful.
changelog: # what was
  - {version: "0.3.0", changes: First, author: Ann}
steps:
  - id: a
    name: A
    description: Do A
    instructions: Look
    inputs: [{name: topic, description: What it is about, file: topic.md}, {file: old.md, hint: ask Bob}]
    outputs: [{file: a.md, owner: "Carol\adances"}, {file: a.md, description: The same again}] # both
    stop_hooks: [{prompt: Good, name: The gate}]
  - id: b
    name: B
    description: Do B
    instructions: Look
    inputs: [{name: draft, description: The first one, file: elsewhere/a.md, from_step: a}]
    outputs: [{b.md: The text, c.md: Another}]
    quality_criteria: [{Complete: {ask: Is it whole, weight: heavy}}]
`
	c := testkit.Get(Convert("", []byte(source))).Must(t)
	j, ds := Parse("/jobs/x", FileName, c.Source)
	testkit.True(t, j != nil, "it does not load: %v\n%s", ds, c.Source)
	testkit.ContainsAll(t, string(c.Source)+c.Changelog, []string{"Mine", "what was", "First", "Ann", "name: topic",
		"What it is about (the file topic.md)", "steps[0].inputs[1].hint: ask Bob", `Carol\adances`,
		"The same again", "both",
		"The gate", "draft", "The first one", "elsewhere/a.md", "Another", "heavy"})
	testkit.FailsWith(t, testkit.Get(Convert("", c.Source)).Err(), ErrCurrent, "converted twice")
}

// What is not one whole document is not converted, since something of it would be lost.
func TestConvertRefuses(t *testing.T) {
	for source, want := range map[string]string{
		"":   "job.yml cannot be converted: it is empty",
		"# ": "job.yml cannot be converted: it is empty",
		string(earlier(t, "0.7")) + "---\nname: second\n": "a second document begins here",
	} {
		testkit.Fails(t, testkit.Get(Convert("", []byte(source))).Err(), want, "%q", source)
	}
}

// What a link in the place of a file leads to is not copied.
func TestAConversionCopiesNoOtherFile(t *testing.T) {
	source := string(earlier(t, "0.1 to 0.6"))
	made, secret := testkit.Get(Convert("", []byte(source))).Must(t), filepath.Join(t.TempDir(), "secret")
	testkit.Write(t, secret, source)
	for _, name := range []string{"CHANGELOG.md", BeforeName} {
		dir := t.TempDir()
		write(t, source, dir, FileName)
		symlink(t, secret, filepath.Join(dir, name))
		before, err := made.Write(dir)
		testkit.True(t, (err != nil) == (name != BeforeName), "%s: %v", name, err)
		testkit.True(t, before != filepath.Join(dir, BeforeName) || name != BeforeName, "the old file is a link")
		testkit.True(t, isLink(filepath.Join(dir, name)), "%s was replaced", name)
	}
}

func isLink(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.Mode()&os.ModeSymlink != 0
}

// A conversion that was killed at any point can be made again, and nothing of the old files is lost.
func TestWriteConversion(t *testing.T) {
	source := string(earlier(t, "0.1 to 0.6"))
	made := testkit.Get(Convert("", []byte(source))).Must(t)
	const older = "# Changes\n\nMine.\n"
	for name, there := range map[string]map[string]string{
		"nothing":                    {},
		"the old file":               {BeforeName: source},
		"another old file":           {BeforeName: "older"},
		"a changelog":                {"CHANGELOG.md": older},
		"the old file and changelog": {BeforeName: source, "CHANGELOG.md": made.Changelog},
	} {
		dir := t.TempDir()
		write(t, source, dir, FileName)
		for file, text := range there {
			write(t, text, dir, file)
		}
		before := testkit.Get(made.Write(dir)).Must(t)
		testkit.Equal(t, string(readFile(t, before)), source, "%s: %s has", name, before)
		testkit.Equal(t, string(readFile(t, filepath.Join(dir, FileName))), string(made.Source), "%s: job.yml", name)
		log := string(readFile(t, filepath.Join(dir, "CHANGELOG.md")))
		testkit.True(t, strings.Count(log, "## 0.2.0") == 1 &&
			(there["CHANGELOG.md"] != older || strings.HasPrefix(log, older)), "%s: CHANGELOG.md is %q", name, log)
		if text := there[BeforeName]; text != "" {
			testkit.Equal(t, string(readFile(t, filepath.Join(dir, BeforeName))), text,
				"%s: the file that was there", name)
		}
		testkit.Fails(t, testkit.Get(made.Write(dir)).Err(), "", "%s: written over another file", name)
	}
}
