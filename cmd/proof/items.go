package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/jsontext"
	"deepwork/cmd/proof/fault"
	"deepwork/cmd/proof/tty"
	"deepwork/session/judging"
	"deepwork/session/state/statetest"
)

// items is a simulation of one session with many items: agents, each a process, do them at three servers, and a person
// passes each, while servers and agents are killed at any moment. In the end each item and its nested workflow were
// done once, waiting items held up no others, and the join and each round happened once.
type items struct {
	*simulation
	id           string // of the session
	most, kills  int    // items, and processes to be killed
	agents       []*exec.Cmd
	killed, some atomic.Int64   // processes; the most items that waited for the person at one time
	count        map[string]int // kills, by the kind of process
}

const (
	portsAtOnce  = 4
	itemsWaiting = 2 * portsAtOnce // before the person answers one: more than may be in progress
	itemRounds   = 3
	// idleItems is how long nothing may happen.
	idleItems = 2 * time.Minute
)

var itemsJob = fmt.Sprintf(`name: many
version: "1.0.0"
summary: Many items
common_job_info_provided_to_all_steps_at_runtime: Info
workflows:
  - {name: tidy, summary: A workflow as a step, steps: [tidy]}
  - name: all
    summary: All forms
    steps:
      - list
      - {for_each: todo, steps: [port, {workflow: tidy}], at_once: %d, max_items: 10000}
      - sum
      - {when: {output: docs, is: "yes"}, steps: [docs]}
      - {when: {output: docs, is: "no"}, steps: [skipped]}
      - {repeat: {steps: [fix], until: {output: said, is: "3"}, at_most: 5}}
      - end
steps:
`, portsAtOnce)

// portSteps are the steps with their outputs; those with a review by a person have one more key.
var portSteps = []string{"list, outputs: {todo: {type: file, description: D}}, reviews: []",
	"port, outputs: {out: {type: file, description: D}}, reviews: [{run_each: out, by: human, quality_criteria: " +
		"{good: Good}}]",
	"tidy, outputs: {tidied: {type: string, description: D}}, reviews: []",
	"sum, outputs: {docs: {type: string, description: D}}, reviews: []",
	"docs, outputs: {}, reviews: []", "skipped, outputs: {}, reviews: []",
	"fix, outputs: {said: {type: string, description: D}}, reviews: []", "end, outputs: {}, reviews: []"}

// runItems is the subcommand items.
func runItems(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	seed := uint64(0)
	most := 0
	kills := 0
	flags := flag.NewFlagSet("items", flag.ContinueOnError)
	flags.Uint64Var(&seed, "seed", uint64(time.Now().UnixNano()), "makes the choices")
	flags.IntVar(&most, "items", 200, "items of the list")
	flags.IntVar(&kills, "kills", 1000, "servers and agents that are killed")
	err := parse(flags, args, stderr, func() error {
		if runtime.GOOS != "linux" {
			return errors.New("items needs Linux, where a person's terminal can be made")
		}
		if most < itemsWaiting || most > 10000 || kills < 0 {
			return fmt.Errorf("--items is %d to 10000, and --kills not below 0", itemsWaiting)
		}
		return nil
	})
	if err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "deepwork-items-")
	if err == nil {
		err = statetest.Prepare(filepath.Join(dir, "user"), dir)
	}
	if err != nil {
		return err
	}

	s := &items{simulation: newSimulation(dir, seed, 0, 1), most: most, kills: kills, count: map[string]int{}}
	if err := s.simulate(ctx); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}

	n, what := s.history.found()
	fmt.Fprintf(stdout, "seed %d: %d items; killed %v; up to %d items waited for a person at one time\n", seed, most,
		s.count, s.some.Load())
	if n > 0 {
		fmt.Fprintf(stdout, "%s\nThe project and the servers' logs are in %s.\n", what, dir)
		return errWrong
	}

	fmt.Fprintln(stdout, "all is well: every item was done exactly once, none was held up by others that waited, and "+
		"there was one join")
	return os.RemoveAll(dir)
}

// simulate runs the session to its end and judges it.
func (s *items) simulate(ctx context.Context) (err error) {
	if err := errors.Join(s.build(ctx), s.layItems(ctx)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.killRunning()) }()

	for n := range 3 {
		s.servers = append(s.servers, &server{number: n, http: true})
	}

	if err := s.serveAll(ctx); err != nil {
		return err
	}

	a := s.agent(0)
	a.lose = 0
	args := map[string]any{"goal": "All of them", "job_name": "many", "workflow_name": "all"}
	t, _ := a.try(ctx, "start_workflow", args, false)
	if !a.reads(t, &t.reply) || t.reply.Begin == nil {
		return fmt.Errorf("starting: %s", t.text)
	}

	s.id = t.reply.Begin.Session
	working, done := context.WithCancel(ctx)
	defer done()

	var all sync.WaitGroup
	for range portsAtOnce + 2 {
		s.agents = append(s.agents, nil)
	}

	all.Go(func() { s.answer(working) })
	err = s.killItems(working)
	done()
	all.Wait()

	for _, c := range s.agents {
		err = errors.Join(err, end(c))
	}

	for _, p := range s.running() {
		s.stop(p)
	}
	if err != nil {
		return err
	}

	s.verify(ctx, "at the end")
	return s.judgeItems(ctx)
}

