package workflow_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/connection"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/replies"
	. "deepwork/session/workflow"
)

const (
	humanStep = `[{run_each: step, by: human, quality_criteria: {Sound: "Would you sign it?"}}]`
	bothStep  = `[{run_each: step, by: human, quality_criteria: {Sound: "Would you sign it?"}}, {run_each: step, ` +
		`quality_criteria: {Good: "Is it good?"}}]`
)

// underJudgement makes a project whose job has these reviews, and starts that as underReview does.
func underJudgement(
	t testing.TB, reviews string, how ...Reviewing,
) (p *project, srv *server, rev *reviewer, c *Conn, id string) {
	t.Helper()
	p = newProject(t).reviewedJob(reviews)
	srv, rev, c, id = p.reviewed(how...)
	return p, srv, rev, c, id
}

// waits checks that a reply says that a person is awaited, and returns it.
func waits(t *testing.T, r *replies.Finish) string {
	t.Helper()
	says(t, r, replies.NeedsWork, "Waiting: a person must pass")
	testkit.Need(t, r.FailedReviews == nil && r.Waiting() != nil, "the call does not wait for a person: %s",
		toJSON(t, r))
	return *r.Feedback
}

func (p *project) question(id, step string) *judging.Submission {
	p.t.Helper()
	return p.record(id).Progress(step).Asked()
}

// atTerminal answers as a command does.
func (p *project) atTerminal(id, stepID, digest string, passed bool, feedback string) error {
	p.t.Helper()
	return p.command(Reviewing{}).ReviewFor(ctx, id, stepID, digest,
		machine.Answer{Identity: "local", Channel: session.ChannelTerminal, Passed: passed, Feedback: feedback})
}

// A person is asked after the reviewer has passed the outputs. Neither repeated calls nor the agent's
// override nor the server's death change that; only the outputs that the person saw go on.
func TestAStepWaitsForAPersonToPassIt(t *testing.T) {
	p, srv, rev, c, id := underJudgement(t, bothStep)
	how := *rev.how.Load()
	says(t, p.finish(c, bad), replies.NeedsWork, "bad.md was read")
	said := waits(t, p.finish(c, good))
	testkit.Contains(t, said, "deepwork sessions review "+id+" one`")
	testkit.Equal(t, waits(t, p.finish(c,
		`{"outputs":{"report":"good.md"},"quality_review_override_reason":"It is fine"}`)), said, "repeated")
	one := p.record(id).Progress("one")
	testkit.Equal(t, one.QualityTries, 2, "%d reviews, %s", rev.calls(), toJSON(t, one))
	testkit.Equal(t, rev.calls(), 2, "%d reviews, %s", rev.calls(), toJSON(t, one))
	testkit.True(t, !one.Done(), "%d reviews, %s", rev.calls(), toJSON(t, one))
	testkit.True(t, one.Asked().Content != "", "%d reviews, %s", rev.calls(), toJSON(t, one))
	testkit.True(t, one.Asked().Files[0].SHA256 != "", "%d reviews, %s", rev.calls(), toJSON(t, one))

	p.awaiting(srv, how, id+" one")
	step := testkit.Get(c.Step(ctx, StepArgs{})).Must(t)
	testkit.True(t, step.BeginStep.Reviews[0].By == "human" && step.BeginStep.Reviews[1].By == "", "get_step: %s",
		toJSON(t, step))

	// Other outputs are judged in place of these.
	old := one.Asked().Content
	p.write("good.md", "CONTENT OF good.md, revised")
	refused(t, srv.ReviewFor(ctx, id, "one", old, machine.Answer{Passed: true}), session.StateError, "outputs_changed",
		"'good.md' changed")
	waits(t, p.finish(c, good))
	refused(t, srv.ReviewFor(ctx, id, "one", old, machine.Answer{Passed: true}), session.StateError, "outputs_changed",
		"not those that you were shown")
	srv.stop()
	now := p.question(id, "one")
	refused(t, p.atTerminal(id, "two", now.Content, true, ""), session.StateError, "person_not_asked")
	testkit.Must(t, p.atTerminal(id, "one", now.Content, true, "Well done"))
	refused(t, p.atTerminal(id, "one", now.Content, false, "No"), session.StateError, "person_answered")
	srv = p.reopen(rev)
	p.awaiting(srv, how)
	c = srv.Connect("local")
	call := `{"outputs":{"report":"good.md"},"session_id":"` + id + `"}`
	p.write("good.md", "CONTENT OF good.md, changed after the answer")
	waits(t, p.finish(c, call))
	p.write("good.md", "CONTENT OF good.md, revised")
	waits(t, p.finish(c, call)) // the other outputs withdrew the answer
	testkit.Must(t, srv.ReviewFor(ctx, id, "one", now.Content,
		machine.Answer{Identity: "ann", Channel: session.ChannelPage, Passed: true, Feedback: "Well done"}))
	calls, r := rev.calls(), p.finish(c, call)
	testkit.Equal(t, r.Status, replies.NextStep, "reply %s", toJSON(t, r))
	testkit.Contains(t, toJSON(t, r.Notice), "Well done", "reply %s", toJSON(t, r))
	testkit.Equal(t, rev.calls(), calls, "reply %s", toJSON(t, r))

	e := p.record(id).Progress("one").FinishedWith()
	testkit.Equal(t, e.Why()[0].Kind, judging.ByPerson, "evidence %s", toJSON(t, e))
	testkit.Equal(t, e.Why()[0].By, "ann", "evidence %s", toJSON(t, e))
	testkit.Equal(t, e.Why()[0].Channel, "page", "evidence %s", toJSON(t, e))
	testkit.Equal(t, e.Why()[0].Feedback, "Well done", "evidence %s", toJSON(t, e))
	testkit.Equal(t, e.Files[0].SHA256, now.Files[0].SHA256, "evidence %s", toJSON(t, e))
	testkit.Need(t, len(e.Why()) == 2, "evidence %s", toJSON(t, e))
	testkit.Equal(t, e.Why()[1].Kind, judging.ByReviewer, "evidence %s", toJSON(t, e))
}

