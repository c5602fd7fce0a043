package workflow

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// get_step says where the review of a step stands, and an agent goes on from that alone.
func TestField16_GetStepSaysWhereTheReviewStands(t *testing.T) {
	p, srv, rev := underReview(t)
	rev.how.Store(&Reviewing{External: true, MaxTries: 3, ReplyWithin: time.Minute, Override: config.OverrideAgent})
	c := srv.Connect("local")
	p.start(c, "alpha", "main")
	standing := func() *machine.Standing {
		return testkit.Get(c.Step(ctx, StepArgs{})).Must(t).Members[0].Review
	}
	if r := standing(); r != nil {
		t.Errorf("before the first: %+v", r)
	}
	r := p.finish(c, `{"outputs":{"report":"bad.md"}}`)
	now := standing()
	testkit.True(t, now != nil && now.State == "failed" && strings.Contains(*r.Feedback, now.Feedback) && now.TriesLeft == 2 && toJSON(t, now.Outputs) == `{"report":"bad.md"}`, "after a failed one: %s", toJSON(t, now))
	how := *rev.how.Load()
	how.ReplyWithin = 20 * time.Millisecond
	rev.how.Store(&how)
	rev.set("wait", "")
	p.finish(c, `{"outputs":{"report":"good.md"}}`)
	testkit.Equal(t, toJSON(t, standing()), `{"verdict":"running","outputs":{"report":"good.md"},"tries_left":2}`, "while one is running")
	rev.unset("wait")

	p = newProject(t)
	p.personJob(humanStep)
	srv, _ = p.reviewed()
	c = srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	waits(t, p.finish(c, `{"outputs":{"report":"good.md"}}`))
	now = standing()
	if now == nil || now.State != "waiting_for_you" || !strings.HasPrefix(now.Command, "deepwork sessions review "+id+" one") || toJSON(t, now.Outputs) != `{"report":"good.md"}` {
		t.Errorf("while a person is awaited: %s", toJSON(t, now))
	}
}

// A server that serves the last good version of a job that no longer loads says so, with the file and its first fault.
func TestField18_TheLastGoodVersionIsSaid(t *testing.T) {
	t.Parallel()
	p := simpleProject(t)
	srv := p.open()
	c := srv.Connect("local")
	if r := p.start(c, "alpha", "main"); r.Notice != nil {
		t.Errorf("of a good job: %s", *r.Notice)
	}
	file := filepath.Join(p.root, ".deepwork", "jobs", "alpha", "job.yml")
	good := string(testkit.Get(os.ReadFile(file)).Must(t))
	testkit.Write(t, file, strings.Replace(good, "steps:", "stepz:", 1))
	said := toJSON(t, p.start(c, "alpha", "main").Notice)
	testkit.Contains(t, said, "job 'alpha' in "+filepath.Dir(file)+" does not load any more, so its last good version, 1.0.0, is used until that is corrected or the server ends. The first error: job.yml:5:1: stepz: unknown key", "the notice")
	testkit.Write(t, file, good)
	if r := p.start(c, "alpha", "main"); strings.Contains(toJSON(t, r.Notice), "last good") {
		t.Errorf("once it is corrected: %s", *r.Notice)
	}
}

// What an agent can do at the limit depends on who may override a review.
func TestField18_AdviceAtTheLimit(t *testing.T) {
	t.Parallel()
	for mode, want := range map[config.Override]string{
		config.OverrideAgent: "or ask the user whether to pass quality_review_override_reason.",
		config.OverrideHuman: "or ask the user whether to run `deepwork sessions override ",
		config.OverrideNever: "Change the outputs and call again, or go back with go_to_step.",
	} {
		p, srv, rev := underReview(t)
		rev.how.Store(&Reviewing{External: true, MaxTries: 1, ReplyWithin: time.Minute, Override: mode})
		c := srv.Connect("local")
		p.start(c, "alpha", "main")
		for range 2 { // the second time without a review
			_, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"bad.md"}}`))
			refused(t, err, session.ToolError, "quality_gate_failed")
			testkit.Contains(t, err.Error(), want, "%s", mode)
		}
	}
}

// An agent is told which try failed, for which files and by which criteria; what the step is called, what it does and
// where it is in the workflow; what its branch is; and that another workflow began than the one that it named.
func TestField19_RepliesSayWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	p, srv, _ := underReview(t)
	c := srv.Connect("local")
	r := p.start(c, "alpha", "mian")
	testkit.Contains(t, toJSON(t, r.Notice), "Job 'alpha' has no workflow 'mian': its only one, 'main', was started.")
	testkit.Equal(t, r.BeginStep.BranchStatus, "suggested, and not in git")
	at := func(info *machine.StepInfo, want ...string) {
		t.Helper()
		testkit.Same(t, []string{info.Name, info.Description, info.Position}, want, "of the step")
	}
	at(r.BeginStep, "Step one", "Does one", "1 of 2")
	for _, c2 := range []struct{ file, want string }{{"bad.md", "Try 1 of 3. bad.md: bad.md was read"}, {"worse.md", "Try 2 of 3. worse.md: worse.md was read"}} {
		got := p.finish(c, `{"outputs":{"report":"`+c2.file+`"}}`)
		testkit.Equal(t, *got.Feedback, c2.want+"\n- Not met: Is it good?\nCorrect that, then call finished_step again.")
	}
	at(testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep, "Step one", "Does one", "1 of 2")
	at(p.finish(c, `{"outputs":{"report":"good.md"}}`).BeginStep, "Step two", "Does two", "2 of 2")
}
