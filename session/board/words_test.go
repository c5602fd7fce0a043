package board

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// spent is a board of which only what was used is read.
type spent struct {
	store.Board
	sum  task.Spent
	used []task.Use
}

func (s spent) Spent(context.Context, string, string) (task.Spent, error) { return s.sum, nil }
func (s spent) Used(context.Context, string) ([]task.Use, error)          { return s.used, nil }

func TestReachedBudgets(t *testing.T) {
	owner, other := session.Caller{Owner: true}, session.Caller{}
	cfg := func(usd, unknown float64) *config.Config {
		c := config.Default()
		if usd >= 0 {
			c.Attempts.MaxCostUSD = &config.Limit{Max: usd, File: "config.yml"}
		}
		if unknown >= 0 {
			c.Attempts.MaxUnknown = &config.Limit{Max: unknown, File: "config.yml"}
		}
		return c
	}
	for _, c := range []struct {
		cfg  *config.Config
		sum  task.Spent
		want []string
	}{
		{cfg(-1, -1), task.Spent{MicroUSD: 1e9, Unknown: 9}, nil},
		{cfg(2.5, 2), task.Spent{MicroUSD: 2_499_999, Unknown: 1}, nil},
		{cfg(2.5, 2), task.Spent{MicroUSD: 2_500_000, Unknown: 1}, []string{
			"the executions that have ended and whose cost is known (that of 1 is not) cost 2.5 USD, and attempts.max_cost_usd is 2.5",
			"Budget reached: 2.5 of 2.5 USD and 1 of unknown cost (attempts.max_cost_usd)",
			"attempts.max_cost_usd is 2.5", "Budget reached: attempts.max_cost_usd is 2.5", "raise attempts.max_cost_usd in config.yml"}},
		{cfg(0, -1), task.Spent{MicroUSD: 1}, []string{
			"the executions that have ended cost 0.000001 USD, and attempts.max_cost_usd is 0", "Budget reached: 0.000001 of 0 USD (attempts.max_cost_usd)",
			"attempts.max_cost_usd is 0", "Budget reached: attempts.max_cost_usd is 0", "raise attempts.max_cost_usd in config.yml"}},
		{cfg(-1, 1.5), task.Spent{Unknown: 1}, nil},
		{cfg(-1, 1.5), task.Spent{Unknown: 2}, []string{
			"2 executions have ended with an unknown cost, and attempts.max_unknown is 1.5", "Budget reached: 2 of 1.5 executions of unknown cost (attempts.max_unknown)",
			"attempts.max_unknown is 1.5", "Budget reached: attempts.max_unknown is 1.5",
			"raise attempts.max_unknown in config.yml, and give prices of the models in " + config.UserFile() + ", by which the cost of later ones is known"}},
	} {
		var got []string
		for _, r := range testkit.Get((&Board{}).Reached(t.Context(), spent{sum: c.sum}, c.cfg)).Must(t) {
			got = append(got, r.what(owner), r.title(owner), r.what(other), r.title(other), r.remedy())
		}
		testkit.Same(t, got, c.want, "%+v", c.sum)
	}
}

func TestCostsThatAreNotKnownAreNull(t *testing.T) {
	for _, c := range []struct {
		sum  task.Spent
		want string
	}{
		{task.Spent{}, "null"},
		{task.Spent{Executions: 1, Unknown: 1, Turns: 1}, `{"usd":null,"executions":1,"unknown":1,"input_tokens":null,"cached_tokens":null,"output_tokens":null,"turns":1}`},
		{task.Spent{Executions: 2, Unknown: 1, MicroUSD: 1500, OutputTokens: 1}, `{"usd":0.0015,"executions":2,"unknown":1,"input_tokens":0,"cached_tokens":0,"output_tokens":1,"turns":null}`},
	} {
		v := View{View: spent{sum: c.sum}}
		testkit.Equal(t, string(testkit.Get(json.Marshal(testkit.Get(v.Cost(t.Context(), "t", "")).Must(t))).Must(t)), c.want)
	}
	used := spent{used: []task.Use{{ExecutionID: "a"}, {ExecutionID: "b", Usage: task.Usage{MicroUSD: new(int64(7))}}}}
	each := testkit.Get(View{View: used}.ExecutionCosts(t.Context(), "a")).Must(t)
	testkit.True(t, len(each) == 2 && each["a"].USD == nil && *each["b"].USD == 7e-6 && MicroUSD(0.0000015) == 2, "%+v", each)
}

