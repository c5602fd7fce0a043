package gate

import "slices"

// A queue holds the reviews that wait, and lets the sessions take turns: a
// session with forty files does not starve one with a single file. It is not
// safe for concurrent use.
type queue struct {
	lanes map[string][]*review
	turns []string // the sessions that have reviews, the next one first
	size  int
}

// push appends reviews of a session.
func (q *queue) push(session string, reviews ...*review) {
	if len(reviews) == 0 {
		return
	}
	if q.lanes == nil {
		q.lanes = make(map[string][]*review)
	}
	if len(q.lanes[session]) == 0 {
		q.turns = append(q.turns, session)
	}
	q.lanes[session] = append(q.lanes[session], reviews...)
	q.size += len(reviews)
}

// pop removes and returns the review whose turn it is, or nil if none waits.
func (q *queue) pop() *review {
	if q.size == 0 {
		return nil
	}
	session := q.turns[0]
	q.turns = slices.Delete(q.turns, 0, 1)
	lane := q.lanes[session]
	r := lane[0]
	lane[0] = nil
	if lane = lane[1:]; len(lane) > 0 {
		q.lanes[session] = lane
		q.turns = append(q.turns, session)
	} else {
		delete(q.lanes, session)
	}
	q.size--
	return r
}

// remove removes and returns all reviews of a batch.
func (q *queue) remove(b *batch) (removed []*review) {
	var kept []*review
	for _, r := range q.lanes[b.session] {
		if r.batch == b {
			removed = append(removed, r)
		} else {
			kept = append(kept, r)
		}
	}
	if len(removed) == 0 {
		return nil
	}
	q.size -= len(removed)
	if q.lanes[b.session] = kept; len(kept) == 0 {
		delete(q.lanes, b.session)
		q.turns = slices.DeleteFunc(q.turns, func(s string) bool { return s == b.session })
	}
	return removed
}
