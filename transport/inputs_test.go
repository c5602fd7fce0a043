package transport

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session/workflow/machine"
	"deepwork/transport/tools/source"
)

// askJob takes inputs, one of which has the name of an argument that every workflow has.
const askJob = `name: ask
version: 1.0.0
summary: Ask people
common_job_info_provided_to_all_steps_at_runtime: Be polite.
workflows:
  - name: them
    summary: Ask them
    inputs:
      - {name: goal, description: What they want}
      - {name: main topic, description: What about, type: string, required: true}
      - {name: places, description: Where to ask, type: files, required: false}
      - {name: tone, description: How, default: plain}
    steps: [talk]
steps:
  - {id: talk, name: Talk, description: Talk, instructions_file: talk.md, outputs: {}, reviews: []}
`

func askProject(t *testing.T, config string, change func(*Options)) *mcp.ClientSession {
	t.Helper()
	s, root := bareProject(t, config, change)
	write(t, root, map[string]string{".deepwork/jobs/ask/job.yml": askJob, ".deepwork/jobs/ask/talk.md": "Talk."})
	return client(t, s)
}

// The inputs of a workflow are arguments of its prompt, and those with its values are in the text.
func TestPromptsTakeInputs(t *testing.T) {
	t.Parallel()
	cs := askProject(t, "", nil)
	var got []string
	for p, err := range cs.Prompts(context.Background(), nil) {
		must(t, err)
		for _, a := range p.Arguments {
			if p.Name == "deepwork:ask:them" {
				got = append(got, map[bool]string{true: "!"}[a.Required]+a.Name+": "+a.Description)
			}
		}
	}
	want := []string{"goal: What the user wants to have at the end, in a sentence", "!input_goal: What they want", "!main_topic: What about", "places: Where to ask", "tone: How. Default: plain"}
	testkit.True(t, slices.Equal(got, want), "the arguments are %q, want %q", got, want)
	p, err := cs.GetPrompt(context.Background(), &mcp.GetPromptParams{Name: "deepwork:ask:them", Arguments: map[string]string{"goal": "Know it", "input_goal": `a "good" life`}})
	must(t, err)
	for _, want := range []string{`with the inputs {"goal":"a \"good\" life"}`, "its inputs main topic are missing", "Know it"} {
		if got := p.Messages[0].Content.(*mcp.TextContent).Text; !strings.Contains(got, want) {
			t.Errorf("the prompt %q lacks %q", got, want)
		}
	}
}

// The inputs of a workflow are in the schema that other servers see, and reach its session.
func TestSourceTakesInputs(t *testing.T) {
	t.Parallel()
	cs := askProject(t, "workflow_tools: {expose_jobs: true}\n", asSource)
	var all []source.Workflow
	must(t, json.Unmarshal([]byte(text(callTool(t, cs, "workflows-list-tool", `{}`))), &all))
	i := slices.IndexFunc(all, func(w source.Workflow) bool { return w.ID == "ask/them" })
	testkit.Need(t, i >= 0, "ask/them is not in %+v", all)
	var s jsonschema.Schema
	must(t, json.Unmarshal(all[i].InputSchema, &s))
	if want := []string{"goal", "input_goal", "main_topic"}; !slices.Equal(s.Required, want) {
		t.Errorf("required are %q, want %q", s.Required, want)
	}
	for name, want := range map[string]string{"input_goal": "string", "main_topic": "string", "places": "array"} {
		if p := s.Properties[name]; p == nil || p.Type != want && !slices.Contains(p.Types, want) {
			t.Errorf("%s is %+v, want type %s", name, p, want)
		}
	}
	for input, want := range map[string]string{
		`{"goal":"g","main_topic":"x"}`:                                         `Missing required argument "input_goal": What they want`,
		`{"goal":"g","input_goal":"a","main_topic":["x"]}`:                      "main_topic",
		`{"goal":"g","input_goal":"a","main_topic":"x","places":"a.md"}`:        "places",
		`{"goal":"g","input_goal":"a","main_topic":"x","places_":["idea.txt"]}`: "did you mean places",
	} {
		for _, tool := range []string{"workflows-execute-tool", "ask-them"} {
			args := input
			if tool != "ask-them" {
				args = `{"workflow_id":"ask/them","input":` + input + `}`
			}
			testkit.Contains(t, refusedWith(t, cs, tool, args, "ToolError"), want, "%s %s", tool, args)
		}
	}
	// Without those that are required, the session would be refused.
	whole := `{"goal":"g","input_goal":"a","main_topic":"x","places":["idea.txt"]}`
	into[source.StartedReply](t, cs, "workflows-execute-tool", `{"workflow_id":"ask/them","input":`+whole+`}`)
	into[machine.StartReply](t, cs, "ask-them", whole)
}
