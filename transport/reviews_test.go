package transport

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/trust"
	"deepwork/session"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/replies"
	"deepwork/session/state"
	"deepwork/session/store/backend"
	"deepwork/session/workflow"
	"deepwork/transport/tool"
	"deepwork/transport/web"
)

// textJob is the files of a project with a job whose first step has a text reviewed.
func textJob(review, text string) map[string]string {
	return map[string]string{
		"text.txt":                       text,
		".deepwork/jobs/checked/text.md": "Write.",
		".deepwork/jobs/checked/job.yml": `name: checked
version: 1.0.0
summary: Has a text checked
common_job_info_provided_to_all_steps_at_runtime: Be brief.
workflows: [{name: full, summary: All of it, steps: [text, send]}]
steps:
  - {id: text, name: Text, description: Write it, instructions_file: text.md, outputs: {text: {type: file, ` +
			`description: The text}},
    reviews: [{run_each: step, ` + review + `}]}
  - {id: send, name: Send, description: Send it, instructions_file: text.md, outputs: {}, reviews: []}
`,
	}
}

const startText = `{"goal":"g","job_name":"checked","workflow_name":"full"}`

// reviewed is a server on a project with that job, which an executor reviews.
func reviewed(t *testing.T, text, config string) (cs *mcp.ClientSession, root string) {
	t.Helper()
	s, root := project(t, nil)
	write(t, root, textJob(`quality_criteria: {Good: "Is it good?"}`, text))
	write(t, root, map[string]string{"review.sh": reviewScript, ".deepwork/config.yml": config})
	return client(t, s), root
}

// reviewScript is an agent that passes a text with "fine" in it. It prints the events of the client that
// its first argument names; its prompt comes from standard input, or from its last argument.
const reviewScript = `
if [ "$2" ]; then prompt=$2; else prompt=$(cat); fi
printf '%s' "$prompt" > prompt.txt
printf '%s' "$MODE $DEEPWORK_REVIEW" > env.txt
case $prompt in *"this is fine"*) verdict='{\"passed\": true, \"feedback\": \"ok\"}';; *) verdict='{\"passed\": ` +
	`false, \"feedback\": \"Write more\"}';; esac
case $1 in
claude) printf '%s\n' '{"type":"system","subtype":"init"}' '{"type":"assistant",` +
	`"message":{"content":[{"type":"text","text":"I read it"}]}}' '{"type":"result","subtype":"success",` +
	`"is_error":false,"result":"'"$verdict"'"}';;
codex) printf '%s\n' '{"type":"thread.started","thread_id":"x"}' '{"type":"item.completed",` +
	`"item":{"type":"agent_message","text":"'"$verdict"'"}}' '{"type":"turn.completed","usage":{"input_tokens":1}}';;
failing) printf '%s\n' '{"type":"result","subtype":"error_max_turns","is_error":true,"result":"{\"passed\": true}"}';;
esac
`

const executorsConfig = `quality_gate: {reviewer_executor: %}
executors:
  CLAUDE_LIKE:
    command: [sh, review.sh, claude]
    env: {MODE: plain}
    variants:
      ARGUMENT: {command: [sh, review.sh, codex], prompt: argument, env: {MODE: argument}}
      FAILING: {command: [sh, review.sh, failing]}
`

// An executor reviews as the reviewer does: it gets the task as it takes prompts, and its final message is the verdict.
func TestAnExecutorReviews(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]string{"CLAUDE_LIKE": "plain 1", "CLAUDE_LIKE:ARGUMENT": "argument 1"} {
		cs, root := reviewed(t, "short", strings.Replace(executorsConfig, "%", "'"+name+"'", 1))
		id := into[replies.Start](t, cs, "start_workflow", startText).BeginStep.SessionID
		testkit.ContainsAll(t, accepted(t, cs, "finished_step", finishText(id)),
			[]string{`"needs_work"`, `: Write more\n`}, name)

		write(t, root, map[string]string{"text.txt": "this is fine"})
		testkit.Contains(t, accepted(t, cs, "finished_step", finishText(id)), `"next_step"`, name)
		read := func(file string) string { return string(testkit.Get(os.ReadFile(filepath.Join(root, file))).Must(t)) }
		testkit.Equal(t, read("env.txt"), env, "the environment of %s", name)
		testkit.ContainsAll(t, read("prompt.txt"), []string{"Is it good?", "this is fine"}, "the prompt of %s", name)
		testkit.Contains(t, read(".deepwork/tmp/session_"+id+".json"), `"by": "executor `+name+`"`)
	}
}

