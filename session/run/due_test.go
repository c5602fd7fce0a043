package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/replies"
	"deepwork/session/store"
	"deepwork/session/why"
)

const root, child = "12345678", "87654321"

// A called Workplace has the states of sessions, and the members of their current entries; without, a session is at one
// step that is not finished.
type called struct {
	Workplace
	states   map[string]*machine.State
	members  map[string][]replies.Member
	started  []Started
	changed  string
	finish   func() (*replies.Finish, error)
	isolated string
}

func (w *called) State(_ context.Context, id string) (*machine.State, error) {
	if s := w.states[id]; s != nil {
		return s, nil
	}
	return nil, session.NotNow(codes.UnknownSession, "There is no session %s.", id)
}

func (w *called) Step(_ context.Context, id string, _ *string) (*replies.Step, error) {
	members := w.members[id]
	if members == nil {
		members = []replies.Member{{StepID: w.states[id].CurrentStepID, State: "started"}}
	}
	return &replies.Step{Members: members}, nil
}

func (w *called) Started(context.Context, map[string]bool) ([]Started, error) { return w.started, nil }
func (w *called) Changed(context.Context, *machine.State, string) string      { return w.changed }

func (w *called) Finish(context.Context, string, string, *judging.Submission) (*replies.Finish, error) {
	return w.finish()
}

func (w *called) Isolate(_ context.Context, id, step, folder string) error {
	w.isolated = strings.Join([]string{id, step, folder}, " ")
	return nil
}

// asksPerson returns a submission that waits for a person.
func asksPerson() []*judging.Submission {
	return []*judging.Submission{(&judging.Submission{Content: "d"}).To(judging.ByPerson, nil, time.Now())}
}

// asText returns all that a leader found to do.
func asText(d *leader, now dueWork, err error) string {
	var all []string
	for _, j := range now.steps {
		text := strings.TrimPrefix(j.session+"/"+j.step, root+"/")
		if j.refusal != "" {
			text += " (" + j.refusal + ")"
		}
		if len(j.ended) > 0 {
			text += fmt.Sprintf(" after %d workflows", len(j.ended))
		}
		all = append(all, text)
	}
	for _, w := range now.waits {
		all = append(all, fmt.Sprintf("waits for %s at %s, %d tries", w.Kind, w.StepID, w.Tries))
	}
	if !now.recheckAt.IsZero() {
		within := []time.Duration{time.Second, lookAgain, time.Minute, time.Hour}
		i := slices.IndexFunc(within, func(d time.Duration) bool { return time.Until(now.recheckAt) <= d })
		all = append(all, fmt.Sprint("again within ", within[i]))
	}
	if now.moved {
		all = append(all, "moved")
	}
	for p, w := range d.failed {
		all = append(all, p.step+" failed: "+w.Sentence())
	}
	for p, a := range d.agents {
		if a.timer != nil && a.timer.Stop() {
			all = append(all, p.step+" is to end")
		}
	}
	if err != nil {
		all = append(all, "error: "+err.Error())
	}
	return strings.Join(all, "; ")
}

// What the end of an agent means for its step, and for the run.
func TestTheEndOfAnAgent(t *testing.T) {
	p := stepRef{root, "a"}
	for name, c := range map[string]struct {
		x    agent
		want string // failed, cut, trouble, told
	}{
		"it did its work":       {agent{x: &task.Execution{ID: "x", State: task.Completed}}, "[] map[] <nil> "},
		"it was cut short":      {agent{x: &task.Execution{ID: "x", State: task.Interrupted}}, "[] map[x:true] <nil> "},
		"it could not begin":    {agent{err: errors.New("no such program")}, "[no such program] map[] <nil> "},
		"it was refused":        {agent{err: session.NotNow(codes.BadPath, "Not here.")}, "[Not here.] map[] <nil> "},
		"the session has moved": {agent{err: session.NotNow(codes.StepFinished, "Too late.")}, "[] map[] <nil> "},
		"it may pass": {agent{err: fmt.Errorf("reading: %w", store.ErrUnavailable)},
			"[] map[] reading: " + store.ErrUnavailable.Error() + " "},
		"a merge has conflicts": {agent{mergeAdvice: "a.md conflicts", called: true}, "[] map[] <nil> a.md conflicts"},
	} {
		d := newLeader(&attempt.Lead{Run: board.Run{Parallel: 1}}, nil, 1)
		c.x.stepRef, c.x.timer = p, time.AfterFunc(time.Hour, func() {})
		d.agents[p] = &c.x
		testkit.Works(t, d.start(t.Context(), []job{{stepRef: stepRef{root, "b"}}}), "more than may run at once")
		d.end(&c.x)
		var said []string
		for _, w := range d.failed {
			said = append(said, w.Said)
		}
		testkit.Equal(t, fmt.Sprint(said, " ", d.cut, " ", d.agentError, " ",
			d.unmerged[p]), c.want, "%s", name)
		testkit.True(t, !c.x.timer.Stop(), "%s: %+v", name, d)
		testkit.Need(t, len(d.agents) == 0, "%s: %+v", name, d)
		testkit.True(t, d.silent[p] != c.x.called, "%s: %+v", name, d)
	}
}

