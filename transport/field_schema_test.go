package transport

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/schema"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/merge"
)

// ofOthers are ids that a person, a job or another system chose.
var ofOthers = []string{"step_id", "workflow_id", "request_id", "instance_id", "source_execution_id"}

// Each field of a request or a reply says what it means, of an id that it is a UUID or 8 hexadecimal digits, of a
// time that it is RFC 3339, and of a word which ones there are (seed 004, "Schema field documentation").
func TestField24_EveryFieldSaysItsFormat(t *testing.T) {
	t.Parallel()
	id, at := regexp.MustCompile(`_ids?$|^(remove|depends_on|blocked_by)$`), regexp.MustCompile(`(_at|_until|^time|_changed)$`)
	for _, tool := range listTools(t) {
		for kind, s := range map[string]*jsonschema.Schema{"input": schemaFrom(t, tool.InputSchema), "output": schemaFrom(t, tool.OutputSchema)} {
			fieldsOf(s, tool.Name+" "+kind, func(where, name string, p *jsonschema.Schema) {
				said := p.Description
				switch {
				case strings.TrimSpace(said) == "":
					t.Errorf("%s is not described", where)
				case id.MatchString(name) && !slices.Contains(ofOthers, name) && !strings.Contains(said, "UUID") && !strings.Contains(said, "8 hex") && !strings.Contains(said, "32 hex"):
					t.Errorf("%s does not say what the id looks like: %s", where, said)
				case at.MatchString(name) && !strings.Contains(said, "RFC 3339"):
					t.Errorf("%s does not say how the time is written: %s", where, said)
				}
				for _, value := range p.Enum {
					if word := fmt.Sprint(value); value != nil && !strings.Contains(word, " ") && !strings.Contains(said, word) && name != "syntax_for_finished_step_tool" {
						t.Errorf("%s does not say that it may be %s: %s", where, word, said)
					}
				}
			})
		}
	}
}

// fieldsOf calls found for each property, at any depth.
func fieldsOf(s *jsonschema.Schema, at string, found func(where, name string, p *jsonschema.Schema)) {
	if s == nil {
		return
	}
	for name, p := range s.Properties {
		found(at+"."+name, name, p)
		fieldsOf(p, at+"."+name, found)
	}
	for name, def := range s.Defs {
		fieldsOf(def, at+"#"+name, found)
	}
	fieldsOf(s.Items, at+"[]", found)
	fieldsOf(s.AdditionalProperties, at+".*", found)
}

// anyJSON are the fields whose members are those of a source, a job or a caller.
var anyJSON = []string{"result", "input_schema", "inputSchema", "metadata", "value"}

// A walker checks replies against the schemas of their tools, and looks for members that these do not name.
type walker struct {
	t     *testing.T
	of    map[string]*jsonschema.Schema // by tool
	whole map[string]*schema.Schema     // the same, compiled
	seen  map[string]bool
}

// watch walks every reply of a server, and of call_workflow_tool as that of the tool that it calls.
func (w *walker) watch(s *Server) {
	list, err := client(w.t, s).ListTools(context.Background(), nil)
	must(w.t, err)
	for _, tool := range list.Tools {
		w.of[tool.Name] = schemaFrom(w.t, tool.OutputSchema)
		w.whole[tool.Name] = testkit.Get(schema.Compile(testkit.Get(json.Marshal(tool.OutputSchema)).Must(w.t))).Must(w.t)
	}
	s.mcp.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			call, ok := req.(*mcp.CallToolRequest)
			result, _ := res.(*mcp.CallToolResult)
			if !ok || result == nil || result.IsError {
				return res, err
			}
			var value any
			data, _ := jsontext.Encode(result.StructuredContent)
			must(w.t, json.Unmarshal(data, &value))
			name := call.Params.Name
			w.seen[name] = true
			like := name
			if name == "call_workflow_tool" {
				like = "workflow_status"
			}
			if s := w.whole[like]; s != nil {
				testkit.Works(w.t, s.Validate(value), "the reply of %s: %s", name, data)
			}
			w.walk(name, "", value, w.of[like])
			return res, err
		}
	})
}

func (w *walker) walk(at, name string, value any, s *jsonschema.Schema) {
	if s != nil && s.Ref != "" || s != nil && strings.Contains(s.Description, "fields are in start_workflow's output schema") {
		s = w.of["start_workflow"].Defs["step"]
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
			if s == nil {
				w.walk(at+"[]", name, item, nil)
			} else {
				w.walk(at+"[]", name, item, s.Items)
			}
		}
	}
}

