package remote

import (
	"context"
	"fmt"
	"strings"

	"deepwork/actor/xslices"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/store"

	"github.com/google/uuid"
)

// listed is the maximum number of runs that an error names.
const listed = 20

// Status returns a run of this identity by its id, or by its source's id if that is unique among them. An
// ended run is available for a day, if it is among the last thousand (seed 003, 8.1 to 8.4). It does not wait
// for a source: the status is that of the last poll, normally at most status_interval ago. A failed run is
// not an error. A run of another identity does not exist.
//
// Errors: a text that is neither a UUID nor a source's id is a ToolError, invalid_execution_id; an unknown id
// is a StateError, unknown_run, that lists the newest; a source's id that several have is a ToolError,
// ambiguous_execution_id, that lists ours; an unknown id while the store cannot be read is a StateError,
// runs_unread; and one whose source cannot be asked is a StateError, status_not_supported, that holds the Run
// under "run" (8.5).
func (e *Engine) Status(ctx context.Context, identity, executionID string) (*Run, error) {
	x, err := e.known(ctx, identity, executionID)
	if err == nil && !x.StatusSupported && x.EndedAt == nil {
		return nil, refusal(x, codes.StatusNotSupported,
			"Asking for its status is not supported for execution '%s': workflow '%s' was started at source '%s', "+
				"which has no status tool, or gave the execution no id. Look there for its end.",
			x.ExecutionID, x.WorkflowName, x.Source)
	}
	return x, err
}

// Outcome returns a run as Call does: an incomplete run is an error.
func (e *Engine) Outcome(ctx context.Context, identity, executionID string) (*Run, error) {
	x, err := e.Status(ctx, identity, executionID)
	if err != nil || x.EndedAt == nil {
		return x, err
	}
	return answer(&view{Run: *x, over: true}, "workflow_tools.execution_timeout")
}

// known is like Status but also returns a run whose source cannot be asked.
func (e *Engine) known(ctx context.Context, identity, executionID string) (*Run, error) {
	e.config(ctx) // a new limit takes effect now
	given := strings.TrimSpace(executionID)
	if given == "" {
		return nil, session.Wrong(codes.InvalidExecutionID,
			"execution_id is empty. Pass the execution_id that the call which started it returned.").With("argument",
			"execution_id").With("value", "")
	}

	var id string
	if parsed, err := uuid.Parse(given); err == nil {
		id = parsed.String()
	}
	found, err := e.find(ctx, identity, given, id)
	switch {
	case err != nil:
		return nil, err
	case len(found) > 1:
		return nil, session.Wrong(codes.AmbiguousExecutionID,
			"%d executions have the id '%s' at their sources. Pass one of these as execution_id: %s.",
			len(found), clip(given, 100), describe(found))
	case len(found) == 0 && id == "":
		return nil, session.Wrong(codes.InvalidExecutionID,
			"'%s' is not an execution_id: expected a UUID, or the id that a source gave to a known execution. %s",
			clip(given, 100), e.newest(ctx, identity)).
			With("argument", "execution_id").With("value", clip(given, 100))
	case len(found) == 0:
		return nil, session.NotNow(codes.UnknownRun,
			"There is no execution with execution_id '%s': it was never started here, or is not kept any more: the "+
				"newest %d that ended in the last day are. %s", clip(given, 100), store.RemoteRunsKept,
			e.newest(ctx, identity)).
			With("argument", "execution_id").With("value", clip(given, 100))
	}

	x := *found[0]
	return &x, nil
}

// find returns the runs of this identity that have an id: ours, a UUID, or their source's.
func (e *Engine) find(ctx context.Context, identity, given, id string) ([]*Run, error) {
	if n := e.get(id); n != nil && n.identity == identity {
		return []*Run{&n.view.Load().Run}, nil
	}

	if !e.stores.Database.Exists() {
		return nil, nil
	}
	stored, err := e.runs.Find(ctx, identity, id, given)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, fmt.Errorf("looking for execution %q: %w", given, context.Cause(ctx))
	default:
		return nil, session.NotNow(codes.RunsUnread,
			"Whether execution '%s' exists is not known, because the executions of other servers cannot be read: %v. "+
				"Correct that and call again; do not start it again.", clip(given, 100), err).Because(err)
	}

	var found []*Run
	for _, x := range stored {
		if err := e.work.Err(); err != nil && x.Lapsed {
			x.Error = new(clip(fmt.Sprintf("the server that followed it is gone, and this one cannot follow it, "+
				"because that could not be saved: %v. Its state at its source is not known. Correct that and call "+
				"again; do not start it again", err), maxWords))
		}
		found = append(found, e.latest(&x))
	}
	return found, nil
}

// latest returns a stored run for callers; what this process has in memory takes precedence.
func (e *Engine) latest(x *store.RemoteRun) *Run {
	if n := e.get(x.ID); n != nil {
		return &n.view.Load().Run
	}
	return new(shown(x))
}

// newest returns a hint that lists the newest runs.
func (e *Engine) newest(ctx context.Context, identity string) string {
	var all []store.RemoteRun
	total := 0
	if e.stores.Database.Exists() {
		all, total, _ = e.runs.Newest(ctx, identity, listed)
	}
	if total == 0 {
		return "No execution is known: a call of a workflow tool starts one and returns its execution_id."
	}
	found := xslices.Map(all, func(x store.RemoteRun) *Run { return new(shown(&x)) })
	more := ""
	if total > listed {
		more = fmt.Sprintf(", and %d older", total-listed)
	}
	return fmt.Sprintf("Known executions, newest first: %s%s.", describe(found), more)
}

func describe(found []*Run) string {
	all := xslices.Map(found[:min(len(found), listed)], func(x *Run) string {
		return fmt.Sprintf("%s (%s, %s)", x.ExecutionID, clip(x.WorkflowName, 60), x.State)
	})
	return strings.Join(all, ", ")
}

func clip(s string, limit int) string { return jsontext.Clip(s, limit) }

// Newest returns an identity's newest runs, at most limit, and how many it has. Runs that this process does
// not follow come without results.
func (e *Engine) Newest(ctx context.Context, identity string, limit int) (all []Run, total int, err error) {
	if !e.stores.Database.Exists() {
		return nil, 0, nil
	}

	stored, total, err := e.runs.Newest(ctx, identity, limit)
	if err != nil {
		return nil, 0, fmt.Errorf("listing the executions of %s: %w", identity, err)
	}
	return xslices.Map(stored, func(x store.RemoteRun) Run { return *e.latest(&x) }), total, nil
}

// Inspect checks db for runs that this program never writes. It changes nothing and may run
// at the same time as servers. If the database cannot be read, the inspection of the task board,
// which is also in it, reports that.
func Inspect(ctx context.Context, db store.Database) (r session.Report, err error) {
	if !db.Exists() {
		return r, nil
	}

	var n, going int
	if r.Findings, n, going, err = db.RemoteRuns().Inspect(ctx); err != nil {
		return r, ctx.Err()
	}
	if n > 0 {
		r.Counts = []session.Count{{N: n, What: "remote run", Of: fmt.Sprintf("%d going on", going)}}
	}
	return r, nil
}
