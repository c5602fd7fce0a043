package storetest_test

import (
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/store"
)

// reviewsAre checks the reviews in progress of a session; Life is not read.
func reviewsAre(t testing.TB, s store.Sessions, id string, want ...store.Review) {
	t.Helper()
	got, err := s.Reviews(t.Context(), id)
	slices.SortFunc(got, func(a, b store.Review) int { return len(a.Step) - len(b.Step) })
	testkit.Must(t, err)
	equal(t, "the reviews are", got, want)
}

// expired waits until the time of a session's reviews is over by the clock of the database.
func expired(t testing.TB, s store.Sessions, id string) {
	t.Helper()
	testkit.Until(t, "the review is over", func() bool {
		all, err := s.Reviews(t.Context(), id)
		return err == nil && len(all) > 0 && !slices.ContainsFunc(all, func(r store.Review) bool { return !r.Over })
	})
}

// A review begins with a transition, is renewed by its runner, and ends with a transition.
func TestAReviewInProgress(t *testing.T) {
	a, b := twoStores(t)
	w := newSession("0123abcd")
	write(t, a, w)
	reviewsAre(t, a, w.ID)
	begins := moved(w, func(w *store.SessionWrite) {
		w.Began = &store.Review{Step: "one", Runner: "r1", Total: 3, Done: 9, Life: time.Minute}
	})
	write(t, a, begins)
	reviewsAre(t, b, w.ID, store.Review{Step: "one", Runner: "r1", Total: 3})
	another := moved(begins, func(w *store.SessionWrite) {
		w.Began = &store.Review{Step: "second", Runner: "r2", Total: 1, Life: time.Minute}
	})
	write(t, b, another)

	renewal := store.Review{Step: "one", Runner: "r1", Done: 2, Life: time.Minute}
	for name, c := range map[string]struct {
		id   string
		r    store.Review
		want bool
	}{
		"its runner":      {w.ID, renewal, true},
		"another runner":  {w.ID, store.Review{Step: "one", Runner: "r2", Done: 3, Life: time.Minute}, false},
		"another step":    {w.ID, store.Review{Step: "three", Runner: "r1", Life: time.Minute}, false},
		"another session": {"0000000f", renewal, false},
	} {
		is(t, c.want, name)(b.RenewReview(t.Context(), c.id, c.r))
	}
	reviewsAre(t, a, w.ID, store.Review{Step: "one", Runner: "r1", Total: 3, Done: 2}, store.Review{Step: "second", Runner: "r2", Total: 1})

	// Only its runner has a verdict.
	late := moved(another, func(w *store.SessionWrite) {
		w.Step, w.Verdict, w.Put = "two", &store.Review{Step: "one", Runner: "r2"}, []store.SessionPart{{Kind: "step", Key: "one", Body: "{}"}}
		w.Request = &store.Key{7}
	})
	refused(t, b, late, store.ErrReviewTaken)
	is(t, "")(b.FindRequest(t.Context(), store.Key{7}))
	late.Verdict.Runner, late.Before = "r1", 1
	refused(t, b, late, nil) // the revision is looked at first, and the review goes on
	reviewsAre(t, a, w.ID, store.Review{Step: "one", Runner: "r1", Total: 3, Done: 2}, store.Review{Step: "second", Runner: "r2", Total: 1})
	late.Before = another.Revision
	write(t, b, late)
	reviewsAre(t, a, w.ID, store.Review{Step: "second", Runner: "r2", Total: 1})
	again := moved(late, func(w *store.SessionWrite) { w.Verdict = &store.Review{Step: "one", Runner: "r1"} })
	refused(t, a, again, store.ErrReviewTaken)
	is(t, false)(a.RenewReview(t.Context(), w.ID, renewal))

	// A transition that makes a review pointless ends it, whoever runs it.
	over := moved(late, func(w *store.SessionWrite) { w.Reviewed = []string{"second", "none"} })
	write(t, a, over)
	reviewsAre(t, b, w.ID)
}

// When the time of a review is over, it can be taken up, by a transition too, and its earlier runner has lost
// it.
func TestAReviewThatIsTakenUp(t *testing.T) {
	a, b := twoStores(t)
	w := newSession("0123abcd")
	w.Began = &store.Review{Step: "one", Runner: "r1", Total: 3, Life: 10 * time.Millisecond}
	write(t, a, w)
	expired(t, b, w.ID)
	is(t, true)(a.RenewReview(t.Context(), w.ID, store.Review{Step: "one", Runner: "r1", Done: 1, Life: time.Minute}))
	reviewsAre(t, b, w.ID, store.Review{Step: "one", Runner: "r1", Total: 3, Done: 1})
	is(t, true)(a.RenewReview(t.Context(), w.ID, store.Review{Step: "one", Runner: "r1", Done: 2}))
	expired(t, b, w.ID)
	taken := moved(w, func(w *store.SessionWrite) {
		w.Began = &store.Review{Step: "one", Runner: "r2", Total: 3, Life: time.Minute}
	})
	write(t, b, taken)
	reviewsAre(t, a, w.ID, store.Review{Step: "one", Runner: "r2", Total: 3})
	is(t, false)(a.RenewReview(t.Context(), w.ID, store.Review{Step: "one", Runner: "r1", Done: 3, Life: time.Minute}))
	verdict := func(runner string) *store.SessionWrite {
		return moved(taken, func(w *store.SessionWrite) { w.Verdict = &store.Review{Step: "one", Runner: runner} })
	}
	refused(t, a, verdict("r1"), store.ErrReviewTaken)
	write(t, b, verdict("r2"))
	reviewsAre(t, a, w.ID)
}

// A runner that ends leaves its reviews, in all sessions, and no others.
func TestARunnerThatLeavesItsReviews(t *testing.T) {
	a, b := twoStores(t)
	for id, runner := range map[string]string{"00000001": "r1", "00000002": "r1", "00000003": "r2"} {
		w := newSession(id)
		w.Began = &store.Review{Step: "one", Runner: runner, Life: time.Minute}
		write(t, a, w)
	}
	testkit.Must(t, a.LeaveReviews(t.Context(), "r1"))
	testkit.Must(t, a.LeaveReviews(t.Context(), "nobody"))
	for id, want := range map[string]store.Review{
		"00000001": {Step: "one", Runner: "r1", Over: true}, "00000002": {Step: "one", Runner: "r1", Over: true}, "00000003": {Step: "one", Runner: "r2"},
	} {
		reviewsAre(t, b, id, want)
	}
}
