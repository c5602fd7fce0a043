package workflow_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/check"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/replies"
	. "deepwork/session/workflow"
)

// A checking is a project whose step one has checks, with a server and a session at that step.
type checking struct {
	*project
	srv *server
	c   *Conn
	id  string
	how Reviewing
}

// checkedProject writes a job whose steps one and two have these checks, in a git repository if git is true.
func checkedProject(t testing.TB, git bool, checks, reviews string) *checking {
	t.Helper()
	p := newProject(t).alpha("[one, two]", testStep{id: "one", outputs: oneFile, checks: checks, reviews: reviews},
		testStep{id: "two"})
	testkit.WriteAll(t, p.root, map[string]string{"src/a": "a", "tests/t": "t", ".gitignore": "*.cache\n"})

	if git {
		p.git("init", "-q")
		p.git("add", "-A")
		p.git("commit", "-qm", "begin")
	}
	return &checking{project: p, how: Reviewing{MaxTries: 3, ReplyWithin: time.Minute}}
}

func (k *checking) begin(change ...func(*Options)) *checking {
	k.t.Helper()
	k.srv, k.c, k.id = k.project.begin(append(change, reviewing(&k.how))...)
	return k
}

// checked is a session whose step one has the check s, with more of its keys.
func checked(t testing.TB, s *script, keys string) *checking {
	t.Helper()
	return checkedProject(t, true, "["+s.yaml(keys)+"]", "").begin()
}

const handIn = `{"outputs":{"report":"r.md"},"step_id":"one"}`

// hands hands in step one, and checks the status of the reply and words of its feedback.
func (k *checking) hands(want replies.Status, words ...string) *replies.Finish {
	k.t.Helper()
	r := k.finish(k.c, handIn)
	says(k.t, r, want, words...)
	return r
}

func (k *checking) one() *machine.StepProgress {
	k.t.Helper()
	return k.record(k.id).Progress("one")
}

func TestACheckPassesWithExitCodeZeroAndIsInTheEvidence(t *testing.T) {
	s := newScript(t, "exit 0")
	k := checkedProject(t, true,
		"["+s.yaml("")+
			`, {run: [sh, -c, "test \"$DEEPWORK_TEST_SECRET\" = secret && test \"$(basename $PWD)\" = src"], in: `+
			`src, pass_env: [DEEPWORK_TEST_SECRET]}]`, "").begin()
	k.hands(replies.NextStep)
	e := k.one().FinishedWith()
	testkit.Need(t, e != nil, "%d runs, evidence %s", s.runs(), toJSON(t, e))
	testkit.Need(t, e.Why()[0].Kind == judging.ByProgram, "%d runs, evidence %s", s.runs(), toJSON(t, e))
	testkit.Need(t, len(e.All(judging.ByProgram)) == 2, "%d runs, evidence %s", s.runs(), toJSON(t, e))
	testkit.Need(t, s.runs() == 1, "%d runs, evidence %s", s.runs(), toJSON(t, e))

	c := e.All(judging.ByProgram)[0]
	testkit.Equal(t, c.Check.Code, 0, "check %s", toJSON(t, c))
	testkit.Equal(t, c.Check.Bound, check.ToTree, "check %s", toJSON(t, c))
	testkit.True(t, c.Seconds > 0, "check %s", toJSON(t, c))
	testkit.Need(t, len(c.Files) == 1, "check %s", toJSON(t, c))
	testkit.True(t, c.Digest != "", "check %s", toJSON(t, c))
}

