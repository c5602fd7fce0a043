package execution

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"deepwork/session"

	"github.com/google/uuid"
)

// listed is how many runs an error names.
const listed = 20

// Status tells of a run by its id, or by its source's where that is unique among
// the runs of this identity, also after it ended, for a day, if it is among the
// last thousand (seed 003, 8.1 to 8.4). It does not wait for a source: what it
// tells was learned at the last poll, status_interval ago at most while all is
// well. A run that failed is an Execution, not an error. A run of another identity is
// not there.
//
// Errors: a text that is no UUID and no source's id is a ToolError,
// invalid_execution_id; an id that is not known is a StateError, unknown_run,
// that lists the newest, and says so if its record may be among what is damaged on
// disk; a source's id that several runs have is a ToolError, ambiguous_execution_id,
// that lists ours; an id that is not known here, while the runs of other servers
// cannot be read, is a StateError, runs_unread; and a run whose source cannot be
// asked is a StateError, status_not_supported, that holds the Execution under "run" (8.5).
func (e *Engine) Status(ctx context.Context, identity, executionID string) (*Execution, error) {
	e.sweep()
	e.config(ctx) // an edit of the limit takes effect now
	given := strings.TrimSpace(executionID)
	if given == "" {
		return nil, session.Wrong("invalid_execution_id", "execution_id is empty. Pass the execution_id of a run, as the call that started it gave it.").With("argument", "execution_id").With("value", "")
	}
	var id string
	if parsed, err := uuid.Parse(given); err == nil {
		id = parsed.String()
	}
	v, err := e.look(identity, given, id)
	var other *record // where it is not in this server's journal
	var around others
	if v == nil && err == nil {
		if around, err = e.others(ctx, given); err == nil {
			v, other, err = e.lookOnDisk(around.runs, identity, given, id)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case v == nil && id == "":
		return nil, session.Wrong("invalid_execution_id", "'%s' is not the execution_id of a run, which is a UUID, nor an id that a source gave to a run which is kept. %s%s", clip(given, 100), around.caution(), e.newest(identity)).
			With("argument", "execution_id").With("value", clip(given, 100))
	case v == nil:
		return nil, session.NotNow("unknown_run", "There is no run with execution_id '%s': it was never started here, or ended so long ago that it is no longer kept. %s%s", clip(given, 100), around.caution(), e.newest(identity)).
			With("argument", "execution_id").With("value", clip(given, 100))
	}
	run := v.Execution
	if !run.StatusSupported && run.EndedAt == nil {
		return nil, refusal(&run, "status_not_supported", "Asking for its status is not supported for run '%s': workflow '%s' was started at source '%s', which has no status tool, or gave the run no id. Look there for its end.",
			run.ExecutionID, run.WorkflowName, run.Source)
	}
	if v.over && v.stored && len(run.Result) == 0 {
		if run.Result, err = e.resultOf(run.ExecutionID, other); err != nil {
			e.log.Warn("the result of a run cannot be read", "execution_id", run.ExecutionID, "error", err)
			run.Error = new("its result can no longer be read from disk")
		}
	}
	return &run, nil
}

// look finds a run among those that are known here; nil: it is not.
func (e *Engine) look(identity, given, id string) (*view, error) {
	if n := e.kept.get(identity, id); n != nil {
		return n.view.Load(), nil
	}
	found := e.kept.find(identity, func(v *view) bool {
		return v.SourceExecutionID != nil && *v.SourceExecutionID == given
	})
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return found[0].view.Load(), nil
	}
	return nil, session.Wrong("ambiguous_execution_id", "%d runs have the id '%s' at their sources. Pass the execution_id of the one that you mean: %s.",
		len(found), clip(given, 100), describe(found))
}

// resultOf returns the result of a run from disk, of which other is the record
// where it is not in this server's journal.
func (e *Engine) resultOf(id string, other *record) (json.RawMessage, error) {
	if other == nil {
		r, err := e.store.last(id)
		if err != nil {
			return nil, err
		}
		if !r.over() {
			return nil, fmt.Errorf("looking for the end of run %s: its record cannot be read any more", id)
		}
		other = r
	}
	return e.store.result(other)
}

// others takes up what servers that are gone have left, and tells what others have,
// for one who asks for a run.
func (e *Engine) others(ctx context.Context, given string) (others, error) {
	o, err := e.takeUp(ctx)
	switch {
	case err == nil:
		return o, nil
	case ctx.Err() != nil:
		return o, fmt.Errorf("looking for run %q: %w", given, context.Cause(ctx))
	}
	return o, session.NotNow("runs_unread", "Whether there is a run with execution_id '%s' cannot be told now, because the runs of other servers cannot be read: %v. See to that and call again; do not start it again.", clip(given, 100), err).Because(err)
}

// caution says why a run may have been that is not found; "": no reason is known.
func (o *others) caution() string {
	if len(o.damaged) == 0 {
		return ""
	}
	return fmt.Sprintf("But records of runs cannot be read any more, and it may be one of them (run 'deepwork check'; %s in .deepwork/tmp/runs): see at its source whether it was carried out before you start it again. ",
		strings.Join(o.damaged[:min(len(o.damaged), listed)], ", "))
}

// lookOnDisk finds a run that another server left, or that one has: then its
// record comes with it.
func (e *Engine) lookOnDisk(others []*record, identity, given, id string) (*view, *record, error) {
	if v, err := e.look(identity, given, id); v != nil || err != nil {
		return v, nil, err
	}
	var found []*record
	for _, r := range others {
		if r.Identity != identity {
			continue
		}
		if r.ExecutionID == id {
			found = []*record{r}
			break
		}
		if r.SourceExecutionID != nil && *r.SourceExecutionID == given {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return nil, nil, nil
	case 1:
		// Its owner lives, and knows its progress, or is gone and this server could not
		// take it up; this is as far as it can be told.
		r := found[0]
		return &view{Execution: r.run(), over: r.over(), stored: r.ResultKept}, r, nil
	}
	ids := make([]string, min(len(found), listed))
	for i := range ids {
		ids[i] = found[i].ExecutionID
	}
	return nil, nil, session.Wrong("ambiguous_execution_id", "%d runs of other deepwork servers have the id '%s' at their sources. Pass the execution_id of the one that you mean: %s.",
		len(found), clip(given, 100), strings.Join(ids, ", "))
}

// newest tells which runs there are.
func (e *Engine) newest(identity string) string {
	found := e.kept.find(identity, func(*view) bool { return true })
	if len(found) == 0 {
		return "No run is kept: a call of a workflow's tool starts one, and its answer has the execution_id."
	}
	more := ""
	if len(found) > listed {
		more = fmt.Sprintf(", and %d older", len(found)-listed)
	}
	return fmt.Sprintf("Pass the id of one that is kept; the newest first: %s%s.", describe(found), more)
}

func describe(found []*entry) string {
	var b strings.Builder
	for i, n := range found[:min(len(found), listed)] {
		if i > 0 {
			b.WriteString(", ")
		}
		v := n.view.Load()
		fmt.Fprintf(&b, "%s (%s, %s)", n.id, clip(v.WorkflowName, 60), v.State)
	}
	return b.String()
}
