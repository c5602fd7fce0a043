package longwork

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// A model is Claude Code's scripted model: it makes the long call, waits for its result, and does what a good model
// does when a call is lost. It reports what it sees.
type model struct {
	t    *trial
	seen chan<- sight

	mu      sync.Mutex // one answer at a time
	todo    []call     // what comes before the long call
	last    call       // that of the last answer; its name is "" if that was words
	long    bool       // the long call was made
	over    bool       // its result is known
	session string     // of the workflow
	turn    int
}

func newModel(t *trial, seen chan<- sight) *model {
	m := &model{t: t, seen: seen}
	start, _ := t.calls()
	switch {
	case start != nil:
		m.todo = []call{{"start_workflow", start}}
	case t.kind == "run":
		m.todo = []call{find("run_workflow", "get_run")}
	default:
		m.todo = []call{find("call_workflow_tool", "workflow_status", "refresh_workflow_tools"),
			{"refresh_workflow_tools", nil}}
	}
	return m
}

// find makes Claude Code load the schemas of tools: it shows its model few from the beginning.
func find(tools ...string) call {
	return call{"ToolSearch", map[string]any{"query": "select:" + prefix + strings.Join(tools, ","+prefix)}}
}

const prefix = "mcp__deepwork__"

// A told is the last message of Claude Code to its model: the result of a call, or the outcome of a task.
type told struct {
	text   string
	failed bool
}

var (
	taskMade   = regexp.MustCompile(`started server-side task ([0-9a-f-]{36})`)
	taskEnded  = regexp.MustCompile(`(?s)<task-notification>.*<status>(\w+)</status>.*<result>\s*(.*?)\s*</result>`)
	idPattern  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)
	runPattern = regexp.MustCompile(`"run_id":"([0-9a-f-]{36})"`)
	sessionOf  = regexp.MustCompile(`"session_id":"([0-9a-f]{8})"`)
	stateOf    = regexp.MustCompile(`"state":"(\w+)"`)
)

const unknownExecution = "00000000-0000-4000-8000-000000000000"

// next returns the model's next call, or its words if that has no name.
func (m *model) next(ctx context.Context, now told) (call, string) {
	_, long := m.t.calls()
	last, isLong := m.last, m.last.Name == long.Name
	end := taskEnded.FindStringSubmatch(now.text)
	switch {
	case end != nil && (m.over || end[1] == "completed"): // a second end is one too many
		m.done(ctx, end[1], end[1] != "completed", end[2])
		return call{}, "It is done."
	case end != nil:
		return m.recover(ctx, end[2])
	case m.over:
		return call{}, "It was done."
	// the server is not connected yet
	case strings.Contains(now.text, "No such tool") || strings.Contains(now.text, "InputValidationError"):
		return m.later(ctx, last)
	case len(m.todo) > 0:
		c := m.todo[0]
		m.todo = m.todo[1:]
		return c, ""
	case last.Name == "start_workflow":
		id := sessionOf.FindStringSubmatch(now.text)
		if id == nil {
			return m.later(ctx, last)
		}
		m.session = id[1]
	case isLong && taskMade.MatchString(now.text):
		m.see(ctx, sight{At: "task", Text: taskMade.FindStringSubmatch(now.text)[1]})
		return call{}, "I wait for it."
	case isLong && strings.Contains(now.text, "moved to the background"): // by the client: there is no task
		return call{}, "I wait for it."
	case isLong && now.failed:
		return m.recover(ctx, now.text)
	// nobody knows that execution; the error lists those that are known
	case last.Name == "workflow_status" && now.failed:
		for _, id := range idPattern.FindAllString(now.text, -1) {
			if id != unknownExecution {
				return call{"workflow_status", map[string]any{"execution_id": id}}, ""
			}
		}
		if strings.Contains(now.text, unknownExecution) {
			return call{"refresh_workflow_tools", nil}, ""
		}
		return m.later(ctx, last)
	case isLong || last.Name == "get_run" || last.Name == "workflow_status":
		run, id := runPattern.FindStringSubmatch(now.text), idPattern.FindString(now.text)
		switch {
		case goesOn(now.text) && run != nil:
			return m.later(ctx, call{"get_run", map[string]any{"run_id": run[1]}})
		case goesOn(now.text):
			return m.later(ctx, call{"workflow_status", map[string]any{"execution_id": id}})
		case !strings.Contains(now.text, `"status":"needs_work"`):
			m.done(ctx, "completed", now.failed, now.text)
			return call{}, "It is done."
		}
	case last.Name == "" && m.long: // the person has the agent go on
		return m.retry(ctx)
	}
	if m.session != "" {
		long.Arguments["session_id"] = m.session
	}
	if !m.long {
		m.long = true
		m.see(ctx, sight{At: "calling", Text: m.session})
	}

	return long, ""
}

