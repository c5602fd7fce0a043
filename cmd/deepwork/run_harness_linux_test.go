package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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
	fmt.Fprintf(&b, "name: %s\nversion: \"1.0.0\"\nsummary: A job\ncommon_job_info_provided_to_all_steps_at_runtime: Info\nworkflows:\n  - {name: w, summary: W, steps: [%s]}\nsteps:\n", name, workflow)
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
	files[".deepwork/config.yml"] = fmt.Sprintf("executors:\n  STEPPER: {command: [stepper, %q], resume: [stepper, %[1]q, resumed, \"{conversation}\"]}\n  OTHER: {command: [stepper, %[1]q, other], variants: {FILE: {command: [stepper, %[1]q, config, \"{mcp_config}\"]}}}\n%s", p.dir, config)
	for i, text := range jobs {
		name := fmt.Sprint("job", i)
		files[".deepwork/jobs/"+name+"/job.yml"], files[".deepwork/jobs/"+name+"/a.md"] = strings.ReplaceAll(text, "NAME", name), "Do it."
	}
	writeFiles(t, p.root, files)
	t.Cleanup((&boardProject{t: t, root: p.root}).endAgents)
	return p
}

// inGit makes its folder a git repository.
func (p *runProject) inGit() *runProject {
	p.t.Helper()
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"commit", "-q", "-m", "first"}} {
		testkit.Git(p.t, p.root, args...)
	}
	return p
}

func (p *runProject) plan(lines ...string) {
	p.t.Helper()
	must(p.t, os.WriteFile(filepath.Join(p.dir, "plan"), []byte(strings.Join(lines, "\n")+"\n"), 0o644))
}

// also adds lines to the plan.
func (p *runProject) also(lines ...string) {
	p.t.Helper()
	plan := testkit.Get(os.ReadFile(filepath.Join(p.dir, "plan"))).Must(p.t)
	p.plan(strings.TrimSpace(string(plan)) + "\n" + strings.Join(lines, "\n"))
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
	r := &runProcess{p: p, cmd: exec.CommandContext(p.t.Context(), "deepwork", append(append([]string{"run"}, args...), "--path", p.root)...)}
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.err
	r.cmd.Env = append(os.Environ(), "DEEPWORK_ADDITIONAL_JOBS_FOLDERS=", "GIT_CONFIG_NOSYSTEM=1")
	r.cmd.Env = append(r.cmd.Env, p.env...)
	r.cmd.Cancel = func() error { return r.cmd.Process.Signal(syscall.SIGTERM) }
	must(p.t, r.cmd.Start())
	return r
}

// exits waits for its end and returns the events that it printed.
func (r *runProcess) exits(code int) []runEvent {
	r.p.t.Helper()
	err := r.cmd.Wait()
	if exit, is := errors.AsType[*exec.ExitError](err); err != nil && !is {
		r.p.t.Fatal(err)
	} else if is && exit.ExitCode() != code || !is && code != 0 {
		r.p.t.Fatalf("%v: %v, want the exit code %d\n%s%s", r.cmd.Args, err, code, &r.out, &r.err)
	}
	return r.events()
}

// events are what it has printed.
func (r *runProcess) events() (all []runEvent) {
	for line := range strings.Lines(r.out.String()) {
		var e runEvent
		if json.Unmarshal([]byte(line), &e) == nil {
			all = append(all, e)
		}
	}
	return all
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
	err := json.Unmarshal([]byte(r.out.String()), reply)
	testkit.Need(p.t, err == nil, "%v in %s", err, &r.out)
	return reply
}

// journal is what the steppers have recorded.
func (p *runProject) journal() (all []stepped) {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, "journal"))
	testkit.Need(p.t, err == nil || os.IsNotExist(err), "%v", err)
	for line := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) { // another one may be half written
		var s stepped
		must(p.t, json.Unmarshal(line, &s))
		all = append(all, s)
	}
	return all
}

// recorded are the records of one kind, in order, of a step or, if that is "", of all.
func (p *runProject) recorded(event, step string) (all []stepped) {
	p.t.Helper()
	for _, s := range p.journal() {
		if s.Event == event && (step == "" || s.Step == step) {
			all = append(all, s)
		}
	}
	return all
}

// steps are the steps that agents were started for, in order.
func (p *runProject) steps() string {
	p.t.Helper()
	var all []string
	for _, s := range p.recorded("begin", "") {
		all = append(all, s.Step)
	}
	return strings.Join(all, " ")
}

// most is how many steppers ran at once.
func (p *runProject) most() (most int) {
	p.t.Helper()
	now := 0
	for _, s := range p.journal() {
		switch s.Event {
		case "begin":
			now++
		case "end":
			now--
		}
		most = max(most, now)
	}
	return most
}

// awaits waits until so many agents have begun a step.
func (p *runProject) awaits(step string, n int) []stepped {
	p.t.Helper()
	testkit.Eventually(p.t, func() string {
		if got := len(p.recorded("begin", step)); got < n {
			return fmt.Sprintf("%d agents have begun the step %q, want %d", got, step, n)
		}
		return ""
	})
	return p.recorded("begin", step)
}

// appears waits until a stepper has touched a file.
func (p *runProject) appears(name string) {
	p.t.Helper()
	testkit.Eventually(p.t, func() string {
		if _, err := os.Stat(filepath.Join(p.dir, name)); err != nil {
			return err.Error()
		}
		return ""
	})
}

// clean fails if a run has left something: a process, a file for an agent, a flaw on the board.
func (p *runProject) clean() {
	p.t.Helper()
	left, err := filepath.Glob(state.Of(p.root).MCP("*"))
	testkit.True(p.t, len(left) <= 0 && err == nil, "files for agents are left: %v %v", left, err)
	for _, x := range p.recorded("begin", "") {
		testkit.Eventually(p.t, func() string { // a process that was killed while its shim was, too, may be there a moment longer
			if isStepper(x.PID, p.dir) {
				return fmt.Sprintf("an agent of the step %s runs, process %d", x.Step, x.PID)
			}
			return ""
		})
		testkit.True(p.t, len(x.Beside) <= 0, "an agent of the step %s began beside the processes %v", x.Step, x.Beside)
	}
	cmd := exec.CommandContext(p.t.Context(), "deepwork", "check", "--path", p.root)
	cmd.Env = append(os.Environ(), p.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Errorf("deepwork check: %v\n%s", err, out)
	}
}

// processOf returns the state of a process, "" if it is gone, and its parent.
func processOf(pid int) (state string, parent int) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil {
		_, rest, _ := strings.Cut(string(data), ") ")
		_, err = fmt.Sscanf(rest, "%1s %d", &state, &parent)
	}
	if err != nil {
		return "", 0
	}
	return state, parent
}