// An executor that fails, or that there is not, passes nothing, and nobody reviews in its place.
func TestAnExecutorThatCannotReview(t *testing.T) {
	t.Parallel()
	for name, wants := range map[string][]string{
		"'CLAUDE_LIKE:FAILING'": {"it says of itself that it failed (error_max_turns)", "fix it, or where it is set, ",
			filepath.Join(".deepwork", "config.yml") + "."},
		"CLAUDE_LYKE":        {"There is no executor"},
		"'CLAUDE_LIKE:PLAN'": {"has no variant"},
	} {
		cs, _ := reviewed(t, "this is fine", strings.Replace(executorsConfig, "%", name, 1))
		accepted(t, cs, "start_workflow", startText)
		res := callTool(t, cs, "finished_step", `{"outputs":{"text":"text.txt"}}`)
		testkit.True(t, res.IsError, "%s passes", name)
		testkit.ContainsAll(t, text(res), wants, "%s", name)
	}
}

// A session that is pinned to an executor goes on with it only while it runs the same command.
func TestAPinnedExecutorThatIsChanged(t *testing.T) {
	t.Parallel()
	config := strings.Replace(executorsConfig, "%", "CLAUDE_LIKE, pin: true", 1)
	cs, root := reviewed(t, "this is fine", config)
	callTool(t, cs, "start_workflow", startText)
	write(t, root, map[string]string{".deepwork/config.yml": strings.Replace(config, "[sh, review.sh, claude]",
		"[sh, other.sh]", 1)})
	testkit.ContainsAll(t, refusedAs(t, cs, "finished_step", `{"outputs":{"text":"text.txt"}}`, "pinned_reviewer_gone"),
		[]string{"StateError: ", "the executor CLAUDE_LIKE has another command now"})

	// It still reviews where the config names none any more.
	write(t, root,
		map[string]string{".deepwork/config.yml": strings.Replace(config, "reviewer_executor: CLAUDE_LIKE, ", "", 1)})
	testkit.Equal(t, into[replies.Finish](t, cs, "finished_step", `{"outputs":{"text":"text.txt"}}`).Status,
		replies.NextStep, "removed")
}

// The script of a reviewer that a session is pinned to is compared again when its turn comes.
func TestAPinnedReviewerThatIsSwapped(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	script := filepath.Join(root, "review.sh")
	must(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700))
	cfg, faults := config.Parse("config.yml", []byte("quality_gate: {agent_review_command: [./review.sh]}"))
	set, err := trust.SetOf(root, cfg)
	testkit.Need(t, faults == nil && err == nil, "%v %v", faults, err)

	approval := &config.Approval{Files: []map[string]string{set[len(set)-1].Files}}
	r := &reviewing{
		root:     root,
		work:     root,
		approved: func(string, []string) (*config.Approval, error) { return approval, nil },
	}
	reviewer, err := r.earlier(`["./review.sh"]`)
	testkit.Need(t, err == nil, "%v %v", reviewer, err)
	testkit.Need(t, reviewer.Program == script, "%v %v", reviewer, err)
	testkit.Need(t, reviewer.Allowed() == nil, "%v %v", reviewer, err)
	must(t, os.WriteFile(script, []byte("#!/bin/sh\necho swapped\n"), 0o700))
	testkit.FailsWith(t, reviewer.Allowed(), trust.ErrChanged)
}

