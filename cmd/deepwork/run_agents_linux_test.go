package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/telemetry/telemetrytest"
	"deepwork/actor/testkit"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/spans"
)

// The agent of a run starts no other run, by whatever way.
func TestRunInsideARun(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"--worktree", "--in-place"} {
		t.Run(strings.TrimPrefix(place, "--"), func(t *testing.T) {
			t.Parallel()
			p := newRunProject(t, "", runJob("NAME", "a", "a")).inGit()
			args := `run_workflow {"job_name":"job0","workflow_name":"w","goal":"An inner one","executor":"STEPPER"}`
			p.plan("a call "+args, "a serve "+args, "a deepwork run job0/w --goal inner --executor STEPPER --path "+
				p.root, "a deepwork run resume latest --path "+p.root, "a finish")
			p.begin(place).exits(0)
			testkit.Equal(t, p.steps(), "a", "the steps were begun as")

			said := append(p.recorded("deepwork", "a"), p.recorded("serve run_workflow", "a")...)
			testkit.Need(t, len(said) == 3, "%+v", said)
			testkit.Need(t, strings.HasPrefix(said[0].Text, "1 "), "%+v", said)
			testkit.Need(t, strings.HasPrefix(said[1].Text, "1 "), "%+v", said)

			for _, s := range said {
				testkit.Contains(t, s.Text, "An agent that works on an attempt cannot start agents")
			}
			testkit.Contains(t, p.recorded("run_workflow", "a")[0].Text, "unknown tool")
			p.clean()
		})
	}
}

// A token is for one step of one session, as long as its agent runs.
func TestRunTokens(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "a, [b, c], d", "a", "b", "c", "d"), runJob("NAME", "x", "x"))
	p.plan("x await end", "x finish")
	another := p.start("job1/w", "--goal", "Another one", "--executor", "STEPPER", "--json")
	y := p.awaits("x", 1)[0]
	p.plan("b touch b", "b await go", "c await b", `c call get_step {"step_id":"b"}`,
		`c call finished_step {"step_id":"b","outputs":{"text":"a.md"}}`,
		`c call finished_step {"session_id":"`+y.Session+`","outputs":{"text":"a.md"}}`,
		`c call start_workflow {"job_name":"job0","workflow_name":"w","goal":"g","parent_session_id":"`+y.Session+`"}`,
		"c call abort_workflow {}", "c await go", "c finish", "b finish", "d await end", "d finish")
	r := p.begin()
	p.awaits("c", 1)
	eventually(t, func() (bool, any) { return len(p.recorded("finished_step", "c")) >= 2, "calls are to come" })
	x, gone := p.begun("c")[0], p.begun("a")[0].Token
	for _, call := range [][3]string{{"POST", "/mcp", ""}, {"POST", "/mcp", " "}, {"POST", "/mcp", "dw_wrong"},
		{"GET", "/", ""}, {"GET", "/healthz", ""}, {"GET", "/readyz", ""}, {"GET", "/version", ""},
		{"GET", "/metrics", ""}, {"GET", "/ui", ""},
		{"GET", "/board", ""}, {"GET", "/login", ""}, {"OPTIONS", "/mcp", ""}, {"GET", "/mcp", gone},
		{"POST", "/mcp", gone}, {"POST", "/mcp", y.Token}} {
		body := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		req := testkit.Get(http.NewRequestWithContext(t.Context(), call[0], strings.TrimSuffix(x.URL, "/mcp")+call[1],
			body)).Must(t)
		req.Header = http.Header{
			"Content-Type": {"application/json"},
			"Accept":       {"application/json, text/event-stream"},
		}
		res := testkit.Get((&http.Client{Transport: bearer(call[2])}).Do(req)).Must(t)
		res.Body.Close()
		testkit.Equal(t, res.StatusCode, http.StatusUnauthorized, "%v", call[:2])
	}
	p.touch("go")
	p.awaits("d", 1)
	for _, step := range []string{"a", "b", "c"} {
		testkit.Fails(t, testkit.Get(dialStep(t.Context(), x.URL, p.begun(step)[0].Token)).Err(), "",
			"the token of the step %s after the end of its agent", step)
	}
	p.touch("end")
	r.exits(0)
	another.exits(0)
	for event, want := range map[string]string{
		"get_step":       "'b' is another one",
		"start_workflow": "'" + y.Session + "' is another one",
		"abort_workflow": "unknown tool",
	} {
		testkit.Contains(t, p.recorded(event, "c")[0].Text, want, event)
	}
	said := p.recorded("finished_step", "c")
	testkit.Equal(t, len(said), 3)
	testkit.Contains(t, said[0].Text, "'b' is another one")
	testkit.Contains(t, said[1].Text, "'"+y.Session+"' is another one")
	p.clean()
}

