package workflow

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/definition"
	"deepwork/session/workflow/machine"
)

// get_step says where the review of a step stands, and an agent goes on from that alone.
func TestField16_GetStepSaysWhereTheReviewStands(t *testing.T) {
	how := Reviewing{External: true, MaxTries: 3, ReplyWithin: time.Minute, Override: config.OverrideAgent}
	p, _, rev, c, _ := underReview(t, how)
	standing := func() *machine.Standing {
		return testkit.Get(c.Step(ctx, StepArgs{})).Must(t).Members[0].Review
	}
	testkit.Equal(t, standing(), nil, "before the first")
	r := p.finish(c, bad)
	now := standing()
	testkit.True(t, now != nil && now.State == "failed" && strings.Contains(*r.Feedback, now.Feedback) && now.TriesLeft == 2 && toJSON(t, now.Outputs) == `{"report":"bad.md"}`, "after a failed one: %s", toJSON(t, now))
	how.ReplyWithin = 20 * time.Millisecond
	rev.how.Store(&how)
	rev.set("wait", "")
	p.finish(c, good)
	testkit.Equal(t, toJSON(t, standing()), `{"verdict":"running","outputs":{"report":"good.md"},"tries_left":2}`, "while one is running")
	rev.unset("wait")

	p, _, _, c, id := underJudgement(t, humanStep)
	waits(t, p.finish(c, good))
	now = testkit.Get(c.Step(ctx, StepArgs{})).Must(t).Members[0].Review
	testkit.True(t, now != nil && now.State == "waiting_for_you" && strings.HasPrefix(now.Command, "deepwork sessions review "+id+" one") && toJSON(t, now.Outputs) == `{"report":"good.md"}`, "while a person is awaited: %s", toJSON(t, now))
}

// A server that serves the last good version of a job that no longer loads says so, with the file and its first fault.
func TestField18_TheLastGoodVersionIsSaid(t *testing.T) {
	p := simpleProject(t)
	c := p.open().Connect("local")
	notice := func() string { t.Helper(); return toJSON(t, p.start(c, "alpha", "main").Notice) }
	testkit.Equal(t, notice(), "null", "of a good job")
	file := filepath.Join(p.root, ".deepwork", "jobs", "alpha", "job.yml")
	good := string(testkit.Get(os.ReadFile(file)).Must(t))
	testkit.Write(t, file, strings.Replace(good, "steps:", "stepz:", 1))
	testkit.Contains(t, notice(), "job 'alpha' in "+filepath.Dir(file)+" does not load any more, so its last good version, 1.0.0, is used until that is corrected or the server ends. The first error: job.yml:5:1: stepz: unknown key")
	testkit.Write(t, file, good)
	testkit.Equal(t, strings.Contains(notice(), "last good"), false, "once it is corrected")
}

// What an agent can do at the limit depends on who may override a review.
func TestField18_AdviceAtTheLimit(t *testing.T) {
	for mode, want := range map[config.Override]string{
		config.OverrideAgent: "or ask the user whether to pass quality_review_override_reason.",
		config.OverrideHuman: "or ask the user whether to run `deepwork sessions override ",
		config.OverrideNever: "Change the outputs and call again, or go back with go_to_step.",
	} {
		_, _, _, c, _ := underReview(t, Reviewing{External: true, MaxTries: 1, ReplyWithin: time.Minute, Override: mode})
		for range 2 { // the second time without a review
			refused(t, refusal(t, c, bad), session.ToolError, "quality_gate_failed", want)
		}
	}
}

// An agent is told which try failed, for which files and by which criteria; what the step is called, what it does and
// where it is in the workflow; what its branch is; and that another workflow began than the one that it named.
func TestField19_RepliesSayWhatTheyAreAbout(t *testing.T) {
	p, _, _, c, _ := underReview(t)
	r := p.start(c, "alpha", "mian")
	testkit.Contains(t, toJSON(t, r.Notice), "Job 'alpha' has no workflow 'mian': its only one, 'main', was started.")
	testkit.Equal(t, r.BeginStep.BranchStatus, "suggested, and not in git")
	at := func(info *machine.StepInfo, want ...string) {
		t.Helper()
		testkit.Same(t, []string{info.Name, info.Description, info.Position}, want, "of the step")
	}
	at(r.BeginStep, "Step one", "Does one", "1 of 2")
	for i, file := range []string{"bad.md", "worse.md"} {
		r := p.finish(c, `{"outputs":{"report":"`+file+`"}}`)
		testkit.Equal(t, *r.Feedback, fmt.Sprintf("Try %d of 3. %s: %s was read\n- Not met: Is it good?\nCorrect that, then call finished_step again.", i+1, file, file))
	}
	at(testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep, "Step one", "Does one", "1 of 2")
	at(p.finish(c, good).BeginStep, "Step two", "Does two", "2 of 2")
}