// A client that can ask its user does so during finished_step, over stdio and HTTP alike; one that
// cannot, or must not be asked in the middle of a call, gets the reply that says who has to answer.
func TestAClientIsAskedForItsUsersReview(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		version string
		answer  *mcp.ElicitResult // nil means that the client declares no elicitation
		http    bool
		want    replies.Status
		says    string
	}{ // what is an answer: TestAnswersOfAClientsUser
		"pass": {stateful, &mcp.ElicitResult{
			Action:  "accept",
			Content: map[string]any{"decision": "pass", "feedback": "Fine"},
		}, false, replies.NextStep, "Fine"},
		"pass over HTTP": {stateful, &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "pass"}},
			true, replies.NextStep, ""},
		"fail": {stateful, &mcp.ElicitResult{
			Action:  "accept",
			Content: map[string]any{"decision": "fail", "feedback": "Too long"},
		}, false, replies.NeedsWork, "Too long"},
		"decline":        {stateful, &mcp.ElicitResult{Action: "decline"}, false, replies.NeedsWork, "Waiting: "},
		"no form":        {stateful, &mcp.ElicitResult{Action: "accept"}, false, replies.NeedsWork, "Waiting: "},
		"no elicitation": {stateful, nil, false, replies.NeedsWork, "Waiting: "},
		"newer MCP, where a person alone may override": {"", &mcp.ElicitResult{
			Action:  "accept",
			Content: map[string]any{"decision": "pass"},
		}, true, replies.NeedsWork, "Waiting: "},
		"newer MCP": {"", &mcp.ElicitResult{
			Action:  "accept",
			Content: map[string]any{"decision": "pass", "feedback": "Fine"},
		}, true, replies.NextStep, "Fine"},
	} {
		t.Run(name, func(t *testing.T) {
			s, root := project(t, func(o *Options) {
				if strings.HasSuffix(name, "may override") {
					o.Override = "human"
				}
			})
			write(t, root, textJob(`by: human, quality_criteria: {Sound: "Would you sign it?"}`, "Dear"))
			o, times := &mcp.ClientOptions{}, 0
			if test.answer != nil {
				o.ElicitationHandler = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					testkit.ContainsAll(t, r.Params.Message, []string{"Would you sign it?", "text.txt"}, "asked")
					times++
					return test.answer, nil
				}
			}

			here, there := mcp.NewInMemoryTransports()
			var over mcp.Transport = there
			if !test.http {
				go s.mcp.Run(localCall(), here)
			} else {
				over = &mcp.StreamableClientTransport{
					Endpoint:   overHTTP(t, s, web.Options{}).URL(),
					HTTPClient: httpClient(t, ""),
				}
			}
			cs := connect(t, over, test.version, o)
			finish := finishText(into[replies.Start](t, cs, "start_workflow", startText).BeginStep.SessionID)
			res := callTool(t, cs, "finished_step", finish)

			// only who closes it is not asked again
			if again := map[string]int{"decline": 1, "no form": 2}[name]; again > 0 {
				callTool(t, cs, "finished_step", finish)
				testkit.Equal(t, times, again, "times asked")
			}
			testkit.ContainsAll(t, text(res), []string{test.says, `"status":"` + string(test.want) + `"`}, "reply")
			testkit.Equal(t, res.Meta[tool.WaitingMeta] != nil, test.says == "Waiting: ", "waiting: %v", res.Meta)
		})
	}
}

