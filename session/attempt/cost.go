package attempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/transcript"
	"deepwork/session/codes"
	"deepwork/session/store"
)

// Cost is what the executions of a task or an attempt that have ended used, as their agents reported
// it. What is not known is null, never 0.
type Cost struct {
	USD        *float64 `json:"usd" jsonschema:"cost in USD of the executions whose cost is known, or null if none is"`
	Executions int      `json:"executions" jsonschema:"number of executions that have ended, reviews of a run by an executor included"`
	Unknown    int      `json:"unknown" jsonschema:"number of those whose cost is not known"`
	Input      *int64   `json:"input_tokens" jsonschema:"tokens of input, without those of a cache, or null"`
	Cached     *int64   `json:"cached_tokens" jsonschema:"tokens of input that were read from a cache or written to it, or null"`
	Output     *int64   `json:"output_tokens" jsonschema:"tokens of output, or null"`
	Turns      *int64   `json:"turns" jsonschema:"turns as the agents count them, or null"`
}

// ExecutionCost is what one execution used, as Cost.
type ExecutionCost struct {
	USD    *float64 `json:"usd" jsonschema:"cost in USD"`
	Input  *int64   `json:"input_tokens" jsonschema:"without cached ones"`
	Cached *int64   `json:"cached_tokens" jsonschema:"read or written"`
	Output *int64   `json:"output_tokens" jsonschema:"tokens"`
	Turns  *int64   `json:"turns" jsonschema:"number"`
}

// cost returns what the executions of a task have used, or, if attempt is not "", those of one attempt
// of it, nil before any has ended; and what each used, by its id.
func (e *Engine) cost(ctx context.Context, b store.View, taskID, attempt string) (all *Cost, each map[string]*ExecutionCost, err error) {
	used, err := b.Used(ctx, taskID)
	if err != nil {
		return nil, nil, fmt.Errorf("reading what executions used: %w", err)
	}
	byAttempt := map[string][]task.Use{}
	for _, u := range used {
		if attempt == "" || u.AttemptID == attempt {
			byAttempt[u.AttemptID] = append(byAttempt[u.AttemptID], u)
		}
	}
	if len(byAttempt) == 0 {
		return nil, nil, nil
	}
	cfg, err := e.config(ctx)
	if err != nil {
		return nil, nil, err
	}
	var sum transcript.Cost
	each = map[string]*ExecutionCost{}
	for _, used := range byAttempt {
		runs := make([]*transcript.Usage, len(used))
		for i, u := range used {
			runs[i] = usageOf(u)
		}
		for i, own := range transcript.Own(runs) {
			one := transcript.CostOf(own, cfg.Prices, used[i].Executor)
			sum = sum.Plus(one)
			c := costReply(one)
			each[used[i].ExecutionID] = &ExecutionCost{c.USD, c.Input, c.Cached, c.Output, c.Turns}
		}
	}
	return costReply(sum), each, nil
}

// costReply leaves out what is not known.
func costReply(sum transcript.Cost) *Cost {
	c := &Cost{Executions: sum.Runs, Unknown: sum.Unknown}
	if sum.Unknown < sum.Runs {
		c.USD = new(micro(sum.USD))
	}
	if n := sum.Tokens; n != (transcript.Tokens{}) {
		c.Input, c.Cached, c.Output = new(n.Input), new(n.CacheRead+n.CacheWrite), new(n.Output)
	}
	if sum.Turns > 0 {
		c.Turns = &sum.Turns
	}
	return c
}

// usageOf returns nil if the agent reported nothing.
func usageOf(u task.Use) (usage *transcript.Usage) {
	if u.Usage == nil || json.Unmarshal(u.Usage, &usage) != nil {
		return nil
	}
	return usage
}

// micro rounds an amount of USD, whose sums are not exact.
func micro(usd float64) float64 { return math.Round(usd*1e6) / 1e6 }

// A ledger is what all executions of the board that have ended cost, those of deleted tasks included,
// as far as it was read.
type ledger struct {
	turn    sync.Mutex
	of      *config.Config // whose prices and limits are used; nil before the first reading
	seq     int64          // of the last use that was read
	sum     transcript.Cost
	threads map[string]*thread // by attempt: those whose agents report totals
	since   [2]*time.Time      // since when the budgets are reached: of attempts.max_cost_usd, attempts.max_unknown
}

// A thread is the uses of an attempt that must be read together.
type thread struct {
	runs      []*transcript.Usage
	executors []string // of each: the agents of a run may have different ones
	cost      transcript.Cost
}

// A budget is the state of the budgets after the use seq.
type budget struct {
	seq     int64
	reached []Reached
}

// Reached is a budget that is reached, so that no execution starts.
type Reached struct {
	Key   string // of the config
	Limit config.Limit
	Sum   float64
	Since time.Time

	unknown int // executions whose cost is not in Sum
}

