package job

import (
	"strings"
	"testing"
)

// A ruleCase is testdata/valid/base.yml with one thing changed.
type ruleCase struct {
	name     string
	old, new string
	// schemaPasses marks what only Parse can refuse: references, and what is
	// lost when YAML becomes JSON.
	schemaPasses bool
}

const semantic = true

const (
	gatherOutputs = "    outputs:\n      figures: {type: file, description: The figures}\n"
	draftInputs   = "    inputs:\n      - file: figures\n        from_step: gather\n"
	draftReviews  = "    reviews:\n      - run_each: report\n        quality_criteria:\n          Complete: Is it complete?\n"
	workflowsText = "workflows:\n  - name: full\n    summary: All of it\n    steps: [gather, draft]\n"
	workflowSteps = "[gather, draft]"
)

// ruleCases has at least one case for every rule of DESIGN's job.yml section.
// What each reports is in testdata/rules.golden.
var ruleCases = []ruleCase{
	// The document.
	{name: "document is a list", old: "", new: "- a\n"},
	{name: "document is text", old: "", new: "hello\n"},
	{name: "document is null", old: "", new: "---\n"},
	{name: "document is empty", old: "", new: "", schemaPasses: semantic},
	{name: "document is all comments", old: "", new: "# one\n\n# two\n", schemaPasses: semantic},
	{name: "second document", old: workflowSteps, new: workflowSteps + "\n---\nname: other", schemaPasses: semantic},
	{name: "second document empty", old: workflowSteps, new: workflowSteps + "\n---", schemaPasses: semantic},
	{name: "second document broken", old: workflowSteps, new: workflowSteps + "\n---\n[", schemaPasses: semantic},
	{name: "missing all", old: "", new: "{}\n"},
	{name: "unknown key", old: "version: 1.0.0", new: "version: 1.0.0\ncolour: red"},
	{name: "unknown key close", old: "workflows:", new: "workflow:"},
	{name: "unknown key odd", old: "version: 1.0.0", new: "version: 1.0.0\n\"a b\\tc\": red"},
	{name: "duplicate key", old: "version: 1.0.0", new: "version: 1.0.0\nname: again", schemaPasses: semantic},
	{name: "merge key", old: "version: 1.0.0", new: "version: 1.0.0\n<<: {description: x}"},
	{name: "number key", old: "version: 1.0.0", new: "version: 1.0.0\n1: x"},
	{name: "null key", old: "version: 1.0.0", new: "version: 1.0.0\n~: x"},
	{name: "list key", old: "version: 1.0.0", new: "version: 1.0.0\n? [a]\n: x"},
	{name: "tagged key", old: "version: 1.0.0", new: "version: 1.0.0\n!x y: x"},

	// name, version, summary, description, common info.
	{name: "name missing", old: "name: report\n", new: ""},
	{name: "name capital", old: "name: report", new: "name: Report"},
	{name: "name empty", old: "name: report", new: "name: \"\""},
	{name: "name digit first", old: "name: report", new: "name: 1st"},
	{name: "name hyphen", old: "name: report", new: "name: my-report"},
	{name: "name long", old: "name: report", new: "name: " + strings.Repeat("a", 201)},
	{name: "name null", old: "name: report", new: "name:"},
	{name: "name boolean", old: "name: report", new: "name: true"},
	{name: "name list", old: "name: report", new: "name: [report]"},
	{name: "name mapping", old: "name: report", new: "name: {is: report}"},
	{name: "version number", old: "1.0.0", new: "1.0"},
	{name: "version two numbers", old: "1.0.0", new: `"1.0"`},
	{name: "version date", old: "1.0.0", new: "2026-01-02"},
	{name: "version prerelease", old: "1.0.0", new: "1.0.0-rc1"},
	{name: "version empty part", old: "1.0.0", new: "1..0"},
	{name: "summary empty", old: "Writes a report", new: `""`},
	{name: "summary 201 characters", old: "Writes a report", new: strings.Repeat("é", 201)},
	{name: "summary missing", old: "summary: Writes a report\n", new: ""},
	{name: "common info missing", old: "common_job_info_provided_to_all_steps_at_runtime: Be brief.\n", new: ""},
	{name: "common info number", old: "Be brief.", new: "12"},
	{name: "description null", old: "version: 1.0.0", new: "version: 1.0.0\ndescription:"},
	{name: "description number", old: "version: 1.0.0", new: "version: 1.0.0\ndescription: 7"},
	{name: "text binary tag", old: "Be brief.", new: "!!binary aGVsbG8=", schemaPasses: semantic},
	{name: "text custom tag", old: "Be brief.", new: "!secret x", schemaPasses: semantic},
	{name: "text int tag", old: "Be brief.", new: `!!int "5"`},
	{name: "text NUL", old: "Be brief.", new: `"a\0b"`, schemaPasses: semantic},

	// Steps.
	{name: "steps missing", old: "", new: "name: a\nversion: 1.0.0\nsummary: s\ncommon_job_info_provided_to_all_steps_at_runtime: c\n"},
	{name: "steps empty", old: "", new: "name: a\nversion: 1.0.0\nsummary: s\ncommon_job_info_provided_to_all_steps_at_runtime: c\nsteps: []\n"},
	{name: "steps null", old: "", new: "name: a\nversion: 1.0.0\nsummary: s\ncommon_job_info_provided_to_all_steps_at_runtime: c\nsteps:\n"},
	{name: "steps mapping", old: "", new: "name: a\nversion: 1.0.0\nsummary: s\ncommon_job_info_provided_to_all_steps_at_runtime: c\nsteps: {a: b}\n"},
	{name: "step text", old: "workflows:", new: "  - third\nworkflows:"},
	{name: "step null", old: "workflows:", new: "  -\nworkflows:"},
	{name: "step bare", old: "workflows:", new: "  - id: third\nworkflows:"},
	{name: "step unknown key", old: "    name: Draft\n", new: "    name: Draft\n    instruction_file: x\n"},
	{name: "step duplicate key", old: "    name: Draft\n", new: "    name: Draft\n    name: Draft\n", schemaPasses: semantic},
	{name: "step id bad and used", old: "id: gather", new: "id: Gather"},
	{name: "step id twice", old: "id: draft", new: "id: gather", schemaPasses: semantic},
	{name: "instructions absolute", old: "steps/draft.md", new: "/etc/passwd"},
	{name: "instructions escaping", old: "steps/draft.md", new: "../draft.md"},
	{name: "instructions escaping from within", old: "steps/draft.md", new: "steps/../../draft.md", schemaPasses: semantic},
	{name: "instructions dot dot", old: "steps/draft.md", new: "./.."},
	{name: "instructions backslash", old: "steps/draft.md", new: `steps\draft.md`},
	{name: "instructions drive", old: "steps/draft.md", new: `C:draft.md`},
	{name: "instructions folder", old: "steps/draft.md", new: "steps/"},
	{name: "instructions dot", old: "steps/draft.md", new: "."},
	{name: "instructions empty", old: "steps/draft.md", new: `""`},
	{name: "instructions control", old: "steps/draft.md", new: `"a\nb"`},
	{name: "exposed text", old: "    name: Draft\n", new: "    name: Draft\n    exposed: yes\n"},
	{name: "hidden quoted", old: "    name: Draft\n", new: "    name: Draft\n    hidden: \"true\"\n"},
	{name: "hidden null", old: "    name: Draft\n", new: "    name: Draft\n    hidden:\n"},
	{name: "hidden tagged", old: "    name: Draft\n", new: "    name: Draft\n    hidden: !!bool maybe\n", schemaPasses: semantic},
	{name: "hidden list", old: "    name: Draft\n", new: "    name: Draft\n    hidden: [true]\n"},
	{name: "agent number", old: "    name: Draft\n", new: "    name: Draft\n    agent: 3\n"},

	// Outputs.
	{name: "outputs missing", old: gatherOutputs, new: ""},
	{name: "outputs list", old: gatherOutputs, new: "    outputs: [figures]\n"},
	{name: "outputs null", old: gatherOutputs, new: "    outputs:\n"},
	{name: "output text", old: "{type: file, description: The figures}", new: "file"},
	{name: "output type bad", old: "type: files", new: "type: fil"},
	{name: "output type missing", old: "        type: files\n", new: ""},
	{name: "output description missing", old: "        description: The report\n", new: ""},
	{name: "output required text", old: "        type: files\n", new: "        type: files\n        required: maybe\n"},
	{name: "output unknown key", old: "        type: files\n", new: "        type: files\n        requird: true\n"},
	{name: "output name twice", old: gatherOutputs, new: gatherOutputs + "      figures: {type: file, description: The figures}\n", schemaPasses: semantic},
	{name: "output name empty", old: "      figures:", new: "      \"\":"},
	{name: "output name control", old: "      figures:", new: "      \"a\\x07\":"},
	{name: "output name long", old: "      figures:", new: "      " + strings.Repeat("é", 201) + ":"},
	{name: "output name number", old: "      figures:", new: "      2024:", schemaPasses: semantic},
	{name: "output type bad under odd name", old: "figures: {type: file,", new: "figures.csv: {type: File,"},

	// Reviews.
	{name: "reviews missing", old: "    reviews: []\n", new: ""},
	{name: "reviews mapping", old: "    reviews: []\n", new: "    reviews: {}\n"},
	{name: "review run_each typo", old: "run_each: report", new: "run_each: reprot", schemaPasses: semantic},
	{name: "review run_each unknown", old: "run_each: report", new: "run_each: figures", schemaPasses: semantic},
	{name: "review run_each missing", old: "run_each: report\n        quality", new: "quality"},
	{name: "review run_each empty", old: "run_each: report", new: `run_each: ""`},
	{name: "review criteria missing", old: draftReviews, new: "    reviews: [{run_each: step}]\n"},
	{name: "review criteria empty", old: draftReviews, new: "    reviews: [{run_each: step, quality_criteria: {}}]\n"},
	{name: "review criteria list", old: draftReviews, new: "    reviews: [{run_each: step, quality_criteria: [a]}]\n"},
	{name: "review criterion twice", old: "          Complete: Is it complete?\n", new: "          Complete: a\n          Complete: b\n", schemaPasses: semantic},
	{name: "review question empty", old: "Is it complete?", new: `""`},
	{name: "review question number", old: "Is it complete?", new: "4"},
	{name: "review criterion unnamed", old: "Complete: Is", new: `"": Is`},
	{name: "review unknown key", old: "      - run_each: report\n", new: "      - run_each: report\n        guidance: x\n"},
	{name: "review by typo", old: "      - run_each: report\n", new: "      - run_each: report\n        by: hunan\n"},
	{name: "review by unknown", old: "      - run_each: report\n", new: "      - run_each: report\n        by: reviewer\n"},
	{name: "review by list", old: "      - run_each: report\n", new: "      - run_each: report\n        by: [human]\n"},
	{name: "review guidance null", old: "      - run_each: report\n", new: "      - run_each: report\n        additional_review_guidance: ~\n"},

	// Dependencies and inputs.
	{name: "dependency unknown", old: "dependencies: [gather]", new: "dependencies: [gather, nobody]", schemaPasses: semantic},
	{name: "dependency typo", old: "dependencies: [gather]", new: "dependencies: [gather, Gahter]", schemaPasses: semantic},
	{name: "dependency itself", old: "dependencies: [gather]", new: "dependencies: [gather, draft]", schemaPasses: semantic},
	{name: "dependency circle", old: "    reviews: []\n", new: "    reviews: []\n    dependencies: [draft]\n", schemaPasses: semantic},
	{name: "dependency number and unknown", old: "dependencies: [gather]", new: "dependencies: [1, gather, nobody]"},
	{name: "dependencies text", old: "dependencies: [gather]", new: "dependencies: gather"},
	{name: "from_step no dependency", old: "    dependencies: [gather]\n", new: "", schemaPasses: semantic},
	{name: "from_step unknown", old: "from_step: gather", new: "from_step: gathr", schemaPasses: semantic},
	{name: "from_step itself", old: "from_step: gather", new: "from_step: draft", schemaPasses: semantic},
	{name: "from_step missing", old: "        from_step: gather\n", new: ""},
	{name: "file missing", old: "      - file: figures\n        from_step", new: "      - from_step"},
	{name: "input mixed", old: "      - file: figures\n", new: "      - file: figures\n        name: x\n"},
	{name: "input empty", old: draftInputs, new: "    inputs: [{}]\n"},
	{name: "input name alone", old: draftInputs, new: "    inputs: [{name: x}]\n"},
	{name: "input unknown key", old: draftInputs, new: "    inputs: [{name: x, description: y, type: z}]\n"},
	{name: "input text", old: draftInputs, new: "    inputs: [figures]\n"},

	// Hooks.
	{name: "hooks list", old: draftInputs, new: "    hooks: []\n"},
	{name: "hooks unknown moment", old: draftInputs, new: "    hooks: {before_tools: []}\n"},
	{name: "hook of none", old: draftInputs, new: "    hooks: {before_tool: [{}]}\n"},
	{name: "hook of two", old: draftInputs, new: "    hooks: {before_tool: [{prompt: a, script: b}]}\n"},
	{name: "hook prompt empty", old: draftInputs, new: "    hooks: {before_prompt: [{prompt: \"\"}]}\n"},
	{name: "hook script outside", old: draftInputs, new: "    hooks: {after_agent: [{script: ../x}]}\n"},
	{name: "stop hook prompt_file outside", old: draftInputs, new: "    stop_hooks: [{prompt_file: /x}]\n"},
	{name: "stop hook text", old: draftInputs, new: "    stop_hooks: [x]\n"},

	// Workflows.
	{name: "workflows null", old: workflowsText, new: "workflows:\n"},
	{name: "workflow text", old: workflowsText, new: "workflows: [full]\n"},
	{name: "workflow bare", old: workflowsText, new: "workflows: [{}]\n"},
	{name: "workflow name blank", old: "name: full", new: "name: a b"},
	{name: "workflow name slash", old: "name: full", new: "name: a/b"},
	{name: "workflow name twice", old: workflowsText, new: workflowsText + "  - {name: full, summary: s, steps: [gather]}\n", schemaPasses: semantic},
	{name: "workflow summary long", old: "All of it", new: strings.Repeat("x", 201)},
	{name: "workflow unknown key", old: "    summary: All of it\n", new: "    summary: All of it\n    description: x\n"},
	{name: "workflow steps text", old: workflowSteps, new: "gather"},
	{name: "workflow step unknown", old: workflowSteps, new: "[gather, drat]", schemaPasses: semantic},
	{name: "workflow step twice", old: workflowSteps, new: "[gather, draft, gather]"},
	{name: "workflow step twice through a group", old: workflowSteps, new: "[gather, [draft, gather]]", schemaPasses: semantic},
	{name: "workflow step mapping", old: workflowSteps, new: "[gather, {id: draft}]"},
	{name: "workflow step number", old: workflowSteps, new: "[gather, 2, draft]"},
	{name: "workflow step null", old: workflowSteps, new: "[gather, ~, draft]"},
	{name: "workflow group empty", old: workflowSteps, new: "[gather, [], draft]"},
	{name: "workflow group nested", old: workflowSteps, new: "[gather, [[draft]]]"},
	{name: "workflow group unknown member", old: workflowSteps, new: "[{}, [gather, 3, nobody]]"},
	{name: "workflow order", old: workflowSteps, new: "[draft, gather]", schemaPasses: semantic},
	{name: "workflow order in group", old: workflowSteps, new: "[[gather, draft]]", schemaPasses: semantic},

	// Syntax of YAML.
	{name: "syntax colon in value", old: "Writes a report", new: "Note: this", schemaPasses: semantic},
	{name: "syntax tab", old: "    name: Draft\n", new: "\tname: Draft\n", schemaPasses: semantic},
	{name: "syntax indentation", old: "    description: Writes\n", new: "     description: Writes\n", schemaPasses: semantic},
	{name: "syntax dedent", old: "    description: Writes\n", new: "   description: Writes\n", schemaPasses: semantic},
	{name: "syntax open quote", old: "    description: Writes\n", new: "    description: \"Writes\n", schemaPasses: semantic},
	{name: "syntax text after quote", old: "    description: Writes\n", new: "    description: \"Writes\" well\n", schemaPasses: semantic},
	{name: "syntax open bracket", old: "dependencies: [gather]", new: "dependencies: [gather", schemaPasses: semantic},
	{name: "syntax open brace", old: "The figures}", new: "The figures", schemaPasses: semantic},
	{name: "syntax at sign", old: "    description: Writes\n", new: "    description: @writer\n", schemaPasses: semantic},
	{name: "syntax star", old: "    description: Writes\n", new: "    description: *bold*\n", schemaPasses: semantic},
	{name: "syntax unknown anchor", old: "    description: Writes\n", new: "    description: *bold\n", schemaPasses: semantic},
	{name: "syntax no colon", old: "    description: Writes\n", new: "    description\n", schemaPasses: semantic},
	{name: "syntax bad escape", old: "    description: Writes\n", new: "    description: \"a\\d\"\n", schemaPasses: semantic},
	{name: "syntax first line", old: "name: report", new: "name: a: b", schemaPasses: semantic},
	{name: "alias circle", old: "dependencies: [gather]", new: "dependencies: &d [gather, *d]", schemaPasses: semantic},
	{name: "undefined tag handle", old: "Be brief.", new: "!a!b x", schemaPasses: semantic},

	// Bytes.
	{name: "not UTF-8", old: "Be brief.", new: "Be \xff brief.", schemaPasses: semantic},
	{name: "cut character", old: "Be brief.", new: "Be \xc3", schemaPasses: semantic},
	{name: "NUL", old: "Be brief.", new: "Be\x00", schemaPasses: semantic},
	{name: "control character", old: "Be brief.", new: "Bé \x1b", schemaPasses: semantic},
	{name: "UTF-16", old: "", new: "\xff\xfen\x00", schemaPasses: semantic},

	// Everything at once.
	{name: "many faults", old: "name: report\nversion: 1.0.0", new: "name: Report\nversion: 1.0\ncolour: red"},
}

// source makes the case's file.
func (c ruleCase) source(t testing.TB, base string) []byte {
	if c.old == "" {
		return []byte(c.new)
	}
	if strings.Count(base, c.old) == 0 {
		t.Fatalf("%q is not in base.yml", c.old)
	}
	return []byte(strings.Replace(base, c.old, c.new, 1))
}
