package board

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// Cost is what the ended executions of a task or an attempt used, as their agents reported it. Unknown
// amounts are null, never 0.
type Cost struct {
	USD        *float64 `json:"usd" jsonschema:"cost in USD of those whose cost is known"`
	Executions int      `json:"executions" jsonschema:"executions that have ended, with reviews by executors"`
	Unknown    int      `json:"unknown" jsonschema:"number of those whose cost is not known"`
	Input      *int64   `json:"input_tokens" jsonschema:"tokens of input that were not cached"`
	Cached     *int64   `json:"cached_tokens" jsonschema:"tokens of input from or to a cache"`
	Output     *int64   `json:"output_tokens" jsonschema:"tokens of output"`
	Turns      *int64   `json:"turns" jsonschema:"turns as the agents count them"`
}

// ExecutionCost is what one execution used; see Cost.
type ExecutionCost struct {
	USD    *float64 `json:"usd" jsonschema:"cost in USD"`
	Input  *int64   `json:"input_tokens" jsonschema:"tokens of input that were not cached"`
	Cached *int64   `json:"cached_tokens" jsonschema:"tokens of input from or to a cache"`
	Output *int64   `json:"output_tokens" jsonschema:"tokens of output"`
	Turns  *int64   `json:"turns" jsonschema:"turns as the agent counts them"`
}

// Cost returns what the executions of a task have used or, if attempt is not "", those of this attempt; nil
// until one has ended.
func (v View) Cost(ctx context.Context, taskID, attempt string) (*Cost, error) {
	sum, err := v.Spent(ctx, taskID, attempt)
	if err != nil || sum.Executions == 0 {
		return nil, err
	}
	c := &Cost{Executions: sum.Executions, Unknown: sum.Unknown}
	if sum.Unknown < sum.Executions {
		c.USD = new(USD(sum.MicroUSD))
	}
	c.Input, c.Cached, c.Output, c.Turns = counts(sum.InputTokens, sum.CachedTokens, sum.OutputTokens, sum.Turns)
	return c, nil
}

// ExecutionCosts returns what each execution of an attempt has used, by its id.
func (v View) ExecutionCosts(ctx context.Context, attempt string) (map[string]*ExecutionCost, error) {
	used, err := v.Used(ctx, attempt)
	each := map[string]*ExecutionCost{}
	for _, u := range used {
		c := &ExecutionCost{}
		if u.MicroUSD != nil {
			c.USD = new(USD(*u.MicroUSD))
		}
		c.Input, c.Cached, c.Output, c.Turns = counts(u.InputTokens, u.CachedTokens, u.OutputTokens, u.Turns)
		each[u.ExecutionID] = c
	}

	return each, err
}

// counts returns nil for unknown numbers.
func counts(input, cached, output, turns int64) (in, ca, out, tu *int64) {
	if input+cached+output > 0 {
		in = &input
		ca = &cached
		out = &output
	}
	if turns > 0 {
		tu = &turns
	}
	return in, ca, out, tu
}

// USD converts micro-USD to USD.
func USD(micro int64) float64 { return float64(micro) / 1e6 }

// MicroUSD converts USD to micro-USD.
func MicroUSD(usd float64) int64 { return int64(math.Round(usd * 1e6)) }

// Limits returns the amounts at which no more executions may start.
func Limits(cfg *config.Config) (l task.Limits) {
	if most := cfg.Attempts.MaxCostUSD; most != nil {
		l.MicroUSD = new(MicroUSD(most.Max))
	}
	if most := cfg.Attempts.MaxUnknown; most != nil {
		l.Unknown = new(int64(math.Ceil(most.Max)))
	}
	return l
}

// Reached is a reached budget, because of which no execution starts.
type Reached struct {
	Key   string // its key in the config
	Limit config.Limit
	Sum   float64

	unknown int // executions whose cost is not in Sum
}

