package workflow

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/workflow/machine"
)

const (
	humanStep = `[{run_each: step, by: human, quality_criteria: {Sound: "Would you sign it?"}}]`
	bothStep  = `[{run_each: step, by: human, quality_criteria: {Sound: "Would you sign it?"}}, {run_each: step, quality_criteria: {Good: "Is it good?"}}]`
)

// personJob writes a job whose first step has these reviews.
func (p *project) personJob(reviews string) {
	p.reviewedJob()
	p.job("alpha", []testStep{{id: "one", outputs: oneFile, reviews: reviews}, {id: "two"}}, map[string]string{"main": "[one, two]"})
}

// waits checks that a reply says that a person is awaited, and returns it.
func waits(t *testing.T, r *machine.FinishReply) string {
	t.Helper()
	if r.Status != machine.NeedsWork || r.Feedback == nil || !strings.HasPrefix(*r.Feedback, "Waiting: a person must pass") || r.FailedReviews != nil || r.Waiting() == nil {
		t.Fatalf("the call does not wait for a person: %s", toJSON(t, r))
	}
	return *r.Feedback
}

// atTerminal answers as a command does.
func (p *project) atTerminal(id, stepID, digest string, passed bool, feedback string) error {
	p.t.Helper()
	return p.command(Reviewing{}).ReviewFor(ctx, id, stepID, digest, machine.Answer{Identity: "local", Channel: session.ChannelTerminal, Passed: passed, Feedback: feedback})
}

