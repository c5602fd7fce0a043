package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/jsontext"
	"deepwork/cmd/proof/fault"
)

// runs is a simulation of deepwork run: several leaders with their agents, and clients of a server of the
// same project, while each process is killed at any moment, and runs are resumed. In the end each run is
// complete, each step was finished once, by one agent, no two agents of a step lived at the same time, and
// nothing that an agent or a client was told is lost.
type runs struct {
	*simulation
	mu    sync.Mutex
	told  map[string]bool // ids of runs that were acknowledged
	count map[string]int  // kills, by the kind of process
}

// runSteps are the steps of a run, of which the middle ones are concurrent.
var runSteps = []string{"one", "two", "three", "four"}

const runJob = `name: steps
version: "1.0.0"
summary: A run
common_job_info_provided_to_all_steps_at_runtime: Info
workflows: [{name: all, summary: A, steps: [one, [two, three], four]}]
steps:
`

func newRuns(dir string, seed uint64, length time.Duration) *runs {
	r := &runs{simulation: newSimulation(dir, seed, length, 4), told: map[string]bool{}, count: map[string]int{}}
	r.lose = 0.04
	return r
}

// layOut creates the project. self is the program with the subcommand step.
func (r *runs) layOut(ctx context.Context, self string) (err error) {
	if err := r.build(ctx); err != nil {
		return err
	}

	job := runJob
	for _, step := range runSteps {
		job += fmt.Sprintf("  - {id: %s, name: A, description: A, instructions_file: a.md, reviews: [], outputs: "+
			"{report: {type: file, description: R}}}\n", step)
	}

	jobs := filepath.Join(r.root, ".deepwork", "jobs", "steps")
	config := fmt.Sprintf("attempts: {max_concurrent: 6}\nrun: {retries: 100}\nexecutors:\n  STEP: {command: [%q, "+
		"step, %q]}\n", self, r.dir)
	if err := errors.Join(r.writeProject(config), os.MkdirAll(jobs, 0o755),
		os.WriteFile(filepath.Join(jobs, "job.yml"), []byte(job), 0o644),
		os.WriteFile(filepath.Join(jobs, "a.md"), []byte("Do it.\n"), 0o644)); err != nil {
		return err
	}
	r.servers = []*server{{http: true}}
	return r.gitAll(ctx, "init -q -b main", "config user.name Sim", "config user.email sim@example.com", "add .",
		"commit -q -m first")
}

// live runs clients and runs and kills processes, then lets the runs end, and judges.
func (r *runs) live(ctx context.Context) error {
	if err := r.run(ctx, r.servers[0], fault.Plan{Tied: true}); err != nil {
		return err
	}

	working, done := context.WithTimeout(ctx, r.length)
	defer done()
	var all sync.WaitGroup
	r.rove(working, &all, 40)
	for n := range 3 {
		all.Go(func() { r.lead(working, r.agent(100+n)) })
	}
	err := r.killAll(working)
	all.Wait()
	return errors.Join(err, r.end(ctx))
}

// lead starts runs and resumes those that were killed.
func (r *runs) lead(ctx context.Context, a *agent) {
	id := ""
	for ctx.Err() == nil {
		args := []string{"resume", id}
		if id == "" {
			goal := a.token("run ")
			r.history.ask("session", goal, &effect{job: "steps"})
			args = []string{"steps/all", "--goal", goal, "--executor", "STEP"}
		}
		// It is killed at a commit of the board, or not at all.
		if r.command(ctx, &id, fault.Plan{Commit: a.below(150), Late: time.Duration(a.below(3000)) * time.Microsecond},
			args...) {
			id = ""
		}
	}
}

// command is a process of deepwork run, which ends with ctx at the latest. It sets the id of the run once that
// is known, and reports whether the run is complete.
func (r *runs) command(ctx context.Context, id *string, plan fault.Plan, args ...string) bool {
	cmd := exec.CommandContext(ctx, r.program, append(append([]string{"run"}, args...), "--json", "--path", r.root)...)
	cmd.Env = append(os.Environ(), plan.Env(), "DEEPWORK_ADDITIONAL_JOBS_FOLDERS=")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.history.fault("a run that cannot be started", "%v", err)
		return false
	}

	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e struct {
			Event string `json:"event"`
			Run   string `json:"run_id"`
		}

		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Event == "run_started" {
			*id = e.Run
			r.mu.Lock()
			r.told[e.Run] = true
			r.mu.Unlock()
		}
	}

	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		r.history.fault("a run that ends", "%v: %v %s", args, err, &said)
	}
	return err == nil
}

// killAll kills processes until ctx ends: leaders, shims and agents, even while they start, and the server, which it
// starts again.
func (r *runs) killAll(ctx context.Context) error {
	kinds := map[string]string{"leader": "\x00run\x00", "shim": "\x00attempt-shim\x00", "agent": "\x00step\x00"}
	for ctx.Err() == nil {
		_ = wait.For(ctx, time.Duration(5+r.random.IntN(60))*time.Millisecond)
		kind := []string{"leader", "shim", "shim", "shim", "agent", "agent", "agent", "agent", "agent",
			"server"}[r.random.IntN(10)]
		if kind == "server" {
			if p := r.servers[0].current(); p != nil {
				if err := p.kill(); err != nil {
					return err
				}
				r.count[kind]++
			}

			if err := r.run(context.WithoutCancel(ctx), r.servers[0], fault.Plan{Tied: true}); err != nil {
				return err
			}
			continue
		}
		pids := r.processes(kinds[kind])
		if len(pids) > 0 && syscall.Kill(pids[r.random.IntN(len(pids))], syscall.SIGKILL) == nil {
			r.count[kind]++
		}
	}

	return nil
}

