package transport

import (
	"context"
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
	"deepwork/session/workflow/machine"
	"deepwork/transport/tool"
	"deepwork/transport/web"
)

// textJob is the files of a project with a job whose first step has a text reviewed.
func textJob(review, text string) map[string]string {
	return map[string]string{"text.txt": text, ".deepwork/jobs/checked/text.md": "Write.", ".deepwork/jobs/checked/job.yml": `name: checked
version: 1.0.0
summary: Has a text checked
common_job_info_provided_to_all_steps_at_runtime: Be brief.
workflows:
  - {name: full, summary: All of it, steps: [text, send]}
steps:
  - id: text
    name: Text
    description: Write it
    instructions_file: text.md
    outputs: {text: {type: file, description: The text}}
    reviews: [{run_each: step, ` + review + `}]
  - {id: send, name: Send, description: Send it, instructions_file: text.md, outputs: {}, reviews: []}
`}
}

const startText = `{"goal":"g","job_name":"checked","workflow_name":"full"}`

// executors is a server on a project with that job, which an executor reviews.
func executors(t *testing.T, text, config string) (cs *mcp.ClientSession, root string) {
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
case $prompt in *"this is fine"*) verdict='{\"passed\": true, \"feedback\": \"ok\"}';; *) verdict='{\"passed\": false, \"feedback\": \"Write more\"}';; esac
case $1 in
claude) printf '%s\n' '{"type":"system","subtype":"init"}' '{"type":"assistant","message":{"content":[{"type":"text","text":"I read it"}]}}' '{"type":"result","subtype":"success","is_error":false,"result":"'"$verdict"'"}';;
codex) printf '%s\n' '{"type":"thread.started","thread_id":"x"}' '{"type":"item.completed","item":{"type":"agent_message","text":"'"$verdict"'"}}' '{"type":"turn.completed","usage":{"input_tokens":1}}';;
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

// An executor reviews as the reviewer does: it gets the task as it takes prompts, and its final message is
// the verdict.
func TestAnExecutorReviews(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"CLAUDE_LIKE", "CLAUDE_LIKE:ARGUMENT"} {
		cs, root := executors(t, "short", strings.Replace(executorsConfig, "%", "'"+name+"'", 1))
		id := into[machine.StartReply](t, cs, "start_workflow", startText).BeginStep.SessionID
		args := `{"outputs":{"text":"text.txt"},"session_id":"` + id + `","step_id":"text"}`
		if r := into[machine.FinishReply](t, cs, "finished_step", args); r.Status != machine.NeedsWork || !strings.Contains(*r.Feedback, ": Write more\n") {
			t.Errorf("%s: %+v", name, r)
		}
		write(t, root, map[string]string{"text.txt": "this is fine"})
		testkit.Equal(t, into[machine.FinishReply](t, cs, "finished_step", args).Status, machine.NextStep, "%s", name)
		read := func(file string) string {
			data := testkit.Get(os.ReadFile(filepath.Join(root, file))).Must(t)
			return string(data)
		}
		mode := "plain 1"
		if strings.HasSuffix(name, "ARGUMENT") {
			mode = "argument 1"
		}
		if prompt := read("prompt.txt"); read("env.txt") != mode || !strings.Contains(prompt, "Is it good?") || !strings.Contains(prompt, "this is fine") {
			t.Errorf("%s: it got %s, %s", name, read("env.txt"), prompt)
		}
		testkit.Contains(t, read(".deepwork/tmp/session_"+id+".json"), `"reviewer": "executor `+name+`"`, "%s", name)
	}
}

// An executor that fails, or that there is not, passes nothing, and nobody reviews in its place.
func TestAnExecutorThatCannotReview(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"'CLAUDE_LIKE:FAILING'": "it says of itself that it failed (error_max_turns)",
		"CLAUDE_LYKE":           "There is no executor",
		"'CLAUDE_LIKE:PLAN'":    "has no variant",
	} {
		cs, root := executors(t, "this is fine", strings.Replace(executorsConfig, "%", name, 1))
		callTool(t, cs, "start_workflow", startText)
		res := callTool(t, cs, "finished_step", `{"outputs":{"text":"text.txt"}}`)
		if strings.HasSuffix(name, "FAILING'") {
			testkit.Contains(t, text(res), "fix it, or where it is set, "+filepath.Join(root, ".deepwork", "config.yml")+".")
		}
		if !res.IsError || !strings.Contains(text(res), want) {
			t.Errorf("%s: %s", name, text(res))
		}
	}
}

