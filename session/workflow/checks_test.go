package workflow

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/check"
	"deepwork/session/codes"
	"deepwork/session/workflow/machine"
)

// A checking is a project whose step one has checks, with a server and a session at that step.
type checking struct {
	*project
	srv *server
	c   *Conn
	id  string
	how Reviewing
}

// script is a check that is the shell script check.sh outside of the project, which notes its calls.
type script struct {
	t    testing.TB
	path string
}

func newScript(t testing.TB, text string) *script {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("uses a shell")
	}
	s := &script{t, filepath.Join(t.TempDir(), "check.sh")}
	s.says(text)
	return s
}

// says makes it do something else.
func (s *script) says(text string) {
	s.t.Helper()
	testkit.Must(s.t, os.WriteFile(s.path, []byte("echo run >> "+s.path+".calls\n"+text+"\n"), 0o700))
}

// runs is how often it has run.
func (s *script) runs() int {
	data, _ := os.ReadFile(s.path + ".calls")
	return strings.Count(string(data), "\n")
}

// yaml is the check, with more of its keys.
func (s *script) yaml(keys string) string {
	return fmt.Sprintf("{run: [sh, %s], name: script%s}", s.path, keys)
}

// checkedProject writes a job whose steps one and two have these checks, in a git repository if git is true.
func checkedProject(t testing.TB, git bool, checks, reviews string) *checking {
	t.Helper()
	p := newProject(t)
	p.job("alpha", []testStep{{id: "one", outputs: oneFile, checks: checks, reviews: reviews}, {id: "two"}}, map[string]string{"main": "[one, two]"})
	p.write("r.md", "x")
	p.write("src/a", "a")
	p.write("tests/t", "t")
	p.write(".gitignore", "*.cache\n")
	if git {
		p.git("init", "-q")
		p.git("add", "-A")
		p.git("commit", "-qm", "begin")
	}
	return &checking{project: p, how: Reviewing{MaxTries: 3, ReplyWithin: time.Minute}}
}

// begin opens a server and starts the workflow.
func (k *checking) begin(change ...func(*Options)) *checking {
	k.t.Helper()
	k.srv = k.open(append(change, func(o *Options) {
		if o.Reviewing == nil {
			o.Reviewing = func(context.Context) (Reviewing, error) { return k.how, nil }
		}
	})...)
	k.c = k.srv.Connect("local")
	k.id = k.start(k.c, "alpha", "main").BeginStep.SessionID
	return k
}

const handIn = `{"outputs":{"report":"r.md"},"step_id":"one"}`

// hands hands in step one, and checks the status of the reply and words of its feedback.
func (k *checking) hands(want machine.Status, words ...string) *machine.FinishReply {
	k.t.Helper()
	r := k.finish(k.c, handIn)
	testkit.Need(k.t, r.Status == want, "status %s, want %s: %s", r.Status, want, toJSON(k.t, r))
	for _, w := range words {
		testkit.True(k.t, r.Feedback != nil && strings.Contains(*r.Feedback, w), "the feedback does not say %q: %s", w, toJSON(k.t, r.Feedback))
	}
	return r
}

func (k *checking) one() *machine.StepProgress { k.t.Helper(); return k.record(k.id).Progress("one") }

func TestACheckPassesWithExitCodeZeroAndIsInTheEvidence(t *testing.T) {
	t.Parallel()
	s := newScript(t, "exit 0")
	k := checkedProject(t, true, "["+s.yaml("")+"]", "").begin()
	k.hands(machine.NextStep)
	e := k.one().Evidence
	if e == nil || e.Kind != machine.ByChecks || len(e.Checks) != 1 || s.runs() != 1 {
		t.Fatalf("%d runs, evidence %s", s.runs(), toJSON(t, e))
	}
	if c := e.Checks[0]; c.Check.Code != 0 || c.Check.Bound != check.ToTree || c.Seconds <= 0 || len(c.Files) != 1 || c.Digest == "" {
		t.Errorf("check %s", toJSON(t, c))
	}
}

