package gate

import "slices"

// A queue holds the waiting reviews, and lets the sessions take turns: a session with forty files
// does not starve one with a single file. It is not safe for concurrent use.
type queue struct {
	lanes [][]*review // one per session, none of them empty, in the order of their turns
	size  int
}

// push appends the reviews of a session.
func (q *queue) push(session string, reviews ...*review) {
	at := slices.IndexFunc(q.lanes, func(lane []*review) bool { return lane[0].batch.session == session })
	if at < 0 {
		q.lanes = append(q.lanes, reviews)
	} else {
		q.lanes[at] = append(q.lanes[at], reviews...)
	}
	q.size += len(reviews)
}

// pop removes and returns the next review, or nil if none waits.
func (q *queue) pop() *review {
	if q.size == 0 {
		return nil
	}
	lane := q.lanes[0]
	if q.lanes = slices.Delete(q.lanes, 0, 1); len(lane) > 1 {
		q.lanes = append(q.lanes, lane[1:])
	}
	q.size--
	return lane[0]
}

// remove removes and returns all reviews of a batch.
func (q *queue) remove(b *batch) (removed []*review) {
	for i, lane := range q.lanes {
		q.lanes[i] = slices.DeleteFunc(lane, func(r *review) bool {
			if r.batch == b {
				removed = append(removed, r)
			}
			return r.batch == b
		})
	}
	q.lanes = slices.DeleteFunc(q.lanes, func(lane []*review) bool { return len(lane) == 0 })
	q.size -= len(removed)
	return removed
}
