package workflow

import "time"

// releaseAgain is how long it is until sessions that could not be given up, on a
// disk that was full or could not be written, are tried again.
const releaseAgain = 30 * time.Second

// keep notes a session that could not be given up though no stack holds it: no
// other server can take it up until it is. It does not block.
func (e *Engine) keep(h *handle) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	if e.kept == nil {
		e.kept = map[*handle]struct{}{}
		e.beside.Go(e.releaseKept)
	}
	e.kept[h] = struct{}{}
}

// releaseKept tries again until nothing is kept any more, or the engine closes.
// Each time it stops at the first session that is kept again: the disk is as it
// was, and the log need not say so of each.
func (e *Engine) releaseKept() {
	for {
		select {
		case <-time.After(releaseAgain):
		case <-e.ctx.Done():
			return
		}
		for {
			h := e.takeKept()
			if h == nil {
				return
			}
			e.release([]*handle{h})
			if e.isKept(h) {
				break
			}
		}
	}
}

// takeKept removes one session from those that are kept; nil: there are none,
// and the next one that is begins anew.
func (e *Engine) takeKept() *handle {
	e.mu.Lock()
	defer e.mu.Unlock()
	for h := range e.kept {
		delete(e.kept, h)
		return h
	}
	e.kept = nil
	return nil
}

func (e *Engine) isKept(h *handle) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.kept[h]
	return ok
}