// The known programs find the server of their step where they look for it, and only that, and go on with
// their conversations.
func TestRunKnownPrograms(t *testing.T) {
	t.Parallel()
	programs := map[string]struct{ executor, says, goesOn string }{
		"claude": {"CLAUDE_CODE", `{"type":"system","subtype":"init","session_id":"CONVERSATION"}`,
			"--resume talk-claude"},
		"codex":  {"CODEX", `{"type":"thread.started","thread_id":"CONVERSATION"}`, "resume talk-codex -"},
		"gemini": {"GEMINI", `{"type":"init","session_id":"CONVERSATION","model":"m"}`, "--resume talk-gemini"},
		"cursor-agent": {"CURSOR_AGENT", `{"type":"system","subtype":"init","session_id":"CONVERSATION"}`,
			"--resume talk-cursor"},
		"opencode": {"OPENCODE", `{"type":"step_start","sessionID":"CONVERSATION"}`, "--session talk-opencode"},
	}

	var names, steps, plan []string
	for program, agent := range programs {
		name := strings.TrimSuffix(program, "-agent")
		names, steps = append(names, name), append(steps, name+" executor: "+agent.executor)
		plan = append(plan, name+" say "+agent.says, name+":2 finish", name+":1 call get_step {}")
	}
	p := newRunProject(t, "", runJob("NAME", "["+strings.Join(names, ", ")+"]", steps...))
	for program := range programs {
		p.standsIn(program)
	}
	p.plan(plan...)
	p.begin().exits(0)
	for program, agent := range programs {
		name := strings.TrimSuffix(program, "-agent")
		begun := p.begun(name)
		testkit.True(t, len(begun) == 2 && strings.HasSuffix(" "+strings.Join(begun[1].Args, " "), " "+agent.goesOn),
			"%s: %+v", program, begun)
		testkit.Contains(t, p.recorded("get_step", name)[0].Text, `"step_id":"`+name+`"`)
	}
	p.clean()
}

// standsIn puts a stepper in the place of a program.
func (p *runProject) standsIn(program string) {
	p.t.Helper()
	bin := filepath.Join(p.dir, "bin")
	testkit.Write(p.t, filepath.Join(bin, program),
		fmt.Sprintf("#!/bin/sh\nexec stepper %q %s \"$@\"\n", p.dir, program))
	must(p.t, os.Chmod(filepath.Join(bin, program), 0o755))
	p.env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
}

// Many runs at once share the slots of the project, those of one server and of processes of their own. The
// first agents wait for each other, so that all slots are in use at once, on a machine of any speed.
func TestRunManyOnFourSlots(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "attempts: {max_concurrent: 4}\n", runJob("NAME", "a", "a outputs: {}")).inGit()
	p.plan("a:1 await all", "a:2 await all", "a:3 await all", "a:4 await all", "* finish")
	const alone, served = 4, 6 // enough for each process to wait for the others
	var all []*runProcess
	for range alone {
		all = append(all, p.begin())
	}
	client, _ := startClient(t, p.root, "--toolsets", "board,workflows")
	var led []string
	for n := range served {
		led = append(led, startRun(t, client, map[string]any{
			"job_name":      "job0",
			"workflow_name": "w",
			"goal":          fmt.Sprintf("The part %d", n),
			"executor":      "STEPPER",
		}))
	}
	p.awaits("a", 4)
	p.touch("all")
	for _, r := range all {
		r.exits(0)
	}

	for _, id := range led {
		awaitRun(t, client, id)
	}
	testkit.Equal(t, p.most(), 4, "agents at once")
	testkit.Equal(t, len(p.begun("")), alone+served, "agents of the runs")
	p.clean()
}

