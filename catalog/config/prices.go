package config

import "fmt"

// A Price is what a model costs, in USD per million tokens (key prices). It applies to what agents do
// not report the cost of.
type Price struct {
	Input      float64
	CacheRead  float64 // default: Input
	CacheWrite float64 // default: Input
	Output     float64
}

// maxPrice is larger than any sensible price.
const maxPrice = 1e6

// prices reads the prices of models by their names.
func (p *parser) prices(v value, to *map[string]Price) {
	p.Entries(v, "a mapping of the names of models to their prices", func(v value) {
		price := Price{Input: -1, CacheRead: -1, CacheWrite: -1, Output: -1}
		before := p.Faults()
		p.mapping(v,
			key("input", p.price(&price.Input)), key("output", p.price(&price.Output)),
			key("cache_read", p.price(&price.CacheRead)), key("cache_write", p.price(&price.CacheWrite)))
		if p.Faults() > before {
			return
		}
		if price.Input < 0 || price.Output < 0 {
			missing := "output"
			if price.Input < 0 {
				missing = "input"
			}
			p.fault(v, "has no %s: expected the USD per million tokens, as in {input: 3, output: 15}", missing)
			return
		}
		for _, cached := range []*float64{&price.CacheRead, &price.CacheWrite} {
			if *cached < 0 {
				*cached = price.Input
			}
		}
		if *to == nil {
			*to = map[string]Price{}
		}
		(*to)[v.Key.Value] = price
	})
}

func (p *parser) price(to *float64) func(value) {
	return scalar(p, fmt.Sprintf("the USD per million tokens, from 0 to %d", int(maxPrice)),
		func(usd float64) bool { return usd >= 0 && usd <= maxPrice }, to, "!!int", "!!float")
}
