package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/board"
	"deepwork/session/state"
	"deepwork/session/store/postgres/pgtest"
)

// The leader is killed: its agents end, and the step goes on with another.
func TestRunLeaderKilled(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a, [b, c, d], e", "a", "b", "c", "d", "e"))
	p.plan("b "+talk, "b:1 touch said", "b:1 await never", "c:1 await said", "c:1 touch c", "c:1 await never",
		"d:1 await never", "* finish")
	r := p.begin()
	for _, step := range []string{"b", "c", "d"} {
		p.awaits(step, 1)
	}
	p.appears("c")
	r.kill()
	p.killShim(p.begun("d")[0]) // and so without a record of its end
	p.resume().exits(0)
	got := strings.Fields(p.steps())
	testkit.True(t, len(got) == 8 && got[7] == "e", "%v", got)
	testkit.Equal(t, fmt.Sprint(p.begun("b")[1].Args, p.begun("c")[1].Args), "[resumed talk-b] []")
	p.clean()
}

// killShim kills the shim of an agent, which dies with it.
func (p *runProject) killShim(agent stepped) {
	_, rest, _ := strings.Cut(readAll("/proc", fmt.Sprint(agent.PID), "stat"), ") ")
	shim := 0
	testkit.Get(fmt.Sscanf(rest, "%1s %d", new(string), &shim)).Must(p.t)
	must(p.t, syscall.Kill(shim, syscall.SIGKILL))
}

// An agent is killed with its shim, while the leader lives: it is a try.
func TestRunShimKilled(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 1}\n", runJob("NAME", "a", "a"))
	p.plan("a:1 await never", "a:2 await never")
	r := p.begin()
	for n := range 2 {
		p.killShim(p.awaits("a", n+1)[n])
	}
	r.exits(1)
	p.clean()
	p.resume().exits(0)
}

// The leader is killed after an agent has started a workflow and before the run knows that: the run does the
// workflow for the step that started it, here a member of a group, when it is resumed.
func TestRunLeaderKilledBeforeItRecordsAWorkflow(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "[a, b], c", "a", "b", "c"),
		runJob("NAME", "x", "x outputs: {}")).inGit()
	p.plan(`b:1 start {"job_name":"job1","workflow_name":"w","goal":"The inner one"}`, "b:1 touch started",
		"b:1 await never", "a:1 await never", "* finish")
	r := p.begin()
	p.awaits("a", 1)
	p.appears("started")
	r.kill()
	db := testkit.Get(sql.Open("sqlite", state.Of(p.root).Database())).Must(t)
	defer db.Close()
	var children int
	must(t, db.QueryRow("SELECT count(*) FROM attempts WHERE json_extract(run, '$.children') IS NOT NULL").
		Scan(&children))
	testkit.Equal(t, children, 1)
	testkit.Get(db.Exec("UPDATE attempts SET run = json_remove(run, '$.children')")).Must(t)
	p.resume().exits(0)
	begun := p.begun("b")
	testkit.Need(t, len(begun) == 2, "%+v", begun)
	testkit.Contains(t, begun[1].Prompt, "The workflow job1/w that you started")
	testkit.Equal(t, len(p.begun("x")), 1)
	testkit.True(t, strings.HasSuffix(p.steps(), " c"), "c is not the last")
	p.clean()
}

// A run can be stopped, interrupted, and stopped when its leader is gone: its agents end, and it can be resumed.
func TestRunStoppedAndInterrupted(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a, b", "a", "b"))
	p.plan("b:1 await never", "b:2 await never", "b:3 await never")
	r := p.begin()
	p.awaits("b", 1)
	p.start("stop", "latest").exits(0)
	testkit.Equal(t, r.exits(1).State, "stopped")
	p.clean()
	r = p.resume()
	p.awaits("b", 2)
	testkit.Equal(t, r.interrupt().State, "interrupted")
	testkit.Equal(t, p.status().State, "interrupted")
	p.clean()
	r = p.resume()
	p.awaits("b", 3)
	r.kill()
	p.start("stop", "latest").exits(0)
	now := p.status()
	testkit.Equal(t, now.State, "stopped")
	testkit.Equal(t, optional(now.Reason), "It was stopped.")
	testkit.True(t, now.Steps[3].EndedAt != nil, "%+v", now)

	board := mustPrint(t, p.root, "board")
	testkit.True(t, !strings.Contains(board, "attempt_to_review"),
		"the person who stopped it is asked to look at it: %s", board)

	p.clean()
	p.resume().exits(0)
	p.clean()
}

