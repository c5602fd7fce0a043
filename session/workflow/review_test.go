package workflow

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// reviewerMain is the test binary as a reviewer: `workflow.test reviewer DIR`.
// It notes that it was called, waits while DIR/wait exists, and prints DIR/say;
// DIR/exit is its exit code.
func reviewerMain(dir string) int {
	prompt, _ := io.ReadAll(os.Stdin)
	f, err := os.OpenFile(filepath.Join(dir, "calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 9
	}
	fmt.Fprintln(f, len(prompt))
	f.Close()
	for {
		if _, err := os.Stat(filepath.Join(dir, "wait")); err != nil {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	for name, say := range map[string]string{"bad.md": "bad.md was read", "worse.md": "worse.md was read"} {
		if strings.Contains(string(prompt), "CONTENT OF "+name) {
			fmt.Printf(`{"passed": false, "feedback": %q, "criteria_results": [{"criterion": "Good", "passed": false, "feedback": "no"}]}`, say)
			return 0
		}
	}
	if say, err := os.ReadFile(filepath.Join(dir, "say")); err == nil {
		os.Stdout.Write(say)
	}
	if _, err := os.Stat(filepath.Join(dir, "exit")); err == nil {
		fmt.Fprintln(os.Stderr, "the last words of the reviewer")
		return 3
	}
	return 0
}

const passes = `{"passed": true, "feedback": "fine", "criteria_results": [{"criterion": "Good", "passed": true, "feedback": null}]}`

// A reviewer is the program that a test's gate runs, and the switches it has.
type reviewer struct {
	t    testing.TB
	dir  string
	how  atomic.Pointer[Reviewing]
	gate *gate.Gate
}

// reviewed opens a server with an external reviewer that passes what is not bad.
func (p *project) reviewed() (*server, *reviewer) {
	p.t.Helper()
	r := &reviewer{t: p.t, dir: p.t.TempDir()}
	return p.reopen(r), r
}

// reopen opens a server with the same reviewer.
func (p *project) reopen(r *reviewer, change ...func(*Options)) *server {
	p.t.Helper()
	r.set("say", passes)
	if r.how.Load() == nil {
		r.how.Store(&Reviewing{External: true, MaxTries: 3, ReplyWithin: time.Minute})
	}
	g := gate.Open(gate.Options{Root: p.root, Settings: func() gate.Settings {
		return gate.Settings{Command: []string{os.Args[0], "reviewer", r.dir}, MaxConcurrent: 2, MaxInlineFiles: 5}
	}})
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		testkit.Works(p.t, g.Close(ctx))
	})
	r.gate = g
	return p.open(append(change, func(o *Options) {
		o.Gate = g
		o.Reviewing = func(context.Context) (Reviewing, error) { return *r.how.Load(), nil }
	})...)
}

func (r *reviewer) set(name, text string) {
	r.t.Helper()
	testkit.Must(r.t, os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600))
}

func (r *reviewer) unset(name string) { os.Remove(filepath.Join(r.dir, name)) }

// calls is how often it was started.
func (r *reviewer) calls() int {
	data, _ := os.ReadFile(filepath.Join(r.dir, "calls"))
	return strings.Count(string(data), "\n")
}

// runs waits until the reviewer has been started n times.
func (r *reviewer) runs(n int) {
	r.t.Helper()
	testkit.Until(r.t, fmt.Sprintf("started %d times", n), func() bool { return r.calls() >= n })
}

const reviewedStep = "[{run_each: step, quality_criteria: {Good: \"Is it good?\"}}]"

func (p *project) reviewedJob() {
	p.job("alpha", []testStep{{id: "one", outputs: oneFile, reviews: reviewedStep}, {id: "two"}}, map[string]string{"main": "[one, two]"})
	p.write("good.md", "CONTENT OF good.md")
	p.write("bad.md", "CONTENT OF bad.md")
	p.write("worse.md", "CONTENT OF worse.md")
}

