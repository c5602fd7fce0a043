package transport

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store/backend"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
	"deepwork/transport/web"
)

// What may be kept of a reply says for how long, and that it's its caller's alone; the server says what it supports.
func TestWhatMayBeKeptInTheNewestProtocol(t *testing.T) {
	t.Parallel()
	root := slowProject(t)
	_, c := taking(t, root, takesTasks)
	id := c.start()
	for method, params := range map[string]string{
		"server/discover": "", "tools/list": "", "prompts/list": "", "resources/list": "", "resources/templates/list": "",
		"resources/read": fmt.Sprintf(`"uri":"deepwork://sessions/%s"`, id),
	} {
		name := ""
		if params != "" {
			name = strings.Split(params, `"`)[3]
		}
		r, fault := c.request(method, name, params)
		ttl, is := r["ttlMs"].(float64)
		testkit.True(t, fault == "" && r["resultType"] == "complete" && r["cacheScope"] == "private" && is && ttl >= 0, "%s: %s, type %v, scope %v, ttlMs %v", method, fault, r["resultType"], r["cacheScope"], r["ttlMs"])
		if method != "server/discover" {
			continue
		}
		can, _ := r["capabilities"].(map[string]any)
		extensions, _ := can["extensions"].(map[string]any)
		versions, _ := r["supportedVersions"].([]any)
		testkit.True(t, extensions["io.modelcontextprotocol/tasks"] != nil && can["tools"] != nil && slices.Contains(versions, "2026-07-28") && r["instructions"] != "", "server/discover: %v", r)
	}
	r := c.call("get_workflows", `{}`)
	testkit.True(t, r["ttlMs"] == nil && r["cacheScope"] == nil, "a call may not be kept: %v", r)
}