func TestBudgetsOfARun(t *testing.T) {
	for _, c := range []struct {
		run   Run
		state State
		cost  *Cost
		flags string
	}{
		{Run{MaxCostUSD: new(0.0), MaxUnknown: new(0)}, Running, nil, ""},
		{Run{MaxCostUSD: new(0.0), MaxUnknown: new(0)}, Paused, nil, " --max-cost 1.00 --max-unknown 10"},
		{Run{MaxCostUSD: new(2.0), MaxUnknown: new(3)}, Paused, &Cost{USD: new(2.0), Unknown: 2}, " --max-cost 4.00"},
		{Run{MaxCostUSD: new(2.0), MaxUnknown: new(3)}, Paused, &Cost{USD: new(1.9), Unknown: 3}, " --max-unknown 16"},
		{Run{}, Paused, &Cost{USD: new(9.0), Unknown: 3}, ""},
	} {
		testkit.Works(t, c.run.CheckBudgets())
		testkit.Equal(t, c.run.LargerBudget(c.state, c.cost), c.flags, "%+v", c)
	}
	testkit.Fails(t, (&Run{MaxCostUSD: new(-0.1)}).CheckBudgets(), "max_cost_usd is -0.1")
	testkit.Fails(t, (&Run{MaxUnknown: new(-1)}).CheckBudgets(), "max_unknown is -1")
}

func TestWhatARunWaitsFor(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC)
	person := RunWait{Kind: WaitsForPerson, SessionID: "0123abcd", StepID: "draft", Since: at}
	limit := RunWait{Kind: WaitsForLimit, SessionID: "0123abcd", StepID: "fix", Since: at, Until: &at}
	unclear := limit
	unclear.Tries = 3
	run := &Run{Waits: []RunWait{person, limit, unclear}}
	reply := &RunReply{Waits: waitsOf(run, true)}
	testkit.Equal(t, reply.waitsText(), `Step draft waits for a person's review: deepwork sessions review 0123abcd draft
Step fix waits for the limit of its agent's provider, until 2026-03-04T05:06:07Z
Step fix waits for the limit of its agent's provider, which does not say when it ends: after 3 of 10 tries the next one is at 2026-03-04T05:06:07Z`)
	testkit.Equal(t, len(waitsOf(run, false)), 1, "a run that has ended waits for people only")
	later, soon := limit, limit
	later.Until, soon.Until = new(at.Add(1)), new(at.UTC())
	for i, c := range []struct {
		a, b RunWait
		same bool
	}{{person, person, true}, {limit, soon, true}, {limit, later, false}, {limit, unclear, false}, {person, limit, false}, {RunWait{Until: &at}, RunWait{}, false}} {
		testkit.Equal(t, c.a.Equal(c.b) && c.b.Equal(c.a), c.same, "%d", i)
	}
	ended := RunStep{StartedAt: new(Stamp(at)), EndedAt: new(Stamp(at.Add(time.Minute)))}
	testkit.True(t, ended.Took() == time.Minute && (&RunStep{StartedAt: ended.StartedAt}).Took() == 0, "it took %v", ended.Took())
}

// members says which servers are alive.
type members struct {
	store.Members
	alive string
}

func (members) ID() string             { return "me" }
func (m members) Alive(id string) bool { return id == m.alive }

// An attempt or a run has one of the states that the documentation lists, in all that the board knows of it.
func TestField22_StatesOfAttempts(t *testing.T) {
	b := &Board{Members: members{alive: "other"}, Here: task.Place{MachineID: "m", Root: "/p"}}
	run := func(r Run) json.RawMessage { return testkit.Get(json.Marshal(r)).Must(t) }
	waits := func(kinds ...string) json.RawMessage {
		var r Run
		for _, kind := range kinds {
			r.Waits = append(r.Waits, RunWait{Kind: kind})
		}
		return run(r)
	}
	ended := func(s State) json.RawMessage { return run(Run{End: &RunEnd{State: s}}) }
	for want, all := range map[State][]task.Situation{
		Queued:          {{State: task.Waiting}, {State: task.Waiting, Landed: task.LandedMerged}, {State: task.Starting, Leader: "gone"}, {State: task.Starting, Run: run(Run{}), Leader: "me"}},
		Running:         {{State: task.Running}, {State: task.Running, Run: waits(WaitsForPerson), Busy: true, Leader: "other"}, {State: task.Running, Run: run(Run{}), Leader: "me"}},
		WaitingForYou:   {{State: task.Running, Run: waits(WaitsForLimit, WaitsForPerson), Leader: "me"}},
		WaitingForLimit: {{State: task.Running, Run: waits(WaitsForLimit), Leader: "other"}},
		Interrupted:     {{State: task.Interrupted}},
		Paused:          {{State: task.Failed, Run: ended(Paused)}, {State: task.Stopped, Run: ended(Paused)}},
		Stopped:         {{State: task.Stopped, Run: ended(Stopped)}, {State: task.Stopped, Run: run(Run{})}},
		Failed:          {{State: task.Failed}, {State: task.Failed, Run: run(Run{})}, {State: task.Failed, Run: ended(Failed)}},
		Completed:       {{State: task.Completed}, {State: task.Completed, Run: ended(Completed)}},
		Conflicted:      {{State: task.Completed, Landed: task.LandedConflicts}},
		Merged:          {{State: task.Completed, Landed: task.LandedMerged, Run: ended(Completed)}},
	} {
		for _, s := range all {
			testkit.Equal(t, b.StateOf(&s), want, "%+v", s)
		}
	}
	for _, s := range States {
		testkit.Equal(t, s.Open(), s == Queued || s == Running || s == WaitingForYou || s == WaitingForLimit, "%s is open", s)
	}
	testkit.Equal(t, WaitingForYou.Words()+", "+WaitingForLimit.Words()+", "+Short("0123456789")+Short("ab"), "waiting for you, waiting for a limit, 01234567ab")
}

