package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/replies"
	"deepwork/session/store"
	"deepwork/transport/tasks"
	"deepwork/transport/tool"
	"deepwork/transport/web"
)

// A taker is a client of the newest protocol that makes each request by hand.
type taker struct {
	t    *testing.T
	http *http.Client
	url  string
	can  string // what it declares, JSON
}

const (
	takesTasks = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	canAsk     = `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
)

// post sends a request.
func (c *taker) post(method, name, params string) reply {
	c.t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s}}`, method,
		strings.TrimPrefix(params+","+newestMeta(c.can), ","))
	return send(c.t, c.http, "POST", c.url, body, "Mcp-Protocol-Version: "+web.StatelessSince, "Mcp-Method: "+method,
		"Mcp-Name: "+name)
}

// request makes a request and returns its result, or its error as text.
func (c *taker) request(method, name, params string) (map[string]any, string) {
	c.t.Helper()
	text := c.post(method, name, params).body
	if _, data, ok := strings.Cut(text, "data: "); ok {
		text = data
	}
	var m struct {
		Result map[string]any
		Error  any
	}
	err := json.Unmarshal([]byte(text), &m)
	testkit.Need(c.t, err == nil, "%s: %v: %s", method, err, text)

	if m.Error != nil {
		return nil, fmt.Sprint(m.Error)
	}
	return m.Result, ""
}

func (c *taker) call(name, args string) map[string]any {
	c.t.Helper()
	r, fault := c.request("tools/call", name, fmt.Sprintf(`"name":%q,"arguments":%s`, name, args))
	testkit.Need(c.t, fault == "", "%v", fault)
	return r
}

func (c *taker) of(method string, id any, more string) (map[string]any, string) {
	c.t.Helper()
	return c.request(method, fmt.Sprint(id), fmt.Sprintf(`"taskId":%q%s`, id, more))
}

func (c *taker) cancel(id any) {
	c.t.Helper()
	_, fault := c.of("tasks/cancel", id, "")
	testkit.Need(c.t, fault == "", "%s", fault)
}

func (c *taker) result(r map[string]any) map[string]any {
	c.t.Helper()
	if r["resultType"] == "task" {
		return c.get(r["taskId"], "completed")["result"].(map[string]any)
	}
	return r
}

func structured(r map[string]any) map[string]any { return r["structuredContent"].(map[string]any) }

func (c *taker) get(id any, status string) (r map[string]any) {
	c.t.Helper()
	waitFor(c.t, "the task is "+status, func() bool {
		var fault string
		r, fault = c.of("tasks/get", id, "")
		testkit.Need(c.t, fault == "", "%s", fault)
		return r["status"] == status
	})
	return r
}

// slowReviewer passes what it reviews once a file is there.
const slowReviewer = `
echo begun >> begun.txt
while ! test -e go.txt; do sleep 0.05; done
printf '%s\n' '{"type":"result","subtype":"success","is_error":false,"result":"{\"passed\": true, \"feedback\": ` +
	`\"ok\"}"}'
`

// taking is a server on a project, and a client whose requests another server of its store gets by turns.
func taking(t *testing.T, root, can string) (s *Server, c *taker) {
	return takingWith(t, root, can, web.Options{}, nil)
}

func takingWith(t *testing.T, root, can string, over web.Options, change func(*Options)) (s *Server, c *taker) {
	s = serverOn(t, root, func(o *Options) {
		o.Toolsets = nil
		if change != nil {
			change(o)
		}
	})

	h := servedAt(t, s, over)
	besides(t, s, h, over)
	return s, &taker{t, httpClient(t, ""), h.URL(), can}
}

func slowProject(t *testing.T) string {
	root := t.TempDir()
	write(t, root, textJob(`quality_criteria: {Good: "Is it good?"}`, "text"))
	write(t, root, map[string]string{
		"review.sh":            slowReviewer,
		".deepwork/config.yml": strings.Replace(executorsConfig, "%", "CLAUDE_LIKE", 1),
	})
	return root
}

func (c *taker) start() (id string) {
	return structured(c.call("start_workflow", startText))["begin_step"].(map[string]any)["session_id"].(string)
}

func finishText(id string) string {
	return fmt.Sprintf(`{"outputs":{"text":"text.txt"},"session_id":%q,"step_id":"text"}`, id)
}

