package workflow

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// An edit of the job that removes or weakens reviews takes effect, and is recorded; in a pinned
// session it does not take effect.
func TestAnEditOfTheJobDoesNotWeakenAPinnedSession(t *testing.T) {
	t.Parallel()
	strict := "[{run_each: step, quality_criteria: {Good: \"Is it good?\", Safe: \"Is it safe?\"}, additional_review_guidance: \"Look twice\"}]"
	for name, edit := range map[string]struct{ reviews, entries, what string }{
		"review gone": {"[]", "[one, two]", "step 'one', review of step: it is gone"},
		"stricter":    {"[{run_each: report, quality_criteria: {New: \"Is it new?\"}}, " + strict[1:], "[one, two]", ""},
	} {
		for _, pin := range []bool{false, true} {
			p := newProject(t)
			job := func(reviews, entries string) {
				p.job("alpha", []testStep{{id: "one", outputs: oneFile, reviews: reviews}, {id: "two"}}, map[string]string{"main": entries})
			}
			job(strict, "[one, two]")
			p.write("good.md", "CONTENT OF good.md")
			srv, rev := p.reviewed()
			rev.set("say", `{"passed": true, "feedback": "fine"}`)
			rev.how.Store(&Reviewing{External: true, Reviewer: "[\"r\"]", MaxTries: 3, ReplyWithin: time.Minute, Pin: pin})
			c := srv.Connect("local")
			id := p.start(c, "alpha", "main").BeginStep.SessionID
			job(edit.reviews, edit.entries)
			r := p.finish(c, `{"outputs":{"report":"good.md"}}`)
			s := p.record(id)
			one := s.Progress("one")
			testkit.Need(t, r.Status == machine.NextStep && one.Done(), "%s: %s", name, toJSON(t, r))
			recorded := toJSON(t, s.Weakened)
			questions := 0
			if last := one.Newest(); last != nil {
				questions = len(last.Verdicts[0].Criteria)
			}
			switch {
			case edit.what == "" || pin:
				testkit.True(t, s.Weakened == nil, "%s, pin %t: recorded %s", name, pin, recorded)
				if pin && edit.what != "" && (questions != 2 || r.Notice == nil || !strings.Contains(*r.Notice, edit.what)) {
					t.Errorf("%s: %d criteria were judged; %s", name, questions, toJSON(t, r.Notice))
				}
			case len(s.Weakened) != 1 || s.Weakened[0].Step != "one" || len(s.Weakened[0].What) != 1 || !strings.Contains(s.Weakened[0].What[0], edit.what):
				t.Errorf("%s: recorded %s", name, recorded)
			}
		}
	}
}

// A step with reviews that is taken out of the workflow is noticed, too.
func TestAStepThatIsTakenOutIsRecorded(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	job := func(entries string) {
		p.job("alpha", []testStep{{id: "zero"}, {id: "one", outputs: oneFile, reviews: reviewedStep}, {id: "two"}}, map[string]string{"main": entries})
	}
	job("[zero, one, two]")
	srv, rev := p.reviewed()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	job("[zero, two]")
	testkit.Equal(t, p.finish(c, `{"outputs":{}}`).BeginStep.StepID, "two", "reply")
	testkit.Equal(t, strings.Count(toJSON(t, p.record(id).Weakened), "step 'one', which has reviews, is gone from the workflow"), 1, "recorded")

	job("[zero, one, two]")
	rev.how.Store(&Reviewing{External: true, MaxTries: 3, ReplyWithin: time.Minute, Pin: true})
	p.start(c, "alpha", "main")
	job("[zero, two]")
	testkit.Equal(t, p.finish(c, `{"outputs":{}}`).BeginStep.StepID, "one", "pinned: reply")
}