// Several processes resume a run that one leads: when that is gone, one of them does, with one agent.
func TestRunResumedBySeveral(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a, b", "a", "b"))
	p.plan("a:1 await never", "a:2 await go", "a:2 finish")
	r := p.begin()
	p.awaits("a", 1)
	all := []*runProcess{p.resume(), p.resume()}
	r.kill()
	all = append(all, p.resume())
	p.awaits("a", 2)
	p.touch("go")
	for _, each := range all {
		each.exits(0)
	}
	testkit.Equal(t, p.steps(), "a a b")
	p.clean()
}

// A server of the project leads a run on whose process is gone.
func TestRunTakenOverByAServer(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a, b", "a", "b"))
	p.plan("a:1 await never")
	r := p.begin()
	p.awaits("a", 1)
	startClient(t, p.root)
	startClient(t, p.root)
	r.kill()
	p.becomes("completed")
	testkit.Equal(t, p.steps(), "a a b")
}

// A process leads its own run alone: another one whose leader was killed is not taken up by a process that
// ends, with its agents, before that run does.
func TestRunLeadsNoOtherRun(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "a, c, d, e, f", "a", "c", "d", "e", "f"), runJob("NAME", "b", "b"))
	p.plan("a await go", "a finish", "b:1 await never", "* finish")
	r := p.begin()
	p.awaits("a", 1)
	other := p.start("job1/w", "--goal", "The other one", "--executor", "STEPPER", "--json")
	p.awaits("b", 1)
	other.kill()
	p.touch("go")
	r.exits(0)
	testkit.Equal(t, len(p.begun("b")), 1, "agents of the other run")
	p.resume().exits(0)
	testkit.Equal(t, len(p.begun("b")), 2, "agents of the other run after it was resumed")
	p.clean()
}

// Nobody reads what a run prints, and then its terminal is closed: no agent goes on without a leader.
func TestRunWithoutATerminal(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "a, b", "a", "b"))
	p.plan("a await go", "a finish", "b:1 await never")
	read, write, err := os.Pipe()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), "deepwork", "run", "job0/w", "--goal", "Do it", "--executor", "STEPPER",
		"--json", "--path", p.root)
	cmd.Stdout = write
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // also of a test that nohup has started, whose processes would ignore it
	err = cmd.Start()
	signal.Stop(hangup)
	must(t, err)
	must(t, write.Close())
	p.awaits("a", 1)
	must(t, read.Close())
	p.touch("go")
	p.awaits("b", 1)
	must(t, cmd.Process.Signal(syscall.SIGHUP))
	testkit.Fails(t, cmd.Wait(), "")
	testkit.Equal(t, p.status().State, "interrupted")
	p.clean()
	p.resume().exits(0)
	p.clean()
}

// A run whose board is in a database survives its leader: with a group and a workflow in it, no finished step
// is done again.
func TestRunOnPostgres(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n",
		runJob("NAME", "first, [a, b, c], last", "first", "a", "b", "c", "last"),
		runJob("NAME", "x, y", "x outputs: {}", "y outputs: {}")).inGit()
	p.env = []string{config.StoreEnv + "=" + pgtest.URL(t), config.ProjectEnv + "=shop"}
	testkit.Git(t, p.root, "checkout", "-q", "--detach")
	p.begin().refused(1, "no branch is checked out")
	testkit.Git(t, p.root, "checkout", "-q", "main")
	p.begin("--in-place").refused(2, "leave --in-place out")
	p.plan(`b:1 start {"job_name":"job1","workflow_name":"w","goal":"The inner one"}`, "b:1 await a.done",
		"b:1 child x", "b:1 touch half", "b:1 await never",
		"a finish", "a touch a.done", "c:1 await never", "* finish")
	r := p.begin()
	p.awaits("c", 1)
	p.appears("half")
	r.kill()
	p.resume().exits(0)
	var counted []string
	for _, step := range []string{"first", "a", "b", "c", "x", "y", "last"} {
		counted = append(counted, step+strings.Repeat("+", len(p.begun(step))))
	}
	testkit.Equal(t, strings.Join(counted, " "), "first+ a+ b++ c++ x y+ last+", "the steps were begun so often")

	s := p.status()
	testkit.True(t, s.State == "completed" && len(s.Steps) == 8, "%+v", s)
	p.clean()
}