// What a leader does next, for each state in which a step can be.
func TestWhatIsDue(t *testing.T) {
	lead := aLead(t)
	begun := time.Now()
	asked := func(answer ...*judging.Verdict) *machine.StepProgress {
		u := new(judging.Submission).To(judging.ByPerson, nil, begun)
		if answer != nil {
			u = u.To("", answer, begun)
		}
		return &machine.StepProgress{StepID: "a", Submissions: []*judging.Submission{u}}
	}
	passed := asked(&judging.Verdict{Kind: judging.ByPerson, Passed: true})
	notPassed := asked(&judging.Verdict{Kind: judging.ByPerson})
	finish := func(r replies.Finish, err error) func(*leader, *called) {
		return func(_ *leader, w *called) { w.finish = func() (*replies.Finish, error) { return &r, err } }
	}
	calls := &machine.StepProgress{StepID: "a", Child: child}
	begins := func(status ...machine.SessionStatus) func(*leader, *called) {
		return func(d *leader, w *called) {
			for i, s := range status {
				id := fmt.Sprint(child[:7], i+1)
				w.states[id] = &machine.State{SessionID: id, Status: s, CurrentStepID: "nested"}
				d.attemptLead.Run.Children = map[string][]string{root +
					"/a": append(d.attemptLead.Run.Children[root+"/a"], id)}
			}
		}
	}
	meanwhile := func(status machine.SessionStatus) func(*leader, *called) {
		return func(d *leader, w *called) {
			begins(status)(d, w)
			w.states[root] = &machine.State{Revision: 2}
		}
	}
	before := func(all ...task.Execution) func(*leader, *called) {
		return func(d *leader, _ *called) { d.before[stepRef{root, "a"}] = all }
	}
	limited := func(wait time.Duration) func(*leader, *called) {
		return before(task.Execution{
			State:        task.Failed,
			CreatedAt:    begun,
			EndedAt:      &begun,
			LimitedUntil: new(begun.Add(wait)),
		})
	}

	checks := &machine.StepProgress{
		StepID: "a",
		Submissions: slices.Repeat([]*judging.Submission{
			new(judging.Submission).To(judging.ByProgram, nil, begun).To("",
				[]*judging.Verdict{{Kind: judging.ByProgram, Feedback: "no",
					Check: &judging.CheckRun{Command: []string{"make"}}}},
				lead.Since.Add(1)),
		}, maxFailedChecks),
	}
	for name, c := range map[string]struct {
		members string // each with its state, if it is not started
		of      *machine.StepProgress
		agent   string // the step that has one
		set     func(*leader, *called)
		want    string
	}{
		"a step":                      {"a", nil, "", nil, "a"},
		"steps of a group":            {"a:completed b c", nil, "b", nil, "c"},
		"an agent whose step is over": {"a", nil, "b", nil, "a; b is to end"},
		"what failed": {"a b", nil, "", func(d *leader, _ *called) {
			d.failed[stepRef{root, "a"}] = why.Why{Kind: why.Other, Said: "no"}
		}, "b; a failed: No."},
		"what failed and a person finished": {"a:completed b", nil, "", func(d *leader, _ *called) {
			d.failed[stepRef{root, "a"}] = why.Why{Kind: why.Other, Said: "no"}
		}, "b"},
		"a person is asked": {"a", asked(), "a", nil,
			"waits for person at a, 0 tries; again within 10s; a is to end"},
		"they do not pass it": {"a", notPassed, "", nil, "a"},
		"while its agent ends": {"a", notPassed, "a", func(d *leader, _ *called) {
			d.agents[stepRef{root, "a"}].handedIn()
		}, ""},
		"they pass it": {"a", passed, "",
			finish(replies.Finish{Status: replies.NextStep}, nil), "moved"},
		"it is refused": {"a", passed, "",
			finish(replies.Finish{}, session.NotNow(codes.StepFinished, "A file is gone.")),
			"a (StateError: A file is gone.)"},
		"it cannot be kept": {"a", passed, "",
			finish(replies.Finish{}, errors.New("disk full")), "error: disk full"},
		"the store is away": {"a", passed, "",
			finish(replies.Finish{},
				session.NotNow(codes.StoreUnavailable, "Again.").Because(store.ErrUnavailable)),
			"error: StateError: Again."},
		"its checks fail": {"a", passed, "",
			finish(replies.Finish{Status: replies.NeedsWork, Feedback: new("It does not build.")}, nil),
			"a (It does not build.)"},
		"its checks run": {"a", passed, "",
			finish(replies.Finish{
				Status:   replies.NeedsWork,
				Feedback: new("Checks running: tests"),
				Waits:    &session.Waiting{Code: codes.ReviewRunning},
			}, nil),
			"again within 1s"},
		"its files changed": {"a", asked(), "", func(_ *leader, w *called) {
			w.changed = "a.md has changed"
		}, "a (a.md has changed)"},
		"the turn of a merge":        {"merge:x[1] merge:x[2]", nil, "", nil, "merge:x[1]"},
		"after an item that is open": {"x[0] merge:x[1]", nil, "x[0]", nil, ""},
		"a merge with conflicts": {"x[0] merge:x[1]", nil, "x[0]", func(d *leader, _ *called) {
			d.unmerged[stepRef{root, "merge:x[1]"}] = "it conflicts"
		}, "merge:x[1] (it conflicts)"},
		"a workflow that an agent left": {"a", nil, "", begins(machine.Active), child[:7] + "1/nested"},
		"one that has ended": {"a", nil, "", begins(machine.Completed, machine.Aborted),
			"a after 2 workflows"},
		"one that was pruned": {"a", nil, "", func(d *leader, _ *called) {
			d.attemptLead.Run.Children = map[string][]string{root + "/a": {"gone"}}
		}, "a"},
		"the workflow of a step":         {"a", calls, "", begins(machine.Active), child[:7] + "1/nested"},
		"it ends while the leader looks": {"a b", calls, "b", meanwhile(machine.Completed), "moved"},
		"it is aborted meanwhile":        {"a", calls, "", meanwhile(machine.Aborted), "moved"},
		"it is aborted": {"a b", calls, "", begins(machine.Aborted),
			"b; a failed: Its workflow was aborted. Begin the step again on the page of session 12345678, then " +
				"resume the run."},
		"it is complete, and a person " +
			"must act": {"a b", calls, "",
			finish(replies.Finish{Status: replies.NeedsWork, Feedback: new("The last round is over.")}, nil),
			"b; a failed: The last round is over."},
		"it is complete, and a person is asked": {"a b", calls, "", finish(replies.Finish{
			Status: replies.NeedsWork,
			Waits:  &session.Waiting{Code: codes.PersonAwaited},
		}, nil), "moved"},
		"they have not answered": {"a", &machine.StepProgress{StepID: "a", Child: child, Submissions: asksPerson()}, "",
			nil, "waits for person at a, 0 tries; again within 10s"},
		"they have let it go on": {"a", calls, "",
			finish(replies.Finish{Status: replies.NextStep}, nil), "moved"},
		"its outputs are lost": {"a", calls, "",
			finish(replies.Finish{}, session.NotNow(codes.InstructionsLost, "No.")), "a failed: No."},
		"it is complete, and the store is away": {"a", calls, "", finish(replies.Finish{}, store.ErrUnavailable),
			"error: " + store.ErrUnavailable.Error()},
		"it is gone": {"a b", calls, "", func(_ *leader, w *called) {
			delete(w.states, child)
		},
			"b; a failed: The session 87654321 of its workflow is gone: it was pruned or removed. Begin the step " +
				"again on the page of session 12345678, then resume the run."},
		"a limit whose end is known": {"a", nil, "", limited(time.Hour),
			"waits for limit at a, 0 tries; again within 1h0m0s"},
		"a limit whose end is not known": {"a", nil, "", limited(0),
			"waits for limit at a, 1 tries; again within 1m0s"},
		"a limit that is over": {"a", nil, "", limited(-time.Hour),
			"waits for limit at a, 1 tries; again within 1m0s"},
		"agents that finish nothing": {"a b", nil, "",
			before(slices.Repeat([]task.Execution{{State: task.Completed, CreatedAt: begun}}, 2)...),
			"b; a failed: 2 agents ended without finishing it."},
		"checks that fail again and again": {"a", checks, "", nil,
			"a failed: Step a: check `make` failed ten times: no."},
		"while its agent works": {"a", checks, "a", nil,
			"a failed: Step a: check `make` failed ten times: no.; a is to end"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &machine.State{SessionID: root, Revision: 1, Status: machine.Active, CurrentStepID: "a"}
			if c.of != nil {
				s.StepProgress = s.StepProgress.Set("a", c.of)
			}
			w := &called{
				states:  map[string]*machine.State{root: s, child: {Status: machine.Completed}},
				members: map[string][]replies.Member{},
			}
			for m := range strings.FieldsSeq(c.members) {
				id, completed := strings.CutSuffix(m, ":completed")
				w.members[root] = append(w.members[root],
					replies.Member{StepID: id, State: map[bool]string{true: "completed", false: "started"}[completed]})
			}

			lead.Run.SessionID, lead.Run.Children = root, nil
			d := newLeader(lead, w, 1)
			if c.agent != "" {
				x := &agent{stepRef: stepRef{root, c.agent}}
				x.cancel = func() { x.timer = time.NewTimer(time.Hour) }
				d.agents[x.stepRef] = x
			}
			if c.set != nil {
				c.set(d, w)
			}
			now, err := d.due(t.Context(), s)
			testkit.Equal(t, asText(d, now, err), c.want)
		})
	}

	// What agents start is recorded once, and found again by a leader that goes on, also in a workflow that is a step.
	w := &called{
		states: map[string]*machine.State{child: {
			SessionID:     child,
			CurrentStepID: "b",
			StepProgress:  machine.State{}.StepProgress.Set("b", &machine.StepProgress{Child: "called"}),
		}},
		started: []Started{
			{SessionID: child, Parent: root, Session: root, Step: "a"}, {
				SessionID: "found",
				Parent:    root,
				Session:   root,
				Step:      "a",
			}, {SessionID: "in it", Parent: "called", Session: "called", Step: "c"},
			{SessionID: "nested", Parent: child, Session: root, Step: "a"},
			{SessionID: "of others", Parent: "x", Session: "x", Step: "a"},
		},
	}
	lead.Run.Children = nil
	d := newLeader(lead, w, 1)
	for range 2 {
		testkit.Works(t, d.adopt(t.Context(), stepRef{root, "a"}, root, child))
		testkit.Works(t, d.find(t.Context()))
	}
	testkit.Same(t, lead.Run.Children,
		map[string][]string{root + "/a": {child, "found"}, child + "/b": {"nested"}, "called/c": {"in it"}})

	// An item gets a worktree before its agents, and is merged and tidied away after them.
	s := &machine.State{SessionID: root}
	for id, folder := range map[string]string{"port[0]": ".", "fix[0]": "x", "merge:port[0]": "x"} {
		s.StepProgress = s.StepProgress.Set(id, &machine.StepProgress{StepID: id, Folder: folder, StartedAt: begun})
	}

	at := func(step string) stepRef { return stepRef{root, step} }
	d.unmerged[at("merge:port[0]")] = "it conflicts"
	testkit.Need(t, d.itemWork(at("none"), s) == nil, "work of an agent is done without one")
	testkit.Need(t, d.itemWork(at("fix[0]"), s) == nil, "work of an agent is done without one")
	testkit.True(t, d.itemWork(at("merge:port[0]"), s) == nil, "work of an agent is done without one")
	testkit.True(t, outdated(d.start(t.Context(), []job{{stepRef: at("port[1]"), state: s}})),
		"an item that has begun since the session was read has an agent already")
	testkit.Equal(t, testkit.Get(d.itemWork(at("port[0]"), s)(t.Context())).Must(t), "")

	folder := strings.TrimPrefix(w.isolated, root+" port[0] ")
	testkit.Git(t, folder, "config", "user.name", "ann")
	testkit.Git(t, folder, "config", "user.email", "ann@example.com")
	testkit.Write(t, filepath.Join(folder, "item.md"), "made")
	s.Progress("merge:port[0]").Folder = folder
	delete(d.unmerged, at("merge:port[0]"))
	w.finish = func() (*replies.Finish, error) { return nil, errors.New("not now") }
	merge := d.itemWork(at("merge:port[0]"), s)
	testkit.Fails(t, testkit.Get(merge(t.Context())).Err(), "not now")

	testkit.Get(os.Stat(folder)).Must(t)
	w.finish = func() (*replies.Finish, error) { return new(replies.Finish), nil }
	testkit.Equal(t, testkit.Get(merge(t.Context())).Must(t), "")
	testkit.FailsWith(t, testkit.Get(os.Stat(folder)).Err(), os.ErrNotExist)
	testkit.Get(os.Stat(filepath.Join(lead.Attempt.Workspace, "item.md"))).Must(t)
}