// What a person does not pass goes back to the agent with their words, and counts like a reviewer's verdict.
func TestAPersonSendsAStepBack(t *testing.T) {
	p, srv, rev, c, id := underJudgement(t, humanStep, Reviewing{External: true, MaxTries: 2, ReplyWithin: time.Minute})
	no := func(words string) {
		t.Helper()
		testkit.Must(t, srv.ReviewFor(ctx, id, "one", p.question(id, "one").Content, machine.Answer{Feedback: words}))
	}
	waits(t, p.finish(c, good))
	no("Too short")
	for range 2 { // a repeated call is not asked or counted again
		r := p.finish(c, good)
		says(t, r, replies.NeedsWork, ": Too short\n")
		testkit.True(t, len(r.FailedReviews) == 1 && r.Waiting() == nil, "reply %s", toJSON(t, r))
	}
	one := p.record(id).Progress("one")
	testkit.Equal(t, one.QualityTries, 1, "%d reviews, %s", rev.calls(), toJSON(t, one))
	testkit.Need(t, len(one.Tries()) == 1, "%d reviews, %s", rev.calls(), toJSON(t, one))
	testkit.True(t, one.Tries()[0].Collected, "%d reviews, %s", rev.calls(), toJSON(t, one))
	testkit.Equal(t, rev.calls(), 0, "%d reviews, %s", rev.calls(), toJSON(t, one))

	p.write("good.md", "longer")
	waits(t, p.finish(c, good))
	no("Still too short")
	refused(t, refusal(t, c, good), session.ToolError, "quality_gate_failed", "after 2 attempts", "Still too short",
		"a person failed these")
	p.write("good.md", "longer still")
	waits(t, p.finish(c, good))
	testkit.Same(t, p.record(id).Faults(), nil, "faults")

	// Going back takes the question along.
	testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "one"})))
	p.awaiting(srv, *rev.how.Load())

	// Where nothing is handed in, what was corrected does not show: the next call asks again.
	p = newProject(t).alpha("[one]", testStep{id: "one", reviews: bothStep})
	srv, rev, c, id = p.reviewed()
	rev.set("say", `{"passed": true}`)
	waits(t, p.finish(c, `{"outputs":{}}`))
	no("Not yet")
	// one hand-in is one try, though the reviewer passed it
	says(t, p.finish(c, `{"outputs":{}}`), replies.NeedsWork, "Try 1 of 3. ", "Not yet")
	waits(t, p.finish(c, `{"outputs":{}}`))
	testkit.Equal(t, p.question(id, "one").Verdicts[0].Kind, judging.ByReviewer, "why its other reviews passed")
}