func TestOneReplyNamesEveryFailedCheckInOrder(t *testing.T) {
	s := newScript(t, "exit 0")
	checks := `[{run: [sh, -c, "echo first line; echo second line >&2; exit 3"], name: a}, ` + s.yaml("") +
		`, {run: [sh, -c, "kill -KILL $$"], name: b}, {run: [sh, -c, "sleep 600"], timeout: 1, name: c}, {run: ` +
		`[sh, -c, "sleep 600 >/dev/null 2>&1 &"], name: d}]`
	k := checkedProject(t, true, checks, "").begin()
	r := k.hands(replies.NeedsWork, "Checks failed: 4 of 5 of step 'one'", "Check 'a' (sh -c", "exit code 3",
		"first line\nsecond line", "SIGKILL", "did not end within its limit of 1s", "left processes running")
	testkit.True(t, strings.Index(*r.Feedback, "Check 'a'") < strings.Index(*r.Feedback, "Check 'd'") &&
		!strings.Contains(*r.Feedback, "'script'"), "feedback %s", *r.Feedback)

	p := k.one()
	testkit.Equal(t, p.FailedChecks, 1, "%d runs, record %s", s.runs(), toJSON(t, p))
	testkit.Equal(t, p.QualityTries, 0, "%d runs, record %s", s.runs(), toJSON(t, p))
	testkit.Equal(t, s.runs(), 1, "%d runs, record %s", s.runs(), toJSON(t, p))
}

func TestAProgramThatCannotBeStartedIsAnErrorThatCountsNothing(t *testing.T) {
	k := checkedProject(t, true, "[{run: [no-such-program-here]}]", "").begin()
	refused(t, refusal(t, k.c, handIn), session.StateError, "check_not_run", "check 'no-such-program-here'")
	p := k.one()
	testkit.Equal(t, p.FailedChecks, 0, "record %s", toJSON(t, p))
	testkit.Equal(t, p.Newest().State, machine.TryVoid, "record %s", toJSON(t, p))
	testkit.True(t, !p.Done(), "record %s", toJSON(t, p))
}

func TestTheSameContentIsNotCheckedAgain(t *testing.T) {
	s := newScript(t, "grep -q good src/a")
	k := checked(t, s, "")
	k.hands(replies.NeedsWork)
	k.hands(replies.NeedsWork, "failed so far: 1")
	k.write("other.cache", "ignored")
	k.git("commit", "--allow-empty", "-qm", "no change")
	k.hands(replies.NeedsWork)
	testkit.Equal(t, s.runs(), 1, "runs of the same content")
	k.write("src/a", "good")
	k.hands(replies.NextStep)
	testkit.Equal(t, s.runs(), 2, "runs")
}

func TestACheckWithFilesIsAboutThoseAlone(t *testing.T) {
	for _, git := range []bool{true, false} {
		s := newScript(t, "exit 0")
		k := checkedProject(t, git, "["+s.yaml(", files: [src/**]")+"]", reviewedStep).begin()
		k.hands(replies.NeedsWork, "Quality review required")
		for file, more := range map[string]int{"tests/t": 0, "src/deep/er": 1} {
			before := s.runs()
			k.write(file, "changed")
			k.hands(replies.NeedsWork, "Quality review required")
			testkit.Equal(t, s.runs(), before+more, "git %t: runs after a change of %s", git, file)
		}
	}
}

func TestInAGroupACheckWithoutFilesIsBoundToTheOutputsAlone(t *testing.T) {
	s, k := newScript(t, "exit 0"), checkedProject(t, true, "", "")
	k.alpha("[[two, one]]", testStep{id: "one", outputs: oneFile, checks: "[" + s.yaml("") + "]"}, testStep{id: "two"})
	k.begin()

	// The shortcut that finishes a group by its primary does not skip the checks of a member.
	r := k.finish(k.c, `{"outputs":{}}`)
	testkit.Need(t, r.Status == replies.NextStep, "reply %s", toJSON(t, r))
	testkit.Need(t, r.BeginStep == nil, "reply %s", toJSON(t, r))
	testkit.Need(t, len(r.PendingConcurrentSteps) == 1, "reply %s", toJSON(t, r))

	k.hands(replies.WorkflowComplete)
	c := k.one().FinishedWith().All(judging.ByProgram)[0].Check
	testkit.True(t, c.Bound == check.ToOutputs && s.runs() == 1, "%d runs, check %s", s.runs(), toJSON(t, c))
}