// Why a step is not finished is told to its next agent, and to people.
func TestWhyAStepIsNotFinished(t *testing.T) {
	step := &replies.StepInfo{
		StepID:    "draft",
		SessionID: "0123abcd",
		ExpectedOutputs: []replies.ExpectedOutput{{Name: "doc", Type: "file", Required: true},
			{Name: "notes", Type: "string"}},
	}

	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	failed := func(by judging.Kind, said ...string) *machine.StepProgress {
		all := []*judging.Verdict{{Kind: by, Passed: true, Feedback: "fine"}}
		for _, s := range said {
			v := &judging.Verdict{Kind: by, By: "ada", RunEach: "tests", Feedback: s}
			if by == judging.ByProgram {
				v.Check = &judging.CheckRun{Command: []string{"make", "test"}}
			}
			all = append(all, v)
		}
		u := new(judging.Submission).To(by, nil, at.Add(-1)).To("", all, at)
		return &machine.StepProgress{StepID: "draft", Submissions: []*judging.Submission{u}}
	}
	person, again := failed(judging.ByPerson, " Too long. "), failed(judging.ByPerson, " Too long. ")
	again.Submissions[0].Told = true
	reviewed := failed(judging.ByReviewer, "x")
	hung := new(judging.Submission).To(judging.ByReviewer, nil, at).Ended(&judging.Void{Why: "it hung"}, at)
	void := &machine.StepProgress{StepID: "draft", Submissions: []*judging.Submission{hung}}
	for name, c := range map[string]struct {
		of           *machine.StepProgress
		told         string
		agent, human string
	}{
		"told": {person, "It hung.", "It hung.",
			"Step draft: a person (ada) did not pass its outputs: Too long."},
		"nothing": {nil, "",
			`finished_step has not accepted it yet. It expects the outputs "doc" (file), "notes" (string, optional).`,
			""},
		"void": {void, "",
			`finished_step has not accepted it yet. It expects the outputs "doc" (file), "notes" (string, optional).`,
			""},
		"checks": {failed(judging.ByProgram, " one ", "two"), "",
			"its checks failed.\n\nCheck 'tests' (make test): one\n\nCheck 'tests' (make test): two",
			"Step draft: check `make test` failed: one."},
		"review": {failed(judging.ByReviewer, "one", " two"), "", "its last review did not pass.\n\none\n\ntwo",
			"Step draft: its review failed: one."},
		"person": {person, "", "a person looked at its outputs, and does not pass them. The same outputs are not " +
			"shown to them again: change them.\n\nToo long.",
			"Step draft: a person (ada) did not pass its outputs: Too long."},
		"same again": {again, "", "a person looked at its outputs, and does not pass them. The same outputs are not " +
			"shown to them again: change them.\n\nToo long.",
			"Step draft: a person (ada) did not pass its outputs: Too long."},
	} {
		s := &machine.State{}
		if c.of != nil {
			s.StepProgress = s.StepProgress.Set("draft", c.of)
		}
		testkit.Equal(t, missing(step, s, c.told), c.agent, "%s", name)
		testkit.Equal(t, c.of.Why().Sentence(), c.human, "%s", name)
	}
	p := failed(judging.ByProgram, "no")
	for n := 1; n <= maxFailedChecks; n++ {
		testkit.Equal(t, checksFailed(p, at.Add(-1)).Kind != "", n == maxFailedChecks, "after %d", n)
		testkit.Equal(t, checksFailed(p, at).Kind, "", "of before")
		p.Submissions = append(p.Submissions, p.Submissions[0])
	}
	p.CompletedAt = &at
	testkit.True(t, checksFailed(p, at.Add(-1)).Kind == "" && checksFailed(nil, at).Kind == "",
		"a step that is done, or not begun, is given up")

	for _, c := range []struct {
		of           *machine.StepProgress
		began, ended time.Duration
		want         bool
	}{{person, -2, -1, true}, {person, -2, 1, true}, {person, 1, 2, false}, {reviewed, -2, -1, true},
		{reviewed, -2, 1, false}, {void, -2, -1, false}, {nil, -2, -1, false}} {
		x := &task.Execution{CreatedAt: at.Add(c.began), EndedAt: new(at.Add(c.ended))}
		testkit.Equal(t, failedSince(c.of, x), c.want, "%+v", c)
	}
	testkit.Equal(t, failedSince(person, &task.Execution{CreatedAt: at.Add(-1)}), false, "of an agent that runs")
}

