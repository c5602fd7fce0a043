package remote

import (
	"fmt"
	"strings"

	"deepwork/session"
	"deepwork/session/codes"
)

// resultInError limits how many bytes of an incomplete run's result are in the error: a whole result would
// crowd out the rest.
const resultInError = 4 << 10

// seeFirst is the advice if it is unknown whether a workflow was carried out.
const seeFirst = "See at its source whether it was done before you call again"

// answer returns what a caller that waited for the end gets: the run, or an error that holds it (seed 003,
// 2.3 and 2.4). setting is the name of its timeout in the config.
func answer(v *view, setting string) (*Run, error) {
	x := v.Run
	var code, what, next string
	switch x.State {
	case Running, Completed:
		return &x, nil
	case Failed:
		code, what = codes.WorkflowFailed, "failed"
		next = "Correct that and call again"
	case Cancelled:
		code, what = codes.WorkflowCancelled, "was cancelled"
		next = "Call again if it is still needed"
	case TimedOut:
		code, what = codes.WorkflowTimedOut, "timed out"
		next = fmt.Sprintf("If it needs more time, raise %s in .deepwork/config.yml", setting)
	default:
		code, what = codes.WorkflowUnknown, "has an unknown state"
		next = seeFirst
	}

	why, unsure := "no reason is known", false
	if x.Error != nil {
		why, unsure = strings.CutSuffix(*x.Error, ". "+seeFirst)
	}
	if unsure && x.State == TimedOut {
		next += ". " + seeFirst
	} else if unsure {
		next = seeFirst
	}
	switch {
	case v.code == "":
	case x.State == Unknown:
		code = v.code
	case v.code == codes.SourceAway:
		code, next = v.code, "Call again when the source can be reached"
	default:
		code, next = v.code, "Call again when the server is able to run it"
	}
	if len(x.Result) > resultInError {
		x.Result = nil // workflow_status returns it
	}
	return nil, refusal(&x, code, "Workflow '%s' of source '%s' %s: %s. %s. (execution_id %s)",
		x.WorkflowName, x.Source, what, why, next, x.ExecutionID)
}

// refusal returns a StateError that holds a run.
func refusal(x *Run, code, format string, args ...any) *session.Error {
	return session.NotNow(code, format, args...).With("run", x).With("execution_id", x.ExecutionID)
}

// closed returns the error for a caller whose run continues while the server ends.
func closed(v *view) error {
	x := v.Run
	return refusal(&x, codes.ShuttingDown,
		"The server is shutting down. Workflow '%s' continues at its source '%s'.", x.WorkflowName, x.Source).
		Next("see its state when the server is back", "workflow_status", "execution_id", x.ExecutionID).
		Worded("When the server is back, call workflow_status with execution_id '%s'; do not start it again.",
			x.ExecutionID)
}
