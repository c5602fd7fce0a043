// Package tasks is MCP's extension for tasks (io.modelcontextprotocol/tasks, protocol 2026-07-28). If a call's work
// continues after some seconds, a client that declares the extension gets a task instead of the reply. It polls the
// task, and finally finds the reply there, even if this server was killed, and at any server of the store.
//
// A task is a row, and nothing runs for it: the engines do the work as for every call, and a look at a task repeats the
// call without waiting. To change the package, know these:
//   - store.LongCall: the row;
//   - work: what a task is about, as the row has it, and how it is looked at and cancelled;
//   - Set: the tasks of a server, as tool.Tasks and as the methods tasks/get, tasks/update and tasks/cancel;
//   - Sweep: looks at the tasks that nobody asks for, so that they end, too.
package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/wait"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/codes"
	"deepwork/session/remote"
	"deepwork/session/store"
	"deepwork/transport/tool"
)

// Extension is the name with which clients and servers declare the extension.
const Extension = "io.modelcontextprotocol/tasks"

// taskDelay is how long a call may take before its client gets a task.
const taskDelay = 3 * time.Second

// A Set is the tasks of one server.
type Set struct {
	Tools   *tool.Set
	Calls   store.LongCalls
	Connect func(identity string) tool.WorkflowCaller // without an MCP connection
	Runs    func() *remote.Engine                     // of workflows at other systems; nil if there are none
	Agents  *attempt.Engine                           // nil without the task board
	// limit of calls and tasks together for callers other than the user; 0 means none
	Quota  func() int
	Here   string // names the machine and the folder of the server's sessions
	Logger *slog.Logger

	sweeping sync.Mutex // held by Sweep
}

// A state is a task as clients see it: Task of the extension's schema, with the fields of each status.
type state struct {
	TaskID        string              `json:"taskId"`
	Status        string              `json:"status"` // working, input_required, completed or cancelled
	StatusMessage string              `json:"statusMessage,omitempty"`
	CreatedAt     string              `json:"createdAt"`
	LastUpdatedAt string              `json:"lastUpdatedAt"`
	TTLMS         *int64              `json:"ttlMs"` // from its creation; null while it is working
	PollMS        int64               `json:"pollIntervalMs,omitempty"`
	InputRequests mcp.InputRequestMap `json:"inputRequests,omitempty"`
	Result        json.RawMessage     `json:"result,omitempty"` // of the call
}

// A result answers a call, or a method of tasks.
type result struct {
	mcp.ResultBase
	ResultType string `json:"resultType"` // task or complete
	*state
}

// Declared reports whether the client of a request takes tasks: it says so in each (Capability Negotiation).
func Declared(req mcp.Request) bool {
	r, ok := req.(interface {
		ClientCapabilities() *mcp.ClientCapabilities
		ProtocolVersion() string
	})
	if !ok || r.ProtocolVersion() < tool.Newest {
		return false
	}
	can := r.ClientCapabilities()
	return can != nil && can.Extensions[Extension] != nil
}

// Admit implements tool.Tasks.
func (s *Set) Admit(ctx context.Context, c *tool.Caller, req *mcp.CallToolRequest) *session.Error {
	// the user's agents have no quota
	if looking(ctx) || c.Owner || c.Identity == session.LocalIdentity || !Declared(req) {
		return nil
	}

	most := s.Quota()
	full := func() (n int, is bool) {
		n, err := s.Calls.Count(ctx, c.Identity)
		return n, err == nil && most > 0 && n+s.Tools.InFlight.Of(c.Identity) > most
	}
	if _, ok := full(); !ok {
		return nil
	}

	s.Sweep(ctx, c.Identity, time.Now()) // the work of some may have ended
	n, ok := full()
	if !ok {
		return nil
	}
	return session.NotNow(codes.TooManyTasks,
		"%s has %d tasks that are working, and with the calls in flight no more than %d are allowed (http.quotas): "+
			"nothing was done. Call again when one has ended, or cancel one.", c.Identity, n,
		most).Wait(5 * time.Second)
}