// Clients that don't declare the extension for tasks get, byte for byte, what they got before there were tasks: the golden
// file was made by the server of then. Only ids, times and folders are written anew.
func TestRepliesWithoutTasks(t *testing.T) {
	t.Parallel()
	f := newFactory(standardWorkflows...)
	var all strings.Builder
	for _, version := range []string{"2026-07-28", stateful} {
		root := t.TempDir()
		write(t, root, textJob(`quality_criteria: {Good: "Is it good?"}`, "text"))
		write(t, root, map[string]string{
			"review.sh": "while ! test -e go.txt; do sleep 0.05; done\nprintf '%s\\n' '{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"{\\\"passed\\\": true, \\\"feedback\\\": \\\"ok\\\"}\"}'\n",
			".deepwork/config.yml": "version: \"1.0\"\nquality_gate: {reviewer_executor: CLAUDE_LIKE, reply_within: 100ms}\nexecutors: {CLAUDE_LIKE: {command: [sh, review.sh, claude]}}\n" +
				"workflow_tools:\n  reply_within: 100ms\n  status_interval: 20ms\n  sources: [{name: factory, url: " + f.overWeb(t) + "}]\n",
		})
		s := serverOn(t, root, nil)
		s.connected(t)
		h := overHTTP(t, s, web.Options{})
		c := httpClient(t, "")
		headers, meta := []string{"Mcp-Protocol-Version: " + version, "Mcp-Method: tools/call"}, newestMeta(`{}`)
		if version == stateful {
			headers, meta = []string{open(t, c, h), ""}, `"_meta":{}`
		}
		if version == stateful {
			r := send(t, c, "POST", h.URL(), `{"jsonrpc":"2.0","id":1,"method":"tasks/get"}`, headers[0])
			testkit.Contains(t, r.body, "taskId", "a request about a task needs one")
		}
		call := func(name, args string) string {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,%s}}`, name, args, meta)
			r := send(t, c, "POST", h.URL(), body, append(headers, "Mcp-Name: "+name)...)
			fmt.Fprintf(&all, "%s %s %s\n%d %s\n\n", version, name, args, r.status, strings.TrimSpace(r.body))
			return r.body
		}
		id := regexp.MustCompile(`"session_id":"([0-9a-f]{8})"`).FindStringSubmatch(call("start_workflow", `{"goal":"g","job_name":"checked","workflow_name":"full"}`))[1]
		call("finished_step", finishText(id))
		call("get_step", fmt.Sprintf(`{"session_id":%q}`, id))
		call("finished_step", fmt.Sprintf(`{"outputs":{"other":"text.txt"},"session_id":%q,"step_id":"text"}`, id))
		call("hang", `{}`)
		write(t, root, map[string]string{"go.txt": ""})
		kept := all.String()
		waitFor(t, "the review has passed", func() bool {
			all.Reset()
			all.WriteString(kept)
			return strings.Contains(call("finished_step", finishText(id)), `next_step`)
		})
		text := all.String()
		all.Reset()
		for _, r := range [][2]string{
			{regexp.QuoteMeta(root), "/project"}, {id, "0a1b2c3d"}, {`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}`, "<uuid>"},
			{`20\d\d-\d\d-\d\dT[0-9:.]+Z`, "<time>"}, {`full-20\d\d-\d\d-\d\d`, "full-<day>"}, {`begun \d+s ago`, "begun 0s ago"},
			{`event: message\n(id: \S+\n)?`, ""}, {`(\\?"source_execution_id\\?":).*?,`, "$1<id>,"}, {`(\\?"progress\\?":)(null|\{.*?\})`, "$1<progress>"},
		} {
			text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
		}
		all.WriteString(text)
	}
	testkit.Golden(t, "testdata/without_tasks.txt", all.String(), *update)
}

const (
	passes = `{"action":"accept","content":{"decision":"pass","feedback":"Fine"}}`
	fails  = `{"action":"accept","content":{"decision":"fail","feedback":"No"}}`
)

// A person's question is a row: who answers it, about what and how is what that says, whatever server is asked and
// whatever comes back with an answer. Each case has a project of its own, two servers, and a client that asks its user.
func TestWhatBindsAPersonsAnswer(t *testing.T) {
	t.Parallel()
	type asked struct {
		*testing.T
		s               *Server
		root, id, key   string
		ann, bob, plain *taker
	}
	finish := func(c *taker, id, more string) map[string]any {
		r, fault := c.request("tools/call", "finished_step", `"name":"finished_step","arguments":`+finishText(id)+more)
		testkit.Need(c.t, fault == "", "%v", fault)
		return r
	}
	keyOf := func(r map[string]any) (key string) {
		requests, _ := r["inputRequests"].(map[string]any)
		for key = range requests {
		}
		return key
	}
	answer := func(a *asked, c *taker, key, said string) map[string]any {
		return finish(c, a.id, fmt.Sprintf(`,"requestState":"passed","inputResponses":{%q:%s}`, key, said))
	}
	terminal := func(a *asked, passed bool) error {
		stores := testkit.Get(backend.Open(t.Context(), state.Of(a.root), backend.Choice{}, false, slog.New(slog.DiscardHandler))).Must(a.T)
		defer stores.Close(t.Context())
		e := testkit.Get(workflow.Open(t.Context(), workflow.Options{Root: a.root, Stores: stores})).Must(a.T)
		defer e.Close(t.Context())
		s := testkit.Get(a.s.session(t.Context(), "ann", a.id)).Must(a.T)
		digest := ""
		if q := s.Progress("text").Question; q != nil {
			digest = q.Digest
		}
		return e.ReviewFor(t.Context(), a.id, "text", digest, machine.Answer{Identity: "local", Channel: session.ChannelTerminal, Passed: passed, Feedback: "Seen"})
	}
	const open, passed = "Waiting: a person must pass", "status:next_step"
	for name, test := range map[string]struct {
		do   func(a *asked) map[string]any // its result is looked at
		want string
		kind machine.EvidenceKind // of the step afterwards
	}{
		"a decline is no answer, and is not asked again": {func(a *asked) map[string]any {
			testkit.Contains(a, fmt.Sprint(answer(a, a.ann, a.key, `{"action":"decline"}`)), open, "declined")
			r := finish(a.ann, a.id, "")
			testkit.Equal(a, keyOf(r), "", "asked again")
			return r
		}, open, ""},
		"a form that was declined and is answered after all": {func(a *asked) map[string]any {
			answer(a, a.ann, a.key, `{"action":"cancel"}`)
			return answer(a, a.ann, a.key, passes)
		}, passed, machine.PassedIn},
		"silence": {func(a *asked) map[string]any {
			testkit.Equal(a, keyOf(finish(a.ann, a.id, "")), a.key, "the question that is asked again")
			return finish(a.plain, a.id, "")
		}, open, ""},
		"another caller": {func(a *asked) map[string]any { return answer(a, a.bob, a.key, passes) }, "StateError", ""},
		"other content": {func(a *asked) map[string]any {
			write(a, a.root, map[string]string{"text.txt": "other"})
			r := answer(a, a.ann, a.key, passes)
			testkit.True(a, keyOf(r) != "" && keyOf(r) != a.key, "the question about other content: %v", r)
			return finish(a.plain, a.id, "")
		}, open, ""},
		"the question of another session": {func(a *asked) map[string]any {
			other := a.ann.start()
			return finish(a.ann, other, fmt.Sprintf(`,"inputResponses":{%q:%s}`, a.key, passes))
		}, "inputRequests", ""},
		"the terminal was first": {func(a *asked) map[string]any {
			must(a, terminal(a, true))
			r := answer(a, a.ann, a.key, fails)
			testkit.Contains(a, fmt.Sprint(r["content"]), "did not count", "the later answer")
			return r
		}, passed, machine.Passed},
		"the terminal is later": {func(a *asked) map[string]any {
			r := answer(a, a.ann, a.key, passes)
			testkit.Fails(a, terminal(a, false), "does not wait for a person")
			return r
		}, passed, machine.PassedIn},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &asked{T: t, root: t.TempDir()}
			write(t, a.root, textJob(`by: human, quality_criteria: {Sound: "Would you sign it?"}`, "Dear"))
			file, token := tokens(t, "ann", "bob")
			a.s, a.ann = takingWith(t, a.root, `{"elicitation":{}}`, web.Options{TokenFile: file}, nil)
			of := func(token, can string) *taker { return &taker{t, httpClient(t, token), a.ann.url, can} }
			a.ann, a.bob, a.plain = of(token[0], a.ann.can), of(token[1], a.ann.can), of(token[0], `{"elicitation":{"url":{}}}`)
			a.id = a.ann.start()
			r := finish(a.ann, a.id, "")
			a.key = keyOf(r)
			testkit.Need(t, a.key != "" && r["requestState"] == a.key, "asked: %v", r)
			testkit.Contains(t, fmt.Sprint(test.do(a)), test.want, "the reply")
			s := testkit.Get(a.s.session(t.Context(), "ann", a.id)).Must(t)
			e := s.Progress("text").Evidence
			testkit.True(t, test.kind == "" && e == nil || test.kind != "" && e != nil && e.Kind == test.kind && e.Channel != "", "evidence %+v, want %q", e, test.kind)
		})
	}
}

// tasks/cancel does, for each kind of work, what the tool does that ends it, for the caller of the task alone: both
// refuse another one.
func TestEachKindOfTaskIsCancelled(t *testing.T) {
	f := newFactory(standardWorkflows...)
	root := t.TempDir()
	waits := "while ! test -e " + filepath.Join(root, "go.txt") + "; do sleep 0.05; done; echo done"
	write(t, root, map[string]string{
		".deepwork/jobs/trip/job.yml": tripJob, ".deepwork/jobs/trip/idea.md": "Think.", "idea.txt": "sea", "h1.txt": "x", "check.sh": waits, "review.sh": slowReviewer,
		".deepwork/config.yml": "version: \"1.0\"\nexecutors: {MINE: {command: [sh, -c, '" + waits + "']}, TWICE: {command: [sh, -c, 'if test -e ran.txt; then " + waits + "; else echo > ran.txt; fi']}, CLAUDE_LIKE: {command: [sh, review.sh, claude]}}\nquality_gate: {reviewer_executor: CLAUDE_LIKE}\n" +
			"workflow_tools:\n" + fast + "  sources: [{name: factory, url: " + f.overWeb(t) + "}]\n",
	})
	write(t, root, textJob(`quality_criteria: {Good: "Is it good?"}`, "text"))
	checked := textJob(`by: human, quality_criteria: {Good: "Is it good?"}`, "text")[".deepwork/jobs/checked/job.yml"]
	write(t, root, map[string]string{".deepwork/jobs/proved/text.md": "Write.", ".deepwork/jobs/proved/job.yml": strings.Replace(strings.Replace(checked,
		"name: checked", "name: proved", 1), "    reviews: [{", "    checks: [{name: ready, run: [sh, check.sh]}], reviews: [{", 1)})
	repository(t, root)
	s := serverOn(t, root, func(o *Options) { o.Toolsets = config.Toolsets })
	s.connected(t)
	file, token := tokens(t, "bob")
	anns, line, err := web.NewToken(config.Token{Name: "ann", Rights: config.RightAgents})
	must(t, err)
	must(t, os.WriteFile(file, append(testkit.Get(os.ReadFile(file)).Must(t), line+"\n"...), 0o600))
	c := &taker{t, httpClient(t, anns), overHTTP(t, s, web.Options{TokenFile: file}).URL(), takesTasks}
	other := *c
	other.http = httpClient(t, token[0])
	step := func(job string) func() map[string]any {
		return func() map[string]any {
			r := structured(c.call("start_workflow", `{"goal":"g","job_name":"`+job+`","workflow_name":"full"}`))
			return c.call("finished_step", finishText(r["begin_step"].(map[string]any)["session_id"].(string)))
		}
	}
	var all sync.WaitGroup
	for name, make := range map[string]func() map[string]any{
		"review": step("checked"),
		"check":  step("proved"),
		"run": func() map[string]any {
			return c.call("run_workflow", `{"job_name":"trip","workflow_name":"dream","goal":"g","executor":"MINE","wait":true}`)
		},
		"attempt": func() map[string]any {
			return c.call("start_task_attempt", fmt.Sprintf(`{"task_id":%q,"executor":"MINE","wait":true}`, c.task()))
		},
		"follow-up": func() map[string]any {
			r := c.result(c.call("start_task_attempt", fmt.Sprintf(`{"task_id":%q,"executor":"TWICE","wait":true}`, c.task())))
			return c.call("follow_up", fmt.Sprintf(`{"attempt_id":%q,"action":"send","prompt":"More","wait":true}`, structured(r)["attempt_id"]))
		},
		"remote workflow": func() map[string]any { return c.call("hang", `{}`) },
	} {
		all.Go(func() {
			made := make()
			testkit.Need(t, made["resultType"] == "task", "%s: %v", name, made)
			_, fault := other.of("tasks/cancel", made["taskId"], "")
			testkit.Contains(t, fault, "there is no task", "%s, another caller", name)
			row := testkit.Get(s.tasks.Calls.LongCall(t.Context(), "ann", fmt.Sprint(made["taskId"]))).Must(t)
			var about struct {
				Execution string
				Agent     struct{ Attempt string }
				Step      struct {
					Args struct {
						ID string `json:"session_id"`
					}
				}
			}
			must(t, json.Unmarshal(row.Work, &about))
			for ends, id := range map[string]string{"stop_attempt attempt_id": about.Agent.Attempt, "cancel_execution execution_id": about.Execution} {
				if tool, argument, _ := strings.Cut(ends, " "); id != "" {
					testkit.Equal(t, other.call(tool, fmt.Sprintf(`{%q:%q}`, argument, id))["isError"], true, "%s, %s of another caller", name, tool)
				}
			}
			got, _ := c.of("tasks/get", made["taskId"], "")
			testkit.Equal(t, got["status"], "working", "%s, then", name)
			c.cancel(made["taskId"])
			c.cancel(made["taskId"])
			waitFor(t, "the task of "+name+" ends", func() bool {
				got, _ = c.of("tasks/get", made["taskId"], "")
				return got["status"] != "working"
			})
			// What is slow to stop ends as stopped.
			testkit.True(t, got["status"] == "cancelled" || strings.Contains(fmt.Sprint(got["result"]), "state:stopped"), "%s: %v", name, got)
			if name == "review" { // its try is void
				step := structured(c.call("get_step", fmt.Sprintf(`{"session_id":%q}`, about.Step.Args.ID)))
				testkit.ContainsAll(t, fmt.Sprint(step), []string{"verdict:void", "its caller cancelled it", "quality_attempts:0"}, "the step")
			}
		})
	}
	all.Wait()
	testkit.Equal(t, len(f.cancelled), 1, "cancelled at the source: %v", f.cancelled)
}