// An edit of the config that replaces or removes the reviewer, or lets agents override again, takes
// effect and is recorded; a pinned session goes on with the reviewer that it began with, or not at all.
func TestAnEditOfTheConfigDoesNotWeakenAPinnedSession(t *testing.T) {
	t.Parallel()
	for _, pin := range []bool{false, true} {
		p, srv, rev := underReview(t)
		began := Reviewing{External: true, Reviewer: `["r"]`, MaxTries: 3, ReplyWithin: time.Minute, Override: config.OverrideHuman, Pin: pin}
		rev.how.Store(&began)
		c := srv.Connect("local")
		id := p.start(c, "alpha", "main").BeginStep.SessionID
		asked := ""
		edited := Reviewing{MaxTries: 3, ReplyWithin: time.Minute, Override: config.OverrideAgent,
			Earlier: func(name string) (*gate.Reviewer, error) {
				asked = name
				return nil, errors.New("it is not approved")
			}}
		rev.how.Store(&edited)
		if !pin {
			r := p.finish(c, `{"outputs":{"report":"bad.md"},"quality_review_override_reason":"It is fine"}`)
			w := toJSON(t, p.record(id).Weakened)
			testkit.True(t, r.Status == machine.NextStep && strings.Contains(w, "and is self") && strings.Contains(w, "quality_gate.override was human, and is agent"), "reply %s; recorded %s", toJSON(t, r), w)
			continue
		}
		_, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"It is fine"}`))
		refused(t, err, session.StateError, "override_needs_person")
		refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"good.md"}}`))).Err(), session.StateError, "pinned_reviewer_gone", "it is not approved", `["r"]`)
		edited.Earlier = func(string) (*gate.Reviewer, error) {
			return &gate.Reviewer{Command: []string{os.Args[0], "reviewer", rev.dir}}, nil
		}
		r := p.finish(c, `{"outputs":{"report":"good.md"}}`)
		s := p.record(id)
		if e := s.Progress("one").Evidence; r.Status != machine.NextStep || asked != `["r"]` || rev.calls() != 1 || e.Kind != machine.ByReviewer || s.Weakened != nil {
			t.Errorf("reply %s, asked for %q, %d reviews, evidence %s, weakened %s", toJSON(t, r), asked, rev.calls(), toJSON(t, e), toJSON(t, s.Weakened))
		}
	}
}

// The evidence says whether the agent was given the criteria for exactly what it handed in.
func TestEvidenceOfSelfReviews(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		between func(p *project, id string)
		want    machine.EvidenceKind
	}{
		"unchanged":       {func(*project, string) {}, machine.BySelf},
		"changed outputs": {func(p *project, _ string) { p.write("good.md", "something else") }, machine.ByOverride},
		"changed criteria": {func(p *project, _ string) {
			p.job("alpha", []testStep{{id: "one", outputs: oneFile, reviews: strings.Replace(reviewedStep, "Is it good?", "Is it bad?", 1)}, {id: "two"}}, map[string]string{"main": "[one, two]"})
		}, machine.ByOverride},
	} {
		p := newProject(t)
		p.reviewedJob()
		srv := p.open()
		c := srv.Connect("local")
		id := p.start(c, "alpha", "main").BeginStep.SessionID
		p.finish(c, `{"outputs":{"report":"good.md"}}`)
		test.between(p, id)
		by := session.WithCaller(context.Background(), session.Caller{Identity: "local", Channel: session.ChannelHTTP})
		testkit.Must(t, errOf(c.Finish(by, finishArgs(t, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"All pass"}`))))
		e := p.record(id).Progress("one").Evidence
		testkit.True(t, e != nil && e.Kind == test.want && e.Channel == "http" && e.Reason == "All pass" && len(e.Files) == 1 && e.Files[0].SHA256 != "" && e.Digest != "", "%s: %s", name, toJSON(t, e))
	}

	// A caller with the right of a person is one, where only people may.
	p := newProject(t)
	p.reviewedJob()
	srv := p.open(func(o *Options) {
		o.Reviewing = func(context.Context) (Reviewing, error) { return Reviewing{Override: config.OverrideHuman}, nil }
	})
	c := srv.Connect("ann")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	for _, who := range []session.Caller{session.LocalCaller("stdio"), {Identity: "ann", Rights: session.RightAgents | session.RightMerge, Channel: "http"}} {
		_, err := c.Finish(session.WithCaller(ctx, who), finishArgs(t, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"I read it"}`))
		refused(t, err, session.StateError, "override_needs_person")
	}
	person := session.WithCaller(ctx, session.Caller{Identity: "ann", Rights: session.RightPerson, Channel: "http"})
	testkit.Must(t, errOf(c.Finish(person, finishArgs(t, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"I read it"}`))))
	if e := p.record(id).Progress("one").Evidence; e.Kind != machine.ByPerson || e.Identity != "ann" || e.Channel != "http" {
		t.Errorf("evidence %s", toJSON(t, e))
	}
}

// A session that began pinned, where nobody may override, stays so without a server, too.
func TestAPersonCannotOverrideInASessionThatIsPinnedToNobody(t *testing.T) {
	t.Parallel()
	for _, pin := range []bool{false, true} {
		p, srv, rev := underReview(t)
		rev.how.Store(&Reviewing{External: true, MaxTries: 3, ReplyWithin: time.Minute, Override: config.OverrideNever, Pin: pin})
		id := p.start(srv.Connect("local"), "alpha", "main").BeginStep.SessionID
		srv.stop()
		err := p.command(Reviewing{External: true, Override: config.OverrideHuman}).OverrideFor(ctx, id, "one", machine.Override{Identity: "local", Channel: session.ChannelTerminal, Reason: "I looked at it"})
		if pin {
			refused(t, err, session.StateError, "override_needs_person", "not even a person")
		} else if err != nil {
			t.Error(err)
		}
		if p.record(id).Progress("one").HasGrant() == pin {
			t.Errorf("pinned %t: %s", pin, toJSON(t, p.record(id)))
		}
	}
}