// An agent's word closes the other reviews alone, a person's override all of them; a server without reviews
// waits for people all the same.
func TestOnlyAPersonSkipsAReviewByAPerson(t *testing.T) {
	off := func(o *Options) { o.Reviews = false }
	for name, test := range map[string]struct {
		reviews string
		server  func(*Options)
		others  judging.Kind
	}{
		"self-review": {bothStep, reviewing(&Reviewing{MaxTries: 3, Override: config.OverrideAgent}), judging.BySelf},
		"alone":       {humanStep, reviewing(&Reviewing{MaxTries: 3, Override: config.OverrideNever}), ""},
		"off":         {bothStep, off, judging.Off},
		"off, alone":  {humanStep, off, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t).reviewedJob(test.reviews)
			srv, c, id := p.begin(test.server)
			if test.others == judging.BySelf {
				says(t, p.finish(c, good), replies.NeedsWork, "Quality review required")
				text := string(testkit.Get(os.ReadFile(filepath.Join(p.state().Tmp(), "quality_review_"+id+"_one.md"))).
					Must(t))
				testkit.True(t, !strings.Contains(text, "sign it") && strings.Contains(text, "Criteria to Evaluate"),
					"the agent is to judge for a person: %s", text)
			}
			waits(t, p.finish(c, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"It is fine"}`))
			waits(t, p.finish(c, good))
			p.awaiting(srv, Reviewing{Override: config.OverrideNever}, id+" one")
			testkit.Must(t, srv.ReviewFor(ctx, id, "one", p.question(id, "one").Content, machine.Answer{Passed: true}))
			says(t, p.finish(c, good), replies.NextStep)
			one := p.record(id).Progress("one")
			e := one.FinishedWith()
			testkit.Equal(t, e.Why()[0].Kind, judging.ByPerson, "evidence %s", toJSON(t, e))
			testkit.Equal(t, len(e.Why()) == 1, test.others == "", "evidence %s", toJSON(t, e))
			testkit.True(t, len(e.Why()) == 1 || e.Why()[1].Kind == test.others, "evidence %s", toJSON(t, e))
			testkit.True(t, (len(one.Overrides) == 1) == (test.others == judging.BySelf) && one.Asked() == nil,
				"progress %s", toJSON(t, one))
		})
	}
	t.Run("a person's override", func(t *testing.T) {
		p, srv, _, c, id := underJudgement(t, bothStep)
		waits(t, p.finish(c, good))
		testkit.Must(t, srv.OverrideFor(ctx, id, "one",
			judging.Override{Identity: "ann", Channel: "page", Reason: "Urgent"}))
		says(t, p.finish(c, good), replies.NextStep)
		one := p.record(id).Progress("one")
		testkit.Equal(t, one.FinishedWith().Why()[0].Kind, judging.ByOverride, "progress %s", toJSON(t, one))
		testkit.Need(t, len(one.Overrides) == 1, "progress %s", toJSON(t, one))
		testkit.Equal(t, len(one.Overrides[0].Skipped), 2, "progress %s", toJSON(t, one))
	})
}

// asking is the context of a call whose client asks its user with ask.
func asking(ask func(ctx context.Context, question string) (*machine.Answer, bool)) context.Context {
	return connection.WithAsk(session.WithCaller(ctx, session.LocalCaller(session.ChannelStdio)),
		func() bool { return true }, nil,
		func(ctx context.Context, _, question string) (*machine.Answer, bool) { return ask(ctx, question) })
}

// The client of a call may ask its user, within the time of the call. What it answers is recorded as
// the client's word, and asked for only where an agent could override reviews.
func TestAClientAsksItsUser(t *testing.T) {
	for name, test := range map[string]struct {
		mode   config.Override
		answer *machine.Answer
		hangs  bool
		asked  int // in two calls
		want   replies.Status
	}{
		"pass": {
			mode:   config.OverrideAgent,
			answer: &machine.Answer{Passed: true, Feedback: "Yes"},
			asked:  1,
			want:   replies.NextStep,
		},
		"fail":       {mode: config.OverrideAgent, answer: &machine.Answer{}, asked: 1, want: replies.NeedsWork},
		"decline":    {mode: config.OverrideAgent, asked: 1},
		"no answer":  {mode: config.OverrideAgent, hangs: true, asked: 2},
		"human only": {mode: config.OverrideHuman, answer: &machine.Answer{Passed: true}},
	} {
		t.Run(name, func(t *testing.T) {
			how := Reviewing{MaxTries: 3, Override: test.mode, ReplyWithin: time.Minute}
			if test.hangs {
				how.ReplyWithin = 1500 * time.Millisecond
			}
			p := newProject(t).reviewedJob(humanStep)
			_, c, id := p.begin(reviewing(&how))
			asked := 0
			with := asking(func(ctx context.Context, question string) (*machine.Answer, bool) {
				if question == "" { // it was declined
					return nil, false
				}

				asked++
				testkit.ContainsAll(t, question, []string{"good.md", "Would you sign it?"})

				if test.hangs {
					<-ctx.Done()
				}
				return test.answer, !test.hangs
			})

			var r *replies.Finish
			// another server knows, too, that it was declined
			for _, c := range []*Conn{c, p.open(reviewing(&how)).Connect("local")} {
				r = testkit.Get(c.Finish(with,
					finishArgs(t, `{"outputs":{"report":"good.md"},"step_id":"one","session_id":"`+id+`"}`))).Must(t)
				if test.want == "" {
					waits(t, r)
				}
			}
			testkit.True(t, asked == test.asked && (test.want == "" || r.Status == test.want),
				"asked %d times, reply %s", asked, toJSON(t, r))
			one := p.record(id).Progress("one")
			switch e := one.FinishedWith(); name {
			case "pass":
				testkit.Equal(t, e.Why()[0].Kind, judging.ByPerson, "evidence %s", toJSON(t, e))
				testkit.Equal(t, e.Why()[0].Channel, "stdio", "evidence %s", toJSON(t, e))
				testkit.Equal(t, e.Why()[0].By, "local", "evidence %s", toJSON(t, e))
				testkit.Equal(t, e.Why()[0].Feedback, "Yes", "evidence %s", toJSON(t, e))
			case "fail":
				testkit.True(t, one.Asked().Of(judging.ByPerson).Client, "%s, %s", toJSON(t, r), toJSON(t, one))
				testkit.Contains(t, *r.Feedback, "gave no reason")
				testkit.Equal(t, one.QualityTries, 1)
			}
		})
	}
}

// A question to a client's user ends, and its call has the reply that is then true, when a person answers or
// ends the session at another server.
func TestAQuestionIsSettledElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		settle func(e *Engine, id, digest string) error
		codes  string // of the call
	}{
		"by an answer": {func(e *Engine, id, digest string) error {
			return e.ReviewFor(ctx, id, "one", digest,
				machine.Answer{Passed: true, Identity: "ann", Channel: session.ChannelTerminal})
		}, ""},
		"by the end of the session": {func(e *Engine, id, _ string) error {
			return e.AbortFor(ctx, id, "not needed")
		}, "step_moved_on"},
		"by other outputs": {func(e *Engine, id, _ string) error {
			return errOf(connection.NewServer(e).Connect("local").Finish(ctx,
				FinishArgs{Outputs: outputsOf("report", "bad.md"), StepID: new("one"), SessionID: &id}))
		}, "review_superseded step_moved_on"}, // the second one between the two transitions of the other call
	} {
		t.Run(name, func(t *testing.T) {
			p, how := newProject(t).reviewedJob(humanStep), Reviewing{MaxTries: 3, ReplyWithin: patience}
			_, conn, outer := p.begin(reviewing(&how))
			id, asked := p.start(conn, "alpha", "main").BeginStep.SessionID, make(chan struct{})
			with := asking(func(ctx context.Context, _ string) (*machine.Answer, bool) {
				close(asked)
				<-ctx.Done()
				return nil, false
			})
			got := beside(t, with, conn, `{"outputs":{"report":"good.md"}}`)
			<-asked
			testkit.Must(t, c.settle(p.command(how), id, p.question(id, "one").Content))
			x := <-got
			testkit.True(t, slices.Contains(strings.Split(c.codes, " "), session.CodeOf(x.err)), "reply %s, %v",
				toJSON(t, x.r), x.err)
			testkit.Equal(t, (x.err == nil), (c.codes == ""), "reply %s, %v", toJSON(t, x.r), x.err)
			testkit.True(t, (x.err != nil || x.r.Status == replies.NextStep), "reply %s, %v", toJSON(t, x.r), x.err)

			// an answer that comes too late
			_ = errOf(conn.Finish(connection.WithAsk(ctx, nil, []string{id + "/one/d"}, nil),
				FinishArgs{Outputs: outputsOf("report", "good.md")}))
			testkit.Equal(t, p.record(outer).Revision, 0, "the workflow below was moved")
		})
	}
}

// Looking again at what a call waits for does not take back the question about outputs that were handed in since.
func TestALookAtOlderOutputsAsksNobody(t *testing.T) {
	p := newProject(t).reviewedJob(humanStep)
	_, c, id := p.begin()
	look := *p.finish(c, good).Going
	again := func(outputs FinishArgs) error { return errOf(c.Collect(ctx, look, outputs, true)) }
	waits(t, p.finish(c, bad))
	newer := p.question(id, "one")
	refused(t, again(finishArgs(t, good)), session.StateError, "review_superseded")
	testkit.Must(t, p.atTerminal(id, "one", newer.Content, false, "No"))
	waits(t, p.finish(c, worse))
	look.Submission = newer.ID
	refused(t, again(finishArgs(t, bad)), session.StateError, "review_superseded")
	p.write("bad.md", "changed")
	refused(t, again(finishArgs(t, bad)), session.StateError, codes.OutputsChanged)
}

// A repeated call about outputs that a person is asked about, or has failed, has waited for nothing: if others hand in
// something else while it is carried out, it is a new hand-in, whenever they do.
func TestARepeatedCallHasNotWaited(t *testing.T) {
	for name, answered := range map[string]bool{"asked": false, "failed": true} {
		t.Run(name, func(t *testing.T) {
			for nth := int32(1); ; nth++ {
				p := newProject(t).reviewedJob(humanStep)
				how := Reviewing{MaxTries: 3}
				srv, c, id := p.begin(reviewing(&how))
				waits(t, p.finish(c, good))
				if answered {
					testkit.Must(t, p.atTerminal(id, "one", p.question(id, "one").Content, false, "No"))
				}
				other := connection.NewServer(p.command(how)).Connect("local")
				var moments atomic.Int32
				disk := srv.makeFaulty()
				disk.reading.Store(new(func() {
					if moments.Add(1) == nth {
						testkit.Must(t, errOf(other.Finish(ctx,
							FinishArgs{Outputs: outputsOf("report", "bad.md"), SessionID: &id})))
					}
				}))
				disk.writing.Store(disk.reading.Load())
				says(t, p.finish(c, good), replies.NeedsWork)
				if moments.Load() < nth {
					testkit.True(t, nth > 1, "the call has not read the session")
					return
				}
			}
		})
	}
}

// An answer that is stored, though that was not confirmed, is not refused when it comes again; another one is.
func TestAnAnswerThatComesAgain(t *testing.T) {
	given := machine.Answer{At: time.Unix(1, 0), Identity: "ann", Channel: session.ChannelPage}
	s := &machine.State{Status: machine.Active, CurrentStepID: "one"}
	s.StepProgress = s.StepProgress.Set("one",
		&machine.StepProgress{StepID: "one", Submissions: []*judging.Submission{{
			Content:  "d",
			Turns:    []judging.Turn{{With: judging.ByPerson, EndedAt: &given.At}},
			Verdicts: []*judging.Verdict{{Kind: judging.ByPerson, Passed: true, At: given.At, By: given.Identity}},
		}}})
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
		err := Decide(s, "one", c.digest, c.answer)
		testkit.Equal(t, err == nil, c.again, "%s, %+v: %v", c.digest, c.answer, err)
	}
}

// awaiting checks which sessions and steps wait for a person, which the server of the caller and a command find alike.
func (p *project) awaiting(srv *server, how Reviewing, want ...string) {
	p.t.Helper()
	found := testkit.Get(srv.Awaiting(ctx, session.Caller{Identity: "local"}, nil)).Must(p.t)
	commands, err := p.command(how).Awaiting(ctx, session.LocalCaller(session.ChannelTerminal), nil)
	testkit.True(p.t, err == nil && slices.Equal(found, commands), "the server finds %+v, a command %+v, %v", found,
		commands, err)

	var all []string
	for _, s := range found {
		testkit.Equal(p.t, s.Goal, "a goal")
		testkit.True(p.t, time.Since(s.Since) <= time.Hour, "%+v", s)
		testkit.True(p.t, time.Since(s.Since) >= 0, "%+v", s)
		all = append(all, s.SessionID+" "+s.Step)
	}
	testkit.Same(p.t, all, want, "what waits for a person")
	testkit.Same(p.t, testkit.Get(srv.Awaiting(ctx, session.Caller{Identity: "eve"}, nil)).Must(p.t), nil,
		"another caller's")
}

// decided is what a person decides at a terminal about the outputs that were handed in.
func (p *project) decided(id string) judging.Override {
	given, _ := GivenFor(p.record(id), "one")
	return judging.Override{
		GivenFor: given,
		Identity: "local",
		Channel:  session.ChannelTerminal,
		Reason:   "I looked at it",
	}
}

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

func TestOneSentenceOverridesOnlyWhereAgentsMay(t *testing.T) {
	for mode, want := range map[config.Override]string{
		config.OverrideAgent: "",
		config.OverrideHuman: "deepwork sessions override %s one --reason TEXT",
		config.OverrideNever: "Nobody may override",
	} {
		t.Run(string(mode), func(t *testing.T) {
			p, _, rev, c, id := underReview(t,
				Reviewing{External: true, MaxTries: 3, ReplyWithin: time.Minute, Override: mode})
			p.finish(c, bad)
			before := toJSON(t, p.record(id))
			if mode == config.OverrideAgent {
				says(t, p.finish(c, `{"outputs":{"report":"bad.md"},"quality_review_override_reason":"It is fine"}`),
					replies.NextStep)
				return
			}

			// refused before they are looked at
			for _, outputs := range []string{`{"report":"bad.md"}`, `{"report":"missing.md"}`, `{}`} {
				refused(t, refusal(t, c, `{"outputs":`+outputs+`,"quality_review_override_reason":"It is fine"}`),
					session.StateError, "override_needs_person", strings.Replace(want, "%s", id, 1))
			}
			testkit.Equal(t, toJSON(t, p.record(id)), before, "a refused override changed the session")
			testkit.Equal(t, rev.calls(), 1, "reviews")

			// A blank reason is ignored, and a step without reviews has nothing to override.
			p.finish(c, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"  "}`)
			says(t, p.finish(c, `{"outputs":{},"quality_review_override_reason":"No reviews"}`),
				replies.WorkflowComplete)
		})
	}
}

