package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/merge"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const hello = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-06-18",` +
	`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n" +
	`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"

func overStdio(t testing.TB, s *Server, input string) []string {
	t.Helper()
	var out testkit.Log
	testkit.Works(t, s.ServeStdio(context.Background(), io.NopCloser(strings.NewReader(input)), nopCloser{&out}),
		"ServeStdio")
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func toolsListOf(t testing.TB, s *Server) string {
	t.Helper()
	lines := overStdio(t, s, hello+`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`+"\n")
	return lines[len(lines)-1]
}

// The bytes of tools/list are an interface: the order of properties too.
func TestToolsListGolden(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil)
	var list struct{ Result json.RawMessage }
	must(t, json.Unmarshal([]byte(toolsListOf(t, s)), &list))
	var got bytes.Buffer
	must(t, json.Indent(&got, list.Result, "", "  "))
	got.WriteByte('\n')
	testkit.Golden(t, filepath.Join("testdata", "tools_list.json"), got.String(), *update)
}

func inWorkspace(p *engines) { p.workspace = new(board.Context) }

// A listedTool is a tool as its bytes are: with the order of its properties.
type listedTool struct {
	Name, Title, Description  string
	Meta                      map[string]any `json:"_meta"`
	Annotations               *mcp.ToolAnnotations
	InputSchema, OutputSchema json.RawMessage
	// Reply is the output schema with what clients are not told: required fields, and all values of fields.
	Reply json.RawMessage `json:"-"`
}

func listTools(t *testing.T) map[string]*listedTool {
	t.Helper()
	all := map[string]*listedTool{}
	for _, options := range [][]func(*engines){nil, {inWorkspace}} {
		s, _ := fakeServer(t, nil, options...)
		var list struct{ Result struct{ Tools []*listedTool } }
		must(t, json.Unmarshal([]byte(toolsListOf(t, s)), &list))
		for _, tool := range list.Result.Tools {
			tool.Reply = testkit.Get(json.Marshal(s.tools.Tool(tool.Name).Output)).Must(t)
			all[tool.Name] = tool
		}
	}

	return all
}

func schemaFrom(t testing.TB, v any) *jsonschema.Schema {
	t.Helper()
	data := testkit.Get(json.Marshal(v)).Must(t)
	s := new(jsonschema.Schema)
	must(t, json.Unmarshal(data, s))
	return s
}

func TestAllToolsAreDescribed(t *testing.T) {
	t.Parallel()
	for _, tool := range listTools(t) {
		n := len(tool.Description)
		testkit.True(t, n >= 30 && n < 2048, "%s: the description has %d bytes, want 30 to 2047", tool.Name, n)
		testkit.True(t, tool.Title != "" && tool.OutputSchema != nil, "%s: no title or no output schema", tool.Name)

		for kind, s := range map[string]*jsonschema.Schema{
			"input":  schemaFrom(t, tool.InputSchema),
			"output": schemaFrom(t, tool.OutputSchema),
		} {
			testkit.Equal(t, s.Type, "object", "%s: the type of the %s schema", tool.Name, kind)
			testkit.Works(t, testkit.Get(s.Resolve(nil)).Err(), "%s: the %s schema", tool.Name, kind)
		}

		// A client that shows its model no tool until it searches has the tools of workflows at once, and
		// finds the others.
		always, hint := tool.Meta["anthropic/alwaysLoad"], tool.Meta["anthropic/searchHint"]
		testkit.True(t, (always == true) != (hint != nil), "%s: always loaded %v, hint %v", tool.Name, always, hint)
	}
}

// A step's fields are described in one place, for both places of steps: null is a begin_step if there is
// none, but no entry of concurrent_steps.
func TestStepSchemaHoldsWhereItIsReferredTo(t *testing.T) {
	t.Parallel()
	for _, tool := range listTools(t) {
		schema := schemaFrom(t, tool.Reply)
		if tool.Name != "start_workflow" {
			testkit.True(t, schema.Defs == nil, "%s repeats the fields of a step", tool.Name)
			continue
		}
		schema.Required = nil
		resolved := testkit.Get(schema.Resolve(nil)).Must(t)
		for reply, fits := range map[string]bool{
			// the other fields are missing
			`{"begin_step":null}`: true, `{"concurrent_steps":null}`: false, `{"begin_step":{"step_id":"a"}}`: false,
			`{"begin_step":"a"}`: false, `{"concurrent_steps":[null]}`: false,
			`{"concurrent_steps":[{"step_id":1}]}`: false,
		} {
			var value any
			must(t, json.Unmarshal([]byte(reply), &value))
			testkit.Equal(t, resolved.Validate(value) == nil, fits, "%s", reply)
		}
	}
}

func TestAllToolsBoundTheirArguments(t *testing.T) {
	t.Parallel()
	server, _ := fakeServer(t, nil, inWorkspace)
	for _, name := range server.tools.Names() {
		tool := server.tools.Tool(name)
		s := tool.Input // clients are shown no limits, and calls are checked against them
		testkit.True(t, s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil,
			"%s takes arguments it does not name", tool.Name)

		for name, p := range s.Properties {
			limit := p.MaxLength
			switch kind := append(p.Types, p.Type); {
			case slices.Contains([]string{"outputs", "inputs", "input", "arguments"}, name):
				limit = new(1 << 20) // whatever it is
			case slices.Contains(kind, "boolean"):
				limit = new(1)
			case slices.Contains(kind, "array"):
				limit = p.MaxItems
			case p.Maximum != nil && p.Minimum != nil:
				limit = new(int(*p.Maximum))
			}
			testkit.True(t, limit != nil && *limit >= 1, "%s.%s has no limit", tool.Name, name)
			testkit.Equal(t, slices.Contains(s.Required, name), !slices.Contains(p.Types, "null"),
				"%s.%s is required, of the types %v", tool.Name, name, p.Types)
		}
	}
}

// conforms checks every reply of a server as clients do: the text is the structured content, which fits the
// output schema that the tool lists, and has no member that this does not name. It returns the names of the
// tools that have replied.
func conforms(t testing.TB, s *Server) (seen *sync.Map) {
	t.Helper()
	w := &walker{t, map[string]*jsonschema.Schema{}}
	whole := map[string]*jsonschema.Resolved{}
	for _, tool := range testkit.Get(client(t, s).ListTools(context.Background(), nil)).Must(t).Tools {
		w.of[tool.Name] = schemaFrom(t, tool.OutputSchema)
		reply := w.of[tool.Name]
		if s.tools.Has(tool.Name) {
			reply = s.tools.Tool(tool.Name).Output.CloneSchemas()
		}
		whole[tool.Name] = testkit.Get(reply.Resolve(nil)).Must(t)
	}

	seen = new(sync.Map)
	s.mcp.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			call, ok := req.(*mcp.CallToolRequest)
			if r, isResult := res.(*mcp.CallToolResult); !ok || err != nil || isResult && r.InputRequests != nil {
				return res, err
			}
			name := call.Params.Name
			var result struct {
				Content           []struct{ Text string }
				StructuredContent json.RawMessage
				IsError           bool
			}
			encoded, failed := jsontext.Encode(res)
			testkit.Works(t, failed, "%s: the result has no JSON form", name)
			testkit.Works(t, json.Unmarshal(encoded, &result), "%s: the result", name)
			testkit.Equal(t, len(result.Content), 1, "%s: blocks", name)

			data := result.StructuredContent
			if result.IsError {
				testkit.True(t, data == nil, "%s: an error with structured content: %s", name, data)
				return res, err
			}

			// with the SDK's escapes
			text, _ := json.Marshal(json.RawMessage(result.Content[0].Text))
			// whose text is a list
			testkit.True(t, string(text) == string(data) || name == "workflows-list-tool",
				"%s: the text is not the structured content:\n%s\n%s", name, text, data)

			seen.Store(name, true)
			if name == "call_workflow_tool" {
				name = "workflow_status" // as the reply of the tool that it calls
			}
			var value any
			must(t, json.Unmarshal(data, &value))
			if whole[name] == nil { // it is the tool of a workflow that came later
				testkit.True(t, !s.tools.Has(name), "%s lists no output schema", name)
			} else {
				testkit.Works(t, whole[name].Validate(value), "the reply of %s: %s", name, data)
				w.walk(name, "", value, w.of[name])
			}

			return res, err
		}
	})

	return seen
}

// The author's order survives: the generic way of the SDK would sort it.
func TestRepliesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil)
	res := callTool(t, client(t, s), "finished_step", `{"outputs":{}}`)
	got := text(res)
	for _, pair := range [][2]string{{`"zoo":"z.md"`, `"ant":["a.md"`}, {`"zz":`, `"aa":`}, {`"status"`, `"feedback"`},
		{`"notice"`, `"stack"`}} {
		a, b := strings.Index(got, pair[0]), strings.Index(got, pair[1])
		testkit.True(t, a >= 0 && b >= a, "%s at %d, %s at %d in %s", pair[0], a, pair[1], b, got)
	}
	testkit.True(t, !strings.Contains(got, `\u003c`), "HTML escapes in what agents read: %s", got)
}

// Clients read tools/list at every start, and show a model the names, descriptions and input
// schemas of all tools with every request: the characters of these are bounded for the default toolsets
// and for workflows, and the bytes on the wire.
func TestToolsFitTheBudgetOfCharactersShownAndBytesSent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sets                []string
		mostShown, mostSent int
	}{{config.DefaultToolsets, 16_000, 90_000}, {[]string{"workflows"}, 6_000, 24_000},
		{[]string{"workflows", "remote"}, 13_000, 32_000}, {config.Toolsets, 18_000, 96_000}} {
		t.Run(strings.Join(c.sets, " and "), func(t *testing.T) {
			s, _ := bareProject(t, "", func(o *Options) { o.Toolsets = c.sets })
			line := toolsListOf(t, s)
			var list struct{ Result struct{ Tools []listedTool } }
			must(t, json.Unmarshal([]byte(line), &list))
			sum := 0
			for _, tool := range list.Result.Tools {
				n := utf8.RuneCountInString(tool.Name + tool.Description + string(tool.InputSchema))
				sum += n
				t.Logf("%5d characters shown: %s", n, tool.Name)
			}
			testkit.True(t, sum <= c.mostShown,
				"a model is shown %d characters, at most %d are allowed: shorten descriptions", sum, c.mostShown)
			testkit.True(t, len(line) <= c.mostSent, "tools/list has %d bytes, at most %d are allowed", len(line),
				c.mostSent)
			n := len(client(t, s).InitializeResult().Instructions)
			testkit.True(t, n <= 1800, "the instructions have %d bytes", n)
		})
	}
}

// What is not declared is not answered either: clients take an answer for support.
func TestUndeclaredMethodsAreNotFound(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil)
	cs, ctx := client(t, s), t.Context()
	c := cs.InitializeResult().Capabilities
	testkit.Need(t, c.Prompts == nil, "capabilities %+v", c)
	testkit.Need(t, c.Resources == nil, "capabilities %+v", c)
	testkit.Need(t, c.Completions == nil, "capabilities %+v", c)
	testkit.True(t, c.Tools != nil, "capabilities %+v", c)

	for method, err := range map[string]error{
		"prompts/list":             testkit.Get(cs.ListPrompts(ctx, nil)).Err(),
		"prompts/get":              testkit.Get(cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "p"})).Err(),
		"resources/list":           testkit.Get(cs.ListResources(ctx, nil)).Err(),
		"resources/templates/list": testkit.Get(cs.ListResourceTemplates(ctx, nil)).Err(),
		"resources/read":           testkit.Get(cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "file:///r"})).Err(),
	} {
		e, ok := errors.AsType[*jsonrpc.Error](err)
		testkit.Need(t, ok, "%s: %v", method, err)
		testkit.Equal(t, e.Code, jsonrpc.CodeMethodNotFound)
		testkit.Contains(t, e.Message, method)
	}
	accepted(t, cs, "get_step", `{}`)
}

// ofOthers are ids that a person, a job or another system chose.
var ofOthers = []string{"step_id", "workflow_id", "request_id", "instance_id", "source_execution_id"}

// Each field of a request or a reply has a type and says what it means, of an id that it is a UUID or 8
// hexadecimal digits, of a time that it is RFC 3339, and of a word which ones there are (seed 004, "Schema
// field documentation").
func TestField24_EveryFieldSaysItsFormat(t *testing.T) {
	t.Parallel()
	id := regexp.MustCompile(`_ids?$|^(remove|depends_on|blocked_by)$`)
	at := regexp.MustCompile(`(_at|_until|^time|_changed)$`)
	for _, tool := range listTools(t) {
		for kind, s := range map[string]*jsonschema.Schema{
			"input":  schemaFrom(t, tool.InputSchema),
			"output": schemaFrom(t, tool.OutputSchema),
			"reply":  schemaFrom(t, tool.Reply),
		} {
			fieldsOf(s, tool.Name+" "+kind, func(where, name string, p *jsonschema.Schema) {
				said := p.Description
				testkit.True(t, strings.TrimSpace(said) != "", "%s is not described", where)
				testkit.True(t, name == "*" || p.Type != "" || p.Types != nil, "%s has no type", where)

				says := strings.Contains(said, "UUID") || strings.Contains(said, "8 hex") ||
					strings.Contains(said, "32 hex")
				testkit.True(t, says || !id.MatchString(name) || slices.Contains(ofOthers, name),
					"%s does not say what the id looks like: %s", where, said)
				testkit.True(t, !at.MatchString(name) || strings.Contains(said, "RFC 3339"),
					"%s does not say how the time is written: %s", where, said)

				for _, value := range p.Enum {
					word := fmt.Sprint(value)
					testkit.True(t, value == nil || strings.Contains(word, " ") || strings.Contains(said, word) ||
						name == "syntax_for_finished_step_tool", "%s does not say that it may be %s: %s", where,
						word, said)
				}
			})
		}
	}
}

// fieldsOf calls found for each property, definition and further property ("*"), at any depth.
func fieldsOf(s *jsonschema.Schema, at string, found func(where, name string, p *jsonschema.Schema)) {
	if s == nil {
		return
	}

	inside := func(where, name string, p *jsonschema.Schema) {
		if p != nil && p.Not == nil {
			found(where, name, p)
			fieldsOf(p, where, found)
		}
	}
	for name, p := range s.Properties {
		inside(at+"."+name, name, p)
	}
	for name, def := range s.Defs {
		inside(at+"#"+name, "", def)
	}
	fieldsOf(s.Items, at+"[]", found) // the list's own description says what they are
	inside(at+".*", "*", s.AdditionalProperties)
}

// anyJSON are the fields whose members are those of a source, a job or a caller.
var anyJSON = []string{"result", "input_schema", "inputSchema", "metadata", "value"}

// elsewhere is how a field says which tool's output schema describes the fields in it.
var elsewhere = regexp.MustCompile(`fields are in (\w+)'s output schema`)

// Fields that a tool leaves to another one's schema are in that one, of the same list of tools.
func TestFieldsLeftToAnotherToolAreListedThere(t *testing.T) {
	t.Parallel()
	all, left := listTools(t), 0
	for _, tool := range all {
		fieldsOf(schemaFrom(t, tool.OutputSchema), tool.Name, func(where, name string, p *jsonschema.Schema) {
			other := elsewhere.FindStringSubmatch(p.Description)
			if other == nil || other[1] == "start_workflow" {
				return
			}
			left++
			there := all[other[1]]
			testkit.Need(t, there != nil, "%s: there is no tool %s", where, other[1])
			of := schemaFrom(t, there.OutputSchema).Properties[name]
			testkit.Need(t, of != nil, "%s: %s has no such field", where, other[1])
			if of.Items != nil {
				of = of.Items
			}
			testkit.True(t, len(of.Properties) > 0, "%s: %s lists no fields of it", where, other[1])
		})
	}
	testkit.True(t, left >= 10, "%d fields are left to other tools", left)
}

// A walker looks for members of replies that the schemas of their tools do not name.
type walker struct {
	t  testing.TB
	of map[string]*jsonschema.Schema // by tool
}

func (w *walker) walk(at, name string, value any, s *jsonschema.Schema) {
	if s != nil {
		switch other := elsewhere.FindStringSubmatch(s.Description); {
		case s.Ref != "" || other != nil && other[1] == "start_workflow":
			s = w.of["start_workflow"].Defs["step"]
		case other != nil:
			s = w.of[other[1]].Properties[name]
		}
	}

	switch value := value.(type) {
	case map[string]any:
		for key, member := range value {
			switch {
			case slices.Contains(anyJSON, name):
			case s == nil:
				w.t.Errorf("%s has members, and no schema", at)
			case s.Properties[key] != nil:
				w.walk(at+"."+key, key, member, s.Properties[key])
			default:
				if others := s.AdditionalProperties; others != nil && others.Not == nil {
					w.walk(at+".*", "", member, others)
				} else {
					w.t.Errorf("%s answers %s, which its schema does not name", at, key)
				}
			}
		}
	case []any:
		for _, item := range value {
			var of *jsonschema.Schema
			if s != nil {
				of = s.Items
			}
			w.walk(at+"[]", name, item, of)
		}
	}
}

// Each reply fits the schema of its tool, and has no field that this does not name.
func TestField24_RepliesHaveTheFieldsOfTheirSchemas(t *testing.T) {
	calls := func(cs *mcp.ClientSession, all ...string) {
		for _, call := range all {
			name, args, _ := strings.Cut(call, " ")
			accepted(t, cs, name, args)
		}
	}

	fake, _ := fakeServer(t, nil)
	replied := []*sync.Map{conforms(t, fake)}
	calls(client(t, fake), "get_workflows {}", `start_workflow {"goal":"g","job_name":"j","workflow_name":"w"}`,
		`finished_step {"outputs":{}}`, `get_step {}`, `abort_workflow {"explanation":"e"}`)

	remote, _ := withSource(t, newFactory(standardWorkflows...), "")
	replied = append(replied, conforms(t, remote))
	cs := client(t, remote)
	type execution struct {
		ID string `json:"execution_id"`
	}
	id := into[execution](t, cs, "echo", `{"customer":"Ada"}`).ID
	calls(cs, "list_workflow_tools {}", `list_workflow_tools {"name":"*"}`, "refresh_workflow_tools {}",
		`workflow_status {"execution_id":"`+id+`"}`,
		`cancel_execution {"execution_id":"`+id+`"}`,
		`call_workflow_tool {"name":"echo","arguments":{"customer":"Ada"}}`)

	s, root := bareProject(t, "executors: {MINE: {command: [sh, -c, 'cat > said.txt; echo done']}}\n",
		func(o *Options) { o.Toolsets = config.Toolsets })
	repository(t, root)
	replied = append(replied, conforms(t, s))
	cs = client(t, s)
	run := into[execution](t, cs, "workflows-execute-tool", `{"workflow_id":"trip/plan","input":{"goal":"Sea"}}`).ID
	calls(cs, "workflows-list-tool {}", `workflows-status-tool {"workflow_id":"trip/plan","execution_id":"`+run+`"}`,
		`get_step {"session_id":"`+run+`"}`,
		`finished_step {"session_id":"`+run+`","outputs":{"idea":"idea.txt"}}`,
		`go_to_step {"session_id":"`+run+`","step_id":"idea"}`,
		`workflows-cancel-tool {"workflow_id":"trip/plan","execution_id":"`+run+`"}`)

	write(t, root,
		map[string]string{".deepwork/jobs/items/job.yml": `{name: items, version: 1.0.0, summary: S, ` +
			`common_job_info_provided_to_all_steps_at_runtime: C, steps: [
  {id: list, name: L, description: D, instructions: I, reviews: [], outputs: {todo: {type: string, description: D}}},
  {id: port, name: P, description: D, instructions: I, reviews: [], outputs: {pages: {type: files, description: D, ` +
			`required: false}, said: {type: string, description: D}}}],
  workflows: [{name: main, summary: S, steps: [list, {for_each: todo, steps: [port]}]}, {name: again, summary: S, ` +
			`steps: [{workflow: main}]}]}`})

	// its own, not that of its first step
	again := into[execution](t, cs, "workflows-execute-tool", `{"workflow_id":"items/again","input":{"goal":"g"}}`).ID
	calls(cs, `workflows-status-tool {"workflow_id":"items/again","execution_id":"`+again+`"}`,
		`start_workflow {"goal":"g","job_name":"items","workflow_name":"main"}`,
		`finished_step {"outputs":{"todo":"[\"a\",{\"b\":1}]"}}`,
		`finished_step {"outputs":{"said":"s"},"step_id":"port[0]"}`,
		`finished_step {"outputs":{"said":"s","pages":["idea.txt"]},"step_id":"port[1]"}`)
	project := into[board.ProjectsReply](t, cs, "list_projects", `{}`).Projects[0].ProjectID
	repo := into[board.ReposReply](t, cs, "list_repos", `{"project_id":"`+project+`"}`).Repos[0].RepoID
	task := into[board.Task](t, cs, "create_task", `{"project_id":"`+project+`","title":"Plan"}`).TaskID
	other := into[board.Task](t, cs, "create_task",
		`{"project_id":"`+project+`","title":"Then","depends_on":["`+task+`"]}`).TaskID
	made := into[attempt.AttemptReply](t, cs, "start_task_attempt",
		`{"task_id":"`+task+`","executor":"MINE","repos":[{"repo_id":"`+repo+`","target_branch":"main"}]}`)
	a := `{"attempt_id":"` + made.AttemptID + `"`
	for tail := (&attempt.TailReply{}); tail.State != "completed"; {
		tail = into[attempt.TailReply](t, cs, "tail_attempt",
			fmt.Sprintf(`%s,"after_index":%d,"wait":"5"}`, a, tail.NextIndex-1))
		testkit.Need(t, tail.State != "failed", "%+v", tail)
	}

	calls(cs, "tail_attempt "+a+`,"after_index":-1,"raw":true}`, "get_attempt "+a+"}", "get_attempt_diff "+a+"}",
		`list_tasks {"project_id":"`+project+`"}`, `list_task_attempts {"task_id":"`+task+`"}`,
		`get_task {"task_id":"`+task+`"}`, "needs_attention {}", "list_executors {}",
		"comment_attempt "+a+`,"comments":[{"file":"said.txt","line":"1","text":"t"}]}`,
		"rebase_attempt "+a+"}", "merge_attempt "+a+"}", "change_target "+a+`,"target_branch":"main"}`,
		"abort_merge "+a+"}",
		"stop_attempt "+a+"}", `update_task {"task_id":"`+task+`","status":"done"}`,
		`delete_task {"task_id":"`+other+`"}`)
	_ = into[merge.Reply](t, cs, "abort_merge", a+"}")
	ran := into[attempt.RunMade](t, cs, "run_workflow",
		`{"job_name":"trip","workflow_name":"plan","goal":"g","executor":"MINE"}`).RunID
	calls(cs, `get_run {"run_id":"`+ran+`"}`, `stop_attempt {"attempt_id":"`+ran+`"}`, `get_run {"run_id":"`+ran+`"}`,
		`follow_up {"action":"cancel","attempt_id":"`+made.AttemptID+`"}`)

	for _, name := range s.tools.Names() {
		has := func(seen *sync.Map) bool {
			_, ok := seen.Load(name)
			return ok
		}
		// its reply is that of merge_attempt, and it needs a remote
		testkit.True(t, slices.ContainsFunc(replied, has) || name == "push_attempt",
			"no reply of %s was looked at", name)
	}
}

func overPipes(b *testing.B, serve func(io.ReadCloser, io.WriteCloser) error) *mcp.ClientSession {
	b.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- serve(in, out) }()
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).
		Connect(b.Context(), &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	must(b, err)
	b.Cleanup(func() {
		cs.Close()
		<-served
	})
	return cs
}