// A person is asked after the reviewer has passed the outputs. Neither repeated calls nor the agent's
// override nor the server's death change that; only the outputs that the person saw go on.
func TestAStepWaitsForAPersonToPassIt(t *testing.T) {
	p := newProject(t)
	p.personJob(bothStep)
	srv, rev := p.reviewed()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	if r := p.finish(c, `{"outputs":{"report":"bad.md"}}`); r.Status != machine.NeedsWork || !strings.Contains(*r.Feedback, "bad.md was read") {
		t.Fatalf("reply %s", toJSON(t, r))
	}
	said := waits(t, p.finish(c, `{"outputs":{"report":"good.md"}}`))
	if want := "deepwork sessions review " + id + " one`"; !strings.Contains(said, want) {
		t.Errorf("it does not name %s: %s", want, said)
	}
	again := waits(t, p.finish(c, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"It is fine"}`))
	one := p.record(id).Progress("one")
	if again != said || one.QualityTries != 2 || rev.calls() != 2 || one.Done() || one.Question.Digest == "" || one.Question.Files[0].SHA256 == "" {
		t.Errorf("repeated: %s, %d reviews, %s", again, rev.calls(), toJSON(t, one))
	}
	how := *rev.how.Load()
	testkit.Same(t, p.awaiting(srv, how), []string{id + " one"}, "waits")
	step := testkit.Get(c.Step(ctx, StepArgs{})).Must(t)
	testkit.True(t, step.BeginStep.Reviews[0].By == "human" && step.BeginStep.Reviews[1].By == "", "get_step: %s", toJSON(t, step))

	// Other outputs are judged in place of these.
	old := one.Question.Digest
	p.write("good.md", "CONTENT OF good.md, revised")
	refused(t, srv.ReviewFor(ctx, id, "one", old, machine.Answer{Passed: true}), session.StateError, "outputs_changed", "'good.md' changed")
	waits(t, p.finish(c, `{"outputs":{"report":"good.md"}}`))
	refused(t, srv.ReviewFor(ctx, id, "one", old, machine.Answer{Passed: true}), session.StateError, "outputs_changed", "not those that you were shown")

	srv.stop()
	now := p.record(id).Progress("one").Question
	refused(t, p.atTerminal(id, "two", now.Digest, true, ""), session.StateError, "person_not_asked")
	testkit.Must(t, p.atTerminal(id, "one", now.Digest, true, "Well done"))
	refused(t, p.atTerminal(id, "one", now.Digest, false, "No"), session.StateError, "person_answered")
	srv = p.reopen(rev)
	got := p.awaiting(srv, how)
	testkit.True(t, got == nil, "%v waits after the answer", got)
	c = srv.Connect("local")
	p.write("good.md", "CONTENT OF good.md, changed after the answer")
	waits(t, p.finish(c, `{"outputs":{"report":"good.md"},"session_id":"`+id+`"}`))
	p.write("good.md", "CONTENT OF good.md, revised")
	waits(t, p.finish(c, `{"outputs":{"report":"good.md"},"session_id":"`+id+`"}`)) // the other outputs withdrew the answer
	testkit.Must(t, srv.ReviewFor(ctx, id, "one", now.Digest, machine.Answer{Identity: "ann", Channel: session.ChannelPage, Passed: true, Feedback: "Well done"}))
	calls := rev.calls()
	r := p.finish(c, `{"outputs":{"report":"good.md"},"session_id":"`+id+`"}`)
	testkit.True(t, r.Status == machine.NextStep && r.Notice != nil && strings.Contains(*r.Notice, "Well done") && rev.calls() == calls, "reply %s", toJSON(t, r))
	e := p.record(id).Progress("one").Evidence
	if e.Kind != machine.Passed || e.Identity != "ann" || e.Channel != "page" || e.Reason != "Well done" || e.Files[0].SHA256 != now.Files[0].SHA256 ||
		e.Others == nil || e.Others.Kind != machine.ByReviewer {
		t.Errorf("evidence %s", toJSON(t, e))
	}
}

// What a person does not pass goes back to the agent with their words, and counts like a reviewer's
// verdict.
func TestAPersonSendsAStepBack(t *testing.T) {
	p := newProject(t)
	p.personJob(humanStep)
	srv, rev := p.reviewed()
	rev.how.Store(&Reviewing{External: true, MaxTries: 2, ReplyWithin: time.Minute})
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	const call = `{"outputs":{"report":"good.md"},"session_id":"%"}`
	finish := func() *machine.FinishReply { return p.finish(c, strings.ReplaceAll(call, "%", id)) }
	waits(t, finish())
	no := func(words string) {
		t.Helper()
		testkit.Must(t, srv.ReviewFor(ctx, id, "one", p.record(id).Progress("one").Question.Digest, machine.Answer{Feedback: words}))
	}
	no("Too short")
	for range 2 { // a repeated call is not asked or counted again
		r := finish()
		testkit.True(t, r.Status == machine.NeedsWork && strings.Contains(*r.Feedback, ": Too short\n") && len(r.FailedReviews) == 1 && r.Waiting() == nil, "reply %s", toJSON(t, r))
	}
	one := p.record(id).Progress("one")
	if one.QualityTries != 1 || len(one.Tries) != 1 || !one.Tries[0].Collected || rev.calls() != 0 {
		t.Errorf("%d reviews, %s", rev.calls(), toJSON(t, one))
	}
	p.write("good.md", "longer")
	waits(t, finish())
	no("Still too short")
	refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, strings.ReplaceAll(call, "%", id)))).Err(), session.ToolError, "quality_gate_failed", "after 2 attempts", "Still too short", "a person failed these")
	p.write("good.md", "longer still")
	waits(t, finish())
	faults := p.record(id).Faults()
	testkit.True(t, faults == nil, "%v", faults)

	// Going back takes the question along.
	testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "one"})))
	got := p.awaiting(srv, *rev.how.Load())
	testkit.True(t, got == nil, "%v waits after the step was begun again", got)
}

// An agent's word closes the other reviews alone, a person's override all of them; a server without
// reviews waits for people all the same.
func TestOnlyAPersonSkipsAReviewByAPerson(t *testing.T) {
	t.Parallel()
	self := func(mode config.Override) func(*Options) {
		return func(o *Options) {
			o.Reviewing = func(context.Context) (Reviewing, error) { return Reviewing{MaxTries: 3, Override: mode}, nil }
		}
	}
	off := func(o *Options) { o.Reviews = false }
	for name, test := range map[string]struct {
		reviews string
		server  func(*Options)
		others  machine.EvidenceKind
	}{
		"self-review": {bothStep, self(config.OverrideAgent), machine.BySelf},
		"alone":       {humanStep, self(config.OverrideNever), ""},
		"off":         {bothStep, off, machine.Unreviewed},
		"off, alone":  {humanStep, off, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			p.personJob(test.reviews)
			srv := p.open(test.server)
			c := srv.Connect("local")
			id := p.start(c, "alpha", "main").BeginStep.SessionID
			if test.others == machine.BySelf {
				r := p.finish(c, `{"outputs":{"report":"good.md"}}`)
				testkit.True(t, strings.HasPrefix(*r.Feedback, "Quality review required"), "reply %s", toJSON(t, r))
				data := testkit.Get(os.ReadFile(filepath.Join(p.state().Tmp(), "quality_review_"+id+"_one.md"))).Must(t)
				text := string(data)
				testkit.True(t, !strings.Contains(text, "sign it") && strings.Contains(text, "Criteria to Evaluate"), "the agent is to judge for a person: %s", text)
			}
			waits(t, p.finish(c, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"It is fine"}`))
			waits(t, p.finish(c, `{"outputs":{"report":"good.md"}}`))
			testkit.Same(t, p.awaiting(srv, Reviewing{Override: config.OverrideNever}), []string{id + " one"}, "waits")
			testkit.Must(t, srv.ReviewFor(ctx, id, "one", p.record(id).Progress("one").Question.Digest, machine.Answer{Passed: true}))
			testkit.Equal(t, p.finish(c, `{"outputs":{"report":"good.md"}}`).Status, machine.NextStep, "reply")
			one := p.record(id).Progress("one")
			if e := one.Evidence; e.Kind != machine.Passed || (e.Others == nil) != (test.others == "") || e.Others != nil && e.Others.Kind != test.others {
				t.Errorf("evidence %s", toJSON(t, e))
			}
			testkit.True(t, (len(one.Overrides) == 1) == (test.others == machine.BySelf) && one.Question == nil, "progress %s", toJSON(t, one))
		})
	}
	t.Run("a person's override", func(t *testing.T) {
		p := newProject(t)
		p.personJob(bothStep)
		srv, _ := p.reviewed()
		c := srv.Connect("local")
		id := p.start(c, "alpha", "main").BeginStep.SessionID
		waits(t, p.finish(c, `{"outputs":{"report":"good.md"}}`))
		testkit.Must(t, srv.OverrideFor(ctx, id, "one", machine.Override{Identity: "ann", Channel: "page", Reason: "Urgent"}))
		testkit.Equal(t, p.finish(c, `{"outputs":{"report":"good.md"}}`).Status, machine.NextStep, "reply")
		one := p.record(id).Progress("one")
		testkit.True(t, one.Evidence.Kind == machine.ByPerson && len(one.Overrides) == 1 && len(one.Overrides[0].Skipped) == 2, "progress %s", toJSON(t, one))
	})
}

