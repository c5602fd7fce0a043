package contain

import (
	"context"
	"errors"

	"deepwork/actor/process"
)

// Try runs a contained command within the limits of c, as process.Contain does. Its environment and folder are the
// plan's. What it has started ends with it.
func (p *Plan) Try(ctx context.Context, c process.Contained, refused func(Refusal)) (o process.Outcome, err error) {
	timed, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	// Both streams are one, of which the end is kept.
	spec := process.Spec{
		Command:     append([]string{"/bin/sh", "-c", `exec "$@" >&2`, "sh"}, c.Command...),
		StderrLimit: c.Output,
	}
	r, err := p.Run(timed, spec, refused)
	o = process.Outcome{Code: r.ExitCode, Signal: r.Signal, Surviving: r.Left, Output: r.Stderr}
	failed, ok := errors.AsType[*process.Error](err)
	if !ok {
		return o, err
	}
	o.After = failed.After
	switch failed.Kind {
	case process.Exit, process.Signal:
	case process.Timeout:
		o.TimedOut = true
	default:
		return o, err
	}
	return o, nil
}
