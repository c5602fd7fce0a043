// Package actor runs typed actors: all mutable state is owned by one goroutine and reached only by
// messages.
//
// An actor is a [Behavior] behind a bounded mailbox. [Spawn] starts one that lives as long as its
// [System]; a [Registry] has one per key, in memory only while it is busy. Messages are sent with
// Tell, or with [Ask], which waits for an answer; both return when the caller's context ends.
//
// An incarnation is one life of a Behavior. If Receive panics or returns an error, its state is
// dropped and the next incarnation starts from durable state. The mailbox outlives incarnations, so
// an accepted message is handled exactly once, unless no incarnation can be created: then its asker
// gets the error.
package actor
