package job

import "math/big"

// A graph walks the dependencies of a job's steps depth first, each step once. The
// steps of a set are the bits of a big.Int: this stays cheap for a large job, for which
// walking the graph once per step would not.
type graph struct {
	job   *Job
	state []visit
	trail []int
	needs []*big.Int // all that a step depends on, directly or not

	// circle is called with each dependency that closes a circle. The circle is valid
	// during the call.
	circle func(step, dependency int, circle []int)
}

type visit uint8

const (
	unseen visit = iota
	open         // on the trail
	closed
)

func (g *graph) visitAll() {
	g.state, g.needs = make([]visit, len(g.job.Steps)), make([]*big.Int, len(g.job.Steps))
	for i := range g.job.Steps {
		if g.state[i] == unseen {
			g.visit(i)
		}
	}
}

func (g *graph) visit(i int) {
	g.state[i] = open
	g.trail = append(g.trail, i)
	needs := new(big.Int)
	for k, dep := range g.job.Steps[i].Dependencies {
		t, ok := g.job.steps[dep]
		if !ok {
			continue
		}
		switch g.state[t] {
		case unseen:
			g.visit(t)
		case open:
			at := len(g.trail) - 1
			for g.trail[at] != t {
				at--
			}
			g.circle(i, k, g.trail[at:])
			continue // the circle is reported, so what else it needs does not matter
		}
		needs.SetBit(needs.Or(needs, g.needs[t]), t, 1)
	}
	g.trail = g.trail[:len(g.trail)-1]
	g.state[i], g.needs[i] = closed, needs
}