// A review that takes long is a task, which another server of the store finds when this one is gone; a call that is
// repeated gets the same task, and one without the extension today's reply. One review has run.
func TestAReviewIsATask(t *testing.T) {
	t.Parallel()
	root := slowProject(t)
	s, c := taking(t, root, takesTasks)
	id := c.start()
	made := c.call("finished_step", finishText(id))
	testkit.Need(t, made["resultType"] == "task", "made: %v", made)
	testkit.Need(t, made["status"] == "working", "made: %v", made)
	testkit.Need(t, made["ttlMs"] == nil, "made: %v", made)
	testkit.Need(t, made["pollIntervalMs"].(float64) >= 1000, "made: %v", made)
	testkit.Need(t, strings.Contains(made["statusMessage"].(string), "Review running"), "made: %v", made)

	var repeats sync.WaitGroup
	for i := range 4 { // at both servers
		args := finishText(id)
		if i > 0 {
			args = fmt.Sprintf(`{ "request_id":"r%d", %s`, i%3, args[1:])
		}
		repeats.Go(func() {
			testkit.Equal(t, c.call("finished_step", args)["taskId"], made["taskId"], "repeated with %s", args)
		})
	}
	repeats.Wait()
	got := c.get(made["taskId"], "working")
	testkit.True(t, got["resultType"] == "complete" && got["result"] == nil, "working: %v", got)

	undeclared := &taker{t, c.http, c.url, `{}`}
	_, fault := undeclared.of("tasks/get", made["taskId"], "")
	testkit.Contains(t, fault, "-32021", "undeclared")
	_, fault = c.request("tasks/get", "=?base64?Nzg2NTEyZTItOWUwZC00NGJkLThmMjktNzg5ZjMyMGZlODQw?=",
		`"taskId":"786512e2-9e0d-44bd-8f29-789f320fe840"`)
	testkit.Contains(t, fault, "there is no task", "of another caller, or none")
	testkit.Works(t, s.Close(t.Context()))

	_, c = taking(t, root, takesTasks)
	write(t, root, map[string]string{"go.txt": ""})
	got = c.get(made["taskId"], "completed")
	testkit.True(t, structured(got["result"].(map[string]any))["status"] == "next_step" &&
		got["ttlMs"].(float64) >= 24*3600*1000, "completed: %v", got)
	testkit.Same(t, c.get(made["taskId"], "completed"), got, "once more")
}

// A review goes on without its outputs, so its task does, at both servers.
func TestATaskGoesOnWithoutItsOutputs(t *testing.T) {
	t.Parallel()
	root := slowProject(t)
	_, c := taking(t, root, takesTasks)
	made := c.call("finished_step", finishText(c.start()))
	must(t, os.Remove(filepath.Join(root, "text.txt")))
	for range 2 {
		testkit.Contains(t, fmt.Sprint(c.get(made["taskId"], "working")["statusMessage"]), "Review running")
	}
	c.cancel(made["taskId"])
}

// A person is asked by a task that wants input; only a form that was sent counts, and only once.
// (By the reply to a plain call: the tests of askedSession.)
func TestAPersonIsAskedInTheNewestProtocol(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, textJob(`by: human, quality_criteria: {Sound: "Would you sign it?"}`, "Dear"))
	_, c := taking(t, root, canAsk)
	id := c.call("finished_step", finishText(c.start()))["taskId"]
	answer := func(method, key, answer string) string {
		_, fault := c.of(method, id, fmt.Sprintf(`,"inputResponses":{%q:%s}`, key, answer))
		testkit.Need(t, fault == "", "%v", fault)
		got, _ := c.of("tasks/get", id, "")
		return fmt.Sprint(got)
	}
	requests := c.get(id, "input_required")["inputRequests"].(map[string]any)
	testkit.Equal(t, len(requests), 1, "requests")
	testkit.ContainsAll(t, fmt.Sprint(requests), []string{"elicitation/create", "Would you sign it?", "text.txt"})

	for key := range requests {
		testkit.Contains(t, answer("tasks/get", key, passes), "status:input_required", "only an update has answers")
		for _, no := range []string{`{"action":"accept","content":{}}`,
			`{"action":"accept","content":{"decision":"yes"}}`} {
			testkit.Contains(t, answer("tasks/update", key, no), "status:input_required", "%s, which says nothing", no)
		}
		testkit.Contains(t, answer("tasks/update", key, passes), "status:next_step")
		testkit.Contains(t, answer("tasks/update", key, fails), "status:next_step", "a later answer")
	}
}