func TestContentThatChangesUnderACheckIsCheckedOnceMoreAndThenNotDecided(t *testing.T) {
	s := newScript(t, "")
	k := checked(t, s, "")
	s.says("date +%N > " + filepath.Join(k.root, "made"))
	k.hands(replies.NeedsWork, "Not decided", "made", "Nothing has failed, and nothing has passed")
	p := k.one()
	testkit.Equal(t, s.runs(), 2, "%d runs, record %s", s.runs(), toJSON(t, p))
	testkit.Equal(t, p.FailedChecks, 0, "%d runs, record %s", s.runs(), toJSON(t, p))
	testkit.Equal(t, p.Newest().State, machine.TryVoid, "%d runs, record %s", s.runs(), toJSON(t, p))

	s.says("echo same > " + filepath.Join(k.root, "made"))
	k.hands(replies.NextStep)
	testkit.Equal(t, s.runs(), 4, "runs in all")
}

// A look has the result of the call, also of content that a check changes itself, or that came with a later call.
func TestALookAtChecksWhoseContentChanges(t *testing.T) {
	for _, later := range []bool{false, true} {
		s := newScript(t, "until test -e go.cache; do sleep 0.02; done; echo same > made")
		k := checked(t, s, "")
		k.how.ReplyWithin = time.Millisecond
		going := k.hands(replies.NeedsWork, "Checks running").Going
		if later {
			k.write("src/a", "else")
			k.hands(replies.NeedsWork, "Checks running")
		}
		k.write("go.cache", "")
		var x answered
		testkit.Until(t, "an end", func() bool {
			x.r, x.err = k.c.Collect(ctx, *going, finishArgs(t, handIn), true)
			return x.err != nil || x.r.Going == nil
		})
		testkit.Need(t, x.err == nil, "later %t: %d runs, %v", later, s.runs(), x.err)
		testkit.Equal(t, x.r.Status, replies.NextStep, "later %t: %d runs, %v", later, s.runs(), x.err)
		testkit.True(t, s.runs() >= 2, "later %t: %d runs, %v", later, s.runs(), x.err)
	}
}

func TestChecksAreSkippedNeitherByAReasonNorWithoutTheGate(t *testing.T) {
	s := newScript(t, "exit 1")
	k := checkedProject(t, true, "["+s.yaml("")+"]", reviewedStep).begin(func(o *Options) { o.Reviews = false })
	r := k.finish(k.c, `{"outputs":{"report":"r.md"},"quality_review_override_reason":"the user said so"}`)
	says(t, r, replies.NeedsWork, "quality_review_override_reason skips no check")
	s.says("exit 0")
	k.write("src/a", "better")
	k.hands(replies.NextStep)
	e := k.one().FinishedWith()
	testkit.True(t, e.Why()[0].Kind == judging.Off && len(e.All(judging.ByProgram)) == 1, "evidence %s", toJSON(t, e))
}

func TestOnlyAPersonPassesOverACheck(t *testing.T) {
	k := checked(t, newScript(t, "exit 1"), "")
	k.hands(replies.NeedsWork)
	given, _ := GivenFor(k.record(k.id), "one")
	grant := judging.Override{
		Identity: "local",
		Channel:  session.ChannelTerminal,
		Reason:   "known to be flaky",
		GivenFor: given,
	}
	testkit.Must(t, k.srv.OverrideFor(t.Context(), k.id, "one", grant))
	k.write("src/a", "something else than what the person saw")
	k.hands(replies.NeedsWork, "Checks failed")
	k.write("src/a", "a")
	testkit.Contains(t, toJSON(t, k.hands(replies.NextStep).Notice), "known to be flaky")

	p := k.one()
	testkit.Equal(t, p.FinishedWith().Why()[0].Kind, judging.ByOverride, "record %s", toJSON(t, p))
	testkit.Need(t, len(p.Overrides) == 1, "record %s", toJSON(t, p))
	testkit.Equal(t, p.Overrides[0].Reason, grant.Reason, "record %s", toJSON(t, p))
	testkit.Equal(t, fmt.Sprint(p.Overrides[0].Skipped), "[check script]", "record %s", toJSON(t, p))
}

func TestNobodyPassesOverACheckWithOverrideNever(t *testing.T) {
	s := newScript(t, "exit 1")
	please := judging.Override{Identity: "local", Channel: session.ChannelTerminal, Reason: "please"}
	k := checked(t, s, ", override: never")
	k.hands(replies.NeedsWork)
	refused(t, k.srv.OverrideFor(t.Context(), k.id, "one", please), session.StateError, codes.OverrideNeedsPerson,
		"override: never")
	k.hands(replies.NeedsWork, "Checks failed")
	k = checked(t, s, "")
	k.hands(replies.NeedsWork)
	testkit.Must(t, k.srv.OverrideFor(t.Context(), k.id, "one", please))
	k.how.Override = config.OverrideNever
	k.hands(replies.NeedsWork, "Checks failed")
}