// budget returns the state of the budgets of the config, nil if there are none. It reads what has ended
// since the last call.
func (e *Engine) budget(ctx context.Context, b store.Board, cfg *config.Config) (*budget, error) {
	limits := [2]*config.Limit{cfg.Attempts.MaxCostUSD, cfg.Attempts.MaxUnknown}
	if limits == [2]*config.Limit{} {
		return nil, nil
	}
	l := &e.ledger
	l.turn.Lock()
	defer l.turn.Unlock()
	if l.of != cfg {
		l.of, l.seq, l.sum, l.threads, l.since = cfg, 0, transcript.Cost{}, map[string]*thread{}, [2]*time.Time{}
	}
	used, err := b.UsedSince(ctx, l.seq)
	if err != nil {
		return nil, fmt.Errorf("reading what executions used: %w", err)
	}
	for _, u := range used {
		l.add(u)
		for i, sum := range l.sums() {
			if limits[i] == nil || sum < limits[i].Max {
				l.since[i] = nil
			} else if l.since[i] == nil {
				l.since[i] = &u.EndedAt
			}
		}
	}
	now := &budget{seq: l.seq}
	for i, key := range []string{"attempts.max_cost_usd", "attempts.max_unknown"} {
		if limits[i] != nil && l.sums()[i] >= limits[i].Max {
			r := Reached{Key: key, Limit: *limits[i], Sum: l.sums()[i], unknown: l.sum.Unknown}
			if l.since[i] != nil { // a limit of 0 is reached before anything has ended
				r.Since = *l.since[i]
			}
			now.reached = append(now.reached, r)
		}
	}
	return now, nil
}

func (l *ledger) sums() [2]float64 { return [2]float64{micro(l.sum.USD), float64(l.sum.Unknown)} }

func (l *ledger) add(u task.Use) {
	l.seq = u.Seq
	usage := usageOf(u)
	if usage == nil || usage.Thread == "" {
		l.sum = l.sum.Plus(transcript.CostOf(usage, l.of.Prices, u.Executor))
		return
	}
	t := l.threads[u.AttemptID]
	if t == nil {
		t = &thread{}
		l.threads[u.AttemptID] = t
	}
	t.runs, t.executors = append(t.runs, usage), append(t.executors, u.Executor)
	before := t.cost
	t.cost = transcript.Cost{}
	for i, own := range transcript.Own(t.runs) {
		t.cost = t.cost.Plus(transcript.CostOf(own, l.of.Prices, t.executors[i]))
	}
	l.sum.USD += t.cost.USD - before.USD
	l.sum.Unknown += t.cost.Unknown - before.Unknown
}

// claimNext claims a waiting execution, unless a budget is reached: it is checked against what has ended
// at that moment, so that only those run beyond it that ran when it was reached.
func (e *Engine) claimNext(ctx context.Context, b store.Board, cfg *config.Config) (*task.Execution, error) {
	for {
		now, err := e.budget(ctx, b, cfg)
		var used *int64
		if now != nil {
			used = &now.seq
		}
		if err != nil || now.isReached() {
			return nil, err
		}
		x, err := b.ClaimNext(ctx, e.member.ID(), e.slots(cfg), e.claim(b, cfg), used)
		if !errors.Is(err, task.ErrOutdated) {
			return x, err
		}
	}
}

func (b *budget) isReached() bool { return b != nil && len(b.reached) > 0 }

// overBudget returns a budget that is reached, nil if none is.
func (e *Engine) overBudget(ctx context.Context, cfg *config.Config) (*Reached, error) {
	b, err := e.board(ctx)
	if err != nil {
		return nil, err
	}
	now, err := e.budget(ctx, b, cfg)
	if err != nil || !now.isReached() {
		return nil, fault("reading the budget", err)
	}
	return &now.reached[0], nil
}

// withinBudget returns an error if nothing may start.
func (e *Engine) withinBudget(ctx context.Context, who session.Caller, cfg *config.Config) error {
	r, err := e.overBudget(ctx, cfg)
	if err != nil || r == nil {
		return err
	}
	refusal := session.NotNow(codes.BudgetReached, "Nothing was started, since a budget of this project is reached: %s. Ask your user to %s, and call again; no restart is needed.", r.what(who), r.remedy()).
		With("key", r.Key).With("limit", r.Limit.Max)
	if who.Owner {
		refusal = refusal.With("sum", r.Sum)
	}
	return refusal
}

// heldBack says why nothing that waits is started, nil if it may be.
func (e *Engine) heldBack(ctx context.Context, who session.Caller, cfg *config.Config) (*string, error) {
	r, err := e.overBudget(ctx, cfg)
	if err != nil || r == nil {
		return nil, err
	}
	return new(fmt.Sprintf("Nothing that waits is started, since a budget of this project is reached: %s. It starts once your user has done this: %s.", r.what(who), r.remedy())), nil
}

// what says what is reached, to those who do not see everything without the sum.
func (r Reached) what(who session.Caller) string {
	limit := r.Key + " is " + decimal(r.Limit.Max)
	switch {
	case !who.Owner:
		return limit
	case r.Key == "attempts.max_unknown":
		return fmt.Sprintf("%s executions have ended whose cost is unknown, and %s", decimal(r.Sum), limit)
	}
	known := ""
	if r.unknown > 0 {
		known = fmt.Sprintf(" and whose cost is known (that of %d is not)", r.unknown)
	}
	return fmt.Sprintf("the executions that have ended%s cost %s USD, and %s", known, decimal(r.Sum), limit)
}

// title says it in one line.
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
	return fmt.Sprintf("Budget reached: %s of %s %s (%s)", decimal(r.Sum), decimal(r.Limit.Max), what, r.Key)
}

func (r Reached) remedy() string {
	remedy := "raise " + r.Key + " in " + r.Limit.File
	if r.Key == "attempts.max_unknown" {
		remedy += ", or give prices of the models in " + config.UserFile()
	}
	return remedy
}

func decimal(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