func TestReq001_4_11_to_14_ExternalReviews(t *testing.T) {
	t.Parallel()
	p, srv, rev := underReview(t)
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID

	r := p.finish(c, `{"outputs":{"report":"bad.md"}}`) // 001.4.12
	testkit.Need(t, r.Status == machine.NeedsWork && strings.HasPrefix(*r.Feedback, "Try 1 of 3. bad.md: bad.md was read\n"), "reply %s", toJSON(t, r))
	if f := r.FailedReviews; len(f) != 1 || f[0].RunEach != "step" || f[0].TargetFile != nil || f[0].Passed {
		t.Errorf("failed_reviews %s", toJSON(t, f))
	}
	if f := r.FailedCriteria; len(f) != 1 || f[0].Criterion != "Is it good?" || *f[0].Feedback != "no" {
		t.Errorf("failed_criteria %s", toJSON(t, f))
	}
	one := p.record(id).Progress("one")
	if one.QualityTries != 1 || one.Tries[0].State != machine.TryFailed || one.Tries[0].Verdicts[0].Passed || one.Tries[0].Files[0].SHA256 == "" || one.CompletedAt != nil {
		t.Errorf("record %s", toJSON(t, one))
	}
	p.finish(c, `{"outputs":{"report":"bad.md"}}`)                              // unchanged outputs count too
	_, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"worse.md"}}`)) // 001.4.13
	refused(t, err, session.ToolError, "quality_gate_failed", "Quality gate failed after 3 attempts", "worse.md was read\n- Not met: Is it good?: no\n")
	n := rev.calls()
	_, err = c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"worse.md"}}`)) // past the maximum, unchanged: no review
	refused(t, err, session.ToolError, "quality_gate_failed", "Quality gate failed after 3 attempts", "worse.md was read")
	testkit.Equal(t, rev.calls(), n, "unchanged outputs were reviewed past the maximum")
	r = p.finish(c, `{"outputs":{"report":"good.md"}}`) // 001.4.14
	testkit.Need(t, r.Status == machine.NextStep && r.BeginStep.StepID == "two", "reply %s", toJSON(t, r))
	one = p.record(id).Progress("one")
	testkit.True(t, one.QualityTries == 4 && one.Newest().State == machine.TryPassed && one.Newest().Verdicts[0].Reviewer != "" && one.CompletedAt != nil, "record %s", toJSON(t, one))
}

func TestAReviewThatGivesNoVerdictVoidsTheAttempt(t *testing.T) {
	t.Parallel()
	p, srv, rev := underReview(t)
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	for what, say := range map[string]string{"crash": "", "garbage": "I think it is fine", "two": passes + passes,
		"contradiction": `{"passed": true, "criteria_results": [{"criterion": "Good", "passed": false, "feedback": "x"}]}`} {
		rev.set("say", say)
		words := []string{"does not count"}
		if what == "crash" {
			rev.set("exit", "")
			words = append(words, "3", "the last words of the reviewer")
		}
		refused(t, testkit.Get(c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"good.md"}}`))).Err(), session.ToolError, "review_failed", words...)
		rev.unset("exit")
		one := p.record(id).Progress("one")
		testkit.True(t, one.QualityTries == 0 && one.Newest().State == machine.TryVoid && one.Newest().Error != nil && one.CompletedAt == nil, "%s: record %s", what, toJSON(t, one))
	}
	rev.set("say", passes)
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":"good.md"}}`).Status, machine.NextStep, "reply")
}

func TestTheActorAnswersWhileAReviewRuns(t *testing.T) {
	t.Parallel()
	p, srv, rev := underReview(t)
	c := srv.Connect("local")
	rev.set("wait", "")
	defer rev.unset("wait")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	got := make(chan error, 1)
	go func() {
		_, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"good.md"}}`))
		got <- err
	}()
	rev.runs(1)
	step, err := c.Step(ctx, StepArgs{})
	testkit.True(t, err == nil && step.Members[0].ReviewRunning, "get_step %s, %v", toJSON(t, step), err)
	a := p.record(id).Progress("one").Newest()
	testkit.True(t, a.Open() && a.Number == 1, "the attempt is not recorded, open: %s", toJSON(t, a))
	r, err := c.Abort(ctx, AbortArgs{Explanation: "x"})
	testkit.True(t, err == nil && r.AbortedStep == "one", "abort %s, %v", toJSON(t, r), err)
	refused(t, <-got, session.StateError, "step_moved_on")
	s := p.record(id)
	testkit.True(t, s.Status == machine.Aborted && s.Progress("one").Newest().State == machine.TryVoid && s.Progress("one").QualityTries == 0, "record %s", toJSON(t, s))
	testkit.Until(t, "ended with the aborted session", func() bool { return rev.gate.Stats().Running == 0 })
}

func TestAReviewOutlivesItsCallAndIsCollected(t *testing.T) {
	p, srv, rev := underReview(t)
	c := srv.Connect("local")
	rev.how.Store(&Reviewing{External: true, MaxTries: 3, ReplyWithin: 20 * time.Millisecond})
	rev.set("wait", "")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	for range 3 { // joins the same review each time
		r := p.finish(c, `{"outputs":{"report":"good.md"}}`)
		if r.Status != machine.NeedsWork || !strings.HasPrefix(*r.Feedback, "Review running: ") || r.Waiting() == nil || r.Waiting().Code != "review_running" || !strings.Contains(*r.Feedback, "same outputs") {
			t.Fatalf("reply %s", toJSON(t, r))
		}
	}
	rev.unset("wait")
	var one *machine.StepProgress
	testkit.Until(t, "recorded", func() bool { one = p.record(id).Progress("one"); return one != nil && !one.Newest().Open() })
	if one.Newest().State != machine.TryPassed || one.Newest().Collected || one.CompletedAt != nil || c.stackOf(ctx, "")[0].Step != "one" {
		t.Errorf("a verdict that nobody waited for moved the session: %s", toJSON(t, one))
	}
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":"good.md"}}`).Status, machine.NextStep, "reply")
	if one = p.record(id).Progress("one"); one.QualityTries != 1 || rev.calls() != 1 {
		t.Errorf("%d attempts, %d calls of the reviewer", one.QualityTries, rev.calls())
	}
}

