package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// The agent of a run starts no other run, by whatever way.
func TestRunInsideARun(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"--worktree", "--in-place"} {
		t.Run(strings.TrimPrefix(place, "--"), func(t *testing.T) {
			t.Parallel()
			p := newRunProject(t, "", runJob("NAME", "a", "a")).inGit()
			args := `run_workflow {"job_name":"job0","workflow_name":"w","goal":"An inner one","executor":"STEPPER"}`
			p.plan("a call "+args, "a serve "+args, "a deepwork run job0/w --goal inner --executor STEPPER --path "+p.root, "a deepwork run resume latest --path "+p.root, "a finish")
			p.begin(place).exits(0)
			testkit.Equal(t, p.steps(), "a", "the steps were begun as")
			const refusal = "An agent that works on an attempt cannot start agents"
			for event, want := range map[string]string{"run_workflow": "unknown tool", "serve run_workflow": refusal} {
				said := p.recorded(event, "a")
				testkit.True(t, len(said) == 1 && strings.Contains(said[0].Text, want), "%s: %+v", event, said)
			}
			if said := p.recorded("deepwork", "a"); len(said) != 2 || !strings.HasPrefix(said[0].Text, "1 ") || !strings.Contains(said[0].Text, refusal) || !strings.HasPrefix(said[1].Text, "1 ") || !strings.Contains(said[1].Text, refusal) {
				t.Errorf("%+v", said)
			}
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
	p.plan("b touch b", "b await go", "c await b", `c call get_step {"step_id":"b"}`, `c call finished_step {"step_id":"b","outputs":{"text":"a.md"}}`,
		`c call finished_step {"session_id":"`+y.Session+`","outputs":{"text":"a.md"}}`, `c call start_workflow {"job_name":"job0","workflow_name":"w","goal":"g","parent_session_id":"`+y.Session+`"}`,
		"c call abort_workflow {}", "c await go", "c finish", "b finish", "d await end", "d finish")
	r := p.begin()
	p.awaits("c", 1)
	testkit.Eventually(t, func() string {
		if n := len(p.recorded("finished_step", "c")); n < 2 {
			return fmt.Sprintf("%d calls", n)
		}
		return ""
	})
	x := p.recorded("begin", "c")[0]
	code := func(method, path, token string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, strings.TrimSuffix(x.URL, "/mcp")+path, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		must(t, err)
		req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		res := testkit.Get((&http.Client{Transport: bearer(token)}).Do(req)).Must(t)
		res.Body.Close()
		return res.Status
	}
	for _, call := range [][3]string{{"POST", "/mcp", ""}, {"POST", "/mcp", " "}, {"POST", "/mcp", "dw_wrong"}, {"GET", "/", ""}, {"GET", "/healthz", ""}, {"GET", "/readyz", ""}, {"GET", "/version", ""}, {"GET", "/metrics", ""}, {"GET", "/ui", ""},
		{"GET", "/board", ""}, {"GET", "/login", ""}, {"OPTIONS", "/mcp", ""}, {"GET", "/mcp", p.recorded("begin", "a")[0].Token}, {"POST", "/mcp", p.recorded("begin", "a")[0].Token}, {"POST", "/mcp", y.Token}} {
		got := code(call[0], call[1], call[2])
		testkit.True(t, strings.HasPrefix(got, "401"), "%v: %s", call[:2], got)
	}
	p.touch("go")
	p.awaits("d", 1)
	for _, step := range []string{"a", "b", "c"} {
		_, err := dialStep(t.Context(), x.URL, p.recorded("begin", step)[0].Token)
		testkit.True(t, err != nil, "the token of the step %s is accepted after the end of its agent", step)
	}
	p.touch("end")
	r.exits(0)
	another.exits(0)
	answers := map[string]string{"get_step": "'b' is another one", "start_workflow": "'" + y.Session + "' is another one", "abort_workflow": "unknown tool"}
	for _, s := range p.journal() {
		want := answers[s.Event]
		testkit.True(t, want == "" || s.Step != "c" || strings.Contains(s.Text, want), "%s said %s, want %s", s.Event, s.Text, want)
	}
	if said := p.recorded("finished_step", "c"); len(said) != 3 || !strings.Contains(said[0].Text, "'b' is another one") || !strings.Contains(said[1].Text, "'"+y.Session+"' is another one") {
		t.Errorf("%+v", said)
	}
	p.clean()
}

// The known programs find the server of their step where they look for it, and only that, and go on with
// their conversations.
func TestRunKnownPrograms(t *testing.T) {
	t.Parallel()
	programs := map[string]struct{ executor, says, goesOn string }{
		"claude":       {"CLAUDE_CODE", `{"type":"system","subtype":"init","session_id":"CONVERSATION"}`, "--resume talk-claude"},
		"codex":        {"CODEX", `{"type":"thread.started","thread_id":"CONVERSATION"}`, "resume talk-codex -"},
		"gemini":       {"GEMINI", `{"type":"init","session_id":"CONVERSATION","model":"m"}`, "--resume talk-gemini"},
		"cursor-agent": {"CURSOR_AGENT", `{"type":"system","subtype":"init","session_id":"CONVERSATION"}`, "--resume talk-cursor"},
		"opencode":     {"OPENCODE", `{"type":"step_start","sessionID":"CONVERSATION"}`, "--session talk-opencode"},
	}
	bin := testkit.Dir(t)
	var names, steps, plan []string
	for program, is := range programs {
		name := strings.TrimSuffix(program, "-agent")
		names, steps = append(names, name), append(steps, name+" executor: "+is.executor)
		plan = append(plan, name+" say "+is.says, name+":2 finish", name+":1 call get_step {}")
	}
	p := newRunProject(t, "", runJob("NAME", "["+strings.Join(names, ", ")+"]", steps...))
	for program := range programs {
		must(t, os.WriteFile(filepath.Join(bin, program), []byte(fmt.Sprintf("#!/bin/sh\nexec stepper %q %s \"$@\"\n", p.dir, program)), 0o755))
	}
	p.env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	p.plan(plan...)
	p.begin().exits(0)
	for program, is := range programs {
		name := strings.TrimSuffix(program, "-agent")
		begun := p.recorded("begin", name)
		testkit.True(t, len(begun) == 2 && strings.HasSuffix(" "+strings.Join(begun[1].Args, " "), " "+is.goesOn), "%s: %+v", program, begun)
		said := p.recorded("get_step", name)
		testkit.True(t, len(said) == 1 && strings.Contains(said[0].Text, `"step_id":"`+name+`"`), "%s: %+v", program, said)
	}
	p.clean()
}
