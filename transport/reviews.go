package transport

import (
	"context"
	"fmt"

	"deepwork/catalog/config"
	"deepwork/gate"
	"deepwork/session/workflow"
	"deepwork/transport/tool"
)

// reviewing says how reviews are done: off, by what the options name, by what
// the config names, or by the agents themselves, in that order (seed 000,
// 001.1.3 to 001.1.9; seed 001 "Quality Gates"). The config is asked each time.
type reviewing struct {
	flags   gate.Settings // what the options say
	o       Options
	current func(context.Context) (*config.Config, error)
}

func newReviewing(o Options, current func(context.Context) (*config.Config, error)) (*reviewing, error) {
	r := &reviewing{o: o, current: current}
	r.flags.Claude = o.ExternalRunner == "claude"
	if o.QualityGateCommand != "" {
		words, err := config.SplitCommand(o.QualityGateCommand)
		if err != nil {
			return nil, fmt.Errorf("quality gate command %q: %w", o.QualityGateCommand, err)
		}
		r.flags.Command = words
	}
	return r, nil
}

// settings are the gate's, as they are now.
func (r *reviewing) settings() gate.Settings {
	c, err := r.current(context.Background())
	if err != nil {
		c = config.Default() // it was never good, and calls are refused before they come to this
	}
	return r.merge(c)
}

func (r *reviewing) merge(c *config.Config) gate.Settings {
	q := c.QualityGate
	s := r.flags
	if !s.External() {
		s.Command = q.AgentReviewCommand
	}
	s.Timeout = q.DefaultTimeout
	if r.o.QualityGateTimeout > 0 {
		s.Timeout = r.o.QualityGateTimeout
	}
	s.MaxConcurrent, s.MaxInlineFiles = q.MaxConcurrentReviews, q.MaxInlineFiles
	return s
}

// now is what the engine asks at each call.
func (r *reviewing) now(ctx context.Context) (workflow.Reviewing, error) {
	c, err := r.current(ctx)
	if err != nil {
		return workflow.Reviewing{}, tool.BadConfig(err)
	}
	how := workflow.Reviewing{
		External:    r.merge(c).External(),
		MaxAttempts: c.QualityGate.DefaultMaxAttempts,
		ReplyWithin: c.QualityGate.ReplyWithin,
	}
	if r.o.QualityGateMaxAttempts > 0 {
		how.MaxAttempts = r.o.QualityGateMaxAttempts
	}
	return how, nil
}

// enabled reports whether steps are reviewed at all (seed 000, 001.1.9).
func (r *reviewing) enabled() bool { return r.o.EnableQualityGate == nil || *r.o.EnableQualityGate }