// third is a third of the instructions that a reply can have, and a little more.
var third = strings.Repeat("Read this.\n", definition.MaxEntryBytes/3/11)

// A group whose instructions are more than a reply can have does not begin; when the files are shorter the same call goes on.
func TestAGroupWithTooMuchTextDoesNotBegin(t *testing.T) {
	p := newProject(t).alpha("[first, [a, b, c]]", testStep{id: "first"}, testStep{id: "a"}, testStep{id: "b"}, testStep{id: "c"})
	for _, id := range []string{"a", "b", "c"} {
		p.write(".deepwork/jobs/alpha/steps/"+id+".md", third)
	}
	_, c, _ := p.begin()
	refused(t, refusal(t, c, `{"outputs":{}}`), session.ToolError, "instructions_too_large", "a, b, c", "nothing has moved", fmt.Sprint(definition.MaxEntryBytes))
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep.StepID, "first", "the step")
	p.write(".deepwork/jobs/alpha/steps/c.md", "Little.")
	r := p.finish(c, `{"outputs":{}}`)
	testkit.True(t, len(r.ConcurrentSteps) == 2 && strings.HasPrefix(r.BeginStep.Instructions, third[:len(third)-1]), "the group did not begin")
}

// A group that began and has too much text by now is read as it began, and get_step says why.
func TestAGroupWithTooMuchTextByNowIsReadAsItBegan(t *testing.T) {
	p := newProject(t).alpha("[[a, b, c]]", testStep{id: "a"}, testStep{id: "b"}, testStep{id: "c"})
	_, c, _ := p.begin()
	before := testkit.Get(c.Step(ctx, StepArgs{})).Must(t)
	for _, name := range []string{"a", "b", "c"} {
		p.write(".deepwork/jobs/alpha/steps/"+name+".md", third)
	}
	r := testkit.Get(c.Step(ctx, StepArgs{})).Must(t)
	testkit.Equal(t, r.BeginStep.Instructions, before.BeginStep.Instructions)
	testkit.ContainsAll(t, toJSON(t, r.Notice), []string{"those the step began with", fmt.Sprint(definition.MaxEntryBytes)})
	testkit.True(t, !strings.Contains(*r.Notice, "nil"), "the notice is %s", *r.Notice)
}

// manyJobs is a snapshot of n jobs.
func manyJobs(n, description int) *catalog.Snapshot {
	snap := &catalog.Snapshot{}
	for i := range n {
		j := &job.Job{Name: fmt.Sprintf("job_%05d", i), Summary: strings.Repeat("s", 200), Workflows: []job.Workflow{{Name: "main", Summary: strings.Repeat("w", 200)}}}
		if description > 0 {
			j.Description = new(strings.Repeat("d", description))
		}
		snap.Jobs = append(snap.Jobs, j)
	}
	return snap
}

// get_workflows of any number of jobs is bounded: descriptions go first, then jobs, and the notice says which and where they are.
func TestGetWorkflowsIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		snapshot *catalog.Snapshot
		listed   int
		words    []string
	}{
		"all of it":         {manyJobs(1000, 2000), 1000, nil},
		"long descriptions": {manyJobs(1000, 20_000), 1000, []string{"descriptions of the jobs are left out", "job.yml"}},
		"10,000 jobs":       {manyJobs(8000, 0), 8000, nil},
		"too many jobs":     {manyJobs(20_000, 10), -1, []string{"descriptions", "of 20000 jobs are listed", "`deepwork jobs`"}},
	} {
		enc := testkit.Get(encodeJobs(c.snapshot, nil)).Must(t)
		var jobs []machine.JobInfo
		testkit.Must(t, json.Unmarshal(enc.Jobs, &jobs))
		testkit.True(t, len(enc.Jobs) <= jobsBytes && (len(jobs) == c.listed || c.listed < 0) && len(jobs) >= 1000, "%s: %d jobs in %d bytes", name, len(jobs), len(enc.Jobs))
		testkit.Equal(t, c.words == nil, enc.Notice == nil, "%s: the notice is %v", name, enc.Notice)
		testkit.ContainsAll(t, toJSON(t, enc.Notice), c.words, name)
		for i, j := range jobs {
			testkit.Need(t, j.Name == c.snapshot.Jobs[i].Name && len(j.Workflows) == 1 && (len(c.words) == 0 || j.Description == nil), "%s: job %d is %+v", name, i, j)
		}
	}
}
