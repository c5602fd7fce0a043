package workflow

import (
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// awaiting checks which sessions and steps wait for a person, which the server of the caller and
// a command find alike.
func (p *project) awaiting(srv *server, how Reviewing, want ...string) {
	p.t.Helper()
	found := testkit.Get(srv.Awaiting(ctx, session.Caller{Identity: "local"}, nil)).Must(p.t)
	commands, err := p.command(how).Awaiting(ctx, session.LocalCaller(session.ChannelTerminal), nil)
	testkit.True(p.t, err == nil && slices.Equal(found, commands), "the server finds %+v, a command %+v, %v", found, commands, err)
	var all []string
	for _, s := range found {
		testkit.True(p.t, s.Goal == "a goal" && time.Since(s.Since) <= time.Hour && time.Since(s.Since) >= 0, "%+v", s)
		all = append(all, s.SessionID+" "+s.Step)
	}
	testkit.Same(p.t, all, want, "what waits for a person")
	testkit.Same(p.t, testkit.Get(srv.Awaiting(ctx, session.Caller{Identity: "eve"}, nil)).Must(p.t), nil, "another caller's")
}

// decided is what a person decides at a terminal about the outputs that were handed in.
func (p *project) decided(id string) machine.Override {
	given, _ := GivenFor(p.record(id), "one")
	return machine.Override{GivenFor: given, Identity: "local", Channel: session.ChannelTerminal, Reason: "I looked at it"}
}

// A step waits for a person when its review has failed as often as is allowed, until the person has
// decided.
func TestAStepWaitsForAPersonAfterItsLastReview(t *testing.T) {
	for _, mode := range []config.Override{config.OverrideAgent, config.OverrideHuman, config.OverrideNever} {
		how := Reviewing{External: true, MaxTries: 2, ReplyWithin: time.Minute, Override: mode}
		p, srv, rev, c, id := underReview(t, how)
		p.finish(c, bad)
		p.awaiting(srv, how)
		refused(t, refusal(t, c, worse), session.ToolError, "quality_gate_failed")
		if mode == config.OverrideNever { // nobody can decide
			p.awaiting(srv, how)
			continue
		}
		p.awaiting(srv, how, id+" one")
		srv.stop()
		testkit.Must(t, p.command(how).OverrideFor(ctx, id, "one", p.decided(id)))
		p.awaiting(p.reopen(rev), how)
	}
}

// Where only a person may override, a step that the agent was told to review itself waits for one.
func TestAStepThatIsReviewedByTheAgentWaitsWhereOnlyAPersonClosesIt(t *testing.T) {
	for _, mode := range []config.Override{config.OverrideAgent, config.OverrideHuman} {
		p := newProject(t)
		p.reviewedJob(reviewedStep)
		how := Reviewing{MaxTries: 2, Override: mode}
		srv, c, id := p.begin(reviewing(&how))
		p.awaiting(srv, how)
		p.finish(c, good)
		if mode == config.OverrideHuman {
			p.awaiting(srv, how, id+" one")
		} else {
			p.awaiting(srv, how)
		}
		testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "one"})))
		p.awaiting(srv, how) // the step was begun again
	}
}