func TestAVerdictWhoseCallerLeftMovesNothing(t *testing.T) {
	t.Parallel()
	p, srv, rev := underReview(t)
	c := srv.Connect("local")
	rev.set("wait", "")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	leaving, leave := context.WithCancel(ctx)
	left := make(chan error, 1)
	go func() {
		_, err := c.Finish(leaving, finishArgs(t, `{"outputs":{"report":"good.md"}}`))
		left <- err
	}()
	rev.runs(1)
	leave()
	testkit.FailsWith(t, (<-left), context.Canceled, "the error of the caller that left")
	rev.unset("wait")
	testkit.Until(t, "recorded", func() bool { return !p.record(id).Progress("one").Newest().Open() })
	testkit.Equal(t, p.record(id).CurrentStepID, "one", "the session moved")
	if r := p.finish(c, `{"outputs":{"report":"good.md"}}`); r.Status != machine.NextStep || rev.calls() != 1 {
		t.Errorf("reply %s after %d reviews", toJSON(t, r), rev.calls())
	}
}

func TestOtherOutputsCancelAReviewThatRuns(t *testing.T) {
	t.Parallel()
	p, srv, rev := underReview(t)
	c := srv.Connect("local")
	rev.set("wait", "")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	got := make(chan error, 1)
	go func() {
		_, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"bad.md"}}`))
		got <- err
	}()
	rev.runs(1)
	passed := make(chan *machine.FinishReply, 1)
	go func() {
		r, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"good.md"}}`))
		testkit.Works(t, err)
		passed <- r
	}()
	refused(t, <-got, session.StateError, "review_superseded")
	rev.runs(2)
	rev.unset("wait")
	if r := <-passed; r == nil || r.Status != machine.NextStep {
		t.Errorf("reply %s", toJSON(t, r))
	}
	one := p.record(id).Progress("one")
	testkit.True(t, one.QualityTries == 1 && one.Tries[0].State == machine.TryVoid && one.Tries[1].Number == 1, "tries %s", toJSON(t, one.Tries))
}

func TestTheSameCallsJoinOneReview(t *testing.T) {
	t.Parallel()
	p, srv, rev := underReview(t)
	c := srv.Connect("local")
	rev.set("wait", "")
	p.start(c, "alpha", "main")
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if r, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"good.md"},"step_id":"one"}`)); err != nil || r.Status != machine.NextStep {
				t.Errorf("%s, %v", toJSON(t, r), err)
			}
		})
	}
	rev.runs(1)
	rev.unset("wait")
	wg.Wait()
	if rev.calls() != 1 {
		t.Errorf("%d reviews", rev.calls())
	}
}

func TestPassedReviewsOfUnchangedContentAreNotRunAgain(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("alpha", []testStep{{id: "one", outputs: "{parts: {type: files, description: d}}", reviews: "[{run_each: parts, quality_criteria: {Good: \"Is it good?\"}}]"}}, map[string]string{"main": "[one]"})
	for _, n := range []string{"good.md", "good2.md", "bad.md"} {
		p.write(n, "CONTENT OF "+n)
	}
	srv, rev := p.reviewed()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	r := p.finish(c, `{"outputs":{"parts":["good.md","good2.md","bad.md"]}}`)
	if r.Status != machine.NeedsWork || len(r.FailedReviews) != 1 || *r.FailedReviews[0].TargetFile != "bad.md" || rev.calls() != 3 {
		t.Fatalf("reply %s after %d reviews", toJSON(t, r), rev.calls())
	}
	p.write("bad.md", "CONTENT OF something better")
	p.write("good2.md", "CONTENT OF good2.md, changed")
	if r := p.finish(c, `{"outputs":{"parts":["good.md","good2.md","bad.md"]}}`); r.Status != machine.WorkflowComplete || rev.calls() != 5 {
		t.Errorf("reply %s after %d reviews, want 5", toJSON(t, r), rev.calls())
	}
	reused := 0
	for _, v := range p.record(id).Progress("one").Newest().Verdicts {
		if v.Reused {
			reused++
		}
	}
	testkit.Equal(t, reused, 1, "verdicts were taken over")
}

func TestAServerThatEndsInMidReviewNeverCountsItAsPassed(t *testing.T) {
	p, srv, rev := underReview(t)
	c := srv.Connect("local")
	rev.set("wait", "")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	got := make(chan error, 1)
	go func() {
		_, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"good.md"}}`))
		got <- err
	}()
	rev.runs(1)
	srv.stop()
	refused(t, <-got, session.StateError, "shutting_down")
	a := p.record(id).Progress("one").Newest()
	testkit.True(t, a.Open(), "attempt %s", toJSON(t, a))
	rev.unset("wait")
	c = p.reopen(rev).Connect("local")
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":"good.md"},"session_id":"`+id+`"}`).Status, machine.NextStep, "reply")
	one := p.record(id).Progress("one")
	if one.QualityTries != 1 || len(one.Tries) != 2 || one.Tries[0].State != machine.TryVoid || rev.calls() != 2 {
		t.Errorf("%d calls, record %s", rev.calls(), toJSON(t, one))
	}
}