// A reviewer without a verdict is to be fixed where it is set: in the user's own config, which takes
// precedence, in the project's, or in the flags.
func TestField19_WhereTheReviewerIsSet(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"quality_gate: {agent_review_command: judge}": config.UserFile(),
		"quality_gate: {reviewer_executor: CODEX}":    config.UserFile(),
		"quality_gate: {default_timeout: 60}":         filepath.Join("project", ".deepwork", "config.yml"),
	} {
		own, faults := config.ParseUser("config.yml", []byte(text))
		testkit.Need(t, own != nil, "%v", faults)
		r := &reviewing{root: "project", own: func() *config.User { return own }}
		testkit.Equal(t, r.from(), want, "%s", text)
	}
	r := testkit.Get(newReviewing(Options{QualityGateCommand: "judge"}, "project", "project", nil)).Must(t)
	testkit.Equal(t, r.merge(config.Default()).From(), "the flags of deepwork serve")
	testkit.True(t, slices.Contains(r.merge(config.Default()).Secrets, config.StoreEnv),
		"a reviewer gets the URL of the store")
}

const (
	passes = `{"action":"accept","content":{"decision":"pass","feedback":"Fine"}}`
	fails  = `{"action":"accept","content":{"decision":"fail","feedback":"No"}}`
)

// askedSession is a session whose step 'text' waits for a person, in a project of its own with two servers. A person's
// question is a row: who answers it, about what and how is what that says, whatever server is asked and whatever comes
// back with an answer.
type askedSession struct {
	*testing.T
	s               *Server
	root, id, key   string // key names the question
	ann, bob, plain *taker // ann began the session; plain is ann with a client that does not ask its user
}

func newAskedSession(t *testing.T) *askedSession {
	t.Parallel()
	a := &askedSession{T: t, root: t.TempDir()}
	write(t, a.root, textJob(`by: human, quality_criteria: {Sound: "Would you sign it?"}`, "Dear"))
	file, token := tokens(t, "ann", "bob")
	a.s, a.ann = takingWith(t, a.root, `{"elicitation":{}}`, web.Options{TokenFile: file}, nil)
	of := func(token, can string) *taker { return &taker{t, httpClient(t, token), a.ann.url, can} }
	a.ann = of(token[0], a.ann.can)
	a.bob = of(token[1], a.ann.can)
	a.plain = of(token[0], `{"elicitation":{"url":{}}}`)

	a.id = a.ann.start()
	r := a.finish(a.ann, a.id, "")
	a.key = askedKey(r)
	testkit.Need(t, a.key != "", "asked: %v", r)
	testkit.Equal(t, r["requestState"], any(a.key), "asked: %v", r)
	return a
}

func (a *askedSession) finish(c *taker, id, more string) map[string]any {
	a.Helper()
	r, fault := c.request("tools/call", "finished_step", `"name":"finished_step","arguments":`+finishText(id)+more)
	testkit.Need(a, fault == "", "%v", fault)
	return r
}

// answer finishes the step with an answer to a question.
func (a *askedSession) answer(c *taker, said string) map[string]any {
	a.Helper()
	return a.finish(c, a.id, fmt.Sprintf(`,"requestState":"passed","inputResponses":{%q:%s}`, a.key, said))
}

// terminal answers the question as the user of the machine does.
func (a *askedSession) terminal(passed bool) error {
	ctx := a.Context()
	stores := testkit.Get(backend.Open(ctx, state.Of(a.root), backend.Choice{}, false,
		slog.New(slog.DiscardHandler))).Must(a)
	defer stores.Close(ctx)
	e := testkit.Get(workflow.Open(ctx, workflow.Options{Root: a.root, Stores: stores})).Must(a)
	defer e.Close(ctx)

	s := testkit.Get(a.s.session(ctx, "ann", a.id)).Must(a)
	digest := ""
	if u := s.Progress("text").Asked(); u != nil {
		digest = u.Content
	}
	return e.ReviewFor(ctx, a.id, "text", digest,
		machine.Answer{Identity: "local", Channel: session.ChannelTerminal, Passed: passed, Feedback: "Seen"})
}

// askedKey returns the name of the question that a reply asks, "" if it asks none.
func askedKey(r map[string]any) (key string) {
	requests, _ := r["inputRequests"].(map[string]any)
	for key = range requests {
	}
	return key
}