// An agent passes a review with one sentence, unless the config says otherwise.
func TestOneSentenceOverridesOnlyWhereAgentsMay(t *testing.T) {
	for mode, want := range map[config.Override]string{config.OverrideAgent: "", config.OverrideHuman: "deepwork sessions override %s one --reason TEXT", config.OverrideNever: "Nobody may override"} {
		t.Run(string(mode), func(t *testing.T) {
			p, _, rev, c, id := underReview(t, Reviewing{External: true, MaxTries: 3, ReplyWithin: time.Minute, Override: mode})
			p.finish(c, bad)
			before := toJSON(t, p.record(id))
			if mode == config.OverrideAgent {
				says(t, p.finish(c, `{"outputs":{"report":"bad.md"},"quality_review_override_reason":"It is fine"}`), machine.NextStep)
				return
			}
			for _, outputs := range []string{`{"report":"bad.md"}`, `{"report":"missing.md"}`, `{}`} { // refused before they are looked at
				refused(t, refusal(t, c, `{"outputs":`+outputs+`,"quality_review_override_reason":"It is fine"}`), session.StateError, "override_needs_person", strings.Replace(want, "%s", id, 1))
			}
			testkit.Equal(t, toJSON(t, p.record(id)), before, "a refused override changed the session")
			testkit.Equal(t, rev.calls(), 1, "reviews")
			// A blank reason is ignored, and a step without reviews has nothing to override.
			p.finish(c, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"  "}`)
			says(t, p.finish(c, `{"outputs":{},"quality_review_override_reason":"No reviews"}`), machine.WorkflowComplete)
		})
	}
}

// With reviews by the agent itself the closing call is an override.
func TestSelfReviewIsClosedByWhomTheConfigAllows(t *testing.T) {
	p := newProject(t)
	p.reviewedJob(reviewedStep)
	how := Reviewing{Override: config.OverrideHuman}
	c := p.open(reviewing(&how)).Connect("local")
	started := p.start(c, "alpha", "main")
	testkit.True(t, started.Notice == nil, "notice %s", toJSON(t, started.Notice))
	says(t, p.finish(c, good), machine.NeedsWork, "deepwork sessions override "+started.BeginStep.SessionID+" one --reason TEXT")
	refused(t, refusal(t, c, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"All pass"}`), session.StateError, "override_needs_person")
	how.Override = config.OverrideNever
	for _, reason := range []string{"", `,"quality_review_override_reason":"All pass"`} {
		refused(t, refusal(t, c, `{"outputs":{"report":"good.md"}`+reason+`}`), session.StateError, "override_needs_person", "'one'")
	}
	testkit.Contains(t, toJSON(t, testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "one"})).Must(t).Notice), "cannot be finished")
	n := toJSON(t, p.start(c, "alpha", "main").Notice)
	testkit.True(t, strings.Contains(n, "'one'") && !strings.Contains(n, "'two'"), "notice %s", n)
	how = Reviewing{External: true, Override: config.OverrideNever}
	n = toJSON(t, p.start(c, "alpha", "main").Notice)
	testkit.True(t, !strings.Contains(n, "cannot be finished"), "notice %s", n)
}

// A person's override of other outputs than those that are handed in is not silently ignored: the
// reply to each call says so, and so does the evidence.
func TestAnOverrideOfOtherOutputsIsNotIgnoredSilently(t *testing.T) {
	const said = "A person has overridden the review of step 'one', but for other outputs"
	for external, kind := range map[bool]machine.EvidenceKind{false: machine.BySelf, true: machine.ByOverride} {
		p, srv, rev, c, id := underReview(t, Reviewing{External: external, MaxTries: 2, ReplyWithin: time.Minute, Override: config.OverrideAgent})
		r := p.finish(c, bad)
		testkit.True(t, r.Status == machine.NeedsWork && !strings.Contains(toJSON(t, r.Notice), said), "before: %s", toJSON(t, r))
		srv.stop()
		given, files := GivenFor(p.record(id), "one")
		testkit.True(t, given != "" && len(files) == 1 && files[0].Path == "bad.md", "handed in: %q, %v", given, files)
		testkit.Must(t, p.command(*rev.how.Load()).OverrideFor(ctx, id, "one", p.decided(id)))
		c = p.reopen(rev).Connect("local")
		p.write("bad.md", "CONTENT OF bad.md, and worse")
		call := `{"outputs":{"report":"bad.md"},"session_id":"` + id + `"}`
		if external {
			refused(t, refusal(t, c, call), session.ToolError, "quality_gate_failed", said)
			refused(t, refusal(t, c, call), session.ToolError, "quality_gate_failed", said, "Nothing was reviewed this time")
		} else {
			r := p.finish(c, call)
			says(t, r, machine.NeedsWork)
			testkit.Contains(t, toJSON(t, r.Notice), said, "self-review")
		}
		says(t, p.finish(c, `{"outputs":{"report":"bad.md"},"session_id":"`+id+`","quality_review_override_reason":"It is fine"}`), machine.NextStep)
		e := p.record(id).Progress("one").Evidence
		testkit.True(t, e.Kind == kind && e.GivenFor == given && e.Digest != given, "evidence %s", toJSON(t, e))
	}
}
