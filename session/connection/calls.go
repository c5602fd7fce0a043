package connection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/outputs"
	"deepwork/session/record"
	"deepwork/session/replies"
	"deepwork/session/store"
	"deepwork/session/workflow"
)

// call carries out a call of a connection. If it repeats the request_id of an earlier call, it returns that
// call's reply. do returns the reply and its session. args are the arguments that identify the call, without
// the request_id. finish updates a copy of the reply with what may have changed since; replayed reports
// whether the reply is a repetition.
func call[R any](ctx context.Context, c *Conn, tool string, requestID *string, args any,
	do func(who workflow.Caller) (*R, string, error), finish func(r *R, id string, replayed bool)) (*R, error) {
	if requestID != nil {
		if err := session.BlankRequestID(*requestID); err != nil {
			return nil, err
		}
	}

	if err := c.refused(); err != nil {
		return nil, err
	}
	who, err := c.caller(ctx, tool, requestID, args)
	if err != nil {
		return nil, err
	}
	r, id, replayed, err := once(ctx, c, who, do)
	if err != nil {
		return nil, err
	}
	reply := *r // r may be stored
	finish(&reply, id, replayed)
	return &reply, nil
}

// once carries out a call, or returns its stored reply.
func once[R any](
	ctx context.Context, c *Conn, who workflow.Caller, do func(workflow.Caller) (*R, string, error),
) (r *R, id string, replayed bool, err error) {
	if who.Call.RequestID == nil {
		r, id, err = do(who)
		return r, id, false, err
	}

	key := record.Request{Identity: who.Identity, Tool: who.Call.Tool, ID: *who.Call.RequestID}
	end, err := c.server.claimRequest(ctx, key.Key())
	if err != nil {
		return nil, "", false, err
	}
	defer end()

	stored := false
	defer func() {
		if stored && errors.Is(err, store.ErrUnavailable) { // whose text says that nothing was changed
			err = session.NotNow(codes.SessionUncertain,
				"This call was carried out, and its reply cannot be read: %v. Make the same call again with the same "+
					"request_id.", err).Because(err)
		}
	}()

	for range 2 {
		if id, err = c.server.Records().Find(ctx, key); err != nil {
			return nil, "", false, err
		}
		if id != "" {
			// The connection that made the call may be gone. The repeating caller continues with the session,
			// or with the one below if it has ended.
			if _, err = c.resume(ctx, id); err != nil {
				return nil, "", false, err
			}

			earlier, err := c.server.Replay(ctx, id, who)
			if err == nil {
				r, err = machine.ReplyOf[R](earlier)
			}
			return r, id, true, err
		}
		if r, id, err = do(who); !errors.Is(err, store.ErrRequested) {
			return r, id, false, err
		}
		stored = true // unconfirmed, by this process, or meanwhile by another server
	}
	return r, id, false, err
}

// claimRequest waits while a call with this key is in progress in this process, then claims the key. The
// caller calls end when its own call is done.
func (s *Server) claimRequest(ctx context.Context, k store.Key) (end func(), err error) {
	mine := make(chan struct{}) // closed by end
	for {
		other, busy := s.requests.LoadOrStore(k, mine)
		if !busy {
			return func() {
				s.requests.Delete(k)
				close(mine)
			}, nil
		}
		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the call with the same request_id: %w", ctx.Err())
		}
	}
}

// Finish reports a step as finished (seed 000, 001.4). A call that repeats the step_id and outputs of the
// last finished step, or its request_id, gets the same reply and changes nothing.
func (c *Conn) Finish(ctx context.Context, a workflow.FinishArgs) (*replies.Finish, error) {
	return c.report(ctx, a, workflow.FinishCall{})
}

