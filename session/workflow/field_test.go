package workflow

import (
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
	rev.how.Store(&Reviewing{External: true, MaxAttempts: 3, ReplyWithin: time.Minute, Override: config.OverrideAgent})
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
	if now == nil || now.State != "failed" || !strings.Contains(*r.Feedback, now.Feedback) || now.TriesLeft != 2 || toJSON(t, now.Outputs) != `{"report":"bad.md"}` {
		t.Errorf("after a failed one: %s", toJSON(t, now))
	}
}

// What an agent can do at the limit depends on who may override a review.
func TestField18_AdviceAtTheLimit(t *testing.T) {
	for mode, want := range map[config.Override]string{
		config.OverrideAgent: "or ask the user whether to pass quality_review_override_reason.",
		config.OverrideHuman: "or ask the user whether to run `deepwork sessions override ",
		config.OverrideNever: "Change the outputs and call again, or go back with go_to_step.",
	} {
		p, srv, rev := underReview(t)
		rev.how.Store(&Reviewing{External: true, MaxAttempts: 1, ReplyWithin: time.Minute, Override: mode})
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