func TestOneReplyNamesEveryFailedCheckInOrder(t *testing.T) {
	t.Parallel()
	s := newScript(t, "exit 0")
	checks := `[{run: [sh, -c, "echo first line; echo second line >&2; exit 3"], name: a}, ` + s.yaml("") + `, {run: [sh, -c, "kill -KILL $$"], name: b}, {run: [sh, -c, "sleep 600"], timeout: 1, name: c}, {run: [sh, -c, "sleep 600 >/dev/null 2>&1 &"], name: d}]`
	k := checkedProject(t, true, checks, "").begin()
	r := k.hands(machine.NeedsWork, "Checks failed: 4 of 5 of step 'one'", "Check 'a' (sh -c", "exit code 3", "first line\nsecond line", "SIGKILL", "did not end within its limit of 1s", "left processes running")
	if a, d := strings.Index(*r.Feedback, "Check 'a'"), strings.Index(*r.Feedback, "Check 'd'"); a < 0 || d < a || strings.Contains(*r.Feedback, "'script'") {
		t.Errorf("feedback %s", *r.Feedback)
	}
	if p := k.one(); p.FailedChecks != 1 || p.QualityTries != 0 || s.runs() != 1 {
		t.Errorf("%d runs, record %s", s.runs(), toJSON(t, p))
	}
}

func TestAProgramThatCannotBeStartedIsAnErrorThatCountsNothing(t *testing.T) {
	t.Parallel()
	k := checkedProject(t, true, "[{run: [no-such-program-here]}]", "").begin()
	refused(t, testkit.Get(k.c.Finish(t.Context(), finishArgs(t, handIn))).Err(), session.StateError, "check_not_run", "check 'no-such-program-here'")
	p := k.one()
	testkit.True(t, p.FailedChecks == 0 && p.Newest().State == machine.TryVoid && !p.Done(), "record %s", toJSON(t, p))
}

func TestTheSameContentIsNotCheckedAgain(t *testing.T) {
	t.Parallel()
	s := newScript(t, "grep -q good src/a")
	k := checkedProject(t, true, "["+s.yaml("")+"]", "").begin()
	k.hands(machine.NeedsWork)
	k.hands(machine.NeedsWork, "failed so far: 1")
	k.write("other.cache", "ignored")
	k.git("commit", "--allow-empty", "-qm", "no change")
	k.hands(machine.NeedsWork)
	if s.runs() != 1 {
		t.Errorf("%d runs of the same content", s.runs())
	}
	k.write("src/a", "good")
	k.hands(machine.NextStep)
	if s.runs() != 2 {
		t.Errorf("%d runs", s.runs())
	}
}

func TestACheckWithFilesIsAboutThoseAlone(t *testing.T) {
	t.Parallel()
	for _, git := range []bool{true, false} {
		s := newScript(t, "exit 0")
		k := checkedProject(t, git, "["+s.yaml(", files: [src/**]")+"]", reviewedStep).begin()
		k.hands(machine.NeedsWork, "Quality review required")
		k.write("tests/t", "changed")
		k.hands(machine.NeedsWork, "Quality review required")
		if s.runs() != 1 {
			t.Errorf("git %t: %d runs", git, s.runs())
		}
		k.write("src/deep/er", "new")
		k.hands(machine.NeedsWork, "Quality review required")
		if s.runs() != 2 {
			t.Errorf("git %t: %d runs after a change", git, s.runs())
		}
	}
}

func TestInAGroupACheckWithoutFilesIsBoundToTheOutputsAlone(t *testing.T) {
	t.Parallel()
	s := newScript(t, "exit 0")
	k := checkedProject(t, true, "["+s.yaml("")+"]", "")
	k.job("alpha", []testStep{{id: "one", outputs: oneFile, checks: "[" + s.yaml("") + "]"}, {id: "two"}}, map[string]string{"main": "[[two, one]]"})
	k.begin()
	// The shortcut that finishes a group by its primary does not skip the checks of a member.
	r := k.finish(k.c, `{"outputs":{}}`)
	testkit.Need(t, r.Status == machine.NextStep && r.BeginStep == nil && len(r.PendingConcurrentSteps) == 1, "reply %s", toJSON(t, r))
	k.hands(machine.WorkflowComplete)
	if c := k.one().Evidence.Checks[0].Check; c.Bound != check.ToOutputs || s.runs() != 1 {
		t.Errorf("%d runs, check %s", s.runs(), toJSON(t, c))
	}
}