// Collect repeats a finished_step that waited for a submission, and returns what it would return now, without
// beginning anything. If nobody reads the reply, a verdict that refuses the outputs is kept for the next call.
func (c *Conn) Collect(
	ctx context.Context, g replies.Going, a workflow.FinishArgs, read bool,
) (*replies.Finish, error) {
	a.SessionID, a.StepID, a.Item = &g.SessionID, &g.StepID, nil
	return c.report(ctx, a, workflow.FinishCall{Waited: g.Submission, Repeats: true, Untold: !read})
}

// report carries out a finished_step as made says.
func (c *Conn) report(
	ctx context.Context, a workflow.FinishArgs, made workflow.FinishCall,
) (*replies.Finish, error) {
	made.Arrived = time.Now()
	a.Outputs = jsontext.Unquote(a.Outputs)
	if a.Notes == nil {
		a.Notes = a.WorkSummary
	}
	a.WorkSummary = nil
	if a.Item != nil {
		step, i, named := "", 0, false
		if a.StepID != nil {
			step, i, named = job.SplitItem(*a.StepID)
		}
		if a.StepID == nil || named && i != *a.Item {
			return nil, session.Wrong(codes.InvalidArgument,
				"item is %d, and step_id does not name a step of that item. Give both, such as step_id \"port\" and "+
					"item 3, or step_id alone, as \"port[3]\".", *a.Item)
		}
		a.StepID = new(job.Item(step, *a.Item))
	}
	request := a.RequestID
	a.RequestID = nil

	var row store.Session
	return call(ctx, c, machine.ToolFinish, request, &a, func(who workflow.Caller) (*replies.Finish, string, error) {
		made.Caller = who
		f, err := c.finish(ctx, made, a)
		if err != nil {
			return nil, "", err
		}
		row = f.Row
		c.push(f.Began)
		return f.Reply, row.ID, nil
	}, func(r *replies.Finish, id string, replayed bool) {
		c.follow(ctx, r.BeginStep, id)
		r.BeginStep = c.here(r.BeginStep)
		if r.Status == replies.WorkflowComplete {
			r.ResumedWorkflow, r.ResumedStep = c.resumed(ctx, id)
		}
		if replayed {
			r.Stack = c.stackOf(ctx, id)
		} else {
			r.Stack = c.stackAfter(ctx, row)
		}
	})
}

// finish finds the session of a finished_step and sends it the call.
func (c *Conn) finish(
	ctx context.Context, made workflow.FinishCall, a workflow.FinishArgs,
) (*workflow.Finished, error) {
	how, err := c.server.Reviewing(ctx)
	if err != nil {
		return nil, err
	}

	made.Call.Named = a.SessionID != nil
	if id, step := askedAbout(ctx); id != "" && a.SessionID == nil && (a.StepID == nil || *a.StepID == step) {
		a.SessionID, a.StepID = &id, &step
	}
	made.Args = a
	made.Within = session.ReplyWithin(ctx, how.ReplyWithin)
	made.Progress = progressOf(ctx)
	made.Moved = c.moved

	finish := func(id string) (*workflow.Finished, error) {
		made := made
		f, err := c.server.Finish(ctx, id, made)
		until := made.Arrived.Add(made.Within)
		if made.Within < how.ReplyWithin { // a client that is asked in the reply, not while the call waits
			until = time.Now().Add(c.server.AskTimeout)
		}
		if err != nil {
			return f, err
		}
		settled, notice := c.ask(ctx, made.Caller, f, until)
		if settled {
			made.Waited, made.Step = f.Reply.Going.Submission, f.Reply.Going.StepID
			f, err = c.server.Finish(ctx, id, made)
		}
		if err == nil && notice != "" {
			f = noted(f, notice)
		}
		return f, err
	}

	same := func(have outputs.Map) bool { return outputs.Same(a.Outputs, have) }
	if a.SessionID == nil && a.StepID != nil {
		// The session that this step ended has left the stack, or others are on top of it. The caller may
		// have lost the reply and repeated the call.
		if id := c.lastEnded(ctx, *a.StepID, true, same); id != "" {
			f, err := finish(id)
			if err == nil && !f.Recorded {
				if stack := c.stackOf(ctx, ""); len(stack) > 0 {
					top := stack[len(stack)-1]
					f = noted(f, fmt.Sprintf(
						"This repeats the reply to the call that finished step '%s' of session '%s'. If you meant "+
							"session '%s' (%s), which is at step '%s', pass its session_id.",
						*a.StepID, id, top.SessionID, top.Workflow, top.Step))
				}
			}
			return f, err
		}
	}
	f, id, err := about(ctx, c, a.SessionID, finish)
	switch {
	case err == nil || a.StepID == nil:
		return f, err
	case id != "":
		return f, c.pointToSession(ctx, id, a, err)
	case session.CodeOf(err) == codes.NoActiveSession:
		if id := c.lastEnded(ctx, *a.StepID, false, same); id != "" {
			return finish(id)
		}
	}

	return nil, err
}