// startRun calls run_workflow and returns the id of the run.
func startRun(t testing.TB, client *mcp.ClientSession, args map[string]any) string {
	t.Helper()
	r, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_workflow", Arguments: args})
	testkit.Need(t, err == nil && !r.IsError, "%v %v", err, r)
	return r.StructuredContent.(map[string]any)["run_id"].(string)
}

// awaitRun waits until a run is completed.
func awaitRun(t testing.TB, client *mcp.ClientSession, id string) {
	t.Helper()
	eventually(t, func() (bool, any) {
		r, err := client.CallTool(t.Context(),
			&mcp.CallToolParams{Name: "get_run", Arguments: map[string]any{"run_id": id}})
		testkit.Need(t, err == nil && !r.IsError, "%v %v", err, r)
		return r.StructuredContent.(map[string]any)["state"] == "completed", r.StructuredContent
	})
}

// onBoard is the board of the project, at a server that leads its runs.
func (p *runProject) onBoard() *boardProject {
	b := &boardProject{t: p.t, root: p.root}
	b.client, b.server = startClient(p.t, p.root)
	b.find()
	return b
}

// A server leads the runs that its clients start, by run_workflow or as an attempt on a task, in the slots of
// the board.
func TestRunFromTools(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "attempts: {max_concurrent: 1}\n", runJob("NAME", "a, b", "a", "b")).inGit()
	p.plan("* await go", "a finish", "b finish")
	b := p.onBoard()

	attemptOn := func(task map[string]any) string {
		t.Helper()
		task["project_id"], task["title"] = b.project, "A task"
		return boardCall[attempt.AttemptReply](b, "start_task_attempt", map[string]any{
			"task_id":  boardCall[board.Task](b, "create_task", task).TaskID,
			"executor": "STEPPER",
			"repos":    []map[string]any{{"repo_id": b.repo, "target_branch": "main"}},
		}).AttemptID
	}
	ordinary := attemptOn(map[string]any{})
	p.awaits("", 1)

	args := map[string]any{
		"job_name":      "job0",
		"workflow_name": "w",
		"goal":          "All of it",
		"executor":      "STEPPER",
		"request_id":    "once",
	}
	run := boardCall[attempt.RunMade](b, "run_workflow", args).RunID
	testkit.Equal(t, boardCall[attempt.RunMade](b, "run_workflow", args).RunID, run)

	eventually(t, func() (bool, any) { // for the slot
		now := boardCall[board.RunReply](b, "get_run", map[string]any{"run_id": run})
		return len(now.Steps) == 1 && now.Steps[0].State == "queued", now
	})
	p.touch("go")
	awaitRun(t, b.client, run)
	testkit.Equal(t, b.ends(ordinary).State, "completed")
	awaitRun(t, b.client, attemptOn(map[string]any{"lead": "server", "job_name": "job0", "workflow_name": "w"}))
	testkit.True(t, p.steps() == " a b a b" && p.most() == 1, "the steps were begun as %q, %d at once",
		p.steps(), p.most())
	p.clean()
}

