package transcript

import "deepwork/catalog/config"

// A Cost is what runs have used. Its zero value is that of no runs.
type Cost struct {
	Runs    int
	Tokens  Tokens
	USD     float64 // of the runs whose cost is known
	Turns   int64
	Unknown int // runs whose cost is not known; each may also have used more tokens than reported
}

// CostOf returns the cost of a run: as its agent reported it, otherwise by the prices of its models;
// unnamed is the name under which the price of a model that the agent did not name is found. nil
// stands for a run that reported nothing. u is of Own.
func CostOf(u *Usage, prices map[string]config.Price, unnamed string) (c Cost) {
	if u == nil {
		return Cost{Runs: 1, Unknown: 1}
	}
	c.Runs = 1
	known := u.Models != nil && !u.Partial
	for name, t := range u.Models {
		c.Tokens = c.Tokens.plus(t)
		if name == "" {
			name = unnamed
		}
		p, ok := prices[name]
		known = known && (ok || t == Tokens{})
		c.USD += (float64(t.Input)*p.Input + float64(t.CacheRead)*p.CacheRead + float64(t.CacheWrite)*p.CacheWrite + float64(t.Output)*p.Output) / 1e6
	}
	if u.USD != nil && !u.Partial {
		known, c.USD = true, *u.USD
	}
	if !known {
		c.USD, c.Unknown = 0, 1
	}
	c.Turns = u.Turns
	return c
}

// Plus returns the sum of two costs.
func (c Cost) Plus(o Cost) Cost {
	return Cost{c.Runs + o.Runs, c.Tokens.plus(o.Tokens), c.USD + o.USD, count(c.Turns + o.Turns), c.Unknown + o.Unknown}
}