// Each reply fits the schema of its tool, and has no field that this does not name.
func TestField24_RepliesHaveTheFieldsOfTheirSchemas(t *testing.T) {
	w := &walker{t, map[string]*jsonschema.Schema{}, map[string]*schema.Schema{}, map[string]bool{}}
	calls := func(cs *mcp.ClientSession, all ...string) {
		for _, call := range all {
			name, args, _ := strings.Cut(call, " ")
			if res := callTool(t, cs, name, args); res.IsError {
				t.Errorf("%s: %s", call, text(res))
			}
		}
	}
	fake, _ := fakeServer(t, nil)
	w.watch(fake)
	calls(client(t, fake), "get_workflows {}", `start_workflow {"goal":"g","job_name":"j","workflow_name":"w"}`, `finished_step {"outputs":{}}`, `get_step {}`, `abort_workflow {"explanation":"e"}`)

	remote, _ := withSource(t, newFactory(standardWorkflows...), "")
	w.watch(remote)
	cs := client(t, remote)
	id := into[struct {
		ID string `json:"execution_id"`
	}](t, cs, "echo", `{"customer":"Ada"}`).ID
	calls(cs, "list_workflow_tools {}", `list_workflow_tools {"name":"*"}`, "refresh_workflow_tools {}", `workflow_status {"execution_id":"`+id+`"}`,
		`cancel_execution {"execution_id":"`+id+`"}`, `call_workflow_tool {"name":"echo","arguments":{"customer":"Ada"}}`)

	s, root := bareProject(t, "executors: {MINE: {command: [sh, -c, 'cat > said.txt; echo done']}}\n", func(o *Options) { o.Toolsets = config.Toolsets })
	repository(t, root)
	w.watch(s)
	cs = client(t, s)
	run := into[struct {
		ID string `json:"execution_id"`
	}](t, cs, "workflows-execute-tool", `{"workflow_id":"trip/plan","input":{"goal":"Sea"}}`).ID
	calls(cs, "workflows-list-tool {}", `workflows-status-tool {"workflow_id":"trip/plan","execution_id":"`+run+`"}`, `get_step {"session_id":"`+run+`"}`,
		`finished_step {"session_id":"`+run+`","outputs":{"idea":"idea.txt"}}`, `go_to_step {"session_id":"`+run+`","step_id":"idea"}`,
		`workflows-cancel-tool {"workflow_id":"trip/plan","execution_id":"`+run+`"}`)
	write(t, root, map[string]string{".deepwork/jobs/items/job.yml": `{name: items, version: 1.0.0, summary: S, common_job_info_provided_to_all_steps_at_runtime: C, steps: [
  {id: list, name: L, description: D, instructions: I, reviews: [], outputs: {todo: {type: string, description: D}}},
  {id: port, name: P, description: D, instructions: I, reviews: [], outputs: {pages: {type: files, description: D, required: false}, said: {type: string, description: D}}}],
  workflows: [{name: main, summary: S, steps: [list, {for_each: todo, steps: [port]}]}]}`})
	calls(cs, `start_workflow {"goal":"g","job_name":"items","workflow_name":"main"}`, `finished_step {"outputs":{"todo":"[\"a\",{\"b\":1}]"}}`,
		`finished_step {"outputs":{"said":"s"},"step_id":"port[0]"}`, `finished_step {"outputs":{"said":"s","pages":["idea.txt"]},"step_id":"port[1]"}`)
	project := into[board.ProjectsReply](t, cs, "list_projects", `{}`).Projects[0].ProjectID
	repo := into[board.ReposReply](t, cs, "list_repos", `{"project_id":"`+project+`"}`).Repos[0].RepoID
	task := into[board.Task](t, cs, "create_task", `{"project_id":"`+project+`","title":"Plan"}`).TaskID
	other := into[board.Task](t, cs, "create_task", `{"project_id":"`+project+`","title":"Then","depends_on":["`+task+`"]}`).TaskID
	made := into[attempt.AttemptReply](t, cs, "start_task_attempt", `{"task_id":"`+task+`","executor":"MINE","repos":[{"repo_id":"`+repo+`","target_branch":"main"}]}`)
	a := `{"attempt_id":"` + made.AttemptID + `"`
	for tail := (&attempt.TailReply{}); tail.State != "completed"; {
		if tail = into[attempt.TailReply](t, cs, "tail_attempt", fmt.Sprintf(`%s,"after_index":%d,"wait":"5"}`, a, tail.NextIndex-1)); tail.State == "failed" {
			t.Fatalf("%s", text(callTool(t, cs, "get_attempt", a+`}`)))
		}
	}
	calls(cs, "tail_attempt "+a+`,"after_index":-1,"raw":true}`, "get_attempt "+a+"}", "get_attempt_diff "+a+"}", `list_tasks {"project_id":"`+project+`"}`, `list_task_attempts {"task_id":"`+task+`"}`,
		`get_task {"task_id":"`+task+`"}`, "needs_attention {}", "list_executors {}", "comment_attempt "+a+`,"comments":[{"file":"said.txt","line":"1","text":"t"}]}`,
		"rebase_attempt "+a+"}", "merge_attempt "+a+"}", "change_target "+a+`,"target_branch":"main"}`, "abort_merge "+a+"}",
		"stop_attempt "+a+"}", `update_task {"task_id":"`+task+`","status":"done"}`, `delete_task {"task_id":"`+other+`"}`)
	_ = into[merge.Reply](t, cs, "abort_merge", a+"}")
	ran := into[attempt.RunMade](t, cs, "run_workflow", `{"job_name":"trip","workflow_name":"plan","goal":"g","executor":"MINE"}`).RunID
	calls(cs, `get_run {"run_id":"`+ran+`"}`, `stop_attempt {"attempt_id":"`+ran+`"}`, `get_run {"run_id":"`+ran+`"}`, `follow_up {"action":"cancel","attempt_id":"`+made.AttemptID+`"}`)
	for _, name := range s.tools.Names() {
		if !w.seen[name] && name != "push_attempt" { // its reply is that of merge_attempt, and it needs a remote
			t.Errorf("no reply of %s was looked at", name)
		}
	}
}