// waits checks a reply that says want, and that the step has not passed.
func (a *askedSession) waits(r map[string]any, want string) {
	a.Helper()
	testkit.Contains(a, fmt.Sprint(r), want, "the reply")
	testkit.True(a, a.evidence() == nil, "the step has passed: %+v", a.evidence())
}

// passed checks a reply that goes on to the next step, and that a person passed the step, proved or as a client says.
func (a *askedSession) passed(r map[string]any, client bool) {
	a.Helper()
	testkit.Contains(a, fmt.Sprint(r), "status:next_step", "the reply")
	u := a.evidence()
	testkit.Need(a, u != nil, "the step has no evidence")
	v := u.Why()[0]
	testkit.Equal(a, v.Kind, judging.ByPerson)
	testkit.Equal(a, v.Client, client)
	testkit.True(a, v.Channel != "", "the evidence %+v has no channel", v)
}

func (a *askedSession) evidence() *judging.Submission {
	a.Helper()
	return testkit.Get(a.s.session(a.Context(), "ann", a.id)).Must(a).Progress("text").FinishedWith()
}

const waitsForAPerson = "Waiting: a person must pass"

func TestADeclineIsNoAnswer(t *testing.T) {
	a := newAskedSession(t)
	testkit.Contains(t, fmt.Sprint(a.answer(a.ann, `{"action":"decline"}`)), waitsForAPerson, "declined")
	r := a.finish(a.ann, a.id, "")
	testkit.Equal(t, askedKey(r), "", "asked again")
	a.waits(r, waitsForAPerson)
}

func TestADeclinedFormMayStillBeAnswered(t *testing.T) {
	a := newAskedSession(t)
	a.answer(a.ann, `{"action":"cancel"}`)
	a.passed(a.answer(a.ann, passes), true)
}

func TestSilenceIsNoAnswer(t *testing.T) {
	a := newAskedSession(t)
	testkit.Equal(t, askedKey(a.finish(a.ann, a.id, "")), a.key, "the question that is asked again")
	a.waits(a.finish(a.plain, a.id, ""), waitsForAPerson)
}

func TestAnotherCallerCannotAnswer(t *testing.T) {
	a := newAskedSession(t)
	a.waits(a.answer(a.bob, passes), "StateError")
}

func TestAnAnswerIsAboutWhatWasAsked(t *testing.T) {
	a := newAskedSession(t)
	write(t, a.root, map[string]string{"text.txt": "other"})
	key := askedKey(a.answer(a.ann, passes))
	testkit.True(t, key != "", "the other content is not asked about")
	testkit.True(t, key != a.key, "the other content is asked about as before: %s", key)
	a.waits(a.finish(a.plain, a.id, ""), waitsForAPerson)
}

func TestAnAnswerIsForItsOwnSession(t *testing.T) {
	a := newAskedSession(t)
	other := a.ann.start()
	a.ann.call("abort_workflow", fmt.Sprintf(`{"explanation":"no","session_id":%q}`, a.id))
	r := a.ann.call("finished_step",
		fmt.Sprintf(`{"outputs":{"text":"text.txt"}},"inputResponses":{%q:%s}`, a.key, passes))
	testkit.Contains(t, fmt.Sprint(r), "was aborted", "naming none")
	a.waits(a.finish(a.ann, other, fmt.Sprintf(`,"inputResponses":{%q:%s}`, a.key, passes)), "inputRequests")
}

func TestTheFirstAnswerCounts(t *testing.T) {
	a := newAskedSession(t)
	must(t, a.terminal(true))
	r := a.answer(a.ann, fails)
	testkit.Contains(t, fmt.Sprint(r["content"]), "did not count", "the later answer")
	a.passed(r, false)
}

func TestTheTerminalsLaterAnswerIsRefused(t *testing.T) {
	a := newAskedSession(t)
	r := a.answer(a.ann, passes)
	testkit.Fails(t, a.terminal(false), "does not wait for a person")
	a.passed(r, true)
}