// A call that waits for its agent is a task until that has ended; without the extension it is answered after
// reply_within.
func TestACallThatWaitsForItsAgentIsATask(t *testing.T) {
	t.Parallel()
	s, root := bareProject(t, "", func(o *Options) { o.Toolsets = config.Toolsets })
	write(t, root, map[string]string{".deepwork/config.yml": "version: \"1.0\"\nquality_gate: {reply_within: " +
		"100ms}\nexecutors: {MINE: {command: [sh, -c, 'while ! test -e " + filepath.Join(root, "go.txt") +
		"; do sleep 0.05; done; echo done']}}\n"})
	repository(t, root)
	c := &taker{t, httpClient(t, ""), overHTTP(t, s, web.Options{}).URL(), takesTasks}
	r := c.call("start_task_attempt", fmt.Sprintf(`{"task_id":%q,"executor":"MINE","wait":true}`, c.task()))
	testkit.Need(t, r["resultType"] == "task" &&
		(r["statusMessage"] == "running" || r["statusMessage"] == "queued"), "%v", r)

	began, plain := time.Now(), &taker{t, c.http, c.url, "{}"}
	soon := structured(plain.call("start_task_attempt",
		fmt.Sprintf(`{"task_id":%q,"executor":"MINE","wait":true}`, c.task())))["ended_at"]
	testkit.True(t, soon == nil && time.Since(began) < 30*time.Second, "without the extension: %v after %v", soon,
		time.Since(began))

	write(t, root, map[string]string{"go.txt": ""})
	reply := structured(c.result(r))
	testkit.True(t, reply["state"] == "completed" && reply["final_message"] == "done", "%v", reply)
	again := structured(c.result(c.call("follow_up",
		fmt.Sprintf(`{"attempt_id":%q,"action":"send","prompt":"More","wait":true}`, reply["attempt_id"]))))
	testkit.True(t, again["status"] == "started" && strings.Contains(fmt.Sprint(again["notice"]), "completed"),
		"a follow-up that ends at once: %v", again)
}

func (c *taker) task() any {
	c.t.Helper()
	project := structured(c.call("list_projects", `{}`))["projects"].([]any)[0].(map[string]any)["project_id"]
	return structured(c.call("create_task", fmt.Sprintf(`{"project_id":%q,"title":"Plan"}`, project)))["task_id"]
}

// A tool of any server that the config names is a tool here, and what it answers with a task is followed, by another
// server too, and cancelled. Workflows of other systems are tasks whose result is that of the call, also if
// that is a refusal.
func TestATaskOfASourceIsFollowed(t *testing.T) {
	t.Parallel()
	f := newFactory(standardWorkflows...)
	inner, _ := withSource(t, f, "")
	at := overHTTP(t, inner, web.Options{}).URL()
	root := t.TempDir()
	write(t, root, map[string]string{".deepwork/config.yml": "version: \"1.0\"\nworkflow_tools:\n" + fast +
		"  sources:\n    - {name: other, url: " + at + ", tools: [block, ha*]}\n"})
	open := func() (*Server, *taker) {
		s := serverOn(t, root, nil)
		s.connected(t)
		return s, &taker{t, httpClient(t, ""), overHTTP(t, s, web.Options{}).URL(), takesTasks}
	}
	s, c := open()
	s.names(t, "block", "hang")
	block, hang := c.call("block", `{}`), c.call("hang", `{}`)
	status := func(r map[string]any) string {
		_, id, _ := strings.Cut(fmt.Sprint(r["statusMessage"]), "execution_id ")
		return fmt.Sprint(c.call("workflow_status", fmt.Sprintf(`{"execution_id":%q}`, id[:36]))["structuredContent"])
	}
	waitFor(t, "both are tasks at the source", func() bool {
		return strings.Contains(status(block), "source_execution_id:task:") &&
			strings.Contains(status(hang), "source_execution_id:task:")
	})
	testkit.Works(t, s.Close(t.Context()))

	_, c = open()
	close(f.let)
	want := into[map[string]any](t, client(t, inner), "block", `{}`)
	testkit.Equal(t, fmt.Sprint(structured(c.result(block))["result"].(map[string]any)["result"]),
		fmt.Sprint((*want)["result"]), "the result at the source")

	c.cancel(hang["taskId"])
	c.get(hang["taskId"], "cancelled")
	f.until(t, "it is cancelled where it runs", func() bool { return len(f.cancelled) == 1 })
	c = &taker{t, httpClient(t, ""), at, takesTasks}
	for name, failed := range map[string]bool{"fail": true, "steps": false} {
		testkit.Equal(t, c.result(c.call(name, `{}`))["isError"] == true, failed, "%s", name)
	}
	f.add("workflows-cancel-tool", func(context.Context, factoryInput) string {
		return `{"status":"completed","output":"printed"}`
	})
	hang = c.call("hang", `{}`)
	c.cancel(hang["taskId"])
	testkit.Equal(t, structured(c.result(hang))["result"], any("printed"), "what ended before it could be cancelled")
}

