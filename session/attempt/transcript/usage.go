package transcript

import (
	"bytes"
	"cmp"
)

// Tokens are numbers of tokens. Input does not include tokens that were read from or written to a cache.
type Tokens struct {
	Input      int64 `json:"input"`
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
	Output     int64 `json:"output"`
}

// A Usage is what an agent reported in one run.
type Usage struct {
	// Models has the tokens by the name of the model, which is "" if the agent does not name it; nil means
	// that none were reported.
	Models map[string]Tokens `json:"models,omitempty"`
	// USD is the cost that the agent reported; nil means none.
	USD *float64 `json:"usd,omitempty"`
	// Turns are counted as the agent does; 0 means that none were reported.
	Turns int64 `json:"turns,omitempty"`
	// Partial means that the agent did not report everything, usually because it ended early, so Models and
	// USD are too low.
	Partial bool `json:"partial,omitempty"`
	// Thread, if not "", is the conversation of Codex whose totals Models has, including its earlier runs.
	// What a Partial run of it used is known once a later run has reported the totals.
	Thread string `json:"thread,omitempty"`
}

// Usage returns what was reported so far; nil means that no agent wrote these lines.
func (r *Reader) Usage() *Usage {
	switch {
	case r.claude.seen:
		return r.claude.usage()
	case r.codex.seen:
		return r.codex.usage()
	case r.openCode.seen:
		return r.openCode.usage()
	}
	return nil
}

// UsageIn returns what the agent reported in everything that it printed; nil means nothing.
func UsageIn(stdout []byte) *Usage {
	var r Reader
	for line := range bytes.Lines(stdout) {
		r.Line(line, func(Message) {})
	}
	return r.Usage()
}

const (
	// maxModels limits how many named models are distinguished; tokens of further models count as those of
	// "".
	maxModels = 16
	// maxCount limits each number that an agent reports, so that sums over millions of runs do not overflow.
	maxCount = 1 << 40
	// maxUSD is the highest plausible cost.
	maxUSD = 1e6
)

func count(n int64) int64 { return min(max(n, 0), maxCount) }

func tokens(input, cacheRead, cacheWrite, output int64) Tokens {
	return Tokens{count(input), count(cacheRead), count(cacheWrite), count(output)}
}

func (t Tokens) plus(o Tokens) Tokens {
	return tokens(t.Input+o.Input, t.CacheRead+o.CacheRead, t.CacheWrite+o.CacheWrite, t.Output+o.Output)
}

func (t Tokens) minus(o Tokens) Tokens {
	return tokens(t.Input-o.Input, t.CacheRead-o.CacheRead, t.CacheWrite-o.CacheWrite, t.Output-o.Output)
}

// add adds tokens to those of a model.
func add(to *map[string]Tokens, model string, t Tokens) {
	model = clip(model)
	if *to == nil {
		*to = map[string]Tokens{}
	}
	names := len(*to)
	if _, unnamed := (*to)[""]; unnamed {
		names--
	}
	if _, known := (*to)[model]; !known && names >= maxModels {
		model = ""
	}
	(*to)[model] = (*to)[model].plus(t)
}

// dollars returns a cost if it is plausible.
func dollars(usd *float64) *float64 {
	if usd == nil || !(*usd >= 0 && *usd <= maxUSD) {
		return nil
	}
	return usd
}

// A Cost is what one run used.
type Cost struct {
	Tokens Tokens
	USD    *float64 // nil means unknown; the run may then also have used more tokens than reported
	Turns  int64
}

// A Price is the price of a model, in US dollars per million tokens.
type Price struct {
	Input, CacheRead, CacheWrite, Output float64
}

// CostOf returns the cost of a run: as its agent reported it, otherwise by the prices of its models. unnamed
// is the name under which to find the price of a model that the agent did not name. before are the totals of
// its thread at the end of the previous run.
func CostOf(u *Usage, before map[string]Tokens, prices map[string]Price, unnamed string) Cost {
	c, usd := Cost{Turns: u.Turns}, 0.0
	known := u.Models != nil && !u.Partial
	for name, t := range u.Models {
		if u.Thread != "" {
			t = t.minus(before[name])
		}

		c.Tokens = c.Tokens.plus(t)
		name = cmp.Or(name, unnamed)
		p, ok := prices[name]
		known = known && (ok || t == Tokens{})
		usd += (float64(t.Input)*p.Input + float64(t.CacheRead)*p.CacheRead + float64(t.CacheWrite)*p.CacheWrite +
			float64(t.Output)*p.Output) / 1e6
	}
	switch {
	case u.USD != nil && !u.Partial:
		c.USD = u.USD
	case known:
		c.USD = new(min(usd, maxUSD))
	}

	return c
}
