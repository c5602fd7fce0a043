//go:build unix

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/state"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/workflow/machine"
	"deepwork/transport/tool"
)

// A testMachine is a clone of a project with a state folder of its own, whose store is a database.
type testMachine struct {
	t    *testing.T
	root string
	env  []string

	server *exec.Cmd
	client *mcp.ClientSession
}

func (m *testMachine) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(m.t.Context(), "deepwork", append(args, "--path", m.root)...)
	cmd.Env = append(os.Environ(), m.env...)
	return cmd
}

// serve starts a server, with these options.
func (m *testMachine) serve(options ...string) {
	m.t.Helper()
	m.server = m.command(append([]string{"serve", "--log-level", "error"}, options...)...)
	m.server.Stderr = m.t.Output()
	client, err := connect(m.t.Context(), m.server)
	must(m.t, err)
	m.client = client
	m.t.Cleanup(func() {
		m.server.Process.Kill()
		client.Close()
	})
}

type machineReply struct {
	Status    string
	Feedback  string
	BeginStep struct {
		SessionID string `json:"session_id"`
		StepID    string `json:"step_id"`
	} `json:"begin_step"`
}

// call makes a call, again while the store does not answer, and returns the reply or the code of the
// refusal.
func (m *testMachine) call(name string, args map[string]any) (reply machineReply, code string) {
	m.t.Helper()
	for {
		r, err := m.client.CallTool(m.t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
		must(m.t, err)
		if !r.IsError {
			must(m.t, json.Unmarshal([]byte(resultText(r)), &reply))
			return reply, ""
		}
		if code = codeOf(r); code != "store_unavailable" {
			return reply, code
		}
		if r.Meta[tool.WaitingMeta] == nil {
			m.t.Errorf("the refusal does not say to wait: %s", resultText(r))
		}
	}
}

// sees checks that the machine serves a session, at a step.
func (m *testMachine) sees(id, step string) {
	m.t.Helper()
	if r, code := m.call("get_step", map[string]any{"session_id": id}); code != "" || r.BeginStep.StepID != step {
		m.t.Errorf("the session is at step %q, refused: %s; want %s", r.BeginStep.StepID, code, step)
	}
}

// twoMachines returns machines with clones of a project that has these files.
func twoMachines(t *testing.T, files map[string]string) (one, two *testMachine) {
	top, url := testkit.Dir(t), pgtest.URL(t)
	clone := func(name string) *testMachine {
		return &testMachine{t: t, root: filepath.Join(top, name), env: []string{config.StoreEnv + "=" + url, config.ProjectEnv + "=shop", state.Env + "=" + t.TempDir()}}
	}
	one, two = clone("one"), clone("two")
	writeFiles(t, one.root, files)
	testkit.Git(t, one.root, "init", "-q")
	testkit.Git(t, one.root, "add", ".")
	testkit.Git(t, one.root, "commit", "-q", "-m", "first")
	testkit.Git(t, top, "clone", "-q", one.root, two.root)
	return one, two
}

// Two machines with clones of a project share its sessions: each serves any of them at any time, also while
// the other's server is killed or suspended, and calls through both take effect one after the other.
func TestTwoMachines(t *testing.T) {
	t.Parallel()
	one, two := twoMachines(t, map[string]string{".deepwork/jobs/j/job.yml": jobText("j", "a", "b"), ".deepwork/jobs/j/a.md": "Do a."})
	one.serve()
	two.serve()
	start := func(m *testMachine) string {
		t.Helper()
		r, code := m.call("start_workflow", map[string]any{"goal": "g", "job_name": "j", "workflow_name": "w"})
		if code != "" {
			t.Fatalf("not started: %s", code)
		}
		return r.BeginStep.SessionID
	}
	finish := func(m *testMachine, id, step string) string {
		t.Helper()
		_, code := m.call("finished_step", map[string]any{"session_id": id, "step_id": step, "outputs": map[string]any{}})
		return code
	}

	id := start(one)
	two.sees(id, "a")
	if code := finish(two, id, "a"); code != "" {
		t.Errorf("the other machine is refused: %s", code)
	}
	one.sees(id, "b")
	must(t, one.server.Process.Kill())
	if code := finish(two, id, "b"); code != "" {
		t.Errorf("after a kill the other machine is refused: %s", code)
	}
	if out, err := one.command("sessions", "list").CombinedOutput(); err != nil || !strings.Contains(string(out), id) || !strings.Contains(string(out), two.root) {
		t.Errorf("listed on the other machine: %v\n%s", err, out)
	}

	one.serve()
	id = start(one)
	must(t, one.server.Process.Signal(syscall.SIGSTOP))
	two.sees(id, "a")
	if code := finish(two, id, "a"); code != "" {
		t.Errorf("beside a suspended server the other machine is refused: %s", code)
	}
	must(t, one.server.Process.Signal(syscall.SIGCONT))
	if code := finish(one, id, "a"); code != "" { // it repeats the reply
		t.Errorf("the server that was suspended: %q", code)
	}
	one.sees(id, "b")
	two.sees(id, "b")
	if code := finish(two, id, "b"); code != "" {
		t.Errorf("it is not finished: %s", code)
	}

	// Another repository cannot use the name.
	three := &testMachine{t: t, root: filepath.Join(testkit.Dir(t), "three"), env: one.env}
	must(t, os.Mkdir(three.root, 0o755))
	testkit.Git(t, three.root, "init", "-q")
	testkit.Git(t, three.root, "commit", "-q", "--allow-empty", "-m", "another")
	if out, err := three.command("serve").CombinedOutput(); err == nil || !strings.Contains(string(out), "--project") {
		t.Errorf("another repository under the same name: %v\n%s", err, out)
	}
}

// A server ends in the middle of a review: the other one runs the review again once nobody renews it, and the
// verdict of the first is not recorded, whether that server was killed or suspended.
func TestTwoMachinesAndAReview(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a review that nobody renews")
	}
	t.Parallel()
	for _, how := range []string{"killed", "suspended"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			one, two := twoMachines(t, map[string]string{
				".deepwork/jobs/j/job.yml": strings.Replace(jobText("j", "a", "b"), "reviews: []", "reviews: [{run_each: step, quality_criteria: {good: 'Is it good?'}}]", 1),
				".deepwork/jobs/j/a.md":    "Do a."})
			said := t.TempDir()
			// slow passes when it is told to, and quick says what is in a file.
			writeFiles(t, said, map[string]string{
				"slow":    `cd "$(dirname "$0")" && echo >> began && while [ ! -e go ]; do sleep 0.05; done && echo '{"passed": true, "feedback": ""}' && touch ended`,
				"quick":   `cat "$(dirname "$0")/verdict"`,
				"verdict": `{"passed": false, "feedback": "Write more."}`})
			exists := func(name string) func() bool {
				return func() bool { _, err := os.Stat(filepath.Join(said, name)); return err == nil }
			}
			one.serve("--quality-gate", "sh "+filepath.Join(said, "slow"))
			two.serve("--quality-gate", "sh "+filepath.Join(said, "quick"))
			r, code := one.call("start_workflow", map[string]any{"goal": "g", "job_name": "j", "workflow_name": "w"})
			if code != "" {
				t.Fatalf("not started: %s", code)
			}
			id := r.BeginStep.SessionID
			finish := map[string]any{"session_id": id, "step_id": "a", "outputs": map[string]any{}}
			first := make(chan string, 1) // the answer of the first server
			go func() {
				r, err := one.client.CallTool(t.Context(), &mcp.CallToolParams{Name: "finished_step", Arguments: finish})
				if err != nil {
					first <- err.Error()
					return
				}
				first <- codeOf(r) + resultText(r)
			}()
			testkit.Until(t, "the first review has begun", exists("began"))
			signal := map[string]syscall.Signal{"killed": syscall.SIGKILL, "suspended": syscall.SIGSTOP}[how]
			must(t, one.server.Process.Signal(signal))
			two.sees(id, "a")
			if r, code := two.call("finished_step", finish); code != "" || r.Status != "needs_work" || r.Feedback != "Write more." {
				t.Fatalf("the review was not run again: %+v, %s", r, code)
			}
			writeFiles(t, said, map[string]string{"go": "", "verdict": `{"passed": true, "feedback": ""}`})
			if how == "suspended" {
				testkit.Until(t, "the first review has ended", exists("ended"))
				must(t, one.server.Process.Signal(syscall.SIGCONT))
				// Its call waited for a verdict on these outputs, and has the one that counts.
				if r, runs := <-first, readAll(said, "began"); !strings.Contains(r, `"feedback":"Write more."`) || strings.Count(runs, "\n") != 1 {
					t.Errorf("the first server answers %q after reviews %q", r, runs)
				}
			} else {
				two.sees(id, "a")
			}
			if r, code := two.call("finished_step", finish); code != "" || r.Status != "next_step" {
				t.Errorf("finished with %+v, %s", r, code)
			}
			shown, err := two.command("sessions", "show", id, "--json").Output()
			must(t, err)
			var s machine.State
			must(t, json.Unmarshal(shown, &s))
			var states []string
			for _, a := range s.Progress("a").Attempts {
				states = append(states, string(a.State))
			}
			if got := strings.Join(states, " "); got != "void failed passed" {
				t.Errorf("the attempts are %s:\n%s", got, shown)
			}
		})
	}
}
