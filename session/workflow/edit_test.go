package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/judging"
	"deepwork/session/replies"
	"deepwork/session/store"
	. "deepwork/session/workflow"
)

func TestARunningSessionFollowsAnEditThatHasItsStep(t *testing.T) {
	p, srv, c, id := begun(t)
	p.finish(c, `{"outputs":{"report":"r.md"}}`)

	// A step before and one after the current; its place is found from its id.
	p.alpha("[zero, one, two, three]", testStep{id: "zero"}, testStep{id: "one", outputs: oneFile},
		testStep{id: "two", outputs: oneFile}, testStep{id: "three"})
	r := p.finish(c, `{"outputs":{"report":"r.md"}}`)
	testkit.True(t, stepOf(r.BeginStep) == "three" && r.Notice == nil, "reply %s", toJSON(t, r))
	testkit.Equal(t, p.record(id).CurrentEntryIndex, 3, "entry")
	p.alpha("[three]", testStep{id: "three"})
	says(t, p.finish(c, `{"outputs":{}}`), replies.WorkflowComplete)
	testkit.Same(t, testkit.Get(srv.Inspect(ctx)).Must(t).Findings, nil,
		"of one that an edit shortened before its last step")
}

func TestARunningSessionFinishesOnTheKeptDefinition(t *testing.T) {
	for _, broken := range []string{"", "\nname: ["} { // else without its step
		p := newProject(t).alpha("[one, two, {workflow: inner}]\n  - {name: inner, summary: i, steps: [deep]}",
			testStep{id: "one", outputs: oneFile}, testStep{id: "two", outputs: oneFile}, testStep{id: "deep"})
		srv, _, id := p.begin()
		p.alpha("[other]"+broken, testStep{id: "other"})
		srv.stop()
		c := p.open().Connect("local")
		r := p.finish(c, `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`)
		testkit.True(t, stepOf(r.BeginStep) == "two" && r.BeginStep.Instructions == "Do two.\n", "reply %s",
			toJSON(t, r))
		testkit.ContainsAll(t, toJSON(t, r.Notice), []string{"alpha", "definition it has"})
		testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep.Instructions, "Do two.\n", "get_step")
		testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{"report":"r.md"}}`).BeginStep), "deep",
			"a workflow of the job that is a step")
		says(t, p.finish(c, `{"outputs":{}}`), replies.WorkflowComplete)
	}
}

// get_workflows shows a missing instructions file before a session begins, until the file is there.
func TestMissingInstructionsRefuseTheCallAndMoveNothing(t *testing.T) {
	p, srv, c, id := begun(t)
	another, steps := srv.Connect("local"), filepath.Join(p.root, ".deepwork/jobs/alpha/steps")
	faults := func() string { return string(testkit.Get(another.GetWorkflows(ctx)).Must(t).Errors) }
	testkit.Equal(t, faults(), "[]")
	testkit.Must(t, errors.Join(os.Remove(filepath.Join(steps, "one.md")), os.Remove(filepath.Join(steps, "two.md"))))
	testkit.Contains(t, faults(), `steps[1].instructions_file: \"steps/two.md\" does not exist in `)

	before := toJSON(t, p.record(id))
	refused(t, starting(another, "alpha", "main"), session.ToolError, "instructions_missing", "one.md")
	testkit.Equal(t, len(stackOf(t, another)), 0, "sessions that began")

	refused(t, refusal(t, c, `{"outputs":{"report":"r.md"}}`), session.ToolError, "instructions_missing", "two.md",
		"nothing has moved")
	testkit.Equal(t, toJSON(t, p.record(id)), before, "the session moved")
	testkit.WriteAll(t, steps, map[string]string{"one.md": "Do one.\n", "two.md": "Do two better.\n"})
	testkit.Equal(t, faults(), "[]", "once they are there")
	// An edit is seen when the step begins. What was read is what is kept, also where the file, or the step,
	// is gone since.
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":"r.md"}}`).BeginStep.Instructions, "Do two better.\n", "reply")
	testkit.Must(t, os.Remove(filepath.Join(steps, "two.md")))
	step := testkit.Get(c.Step(ctx, StepArgs{})).Must(t)
	testkit.True(t, step.BeginStep.Instructions == "Do two better.\n" && step.Notice != nil, "get_step %s",
		toJSON(t, step))

	p.alpha("[other]", testStep{id: "other"})
	p.write(".deepwork/jobs/alpha/steps/two.md", "Do it worse.\n")
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep.Instructions, "Do two better.\n",
		"get_step")
}