// A session that is pinned to an executor goes on with it only while it runs the same command.
func TestAPinnedExecutorThatIsChanged(t *testing.T) {
	t.Parallel()
	config := strings.Replace(executorsConfig, "%", "CLAUDE_LIKE, pin: true", 1)
	cs, root := executors(t, "this is fine", config)
	callTool(t, cs, "start_workflow", startText)
	write(t, root, map[string]string{".deepwork/config.yml": strings.Replace(config, "[sh, review.sh, claude]", "[sh, other.sh]", 1)})
	res := callTool(t, cs, "finished_step", `{"outputs":{"text":"text.txt"}}`)
	if !res.IsError || !strings.Contains(text(res), "the executor CLAUDE_LIKE has another command now") {
		t.Errorf("changed: %s", text(res))
	}
	if e, _ := res.Meta["deepwork/error"].(map[string]any); e["code"] != "pinned_reviewer_gone" || e["type"] != string(session.StateError) {
		t.Errorf("changed: %v", res.Meta)
	}
	// It still reviews where the config names none any more.
	write(t, root, map[string]string{".deepwork/config.yml": strings.Replace(config, "reviewer_executor: CLAUDE_LIKE, ", "", 1)})
	testkit.Equal(t, into[machine.FinishReply](t, cs, "finished_step", `{"outputs":{"text":"text.txt"}}`).Status, machine.NextStep, "removed")
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
	r := &reviewing{root: root, work: root, approved: func(string, []string) (*config.Approval, error) { return approval, nil }}
	reviewer, err := r.earlier(`["./review.sh"]`)
	testkit.Need(t, err == nil && reviewer.Program == script && reviewer.Allowed() == nil, "%v %v", reviewer, err)
	must(t, os.WriteFile(script, []byte("#!/bin/sh\necho swapped\n"), 0o700))
	testkit.FailsWith(t, reviewer.Allowed(), trust.ErrChanged)
}

// A reviewer does not get the URL of the store.
func TestTheStoreIsWithheldFromReviewers(t *testing.T) {
	t.Parallel()
	if s := new(reviewing).merge(config.Default()); !slices.Contains(s.Secrets, config.StoreEnv) {
		t.Errorf("withheld are %v", s.Secrets)
	}
}

// A client that can ask its user does so during finished_step, over stdio and HTTP alike; one that
// cannot, or must not be asked in the middle of a call, gets the reply that says who has to answer.
func TestAClientIsAskedForItsUsersReview(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		version string
		answer  *mcp.ElicitResult // nil means that the client declares no elicitation
		http    bool
		want    machine.Status
		says    string
	}{
		"pass":                     {stateful, &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "pass", "feedback": "Fine"}}, false, machine.NextStep, "Fine"},
		"pass over HTTP":           {stateful, &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "pass"}}, true, machine.NextStep, ""},
		"fail":                     {stateful, &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "fail", "feedback": "Too long"}}, false, machine.NeedsWork, "Too long"},
		"decline":                  {stateful, &mcp.ElicitResult{Action: "decline"}, false, machine.NeedsWork, "Waiting: "},
		"cancel":                   {stateful, &mcp.ElicitResult{Action: "cancel"}, false, machine.NeedsWork, "Waiting: "},
		"accept without an answer": {stateful, &mcp.ElicitResult{Action: "accept", Content: map[string]any{"feedback": "pass"}}, false, machine.NeedsWork, "Waiting: "},
		"another answer":           {stateful, &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "yes"}}, false, machine.NeedsWork, "Waiting: "},
		"no elicitation":           {stateful, nil, false, machine.NeedsWork, "Waiting: "},
		"newer MCP":                {"", &mcp.ElicitResult{Action: "accept", Content: map[string]any{"decision": "pass", "feedback": "Fine"}}, true, machine.NextStep, "Fine"},
		"newer MCP, decline":       {"", &mcp.ElicitResult{Action: "decline"}, true, machine.NeedsWork, "Waiting: "},
	} {
		t.Run(name, func(t *testing.T) {
			s, root := project(t, nil)
			write(t, root, textJob(`by: human, quality_criteria: {Sound: "Would you sign it?"}`, "Dear"))
			o := &mcp.ClientOptions{}
			if test.answer != nil {
				o.ElicitationHandler = func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					testkit.ContainsAll(t, r.Params.Message, []string{"Would you sign it?", "text.txt"}, "asked")
					return test.answer, nil
				}
			}
			here, there := mcp.NewInMemoryTransports()
			var over mcp.Transport = there
			if !test.http {
				go s.mcp.Run(localCall(), here)
			} else {
				over = &mcp.StreamableClientTransport{Endpoint: overHTTP(t, s, web.Options{}).URL(), HTTPClient: httpClient(t, "")}
			}
			cs := connect(t, over, test.version, o)
			id := into[machine.StartReply](t, cs, "start_workflow", startText).BeginStep.SessionID
			args := `{"outputs":{"text":"text.txt"},"session_id":"` + id + `","step_id":"text"}`
			res := callTool(t, cs, "finished_step", args)
			testkit.ContainsAll(t, text(res), []string{test.says, `"status":"` + string(test.want) + `"`}, "reply")
			if waiting, _ := res.Meta[tool.WaitingMeta].(map[string]any); (waiting != nil) != strings.HasPrefix(test.says, "Waiting") {
				t.Errorf("waiting: %v", res.Meta)
			}
		})
	}
}

// A reviewer without a verdict is to be fixed where it is set: in the user's own config, which takes precedence, in
// the project's, or in the flags.
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
}