// noted returns a copy of a result whose reply has another notice: both may be stored.
func noted(f *workflow.Finished, notice string) *workflow.Finished {
	with, reply := *f, *f.Reply
	reply.Notice = replies.Notice(reply.Notice, notice)
	with.Reply = &reply
	return &with
}

// about carries out a call for the session that it names, or for the only one. If another caller ends that
// session meanwhile, it uses the only one that is left. id is "" if no session was found.
func about[R any](
	ctx context.Context, c *Conn, named *string, do func(id string) (R, error),
) (r R, id string, err error) {
	if id, err = c.target(ctx, named); err != nil {
		return r, "", err
	}
	r, err = do(id)
	if named != nil || c.stateless || session.CodeOf(err) != codes.SessionEnded || !c.holds(id) {
		return r, id, err
	}
	if _, rerr := c.rows(ctx); rerr != nil || c.holds(id) {
		return r, id, err
	}
	if id, err = c.only(ctx); err == nil {
		r, err = do(id)
	}
	return r, id, err
}

// askedElsewhere is the maximum number of sessions whose concurrent groups are searched for a step.
const askedElsewhere = 20

// pointToSession returns err. If err refuses a step that is current in another session of the stack, it
// returns an error with the call to make for that session, or for each of several: the caller knows which one
// it means.
func (c *Conn) pointToSession(ctx context.Context, id string, a workflow.FinishArgs, err error) error {
	refused, _ := errors.AsType[*session.Error](err)
	if refused == nil || !slices.Contains(
		[]string{codes.StepNotCurrent, codes.UnknownStep, codes.StepFinished, codes.GroupMovedOn}, refused.Code) {
		return err
	}

	stack := c.stackOf(ctx, id)
	asked := 0
	var current []replies.StackEntry
	for _, other := range slices.Backward(stack) {
		if other.SessionID == id || other.Step != *a.StepID && asked == askedElsewhere {
			continue
		}
		asked = min(asked+1, askedElsewhere)
		pending, perr := c.server.Pending(ctx, other.SessionID)
		if perr == nil && slices.Contains(pending, *a.StepID) {
			current = append(current, other)
		}
	}
	if len(current) == 0 {
		return err
	}

	if a.SessionID == nil || refused.Code == codes.UnknownStep { // otherwise the caller chose the session
		if at := slices.IndexFunc(stack, func(e replies.StackEntry) bool { return e.SessionID == id }); at >= 0 {
			refused.Message = session.Say("Step '%s' is not current in session '%s' (%s), which is at step '%s'.",
				*a.StepID, id, stack[at].Workflow, stack[at].Step)
			refused.Steps = nil
		}
	}
	if len(current) > 1 {
		var all []string
		for _, other := range current {
			all = append(all, fmt.Sprintf("'%s' (%s)", other.SessionID, other.Workflow))
		}
		return refused.
			Tell("It is current in the sessions %s. Call again with the session_id of the one whose step you have "+
				"done.", strings.Join(all, " and ")).With("current_in", current)
	}

	given := a.Outputs
	if len(given) > 1000 {
		given = json.RawMessage(`{…the same…}`)
	}
	other := current[0]
	return refused.
		Tell(`It is current in session '%s' (%s). To finish it there, call finished_step with {"session_id": "%s", `+
			`"step_id": "%s", "outputs": %s}.`, other.SessionID, other.Workflow, other.SessionID, *a.StepID, given).
		With("current_in", other)
}