// A task that nobody asks for ends, too, when its server looks at the tasks, and when it would keep its
// caller from making calls.
func TestATaskThatNobodyAsksForEnds(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]func(s *Server, c *taker) bool{
		"in time": func(s *Server, _ *taker) bool {
			s.tasks.Sweep(t.Context(), "", time.Now())
			return true
		},
		"by the quota": func(_ *Server, c *taker) bool { return c.call("get_workflows", `{}`)["isError"] != true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := slowProject(t)
			file, token := tokens(t, "ann")
			s, c := takingWith(t, root, takesTasks, web.Options{TokenFile: file}, nil)
			c.http = httpClient(t, token[0])
			id := c.start()
			write(t, root, map[string]string{"review.sh": strings.Replace(slowReviewer, "true", "false", 1)})
			made := c.call("finished_step", finishText(id))
			s.tasks.Quota = func() int { return 1 }
			row := func() *store.LongCall {
				return testkit.Get(s.tasks.Calls.LongCall(t.Context(), "ann", fmt.Sprint(made["taskId"]))).Must(t)
			}
			waitFor(t, "a call of the first server is refused", func() bool {
				return name == "in time" || c.call("get_workflows", `{}`)["isError"] == true
			})
			write(t, root, map[string]string{"go.txt": ""})
			waitFor(t, "the task ends "+name, func() bool { return ended(s, c) && row().EndedAt != nil })
			testkit.True(t, row().Status == store.CallCompleted && strings.Contains(string(row().Result), "needs_work"),
				"%+v", row())
			testkit.Contains(t, fmt.Sprint(structured(c.call("finished_step", finishText(id)))), "Try 1 of",
				"the verdict that nobody was told")
		})
	}
}

// A server looks at the tasks that nobody asks for a minute after its start, and every ten minutes from then on.
func TestTasksAreSweptAtIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := &counted{}
		ctx, stop := context.WithCancel(t.Context())
		go (&tasks.Set{Calls: calls}).Follow(ctx)
		for n, pause := range []time.Duration{time.Minute - time.Second, 2 * time.Second,
			10*time.Minute - 2*time.Second, 2 * time.Second} {
			time.Sleep(pause)
			synctest.Wait()
			testkit.Equal(t, calls.n.Load(), int64((n+1)/2), "sweeps after pause %d", n)
		}
		stop()
	})
}

// A task whose row is damaged ends with an error, so that it doesn't count in the quota of its caller for ever.
func TestADamagedTaskEnds(t *testing.T) {
	t.Parallel()
	s, c := taking(t, slowProject(t), takesTasks)
	id := "786512e2-9e0d-44bd-8f29-789f320fe840"
	testkit.Get(s.tasks.Calls.Add(t.Context(), &store.LongCall{
		ID:        id,
		Key:       "step",
		Identity:  session.LocalIdentity,
		Tool:      "finished_step",
		Work:      json.RawMessage(`{"step":{"args":1},"execution":"e"}`),
		Status:    store.CallWorking,
		CreatedAt: time.Now(),
	})).Must(t)
	result := c.get(id, "completed")["result"].(map[string]any)
	testkit.True(t, result["isError"] == true && strings.Contains(fmt.Sprint(result), "store_damaged"), "%v", result)
}