// A limit of the provider is waited for, and is not a try.
func TestRunWaitsForALimit(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a", "a"))
	p.plan("a:1 warn rate limit reached, try again in 1 second", "a:1 exit 1")
	r := p.begin()
	r.exits(0)
	var until string
	for _, e := range r.events() {
		if e.Event == "step_ended" {
			until += optional(e.Until)
		}
	}
	over := testkit.Get(time.Parse(time.RFC3339Nano, until)).Must(t)
	began := testkit.Get(time.Parse(time.RFC3339Nano, optional(p.status().Steps[1].StartedAt))).Must(t)
	testkit.True(t, !began.Before(over) && p.steps() == "a a",
		"an agent was started at %s, and the limit was over at %s", began, over)
	p.clean()
}

// The limit that ended an agent whose leader was killed is waited for by the next leaders, which can be
// interrupted and paused.
func TestRunLeaderKilledBeforeALimit(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "a", "a"))
	p.plan("a touch begun", "a await killed", "a warn rate limit reached, try again in 2 hours", "a exit 1")
	r := p.begin()
	p.appears("begun")
	r.kill()
	p.touch("killed")
	testkit.Until(t, "its end is recorded", func() bool {
		return len(glob(state.Of(p.root).Logs(), "attempts", "*", "runs", "*", "exit.json")) == 1
	})
	r = p.resume()
	eventually(t, func() (bool, any) { return strings.Contains(r.names(), "run_waiting"), &r.out })
	testkit.True(t, p.status().Steps[0].LimitedUntil != nil, "%+v", p.status())
	p.shows("provider's limit is over at")
	testkit.Equal(t, r.interrupt().State, "interrupted")
	testkit.Equal(t, r.names(), "run_started step_ended step_waiting run_waiting run_ended")
	p.resume("--max-time", "1s").exits(3)
	testkit.Equal(t, p.steps(), "a", "the steps were begun as")
	p.clean()
}

// paused waits until a run has ended for a budget.
func (r *runProcess) paused(reason string) {
	r.p.t.Helper()
	end := r.exits(3)
	testkit.Equal(r.p.t, end.State, "paused")
	testkit.Contains(r.p.t, optional(end.Reason), reason)
}

// spends is the end of a stream whose agent spent 0.4 USD.
const spends = ` say {"type":"result","subtype":"success","result":"done","session_id":"s",` +
	`"total_cost_usd":0.4,"num_turns":1}`

// threeSteps is a job whose steps come one after the other.
func threeSteps() string { return runJob("NAME", "a, b, c", "a", "b", "c") }

func TestRunPausesAtItsMaxCost(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", threeSteps())
	p.plan("* finish", "*"+spends)
	p.begin("--max-cost", "0.5").paused("0.8 USD")
	testkit.Equal(t, p.steps(), "a b")
	out, code := p.sh("deepwork run resume latest") // it counts the whole run
	testkit.Equal(t, code, 1)
	testkit.Contains(t, out, "--max-cost 1.60")

	cost := p.resume("--max-cost", "5").exits(0).CostUSD
	testkit.Need(t, cost != nil, "it cost %v", cost)
	testkit.True(t, *cost > 1.19, "it cost %v", *cost)
	testkit.True(t, *cost < 1.21, "it cost %v", *cost)
	p.clean()
}

// An executor that reviews spends of the same budget.
func TestMaxCostCountsReviews(t *testing.T) {
	t.Parallel()
	verdict := `{"type":"result","subtype":"success","result":"{\"passed\": true}","session_id":"r",` +
		`"total_cost_usd":0.4,"num_turns":1}`
	judge := testkit.Get(json.Marshal([]string{"sh", "-c", `cat > /dev/null; printf '%s\n' "$0"`, verdict})).Must(t)
	reviews := " reviews: [{run_each: step, quality_criteria: {good: G}}]"
	p := newRunProject(t, fmt.Sprintf("  JUDGE: {command: %s}\nquality_gate: {reviewer_executor: JUDGE}\n", judge),
		runJob("NAME", "a, b, c", "a"+reviews, "b"+reviews, "c"))
	p.plan()
	p.begin("--max-cost", "0.5").paused("0.8 USD")
	testkit.Equal(t, p.steps(), "a b")

	cost := p.status().Cost
	testkit.Need(t, cost != nil, "the run has no cost")
	testkit.Equal(t, cost.Executions, 4)
	testkit.Equal(t, cost.Unknown, 2)
	p.resume("--max-cost", "5").exits(0)
	p.clean()
}