// Abort ends a session and takes it off the stack (seed 000, 001.6).
func (c *Conn) Abort(ctx context.Context, a workflow.AbortArgs) (*replies.Abort, error) {
	request := a.RequestID
	a.RequestID = nil
	return call(ctx, c, machine.ToolAbort, request, &a, func(who workflow.Caller) (*replies.Abort, string, error) {
		return move(ctx, c, a.SessionID, func(id string) (*replies.Abort, error) {
			return c.server.Abort(ctx, id, who, a.Explanation)
		})
	}, func(r *replies.Abort, id string, _ bool) {
		r.ResumedWorkflow, r.ResumedStep = c.resumed(ctx, id)
		r.Stack = c.stackOf(ctx, id)
	})
}

// move carries out a transition of the session that a call names, or of the only one.
func move[R any](ctx context.Context, c *Conn, named *string, do func(id string) (*R, error)) (*R, string, error) {
	r, id, err := about(ctx, c, named, do)
	if err != nil {
		return nil, "", err
	}
	c.moved(nil)
	return r, id, nil
}

// Step reads the current step without moving; it also resumes a session (DESIGN "Stacks").
func (c *Conn) Step(ctx context.Context, args workflow.StepArgs) (*replies.Step, error) {
	if err := c.refused(); err != nil {
		return nil, err
	}
	r, id, err := about(ctx, c, args.SessionID, func(id string) (*replies.Step, error) {
		return c.server.GetStep(ctx, id, workflow.Caller{Identity: c.identity}, args)
	})
	if err != nil {
		return nil, err
	}
	r.BeginStep, r.Stack = c.here(r.BeginStep), c.stackOf(ctx, id)
	return r, nil
}

// follow pushes the session of the step that has begun onto the stack if it is another one than the call was
// about: the step is a workflow. It does so also if the call is repeated.
func (c *Conn) follow(ctx context.Context, info *replies.StepInfo, id string) {
	if info != nil && info.SessionID != id && !c.holds(info.SessionID) {
		_, _ = c.resume(ctx, info.SessionID) // on failure the next call names it
	}
}

// here returns a copy of a step's description with the folder in which its agent works. info may be nil.
func (c *Conn) here(info *replies.StepInfo) *replies.StepInfo {
	if info == nil {
		return nil
	}
	here := *info
	here.ProjectRoot = filepath.Join(c.server.Root, info.ProjectRoot)
	return &here
}

// GoTo goes back to an earlier step, or restarts the current one. The progress of that step and of all later
// ones moves to the session's history; files stay. The siblings of a member of a concurrent group stay as
// they are, unless All is set.
func (c *Conn) GoTo(ctx context.Context, a workflow.GoToArgs) (*replies.GoTo, error) {
	request := a.RequestID
	a.RequestID = nil
	return call(ctx, c, machine.ToolGoTo, request, &a, func(who workflow.Caller) (*replies.GoTo, string, error) {
		return move(ctx, c, a.SessionID, func(id string) (*replies.GoTo, error) {
			return c.server.GoTo(ctx, id, who, a.StepID, a.All)
		})
	}, func(r *replies.GoTo, id string, _ bool) {
		c.follow(ctx, r.BeginStep, id)
		r.BeginStep, r.Stack = c.here(r.BeginStep), c.stackOf(ctx, id)
	})
}

// CancelReview is like Engine.CancelReview, for callers that know only the connection.
func (c *Conn) CancelReview(ctx context.Context, g replies.Going) error {
	return c.server.CancelReview(ctx, g)
}
