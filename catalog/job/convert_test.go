package job

import (
	"errors"
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
		if want := "job.yml:1:1: was written for DeepWork " + versions + ": convert it with deepwork jobs convert old"; len(ds) == 0 || ds[0].String() != want {
			t.Errorf("%s: %v, want %s", versions, ds, want)
		}
		for _, d := range ds {
			if strings.Contains(d.Message, "reviews: []") || strings.Contains(d.Message, "unknown key") {
				t.Errorf("%s: %v costs a quality check", versions, d)
			}
		}
		c, err := Convert([]byte(source))
		testkit.Must(t, err)
		j, ds := Parse("/jobs/old", FileName, c.Source)
		if j == nil {
			t.Fatalf("%s: %v\n%s", versions, ds, c.Source)
		}
		testkit.Golden(t, "testdata/convert_"+versions+".golden", string(c.Source)+"---\n"+strings.Join(c.Notes, "\n")+"\n---\n"+c.Changelog, *update)
		if _, err := Convert(c.Source); !errors.Is(err, ErrCurrent) {
			t.Errorf("%s: converted twice: %v", versions, err)
		}
	}
	for _, current := range validFiles(t) {
		if _, err := Convert(readFile(t, current)); !errors.Is(err, ErrCurrent) {
			t.Errorf("%s is converted: %v", current, err)
		}
	}
}