func TestContentThatChangesUnderACheckIsCheckedOnceMoreAndThenNotDecided(t *testing.T) {
	t.Parallel()
	s := newScript(t, "")
	k := checkedProject(t, true, "["+s.yaml("")+"]", "").begin()
	s.says("date +%N > " + filepath.Join(k.root, "made"))
	k.hands(machine.NeedsWork, "Not decided", "made", "Nothing has failed, and nothing has passed")
	if p := k.one(); s.runs() != 2 || p.FailedChecks != 0 || p.Newest().State != machine.TryVoid {
		t.Errorf("%d runs, record %s", s.runs(), toJSON(t, p))
	}
	s.says("echo same > " + filepath.Join(k.root, "made"))
	k.hands(machine.NextStep)
	if s.runs() != 4 {
		t.Errorf("%d runs in all", s.runs())
	}
}

// How agents edit them is in TestCheats of the program.
func TestHonestWorkBesideProtectedFiles(t *testing.T) {
	t.Parallel()
	t.Run("honest", func(t *testing.T) {
		s := newScript(t, "exit 0")
		k := checkedProject(t, true, "["+s.yaml(", protect: [tests/**]")+"]", "")
		k.write("tests/old", "untracked from the beginning")
		k.begin()
		k.write("tests/x.cache", "ignored by an old rule")
		k.write("tests/.tool_cache/.gitignore", "*\n")
		k.write("tests/.tool_cache/data", "x")
		k.write("src/a", "work")
		k.hands(machine.NextStep)
	})
	t.Run("without git", func(t *testing.T) {
		s := newScript(t, "exit 0")
		k := checkedProject(t, false, "["+s.yaml(", protect: [tests/**]")+"]", "").begin()
		k.write("tests/new", "x")
		k.hands(machine.NeedsWork, "'tests/new' was added")
		testkit.Must(t, os.Remove(filepath.Join(k.root, "tests/new")))
		k.hands(machine.NextStep)
	})
}

func TestChecksAreSkippedNeitherByAReasonNorWithoutTheGate(t *testing.T) {
	t.Parallel()
	s := newScript(t, "exit 1")
	k := checkedProject(t, true, "["+s.yaml("")+"]", reviewedStep).begin(func(o *Options) { o.Reviews = false })
	r := k.finish(k.c, `{"outputs":{"report":"r.md"},"quality_review_override_reason":"the user said so"}`)
	testkit.Need(t, r.Status == machine.NeedsWork && strings.Contains(*r.Feedback, "quality_review_override_reason skips no check"), "reply %s", toJSON(t, r))
	s.says("exit 0")
	k.write("src/a", "better")
	k.hands(machine.NextStep)
	if e := k.one().Evidence; e.Kind != machine.Unreviewed || len(e.Checks) != 1 {
		t.Errorf("evidence %s", toJSON(t, e))
	}
}

func TestOnlyAPersonPassesOverACheck(t *testing.T) {
	t.Parallel()
	s := newScript(t, "exit 1")
	k := checkedProject(t, true, "["+s.yaml("")+"]", "").begin()
	k.hands(machine.NeedsWork)
	given, _ := GivenFor(k.record(k.id), "one")
	grant := machine.Override{Identity: "local", Channel: session.ChannelTerminal, Reason: "known to be flaky", GivenFor: given}
	testkit.Must(t, k.srv.OverrideFor(t.Context(), k.id, "one", grant))
	k.write("src/a", "something else than what the person saw")
	k.hands(machine.NeedsWork, "Checks failed")
	k.write("src/a", "a")
	r := k.hands(machine.NextStep)
	testkit.True(t, r.Notice != nil && strings.Contains(*r.Notice, "known to be flaky"), "reply %s", toJSON(t, r))
	p := k.one()
	testkit.True(t, p.Evidence.Kind == machine.ByPerson && len(p.Overrides) == 1 && p.Overrides[0].Reason == grant.Reason && fmt.Sprint(p.Overrides[0].Skipped) == "[check script]", "record %s", toJSON(t, p))
}

func TestNobodyPassesOverACheckWithOverrideNever(t *testing.T) {
	t.Parallel()
	s := newScript(t, "exit 1")
	k := checkedProject(t, true, "["+s.yaml(", override: never")+"]", "").begin()
	k.hands(machine.NeedsWork)
	err := k.srv.OverrideFor(t.Context(), k.id, "one", machine.Override{Identity: "local", Channel: session.ChannelTerminal, Reason: "please"})
	refused(t, err, session.StateError, codeNeedsPerson, "override: never")
	k.hands(machine.NeedsWork, "Checks failed")
	k = checkedProject(t, true, "["+s.yaml("")+"]", "").begin()
	k.hands(machine.NeedsWork)
	testkit.Must(t, k.srv.OverrideFor(t.Context(), k.id, "one", machine.Override{Identity: "local", Channel: session.ChannelTerminal, Reason: "please"}))
	k.how.Override = config.OverrideNever
	k.hands(machine.NeedsWork, "Checks failed")
}