// A run whose leader was killed is interrupted; an attempt of one agent goes on without its server, and so may a run that
// another machine leads.
func TestField15_ARunWithoutItsLeader(t *testing.T) {
	b := &Board{Members: members{alive: "other"}, Here: task.Place{MachineID: "m", Root: "/p"}}
	for _, state := range []task.AttemptState{task.Starting, task.Running} {
		s := task.Situation{State: state, Leader: "gone", Run: testkit.Get(json.Marshal(Run{Waits: []RunWait{{Kind: WaitsForLimit}}})).Must(t)}
		testkit.Equal(t, b.StateOf(&s), Interrupted)
		s.Place = task.Place{MachineID: "n", Root: "/p"}
		testkit.True(t, b.StateOf(&s) != Interrupted, "elsewhere it is interrupted")
		s.Place, s.Run = task.Place{}, nil
		testkit.Equal(t, b.StateOf(&s), ExecutionState(state), "with one agent")
	}
}

// What goes wrong on the board is told to agents with a code and what to do.
func TestFaults(t *testing.T) {
	own := session.Wrong(codes.BadPath, "own")
	for _, c := range []struct {
		err  error
		code string
		says string
	}{
		{own, codes.BadPath, "own"},
		{task.ErrFull, codes.DiskFull, "nothing was changed"},
		{task.ErrDamaged, codes.BoardDamaged, "cannot be used"},
		{task.ErrVersion, codes.BoardVersion, "cannot be used"},
		{task.ErrClosed, codes.ShuttingDown, "shutting down"},
		{task.ErrDeleting, codes.BeingDeleted, "delete_task again"},
		{&task.BlockedError{TaskID: "t", By: []task.Blocker{{ID: "other"}}}, codes.Blocked, "other"},
		{task.ErrCycle, codes.DependencyCycle, "Leave out one"},
		{task.ErrDependency, codes.BadDependency, "same project"},
		{task.ErrReused, codes.RequestIDReused, "Pass a new one"},
		{task.ErrComments, codes.TooManyComments, "Send those that wait"},
		{task.ErrQueued, codes.FollowUpQueued, "drop it first"},
		{store.ErrPending, codes.BoardBusy, "did not say"},
		{context.DeadlineExceeded, codes.BoardBusy, "did not answer in time"},
		{syscall.EIO, "", "reading: input/output error"},
	} {
		err := Fault("reading", fmt.Errorf("cause: %w", c.err))
		testkit.True(t, session.CodeOf(err) == c.code && strings.Contains(strings.Replace(err.Error(), "cause: ", "", 1), c.says), "%v is told as %s: %v", c.err, session.CodeOf(err), err)
	}
	testkit.Equal(t, Fault("reading", nil), nil)
	for err, want := range map[error]bool{store.ErrUnavailable: true, store.ErrPending: true, task.ErrFull: true, syscall.ENOSPC: true, task.ErrDamaged: false} {
		testkit.Equal(t, Passing(fmt.Errorf("x: %w", err)), want, "%v passes", err)
	}
	testkit.Equal(t, Midway(task.ErrFull), task.ErrFull)
	testkit.FailsWith(t, Midway(store.ErrUnavailable), store.ErrPending)
	testkit.Equal(t, session.CodeOf(AttemptFault("reading", task.ErrNotFound, "x"))+" "+session.CodeOf(RunFault("reading", task.ErrDeleted, "x")), "unknown_attempt "+codes.DeletedSince)
}