// BenchmarkToolsList is tools/list of the default sets over stdio, beside a server of the bare SDK that lists
// the same tools, in turns.
func BenchmarkToolsList(b *testing.B) {
	s := made(b, Options{ProjectRoot: b.TempDir(), AdditionalJobs: []string{}})
	ours := overPipes(b, func(in io.ReadCloser, out io.WriteCloser) error {
		return s.ServeStdio(context.Background(), in, out)
	})
	all := testkit.Get(ours.ListTools(b.Context(), nil)).Must(b)
	bare := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"}, nil)
	for _, t := range all.Tools {
		bare.AddTool(t, nothing)
	}
	theirs := overPipes(b, func(in io.ReadCloser, out io.WriteCloser) error {
		return bare.Run(context.Background(), &mcp.IOTransport{Reader: in, Writer: out})
	})
	list := func(cs *mcp.ClientSession) time.Duration {
		began := time.Now()
		testkit.Get(cs.ListTools(b.Context(), nil)).Must(b)
		return time.Since(began)
	}
	var by, beside []time.Duration
	for b.Loop() {
		by, beside = append(by, list(ours)), append(beside, list(theirs))
	}
	slices.Sort(by)
	slices.Sort(beside)
	b.ReportMetric(float64(by[len(by)/2].Microseconds()), "µs")
	b.ReportMetric(float64(beside[len(by)/2].Microseconds()), "bare-µs")
	b.ReportMetric(float64(by[len(by)/2])/float64(beside[len(by)/2]), "by-bare(<=1.5)")
}
