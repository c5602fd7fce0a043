package workflow

import (
	"time"

	"deepwork/catalog/config"
	"deepwork/gate"
)

// Reviewing says how steps are reviewed.
type Reviewing struct {
	External    bool          // by the gate's reviewer; else by the agent itself
	MaxTries    int           // maximum number of failed external reviews (seed 000, 001.1.5)
	ReplyWithin time.Duration // how long a call waits for its review
	Refused     error         // why nothing can be reviewed, or nil
	Override    config.Override
	Reviewer    string // External and Refused said again, in the form of machine.Pinned; "" is the agent itself
	Pin         bool   // sessions keep the reviewer and the criteria that they began with
	// Earlier returns a reviewer of an earlier config, given in the form of machine.Pinned, or the reason why
	// it is not allowed or unable to run. nil means that no earlier reviewer can run.
	Earlier func(reviewer string) (*gate.Reviewer, error)

	use *gate.Reviewer // the pinned session's reviewer, replacing the configured one
}
