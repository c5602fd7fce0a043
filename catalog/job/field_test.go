package job

import (
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// fieldJob is a job without faults.
const fieldJob = `name: plan
version: "1.0.0"
summary: "Plans"
common_job_info_provided_to_all_steps_at_runtime: "it's all"
workflows: [{name: w, summary: "All", steps: [draft, check]}]
steps:
  - id: draft
    name: "Draft"
    description: 'A "draft" that''s
      long'
    instructions_file: "steps/draft.md"
    outputs: {draft.md: {type: file, description: "It", required: true}}
    reviews: []
  - id: check
    name: Check # it's the "last"
    description: "Checks"
    instructions: |
      - "Check all of it
        twice" and then
    outputs: {}
    reviews: []
    dependencies: [draft]
    inputs: [{file: draft.md, from_step: draft}]
`

// What makes a file unreadable is named where it began.
func TestField11_FilesThatAreNoYAML(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string
		want     string // the beginning of the one fault; "" for none
	}{
		"as it is":             {"", "", ""},
		"a version of YAML":    {"name: plan", "%YAML 1.2\n---\nname: plan", ""},
		"after a comment":      {"name: plan", "# ours\n\n%YAML 1.2 # new\n--- # it\nname: plan", ""},
		"another version":      {"name: plan", "%YAML 2.0\n---\nname: plan", "job.yml:1:1: found incompatible YAML document: remove the %YAML line"},
		"a conflict":           {"version: \"1.0.0\"\n", "<<<<<<< HEAD\nversion: \"1.0.0\"\n=======\nversion: \"1.0.1\"\n>>>>>>> theirs\n", "job.yml:2:1: a conflict of a git merge begins or ends here"},
		"the end of one":       {"summary:", ">>>>>>> theirs\nsummary:", "job.yml:3:1: a conflict of a git merge"},
		"a quote":              {`name: "Draft"`, `name: "Draft`, "job.yml:8:5: a quote is opened in this line and not closed before line 9"},
		"a quote of another":   {`"steps/draft.md"`, `"steps/draft.md`, "job.yml:11:5: a quote is opened in this line and not closed before line 12"},
		"a single quote":       {`'A "draft" that''s`, `'A "draft" that's`, "job.yml:9:"},
		"in braces":            {`summary: "All", steps: [draft, check]}]`, `summary: "All, steps: [draft, check]}]`, "job.yml:5:1: a quote is opened in this line"},
		"the last quote":       {`description: "Checks"`, `description: "Checks`, "job.yml:16:"},
		"after a text":         {"outputs: {}", "outputs: {}}", "job.yml:20:"},
		"a space of the web":   {"    reviews: []\n  - id", "    reviews:\u00a0[]\n  - id", "job.yml:13:5: could not find expected ':'"},
		"a space before a key": {"version:", "\u200bversion:", "job.yml:2:1: [\"\\u200bversion\"]: unknown key: did you mean version? (the line has an invisible character, U+200B (zero width space), in column 1: it may be the cause)"},
		"a byte order mark":    {"version:", "\ufeffversion:", "job.yml:2:1: the character U+FEFF (byte order mark) at offset 11 is not allowed"},
	} {
		text := strings.Replace(fieldJob, c.old, c.new, 1)
		_, faults := Parse("", FileName, []byte(text))
		testkit.True(t, len(faults) <= 1 && (c.want != "" || len(faults) <= 0) && (c.want == "" || strings.HasPrefix(faults.Error(), c.want)), "%s: %v\nwant %s", name, faults, c.want)
		if strings.Contains(c.new, "\u00a0") {
			testkit.Contains(t, faults.Error(), "U+00A0 (no-break space), in column 13")
		}
	}
}

// One mistake is one fault.
func TestField23_FollowUpsAreLeftOut(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string
		want     []string // the beginnings of the faults
	}{
		"the key of all steps":        {"steps:\n", "stepz:\n", []string{"job.yml:6:1: stepz: unknown key: did you mean steps?"}},
		"an unknown key for them":     {"steps:\n", "tasks:\n", []string{"job.yml:1:1: steps is missing", "job.yml:6:1: tasks: unknown key; the keys here are"}},
		"no step":                     {"steps:\n", "steps: []\nx_steps:\n", []string{"job.yml:6:8: steps: is empty", "job.yml:7:1: x_steps: unknown key"}},
		"the key of an id":            {"- id: draft", "- di: draft", []string{"job.yml:7:5: steps[0].di: unknown key: did you mean id?"}},
		"no id":                       {"- id: draft\n    name", "- name", []string{"job.yml:7:5: steps[0]: id is missing"}},
		"an id":                       {"- id: draft", "- id: Draft", []string{"job.yml:7:9: steps[0].id: \"Draft\" is not a valid name"}},
		"the key of dependencies":     {"dependencies:", "dependencys:", []string{"job.yml:22:5: steps[1].dependencys: unknown key: did you mean dependencies?"}},
		"the key of the instructions": {"instructions_file:", "instruction_file:", []string{"job.yml:11:5: steps[0].instruction_file: unknown key: did you mean instructions_file?"}},
		"and what is below it":        {"outputs: {draft.md: {type: file", "output: {draft.md: {type: fil", []string{"job.yml:12:5: steps[0].output: unknown key: did you mean outputs?", "job.yml:12:31: steps[0].outputs[\"draft.md\"].type: \"fil\" is not one of"}},
		"a key twice":                 {"version:", "versio: 1\nversion:", []string{"job.yml:2:1: versio: unknown key: did you mean version?"}},
		"a step that is not there":    {"[draft, check]", "[draft, chekc]", []string{"job.yml:5:54: workflows[0].steps[1]: there is no step \"chekc\": did you mean check?"}},
	} {
		_, faults := Parse("", FileName, []byte(strings.Replace(fieldJob, c.old, c.new, 1)))
		var got []string
		for _, d := range faults {
			if !d.Warning {
				got = append(got, d.String())
			}
		}
		ok := len(got) == len(c.want)
		for i := range got {
			ok = ok && strings.HasPrefix(got[i], c.want[i])
		}
		testkit.True(t, ok, "%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
	}
}

// An input that names no output of its step is a warning that says which one was probably meant.
func TestField26_InputsOfUnknownOutputs(t *testing.T) {
	text := "name: notes\nversion: \"1.0.0\"\nsummary: S\ncommon_job_info_provided_to_all_steps_at_runtime: I\nworkflows: [{name: w, summary: S, steps: [a, b]}]\nsteps:\n" +
		"  - {id: a, name: A, description: D, instructions_file: a.md, outputs: {facts: {type: file, description: D}}, reviews: []}\n" +
		"  - {id: b, name: B, description: D, instructions_file: a.md, dependencies: [a], inputs: [{file: FILE, from_step: a}], outputs: {}, reviews: []}\n"
	for file, want := range map[string]string{"fact": "did you mean facts?", "facts": ""} {
		j, faults := Parse("", "job.yml", []byte(strings.ReplaceAll(text, "FILE", file)))
		testkit.Need(t, faults == nil, "%v", faults)
		said := Diagnostics(j.Warnings).Error()
		testkit.True(t, (want == "") == (len(j.Warnings) == 0) && strings.Contains(said, want), "%s: %q, want %q", file, said, want)
	}
}
