package job

// A graph walks the dependencies of a job's steps depth first, each step once.
type graph struct {
	job    *Job
	state  []visit
	trail  []int
	done   []int                                    // steps in an order in which each stands after what it depends on
	circle func(step, dependency int, circle []int) // may be nil; circle is valid during the call
}

type visit uint8

const (
	unseen visit = iota
	open         // on the trail
	closed
)

func (g *graph) visitAll() {
	for i := range g.job.Steps {
		if g.state[i] == unseen {
			g.visit(i)
		}
	}
}

func (g *graph) visit(i int) {
	g.state[i] = open
	g.trail = append(g.trail, i)
	for k, dep := range g.job.Steps[i].Dependencies {
		t, ok := g.job.steps[dep]
		if !ok {
			continue
		}
		switch g.state[t] {
		case unseen:
			g.visit(t)
		case open:
			if g.circle != nil {
				g.circle(i, k, g.trailFrom(t))
			}
		}
	}
	g.trail = g.trail[:len(g.trail)-1]
	g.state[i] = closed
	g.done = append(g.done, i)
}

func (g *graph) trailFrom(t int) []int {
	at := len(g.trail) - 1
	for g.trail[at] != t {
		at--
	}
	return g.trail[at:]
}

// A stepSet is a set of indexes in Job.Steps.
type stepSet []uint64

func newStepSet(n int) stepSet   { return make(stepSet, (n+63)/64) }
func (s stepSet) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s stepSet) remove(i int)   { s[i/64] &^= 1 << (i % 64) }
func (s stepSet) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }
func (s stepSet) addAll(o stepSet) {
	for i := range s {
		s[i] |= o[i]
	}
}
func (s stepSet) meets(o stepSet) bool {
	for i := range s {
		if s[i]&o[i] != 0 {
			return true
		}
	}
	return false
}

// closure returns, for each step, all it depends on, directly or not. As sets
// of bits this stays cheap where walking the graph once a step would not.
func closure(j *Job) []stepSet {
	g := graph{job: j, state: make([]visit, len(j.Steps))}
	g.visitAll()
	sets := make([]stepSet, len(j.Steps))
	for _, i := range g.done {
		sets[i] = newStepSet(len(j.Steps))
		for _, dep := range j.Steps[i].Dependencies {
			// Nil is a step that closes a circle, which is reported elsewhere.
			if t, ok := j.steps[dep]; ok && sets[t] != nil {
				sets[i].add(t)
				sets[i].addAll(sets[t])
			}
		}
	}
	return sets
}
