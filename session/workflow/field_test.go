package workflow

import (
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/workflow/machine"
)

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
