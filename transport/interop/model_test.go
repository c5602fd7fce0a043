//go:build interop

package interop

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A model is a scripted one, which coding agents reach over the API of their maker: Anthropic's messages, OpenAI's
// responses, Gemini's streamed content. It does what its script says, whatever the agent sends.
type model struct {
	*httptest.Server
	server string // whose tools it uses: deepwork, or that of a run
	mu     sync.Mutex
	script []move
	done   int // moves of the script
	others int // requests without tools
	turns  []turn
}

// A move is what the model answers: a call of a tool of deepwork, or of the agent's own if own is set, or,
// without a tool, its last words.
type move struct {
	tool string
	own  bool
	args any
	text string
	// limit is the message of the provider that a limit is reached, instead of an answer.
	limit string
}

// A turn is what an agent shows its model.
type turn struct {
	tools  map[string]string // those of deepwork, by deepwork's names, as JSON
	names  []string          // what the agent calls all its tools
	told   string            // the whole request
	result string            // of the move before, if that was a call
	failed bool              // the agent says that it failed
}

// An api is how one maker's agents talk with a model.
type api struct {
	path   string // a part of it
	read   func(body map[string]any, server string) turn
	answer func(number int, name string, m move) []any // the events of a stream
}

func startModel(t *testing.T, with api, script ...move) *model {
	m := &model{server: "deepwork", script: script}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || !strings.Contains(r.URL.Path, with.path) {
			http.NotFound(w, r)
			return
		}

		var body map[string]any
		if err := json.Unmarshal(data, &body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		events, limit := m.respond(with, body, string(data))
		if limit != "" {
			w.Header().Set("X-Should-Retry", "false")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, encoded(map[string]any{
				"type":  "error",
				"error": map[string]any{"type": "rate_limit_error", "message": limit},
			}))
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range events {
			text, err := json.Marshal(event)
			if err != nil {
				panic(err)
			}
			if kind, ok := event.(map[string]any)["type"].(string); ok {
				fmt.Fprintf(w, "event: %s\n", kind)
			}
			fmt.Fprintf(w, "data: %s\n\n", text)
		}
	}))
	t.Cleanup(m.Close)
	return m
}

// respond carries out the next move; the limit of that may be its answer.
func (m *model) respond(with api, body map[string]any, told string) (events []any, limit string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := with.read(body, m.server)
	now.told = told
	if len(now.tools) == 0 && !slices.Contains(now.names, "ToolSearch") { // a request for a title or the like
		m.others++
		return with.answer(0, "", move{text: "A walk"}), ""
	}
	m.turns = append(m.turns, now)
	next := move{text: "The script is over."}
	if m.done < len(m.script) {
		next = m.script[m.done]
	}
	m.done++
	name, server := next.tool, strings.ReplaceAll(m.server, "-", "_")
	if next.tool != "" && !next.own {
		for _, n := range now.names {
			own := strings.ReplaceAll(n, "-", "_")
			if strings.HasSuffix(own, server+"_"+next.tool) || strings.HasSuffix(own, server+"__"+next.tool) {
				name = n
			}
		}
	}
	return with.answer(m.done, name, next), next.limit
}

func names(tools map[string]string) []string { return slices.Sorted(maps.Keys(tools)) }

const messagesPath = "/v1/messages"

// anthropic is the API that Claude Code talks.
var anthropic = api{path: messagesPath, answer: answerMessages, read: readMessages("mcp__%s__")}

// openCode is the same API as OpenCode talks it.
var openCode = api{path: messagesPath, answer: answerMessages, read: readMessages("%s_")}

// readMessages reads the requests of Anthropic's API. prefix is what the names of a server's tools begin with.
func readMessages(prefix string) func(body map[string]any, server string) turn {
	return func(body map[string]any, server string) turn {
		t := turn{tools: map[string]string{}}
		for _, tool := range list(body["tools"]) {
			name := text(tool["name"])
			t.names = append(t.names, name)
			if own, ok := strings.CutPrefix(name, fmt.Sprintf(prefix, server)); ok {
				t.tools[own] = encoded(map[string]any{
					"name":         own,
					"description":  tool["description"],
					"input_schema": tool["input_schema"],
				})
			}
		}

		// Claude Code adds messages of its own, as the system, behind a result.
		messages := slices.DeleteFunc(list(body["messages"]), func(m map[string]any) bool {
			return m["role"] == "system"
		})
		if len(messages) > 0 {
			for _, block := range list(messages[len(messages)-1]["content"]) {
				if block["type"] == "tool_result" {
					t.result, t.failed = flat(block["content"]), block["is_error"] == true
				}
			}
		}

		return t
	}
}