// At its max cost a run stops the agent that works beside the one that spent it, and continues that later.
func TestMaxCostStopsAgentsBeside(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "[a, b], c", "a", "b", "c"))
	p.plan("b "+talk, "b touch b", "b:1 await never", "b finish", "a await b", "a finish", "a"+spends)
	p.begin("--max-cost", "0.4").paused("0.4 USD")
	for _, x := range p.status().Steps {
		testkit.Equal(t, x.State, map[string]board.State{"a": "completed", "b": "stopped"}[x.StepID], "%s", x.StepID)
	}
	p.clean()

	p.resume("--max-cost", "5").exits(0)
	b := p.begun("b")
	testkit.Need(t, len(b) == 2, "%+v", b)
	testkit.Equal(t, fmt.Sprint(b[1].Args), "[resumed talk-b]")
	testkit.Equal(t, len(p.begun("")), 4)
	p.clean()
}

func TestBudgetOfARunWhoseProcessIsGone(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", threeSteps())
	p.plan("* finish", "*"+spends, "b:1 await never")
	r := p.begin()
	p.awaits("b", 1)
	// it goes on with the budgets that it has
	p.resume("--max-cost", "0.3").refused(1, "To stop it first, and resume it with them, run 'deepwork run stop "+
		p.status().RunID[:8]+" --path "+p.root+"'")
	r.kill()
	p.resume("--max-cost", "0.3").paused("0.3 USD")
	testkit.Equal(t, p.steps(), "a b")
	p.clean()
}

// A run waits while the board has no budget left, and says for which.
func TestRunWaitsForTheBudgetOfTheBoard(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "attempts: {max_unknown: 1}\n", threeSteps())
	p.plan()
	waits := func(r *runProcess, why string) {
		eventually(t, func() (bool, any) {
			_, waiting, ok := strings.Cut(r.out.String(), `"event":"run_waiting"`)
			return ok && strings.Contains(waiting, why), &r.out
		})
	}
	r := p.begin()
	p.awaits("a", 1)
	waits(r, "attempts.max_unknown is 1")
	now := p.status()
	testkit.Equal(t, now.State, "running")
	testkit.Contains(t, optional(now.Reason), "attempts.max_unknown is 1")

	r.interrupt()
	testkit.Equal(t, p.steps(), "a", "the steps were begun as")
	r = p.resume() // nobody leads it before there is a budget
	waits(r, "")
	r.interrupt()
	testkit.Contains(t, r.err.String(), "waits for a process to lead it")
	p.clean()
}

func TestRunPausesAtItsMaxTime(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", threeSteps())
	p.plan("a await resumed", "a finish") // it never ends before
	p.begin("--max-time", "1s").paused("time")
	p.clean()
	p.touch("resumed")
	p.resume("--max-time", "5m").exits(0)
	p.clean()
}

// A limit without an end is shown by deepwork board, a failing test that speaks of one is a try.
func TestField01_LimitsThatAreNotUnderstood(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a", "a"))
	p.plan("a warn RESOURCE_EXHAUSTED: ask your admin", "a exit 1")
	r := p.begin()
	p.awaits("a", 1)
	eventually(t, func() (bool, any) {
		out := mustPrint(t, p.root, "board")
		return strings.Contains(out, "which does not say when it ends: after 1 of 10 tries"), out
	})
	r.interrupt()
	p.plan("a warn api_test.go:12: got status 429 Too Many Requests, want 200", "a say 429 Too Many Requests",
		"a exit 1")
	p.resume().exits(1)
	p.clean()
}

// A limit of the step ends its agent, which counts as a try, and the next one is told.
func TestRunEndsAnAgentAtALimitOfItsStep(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "[a, b]", "a timeout: 2", "b idle_timeout: 2"))
	p.plan("a:1 await never", "b:1 await never", "* finish")
	p.begin().exits(0)
	for step, limit := range map[string]string{"a": "timeout", "b": "idle_timeout"} {
		begun := p.begun(step)
		testkit.True(t, len(begun) == 2 &&
			strings.Contains(begun[1].Prompt, "It was ended by a limit of the step: "+limit), "%+v", begun)
	}
	p.clean()
}