func TestGoToStep(t *testing.T) {
	p := newProject(t).alpha("[a, b, c, d]", testStep{id: "a", outputs: oneFile}, testStep{id: "b", outputs: oneFile},
		testStep{id: "c", outputs: oneFile}, testStep{id: "d"})
	_, c, id := p.begin()
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	refused(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "d"})), session.StateError, "step_ahead", "finished_step")
	for _, unknown := range []string{"x", "b[0]", "merge:b"} {
		refused(t, errOf(c.GoTo(ctx, GoToArgs{StepID: unknown})), session.ToolError, "unknown_step", "'a', 'b', 'c'")
	}

	r := testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "b"})).Must(t)
	testkit.Equal(t, r.BeginStep.StepID, "b", "reply %s", toJSON(t, r))
	testkit.Equal(t, strings.Join(r.InvalidatedSteps, " "), "b c", "reply %s", toJSON(t, r))
	testkit.Equal(t, r.Stack[0].Step, "b", "reply %s", toJSON(t, r))

	s := p.record(id)
	testkit.Need(t, s.Progress("c") == nil, "record %s", toJSON(t, s.StepProgress))
	testkit.Need(t, s.Progress("b").CompletedAt == nil, "record %s", toJSON(t, s.StepProgress))
	testkit.True(t, s.Progress("a").CompletedAt != nil, "record %s", toJSON(t, s.StepProgress))
	testkit.Need(t, len(s.History) == 1, "history %s", toJSON(t, s.History))
	testkit.Equal(t, s.History[0].To, "b", "history %s", toJSON(t, s.History))
	testkit.Equal(t, s.History[0].From, "c", "history %s", toJSON(t, s.History))
	testkit.Equal(t, s.History[0].Progress[0].Value.Outputs[0].Value.Paths[0], "r.md", "history %s",
		toJSON(t, s.History))
	testkit.Works(t, errOf(os.Stat(filepath.Join(p.root, "r.md"))), "the file is gone")
	// The same outputs finish b again: it is no repetition.
	testkit.Equal(t, stepOf(p.finish(c, `{"outputs":{"report":"r.md"},"step_id":"b"}`).BeginStep), "c", "reply")
	testkit.Equal(t, strings.Join(testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "c"})).Must(t).InvalidatedSteps, " "), "c",
		"to the current step")
}

func TestDefinitionsOfAJobEditedAllDayAreForgotten(t *testing.T) {
	p := simpleProject(t)
	srv := p.open()
	srv.SetMaxKnown(3)
	first := srv.Connect("local")
	p.start(first, "alpha", "main")
	for i := range 10 {
		p.write(".deepwork/jobs/alpha/steps/two.md", fmt.Sprintf("Do two, in way %d.\n", i))
		c := srv.Connect("local")
		p.start(c, "alpha", "main")
		c.Close()
	}

	// A session whose definition is forgotten goes on.
	testkit.Equal(t, p.finish(first, `{"outputs":{"report":"r.md"}}`).BeginStep.Instructions, "Do two, in way 9.\n")
	testkit.Equal(t, p.finish(first, `{"outputs":{"report":"r.md"}}`).Status, replies.WorkflowComplete, "reply")
}

// at opens a server of another machine, as far as the stores are concerned.
func at(place task.Place) func(*Options) { return func(o *Options) { o.Place = &place } }