func (s *items) layItems(ctx context.Context) error {
	job := itemsJob
	for _, step := range portSteps {
		job += fmt.Sprintf("  - {id: %s, name: A, description: A, instructions_file: a.md}\n", step)
	}

	list, err := json.Marshal(slices.Repeat([]string{"an item"}, s.most))
	at := filepath.Join(s.root, ".deepwork", "jobs", "many")
	for path, text := range map[string]string{
		filepath.Join(at, "job.yml"):       job,
		filepath.Join(at, "a.md"):          "Do it.\n",
		filepath.Join(s.root, "todo.json"): string(list),
	} {
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
	}
	return errors.Join(err, s.gitAll(ctx, "init -q -b main", "add .", "commit -q -m first"))
}

// serveAll starts the servers that do not run, plans to kill some at a commit, and notes where they listen.
func (s *items) serveAll(ctx context.Context) error {
	urls, changed := "", false
	for _, where := range s.servers {
		if where.current() == nil {
			changed = true
			plan := fault.Plan{Tied: true}
			if where.process != nil { // its plan or killOne has killed it
				s.killed.Add(1)
				s.count["server"]++
				if s.random.IntN(3) == 0 {
					plan.Commit, plan.Late = 1+s.random.IntN(20), time.Duration(s.random.IntN(3000))*time.Microsecond
				}
			}
			if err := s.run(ctx, where, plan); err != nil {
				return err
			}
		}
		if p := where.current(); p != nil {
			urls += p.url + "\n"
		}
	}
	if !changed {
		return nil
	}
	return replace(filepath.Join(s.dir, "urls"), urls)
}

// killItems starts agents and kills processes until the session is complete and enough were killed, or it is stuck.
func (s *items) killItems(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}

	told, since := 0, time.Now()
	for ctx.Err() == nil {
		for i, c := range s.agents {
			if c != nil && c.ProcessState == nil {
				continue
			}

			c = exec.Command(self, "porter", s.dir, s.id)
			c.Dir = s.root
			s.agents[i] = c
			if c.Start() != nil {
				return fmt.Errorf("starting an agent: %v", c)
			}
		}

		_ = wait.For(ctx, time.Duration(20+s.random.IntN(400))*time.Millisecond)
		did, err := readJournal(s.journal())
		if err != nil {
			return err
		}
		if n := len(did["asked"]) + len(did["finished"]); n > told {
			told, since = n, time.Now()
		}

		if _, err := os.Stat(filepath.Join(s.dir, "complete")); err == nil {
			return nil
		}
		if time.Since(since) > idleItems {
			s.history.fault("nothing happens", "for %v", idleItems)
			return nil
		}

		if err := errors.Join(s.killOne(), s.serveAll(context.WithoutCancel(ctx))); err != nil {
			return err
		}
	}

	return ctx.Err()
}

// killOne kills a server or an agent, unless enough were killed.
func (s *items) killOne() error {
	if s.killed.Load() >= int64(s.kills) {
		return nil
	}

	if s.random.IntN(2) == 0 {
		if p := s.servers[s.random.IntN(len(s.servers))].current(); p != nil {
			return p.kill()
		}
		return nil
	}

	s.killed.Add(1)
	s.count["agent"]++
	return end(s.agents[s.random.IntN(len(s.agents))])
}

// end kills an agent; nil was not started.
func end(c *exec.Cmd) error {
	if c == nil || c.ProcessState != nil {
		return nil
	}

	err := c.Process.Kill()
	_ = c.Wait() // it was killed
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

func (s *items) journal() string { return filepath.Join(s.dir, "agents") }

// answer is the person. They pass an item only while more wait than may be in progress, and paced so that the last
// kills come with the last items.
func (s *items) answer(ctx context.Context) {
	answered := map[string]bool{}
	for ctx.Err() == nil && len(answered) < s.most {
		_ = wait.For(ctx, 50*time.Millisecond)
		did, err := readJournal(s.journal())
		if err != nil {
			s.history.fault("a journal that cannot be read", "%v", err)
			return
		}

		var asked []string
		for step := range did["asked"] {
			if !answered[step] {
				asked = append(asked, step)
			}
		}
		s.some.Store(max(s.some.Load(), int64(len(asked))))
		if len(asked) < min(itemsWaiting, s.most-len(answered)) ||
			int(s.killed.Load())*s.most < (len(answered)+1)*s.kills {
			continue
		}
		step := asked[rand.IntN(len(asked))]
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandWithin)
		text, _, err := tty.Run(s.deepwork(within, s.servers[0], "sessions", "review", s.id, step), "", "pass")
		cancel()
		answered[step] = err == nil || strings.Contains(text, "has answered already")
		if !answered[step] && !strings.Contains(text, "busy") {
			s.history.fault("a person's answer that was refused", "%s: %v: %s", step, err, text)
		}
	}
}