// Within implements tool.Tasks.
func (s *Set) Within(ctx context.Context, req *mcp.CallToolRequest) context.Context {
	// Decoding what a client can do takes longer than the rest, and most declare no extension.
	said, given := req.Params.Meta[mcp.MetaKeyClientCapabilities].(map[string]any)
	if looking(ctx) || given && said["extensions"] == nil || !Declared(req) {
		return ctx
	}
	return session.WithReplyWithin(ctx, taskDelay)
}

// Instead implements tool.Tasks.
func (s *Set) Instead(ctx context.Context, c *tool.Caller, req *mcp.CallToolRequest, reply any) mcp.Result {
	if looking(ctx) {
		return nil
	}

	w := workOf(s.Here, req.Params, reply)
	// that looks at one
	if w == nil || !Declared(req) ||
		w.Execution != "" && s.Tools.Has(req.Params.Name) && req.Params.Name != "call_workflow_tool" {
		return nil
	}
	encoded, err := json.Marshal(w)
	if err == nil {
		var call *store.LongCall
		call, err = s.Calls.Add(ctx, &store.LongCall{
			ID:        uuid.NewString(),
			Key:       w.key(),
			Identity:  c.Identity,
			Tool:      req.Params.Name,
			Work:      encoded,
			Status:    store.CallWorking,
			CreatedAt: session.Clock(),
		})
		if err == nil {
			return &result{ResultType: "task", state: describe(call, w.message(reply))}
		}
	}

	s.Logger.WarnContext(ctx, "a task could not be stored, so the call is answered without one", "tool",
		req.Params.Name, "error", err)
	return nil
}

// describe returns a task as its row has it.
func describe(c *store.LongCall, message string) *state {
	t := &state{
		TaskID:        c.ID,
		Status:        c.Status,
		StatusMessage: jsontext.Clip(message, 1000),
		CreatedAt:     task.FormatTime(c.CreatedAt),
		LastUpdatedAt: task.FormatTime(c.CreatedAt),
		Result:        c.Result,
	}

	if c.EndedAt == nil {
		t.PollMS = min(max(time.Since(c.CreatedAt)/10, time.Second), 30*time.Second).Milliseconds()
		return t
	}
	t.LastUpdatedAt = task.FormatTime(*c.EndedAt)
	t.TTLMS = new((c.EndedAt.Sub(c.CreatedAt) + store.LongCallKeptFor).Milliseconds())
	return t
}

type lookingKey struct{} // of whether a client asks, not Sweep

// looking reports whether a call is made to look at a task.
func looking(ctx context.Context) bool { return ctx.Value(lookingKey{}) != nil }

// look returns the current state of a task, and ends the task if its work has ended. answers are the client's user's
// replies to the task's questions.
func (s *Set) look(ctx context.Context, c *tool.Caller, ss *mcp.ServerSession, p *params) (*state, error) {
	call, w, err := s.find(ctx, c, p.TaskID)
	if err != nil || call.EndedAt != nil {
		return describeEnded(call), err
	}

	var reply any
	var refusal error
	req := &mcp.CallToolRequest{
		Session: ss,
		Params:  &mcp.CallToolParamsRaw{Meta: p.Meta, Name: call.Tool, InputResponses: p.InputResponses},
	}
	ctx = session.WithReplyWithin(context.WithValue(ctx, lookingKey{}, ss != nil), time.Millisecond)
	res, err := s.Tools.Serve(ctx, c, req, s.Tools.LookLog(call.Tool, w.goesOn), func(*tool.CallLog) *session.Error {
		return nil
	},
		func(ctx context.Context) (any, error) {
			reply, refusal = w.look(ctx, s, c, call)
			return reply, refusal
		})
	switch {
	case err != nil:
		return nil, err
	case res.InputRequests != nil:
		t := describe(call, w.message(reply))
		t.Status, t.InputRequests = "input_required", res.InputRequests
		return t, nil
	case err == nil && !res.IsError && w.goesOn(reply):
		return describe(call, w.message(reply)), nil
	case res.IsError && (tool.IsTemporary(res) || s.cannotSee(w, call)):
		return describe(call, "it cannot be looked at now, or not by this server"), nil
	}

	status, encoded := store.CallCompleted, json.RawMessage(nil)
	if cancelled(reply, refusal) {
		status = store.CallCancelled
	} else if encoded, err = json.Marshal(res); err != nil {
		return nil, err
	}
	if call, err = s.Calls.End(ctx, c.Identity, call.ID, status, encoded); err != nil {
		return nil, internal(err)
	}
	return describe(call, ""), nil
}