func TestASessionKeepsTheChecksThatItBeganWith(t *testing.T) {
	s := newScript(t, "exit 1")
	checks := "[" + s.yaml(", protect: [tests/**]") + "]"
	const plain, calls = "[zero, one, two]", "[zero, {workflow: rest}, two]"
	for name, edit := range map[string]struct{ began, checks, main string }{
		"dropped":                     {plain, "", plain},
		"without the step":            {plain, checks, "[zero, two]"},
		"of a workflow that it calls": {calls, "", calls},
		"of one that is moved":        {calls, checks, "[{workflow: rest}, zero, two]"},
	} {
		t.Run(name, func(t *testing.T) {
			k := checkedProject(t, true, "", "")
			write := func(checks, main string) {
				k.job("alpha", []testStep{{id: "zero"}, {id: "one", outputs: oneFile, checks: checks}, {id: "two"}},
					map[string]string{"main": main, "rest": "[one]"})
			}
			write(checks, edit.began)
			k.begin()
			write(edit.checks, edit.main)
			k.srv.makeFaulty().undefined.Store(2) // while it is asked what the session began with
			refused(t, refusal(t, k.c, `{"outputs":{},"step_id":"zero"}`), session.StateError, codes.StoreUnavailable)
			r := k.finish(k.c, `{"outputs":{},"step_id":"zero"}`)
			testkit.Equal(t, stepOf(r.BeginStep), "one")
			testkit.Contains(t, toJSON(t, r.Notice), "counts for the next session")
			k.hands(replies.NeedsWork, "Checks failed")
		})
	}
}

func TestGoingBackBringsNoCheckAway(t *testing.T) {
	k := checkedProject(t, true, "["+newScript(t, "grep -q good src/a").yaml("")+"]", "")
	k.write("src/a", "good")
	k.begin()
	k.hands(replies.NextStep)
	k.alpha("[one, two, three]", testStep{id: "one", outputs: oneFile}, testStep{id: "two"}, testStep{id: "three"})
	says(t, k.finish(k.c, `{"outputs":{},"step_id":"two"}`), replies.NextStep)
	testkit.Must(t, errOf(k.c.GoTo(t.Context(), GoToArgs{StepID: "one"})))
	k.write("src/a", "bad")
	k.hands(replies.NeedsWork, "Checks failed")
	k.alpha("[one, two]", testStep{id: "one", outputs: oneFile}, testStep{id: "two"})
	k.hands(replies.NeedsWork, "Checks failed")
}

func TestACheckRunsOnlyIfItIsAllowed(t *testing.T) {
	s, allowed := newScript(t, "exit 0"), error(session.NotNow(codes.Untrusted, "not approved"))
	k := checkedProject(t, true, "["+s.yaml("")+"]", "").begin(func(o *Options) {
		o.Checks.Allowed = func(context.Context, *check.Subject, *job.StepCheck) error { return allowed }
	})
	refused(t, refusal(t, k.c, handIn), session.StateError, codes.Untrusted)
	p := k.one()
	testkit.Equal(t, s.runs(), 0, "%d runs, record %s", s.runs(), toJSON(t, p))
	testkit.True(t, !p.Done(), "%d runs, record %s", s.runs(), toJSON(t, p))
	testkit.Equal(t, p.FailedChecks, 0, "%d runs, record %s", s.runs(), toJSON(t, p))

	allowed = nil
	k.hands(replies.NextStep)
}