// With reviews by the agent itself the closing call is an override.
func TestSelfReviewIsClosedByWhomTheConfigAllows(t *testing.T) {
	p, how := newProject(t).reviewedJob(reviewedStep), Reviewing{Override: config.OverrideHuman}
	srv := p.open(reviewing(&how))
	c := srv.Connect("local")
	started := p.start(c, "alpha", "main")
	testkit.True(t, started.Notice == nil, "notice %s", toJSON(t, started.Notice))
	p.awaiting(srv, how)
	says(t, p.finish(c, good), replies.NeedsWork,
		"deepwork sessions override "+started.BeginStep.SessionID+" one --reason TEXT")
	p.awaiting(srv, how, started.BeginStep.SessionID+" one")
	how.Override = config.OverrideAgent
	p.awaiting(srv, how)
	how.Override = config.OverrideHuman
	refused(t, refusal(t, c, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"All pass"}`),
		session.StateError, "override_needs_person")
	testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "one"})))
	p.awaiting(srv, how)
	how.Override = config.OverrideNever
	for _, reason := range []string{"", `,"quality_review_override_reason":"All pass"`} {
		refused(t, refusal(t, c, `{"outputs":{"report":"good.md"}`+reason+`}`), session.StateError,
			"override_needs_person", "'one'")
	}
	testkit.Contains(t, toJSON(t, testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "one"})).Must(t).Notice),
		"cannot be finished")

	n := toJSON(t, p.start(c, "alpha", "main").Notice)
	testkit.True(t, strings.Contains(n, "'one'") && !strings.Contains(n, "'two'"), "notice %s", n)
	how = Reviewing{External: true, Override: config.OverrideNever}
	n = toJSON(t, p.start(c, "alpha", "main").Notice)
	testkit.True(t, !strings.Contains(n, "cannot be finished"), "notice %s", n)
}

func TestAnOverrideOfOtherOutputsIsNotIgnoredSilently(t *testing.T) {
	const said = "A person has overridden the review of step 'one', but for other outputs"
	for external, kind := range map[bool]judging.Kind{false: judging.BySelf, true: judging.ByReason} {
		p, srv, rev, c, id := underReview(t,
			Reviewing{External: external, MaxTries: 2, ReplyWithin: time.Minute, Override: config.OverrideAgent})
		r := p.finish(c, bad)
		testkit.True(t, r.Status == replies.NeedsWork && !strings.Contains(toJSON(t, r.Notice), said), "before: %s",
			toJSON(t, r))

		srv.stop()
		given, files := GivenFor(p.record(id), "one")
		testkit.True(t, given != "", "handed in: %q, %v", given, files)
		testkit.Need(t, len(files) == 1, "handed in: %q, %v", given, files)
		testkit.Equal(t, files[0].Path, "bad.md", "handed in: %q, %v", given, files)

		testkit.Must(t, p.command(*rev.how.Load()).OverrideFor(ctx, id, "one", p.decided(id)))
		srv = p.reopen(rev)
		p.awaiting(srv, *rev.how.Load())
		c = srv.Connect("local")
		p.write("bad.md", "CONTENT OF bad.md, and worse")
		call := `{"outputs":{"report":"bad.md"},"session_id":"` + id + `"}`
		if external {
			refused(t, refusal(t, c, call), session.ToolError, "quality_gate_failed", said)
			p.awaiting(srv, *rev.how.Load(), id+" one") // again
			refused(t, refusal(t, c, call), session.ToolError, "quality_gate_failed", said,
				"Nothing was reviewed this time")
		} else {
			r := p.finish(c, call)
			says(t, r, replies.NeedsWork)
			testkit.Contains(t, toJSON(t, r.Notice), said, "self-review")
		}
		says(t, p.finish(c, `{"outputs":{"report":"bad.md"},"session_id":"`+id+
			`","quality_review_override_reason":"It is fine"}`), replies.NextStep)
		e := p.record(id).Progress("one").FinishedWith()
		testkit.Equal(t, e.Why()[0].Kind, kind, "evidence %s", toJSON(t, e))
		testkit.Equal(t, e.GivenFor, given, "evidence %s", toJSON(t, e))
		testkit.True(t, e.Content != given, "evidence %s", toJSON(t, e))
	}
}

// A step that is checked, reviewed and passed by a person is handed in, handed on to the reviewer and to the person,
// answered, and finished: five transitions, each of which is one write.
func TestAStepWithAllJudgesTakesFiveWrites(t *testing.T) {
	s := newScript(t, "exit 0")
	k := checkedProject(t, true, "["+s.yaml("")+"]", bothStep)
	k.write("good.md", "CONTENT OF good.md")
	srv, rev, c, id := k.reviewed()
	before := k.record(id).Revision
	waits(t, k.finish(c, good))
	testkit.Must(t, srv.ReviewFor(ctx, id, "one", k.question(id, "one").Content, machine.Answer{Passed: true}))
	says(t, k.finish(c, good), replies.NextStep)
	testkit.Equal(t, k.record(id).Revision-before, 5, "writes")
	testkit.Equal(t, [2]int{s.runs(), rev.calls()}, [2]int{1, 1}, "runs of the check, and of the reviewer")
}
