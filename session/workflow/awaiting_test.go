package workflow

import (
	"context"
	"slices"
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
	found, err := srv.Awaiting(ctx, session.Caller{Identity: "local"}, nil)
	testkit.Must(p.t, err)
	commands, err := p.command(how).Awaiting(ctx, session.LocalCaller(session.ChannelTerminal), nil)
	if err != nil || !slices.Equal(found, commands) {
		p.t.Errorf("the server finds %+v, a command %+v, %v", found, commands, err)
	}
	for _, s := range found {
		if s.Goal != "a goal" || time.Since(s.Since) > time.Hour || time.Since(s.Since) < 0 {
			p.t.Errorf("%+v", s)
		}
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
	for _, mode := range []config.Override{config.OverrideAgent, config.OverrideHuman, config.OverrideNever} {
		p := newProject(t)
		p.reviewedJob()
		srv, rev := p.reviewed()
		how := Reviewing{External: true, MaxAttempts: 2, ReplyWithin: time.Minute, Override: mode}
		rev.how.Store(&how)
		c := srv.Connect("local")
		id := p.start(c, "alpha", "main").BeginStep.SessionID
		p.finish(c, `{"outputs":{"report":"bad.md"}}`)
		if got := p.awaiting(srv, how); got != nil {
			t.Errorf("%s: %v waits after the first review", mode, got)
		}
		_, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"worse.md"}}`))
		refused(t, err, session.ToolError, "quality_gate_failed")
		want := []string{id + " one"}
		if mode == config.OverrideNever {
			want = nil // nobody can decide
		}
		if got := p.awaiting(srv, how); !slices.Equal(got, want) {
			t.Errorf("%s: %v waits, want %v", mode, got, want)
		}
		if want == nil {
			continue
		}
		srv.stop()
		given, _ := GivenFor(p.record(id), "one")
		testkit.Must(t, p.command(how).OverrideFor(ctx, id, "one", machine.Override{GivenFor: given, Identity: "local", Channel: session.ChannelTerminal, Reason: "I looked at it"}))
		if got := p.awaiting(p.reopen(rev), how); got != nil {
			t.Errorf("%s: %v waits after the decision", mode, got)
		}
	}
}

// Where only a person may override, a step that the agent was told to review itself waits for one.
func TestAStepThatIsReviewedByTheAgentWaitsWhereOnlyAPersonClosesIt(t *testing.T) {
	for _, mode := range []config.Override{config.OverrideAgent, config.OverrideHuman} {
		p := newProject(t)
		p.reviewedJob()
		how := Reviewing{MaxAttempts: 2, Override: mode}
		srv := p.open(func(o *Options) { o.Reviewing = func(context.Context) (Reviewing, error) { return how, nil } })
		c := srv.Connect("local")
		id := p.start(c, "alpha", "main").BeginStep.SessionID
		if got := p.awaiting(srv, how); got != nil {
			t.Errorf("%s: %v waits before anything was handed in", mode, got)
		}
		p.finish(c, `{"outputs":{"report":"good.md"}}`)
		var want []string
		if mode == config.OverrideHuman {
			want = []string{id + " one"}
		}
		if got := p.awaiting(srv, how); !slices.Equal(got, want) {
			t.Errorf("%s: %v waits, want %v", mode, got, want)
		}
		testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "one"})))
		if got := p.awaiting(srv, how); got != nil {
			t.Errorf("%s: %v waits after the step was begun again", mode, got)
		}
	}
}