func TestACheckOutlivesItsCallAndIsJoinedByTheNext(t *testing.T) {
	s := newScript(t,
		`while [ -e $0.wait ]; do sleep 0.02; done; [ -z "$DEEPWORK_TEST_SECRET" ] && [ "$DEEPWORK_REVIEW" = 1 ]`)
	testkit.Write(t, s.path+".wait", "")
	k := checkedProject(t, true, "["+s.yaml("")+"]", "")
	k.how.ReplyWithin = time.Millisecond
	k.begin()
	w := k.hands(replies.NeedsWork, "Checks running: the checks of step 'one' are still running (0 of 1 done").Waiting()
	testkit.True(t, w != nil && w.Code == "review_running", "waiting %v", w)

	g := testkit.Get(k.c.Step(t.Context(), StepArgs{})).Must(t)
	testkit.True(t, g.Members[0].ReviewRunning && len(g.BeginStep.Checks) == 1, "get_step %s", toJSON(t, g))

	// Another server waits for the row of the first.
	other := k.open(reviewing(&Reviewing{MaxTries: 3, ReplyWithin: time.Minute})).Connect("local")
	got := beside(t, ctx, other, `{"outputs":{"report":"r.md"},"step_id":"one","session_id":"`+k.id+`"}`)
	testkit.Must(t, os.Remove(s.path+".wait"))
	x := <-got
	testkit.Need(t, x.err == nil, "%d runs, reply %s, %v", s.runs(), toJSON(t, x.r), x.err)
	testkit.Equal(t, x.r.Status, replies.NextStep, "%d runs, reply %s, %v", s.runs(), toJSON(t, x.r), x.err)
	testkit.Equal(t, s.runs(), 1, "%d runs, reply %s, %v", s.runs(), toJSON(t, x.r), x.err)
}

// A call that waits at another server for the checks of a step that is begun again does not run them again: that would
// finish the step, which somebody wants done again.
func TestAStepThatIsBegunAgainEndsTheCallsThatWaitForItsChecks(t *testing.T) {
	s := newScript(t, "sleep 600")
	k := checked(t, s, "")
	other, calls := k.open(reviewing(&k.how)), []chan answered{beside(t, ctx, k.c, handIn)}
	testkit.Until(t, "running", func() bool { return s.runs() == 1 })
	calls = append(calls, beside(t, ctx, other.Connect("local"),
		`{"outputs":{"report":"r.md"},"step_id":"one","session_id":"`+k.id+`"}`))
	other.waitsElsewhere(t, k.id)
	testkit.Must(t, k.srv.GoToFor(ctx, k.id, "one", 0))
	for _, call := range calls {
		refused(t, (<-call).err, session.StateError, "step_moved_on")
	}
	testkit.Equal(t, s.runs(), 1, "runs")
}

func TestACheckThatIsAddedWhileOthersRun(t *testing.T) {
	s := newScript(t, "while [ -e $0.wait ]; do sleep 0.02; done")
	testkit.Write(t, s.path+".wait", "")
	k := checked(t, s, "")
	call := beside(t, ctx, k.c, handIn)
	testkit.Until(t, "running", func() bool { return s.runs() == 1 })

	k.alpha("[one, two]", testStep{
		id:      "one",
		outputs: oneFile,
		checks:  "[" + s.yaml("") + ", {run: [sh, -c, \"exit 3\"], name: added}]",
	}, testStep{id: "two"})
	testkit.Must(t, os.Remove(s.path+".wait"))
	x := <-call
	testkit.Must(t, x.err)
	says(t, x.r, replies.NeedsWork, "Checks failed: 1 of 2 of step 'one'", "Check 'added'")
}

func TestAServerThatEndsUnderACheckDecidesNothing(t *testing.T) {
	s := newScript(t, "sleep 600")
	k := checked(t, s, "")
	got := beside(t, ctx, k.c, handIn)
	testkit.Until(t, "the check runs", func() bool { return s.runs() == 1 })
	k.srv.stop()
	refused(t, (<-got).err, session.StateError, "shutting_down")
	s.says("exit 0")
	says(t, k.finish(k.open(reviewing(&k.how)).Connect("local"),
		`{"outputs":{"report":"r.md"},"session_id":"`+k.id+`"}`), replies.NextStep)
	p := k.one()
	testkit.Equal(t, [3]int{p.FailedChecks, len(p.Tries()), s.runs()}, [3]int{0, 1, 2},
		"failed checks, tries and runs of the check: record %s", toJSON(t, p))
}

