package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// The kinds of work.
const (
	RemovalWork = "removal" // removes worktrees for another machine: see View.AskRemoval
	JudgingWork = "judging" // has programs or reviewers judge what was handed in for a step
)

// Judging returns the row of judging a step of a session, with its kind and key only.
func Judging(session, step string) WorkRow {
	return WorkRow{Kind: JudgingWork, Key: session + "/" + step}
}

// A WorkRow is something that a process of the project is to do: a kind of work, for which package work has a
// handler, and what it is about.
type WorkRow struct {
	Kind  string
	Key   string          // unique in its kind
	About json.RawMessage // for the handler; nil means nothing
	Place string          // names the only place where it may be done, as its kind does; "" means anywhere
	// Runner names the claim of the process that does the work: the id of its member, a hyphen, and a text that
	// is unique to the claim. "" means that nobody does it.
	Runner      string
	RunnerPlace string          // the key of the place of the runner; "" in a store of one machine
	Claims      int             // how often it was begun since it was put
	Stop        bool            // its runner is asked to stop
	Progress    json.RawMessage // as last stored by the runner
	Result      json.RawMessage // nil until it is done

	// In is, for writes, how long after the write it is due. In Row and Open, it is how long it takes until Claim may
	// return it, if nobody renews it; 0 or less means now.
	In   time.Duration
	Life time.Duration // for writes: how long it stays its runner's without a renewal; at most a minute
}

// ID identifies a row in the feed of changes and in logs.
func (w *WorkRow) ID() string { return w.Kind + "/" + w.Key }

// A WorkClaim says what a process may begin.
type WorkClaim struct {
	WorkRow          // has Kind, Runner, RunnerPlace and Life, and as Place the one where the process is
	Gone    []string // runners that have ended without having done their work
	Except  []string // keys of rows that are left to others
	Lapsed  bool     // also what runners have not renewed in time
	Limit   int      // how many rows at most
}

// An Outcome says what becomes of a row of work. The zero Outcome removes it.
type Outcome struct {
	Result json.RawMessage // the row stays, with this result, until it is put again or removed
	Again  time.Duration   // the row is due again after this time
	Failed bool            // with Again: the claims are not counted anew
	Yield  bool            // with Again: for others, the row is due at once
}

// ErrWorkTaken reports that a row of work is no longer its runner's: another process has taken it over, or it
// was put again or removed.
var ErrWorkTaken = errors.New("another process has taken over the work")

// Work stores what processes of the project are to do. A row has at most one runner at a time, by the clock of
// the database, whichever processes claim it. Times of rows whose clock was set back end early. Changes are
// durable when a method returns. Each may return the errors of a Board, or the context's.
type Work interface {
	// Put adds a row, or replaces the one with its kind and key, even if it has a runner. With a Runner, the row
	// is that runner's from the beginning.
	Put(ctx context.Context, w *WorkRow) error
	// AskStop asks the runner of a row, or its next one, to stop. It reports false if the work has ended.
	AskStop(ctx context.Context, kind, key string) (asked bool, err error)
	// Row returns a row, or ErrNotFound.
	Row(ctx context.Context, kind, key string) (*WorkRow, error)
	// Open returns the rows that have a runner, without what they are about, and for each kind and place one
	// row, without a key, that stands for those without a runner.
	Open(ctx context.Context) ([]WorkRow, error)
	// Claim makes a process the runner of rows that nobody does any more. Those that were due first are first.
	Claim(ctx context.Context, c WorkClaim) ([]WorkRow, error)
	// Renew makes rows stay their runners' for life from now on, and stores their progress where that is not
	// nil. It returns those that still are their runners', with Kind, Key, Runner and Stop.
	Renew(ctx context.Context, life time.Duration, rows []WorkRow) ([]WorkRow, error)
	// End ends what a runner does with a row. It reports false, and does nothing, if the row is no longer the
	// runner's.
	End(ctx context.Context, w *WorkRow, o Outcome) (ended bool, err error)
	// Release lets others begin at once what some runners were doing. Those claims do not count.
	Release(ctx context.Context, runners []string) error
}