func TestOverrideAndGoToStepWhileAReviewRuns(t *testing.T) {
	p, srv, rev := underReview(t)
	c := srv.Connect("local")
	rev.set("wait", "")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	got := make(chan error, 2)
	call := func() {
		_, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"good.md"}}`))
		got <- err
	}
	go call()
	rev.runs(1)
	testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "one"})))
	refused(t, <-got, session.StateError, "step_moved_on")
	testkit.Equal(t, p.record(id).History[0].Progress[0].Value.Newest().State, machine.TryVoid, "history")
	go call()
	rev.runs(2)
	r := p.finish(c, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"the user said so"}`)
	testkit.Equal(t, r.Status, machine.NextStep, "reply %s", toJSON(t, r))
	testkit.Must(t, <-got) // that with the same outputs has the same reply
	one := p.record(id).Progress("one")
	testkit.True(t, one.Newest().State == machine.TryVoid && len(one.Overrides) == 1 && one.QualityTries == 0, "record %s", toJSON(t, one))
	rev.unset("wait")
}

func TestContentThatChangesUnderAReviewIsNotPassed(t *testing.T) {
	t.Parallel()
	p, srv, rev := underReview(t)
	c := srv.Connect("local")
	rev.set("wait", "")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	got := make(chan error, 1)
	go func() {
		_, err := c.Finish(ctx, finishArgs(t, `{"outputs":{"report":"good.md"}}`))
		got <- err
	}()
	rev.runs(1)
	p.write("good.md", "something else")
	rev.unset("wait")
	refused(t, <-got, session.ToolError, "review_failed", "good.md")
	s := p.record(id)
	testkit.True(t, s.CurrentStepID == "one" && s.Progress("one").QualityTries == 0, "record %s", toJSON(t, s))
}

// An output that was not handed in has no review, by the agent itself or by a reviewer, and a step without any other
// review passes.
func TestReview_NothingToJudge(t *testing.T) {
	for name, external := range map[string]bool{"self": false, "reviewer": true} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			const outputs = "{report: {type: file, description: d}, extra: {type: files, description: d, required: false}}"
			const ofExtra = `{run_each: extra, quality_criteria: {Good: "Is the extra good?"}}`
			p.job("alpha", []testStep{{id: "one", outputs: outputs, reviews: "[" + ofExtra + "]"}, {id: "two", outputs: outputs, reviews: `[{run_each: report, quality_criteria: {Good: "Is the report good?"}}, ` + ofExtra + "]"}},
				map[string]string{"main": "[one, two]"})
			p.write("r.md", "x")
			srv, rev := p.open(), (*reviewer)(nil)
			if external {
				srv, rev = p.reviewed()
			}
			c := srv.Connect("local")
			id := p.start(c, "alpha", "main").BeginStep.SessionID
			for _, outputs := range []string{`{"report":"r.md"}`, `{"report":"r.md","extra":[]}`} {
				r := p.finish(c, `{"outputs":`+outputs+`,"step_id":"one"}`)
				testkit.Equal(t, stepOf(r.BeginStep), "two", "without extra: %s", toJSON(t, r))
				testkit.Must(t, testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "one"})).Err())
			}
			p.finish(c, `{"outputs":{"report":"r.md"}}`)
			testkit.Equal(t, p.record(id).Progress("one").Evidence.Kind, machine.NotDue)
			p.finish(c, `{"outputs":{"report":"r.md"}}`)
			if external {
				testkit.Equal(t, rev.calls(), 1, "reviewers of what was handed in")
				return
			}
			file := string(testkit.Get(os.ReadFile(filepath.Join(p.root, ".deepwork/tmp/quality_review_"+id+"_two.md"))).Must(t))
			testkit.True(t, strings.Contains(file, "Is the report good?") && !strings.Contains(file, "extra"), "the review:\n%s", file)
		})
	}
}
