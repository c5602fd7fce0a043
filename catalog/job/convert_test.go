package job

import (
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

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
		testkit.Golden(t, "testdata/convert_"+versions+".golden", string(c.Source)+"---\n"+strings.Join(c.Notes, "\n")+"\n---\n"+c.Changelog+"\n---\n"+told.Error()+"\n", *update)
		testkit.FailsWith(t, testkit.Get(Convert("", c.Source)).Err(), ErrCurrent, "%s: converted twice", versions)
	}
	for _, current := range validFiles(t) {
		if name := filepath.Base(current); name == "minimal.yml" || name == "report.yml" {
			continue // they have something that is converted
		}
		testkit.FailsWith(t, testkit.Get(Convert("", readFile(t, current))).Err(), ErrCurrent, "%s is converted", current)
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
		{"no workflows", base + "steps: [{" + step + "instructions: A, outputs: {}, reviews: []}]\n", "steps: [a]", "the new workflow full has all of them"},
		{"no instructions", strings.Replace(base, "common_job_info_provided_to_all_steps_at_runtime", "description", 1) + workflows + "steps: [{" + step + "outputs: [a.md]}]\n", "instructions: Do A", "its description is the instructions"},
		{"a missing dependency", base + "steps: [{" + step + "instructions: A, outputs: {o: {type: file, description: O}}, reviews: []}, {id: b, name: B, description: B, instructions: B, inputs: [{file: o, from_step: a}], outputs: {}, reviews: []}]\n",
			"dependencies:", "step b: a is now among its dependencies"},
		{"the file of an output", base + "steps: [{" + step + "instructions: A, outputs: {o: {type: file, description: O}}, reviews: []}, {id: b, name: B, description: B, instructions: B, inputs: [{file: out/o.md, from_step: a}], dependencies: [a], outputs: {}, reviews: []}]\n",
			"file: o", "the input out/o.md of step a is now the output o"},
		{"a file that no step makes", base + workflows + "steps: [{" + step + "instructions: A, inputs: [{file: x.md}], outputs: {}, reviews: []}]\n", "name: x.md", "is asked for"},
		{"a hook's prompt file", base + workflows + "steps: [{" + step + "instructions: A, outputs: {}, reviews: [], hooks: {after_agent: [{prompt_file: hooks/short.md}]}}]\n", "Does it pass this check? Is it", "prompts of its hooks are now a review"},
		{"hooks that two steps share", base + "steps: [{" + step + "instructions: A, outputs: {}, reviews: [], stop_hooks: &h [{prompt: Good}]}, {id: b, name: B, description: B, instructions: B, outputs: {}, reviews: [], stop_hooks: *h}]\n", "check_1", "step b: the prompts of its hooks are now a review"},
		{"criteria of a review as a list", base + workflows + "steps: [{" + step + "instructions: A, outputs: {o: {type: file, description: O}}, reviews: [{run_each: o, quality_criteria: [\"Is it good?\"]}]}]\n", "criterion_1:", "now have names"},
		{"criteria that YAML takes for mappings, and one that is a text", strings.Replace(base, "common_job_info_provided_to_all_steps_at_runtime", "description", 1) + "steps: [{" + step + "instructions: A, outputs: [{a.md: The text}], quality_criteria: [{Complete: \"Is it complete?\"}, {Complete: \"Is it all?\"}]}, {id: b, name: B, description: B, instructions: B, outputs: , reviews: , quality_criteria: \"Is it good?\"}]\n",
			"Complete_: 'Is it all?'", "step b: its quality_criteria are now a review"},
		{"criteria in lists of their own", base + workflows + "steps: [{" + step + "outputs: [a.md], quality_criteria: [{Complete: [\"Is it complete?\", \"Is it all?\"]}, [\"Is it good?\"]]}]\n",
			"Is it complete? Is it all?", "its quality_criteria are now a review"},
		{"a described output", base + workflows + "steps: [{" + step + "outputs: [{file: a.md, doc_spec: s.md, description: The text}], reviews: []}]\n", "a.md; The text; it must conform to s.md", "named by its path"},
		{"merge keys", base + workflows + "steps:\n  - &a {" + step + "outputs: [a.md], quality_criteria: [\"Is it good?\"]}\n  - {<<: *a, id: b, outputs: [b.md]}\n  - {<<: [*a], id: c}\n",
			"id: c", "step c: its quality_criteria are now a review"},
		{"comments of lines that end with CRLF", strings.ReplaceAll("# Mine.\n"+base+"steps: [{"+step+"instructions: A, outputs: {}, reviews: []}]\n", "\n", "\r\n"), "# Mine.\n", "the new workflow full has all of them"},
		{"hooks before and after", base + workflows + "steps: [{" + step + "instructions: A, outputs: {}, reviews: [], hooks: {after_agent: [{script: x.sh}], before_tool: [{prompt: B}]}, stop_hooks: [{prompt: Good}]}]\n", "check_1", "hooks before_tool and before_prompt"},
		{"an approval", base + "steps: [{id: approve_it, name: A, description: A, instructions: A, outputs: {}, reviews: []}]\n", "approve_it", "by: human"},
	} {
		made, err := Convert(dir, []byte(c.source))
		testkit.Need(t, err == nil, "%s: %v", c.name, err)
		j, ds := Parse(dir, FileName, made.Source)
		testkit.True(t, j != nil, "%s: %v\n%s", c.name, ds, made.Source)
		testkit.Contains(t, string(made.Source), c.has, c.name)
		testkit.Contains(t, strings.Join(made.Notes, "\n"), c.note, c.name)
	}
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
		testkit.True(t, strings.Count(log, "## 0.2.0") == 1 && (there["CHANGELOG.md"] != older || strings.HasPrefix(log, older)), "%s: CHANGELOG.md is %q", name, log)
		if text := there[BeforeName]; text != "" {
			testkit.Equal(t, string(readFile(t, filepath.Join(dir, BeforeName))), text, "%s: the file that was there", name)
		}
		testkit.Fails(t, testkit.Get(made.Write(dir)).Err(), "", "%s: written over another file", name)
	}
}