// An edit counts once: a checkout that has received it, and not yet the next one, does not bring it back.
func TestCheckoutsOfOneJobDoNotFlipASession(t *testing.T) {
	p := newProject(t).alpha("[a, b, c, d, e, f]", testStep{id: "a"}, testStep{id: "b"}, testStep{id: "c"},
		testStep{id: "d"}, testStep{id: "e"}, testStep{id: "f"})
	path := filepath.Join(p.root, ".deepwork", "jobs", "alpha", "job.yml")
	text := string(testkit.Get(os.ReadFile(path)).Must(t))
	red, c, id := p.begin(at(task.Place{MachineID: "aaaaaaaa", Root: "/home/red/p"}))
	blue := p.open(at(task.Place{MachineID: "bbbbbbbb", Root: "/home/blue/p"})).Connect("local")
	for _, move := range []struct {
		c         *Conn
		has, want string // in its job.yml, and of the session
	}{{blue, "v2", "v1"}, {c, "v3", "v3"}, {blue, "v3", "v3"}, {c, "v4", "v4"}, {blue, "v3", "v4"}} {
		testkit.Write(t, path, strings.Replace(text, "Common", move.has, 1))
		p.finish(move.c, `{"outputs":{},"session_id":"`+id+`"}`)
		got, _, _ := strings.Cut(testkit.Get(red.Definition(p.record(id))).Must(t).Job.CommonInfo, " ")
		testkit.Equal(t, strings.Replace(got, "Common", "v1", 1), move.want, "with %s", move.has)
	}
}

// A session that goes on at another machine says which of its files are not there, and does not
// take them for lost. The record has the place where each step's outputs were delivered.
func TestASessionThatMovesToAnotherMachineSaysWhereItsFilesAre(t *testing.T) {
	p := newProject(t).alpha("[one, two, three]", testStep{id: "one", outputs: oneFile},
		testStep{id: "two", outputs: oneFile}, testStep{id: "three", outputs: oneFile})
	p.write("one.md", "1")
	first := task.Place{MachineID: "aaaaaaaa", MachineName: "red", Root: "/home/red/p"}
	second := task.Place{MachineID: "bbbbbbbb", MachineName: "blue", Root: "/home/blue/p"}
	srv, c, id := p.begin(at(first))
	p.finish(c, `{"outputs": {"report": "one.md"}}`)
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).CompletedSteps[0].Machine, "", "on its own machine")
	srv.stop()
	testkit.Must(t, os.Remove(filepath.Join(p.root, "one.md"))) // the other machine does not have it
	srv = p.open(at(second))
	c = srv.Connect("local")
	testkit.Equal(t, srv.Elsewhere(&testkit.Get(srv.Info(ctx, id)).Must(t).Session), "red (aaaaaaaa), in /home/red/p",
		"what a person is told")
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{SessionID: &id})).Must(t).CompletedSteps[0].Machine,
		"red (aaaaaaaa), in /home/red/p")

	p.finish(c, `{"outputs": {"report": "r.md"}}`)
	s := *p.finish(c, `{"outputs": {"report": "r.md"}}`).Summary
	testkit.Contains(t, s, "step 'one' are on the machine red (aaaaaaaa), in /home/red/p.")
	testkit.True(t, !strings.Contains(s, "no longer there") && !strings.Contains(s, "step 'two'"), "summary %q", s)

	var kept struct {
		Place    task.Place `json:"place"`
		Progress map[string]struct {
			Place task.Place `json:"place"`
		} `json:"step_progress"`
	}
	testkit.Must(t, json.Unmarshal([]byte(toJSON(t, p.record(id))), &kept))
	testkit.Equal(t, kept.Place, second, "the record has %+v", kept)
	testkit.Equal(t, kept.Progress["one"].Place, first, "the record has %+v", kept)
	testkit.Equal(t, kept.Progress["three"].Place, second, "the record has %+v", kept)
}

// A checkout on another machine may have another path than the one where the session began: its own files are
// reviewed there, and the session's file is removed there with the session.
func TestACheckoutOfAnotherPathIsReviewed(t *testing.T) {
	p, _, rev, _, id := underReview(t)
	second := p.reopen(rev, at(task.Place{MachineID: "bbbbbbbb", MachineName: "blue", Root: p.root}))
	second.Records().Sessions = began{second.Records().Sessions, "/home/red/p"}
	c := second.Connect("local")
	says(t, p.finish(c, `{"outputs":{"report":"good.md"},"session_id":"`+id+`"}`), replies.NextStep)
	testkit.Must(t, errOf(c.Abort(ctx, AbortArgs{Explanation: "no"})))
	_, _, err := second.Prune(ctx, time.Now().Add(time.Hour), false)
	testkit.Must(t, err)
	testkit.Same(t, testkit.Get(filepath.Glob(filepath.Join(p.root, ".deepwork", "tmp", "*"+id+"*"))).Must(t), nil,
		"what is left of the session")
}

// began is a store whose sessions began in a folder that is not on this machine.
type began struct {
	store.Sessions
	root string
}