// What a check bound to the outputs alone has failed for may lie in other files: once its call was told, it runs again.
func TestAFailedCheckThatIsBoundToTheOutputsRunsAgain(t *testing.T) {
	for name, workflow := range map[string]string{
		"outside git": "[one, two]",
		"of an item":  "[list, {for_each: todo, steps: [one]}, two]",
		"below an item": "[list, {for_each: todo, steps: [{workflow: inner}]}, two]\n  - {name: inner, summary: I, " +
			"steps: [{workflow: last}]}\n  - {name: last, summary: L, steps: [one]}",
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, "until test -e go.cache; do sleep 0.02; done; grep -q good src/a")
			k := checkedProject(t, name != "outside git", "", "")
			k.alpha(workflow, testStep{id: "list", outputs: oneList},
				testStep{id: "one", outputs: oneFile, checks: "[" + s.yaml("") + "]"}, testStep{id: "two"})
			k.begin()
			step := "one"
			if strings.Contains(workflow, "todo") {
				begun := k.finish(k.c, `{"outputs":{"todo":"[\"a\"]"}}`).BeginStep
				step, k.id = begun.StepID, begun.SessionID
			}
			call := `{"outputs":{"report":"r.md"},"step_id":"` + step + `","session_id":"` + k.id + `"}`
			k.how.ReplyWithin = time.Nanosecond
			says(t, k.finish(k.c, call), replies.NeedsWork, "Checks running")
			k.write("go.cache", "")
			testkit.Until(t, "the check has ended", func() bool {
				return !k.record(k.id).Progress(step).Newest().Open()
			})

			k.how.ReplyWithin = time.Minute
			says(t, k.finish(k.c, call), replies.NeedsWork, "run again")
			testkit.Equal(t, s.runs(), 1, "runs before the agent was told")
			k.write("src/a", "good")
			testkit.Equal(t, stepOf(k.finish(k.c, call).BeginStep), "two")
			testkit.Equal(t, s.runs(), 2, "runs")
		})
	}
}

func TestGoToStepLeavesNoEditsOfProtectedFiles(t *testing.T) {
	s, k := newScript(t, "exit 0"), checkedProject(t, true, "", "")
	steps := []testStep{{id: "list", outputs: oneList}, {id: "first"},
		{id: "one", outputs: oneFile, checks: "[" + s.yaml(", protect: [tests/**]") + "]"}, {id: "two"}}
	k.alpha("[first, one, two]", steps...)
	k.write("tests/old", "untracked from the beginning")
	k.begin()
	goTo := func(step string) error { return errOf(k.c.GoTo(ctx, GoToArgs{StepID: step})) }
	k.finish(k.c, `{"outputs":{}}`)
	k.write("tests/t", "edited")
	k.hands(replies.NeedsWork, "'tests/t' was changed")
	refused(t, goTo("first"), session.StateError, codes.FileProtected, "'one'", "'tests/t' was changed")
	testkit.Must(t, goTo("one"))
	k.hands(replies.NeedsWork, "'tests/t' was changed")
	k.write("tests/t", "t")
	testkit.Must(t, goTo("first"))
	k.write("tests/t", "edited by the step that may")
	k.finish(k.c, `{"outputs":{}}`)
	k.hands(replies.NextStep)
	// Nor do other ways to begin a step again: an edit that moves it behind the current step, its workflow,
	// or all items.
	k.alpha("[[first, one], two]", steps...)
	k.begin()
	k.write("tests/t", "t")
	k.alpha("[first, one, two]", steps...)
	k.finish(k.c, `{"outputs":{}}`)
	k.hands(replies.NeedsWork, "'tests/t' was changed")
	for form, step := range map[string]string{
		"{workflow: inner}":                     "workflow:inner",
		"{for_each: todo, steps: [first, one]}": "first",
	} {
		k.job("alpha", steps, map[string]string{"main": "[list, " + form + "]", "inner": "[first, one]"})
		k.begin()
		k.finish(k.c, `{"outputs":{"todo":"[\"a\"]"}}`)
		k.finish(k.c, `{"outputs":{}}`)
		k.write("tests/t", "edited for "+step)
		refused(t, errOf(k.c.GoTo(ctx, GoToArgs{StepID: step, SessionID: &k.id})), session.StateError,
			codes.FileProtected, "'tests/t' was changed")
	}
}