// Reached returns the config's budgets that are reached.
func (b *Board) Reached(ctx context.Context, records store.Board, cfg *config.Config) (all []Reached, err error) {
	l := Limits(cfg)
	if l == (task.Limits{}) {
		return nil, nil
	}

	sum, err := records.Spent(ctx, "", "")
	if err != nil {
		return nil, Fault("reading the budget", err)
	}
	if l.MicroUSD != nil && sum.MicroUSD >= *l.MicroUSD {
		all = append(all, Reached{
			Key:     "attempts.max_cost_usd",
			Limit:   *cfg.Attempts.MaxCostUSD,
			Sum:     USD(sum.MicroUSD),
			unknown: sum.Unknown,
		})
	}
	if l.Unknown != nil && int64(sum.Unknown) >= *l.Unknown {
		all = append(all, Reached{
			Key:     "attempts.max_unknown",
			Limit:   *cfg.Attempts.MaxUnknown,
			Sum:     float64(sum.Unknown),
			unknown: sum.Unknown,
		})
	}
	return all, nil
}

// overBudget returns a reached budget, or nil.
func (b *Board) overBudget(ctx context.Context, cfg *config.Config) (*Reached, error) {
	records, err := b.Store(ctx)
	if err != nil {
		return nil, err
	}
	all, err := b.Reached(ctx, records, cfg)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

// WithinBudget returns an error if a budget does not allow an execution to start.
func (b *Board) WithinBudget(ctx context.Context, who session.Caller, cfg *config.Config) error {
	r, err := b.overBudget(ctx, cfg)
	if err != nil || r == nil {
		return err
	}
	refusal := session.NotNow(codes.BudgetReached,
		"Nothing was started, since a budget of this project is reached: %s.", r.what(who)).
		Ask("%s, then try again; no restart is needed", r.remedy()).
		With("key", r.Key).With("limit", r.Limit.Max)
	if who.Owner {
		refusal = refusal.With("sum", r.Sum)
	}
	return refusal
}

// HeldBack says why waiting work is not started; nil means that it may start.
func (b *Board) HeldBack(ctx context.Context, who session.Caller, cfg *config.Config) (*string, error) {
	r, err := b.overBudget(ctx, cfg)
	if err != nil || r == nil {
		return nil, err
	}
	return new(fmt.Sprintf("Nothing that waits is started, since a budget of this project is reached: %s. It starts "+
		"after this: %s.", r.what(who), r.remedy())), nil
}

// what describes the budget; callers who do not see everything are not told the sum.
func (r Reached) what(who session.Caller) string {
	limit := r.Key + " is " + Decimal(r.Limit.Max)
	switch {
	case !who.Owner:
		return limit
	case r.Key == "attempts.max_unknown":
		return fmt.Sprintf("%s executions have ended with an unknown cost, and %s", Decimal(r.Sum), limit)
	}

	known := ""
	if r.unknown > 0 {
		known = fmt.Sprintf(" and whose cost is known (that of %d is not)", r.unknown)
	}
	return fmt.Sprintf("the executions that have ended%s cost %s USD, and %s", known, Decimal(r.Sum), limit)
}

// title describes the budget in one line.
func (r Reached) title(who session.Caller) string {
	what := "USD"
	switch {
	case !who.Owner:
		return "Budget reached: " + r.what(who)
	case r.Key == "attempts.max_unknown":
		what = "executions of unknown cost"
	case r.unknown > 0:
		what = fmt.Sprintf("USD and %d of unknown cost", r.unknown)
	}
	return fmt.Sprintf("Budget reached: %s of %s %s (%s)", Decimal(r.Sum), Decimal(r.Limit.Max), what, r.Key)
}

func (r Reached) remedy() string {
	remedy := "raise " + r.Key + " in " + r.Limit.File
	if r.Key == "attempts.max_unknown" {
		remedy += ", and give prices of the models in " + config.UserFile() +
			", by which the cost of later ones is known"
	}
	return remedy
}

// Decimal formats a number without an exponent.
func Decimal(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
