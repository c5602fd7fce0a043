package source

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/catalog/jsontext"
)

// A source may answer a tool call with a task (MCP's extension io.modelcontextprotocol/tasks). Then the
// task's id is the source's id of the run, and methods of MCP replace the source's status and cancel tools.
// Only calls that run something, and the methods of tasks, declare the extension: elsewhere a task would be
// mistaken for an empty result.

// tasksExtension is declared by requests whose results may be tasks.
var tasksExtension = &mcp.ClientCapabilities{Extensions: map[string]any{"io.modelcontextprotocol/tasks": struct{}{}}}

// taskID is the prefix of a task's id in the place of a source's execution id.
const taskID = "task:"

// plainID is the prefix of a source's execution id that itself begins with taskID or plainID.
const plainID = "id:"

// The methods of tasks, which the SDK does not have.
const (
	getTask    = "tasks/get"
	cancelTask = "tasks/cancel"
)

// A sourceTask is a task in an answer of a source.
type sourceTask struct {
	TaskID        string          `json:"taskId"`
	Status        string          `json:"status"`
	StatusMessage string          `json:"statusMessage"`
	PollMS        float64         `json:"pollIntervalMs"`
	Result        json.RawMessage `json:"result"`
	Error         json.RawMessage `json:"error"`
	InputRequests map[string]struct {
		Params struct {
			Message string `json:"message"`
		} `json:"params"`
	} `json:"inputRequests"`
}

// tasksSince is the first MCP version in which a request declares what its client accepts.
const tasksSince = "2026-07-28"

// maxPoll is the longest pause that a source may ask for.
const maxPoll = 30 * time.Second

// answer returns what a task says about the run.
func (t *sourceTask) answer() (*Answer, error) {
	a := &Answer{
		ExecutionID: taskID + t.TaskID,
		State:       Running,
		Pause:       min(time.Duration(t.PollMS)*time.Millisecond, maxPoll),
	}
	if len(a.ExecutionID) > maxID {
		return nil, &RefusedError{
			Text: fmt.Sprintf("the id of its task has %d bytes, at most %d are allowed", len(t.TaskID),
				maxID-len(taskID)),
			Garbled: true,
		}
	}
	if message := jsontext.Clip(t.StatusMessage, maxMessageText); message != "" {
		a.Progress = &Progress{Message: message}
	}
	switch t.Status {
	case "input_required":
		var asks []string
		for _, r := range t.InputRequests {
			asks = append(asks, r.Params.Message)
		}
		slices.Sort(asks)
		words := jsontext.Clip(cmp.Or(strings.TrimSpace(strings.Join(asks, "\n")), t.StatusMessage, "it wants input"),
			maxMessageText)
		a.Progress = &Progress{Message: "it waits for an answer of a person: " + words, Asks: words}
	case "cancelled":
		a.State, a.Error = Cancelled, t.StatusMessage
	case "failed":
		a.State, a.Error = Failed, cmp.Or(errorText(t.Error), t.StatusMessage)
	case "completed":
		inner := &reply{}
		if err := json.Unmarshal(t.Result, inner); err != nil || inner.fault != "" || inner.task != nil {
			return nil, &RefusedError{Text: "the result of its task is not that of a tool", Garbled: true}
		}
		a.State, a.Output = Completed, shallow(inner.value())
		if inner.IsError {
			a.State, a.Error = Failed, inner.text()
		}
	}
	return a, nil
}

// task calls a method of tasks.
func (s *source) task(ctx context.Context, method, id string) (*Answer, error) {
	r, err := s.request(ctx, method, &callRequest{TaskID: strings.TrimPrefix(id, taskID), mayBeTask: true}, nil)
	if err != nil {
		return nil, err
	}
	if r.task != nil {
		return r.task.answer()
	}
	if method == cancelTask { // ask what has become of it
		return s.task(ctx, getTask, id)
	}
	return nil, &RefusedError{Text: "its answer to " + method + " has no task", Garbled: true}
}

// tools adds those tools of a server that the config names, as synchronous workflows.
func (s *source) tools(ctx context.Context, l *link, all *listing) error {
	return l.eachTool(ctx, func(tool *mcp.Tool) error {
		named := slices.ContainsFunc(s.def.Tools, func(glob string) bool {
			is, _ := path.Match(glob, tool.Name) // the config has checked the glob
			return is
		})
		if !named || slices.Contains(s.own(), tool.Name) {
			return nil
		}

		page, err := jsontext.Encode([]any{map[string]any{
			"id":            toolID + tool.Name,
			"name":          tool.Name,
			"category":      "tool",
			"executionType": "sync",
			"description": cmp.Or(strings.TrimSpace(tool.Description), tool.Title,
				"The tool "+tool.Name+" of "+s.def.Name),
			"inputSchema": tool.InputSchema,
		}})
		if err == nil {
			all.tool = tool.Name
			_, err = all.add(page)
			all.tool = ""
		}
		return err
	})
}

// own returns the tools with which a source manages its workflows.
func (s *source) own() []string {
	return []string{s.def.ListTool, s.def.ExecuteTool, s.def.StatusTool, s.def.CancelTool}
}

// toolID is the prefix of a tool's name in the place of a workflow's id. A workflow's own id may also begin
// with it.
const toolID = "tool:"
