package transcript

import "deepwork/catalog/config"

// A Cost is what one run used.
type Cost struct {
	Tokens Tokens
	USD    *float64 // nil means unknown; the run may then also have used more tokens than it reported
	Turns  int64
}

// CostOf returns the cost of a run: as its agent reported it, otherwise by the prices of its models;
// unnamed is the name under which the price of a model that the agent did not name is found. before are
// the totals of its thread when the run before it ended.
func CostOf(u *Usage, before map[string]Tokens, prices map[string]config.Price, unnamed string) Cost {
	c, usd := Cost{Turns: u.Turns}, 0.0
	known := u.Models != nil && !u.Partial
	for name, t := range u.Models {
		if u.Thread != "" {
			t = t.minus(before[name])
		}
		c.Tokens = c.Tokens.plus(t)
		if name == "" {
			name = unnamed
		}
		p, ok := prices[name]
		known = known && (ok || t == Tokens{})
		usd += (float64(t.Input)*p.Input + float64(t.CacheRead)*p.CacheRead + float64(t.CacheWrite)*p.CacheWrite + float64(t.Output)*p.Output) / 1e6
	}
	switch {
	case u.USD != nil && !u.Partial:
		c.USD = u.USD
	case known:
		c.USD = new(min(usd, maxUSD))
	}
	return c
}
