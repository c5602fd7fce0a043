package attempt

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"deepwork/catalog/task"
	"deepwork/session/attempt/transcript"
	"deepwork/session/store"
)

// Cost is what the executions of a task or an attempt that have ended used, as their agents reported
// it. What is not known is null, never 0.
type Cost struct {
	USD        *float64 `json:"usd" jsonschema:"cost in USD of the executions whose cost is known, or null if none is"`
	Executions int      `json:"executions" jsonschema:"number of executions that have ended"`
	Unknown    int      `json:"unknown" jsonschema:"number of those whose cost is not known"`
	Input      *int64   `json:"input_tokens" jsonschema:"tokens of input, without those of a cache, or null"`
	Cached     *int64   `json:"cached_tokens" jsonschema:"tokens of input that were read from a cache or written to it, or null"`
	Output     *int64   `json:"output_tokens" jsonschema:"tokens of output, or null"`
	Turns      *int64   `json:"turns" jsonschema:"turns as the agents count them, or null"`
}

// cost returns what the executions of a task have used, or, if attempt is not "", those of one attempt
// of it; nil before any has ended.
func (e *Engine) cost(ctx context.Context, b store.View, taskID, attempt string) (*Cost, error) {
	used, err := b.Used(ctx, taskID)
	if err != nil {
		return nil, fmt.Errorf("reading what executions used: %w", err)
	}
	byAttempt := map[string][]task.Use{}
	for _, u := range used {
		if attempt == "" || u.AttemptID == attempt {
			byAttempt[u.AttemptID] = append(byAttempt[u.AttemptID], u)
		}
	}
	if len(byAttempt) == 0 {
		return nil, nil
	}
	cfg, err := e.config(ctx)
	if err != nil {
		return nil, err
	}
	var sum transcript.Cost
	for _, used := range byAttempt {
		runs := make([]*transcript.Usage, len(used))
		for i, u := range used {
			if u.Usage == nil || json.Unmarshal(u.Usage, &runs[i]) != nil {
				runs[i] = nil
			}
		}
		for i, own := range transcript.Own(runs) {
			sum = sum.Plus(transcript.CostOf(own, cfg.Prices, used[i].Executor))
		}
	}
	c := &Cost{Executions: sum.Runs, Unknown: sum.Unknown}
	if sum.Unknown < sum.Runs {
		c.USD = new(math.Round(sum.USD*1e6) / 1e6)
	}
	if n := sum.Tokens; n != (transcript.Tokens{}) {
		c.Input, c.Cached, c.Output = new(n.Input), new(n.CacheRead+n.CacheWrite), new(n.Output)
	}
	if sum.Turns > 0 {
		c.Turns = &sum.Turns
	}
	return c, nil
}