func TestPromptsOfAgentsThatGoOn(t *testing.T) {
	step := &replies.StepInfo{StepID: "draft", SessionID: "0123abcd", Instructions: "Merge it."}
	children := []*machine.State{{
		JobName:      "a",
		WorkflowName: "b",
		SessionID:    "89abcdef",
		Status:       machine.Aborted,
		AbortReason:  new("obsolete"),
	}, {JobName: "a", WorkflowName: "c", SessionID: "76543210", Status: machine.Completed}}
	for want, got := range map[string]string{
		"You ended, and the step draft is not finished: It hung.\n\nWhen its outputs": againPrompt(step,
			&machine.State{}, "It hung."),
		"has ended. Go on where you were.\n\nWhen its outputs": limitPrompt(step),
		"The workflow a/b that you started (session 89abcdef) is aborted. The reason: obsolete\nThe workflow a/c " +
			"that you started (session 76543210) is completed.\nGo on with the step draft.\n\nWhen its " +
			"outputs": childPrompt(step, children),
		"# Your step: draft\n\nMerge it. x.go conflicts.\n\nResolve that": mergePrompt(step, "x.go conflicts."),
		"p\nA person says:\n\nhurry\n":                                    adviceFor("p", " hurry\n"),
		"did not finish. It was ended after 5m. Work so": limitReached(&task.Execution{
			OverLimit: true,
			Error:     new("It was ended after 5m."),
		}),
	} {
		testkit.Contains(t, got, want)
	}
	testkit.Equal(t, adviceFor("p", " \n")+limitReached(nil)+limitReached(&task.Execution{})+
		limitReached(&task.Execution{Error: new("It hung.")}), "p")
	testkit.True(t, !strings.Contains(mergePrompt(step, "x"), "finished_step of the MCP"),
		"a merge is finished with finished_step")
}