// A command that starts an attempt which is a run leads it, and with --detach leaves a process that does.
func TestRunFromTheBoard(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "a, b", "a", "b")).inGit()
	b := p.onBoard()

	made := boardCall[board.Task](b, "create_task", map[string]any{
		"project_id":    b.project,
		"title":         "A task",
		"lead":          "server",
		"job_name":      "job0",
		"workflow_name": "w",
	})

	must(t, b.client.Close())
	for i, flag := range []string{"--detach", "--detach=false"} {
		testkit.Contains(t, mustPrint(t, p.root, "board", "start", made.TaskID, "--executor", "STEPPER", flag),
			"job0/w")
		p.becomes("completed")
		testkit.Equal(t, p.steps(), strings.TrimSpace(strings.Repeat("a b ", i+1)), "the steps were begun as")
	}
	p.clean()
}

// newTraced makes a project whose runs are traced to a receiver, with stand-ins of Claude Code and Codex that
// continue a trace.
func newTraced(t *testing.T, url, job string) *runProject {
	t.Helper()
	verdict := `{"type":"result","subtype":"success","result":"{\"passed\": true, \"feedback\": ` +
		`\"canary-feedback\"}","session_id":"r","total_cost_usd":0.03,"num_turns":1}`
	command := testkit.Get(json.Marshal(
		[]string{"sh", "-c", `cat > /dev/null; env > "$1"; printf '%s\n' "$0"`, verdict, "ENV/reviewer"})).Must(t)
	p := newRunProject(t, "", job)
	p.standsIn("claude")
	p.standsIn("codex")
	ownUser(t, fmt.Sprintf("telemetry: {otlp: %q, trace_url: "+
		"'https://traces.example.com/{trace_id}'}\ntrusted_folders: [%q]\nprices: {CODEX: {input: 1, output: "+
		"10}}\nquality_gate: {reviewer_executor: JUDGE}\nexecutors:\n  CLAUDE_CODE: {telemetry: true}\n  CODEX: "+
		"{telemetry: true}\n  JUDGE: {command: %s}\n",
		url, p.root, strings.ReplaceAll(string(command), "ENV", p.dir)))
	t.Setenv("CANARY", "canary-environment")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=canary-key")
	return p.inGit()
}

const (
	claudeSays = ` say {"type":"result","subtype":"success","result":"canary-message","session_id":"CONVERSATION",` +
		`"total_cost_usd":0.111,"num_turns":1,"usage":{"input_tokens":10,"output_tokens":5}}`
	codexSays = ` say {"type":"turn.completed","usage":{"input_tokens":1000,"cached_input_tokens":0,` +
		`"output_tokens":500}}`
)