// judgeItems compares the sessions with what agents were told.
func (s *items) judgeItems(ctx context.Context) error {
	all, err := s.kept(ctx)
	if err != nil {
		return err
	}

	did, err := readJournal(s.journal())
	if err != nil {
		return err
	}
	for call, codes := range did["odd"] {
		s.history.fault("an odd answer", "%s: %v", call, codes)
	}

	children := map[string]string{} // tidied, by session
	var whole kept
	for _, k := range all {
		if k.id == s.id {
			whole = k
			continue
		}

		p := progressOfAll(k.record.Progress)["tidy"]
		children[k.id] = string(p.Outputs)
		told := did["finished"][k.id+"/tidy"]
		if k.record.Status != "completed" || k.record.Parent != s.id ||
			len(slices.Compact(slices.Sorted(slices.Values(told)))) > 1 {
			s.history.fault("a workflow of a step that was not done once", "%s: %s, child of %s, finished by %v", k.id,
				k.record.Status, k.record.Parent, told)
		}
	}

	if len(children) != s.most {
		s.history.fault("workflows of steps that were begun more or less than once", "there are %d for %d items",
			len(children), s.most)
	}

	r := whole.record
	done := progressOfAll(whole.record.Progress)
	last := time.Time{}
	var want struct {
		Out, Tidied []string
	}
	for i := range s.most {
		port, tidy := done[fmt.Sprintf("port[%d]", i)], done[fmt.Sprintf("workflow:tidy[%d]", i)]
		want.Out = append(want.Out, portedFile(i))
		var o struct{ Tidied struct{ Text string } }
		if port.CompletedAt == nil || tidy.CompletedAt == nil || port.reliesOn() != judging.ByPerson ||
			json.Unmarshal(tidy.Outputs, &o) != nil || children[tidy.Child] != string(tidy.Outputs) {
			s.history.fault("an item that was not done", "%d: %+v, %+v", i, port, tidy)
			continue
		}
		want.Tidied = append(want.Tidied, o.Tidied.Text)
		for _, p := range []progress{port, tidy} {
			if p.CompletedAt.After(last) {
				last = *p.CompletedAt
			}
		}
	}
	if sum := done["sum"]; sum.StartedAt.Before(last) || sum.CompletedAt == nil {
		s.history.fault("a join before its last item", "the last item was done at %v, and the step after it is %+v",
			last, sum)
	}

	_, begun := done["skipped"]
	if begun || len(r.History) != itemRounds-1 || done["fix"].Round.Number != itemRounds || r.Status != "completed" {
		s.history.fault("another course", "%d withdrawals, fix %+v, status %s", len(r.History), done["fix"], r.Status)
	}

	// The start is revision 0, and each transition one more: the list, of each item its question, answer, end
	// and end of the workflow, and then sum, docs, the rounds and the end. get_step begins the items behind
	// one that waits for a person.
	if n := int64(1 + 4*s.most + 2 + itemRounds + 1); r.Revision < n || r.Revision > n+int64(s.most) {
		s.history.fault("something that was done more than once",
			"the session has revision %d, want %d, and one more for each item that get_step began", r.Revision, n)
	}

	var got struct {
		Out, Tidied []string
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "complete"))
	err = errors.Join(err, json.Unmarshal(text, &got))
	if err != nil || !slices.Equal(got.Out, want.Out) || !slices.Equal(got.Tidied, want.Tidied) {
		s.history.fault("outputs that are not in the order of the items", "%v: %s, want %+v", err, text, want)
	}

	if s.some.Load() < itemsWaiting {
		s.history.fault("items that waited for a person held up others", "only %d waited at one time", s.some.Load())
	}
	return nil
}

// progressOfAll decodes the progress of all steps.
func progressOfAll(steps json.RawMessage) map[string]progress {
	all := map[string]progress{}
	for m := range jsontext.Members(steps) {
		var p progress
		if json.Unmarshal(m.Value, &p) == nil {
			var compact bytes.Buffer
			if json.Compact(&compact, p.Outputs) == nil {
				p.Outputs = compact.Bytes()
			}
			all[m.Name] = p
		}
	}
	return all
}

func portedFile(i int) string { return fmt.Sprintf("out/%d.md", i) }