// Nothing runs for a task, and to make it costs one write.
func TestWhatATaskCosts(t *testing.T) {
	const many = 10_000
	root := slowProject(t)
	s, _ := takingWith(t, root, takesTasks, web.Options{}, nil)
	writes := &counted{LongCalls: s.tasks.Calls}
	set := &tasks.Set{Tools: s.tools, Calls: writes, Quota: s.tasks.Quota, Logger: s.logger}
	c := &tool.Caller{Caller: session.LocalCaller(session.ChannelHTTP)}

	req := &mcp.CallToolRequest{Params: &mcp.CallToolParamsRaw{
		Name:      "finished_step",
		Arguments: json.RawMessage(`{"outputs":{}}`),
		Meta: mcp.Meta{
			mcp.MetaKeyProtocolVersion: tool.Newest, mcp.MetaKeyClientCapabilities: json.RawMessage(takesTasks)},
	}}
	testkit.Need(t, tasks.Declared(req), "the request does not declare the extension")

	before := runtime.NumGoroutine()
	var makers sync.WaitGroup
	for of := range 50 { // so that they share syncs
		makers.Go(func() {
			for i := range many / 50 {
				id := fmt.Sprintf("%08x", of*many+i)
				going := &replies.Going{SessionID: id, StepID: "text", Submission: int64(i)}
				testkit.True(t, set.Instead(t.Context(), c, req, &replies.Finish{Going: going}) != nil, "no task")
			}
		})
	}
	makers.Wait()
	n := runtime.NumGoroutine()
	// the store has some
	testkit.True(t, n <= before+many/100, "%d goroutines with %d tasks, and %d without", n, many, before)
	testkit.Equal(t, testkit.Get(s.tasks.Calls.Count(t.Context(), c.Identity)).Must(t), many, "tasks")
	testkit.Equal(t, writes.n.Load(), many, "writes")
}

// A task costs two writes more than the plain call, however often it is looked at, and its session none.
func TestWhatATaskWrites(t *testing.T) {
	t.Parallel()
	var revisions [2]int64
	for i, can := range []string{takesTasks, `{}`} {
		root := slowProject(t)
		s, c := taking(t, root, can)
		writes := &counted{LongCalls: s.tasks.Calls}
		s.tasks.Calls = writes
		c.url = strings.Replace(c.url, "127.0.0.1", "localhost", 1) // of the first server alone
		id := c.start()
		if i == 1 {
			write(t, root, map[string]string{"go.txt": ""})
		}
		r := c.call("finished_step", finishText(id))
		for range 5 * (1 - i) {
			c.of("tasks/get", r["taskId"], "")
		}
		write(t, root, map[string]string{"go.txt": ""})
		c.result(r)
		c.result(r)
		testkit.Equal(t, writes.n.Load(), int64(2*(1-i)), "writes of tasks")
		revisions[i] = testkit.Get(s.session(t.Context(), "local", id)).Must(t).Revision
	}
	testkit.Equal(t, revisions[0], revisions[1], "revisions of the session, with a task and without one")
}

// counted counts the writes of a store of tasks, and the lists of those that are working, as if there were none.
type counted struct {
	store.LongCalls
	n atomic.Int64
}

func (c *counted) Add(ctx context.Context, call *store.LongCall) (*store.LongCall, error) {
	c.n.Add(1)
	return c.LongCalls.Add(ctx, call)
}

func (c *counted) Working(context.Context, string, string, int) ([]store.LongCall, error) {
	c.n.Add(1)
	return nil, nil
}

func (c *counted) End(
	ctx context.Context, identity, id, status string, result json.RawMessage,
) (*store.LongCall, error) {
	c.n.Add(1)
	return c.LongCalls.End(ctx, identity, id, status, result)
}