// An agent that handed in outputs for a person, or left a workflow to others, has done its work.
func TestWhatAnAgentHasLeft(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	x, runs := &task.Execution{CreatedAt: at, EndedAt: new(at.Add(10))}, &task.Execution{CreatedAt: at}
	for after, want := range map[time.Duration]bool{-1: false, 0: true, 10: true, 11: false} {
		u := new(judging.Submission).To(judging.ByPerson, nil, at.Add(after))
		p := &machine.StepProgress{Submissions: []*judging.Submission{u}}
		testkit.Equal(t, asked(x, p), want, "asked after %d", after)
		testkit.Equal(t, asked(runs, p), false, "of an agent that runs")
	}
	testkit.Equal(t, asked(x, nil) || asked(x, &machine.StepProgress{}), false)
	child := func(began, ended time.Duration) *machine.State {
		return &machine.State{StartedAt: at.Add(began), CompletedAt: new(at.Add(ended))}
	}
	left := child(0, 11)
	got := leftBy(x, []*machine.State{child(-1, 11), left, child(10, 11), child(5, 10), {StartedAt: at}})
	testkit.Need(t, len(got) == 1, "%d workflows were left", len(got))
	testkit.Equal(t, got[0], left, "%d workflows were left", len(got))
	testkit.True(t, leftBy(runs, []*machine.State{left}) == nil, "%d workflows were left", len(got))
}
