package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/actor/testkit"
	"deepwork/session/board"
	"deepwork/session/state"
)

// A runProject is a project whose executor STEPPER is a stepper.
type runProject struct {
	t         *testing.T
	root, dir string   // dir is that of the stepper
	env       []string // of deepwork
}

// runSteps is the beginning of a job of steps with a text each.
func runJob(name string, workflow string, steps ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nversion: \"1.0.0\"\nsummary: A job\ncommon_job_info_provided_to_all_steps_at_runtime: "+
		"Info\nworkflows:\n  - {name: w, summary: W, steps: [%s]}\nsteps:\n", name, workflow)
	for _, s := range steps {
		id, more, _ := strings.Cut(s, " ")
		if !strings.Contains(more, "outputs:") {
			more = strings.TrimPrefix(more+", outputs: {text: {type: file, description: T}}", ", ")
		}
		if !strings.Contains(more, "reviews:") {
			more += ", reviews: []"
		}
		fmt.Fprintf(&b, "  - {id: %s, name: A, description: A, instructions_file: a.md, %s}\n", id, more)
	}

	return b.String()
}

// newRunProject makes one with these jobs, the first called job, and more for its config.
func newRunProject(t *testing.T, config string, jobs ...string) *runProject {
	t.Helper()
	top := testkit.Dir(t)
	p := &runProject{t: t, root: filepath.Join(top, "shop"), dir: filepath.Join(top, "stepper")}
	must(t, os.MkdirAll(p.dir, 0o755))
	files := map[string]string{"README": "hello\n"}
	files[".deepwork/config.yml"] = fmt.Sprintf("executors:\n  STEPPER: {command: [stepper, %q], resume: [stepper, "+
		"%[1]q, resumed, \"{conversation}\"]}\n  OTHER: {command: [stepper, %[1]q, other], variants: {FILE: "+
		"{command: [stepper, %[1]q, config, \"{mcp_config}\"]}}}\n%s", p.dir, config)
	for i, text := range jobs {
		name := fmt.Sprint("job", i)
		files[".deepwork/jobs/"+name+"/job.yml"], files[".deepwork/jobs/"+name+"/a.md"] = strings.ReplaceAll(text,
			"NAME", name), "Do it."
	}
	writeFiles(t, p.root, files)
	t.Cleanup((&boardProject{t: t, root: p.root}).endAgents)
	return p
}

// inGit makes its folder a git repository.
func (p *runProject) inGit() *runProject {
	p.t.Helper()
	inGit(p.t, p.root)
	return p
}

func (p *runProject) plan(lines ...string) {
	p.t.Helper()
	must(p.t, os.WriteFile(filepath.Join(p.dir, "plan"), []byte(strings.Join(lines, "\n")+"\n"), 0o644))
}

// also adds lines to the plan.
func (p *runProject) also(lines ...string) {
	p.t.Helper()
	p.plan(strings.TrimSpace(readAll(p.dir, "plan")) + "\n" + strings.Join(lines, "\n"))
}

// touch lets steppers go on that await a file.
func (p *runProject) touch(name string) {
	p.t.Helper()
	must(p.t, os.WriteFile(filepath.Join(p.dir, name), nil, 0o644))
}

// A runProcess is a process of deepwork run --json.
type runProcess struct {
	p        *runProject
	cmd      *exec.Cmd
	out, err testkit.Log
}

// start starts deepwork run with these arguments.
func (p *runProject) start(args ...string) *runProcess {
	p.t.Helper()
	r := &runProcess{
		p: p,
		cmd: exec.CommandContext(p.t.Context(), "deepwork",
			append(append([]string{"run"}, args...), "--path", p.root)...),
	}
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.err
	r.cmd.Env = append(os.Environ(), p.env...)
	r.cmd.Cancel = func() error { return r.cmd.Process.Signal(syscall.SIGTERM) }
	must(p.t, r.cmd.Start())
	return r
}

// kill kills it, which leads the run.
func (r *runProcess) kill() {
	r.p.t.Helper()
	must(r.p.t, r.cmd.Process.Kill())
	_ = r.cmd.Wait()
}

// interrupt has it end as by Ctrl-C.
func (r *runProcess) interrupt() runEvent {
	r.p.t.Helper()
	must(r.p.t, r.cmd.Process.Signal(os.Interrupt))
	return r.exits(130)
}

// exits waits for its end and returns the last event that it printed.
func (r *runProcess) exits(code int) (last runEvent) {
	r.p.t.Helper()
	err := r.cmd.Wait()
	testkit.Need(r.p.t, r.cmd.ProcessState.ExitCode() == code, "%v: %v, want the exit code %d\n%s%s", r.cmd.Args, err,
		code, &r.out, &r.err)
	for _, last = range r.events() {
	}
	return last
}

// refused waits for its end, and checks what it says of that.
func (r *runProcess) refused(code int, why string) {
	r.p.t.Helper()
	r.exits(code)
	testkit.Contains(r.p.t, r.err.String(), why)
}

