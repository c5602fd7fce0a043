package job

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// earlier are files of the formats before ours.
var earlierFiles = map[string]string{
	"0.1 to 0.6": `# My job.
name: old
version: "0.3.0"
summary: "Old"
description: |
  Be careful.
changelog:
  - version: "0.2.0"
    changes: "Better"
  - version: "0.1.0"
    changes: |
      First
steps:
  - id: publish
    name: Publish
    description: Publish it
    instructions_file: steps/publish.md
    inputs:
      - {file: draft.md, from_step: draft}
    outputs:
      - out/
      - "pages/*.html"
      - directory: assets
    stop_hooks:
      - script: hooks/check.sh
      - prompt: "Look at every page."
  - id: draft # the first
    name: Draft
    description: Draft it
    instructions_file: steps/draft.md
    inputs:
      - {name: topic, description: What about}
    outputs:
      - file: draft.md
        doc_spec: specs/draft.md
    quality_criteria:
      - "**Complete**: Is it complete?"
      - "Is it short?"
    hooks:
      after_agent:
        - prompt: "Read it again."
      before_tool:
        - script: hooks/tool.sh
`,
	"0.7": `name: old
version: "0.7.0"
summary: "Old"
description: "Be careful."
workflows:
  - {name: all, summary: All, steps: [draft]}
steps:
  - id: draft
    name: Draft
    description: Draft it
    instructions_file: steps/draft.md
    outputs:
      draft.md: {type: file, description: The draft, required: true}
    reviews:
      - run_each: step
        quality_criteria: {Complete: "Is it complete?"}
`}

// A file of an earlier format says in its first line which it is and what to do. What it is converted to
// loads, and nothing of its quality checks is lost.
func TestConvert(t *testing.T) {
	for versions, source := range earlierFiles {
		_, ds := Parse("/jobs/old", FileName, []byte(source))
		told := ds // none of which costs a quality check
		c, err := Convert("", []byte(source))
		testkit.Must(t, err)
		j, ds := Parse("/jobs/old", FileName, c.Source)
		testkit.Need(t, j != nil, "%s: %v\n%s", versions, ds, c.Source)
		testkit.Golden(t, "testdata/convert_"+versions+".golden", string(c.Source)+"---\n"+strings.Join(c.Notes, "\n")+"\n---\n"+c.Changelog+"\n---\n"+told.Error()+"\n", *update)
		if _, err := Convert("", c.Source); !errors.Is(err, ErrCurrent) {
			t.Errorf("%s: converted twice: %v", versions, err)
		}
	}
	for _, current := range validFiles(t) {
		if name := filepath.Base(current); name == "minimal.yml" || name == "report.yml" {
			continue // they have something that is converted
		}
		if _, err := Convert("", readFile(t, current)); !errors.Is(err, ErrCurrent) {
			t.Errorf("%s is converted: %v", current, err)
		}
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
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		j, ds := Parse(dir, FileName, made.Source)
		testkit.True(t, j != nil, "%s: %v\n%s", c.name, ds, made.Source)
		if !strings.Contains(string(made.Source), c.has) || !strings.Contains(strings.Join(made.Notes, "\n"), c.note) {
			t.Errorf("%s: want %q and %q in\n%s\n%s", c.name, c.has, c.note, made.Source, made.Notes)
		}
	}
}

// What is not one whole document is not converted, since something of it would be lost.
func TestConvertRefuses(t *testing.T) {
	for source, want := range map[string]string{
		"":   "job.yml cannot be converted: it is empty",
		"# ": "job.yml cannot be converted: it is empty",
		earlierFiles["0.7"] + "---\nname: second\n": "a second document begins here",
	} {
		_, err := Convert("", []byte(source))
		testkit.True(t, err != nil && strings.Contains(err.Error(), want), "%q: %v, want %q", source, err, want)
	}
}

// A conversion that was killed at any point can be made again, and nothing of the old files is lost.
func TestWriteConversion(t *testing.T) {
	source := earlierFiles["0.1 to 0.6"]
	made, err := Convert("", []byte(source))
	testkit.Must(t, err)
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
		before, err := made.Write(dir)
		testkit.Must(t, err)
		testkit.Equal(t, string(readFile(t, before)), source, "%s: %s has", name, before)
		testkit.Equal(t, string(readFile(t, filepath.Join(dir, FileName))), string(made.Source), "%s: job.yml", name)
		log := string(readFile(t, filepath.Join(dir, "CHANGELOG.md")))
		testkit.True(t, strings.Count(log, "## 0.2.0") == 1 && (there["CHANGELOG.md"] != older || strings.HasPrefix(log, older)), "%s: CHANGELOG.md is %q", name, log)
		if text := there[BeforeName]; text != "" && string(readFile(t, filepath.Join(dir, BeforeName))) != text {
			t.Errorf("%s: the file that was there is lost", name)
		}
		if _, err := made.Write(dir); err == nil {
			t.Errorf("%s: written over another file", name)
		}
	}
}
