package job

import (
	"math/big"
	"strings"

	"deepwork/catalog/internal/yamltree"
)

// A graph walks the dependencies of a job's steps depth first, each step once, reports each that
// closes a cycle, and sets decoder.needs: all direct and indirect dependencies of a step. The steps
// of a set are the bits of a big.Int: this stays cheap for a large job, unlike walking the graph
// once per step.
type graph struct {
	d     *decoder
	job   *Job
	state []visit
	trail []int
}

type visit uint8

const (
	unseen visit = iota
	open         // on the current path
	closed
)

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
			g.circle(g.d.steps[i].dependencies[k], g.trail[at:])
			continue // the cycle is reported, so its other dependencies do not matter
		}
		needs.SetBit(needs.Or(needs, g.d.needs[t]), t, 1)
	}
	g.trail = g.trail[:len(g.trail)-1]
	g.state[i], g.d.needs[i] = closed, needs
}

// circle reports a dependency that closes a cycle, such as a -> b -> a; a long one is shortened in
// the middle.
func (g *graph) circle(at spot, circle []int) {
	for _, i := range circle {
		g.d.steps[i].circular = true
	}
	if g.d.Full() {
		return
	}
	if len(circle) == 1 {
		g.d.faultAt(at, "a step cannot depend on itself: remove it")
		return
	}
	const most = 10
	var b strings.Builder
	for k, i := range circle {
		if len(circle) > most && k >= most/2 && k < len(circle)-most/2 {
			if k == most/2 {
				b.WriteString("… -> ")
			}
			continue
		}
		b.WriteString(yamltree.Clip(g.job.Steps[i].ID) + " -> ")
	}
	g.d.faultAt(at, "the dependencies go in a circle, %s: remove one of them", b.String()+yamltree.Clip(g.job.Steps[circle[0]].ID))
}
