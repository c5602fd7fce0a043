package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
	"deepwork/session/board"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const hello = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n" +
	`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"

// overStdio feeds input to a server and returns the lines it wrote.
func overStdio(t testing.TB, s *Server, input string) []string {
	t.Helper()
	r, w := io.Pipe()
	var out bytes.Buffer
	read := make(chan struct{})
	go func() { defer close(read); io.Copy(&out, r) }()
	testkit.Works(t, s.ServeStdio(context.Background(), io.NopCloser(strings.NewReader(input)), w), "ServeStdio")
	<-read
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// The bytes of tools/list are an interface: the order of properties too.
func TestToolsListGolden(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil)
	lines := overStdio(t, s, hello+`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`+"\n")
	var list struct{ Result json.RawMessage }
	must(t, json.Unmarshal([]byte(lines[len(lines)-1]), &list))
	var got bytes.Buffer
	must(t, json.Indent(&got, list.Result, "", "  "))
	got.WriteByte('\n')
	testkit.Golden(t, filepath.Join("testdata", "tools_list.json"), got.String(), *update)
}

// inWorkspace makes a server offer what is offered in a workspace alone.
func inWorkspace(p *engines) { p.workspace = new(board.Context) }

// listTools lists all tools there are.
func listTools(t *testing.T) (all []*mcp.Tool) {
	for _, options := range [][]func(*engines){nil, {inWorkspace}} {
		s, _ := fakeServer(t, nil, options...)
		res := testkit.Get(client(t, s).ListTools(context.Background(), nil)).Must(t)
		all = append(all, res.Tools...)
	}
	slices.SortStableFunc(all, func(a, b *mcp.Tool) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b *mcp.Tool) bool { return a.Name == b.Name })
}

func schemaFrom(t *testing.T, v any) *jsonschema.Schema {
	t.Helper()
	data := testkit.Get(json.Marshal(v)).Must(t)
	s := new(jsonschema.Schema)
	must(t, json.Unmarshal(data, s))
	return s
}

func TestAllToolsAreDescribed(t *testing.T) {
	t.Parallel()
	for _, tool := range listTools(t) {
		if n := len(tool.Description); n < 30 || n >= 2048 {
			t.Errorf("%s: the description has %d bytes, want 30 to 2047", tool.Name, n)
		}
		testkit.True(t, tool.Title != "" && tool.OutputSchema != nil, "%s: no title or no output schema", tool.Name)
		for kind, s := range map[string]*jsonschema.Schema{"input": schemaFrom(t, tool.InputSchema), "output": schemaFrom(t, tool.OutputSchema)} {
			testkit.Equal(t, s.Type, "object", "%s: the type of the %s schema", tool.Name, kind)
			testkit.Works(t, testkit.Get(s.Resolve(nil)).Err(), "%s: the %s schema", tool.Name, kind)
			described(t, tool.Name+" "+kind, s)
		}
	}
}

// described fails for each property and further property, at any depth, that has no
// description or no type.
func described(t *testing.T, at string, s *jsonschema.Schema) {
	t.Helper()
	check := func(at string, p *jsonschema.Schema, typed bool) {
		if p == nil || p.Not != nil {
			return
		}
		testkit.True(t, strings.TrimSpace(p.Description) != "", "%s has no description", at)
		testkit.True(t, !typed || p.Type != "" || p.Types != nil, "%s has no type", at)
		described(t, at, p)
	}
	for name, p := range s.Properties {
		check(at+"."+name, p, true)
	}
	for name, p := range s.Defs {
		check(at+"#"+name, p, true)
	}
	if s.Items != nil { // the list's own description says what they are
		described(t, at+"[]", s.Items)
	}
	check(at+".*", s.AdditionalProperties, false)
}

// A step's fields are described in one place, for both places of steps: null
// is a begin_step if there is none, but no entry of concurrent_steps.
func TestStepSchemaHoldsWhereItIsReferredTo(t *testing.T) {
	t.Parallel()
	for _, tool := range listTools(t) {
		schema := schemaFrom(t, tool.OutputSchema)
		if tool.Name != "start_workflow" {
			testkit.True(t, schema.Defs == nil, "%s repeats the fields of a step", tool.Name)
			continue
		}
		schema.Required = nil
		resolved := testkit.Get(schema.Resolve(nil)).Must(t)
		for reply, fits := range map[string]bool{
			`{"begin_step":null}`:                  true,
			`{"concurrent_steps":null}`:            false,
			`{"begin_step":{"step_id":"a"}}`:       false, // the other fields are missing
			`{"begin_step":"a"}`:                   false,
			`{"concurrent_steps":[null]}`:          false,
			`{"concurrent_steps":[{"step_id":1}]}`: false,
		} {
			var value any
			must(t, json.Unmarshal([]byte(reply), &value))
			if err := resolved.Validate(value); (err == nil) != fits {
				t.Errorf("%s: %s: %v", tool.Name, reply, err)
			}
		}
	}
}

func TestAllToolsBoundTheirArguments(t *testing.T) {
	t.Parallel()
	server, _ := fakeServer(t, nil, inWorkspace)
	for _, name := range server.tools.Names() {
		tool := server.tools.Tool(name)
		s := tool.Input // clients are shown no limits, and calls are checked against them
		testkit.True(t, s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil, "%s takes arguments it does not name", tool.Name)
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
			if required := slices.Contains(s.Required, name); required == slices.Contains(p.Types, "null") {
				t.Errorf("%s.%s: required %v, types %v", tool.Name, name, required, p.Types)
			}
		}
	}
}

// conforms checks every structured reply against the output schema that the
// tool lists, as clients do.
func conforms(t testing.TB, s *Server) {
	t.Helper()
	schemas := map[string]*jsonschema.Resolved{}
	cs := client(t, s)
	list := testkit.Get(cs.ListTools(context.Background(), nil)).Must(t)
	for _, tool := range list.Tools {
		data, _ := json.Marshal(tool.OutputSchema)
		schema := new(jsonschema.Schema)
		must(t, json.Unmarshal(data, schema))
		schemas[tool.Name] = testkit.Get(schema.Resolve(nil)).Must(t)
	}
	s.mcp.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			call, ok := req.(*mcp.CallToolRequest)
			if r, is := res.(*mcp.CallToolResult); !ok || err != nil || is && r.InputRequests != nil {
				return res, err
			}
			name := call.Params.Name
			var result struct {
				Content           []struct{ Text string }
				StructuredContent json.RawMessage
				IsError           bool
			}
			if encoded, err := jsontext.Encode(res); err != nil || json.Unmarshal(encoded, &result) != nil {
				t.Errorf("%s: the result has no JSON form: %v", name, err)
			}
			if result.IsError {
				testkit.True(t, result.StructuredContent == nil && len(result.Content) == 1, "%s: an error with structured content, or not one block: %+v", name, result)
				return res, err
			}
			data := result.StructuredContent
			var value any
			if err := json.Unmarshal(data, &value); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if schemas[name] == nil && !s.tools.Has(name) {
				return res, err // the tool of a workflow that came later
			} else if err := schemas[name].Validate(value); err != nil {
				t.Errorf("%s: the reply does not fit its schema: %v\n%s", name, err, data)
			}
			if len(result.Content) != 1 {
				t.Errorf("%s: %d blocks", name, len(result.Content))
			} else if text, err := json.Marshal(json.RawMessage(result.Content[0].Text)); err != nil || string(text) != string(data) { // with the SDK's escapes
				t.Errorf("%s: the text is not the structured content:\n%s\n%s", name, text, data)
			}
			return res, err
		}
	})
}

func TestRepliesConform(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil)
	conforms(t, s)
	cs := client(t, s)
	for name, args := range map[string]string{
		"get_workflows":  `{}`,
		"start_workflow": `{"goal":"g","job_name":"j","workflow_name":"w"}`,
		"finished_step":  `{"outputs":{}}`,
		"abort_workflow": `{"explanation":"e"}`,
		"get_step":       `{}`,
	} {
		if res := callTool(t, cs, name, args); res.IsError {
			t.Errorf("%s: %s", name, text(res))
		}
	}
	if res := callTool(t, cs, "go_to_step", `{"step_id":"z"}`); !res.IsError {
		t.Errorf("go_to_step: %s", text(res))
	}
}

// The author's order survives: the generic way of the SDK would sort it.
func TestRepliesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil)
	res := callTool(t, client(t, s), "finished_step", `{"outputs":{}}`)
	got := text(res)
	for _, pair := range [][2]string{{`"zoo":"z.md"`, `"ant":["a.md"`}, {`"zz":`, `"aa":`}, {`"status"`, `"feedback"`}, {`"notice"`, `"stack"`}} {
		a, b := strings.Index(got, pair[0]), strings.Index(got, pair[1])
		if a < 0 || b < a {
			t.Errorf("%s at %d, %s at %d in %s", pair[0], a, pair[1], b, got)
		}
	}
	testkit.True(t, !strings.Contains(got, `\u003c`), "HTML escapes in what agents read: %s", got)
}

// Clients read tools/list at every start, and show a model the names, descriptions and input
// schemas of all tools with every request: the characters of {"name","description","inputSchema"}
// of each tool are bounded for the default toolsets and for workflows, and the bytes on the wire.
func TestToolsFitTheBudgetOfCharactersShownAndBytesSent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                string
		sets                []string
		mostShown, mostSent int
	}{
		{"default", config.DefaultToolsets, 17_700, 116_000},
		{"workflows", []string{"workflows"}, 6_000, 40_960},
		{"workflows and remote", []string{"workflows", "remote"}, 13_000, 40_960},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := bareProject(t, "", func(o *Options) { o.Toolsets = c.sets })
			lines := overStdio(t, s, hello+`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`+"\n")
			line := lines[len(lines)-1]
			var list struct {
				Result struct{ Tools []json.RawMessage }
			}
			must(t, json.Unmarshal([]byte(line), &list))
			sum := 0
			for _, sent := range list.Result.Tools {
				var tool struct {
					Name        string          `json:"name"`
					Description string          `json:"description"`
					InputSchema json.RawMessage `json:"inputSchema"`
				}
				must(t, json.Unmarshal(sent, &tool))
				if len(tool.Description) >= 2048 { // clients cut there, silently
					t.Errorf("%s: the description has %d bytes", tool.Name, len(tool.Description))
				}
				var shown strings.Builder
				e := json.NewEncoder(&shown)
				e.SetEscapeHTML(false)
				must(t, e.Encode(tool))
				n := utf8.RuneCountInString(strings.TrimSpace(shown.String()))
				sum += n
				t.Logf("%5d characters shown, %5d bytes sent: %s", n, len(sent), tool.Name)
			}
			t.Logf("%d tools: %d characters shown, %d bytes sent", len(list.Result.Tools), sum, len(line))
			testkit.True(t, sum <= c.mostShown, "a model is shown %d characters, at most %d are allowed: shorten descriptions", sum, c.mostShown)
			testkit.True(t, len(line) <= c.mostSent, "tools/list has %d bytes, at most %d are allowed", len(line), c.mostSent)
			if n := len(client(t, s).InitializeResult().Instructions); n > 1800 {
				t.Errorf("the instructions have %d bytes", n)
			}
		})
	}
}

// What is not declared is not answered either: clients take an answer for support.
func TestUndeclaredMethodsAreNotFound(t *testing.T) {
	t.Parallel()
	s, _ := fakeServer(t, nil)
	cs := client(t, s)
	if c := cs.InitializeResult().Capabilities; c.Prompts != nil || c.Resources != nil || c.Completions != nil || c.Tools == nil {
		t.Errorf("capabilities %+v", c)
	}
	ctx := context.Background()
	for method, call := range map[string]func() error{
		"prompts/list": func() error { _, err := cs.ListPrompts(ctx, nil); return err },
		"prompts/get":  func() error { _, err := cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "p"}); return err },
		"resources/list": func() error {
			_, err := cs.ListResources(ctx, nil)
			return err
		},
		"resources/templates/list": func() error {
			_, err := cs.ListResourceTemplates(ctx, nil)
			return err
		},
		"resources/read": func() error {
			_, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "file:///r"})
			return err
		},
	} {
		err := call()
		if e, ok := errors.AsType[*jsonrpc.Error](err); !ok || e.Code != jsonrpc.CodeMethodNotFound || !strings.Contains(e.Message, method) {
			t.Errorf("%s: %v", method, err)
		}
	}
	if res := callTool(t, cs, "get_step", `{}`); res.IsError {
		t.Errorf("after them: %s", text(res))
	}
}

// A client that shows its model no tool until it searches has the tools of workflows at once, and finds the others.
func TestToolsAreFound(t *testing.T) {
	t.Parallel()
	for _, offered := range listTools(t) {
		always, hint := offered.Meta["anthropic/alwaysLoad"], offered.Meta["anthropic/searchHint"]
		testkit.True(t, (always == true) != (hint != nil), "%s: always loaded %v, hint %v", offered.Name, always, hint)
	}
}