// A group does not go on without its member that a person has to pass, though nobody reports it.
func TestAGroupWaitsForAMemberThatAPersonPasses(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.write("good.md", "good")
	p.job("alpha", []testStep{{id: "one"}, {id: "two", outputs: oneFile, reviews: humanStep}, {id: "three"}}, map[string]string{"main": "[[one, two], three]"})
	srv := p.open()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	r := p.finish(c, `{"outputs":{}}`)
	testkit.Need(t, r.Status == machine.NextStep && r.BeginStep == nil && slices.Equal(r.PendingConcurrentSteps, []string{"two"}), "reply %s", toJSON(t, r))
	waits(t, p.finish(c, `{"outputs":{"report":"good.md"},"step_id":"two"}`))
	testkit.Must(t, srv.ReviewFor(ctx, id, "two", p.record(id).Progress("two").Question.Digest, machine.Answer{Passed: true}))
	testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{"report":"good.md"},"step_id":"two"}`).BeginStep), "three", "reply")
}

// The client of a call may ask its user, within the time of the call. What it answers is recorded as
// the client's word, and asked for only where an agent could override reviews.
func TestAClientAsksItsUser(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mode   config.Override
		answer *machine.Answer
		hangs  bool
		asked  int // in two calls
		want   machine.Status
	}{
		"pass":       {mode: config.OverrideAgent, answer: &machine.Answer{Passed: true, Feedback: "Yes"}, asked: 1, want: machine.NextStep},
		"fail":       {mode: config.OverrideAgent, answer: &machine.Answer{}, asked: 1, want: machine.NeedsWork},
		"decline":    {mode: config.OverrideAgent, asked: 1},
		"no answer":  {mode: config.OverrideAgent, hangs: true, asked: 2},
		"human only": {mode: config.OverrideHuman, answer: &machine.Answer{Passed: true}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			p.personJob(humanStep)
			reviewing := func(o *Options) {
				o.Reviewing = func(context.Context) (Reviewing, error) {
					within := time.Minute
					if test.hangs {
						within = 1500 * time.Millisecond
					}
					return Reviewing{MaxTries: 3, Override: test.mode, ReplyWithin: within}, nil
				}
			}
			c := p.open(reviewing).Connect("local")
			id := p.start(c, "alpha", "main").BeginStep.SessionID
			asked := 0
			with := WithAsk(session.WithCaller(ctx, session.LocalCaller(session.ChannelStdio)), func() bool { return true }, func(ctx context.Context, _, question string) (*machine.Answer, bool) {
				if question == "" { // it was declined
					return nil, false
				}
				if asked++; !strings.Contains(question, "good.md") || !strings.Contains(question, "Would you sign it?") {
					t.Errorf("question %q", question)
				}
				if test.hangs {
					<-ctx.Done()
				}
				return test.answer, !test.hangs
			})
			var r *machine.FinishReply
			for try := range 2 {
				var err error
				if try == 1 {
					c = p.open(reviewing).Connect("local") // another server knows, too, that it was declined
				}
				if r, err = c.Finish(with, finishArgs(t, `{"outputs":{"report":"good.md"},"step_id":"one","session_id":"`+id+`"}`)); err != nil {
					t.Fatal(err)
				}
				if test.want == "" || test.mode == config.OverrideHuman {
					waits(t, r)
				}
			}
			testkit.True(t, asked == test.asked && (test.want == "" || r.Status == test.want), "asked %d times, reply %s", asked, toJSON(t, r))
			one := p.record(id).Progress("one")
			switch name {
			case "pass":
				if e := one.Evidence; e.Kind != machine.PassedIn || e.Channel != "stdio" || e.Identity != "local" || e.Reason != "Yes" {
					t.Errorf("evidence %s", toJSON(t, e))
				}
			case "fail":
				if !one.Question.Answer.Client || !strings.Contains(*r.Feedback, "gave no reason") || one.QualityTries != 1 {
					t.Errorf("%s, %s", toJSON(t, r), toJSON(t, one))
				}
			}
		})
	}
}

// A question to a client's user ends, and its call has the reply that is then true, when a person answers or ends
// the session at another server.
func TestAQuestionIsSettledElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		settle func(e *Engine, id, digest string) error
		right  func(r *machine.FinishReply, err error) bool
	}{
		"by an answer": {
			func(e *Engine, id, digest string) error {
				return e.ReviewFor(ctx, id, "one", digest, machine.Answer{Passed: true, Identity: "ann", Channel: session.ChannelTerminal})
			},
			func(r *machine.FinishReply, err error) bool { return err == nil && r.Status == machine.NextStep },
		},
		"by the end of the session": {
			func(e *Engine, id, _ string) error { return e.AbortFor(ctx, id, "not needed") },
			func(_ *machine.FinishReply, err error) bool { return session.CodeOf(err) == "session_ended" },
		},
		"by other outputs": {
			func(e *Engine, id, _ string) error {
				return errOf(e.Connect("local").Finish(ctx, FinishArgs{Outputs: outputs("report", "bad.md"), StepID: new("one"), SessionID: &id}))
			},
			func(_ *machine.FinishReply, err error) bool { // the second one between the two transitions of the other call
				return session.CodeOf(err) == "review_superseded" || session.CodeOf(err) == "step_moved_on"
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			p.personJob(humanStep)
			how := Reviewing{MaxTries: 3, ReplyWithin: patience}
			srv := p.open(func(o *Options) { o.Reviewing = func(context.Context) (Reviewing, error) { return how, nil } })
			c1 := srv.Connect("local")
			id := p.start(c1, "alpha", "main").BeginStep.SessionID
			asked := make(chan struct{})
			with := WithAsk(session.WithCaller(ctx, session.LocalCaller(session.ChannelStdio)), func() bool { return true }, func(ctx context.Context, _, _ string) (*machine.Answer, bool) {
				close(asked)
				<-ctx.Done()
				return nil, false
			})
			got := beside(t, with, c1, `{"outputs":{"report":"good.md"},"step_id":"one","session_id":"`+id+`"}`)
			<-asked
			testkit.Must(t, c.settle(p.command(how), id, p.record(id).Progress("one").Question.Digest))
			x := await(t, got)
			testkit.True(t, c.right(x.r, x.err), "reply %s, %v", toJSON(t, x.r), x.err)
		})
	}
}

// Looking again at what a call waits for does not take back the question about outputs that were handed in since.
func TestALookAtOlderOutputsAsksNobody(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.personJob(humanStep)
	srv := p.open()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	look := finishArgs(t, `{"outputs":{"report":"good.md"}}`)
	look.Of = p.finish(c, `{"outputs":{"report":"good.md"}}`).Going
	waits(t, p.finish(c, `{"outputs":{"report":"bad.md"}}`))
	newer := p.record(id).Progress("one").Question.Digest
	refused(t, errOf(c.Finish(ctx, look)), session.StateError, "review_superseded")
	testkit.Must(t, p.atTerminal(id, "one", newer, false, "No"))
	waits(t, p.finish(c, `{"outputs":{"report":"worse.md"}}`))
	look.Outputs, look.Of = outputs("report", "bad.md"), new(*look.Of)
	look.Of.Digest = newer
	refused(t, errOf(c.Finish(ctx, look)), session.StateError, "review_superseded")
	p.write("bad.md", "changed")
	refused(t, errOf(c.Finish(ctx, look)), session.StateError, codes.OutputsChanged)
}

// An answer that is stored, though that was not confirmed, is not refused when it comes again; another one is.
func TestAnAnswerThatComesAgain(t *testing.T) {
	given := machine.Answer{At: time.Unix(1, 0), Identity: "ann", Channel: session.ChannelPage}
	s := &machine.State{Status: machine.Active, CurrentStepID: "one"}
	s.StepProgress = s.StepProgress.Set("one", &machine.StepProgress{StepID: "one", Question: &machine.Question{Digest: "d", Answer: &given}})
	for _, c := range []struct {
		digest string
		answer machine.Answer
		again  bool
	}{
		{"d", given, true},
		{"d", machine.Answer{At: given.At, Identity: "bob"}, false},
		{"d", machine.Answer{At: time.Unix(2, 0), Identity: "ann"}, false},
		{"e", given, false},
	} {
		err := (&sessionActor{state: s}).decide(decision{Step: "one", Digest: c.digest, Answer: c.answer})
		testkit.Equal(t, err == nil, c.again, "%s, %+v: %v", c.digest, c.answer, err)
	}
}
