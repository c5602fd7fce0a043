package pin

import (
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/session/machine"
)

const checkedJob = `name: checked
version: "1.0.0"
summary: S
common_job_info_provided_to_all_steps_at_runtime: C
workflows: [{name: main, summary: M, steps: [a, b, c]}]
steps:
  - {id: a, name: A, description: A, instructions: A, outputs: {}, reviews: []}
  - {id: b, name: B, description: B, instructions: B, outputs: {doc: {type: file, description: D, required: ` +
	`true}}, reviews: [
      {run_each: doc, additional_review_guidance: Be kind., quality_criteria: {short: "Is it short?", "true": "Is ` +
	`it true?"}},
      {run_each: step, by: human, quality_criteria: {good: "Is it good?"}}]}
  - {id: c, name: C, description: C, instructions: C, outputs: {list: {type: file, description: L, required: true, ` +
	`schema: {type: object}}}, reviews: [], checks: [{run: [make], name: builds}, {run: [make, test], name: tests}]}
`

// What an edit of a job takes from the reviews and checks of steps that are not done is said.
func TestWhatAnEditWeakens(t *testing.T) {
	parse := func(edits ...string) *machine.Definition {
		source := strings.NewReplacer(edits...).Replace(checkedJob)
		j, faults := job.Parse("/job", "job.yml", []byte(source))
		testkit.Need(t, j != nil, "%v\n%s", faults, source)
		return &machine.Definition{Job: j, Workflow: &j.Workflows[0]}
	}
	was := parse()
	s, _, err := machine.Begin(was, machine.NewSession{Call: machine.Call{Tool: machine.ToolStart}})
	testkit.Must(t, err)
	for _, c := range []struct {
		edits []string
		want  []string
	}{
		{[]string{"{run_each: doc,", "{run_each: step,"}, []string{"step 'b', review of doc: it is gone"}},
		{[]string{`short: "Is it short?", `, ""}, []string{`step 'b', review of doc: the criterion "short" is gone`}},
		{[]string{"Is it true?", "Is it?", "Be kind.", "Pass it."},
			[]string{`step 'b', review of doc: the criterion "true" was changed`,
				"step 'b', review of doc: its guidance was changed"}},
		{[]string{"by: human, ", ""}, []string{"step 'b', review of step: it is no longer by a person"}},
		{[]string{"description: D, required: true", "description: D, required: false"},
			[]string{"step 'b', review of doc: the output is no longer required"}},
		{[]string{"steps: [a, b, c]", "steps: [a, c]"},
			[]string{"step 'b', which has reviews, is gone from what is still to do"}},
		{[]string{"steps: [a, b, c]", "steps: [b, a, c]"},
			[]string{"step 'b', which has reviews, is gone from what is still to do"}},
		{[]string{"steps: [a, b, c]", "steps: [[a, b], c]", "by: human, ", ""},
			[]string{"step 'b', which has reviews, need not be reported, since it is in a group now",
				"step 'b', review of step: it is no longer by a person"}},
		{[]string{"{run: [make], name: builds}, ", ""}, []string{`step 'c': the check "builds" is gone`}},
		{[]string{"[make], name", "[make, all], name"}, []string{`step 'c': the check "builds" was changed`}},
		{[]string{"schema: {type: object}", "schema: {type: array}"},
			[]string{"step 'c': the schema of the output 'list' was dropped or changed"}},
		{[]string{"description: L, required: true", "description: L, required: false"},
			[]string{"step 'c': the output 'list', which has a schema, is no longer required"}},
		{[]string{"steps: [a, b, c]", "steps: [a, b]"},
			[]string{"step 'c', which has checks, is gone from what is still to do"}},
		{[]string{"steps: [a, b, c]", "steps: [a, [b, c]]"},
			[]string{`step 'c': the check "builds" is bound to the outputs alone, since the step is in a group now`,
				`step 'c': the check "tests" is bound to the outputs alone, since the step is in a group now`}},
		{[]string{"steps: [a, b, c]", "steps: [c, a, b]"},
			[]string{"step 'c', which has checks, is gone from what is still to do"}},
		{[]string{"checks: [", "checks: [{run: [lint], name: lint}, ", "quality_criteria: {",
			`quality_criteria: {more: "Is there more?", `}, nil},
	} {
		now := parse(c.edits...)
		got := compare(s, was, now)
		testkit.Same(t, append(got.reviews, got.checks...), c.want, "%q", c.edits)
	}
	testkit.Same(t, weakerReview(&job.Step{ID: "b"}, &job.Step{Reviews: []job.Review{{RunEach: "doc", Brief: true}}},
		job.Review{RunEach: "doc"}), []string{"step 'b', review of doc: its strategy, context or depth was changed"})

	for _, id := range []string{"b", "c"} {
		s.StepProgress = s.StepProgress.Set(id, &machine.StepProgress{StepID: id, CompletedAt: new(time.Now())})
	}
	gone := parse("steps: [a, b, c]", "steps: [a]")
	testkit.Same(t, compare(s, was, gone), loss{}, "of steps that are done")
}

// Each reviewer is weaker than those after it.
func TestReviewersFromWeakToStrict(t *testing.T) {
	reviewers := []string{ReviewerOff, ReviewerSelf, ReviewerWithheld, ReviewerClaude}
	for i, was := range reviewers {
		for k, now := range reviewers {
			testkit.Equal(t, weakerReviewer(was, now) != "", k < i, "%s after %s is weaker", now, was)
		}
	}
}