func (b began) ListSessions(ctx context.Context, q store.SessionQuery) ([]store.Session, error) {
	all, err := b.Sessions.ListSessions(ctx, q)
	for i := range all {
		all[i].Root = b.root
	}
	return all, err
}

func (b began) ReadSession(ctx context.Context, id string, known int64) (*store.SessionRecord, error) {
	r, err := b.Sessions.ReadSession(ctx, id, known)
	if r != nil {
		r.Root = b.root
	}
	return r, err
}

// An edit of the job that removes or weakens reviews takes effect, and is recorded; in a pinned session it
// does not take effect.
func TestAnEditOfTheJobDoesNotWeakenAPinnedSession(t *testing.T) {
	strict := "[{run_each: step, quality_criteria: {Good: \"Is it good?\", Safe: \"Is it safe?\"}, " +
		"additional_review_guidance: \"Look twice\"}]"
	for edited, weaker := range map[string]string{
		"[]": "step 'one', review of step: it is gone",
		"[{run_each: report, quality_criteria: {New: \"Is it new?\"}}, " + strict[1:]: "",
	} {
		for _, pin := range []bool{false, true} {
			p := newProject(t).reviewedJob(strict)
			_, rev, c, id := p.reviewed(Reviewing{
				External:    true,
				Reviewer:    "[\"r\"]",
				MaxTries:    3,
				ReplyWithin: time.Minute,
				Pin:         pin,
			})
			rev.set("say", `{"passed": true, "feedback": "fine"}`)
			p.reviewedJob(edited)
			r := p.finish(c, `{"outputs":{"report":"good.md"}}`)
			says(t, r, replies.NextStep)
			s := p.record(id)
			if weaker == "" || pin {
				testkit.Same(t, s.Weakened, nil, "pin %t: recorded", pin)
			} else {
				testkit.Need(t, len(s.Weakened) == 1, "recorded %s", toJSON(t, s.Weakened))
				testkit.Equal(t, s.Weakened[0].Step, "one", "recorded %s", toJSON(t, s.Weakened))
				testkit.Need(t, len(s.Weakened[0].What) == 1, "recorded %s", toJSON(t, s.Weakened))
				testkit.Contains(t, s.Weakened[0].What[0], weaker, "recorded %s", toJSON(t, s.Weakened))
			}

			if pin && weaker != "" {
				testkit.Equal(t, len(s.Progress("one").Newest().Verdicts[0].Criteria), 2, "criteria that were judged")
				testkit.Contains(t, toJSON(t, r.Notice), weaker)
			}
		}
	}
}

func TestAStepThatIsTakenOutIsRecorded(t *testing.T) {
	p := newProject(t)
	job := func(entries string) {
		p.alpha(entries, testStep{id: "zero"}, testStep{id: "one", outputs: oneFile, reviews: reviewedStep},
			testStep{id: "two"})
	}
	job("[zero, one, two]")
	srv, rev, c, id := p.reviewed()
	job("[zero, two]")
	testkit.Equal(t, p.finish(c, `{"outputs":{}}`).BeginStep.StepID, "two", "reply")
	testkit.Equal(t, strings.Count(toJSON(t, p.record(id).Weakened),
		"step 'one', which has reviews, is gone from what is still to do"), 1, "recorded")

	rev.how.Store(&Reviewing{External: true, MaxTries: 3, ReplyWithin: time.Minute, Pin: true})
	for _, edited := range []string{"[zero, two]", "[one, zero, two]", "[[zero, one], two]"} {
		job("[zero, one, two]")
		c := srv.Connect("local")
		p.start(c, "alpha", "main")
		job(edited)
		testkit.Equal(t, p.finish(c, `{"outputs":{}}`).BeginStep.StepID, "one", "pinned: reply")
	}
}

