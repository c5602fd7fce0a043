package workflow

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// awaiting returns the sessions and steps that wait for a person, which the server of the caller and
// a command find alike.
func (p *project) awaiting(srv *server, how Reviewing) (all []string) {
	p.t.Helper()
	found := testkit.Get(srv.Awaiting(ctx, session.Caller{Identity: "local"}, nil)).Must(p.t)
	commands, err := p.command(how).Awaiting(ctx, session.LocalCaller(session.ChannelTerminal), nil)
	testkit.True(p.t, err == nil && slices.Equal(found, commands), "the server finds %+v, a command %+v, %v", found, commands, err)
	for _, s := range found {
		testkit.True(p.t, s.Goal == "a goal" && time.Since(s.Since) <= time.Hour && time.Since(s.Since) >= 0, "%+v", s)
		all = append(all, s.SessionID+" "+s.Step)
	}
	if others, err := srv.Awaiting(ctx, session.Caller{Identity: "eve"}, nil); err != nil || others != nil {
		p.t.Errorf("another caller's: %+v, %v", others, err)
	}
	return all
}

// A step waits for a person when its review has failed as often as is allowed, until the person has
// decided.
func TestAStepWaitsForAPersonAfterItsLastReview(t *testing.T) {
	t.Parallel()
	for _, mode := range []config.Override{config.OverrideAgent, config.OverrideHuman, config.OverrideNever} {
		p, srv, rev := underReview(t)
		how := Reviewing{External: true, MaxTries: 2, ReplyWithin: time.Minute, Override: mode}
		rev.how.Store(&how)
		c := srv.Connect("local")
		id := p.start(c, "alpha", "main").BeginStep.SessionID
		p.finish(c, `{"outputs":{"report":"bad.md"}}`)
		got := p.awaiting(srv, how)
		testkit.True(t, got == nil, "%s: %v waits after the first review", mode, got)
		refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"worse.md"}}`))).Err(), session.ToolError, "quality_gate_failed")
		want := []string{id + " one"}
		if mode == config.OverrideNever {
			want = nil // nobody can decide
		}
		testkit.Same(t, p.awaiting(srv, how), want, "%s waits", mode)
		if want == nil {
			continue
		}
		srv.stop()
		given, _ := GivenFor(p.record(id), "one")
		testkit.Must(t, p.command(how).OverrideFor(ctx, id, "one", machine.Override{GivenFor: given, Identity: "local", Channel: session.ChannelTerminal, Reason: "I looked at it"}))
		got = p.awaiting(p.reopen(rev), how)
		testkit.True(t, got == nil, "%s: %v waits after the decision", mode, got)
	}
}

// Where only a person may override, a step that the agent was told to review itself waits for one.
func TestAStepThatIsReviewedByTheAgentWaitsWhereOnlyAPersonClosesIt(t *testing.T) {
	t.Parallel()
	for _, mode := range []config.Override{config.OverrideAgent, config.OverrideHuman} {
		p := newProject(t)
		p.reviewedJob()
		how := Reviewing{MaxTries: 2, Override: mode}
		srv := p.open(func(o *Options) { o.Reviewing = func(context.Context) (Reviewing, error) { return how, nil } })
		c := srv.Connect("local")
		id := p.start(c, "alpha", "main").BeginStep.SessionID
		got := p.awaiting(srv, how)
		testkit.True(t, got == nil, "%s: %v waits before anything was handed in", mode, got)
		p.finish(c, `{"outputs":{"report":"good.md"}}`)
		var want []string
		if mode == config.OverrideHuman {
			want = []string{id + " one"}
		}
		testkit.Same(t, p.awaiting(srv, how), want, "%s waits", mode)
		testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "one"})))
		got = p.awaiting(srv, how)
		testkit.True(t, got == nil, "%s: %v waits after the step was begun again", mode, got)
	}
}

// An agent passes a review with one sentence, unless the config says otherwise.
func TestOneSentenceOverridesOnlyWhereAgentsMay(t *testing.T) {
	t.Parallel()
	for _, mode := range []config.Override{config.OverrideAgent, config.OverrideHuman, config.OverrideNever} {
		t.Run(string(mode), func(t *testing.T) {
			p, srv, rev := underReview(t)
			rev.how.Store(&Reviewing{External: true, MaxTries: 3, ReplyWithin: time.Minute, Override: mode})
			c := srv.Connect("local")
			id := p.start(c, "alpha", "main").BeginStep.SessionID
			p.finish(c, `{"outputs":{"report":"bad.md"}}`)
			before := toJSON(t, p.record(id))
			if mode == config.OverrideAgent {
				testkit.Equal(t, p.finish(c, `{"outputs":{"report":"bad.md"},"quality_review_override_reason":"It is fine"}`).Status, machine.NextStep, "reply")
				return
			}
			want := "deepwork sessions override " + id + " one --reason TEXT"
			if mode == config.OverrideNever {
				want = "Nobody may override"
			}
			for _, outputs := range []string{`{"report":"bad.md"}`, `{"report":"missing.md"}`, `{}`} { // refused before they are looked at
				_, err := c.Finish(ctx, finishArgs(t, `{"outputs":`+outputs+`,"quality_review_override_reason":"It is fine"}`))
				refused(t, err, session.StateError, "override_needs_person", want)
			}
			if after := toJSON(t, p.record(id)); after != before || rev.calls() != 1 {
				t.Errorf("a refused override changed the session, or was reviewed (%d): %s", rev.calls(), after)
			}
			// A blank reason is ignored, and a step without reviews has nothing to override.
			p.finish(c, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"  "}`)
			testkit.Equal(t, p.finish(c, `{"outputs":{},"quality_review_override_reason":"No reviews"}`).Status, machine.WorkflowComplete, "reply")
		})
	}
}