// cannotSee reports whether the outputs of a task are in another place, where an error here may not occur. After
// placeGone the place counts as gone, and the error stands.
func (s *Set) cannotSee(w *work, call *store.LongCall) bool {
	return w.Step != nil && w.Step.Here != s.Here && time.Since(call.CreatedAt) < placeGone
}

const placeGone = 7 * 24 * time.Hour

// sweepEvery is how often a server looks at tasks that nobody may poll any more, and sweepFirst how long after its
// start it begins: the servers of a stdio client may all be short-lived.
const (
	sweepEvery = 10 * time.Minute
	sweepFirst = time.Minute
)

// Follow sweeps at intervals until ctx ends.
func (s *Set) Follow(ctx context.Context) {
	for pause := sweepFirst; wait.For(ctx, pause) == nil; pause = sweepEvery {
		s.Sweep(ctx, "", time.Now().Add(-sweepEvery))
	}
}

// Sweep looks at the tasks that an identity, or with "" anyone, made before a time, so that tasks whose work has ended
// end although nobody polls them. It does nothing while another sweep runs.
func (s *Set) Sweep(ctx context.Context, identity string, before time.Time) {
	if !s.sweeping.TryLock() {
		return
	}
	defer s.sweeping.Unlock()

	for after := ""; ctx.Err() == nil; {
		page, err := s.Calls.Working(ctx, identity, after, 100)
		if len(page) == 0 {
			s.noteSweep(ctx, err)
			return
		}
		for _, call := range page {
			after = call.ID
			if !call.CreatedAt.Before(before) {
				continue
			}

			c := &tool.Caller{
				Caller:    session.Caller{Identity: call.Identity, Owner: true},
				Workflows: s.Connect(call.Identity),
			}
			_, err := s.look(ctx, c, nil, &params{TaskID: call.ID})

			c.Workflows.Close()
			s.noteSweep(ctx, err)
		}
	}
}

func (s *Set) noteSweep(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		s.Logger.LogAttrs(ctx, slog.LevelDebug, "a task that nobody asks for was not looked at", slog.Any("error", err))
	}
}

func describeEnded(call *store.LongCall) *state {
	if call == nil {
		return nil
	}
	return describe(call, "")
}

// find returns a task of a caller and what it is about.
func (s *Set) find(ctx context.Context, c *tool.Caller, id string) (*store.LongCall, *work, error) {
	call, err := s.Calls.LongCall(ctx, c.Identity, id)
	if errors.Is(err, task.ErrNotFound) {
		return nil, nil, &jsonrpc.Error{
			Code: jsonrpc.CodeInvalidParams,
			Message: fmt.Sprintf("there is no task %q: it was never made for this caller, or ended more than %v ago",
				jsontext.Clip(id, 100), store.LongCallKeptFor),
		}
	}
	if err != nil {
		return nil, nil, internal(err)
	}

	w := new(work)
	if json.Unmarshal(call.Work, w) != nil {
		w = new(work) // about nothing, so that a look ends it
	}
	return call, w, nil
}

func internal(err error) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: store.Refused(err).Error()}
}

// params are those of all methods of tasks.
type params struct {
	mcp.ParamsBase
	TaskID         string               `json:"taskId"`
	InputResponses mcp.InputResponseMap `json:"inputResponses,omitempty"` // of tasks/update
}

