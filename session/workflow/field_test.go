package workflow

import (
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
	if now == nil || now.State != "failed" || now.Feedback != *r.Feedback || now.TriesLeft != 2 || toJSON(t, now.Outputs) != `{"report":"bad.md"}` {
		t.Errorf("after a failed one: %s", toJSON(t, now))
	}
	testkit.Equal(t, *r.Notice, "Try 1 of 3 did not pass: step, Is it good?. Correct that, and call finished_step again.")
	first := testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep
	if first.Name == "" || first.Description == "" || first.Position[:5] != "1 of " {
		t.Errorf("the step: %+v", first)
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

// A workflow that is started in place of one that is not there is named.
func TestField19_TheOnlyWorkflowIsNamed(t *testing.T) {
	p, srv, _ := underReview(t)
	c := srv.Connect("local")
	if r := p.start(c, "alpha", "main"); r.Notice != nil {
		t.Errorf("notice %q", *r.Notice)
	}
	r := p.start(c, "alpha", "release")
	if r.Notice == nil {
		t.Fatal("no notice")
	}
	testkit.Contains(t, *r.Notice, "There is no workflow 'release' in the job 'alpha': its only one, 'main', was started.")
}