// answerMessages answers as Anthropic's API does.
func answerMessages(number int, name string, m move) []any {
	block := map[string]any{"type": "text", "text": ""}
	delta := map[string]any{"type": "text_delta", "text": m.text}
	reason := "end_turn"
	if m.tool != "" {
		block = map[string]any{
			"type":  "tool_use",
			"id":    fmt.Sprintf("toolu_%d", number),
			"name":  name,
			"input": map[string]any{},
		}

		delta = map[string]any{"type": "input_json_delta", "partial_json": encoded(m.args)}
		reason = "tool_use"
	}
	return []any{
		map[string]any{"type": "message_start", "message": map[string]any{
			"id":            fmt.Sprintf("msg_%d", number),
			"type":          "message",
			"role":          "assistant",
			"model":         "scripted",
			"content":       []any{},
			"stop_reason":   nil,
			"stop_sequence": nil,
			"usage":         map[string]any{"input_tokens": 1, "output_tokens": 1},
		}},
		map[string]any{"type": "content_block_start", "index": 0, "content_block": block},
		map[string]any{"type": "content_block_delta", "index": 0, "delta": delta},
		map[string]any{"type": "content_block_stop", "index": 0},
		map[string]any{
			"type":  "message_delta",
			"delta": map[string]any{"stop_reason": reason, "stop_sequence": nil},
			"usage": map[string]any{"output_tokens": 1},
		},
		map[string]any{"type": "message_stop"},
	}
}

// openAI is the API that Codex talks: the tools of a server are in a namespace.
var openAI = api{path: "/responses", read: readOpenAI, answer: answerOpenAI}

func readOpenAI(body map[string]any, server string) turn {
	t := turn{tools: map[string]string{}}
	for _, tool := range list(body["tools"]) {
		name := text(tool["name"])
		if name != "mcp__"+strings.ReplaceAll(server, "-", "_") {
			t.names = append(t.names, name)
			continue
		}
		for _, member := range list(tool["tools"]) {
			own := text(member["name"])
			t.names = append(t.names, name+"__"+own)
			t.tools[own] = encoded(map[string]any{
				"name":        own,
				"description": member["description"],
				"parameters":  member["parameters"],
			})
		}
	}

	for _, item := range list(body["input"]) {
		t.result = ""
		if item["type"] == "function_call_output" {
			t.result = flat(item["output"])
		}
	}

	return t
}

func answerOpenAI(number int, name string, m move) []any {
	item := map[string]any{
		"type":    "message",
		"role":    "assistant",
		"id":      fmt.Sprintf("item_%d", number),
		"content": []any{map[string]any{"type": "output_text", "text": m.text}},
	}
	if m.tool != "" {
		item = map[string]any{
			"type":      "function_call",
			"id":        fmt.Sprintf("item_%d", number),
			"call_id":   fmt.Sprintf("call_%d", number),
			"name":      m.tool,
			"arguments": encoded(m.args),
		}
		if !m.own {
			item["namespace"] = strings.TrimSuffix(name, "__"+m.tool)
		}
	}
	id := fmt.Sprintf("resp_%d", number)
	return []any{
		map[string]any{"type": "response.created", "response": map[string]any{"id": id}},
		map[string]any{"type": "response.output_item.done", "output_index": 0, "item": item},
		map[string]any{
			"type": "response.completed",
			"response": map[string]any{
				"id":    id,
				"usage": map[string]any{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
			},
		},
	}
}

var google = api{path: "GenerateContent", read: readGoogle, answer: answerGoogle}

func readGoogle(body map[string]any, server string) turn {
	t := turn{tools: map[string]string{}}
	for _, tool := range list(body["tools"]) {
		for _, f := range list(tool["functionDeclarations"]) {
			name := text(f["name"])
			t.names = append(t.names, name)
			if own, ok := strings.CutPrefix(name, "mcp_"+server+"_"); ok {
				t.tools[own] = encoded(f)
			}
		}
	}
	contents := list(body["contents"])
	if len(contents) > 0 {
		for _, part := range list(contents[len(contents)-1]["parts"]) {
			if response, ok := part["functionResponse"].(map[string]any); ok {
				t.result = flat(response["response"])
			}
		}
	}

	return t
}

func answerGoogle(_ int, name string, m move) []any {
	part := map[string]any{"text": m.text}
	if m.tool != "" {
		part = map[string]any{"functionCall": map[string]any{"name": name, "args": m.args}}
	}
	return []any{map[string]any{
		"candidates": []any{map[string]any{
			"content":      map[string]any{"role": "model", "parts": []any{part}},
			"finishReason": "STOP",
			"index":        0,
		}},
		"usageMetadata": map[string]any{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
	}}
}

func list(v any) (all []map[string]any) {
	items, _ := v.([]any)
	for _, item := range items {
		if object, ok := item.(map[string]any); ok {
			all = append(all, object)
		}
	}
	return all
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// flat is the text of a result, whatever form an agent gives it.
func flat(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		var all []string
		for _, item := range v {
			all = append(all, flat(item))
		}
		return strings.Join(all, "\n")
	case map[string]any:
		for _, key := range []string{"text", "output", "error"} {
			if s, ok := v[key].(string); ok {
				return s
			}
		}
	}
	return encoded(v)
}

func encoded(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}