// recover returns what comes after a call whose result was lost.
func (m *model) recover(ctx context.Context, why string) (call, string) {
	m.see(ctx, sight{At: "lost", Text: why})
	if m.t.Over == "stdio" {
		return call{}, "The server is gone."
	}
	return m.retry(ctx)
}

// retry looks at what came of the call, which is repeated if nothing did.
func (m *model) retry(ctx context.Context) (call, string) {
	switch m.t.kind {
	case "remote":
		return m.later(ctx, call{"workflow_status", map[string]any{"execution_id": unknownExecution}})
	case "run":
		_, long := m.t.calls() // the same request_id
		return m.later(ctx, long)
	}
	return m.later(ctx, call{"get_step", map[string]any{"session_id": m.session}})
}

// later returns a call a second later.
func (m *model) later(ctx context.Context, c call) (call, string) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	return c, ""
}

// goesOn reports whether a reply is about work that continues.
func goesOn(text string) bool {
	s := stateOf.FindStringSubmatch(text)
	return s != nil && (s[1] == "running" || s[1] == "queued" || s[1] == "waiting")
}

// ended reports whether the result is known.
func (m *model) ended() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}

func (m *model) see(ctx context.Context, s sight) {
	select {
	case m.seen <- s:
	case <-ctx.Done():
	}
}

func (m *model) done(ctx context.Context, status string, failed bool, result string) {
	m.over = true
	m.see(ctx, sight{At: "done", Status: status, Failed: failed, Text: result, Structured: []byte(result)})
}

// ServeHTTP is the API of messages.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Tools    []struct{ Name string }
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/v1/messages") ||
		json.NewDecoder(r.Body).Decode(&body) != nil {
		http.NotFound(w, r)
		return
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	c, words := call{}, "A title"
	if len(body.Tools) > 3 {
		var now told
		for _, message := range body.Messages {
			if message.Role == "user" {
				now = toldIn(message.Content)
			}
		}
		c, words = m.next(r.Context(), now)
		m.last = c
		_ = note(filepath.Join(m.t.dir, "model.log"), time.Now().Format(time.TimeOnly),
			fmt.Sprintf("%t %.2000q: %s %v %s", now.failed, now.text, c.Name, c.Arguments, words))
	}
	m.turn++

	block := map[string]any{"type": "text", "text": ""}
	delta := map[string]any{"type": "text_delta", "text": words}
	reason := "end_turn"
	if c.Name != "" {
		name := c.Name
		if name != "ToolSearch" {
			name = prefix + name
		}

		args, _ := json.Marshal(c.Arguments) // maps of texts and numbers
		if c.Arguments == nil {
			args = []byte("{}")
		}
		block = map[string]any{
			"type":  "tool_use",
			"id":    fmt.Sprintf("toolu_%d", m.turn),
			"name":  name,
			"input": map[string]any{},
		}
		delta, reason = map[string]any{"type": "input_json_delta", "partial_json": string(args)}, "tool_use"
	}

	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range []map[string]any{
		{"type": "message_start", "message": map[string]any{
			"id":            fmt.Sprintf("msg_%d", m.turn),
			"type":          "message",
			"role":          "assistant",
			"model":         "scripted",
			"content":       []any{},
			"stop_reason":   nil,
			"stop_sequence": nil,
			"usage":         map[string]any{"input_tokens": 1, "output_tokens": 1},
		}},
		{"type": "content_block_start", "index": 0, "content_block": block},
		{"type": "content_block_delta", "index": 0, "delta": delta},
		{"type": "content_block_stop", "index": 0},
		{
			"type":  "message_delta",
			"delta": map[string]any{"stop_reason": reason, "stop_sequence": nil},
			"usage": map[string]any{"output_tokens": 1},
		},
		{"type": "message_stop"},
	} {
		text, _ := json.Marshal(event)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event["type"], text)
	}
}

// toldIn finds the text of a message of the user, or the result of a call in it.
func toldIn(content json.RawMessage) (t told) {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return told{text: text}
	}

	var blocks []struct {
		Type    string
		Text    string
		Failed  bool `json:"is_error"`
		Content json.RawMessage
	}
	_ = json.Unmarshal(content, &blocks) // else there is none
	for _, b := range blocks {
		switch b.Type {
		case "tool_result":
			inner := toldIn(b.Content)
			return told{inner.text, b.Failed}
		case "text":
			t.text += b.Text
		}
	}

	return t
}

// note adds a line to a log.
func note(log, what, more string) error {
	f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %s\n", what, more)
	return errors.Join(err, f.Close())
}