// A run with agents of two vendors, a reviewer, a check and a person is one trace, and its costs are those of the run,
// although its leader is killed and another process goes on. Nothing of its content leaves.
func TestTraceOfARunWhoseLeaderIsKilled(t *testing.T) {
	receiver := telemetrytest.New(t)
	p := newTraced(t, receiver.URL,
		runJob("NAME", "a, b, c",
			`a executor: CLAUDE_CODE, reviews: [{run_each: step, quality_criteria: {good: "canary-question"}}]`,
			`b executor: CODEX, checks: [{run: [sh, -c, 'env > "$0"; echo canary-output', ENV/check], name: tests}]`,
			"c executor: CLAUDE_CODE,"+byHuman))
	path := filepath.Join(p.root, ".deepwork/jobs/job0/job.yml")
	must(t, os.WriteFile(path, bytes.ReplaceAll(testkit.Get(os.ReadFile(path)).Must(t), []byte("ENV"), []byte(p.dir)),
		0o644))
	testkit.Git(t, p.root, "commit", "-q", "-a", "-m", "second")

	p.plan("* span of-agent", "* run env", "a write a.md canary-text", "a finish", "a"+claudeSays,
		`b say {"type":"thread.started","thread_id":"CONVERSATION"}`, "b:1 touch begun", "b:1 await never", "b finish",
		"b"+codexSays, "c finish", "c"+claudeSays)
	const caller, trace = "00f067aa0ba902b7", "4bf92f3577b34da6a3ce929d0e0e4736"
	killed := func() *runProcess {
		env := p.env
		defer func() { p.env = env }()
		p.env = append(slices.Clone(env), "TRACEPARENT=00-"+trace+"-"+caller+"-01")
		return p.start("job0/w", "--goal", "canary-goal", "--executor", "CLAUDE_CODE", "--json")
	}()
	p.appears("begun")
	must(t, killed.cmd.Process.Kill())
	_ = killed.cmd.Wait()
	e := killed.events()
	testkit.Need(t, len(e) != 0, "the run says of its trace %+v", e)
	testkit.Equal(t, e[0].TraceID, trace, "the run says of its trace %+v", e)
	testkit.Equal(t, e[0].TraceURL, "https://traces.example.com/"+trace, "the run says of its trace %+v", e)

	resumed := p.resume()
	p.review(p.waits("c", ""), "pass")
	resumed.exits(0)

	all, sum := receiver.Spans(), 0.0
	names, known := map[string]int{}, []string{"error.type"}
	for _, k := range spans.Kinds {
		for _, key := range k.Keys {
			known = append(known, string(key))
		}
	}
	for _, s := range all {
		names[s.Name]++
		_, ok := all[s.Parent]
		testkit.True(t, s.Trace == trace && (ok || s.Parent == caller),
			"%s is in the trace %s, and its parent %s was not sent: %v", s.Name, s.Trace, s.Parent, s.Attributes)
		for key := range s.Attributes {
			testkit.True(t, slices.Contains(known, key), "%s has an attribute that is not documented: %s", s.Name, key)
		}
		if usd, ok := s.Attributes[string(spans.Cost)].(float64); ok {
			sum += usd
		}
	}

	for name, want := range map[string]int{
		"run":                      1,
		"invoke_workflow job0/w":   1,
		"step":                     3,
		"review":                   1,
		"checks":                   1,
		"verdict":                  2,
		"wait_for_person":          1,
		"invoke_agent CLAUDE_CODE": 2,
		"invoke_agent CODEX":       2,
		"invoke_agent JUDGE":       1,
		"of-agent":                 4,
		"tools/call finished_step": 2,
	} {
		// the first call may be lost with the leader
		if cut := name == "tools/call finished_step" && names[name] == 3; names[name] != want && !cut {
			t.Errorf("%d spans are called %s, want %d; all are %v", names[name], name, want, names)
		}
	}

	status := p.status()
	cost := status.Cost
	testkit.Need(t, cost != nil, "the spans cost %v, and the run %+v", sum, cost)
	testkit.Need(t, cost.USD != nil, "the spans cost %v, and the run %+v", sum, cost)
	testkit.Equal(t, math.Round(*cost.USD*100), math.Round(sum*100), "the spans cost %v, and the run %+v", sum, cost)
	testkit.True(t, sum != 0, "the spans cost %v, and the run %+v", sum, cost)
	testkit.Equal(t, board.OrEmpty(status.TraceID), trace, "the trace of the status")

	receiver.Forget()
	startClient(t, p.root, "--toolsets", "board")
	testkit.Eventually(t, func() string { // since its leader may have been killed before it had sent it
		for id, s := range receiver.Spans() {
			if s.Name == spans.Run && s.End == all[id].End {
				return ""
			}
		}
		return "the next server does not send the run again"
	})

	for _, secret := range []string{"canary", "text of", filepath.Dir(p.root)} {
		at := bytes.Index(receiver.Raw(), []byte(secret))
		testkit.True(t, at < 0, "%q leaves: %q", secret,
			receiver.Raw()[max(0, at-100):min(len(receiver.Raw()), at+100)])
	}

	for _, who := range []string{"reviewer", "check"} {
		env := readAll(p.dir, who)
		testkit.Contains(t, env, "TRACEPARENT=00-"+trace, "the environment of the %s", who)
		testkit.True(t, !strings.Contains(env, "OTEL_EXPORTER") && !strings.Contains(env, caller),
			"the environment of the %s: %s", who, env)
	}
	p.clean()
}