// runSchema is what deepwork schema run prints.
var runSchema = sync.OnceValue(func() *jsonschema.Resolved {
	published, err := exec.Command("deepwork", "schema", "run").Output()
	schema := new(jsonschema.Schema)
	if err = errors.Join(err, json.Unmarshal(published, schema)); err != nil {
		panic(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil || resolved.Validate(map[string]any{
		"event":  "step_started",
		"at":     "2026-01-01T00:00:00Z",
		"run_id": "x",
		"state":  "running",
	}) == nil {
		panic(fmt.Sprint("the schema takes a step without an id: ", err))
	}
	return resolved
})

// events are what it has printed. Each fits the published schema.
func (r *runProcess) events() (all []runEvent) {
	r.p.t.Helper()
	for line := range strings.Lines(r.out.String()) {
		var e runEvent
		if json.Unmarshal([]byte(line), &e) != nil || e.Event == "" {
			continue
		}

		var any map[string]any
		must(r.p.t, json.Unmarshal([]byte(line), &any))
		testkit.Works(r.p.t, runSchema().Validate(any), "%s", line)

		all = append(all, e)
	}
	return all
}

// names are the names of the events that it has printed.
func (r *runProcess) names() string {
	var all []string
	for _, e := range r.events() {
		all = append(all, e.Event)
	}
	return strings.Join(all, " ")
}

// begin starts a run of the workflow of the first job.
func (p *runProject) begin(args ...string) *runProcess {
	p.t.Helper()
	return p.start(append([]string{"job0/w", "--goal", "Do all of it", "--executor", "STEPPER", "--json"}, args...)...)
}

func (p *runProject) resume(args ...string) *runProcess {
	p.t.Helper()
	return p.start(append([]string{"resume", "latest", "--json"}, args...)...)
}

// status is what deepwork run status prints.
func (p *runProject) status() *board.RunReply {
	p.t.Helper()
	r := p.start("status", "latest", "--json")
	r.exits(0)
	reply := new(board.RunReply)
	must(p.t, json.Unmarshal([]byte(r.out.String()), reply))
	return reply
}

// recorded are the records of one kind, in order, of a step or, if that is "", of all.
func (p *runProject) recorded(event, step string) (all []stepped) {
	p.t.Helper()
	for _, s := range journalOf(p.dir) {
		if s.Event == event && (step == "" || s.Step == step) {
			all = append(all, s)
		}
	}
	return all
}

// begun are the records of the agents that have begun a step.
func (p *runProject) begun(step string) []stepped {
	p.t.Helper()
	return p.recorded("begin", step)
}

// steps are the steps that agents were started for, in order.
func (p *runProject) steps() string {
	p.t.Helper()
	var all []string
	for _, s := range p.begun("") {
		all = append(all, s.Step)
	}
	return strings.Join(all, " ")
}

// most is how many steppers ran at once.
func (p *runProject) most() (most int) {
	p.t.Helper()
	now := 0
	for _, s := range journalOf(p.dir) {
		now += map[string]int{"begin": 1, "end": -1}[s.Event]
		most = max(most, now)
	}
	return most
}

// awaits waits until so many agents have begun a step.
func (p *runProject) awaits(step string, n int) []stepped {
	p.t.Helper()
	eventually(p.t, func() (bool, any) {
		return len(p.begun(step)) >= n, fmt.Sprintf("not %d agents have begun the step %q", n, step)
	})
	return p.begun(step)
}

// appears waits until a stepper has touched a file.
func (p *runProject) appears(name string) {
	p.t.Helper()
	testkit.Until(p.t, "touched: "+name, func() bool { return fileExists(filepath.Join(p.dir, name)) })
}

// becomes waits until the run is in a state.
func (p *runProject) becomes(state board.State) {
	p.t.Helper()
	eventually(p.t, func() (bool, any) {
		now := p.status()
		return now.State == state, now.State.Words() + " " + optional(now.Reason)
	})
}

// clean fails if a run has left something: a process, a file for an agent, a flaw on the board.
func (p *runProject) clean() {
	p.t.Helper()
	left, err := filepath.Glob(state.Of(p.root).MCP("*"))
	testkit.True(p.t, len(left) <= 0 && err == nil, "files for agents are left: %v %v", left, err)

	for _, x := range p.begun("") {
		// A process that was killed while its shim was, too, may be there a moment longer.
		eventually(p.t, func() (bool, any) {
			return !isStepper(x.PID, p.dir), fmt.Sprintf("an agent of the step %s runs, process %d", x.Step, x.PID)
		})
		testkit.True(p.t, len(x.Beside) <= 0, "an agent of the step %s began beside the processes %v", x.Step, x.Beside)
	}
	cmd := exec.CommandContext(p.t.Context(), "deepwork", "check", "--path", p.root)
	cmd.Env = append(os.Environ(), p.env...)
	out, err := cmd.CombinedOutput()
	testkit.True(p.t, err == nil, "deepwork check: %v\n%s", err, out)
}