// An edit of the config that replaces or removes the reviewer, or lets agents override again, takes
// effect and is recorded; a pinned session goes on with the reviewer that it began with, or not at all.
func TestAnEditOfTheConfigDoesNotWeakenAPinnedSession(t *testing.T) {
	for _, pin := range []bool{false, true} {
		p, _, rev, c, id := underReview(t, Reviewing{
			External:    true,
			Reviewer:    `["r"]`,
			MaxTries:    3,
			ReplyWithin: time.Minute,
			Override:    config.OverrideHuman,
			Pin:         pin,
		})

		asked := ""
		edited := Reviewing{MaxTries: 3, ReplyWithin: time.Minute, Override: config.OverrideAgent,
			Earlier: func(name string) (*gate.Reviewer, error) {
				asked = name
				return nil, errors.New("it is not approved")
			}}
		rev.how.Store(&edited)
		if !pin {
			says(t, p.finish(c, `{"outputs":{"report":"bad.md"},"quality_review_override_reason":"It is fine"}`),
				replies.NextStep)
			testkit.ContainsAll(t, toJSON(t, p.record(id).Weakened),
				[]string{"and is self", "quality_gate.override was human, and is agent"})
			continue
		}

		refused(t, refusal(t, c, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"It is fine"}`),
			session.StateError, "override_needs_person")
		refused(t, refusal(t, c, `{"outputs":{"report":"good.md"}}`), session.StateError, "pinned_reviewer_gone",
			"it is not approved", `["r"]`)
		edited.Earlier = func(string) (*gate.Reviewer, error) {
			return &gate.Reviewer{Command: []string{os.Args[0], "reviewer", rev.dir}}, nil
		}
		says(t, p.finish(c, `{"outputs":{"report":"good.md"}}`), replies.NextStep)
		s := p.record(id)
		kind := s.Progress("one").FinishedWith().Why()[0].Kind
		testkit.Equal(t, fmt.Sprint(asked, rev.calls(), kind, len(s.Weakened)),
			fmt.Sprint(`["r"]`, 1, judging.ByReviewer, 0), "the reviewer, its calls, the evidence and what is weaker")
	}
}

// A workflow that a pinned session calls is pinned to what that began with, too.
func TestTheWorkflowOfAStepIsPinnedWithItsCaller(t *testing.T) {
	p := newProject(t)
	p.job("alpha", []testStep{{id: "zero"}, {id: "one"}},
		map[string]string{"main": "[zero, {workflow: rest}]", "rest": "[one]"})
	_, rev, c, _ := p.reviewed(Reviewing{External: true, Reviewer: `["r"]`, Override: config.OverrideHuman, Pin: true})
	rev.how.Store(&Reviewing{Override: config.OverrideAgent})
	got := p.record(p.finish(c, `{"outputs":{}}`).BeginStep.SessionID).Pinned
	testkit.Equal(t, fmt.Sprint(got.Reviewer, got.Override, got.Pin), `["r"]humantrue`)
}

// The evidence says whether the agent was given the criteria for exactly what it handed in.
func TestEvidenceOfSelfReviews(t *testing.T) {
	for name, test := range map[string]struct {
		between func(p *project)
		want    judging.Kind
	}{
		"unchanged":       {func(*project) {}, judging.BySelf},
		"changed outputs": {func(p *project) { p.write("good.md", "something else") }, judging.ByReason},
		"changed criteria": {func(p *project) {
			p.reviewedJob(strings.Replace(reviewedStep, "Is it good?", "Is it bad?", 1))
		}, judging.ByReason},
	} {
		p := newProject(t).reviewedJob(reviewedStep)
		_, c, id := p.begin()
		p.finish(c, `{"outputs":{"report":"good.md"}}`)
		test.between(p)
		by := session.WithCaller(ctx, session.Caller{Identity: "local", Channel: session.ChannelHTTP})
		testkit.Must(t, errOf(c.Finish(by,
			finishArgs(t, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"All pass"}`))))
		e := p.record(id).Progress("one").FinishedWith()
		testkit.Need(t, e != nil, "%s: %s", name, toJSON(t, e))
		testkit.Equal(t, e.Why()[0].Kind, test.want)
		testkit.Equal(t, e.Why()[0].Channel, "http")
		testkit.Equal(t, e.Why()[0].Feedback, "All pass")
		testkit.Need(t, len(e.Files) == 1, "%s: %s", name, toJSON(t, e))
		testkit.True(t, e.Files[0].SHA256 != "", "%s: %s", name, toJSON(t, e))
		testkit.True(t, e.Content != "", "%s: %s", name, toJSON(t, e))
	}

	// A caller with the right of a person is one, where only people may.
	p := newProject(t).reviewedJob(reviewedStep)
	c := p.open(reviewing(&Reviewing{Override: config.OverrideHuman})).Connect("ann")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	by := func(who session.Caller) error {
		return errOf(c.Finish(session.WithCaller(ctx, who),
			finishArgs(t, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"I read it"}`)))
	}
	for _, who := range []session.Caller{session.LocalCaller("stdio"),
		{Identity: "ann", Rights: session.RightAgents | session.RightMerge, Channel: "http"}} {
		refused(t, by(who), session.StateError, "override_needs_person")
	}
	testkit.Must(t, by(session.Caller{Identity: "ann", Rights: session.RightPerson, Channel: "http"}))
	e := p.record(id).Progress("one").FinishedWith()
	testkit.Equal(t, e.Why()[0].Kind, judging.ByOverride, "evidence %s", toJSON(t, e))
	testkit.Equal(t, e.Why()[0].By, "ann", "evidence %s", toJSON(t, e))
	testkit.Equal(t, e.Why()[0].Channel, "http", "evidence %s", toJSON(t, e))
}

func TestAPersonCannotOverrideInASessionThatIsPinnedToNobody(t *testing.T) {
	for _, pin := range []bool{false, true} {
		p, srv, _, _, id := underReview(t,
			Reviewing{External: true, MaxTries: 3, ReplyWithin: time.Minute, Override: config.OverrideNever, Pin: pin})
		srv.stop()
		err := p.command(Reviewing{External: true, Override: config.OverrideHuman}).OverrideFor(ctx, id, "one",
			judging.Override{Identity: "local", Channel: session.ChannelTerminal, Reason: "I looked at it"})
		if pin {
			refused(t, err, session.StateError, "override_needs_person", "not even a person")
		} else {
			testkit.Works(t, err)
		}
		testkit.Equal(t, p.record(id).Progress("one").HasGrant(), !pin, "pinned %t: overridden", pin)
	}
}

func (p *project) git(args ...string) string {
	p.t.Helper()
	return testkit.Git(p.t, p.root, args...)
}

// branching sets the mode of branches, which is in effect without a restart.
func (p *project) branching(mode string) {
	p.write(".deepwork/config.yml", "version: \"1.0\"\ngit: {branch: "+mode+"}\n")
}

func TestGitBranchModes(t *testing.T) {
	p := simpleProject(t)
	p.branching("create")
	c := p.open().Connect("local")
	begin := func(instance string) (*replies.Start, error) {
		return c.Start(ctx, StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", InstanceID: &instance})
	}

	// branch_status says what to do with the name; get_step says the same.
	status := func(want replies.BranchStatus) {
		t.Helper()
		b := testkit.Get(begin("i")).Must(t).BeginStep
		testkit.Equal(t, b.BranchStatus, want)
		testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{SessionID: &b.SessionID})).Must(t).BeginStep.BranchStatus,
			want, "get_step")
	}
	p.branching("name")
	status(replies.BranchOutsideGit)
	p.branching("create")
	refused(t, errOf(begin("i")), session.StateError, "not_a_git_repository", "git init", "git.branch")
	p.git("init", "-q")
	p.branching("name")
	status(replies.BranchNamed)
	p.branching("create")
	p.write("tracked.txt", "1")
	p.git("add", "tracked.txt")
	p.git("commit", "-qm", "first")
	for _, want := range []string{"deepwork/alpha-main-i", "deepwork/alpha-main-i-2", "deepwork/alpha-main-i-3"} {
		b := testkit.Get(begin("i")).Must(t).BeginStep
		testkit.True(t, b.BranchName == want && b.BranchStatus == replies.BranchCreated, "create: %s, want %s",
			toJSON(t, b), want)
		p.git("rev-parse", "--verify", "refs/heads/"+want)
	}
	testkit.Equal(t, p.git("symbolic-ref", "--short", "HEAD"), "main", "the branch after create")
	p.branching("checkout")
	testkit.WriteAll(t, p.root, map[string]string{"tracked.txt": "2", "untracked.txt": "never matters"})

	err := errOf(begin("i"))
	refused(t, err, session.StateError, "dirty_tree", "tracked.txt")
	testkit.True(t, !strings.Contains(err.Error(), "untracked"), "an untracked file counts: %v", err)

	p.git("checkout", "-q", "tracked.txt")
	b := testkit.Get(begin("i")).Must(t).BeginStep
	testkit.True(t, b.BranchName == "deepwork/alpha-main-i-4" && b.BranchStatus == replies.BranchCheckedOut,
		"checkout: %s", toJSON(t, b))
	testkit.Equal(t, p.git("rev-parse", "--abbrev-ref", "HEAD", "@{-1}"), "deepwork/alpha-main-i-4\nmain",
		"what is checked out, and what git checkout - goes to")

	p.write(".git/MERGE_HEAD", "x")
	refused(t, errOf(begin("i")), session.StateError, "git_failed", "a git merge is in progress",
		"no session was started")
	testkit.Must(t, os.Remove(filepath.Join(p.root, ".git", "MERGE_HEAD")))
	p.git("update-ref", "refs/heads/deepwork/alpha-main-j/x", "HEAD") // no branch can be above it
	refused(t, errOf(begin("j")), session.StateError, "git_failed", "no session was started")
	testkit.Equal(t, len(testkit.Get(p.open().List(ctx)).Must(t)), 6, "sessions")
}

// Sessions of one name that two servers begin at the same moment get a branch each.
func TestBranchesOfOneName(t *testing.T) {
	p := simpleProject(t)
	p.git("init", "-q")
	p.git("commit", "-qm", "first", "--allow-empty")
	p.branching("create")
	names := make([]string, 8)
	var wg sync.WaitGroup
	for i := range names {
		srv := p.open()
		wg.Go(func() {
			r, err := srv.Connect("local").Start(ctx,
				StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", InstanceID: new("i")})
			testkit.Works(t, err)
			names[i] = p.record(r.BeginStep.SessionID).BranchName
			testkit.Equal(t, r.BeginStep.BranchName, names[i], "the branch in the record")
		})
	}
	wg.Wait()
	made := strings.Fields(p.git("for-each-ref", "--format=%(refname:short)", "refs/heads/deepwork"))
	slices.Sort(names)
	slices.Sort(made)
	testkit.Same(t, names, made, "the branches of the sessions")
	testkit.Equal(t, len(slices.Compact(made)), 8, "branches")
}

// A branch that was not made when its session began, though that is stored, is made by the session's next call
// at any server, and no other session gets its name.
func TestABranchThatIsDue(t *testing.T) {
	for _, mode := range []string{"create", "checkout"} {
		t.Run(mode, func(t *testing.T) {
			p := simpleProject(t)
			p.git("init", "-q")
			p.git("commit", "-qm", "first", "--allow-empty")
			p.branching(mode)
			const name = "deepwork/alpha-main-i"
			srv := p.open()
			fails := func() { p.git("update-ref", "refs/heads/"+name+"/x", "HEAD") } // no branch can be above it
			srv.makeFaulty().during.Store(&fails)
			begin := StartArgs{Goal: "g", JobName: "alpha", WorkflowName: "main", InstanceID: new("i")}
			err := errOf(srv.Connect("local").Start(ctx, begin))
			refused(t, err, session.StateError, "git_failed", "has begun", name, "get_step")
			e, _ := errors.AsType[*session.Error](err)
			id, _ := e.Details["session_id"].(string)
			c, call := p.open().Connect("local"), `{"outputs":{"report":"r.md"},"session_id":"`+id+`"}`
			refused(t, refusal(t, c, call), session.StateError, "git_failed", "has begun", name)
			p.git("update-ref", "-d", "refs/heads/"+name+"/x")
			testkit.Equal(t, testkit.Get(p.open().Connect("local").Start(ctx, begin)).Must(t).BeginStep.BranchName,
				name+"-2", "another session")
			testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{SessionID: &id})).Must(t).BeginStep.BranchName, name,
				"get_step")
			p.git("rev-parse", "--verify", "refs/heads/"+name)
			testkit.Equal(t, p.git("symbolic-ref", "--short", "HEAD"),
				map[string]string{"create": "main", "checkout": name}[mode])

			// Once a transition has recorded that it was made, it is the user's.
			p.finish(c, call)
			testkit.True(t, !p.record(id).BranchDue, "the record says that the branch is due")
			p.git("checkout", "-q", "-B", "main")
			p.git("branch", "-D", name)
			testkit.Must(t, errOf(p.open().Connect("local").Step(ctx, StepArgs{SessionID: &id})))
			testkit.Equal(t, p.git("branch", "--list", name), "", "a branch that the user deleted was made again")
		})
	}
}
