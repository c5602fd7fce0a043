package wait

// A Signal wakes one waiting goroutine. Any number of calls to Wake before the goroutine receives
// count as one, and none is lost: a Wake that arrives while nobody waits is received by the next
// wait. Use NewSignal to create one.
type Signal chan struct{}

// NewSignal returns a Signal. Its channel has room for one value and is never closed.
func NewSignal() Signal { return make(Signal, 1) }

// Wake wakes the goroutine that receives from s, now or at its next receive. It
// never blocks and may be called from any goroutine.
func (s Signal) Wake() {
	select {
	case s <- struct{}{}:
	default:
	}
}