// With reviews by the agent itself the closing call is an override.
func TestSelfReviewIsClosedByWhomTheConfigAllows(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.reviewedJob()
	how := Reviewing{Override: config.OverrideHuman}
	srv := p.open(func(o *Options) {
		o.Reviewing = func(context.Context) (Reviewing, error) { return how, nil }
	})
	c := srv.Connect("local")
	started := p.start(c, "alpha", "main")
	id := started.BeginStep.SessionID
	r := p.finish(c, `{"outputs":{"report":"good.md"}}`)
	testkit.True(t, r.Status == machine.NeedsWork && strings.Contains(*r.Feedback, "deepwork sessions override "+id+" one --reason TEXT") && started.Notice == nil, "reply %s, notice %s", toJSON(t, r), toJSON(t, started.Notice))
	_, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"All pass"}`))
	refused(t, err, session.StateError, "override_needs_person")

	how.Override = config.OverrideNever
	for _, reason := range []string{"", `,"quality_review_override_reason":"All pass"`} {
		_, err = c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"good.md"}`+reason+`}`))
		refused(t, err, session.StateError, "override_needs_person", "'one'")
	}
	back, err := c.GoTo(ctx, GoToArgs{StepID: "one"})
	testkit.True(t, err == nil && back.Notice != nil && strings.Contains(*back.Notice, "cannot be finished"), "%s, %v", toJSON(t, back), err)
	if n := p.start(c, "alpha", "main").Notice; n == nil || !strings.Contains(*n, "'one'") || strings.Contains(*n, "'two'") {
		t.Errorf("notice %s", toJSON(t, n))
	}
	how = Reviewing{External: true, Override: config.OverrideNever}
	if n := p.start(c, "alpha", "main").Notice; strings.Contains(*n, "cannot be finished") {
		t.Errorf("notice %s", *n)
	}
}

// A person's override of other outputs than those that are handed in is not silently ignored: the
// reply to each call says so, and so does the evidence.
func TestAnOverrideOfOtherOutputsIsNotIgnoredSilently(t *testing.T) {
	t.Parallel()
	const said = "A person has overridden the review of step 'one', but for other outputs"
	for _, external := range []bool{false, true} {
		p, srv, rev := underReview(t)
		rev.how.Store(&Reviewing{External: external, MaxTries: 2, ReplyWithin: time.Minute, Override: config.OverrideAgent})
		c := srv.Connect("local")
		id := p.start(c, "alpha", "main").BeginStep.SessionID
		if r := p.finish(c, `{"outputs":{"report":"bad.md"}}`); r.Status != machine.NeedsWork || r.Notice != nil && strings.Contains(*r.Notice, said) {
			t.Fatalf("before: %s", toJSON(t, r))
		}
		srv.stop()
		given, files := GivenFor(p.record(id), "one")
		testkit.True(t, given != "" && len(files) == 1 && files[0].Path == "bad.md", "handed in: %q, %v", given, files)
		testkit.Must(t, p.command(*rev.how.Load()).OverrideFor(ctx, id, "one", machine.Override{GivenFor: given, Identity: "local", Channel: session.ChannelTerminal, Reason: "I looked at it"}))
		c = p.reopen(rev).Connect("local")
		p.write("bad.md", "CONTENT OF bad.md, and worse")
		call := `{"outputs":{"report":"bad.md"},"session_id":"` + id + `"}`
		if !external {
			if r := p.finish(c, call); r.Status != machine.NeedsWork || r.Notice == nil || !strings.Contains(*r.Notice, said) {
				t.Errorf("self-review: %s", toJSON(t, r))
			}
		} else {
			refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, call))).Err(), session.ToolError, "quality_gate_failed", said)
			refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, call))).Err(), session.ToolError, "quality_gate_failed", said, "Nothing was reviewed this time")
		}
		r := p.finish(c, `{"outputs":{"report":"bad.md"},"session_id":"`+id+`","quality_review_override_reason":"It is fine"}`)
		e := p.record(id).Progress("one").Evidence
		want := machine.BySelf
		if external {
			want = machine.ByOverride
		}
		testkit.True(t, r.Status == machine.NextStep && e.Kind == want && e.GivenFor == given && e.Digest != given, "reply %s, evidence %s", toJSON(t, r), toJSON(t, e))
	}
}