// Register adds the methods to a server.
func (s *Set) Register(server *mcp.Server) error {
	for method, do := range map[string]func(context.Context, *tool.Caller, *mcp.ServerSession, *params) (*state, error){
		"tasks/get":    s.get,
		"tasks/update": s.update,
		"tasks/cancel": s.cancel,
	} {
		err := mcp.AddReceivingCustomMethod(server, method,
			func(ctx context.Context, ss *mcp.ServerSession, p *params) (*result, error) {
				t, err := do(ctx, ctx.Value(callerKey{}).(*tool.Caller), ss, p) // Receive has set it
				if err != nil {
					return nil, err
				}
				return &result{ResultType: "complete", state: t}, nil
			})
		if err != nil {
			return err
		}
	}

	return nil
}

type callerKey struct{}

// Is reports whether a method is one of tasks.
func Is(method string) bool { return strings.HasPrefix(method, "tasks/") }

// Receive returns the context in which a method of tasks is carried out for a caller. It refuses a request without
// params and a client that does not declare the extension.
func Receive(ctx context.Context, c *tool.Caller, req mcp.Request) (context.Context, error) {
	p, _ := req.GetParams().(*params)
	if p == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "params with a taskId are missing"}
	}
	if !Declared(req) {
		data, _ := json.Marshal(
			map[string]any{"requiredCapabilities": map[string]any{"extensions": map[string]any{Extension: struct{}{}}}})
		return nil, &jsonrpc.Error{
			Code:    mcp.CodeMissingRequiredClientCapabilities,
			Message: "Missing required client capability: declare " + Extension + " in _meta of this request",
			Data:    data,
		}
	}

	return context.WithValue(ctx, callerKey{}, c), nil
}

// get looks at a task. Answers are given with tasks/update alone.
func (s *Set) get(ctx context.Context, c *tool.Caller, ss *mcp.ServerSession, p *params) (*state, error) {
	return s.look(ctx, c, ss, &params{ParamsBase: p.ParamsBase, TaskID: p.TaskID})
}

// update gives a task the answers of the client's user. Answers to no question are ignored, as the extension demands.
func (s *Set) update(ctx context.Context, c *tool.Caller, ss *mcp.ServerSession, p *params) (*state, error) {
	t, err := s.look(ctx, c, ss, p)
	if err == nil && t.Status == store.CallWorking {
		t, err = s.get(ctx, c, ss, p) // what is asked still
	}
	if err != nil {
		return nil, err
	}

	for key, given := range p.InputResponses {
		if r, _ := given.(*mcp.ElicitResult); t.InputRequests[key] != nil && tool.AnswerOf(r) != nil {
			return nil,
				internal(errors.New("the answer was not recorded, and the log has the reason: if the outputs have " +
					"changed, cancel the task and have them handed in again, else send the answer again"))
		}
	}

	return nil, nil
}

// cancel cancels the work of a task as the tool for that would, with the same rights.
func (s *Set) cancel(ctx context.Context, c *tool.Caller, ss *mcp.ServerSession, p *params) (*state, error) {
	if t, err := s.get(ctx, c, ss, p); err != nil || t.Status == store.CallCompleted ||
		t.Status == store.CallCancelled {
		return nil, err // it is over, and stays so
	}

	call, w, err := s.find(ctx, c, p.TaskID)
	if err != nil {
		return nil, err
	}
	if err := w.cancel(ctx, s, c); err != nil {
		if code := session.CodeOf(err); code == codes.StillStopping || code == codes.NotAnswered {
			return nil, nil // it is being cancelled, and the task ends with it
		}

		if errors.Is(err, store.ErrUnavailable) {
			return nil, internal(err)
		}
		return nil, &jsonrpc.Error{
			Code:    jsonrpc.CodeInvalidParams,
			Message: fmt.Sprintf("task %s was not cancelled: %v", call.ID, store.Refused(err)),
		}
	}
	_, err = s.get(ctx, c, ss, p) // ends the task, perhaps by what has ended meanwhile
	return nil, err
}