func TestASessionKeepsTheChecksThatItBeganWith(t *testing.T) {
	t.Parallel()
	s := newScript(t, "exit 1")
	steps := func(checks string) []testStep {
		return []testStep{{id: "zero"}, {id: "one", outputs: oneFile, checks: checks}, {id: "two"}}
	}
	for name, edit := range map[string]func(*checking){
		"dropped": func(k *checking) { k.job("alpha", steps(""), map[string]string{"main": "[zero, one, two]"}) },
		"without the step": func(k *checking) {
			k.job("alpha", steps("["+s.yaml(", protect: [tests/**]")+"]"), map[string]string{"main": "[zero, two]", "rest": "[one]"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := checkedProject(t, true, "", "")
			k.job("alpha", steps("["+s.yaml(", protect: [tests/**]")+"]"), map[string]string{"main": "[zero, one, two]"})
			k.begin()
			edit(k)
			r := k.finish(k.c, `{"outputs":{},"step_id":"zero"}`)
			testkit.Need(t, r.Status == machine.NextStep && r.BeginStep.StepID == "one" && r.Notice != nil && strings.Contains(*r.Notice, "counts for the next session"), "reply %s", toJSON(t, r))
			k.hands(machine.NeedsWork, "Checks failed")
		})
	}
}

// A step that is done again has its checks again, also if they were dropped while it was done.
func TestGoingBackBringsNoCheckAway(t *testing.T) {
	t.Parallel()
	s := newScript(t, "grep -q good src/a")
	k := checkedProject(t, true, "["+s.yaml("")+"]", "")
	k.write("src/a", "good")
	k.begin()
	k.hands(machine.NextStep)
	k.job("alpha", []testStep{{id: "one", outputs: oneFile}, {id: "two"}, {id: "three"}}, map[string]string{"main": "[one, two, three]"})
	r := k.finish(k.c, `{"outputs":{},"step_id":"two"}`)
	testkit.Need(t, r.Status == machine.NextStep, "reply %s", toJSON(t, r))
	testkit.Must(t, errOf(k.c.GoTo(t.Context(), GoToArgs{StepID: "one"})))
	k.write("src/a", "bad")
	k.hands(machine.NeedsWork, "Checks failed")
	k.job("alpha", []testStep{{id: "one", outputs: oneFile}, {id: "two"}}, map[string]string{"main": "[one, two]"})
	k.hands(machine.NeedsWork, "Checks failed")
}

func TestACheckRunsOnlyIfItIsAllowed(t *testing.T) {
	t.Parallel()
	s := newScript(t, "exit 0")
	allowed := error(session.NotNow(session.CodeUntrusted, "not approved"))
	k := checkedProject(t, true, "["+s.yaml("")+"]", "").begin(func(o *Options) {
		o.Checks.Allowed = func(context.Context, *check.Subject, *job.StepCheck) error { return allowed }
	})
	refused(t, testkit.Get(k.c.Finish(t.Context(), finishArgs(t, handIn))).Err(), session.StateError, session.CodeUntrusted)
	if p := k.one(); s.runs() != 0 || p.Done() || p.FailedChecks != 0 {
		t.Errorf("%d runs, record %s", s.runs(), toJSON(t, p))
	}
	allowed = nil
	k.hands(machine.NextStep)
}

func TestACheckOutlivesItsCallAndIsJoinedByTheNext(t *testing.T) {
	s := newScript(t, "")
	gate := filepath.Join(t.TempDir(), "wait")
	testkit.Must(t, os.WriteFile(gate, nil, 0o600))
	s.says("while [ -e " + gate + " ]; do sleep 0.02; done; [ -z \"$DEEPWORK_TEST_SECRET\" ] && [ \"$DEEPWORK_REVIEW\" = 1 ]")
	t.Setenv("DEEPWORK_TEST_SECRET", "secret")
	k := checkedProject(t, true, "["+s.yaml("")+"]", "")
	k.how.ReplyWithin = time.Millisecond
	k.begin()
	r := k.hands(machine.NeedsWork, "Checks running: the checks of step 'one' are still running (0 of 1 done")
	w := r.Waiting()
	testkit.True(t, w != nil && w.Code == "review_running", "waiting %v", w)
	g := testkit.Get(k.c.Step(t.Context(), StepArgs{})).Must(t)
	testkit.True(t, g.Members[0].ReviewRunning && len(g.BeginStep.Checks) == 1, "get_step %s", toJSON(t, g))
	// Another server waits for the row of the first.
	other := k.open(func(o *Options) {
		o.Reviewing = func(context.Context) (Reviewing, error) {
			return Reviewing{MaxTries: 3, ReplyWithin: time.Minute}, nil
		}
	}).Connect("local")
	got := make(chan *machine.FinishReply, 1)
	go func() {
		r, err := other.Finish(context.Background(), finishArgs(t, `{"outputs":{"report":"r.md"},"step_id":"one","session_id":"`+k.id+`"}`))
		testkit.Works(t, err)
		got <- r
	}()
	testkit.Must(t, os.Remove(gate))
	if r := <-got; r == nil || r.Status != machine.NextStep || s.runs() != 1 {
		t.Errorf("%d runs, reply %s", s.runs(), toJSON(t, r))
	}
}

// A call that waits at another server for the checks of a step that is begun again does not run them again: that would
// finish the step, which somebody wants done again.
func TestAStepThatIsBegunAgainEndsTheCallsThatWaitForItsChecks(t *testing.T) {
	t.Parallel()
	s := newScript(t, "sleep 600")
	k := checkedProject(t, true, "["+s.yaml("")+"]", "").begin()
	other := k.open(func(o *Options) { o.Reviewing = k.srv.Reviewing })
	calls := []chan answered{beside(t, ctx, k.c, handIn)}
	testkit.Until(t, "running", func() bool { return s.runs() == 1 })
	calls = append(calls, beside(t, ctx, other.Connect("local"), `{"outputs":{"report":"r.md"},"step_id":"one","session_id":"`+k.id+`"}`))
	testkit.Until(t, "waiting for the checks of another server", func() bool {
		other.follower.mu.Lock()
		defer other.follower.mu.Unlock()
		return other.follower.waiting[k.id] != nil
	})
	testkit.Must(t, k.srv.GoToFor(ctx, k.id, "one"))
	for _, call := range calls {
		refused(t, await(t, call).err, session.StateError, "step_moved_on")
	}
	testkit.Equal(t, s.runs(), 1, "runs")
}

// A check that is added to the job while the others run is run, too.
func TestACheckThatIsAddedWhileOthersRun(t *testing.T) {
	t.Parallel()
	s := newScript(t, "while [ -e $0.wait ]; do sleep 0.02; done")
	testkit.Write(t, s.path+".wait", "")
	k := checkedProject(t, true, "["+s.yaml("")+"]", "").begin()
	call := beside(t, ctx, k.c, handIn)
	testkit.Until(t, "running", func() bool { return s.runs() == 1 })
	k.job("alpha", []testStep{{id: "one", outputs: oneFile, checks: "[" + s.yaml("") + ", {run: [sh, -c, \"exit 3\"], name: added}]"}, {id: "two"}}, map[string]string{"main": "[one, two]"})
	testkit.Must(t, os.Remove(s.path+".wait"))
	x := await(t, call)
	testkit.True(t, x.err == nil && strings.Contains(*x.r.Feedback, "Checks failed: 1 of 2 of step 'one'") && strings.Contains(*x.r.Feedback, "Check 'added'"), "reply %s, %v", toJSON(t, x.r), x.err)
}

func TestPassEnvAddsVariables(t *testing.T) {
	t.Setenv("DEEPWORK_TEST_SECRET", "secret")
	k := checkedProject(t, true, `[{run: [sh, -c, "test \"$DEEPWORK_TEST_SECRET\" = secret && test \"$(basename $PWD)\" = src"], in: src, pass_env: [DEEPWORK_TEST_SECRET]}]`, "").begin()
	k.hands(machine.NextStep)
}

func TestAServerThatEndsUnderACheckDecidesNothing(t *testing.T) {
	t.Parallel()
	s := newScript(t, "sleep 600")
	k := checkedProject(t, true, "["+s.yaml("")+"]", "").begin()
	got := make(chan error, 1)
	go func() {
		_, err := k.c.Finish(context.Background(), finishArgs(t, handIn))
		got <- err
	}()
	testkit.Until(t, "the check runs", func() bool { return s.runs() == 1 })
	k.srv.stop()
	refused(t, <-got, session.StateError, "shutting_down")
	s.says("exit 0")
	k.srv = k.open(func(o *Options) { o.Reviewing = func(context.Context) (Reviewing, error) { return k.how, nil } })
	k.c = k.srv.Connect("local")
	testkit.Equal(t, k.finish(k.c, `{"outputs":{"report":"r.md"},"session_id":"`+k.id+`"}`).Status, machine.NextStep, "reply")
	p := k.one()
	testkit.True(t, p.FailedChecks == 0 && p.Tries[0].State == machine.TryVoid, "record %s", toJSON(t, p))
}

// What a check bound to the outputs alone has failed for may lie in other files: once its call was told, it runs again.
func TestAFailedCheckThatIsBoundToTheOutputsRunsAgain(t *testing.T) {
	t.Parallel()
	for name, workflow := range map[string]string{"outside git": "[one, two]", "of an item": "[list, {for_each: todo, steps: [one]}, two]"} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, "until test -e go.cache; do sleep 0.02; done; grep -q good src/a")
			k := checkedProject(t, name != "outside git", "", "")
			k.job("alpha", []testStep{{id: "list", outputs: "{todo: {type: string, description: d}}"}, {id: "one", outputs: oneFile, checks: "[" + s.yaml("") + "]"}, {id: "two"}}, map[string]string{"main": workflow})
			k.begin()
			step := "one"
			if strings.Contains(workflow, "todo") {
				k.finish(k.c, `{"outputs":{"todo":"[\"a\"]"}}`)
				step = "one[0]"
			}
			call := `{"outputs":{"report":"r.md"},"step_id":"` + step + `"}`
			k.how.ReplyWithin = time.Nanosecond
			if r := k.finish(k.c, call); !strings.Contains(*r.Feedback, "Checks running") {
				t.Fatalf("reply %s", toJSON(t, r))
			}
			k.write("go.cache", "")
			testkit.Until(t, "the check has ended", func() bool { return !k.record(k.id).Progress(step).Newest().Open() })
			k.how.ReplyWithin = time.Minute
			if r := k.finish(k.c, call); s.runs() != 1 || !strings.Contains(*r.Feedback, "run again") {
				t.Fatalf("%d runs, and nobody was told: %s", s.runs(), toJSON(t, r))
			}
			k.write("src/a", "good")
			if r := k.finish(k.c, call); s.runs() != 2 || r.BeginStep == nil || r.BeginStep.StepID != "two" {
				t.Errorf("%d runs: %s", s.runs(), toJSON(t, r))
			}
		})
	}
}