// tasks/cancel does, for each kind of work, what the tool does that ends it, for the caller of the task
// alone: both refuse another one.
func TestEachKindOfTaskIsCancelled(t *testing.T) {
	t.Parallel()
	f := newFactory(standardWorkflows...)
	root := t.TempDir()
	waits := "while ! test -e " + filepath.Join(root, "go.txt") + "; do sleep 0.05; done; echo done"
	write(t, root, map[string]string{
		".deepwork/jobs/trip/job.yml": tripJob,
		".deepwork/jobs/trip/idea.md": "Think.",
		"idea.txt":                    "sea",
		"h1.txt":                      "x",
		"check.sh":                    waits,
		"review.sh":                   slowReviewer,
		".deepwork/config.yml": "version: \"1.0\"\nexecutors: {MINE: {command: [sh, -c, '" + waits +
			"']}, TWICE: {command: [sh, -c, 'if test -e ran.txt; then " + waits +
			"; else echo > ran.txt; fi']}, CLAUDE_LIKE: {command: [sh, review.sh, claude]}}\nquality_gate: " +
			"{reviewer_executor: CLAUDE_LIKE}\nworkflow_tools:\n" + fast + "  sources: [{name: factory, url: " +
			f.overWeb(t) + "}]\n",
	})
	write(t, root, textJob(`quality_criteria: {Good: "Is it good?"}`, "text"))
	checked := textJob(`by: human, quality_criteria: {Good: "Is it good?"}`, "text")[".deepwork/jobs/checked/job.yml"]
	write(t, root, map[string]string{
		".deepwork/jobs/proved/text.md": "Write.",
		".deepwork/jobs/proved/job.yml": strings.Replace(strings.Replace(checked,
			"name: checked", "name: proved", 1), "    reviews: [{",
			"    checks: [{name: ready, run: [sh, check.sh]}], reviews: [{", 1),
	})
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
	var reviewed string // the session of the review
	for name, begin := range map[string]func() map[string]any{
		"review": step("checked"),
		"check":  step("proved"),
		"run": func() map[string]any {
			return c.call("run_workflow",
				`{"job_name":"trip","workflow_name":"dream","goal":"g","executor":"MINE","wait":true}`)
		},
		"attempt": func() map[string]any {
			return c.call("start_task_attempt", fmt.Sprintf(`{"task_id":%q,"executor":"MINE","wait":true}`, c.task()))
		},
		"follow-up": func() map[string]any {
			r := c.result(c.call("start_task_attempt",
				fmt.Sprintf(`{"task_id":%q,"executor":"TWICE","wait":true}`, c.task())))
			return c.call("follow_up", fmt.Sprintf(`{"attempt_id":%q,"action":"send","prompt":"More","wait":true}`,
				structured(r)["attempt_id"]))
		},
		"remote workflow": func() map[string]any { return c.call("hang", `{}`) },
	} {
		all.Go(func() {
			made := begin()
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
			for ends, id := range map[string]string{
				"stop_attempt attempt_id":       about.Agent.Attempt,
				"cancel_execution execution_id": about.Execution,
			} {
				if tool, argument, _ := strings.Cut(ends, " "); id != "" {
					testkit.Equal(t, other.call(tool, fmt.Sprintf(`{%q:%q}`, argument, id))["isError"], true,
						"%s, %s of another caller", name, tool)
				}
			}

			got, _ := c.of("tasks/get", made["taskId"], "")
			testkit.Equal(t, got["status"], "working", "%s, then", name)

			// Polls at the same moment do not take what the cancelling ends for a result.
			seen := make(chan string, 1)
			go func() {
				status := "working"
				for status == "working" {
					r, _ := c.of("tasks/get", made["taskId"], "")
					status = fmt.Sprint(r["status"])
				}
				seen <- status
			}()
			c.cancel(made["taskId"])
			c.cancel(made["taskId"])
			waitFor(t, "the task of "+name+" ends", func() bool {
				got, _ = c.of("tasks/get", made["taskId"], "")
				return got["status"] != "working"
			})
			polled := <-seen
			testkit.Equal(t, polled, "cancelled", "%s, to a poll", name)
			testkit.Equal(t, got["status"], "cancelled", "%s: %v", name, got)

			if name == "review" { // its try is void
				step := structured(c.call("get_step", fmt.Sprintf(`{"session_id":%q}`, about.Step.Args.ID)))
				testkit.ContainsAll(t, fmt.Sprint(step),
					[]string{"verdict:void", "its caller cancelled it", "quality_attempts:0"}, "the step")
				reviewed = about.Step.Args.ID
			}
		})
	}
	all.Wait()
	reviews := func() int {
		begun, _ := os.ReadFile(filepath.Join(root, "begun.txt")) // a review may have been cancelled before
		return strings.Count(string(begun), "begun")
	}
	before := reviews()
	write(t, root, map[string]string{"go.txt": ""})
	testkit.Equal(t, structured(c.result(c.call("finished_step", finishText(reviewed))))["status"], "next_step",
		"the same hand-in")
	testkit.Equal(t, reviews(), before+1, "reviews")
	testkit.Equal(t, len(f.cancelled), 1, "cancelled at the source: %v", f.cancelled)
}

// A proxy that routes by the header would send the request to a place that does not have the task.
func TestAHeaderThatNamesAnotherTaskIsABadRequest(t *testing.T) {
	t.Parallel()
	_, c := taking(t, t.TempDir(), takesTasks)
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		for _, name := range []string{"another", ""} {
			r := c.post(method, name, `"taskId":"786512e2-9e0d-44bd-8f29-789f320fe840"`)
			testkit.Equal(t, r.status, http.StatusBadRequest, "%s of %q: %s", method, name, r.body)
			testkit.Contains(t, r.body, `{"jsonrpc":"2.0","id":1,"error":{"code":-32020,`, "%s of %q", method, name)
			testkit.Contains(t, r.body, "Mcp-Name", "%s of %q", method, name)
		}
	}
}
