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
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/state"
	"deepwork/session/store/postgres/pgtest"
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

// serve starts a server.
func (m *testMachine) serve() {
	m.t.Helper()
	m.server = m.command("serve", "--log-level", "error")
	m.server.Stderr = m.t.Output()
	client, err := connect(m.t.Context(), m.server)
	must(m.t, err)
	m.client = client
	m.t.Cleanup(func() {
		m.server.Process.Kill()
		client.Close()
	})
}

// call makes a call, again while the store does not answer, and returns the reply or the code of the
// refusal.
func (m *testMachine) call(name string, args map[string]any) (reply struct {
	BeginStep struct {
		SessionID string `json:"session_id"`
		StepID    string `json:"step_id"`
	} `json:"begin_step"`
}, code string) {
	m.t.Helper()
	for {
		r, err := m.client.CallTool(m.t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
		must(m.t, err)
		if !r.IsError {
			must(m.t, json.Unmarshal([]byte(resultText(r)), &reply))
			return reply, ""
		}
		meta, _ := r.Meta[tool.ErrorMeta].(map[string]any)
		code, _ = meta["code"].(string)
		if code != "store_unavailable" {
			return reply, code
		}
		if r.Meta[tool.WaitingMeta] == nil {
			m.t.Errorf("the refusal does not say to wait: %s", resultText(r))
		}
	}
}

// takesOver waits until the machine can go on with a session, which takes less than 10 s.
func (m *testMachine) takesOver(id, step string) {
	m.t.Helper()
	began := time.Now()
	testkit.Until(m.t, "the session is free", func() bool {
		r, code := m.call("get_step", map[string]any{"session_id": id})
		if code != "" && code != "session_owned" || code == "" && r.BeginStep.StepID != step {
			m.t.Fatalf("at step %s, refused: %s", r.BeginStep.StepID, code)
		}
		return code == ""
	})
	if took := time.Since(began); took > 10*time.Second {
		m.t.Errorf("it took %v to take the session over", took)
	}
}

// Two machines with clones of a project share its sessions: if a server is killed, the other machine
// goes on within 10 s; one that was suspended for longer than its lease never overwrites what the
// other has done, and says who has the session.
func TestTwoMachines(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for leases to end")
	}
	top, url := testkit.Dir(t), pgtest.URL(t)
	one := &testMachine{t: t, root: filepath.Join(top, "one"), env: []string{config.StoreEnv + "=" + url, config.ProjectEnv + "=shop", state.Env + "=" + t.TempDir()}}
	two := &testMachine{t: t, root: filepath.Join(top, "two"), env: []string{config.StoreEnv + "=" + url, config.ProjectEnv + "=shop", state.Env + "=" + t.TempDir()}}
	writeFiles(t, one.root, map[string]string{".deepwork/jobs/j/job.yml": jobText("j", "a", "b"), ".deepwork/jobs/j/a.md": "Do a.", ".deepwork/jobs/j/b.md": "Do b."})
	testkit.Git(t, one.root, "init", "-q")
	testkit.Git(t, one.root, "add", ".")
	testkit.Git(t, one.root, "commit", "-q", "-m", "first")
	testkit.Git(t, top, "clone", "-q", one.root, two.root)
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
	if _, code := two.call("get_step", map[string]any{"session_id": id}); code != "session_owned" {
		t.Errorf("a session of a server that lives: %q", code)
	}
	must(t, one.server.Process.Kill())
	two.takesOver(id, "a")
	if code := finish(two, id, "a"); code != "" {
		t.Errorf("after a kill the other machine is refused: %s", code)
	}
	if out, err := one.command("sessions", "list").CombinedOutput(); err != nil || !strings.Contains(string(out), id) || !strings.Contains(string(out), two.root) {
		t.Errorf("listed on the other machine: %v\n%s", err, out)
	}

	one.serve()
	id = start(one)
	must(t, one.server.Process.Signal(syscall.SIGSTOP))
	two.takesOver(id, "a")
	if code := finish(two, id, "a"); code != "" {
		t.Errorf("beside a suspended server the other machine is refused: %s", code)
	}
	must(t, one.server.Process.Signal(syscall.SIGCONT))
	if code := finish(one, id, "a"); code != "owned_elsewhere" {
		t.Errorf("the server that was suspended: %q", code)
	}
	if r, code := two.call("get_step", map[string]any{"session_id": id}); code != "" || r.BeginStep.StepID != "b" {
		t.Errorf("the session is at step %q, refused: %s", r.BeginStep.StepID, code)
	}
	if code := finish(two, id, "b"); code != "" {
		t.Errorf("it is not finished: %s", code)
	}

	// Another repository cannot use the name.
	three := &testMachine{t: t, root: filepath.Join(top, "three"), env: one.env}
	must(t, os.Mkdir(three.root, 0o755))
	testkit.Git(t, three.root, "init", "-q")
	testkit.Git(t, three.root, "commit", "-q", "--allow-empty", "-m", "another")
	if out, err := three.command("serve").CombinedOutput(); err == nil || !strings.Contains(string(out), "--project") {
		t.Errorf("another repository under the same name: %v\n%s", err, out)
	}
}