// Going back over an earlier step does not make edits of protected files good.
func TestGoToStepLeavesNoEditsOfProtectedFiles(t *testing.T) {
	t.Parallel()
	s := newScript(t, "exit 0")
	k := checkedProject(t, true, "", "")
	k.job("alpha", []testStep{{id: "first"}, {id: "one", outputs: oneFile, checks: "[" + s.yaml(", protect: [tests/**]") + "]"}, {id: "two"}}, map[string]string{"main": "[first, one, two]"})
	k.begin()
	k.finish(k.c, `{"outputs":{}}`)
	k.write("tests/t", "edited")
	k.hands(machine.NeedsWork, "'tests/t' was changed")
	refused(t, testkit.Get(k.c.GoTo(ctx, GoToArgs{StepID: "first"})).Err(), session.StateError, codes.FileProtected, "'one'", "'tests/t' was changed")
	testkit.Must(t, testkit.Get(k.c.GoTo(ctx, GoToArgs{StepID: "one"})).Err())
	k.hands(machine.NeedsWork, "'tests/t' was changed")
	k.write("tests/t", "t")
	testkit.Must(t, testkit.Get(k.c.GoTo(ctx, GoToArgs{StepID: "first"})).Err())
	k.write("tests/t", "edited by the step that may")
	k.finish(k.c, `{"outputs":{}}`)
	k.hands(machine.NextStep)
}