// processes finds those of the simulation with a word in their command lines.
func (r *runs) processes(word string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	own := []string{r.dir, stateOf(r.root).Dir}
	for _, path := range all {
		text, err := os.ReadFile(path)
		pid, perr := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if errors.Join(err, perr) == nil && bytes.Contains(text, []byte(word)) &&
			slices.ContainsFunc(own, func(dir string) bool { return bytes.Contains(text, []byte(dir)) }) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// A boardRun is a run on the board.
type boardRun struct {
	id, workspace, state string
	run                  struct {
		Session string `json:"session_id"`
		End     *struct{ State string }
	}
}

func (r *runs) onBoard(ctx context.Context) (all []boardRun, err error) {
	var x boardRun
	var text string
	err = r.query(ctx, "SELECT id, workspace, state, run FROM attempts WHERE run IS NOT NULL", func() {
		x.run.Session, x.run.End = "", nil
		err = errors.Join(err, json.Unmarshal([]byte(text), &x.run))
		all = append(all, x)
	}, &x.id, &x.workspace, &x.state, &text)
	return all, err
}

// end resumes every run until it is complete, and judges.
func (r *runs) end(ctx context.Context) error {
	all, err := r.onBoard(ctx)
	if err != nil {
		return err
	}

	var resumed sync.WaitGroup
	for _, x := range all {
		resumed.Go(func() {
			within, cancel := context.WithTimeout(ctx, settleTime)
			defer cancel()
			if !r.command(within, &x.id, fault.Plan{}, "resume", x.id) {
				r.history.fault("a run that does not end", "%+v", x)
			}
		})
	}

	resumed.Wait()
	a := r.agent(r.clients * 2)
	a.lose = 0
	for _, id := range r.history.known() {
		a.perform(ctx, input{Tool: "get_step", Session: id})
	}

	_ = a.leave()
	if p := r.servers[0].current(); p != nil {
		r.stop(p)
	}

	of := map[string]kept{}
	if _, err := r.judge(ctx, func(k kept) {
		r.whole(k)
		of[k.id] = k
	}); err != nil {
		return err
	}
	if all, err = r.onBoard(ctx); err != nil {
		return err
	}

	did, err := readJournal(filepath.Join(r.dir, "agents"))
	if err != nil {
		return err
	}
	for step, agents := range did["beside"] {
		r.history.fault("two agents of a step at once", "%s: %v", step, agents)
	}
	for _, x := range all {
		delete(r.told, x.id)
		r.judgeRun(x, of, did)
	}
	for id := range r.told {
		r.history.fault("a lost run", "%s", id)
	}
	r.attempts, r.agents = len(all), 0
	for _, began := range did["begin"] {
		r.agents += len(began)
	}
	if left := r.processes("\x00step\x00"); len(left) > 0 {
		r.history.fault("an agent that goes on", "%v", left)
	}
	r.verify(ctx, "at the end")
	return nil
}

// judgeRun compares the session of a run with what its agents did.
func (r *runs) judgeRun(x boardRun, sessions map[string]kept, did journal) {
	h := r.history
	var there []string // sessions of its workspace
	for id, k := range sessions {
		if k.root == x.workspace {
			there = append(there, id)
		}
	}
	if x.run.End == nil || x.run.End.State != "completed" || x.state != "completed" || len(there) != 1 {
		h.fault("a run that is not complete", "%+v, sessions %v", x, there)
		return
	}
	s := sessions[x.run.Session].record
	if s.Status != "completed" {
		h.fault("a session of a run that is not complete", "%+v: %q", x, s.Status)
	}

	done := map[string]string{}
	for m := range jsontext.Members(s.Progress) {
		var p progress
		var outputs struct{ Report string }
		err := errors.Join(json.Unmarshal(m.Value, &p), json.Unmarshal(p.Outputs, &outputs))
		if err == nil && p.CompletedAt != nil {
			done[m.Name] = outputs.Report
		}
	}

	for _, step := range runSteps {
		key := x.run.Session + "/" + step
		began, finished := did["begin"][key], did["finished"][key]
		of := func(pid string) bool {
			n, err := strconv.Atoi(pid)
			return err == nil && done[step] == reportOf(step, n)
		}
		_, err := os.Stat(filepath.Join(x.workspace, done[step]))
		if err != nil || !slices.ContainsFunc(began, of) || len(finished) > 1 ||
			len(finished) == 1 && !of(finished[0]) {
			h.fault("a step that was not finished once, by one agent",
				"%s: its report is %q (%v), begun by %v, finished by %v", key, done[step], err, began, finished)
		}
	}
}

func (r *runs) String() string {
	return fmt.Sprintf("seed %d: %d runs, %d agents, %d calls of other clients; killed %v", r.seed, r.attempts,
		r.agents, r.history.calls, r.count)
}
