// Package actor runs typed actors: whatever changes is owned by one goroutine
// and reached only by messages.
//
// An actor is a [Behavior] behind a bounded mailbox. [Spawn] starts one that
// lives as long as its [System]; a [Registry] keeps one for each key, awake only
// while it has something to do. Messages are sent with Tell, or with [Ask],
// which waits for an answer; both wait no longer than the caller's context.
//
// An incarnation is one life of a Behavior: made, started, given messages one at
// a time, stopped. It ends in order when the actor is stopped or passivated, and
// out of order when Receive panics or returns an error: then its state is thrown
// away and the next incarnation starts from what is durable. The mailbox outlives
// incarnations, so a message that was accepted is handled exactly once, by one of
// them, unless no incarnation can be made: then its asker is told why.
//
// The package knows nothing of any domain.
package actor