// Lists in errors and pages of tasks end where they are bounded, and not before.
func TestBoundsOfLists(t *testing.T) {
	names := strings.Split(strings.Repeat("x ", 20)+"y", " ")
	testkit.Equal(t, Enumerate(nil, "none")+Enumerate(names[20:], "none")+Enumerate(names[:20], "")[54:]+Enumerate(names, "")[54:], "noneyx, xx, x and 1 more")
	testkit.Equal(t, bytesOfID, len(testkit.Get(json.Marshal(nobody)).Must(t))+len(","))
	for _, c := range []struct{ first, second, ids, want int }{{0, listBytes, 0, 2}, {1, listBytes, 0, 1}, {listBytes + 1, 0, 0, 1}, {listBytes, 0, 0, 2}, {listBytes - 2*bytesOfID, 0, 1, 2}, {listBytes - 2*bytesOfID, 1, 1, 1}} {
		all := []task.Summary{{Task: task.Task{Description: new(strings.Repeat("d", c.first)), DependsOn: make([]string, c.ids)}, BlockedBy: make([]string, c.ids)}, {Task: task.Task{Inputs: make([]byte, c.second)}}}
		testkit.Equal(t, fitting(all), c.want, "%+v", c)
	}
	ids := slices.Repeat([]string{nobody}, task.MaxDependencies)
	testkit.Works(t, testkit.Get(checkDependencies(ids)).Err())
	refused(t, testkit.Get(checkDependencies(append(ids, nobody))).Err(), session.ToolError, codes.TooManyDependencies, "51", "50")
	refused(t, testkit.Get(Target{}.ID()).Err(), session.ToolError, codes.MissingArgument, "list_task_attempts")
	b := New(Options{Config: func(context.Context) (*config.Config, error) {
		return &config.Config{Telemetry: config.Telemetry{TraceURL: "https://x/{trace_id}"}}, nil
	}})
	const trace = "0123456789abcdef0123456789abcdef"
	testkit.Equal(t, b.TraceOf(ctx, "00-"+trace+"-0123456789abcdef-01"), Trace{trace, "https://x/" + trace})
	testkit.Equal(t, b.TraceOf(ctx, ""), Trace{})
	dir := testkit.Dir(t)
	testkit.Write(t, filepath.Join(dir, ".git"), "gitdir: elsewhere")
	testkit.Equal(t, TopLevel(filepath.Join(dir, "a", "b"))+TopLevel(filepath.VolumeName(dir)+string(filepath.Separator)), dir)
}

// A process is in the workspace of an attempt if the database has it there: in its worktree, or in the folder of several.
func TestInAWorkspace(t *testing.T) {
	dir := testkit.Dir(t)
	at := func(path string) string { return filepath.Join(dir, filepath.FromSlash(path)) }
	for _, c := range []struct {
		root, workspace string
		worktrees       []string
		want            bool
	}{
		{"w/shop", "w/shop/sub", []string{"w/shop"}, true}, {"w/shop/sub", "w", []string{"w/shop"}, true}, {"w", "w", []string{"w/shop"}, false},
		{"w", "w", []string{"w/shop", "w/web"}, true}, {"w/web/sub", "w", []string{"w/shop", "w/web"}, true}, {"v", "w", []string{"w/shop", "w/web"}, false}, {"w", "w", nil, false},
	} {
		a := &task.Attempt{Workspace: at(c.workspace)}
		for _, path := range c.worktrees {
			a.Repos = append(a.Repos, task.AttemptRepo{Worktree: at(path)})
		}
		testkit.Equal(t, (&Workspace{root: at(c.root)}).in(a), c.want, "%+v", c)
	}
	s := newProject(t).open()
	attempt := s.attempt(s.newTask("plain"), task.Running, nil)
	other := newProject(t).open()
	for _, c := range []struct {
		attempt, board string
		db             store.Database
		byPath         bool
		want           []string
	}{
		{attempt.ID, s.State().Database(), s.Database, false, nil},
		{attempt.ID, s.State().Database(), s.Database, true, []string{"there it is in \"" + attempt.Workspace, "the state folder of the project must be reachable"}},
		{nobody, s.State().Database(), s.Database, false, []string{"does not have this attempt", config.BoardEnv + " must name a file", "without " + config.AttemptEnv}},
		{nobody, at("gone/board.db"), s.Database, false, []string{at("gone")}},
		{nobody, s.State().Database(), other.Database, true, []string{"does not exist here", "the state folder of the project must be reachable"}},
	} {
		w := FindWorkspace(dir, func(key string) string {
			return map[string]string{config.AttemptEnv: c.attempt, config.BoardEnv: c.board}[key]
		})
		testkit.True(t, !w.ByPath && w.Attempt == c.attempt, "%+v", w)
		w.ByPath = c.byPath
		is, err := w.Confirm(ctx, c.db)
		if c.want == nil {
			testkit.True(t, !is && err == nil, "another project of the agent: %t, %v", is, err)
			continue
		}
		refused(t, err, session.StateError, codes.NoDatabase, c.want...)
	}
	w := &Workspace{Attempt: attempt.ID, apart: true}
	refused(t, w.missing("x"), session.StateError, codes.NoDatabase, config.StoreEnv+", or store in the user's own config")
}
