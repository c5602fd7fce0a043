package sqlstore_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/actor/xslices"
	"deepwork/session/store"
)

const soon = 10 * time.Millisecond

func twoWorks(t *testing.T) (one, two store.Work, sessions store.Sessions) {
	path, c := newPath(t)
	a := open(t, path, c.now)
	return a.Work(), open(t, path, c.now).Work(), a.Sessions()
}

// workOf is a row of work as it is read; of a runner, if one is given.
func workOf(key, runner string) *store.WorkRow {
	w := &store.WorkRow{Kind: "count", Key: key, About: json.RawMessage(`{"to": 3}`), Runner: runner}
	if runner != "" {
		w.Claims = 1
	}
	return w
}

// put puts a row, for its runner's life if it has one.
func put(t testing.TB, s store.Work, w *store.WorkRow, life time.Duration) {
	t.Helper()
	w.Life = life
	testkit.Must(t, s.Put(t.Context(), w))
	w.Life = 0
}

func rowIs(t testing.TB, s store.Work, want *store.WorkRow) {
	t.Helper()
	got, err := deref(s.Row(t.Context(), want.Kind, want.Key))
	got.In = 0
	is(t, *want, want.Key)(got, err)
}

func deref[T any](p *T, err error) (v T, _ error) {
	if p != nil {
		v = *p
	}
	return v, err
}

// claimOf claims all work that is due for a runner, and returns its keys.
func claimOf(t testing.TB, s store.Work, runner string, c store.WorkClaim) (keys []string) {
	t.Helper()
	c.Kind, c.Runner, c.Life, c.Lapsed = "count", runner, time.Minute, true
	if c.Limit == 0 {
		c.Limit = 100
	}
	all := testkit.Get(s.Claim(t.Context(), c)).Must(t)
	keys = xslices.Map(all, func(w store.WorkRow) string { return w.Key })
	slices.Sort(keys)
	return keys
}

func TestWorkIsPutClaimedAndEnded(t *testing.T) {
	a, b, _ := twoWorks(t)
	testkit.FailsWith(t, second(a.Row(t.Context(), "count", "x")), store.ErrNotFound)
	put(t, a, workOf("x", ""), 0)
	rowIs(t, b, workOf("x", ""))
	testkit.FailsWith(t, second(b.Row(t.Context(), "another", "x")), store.ErrNotFound)

	claim := store.WorkClaim{Limit: 1, WorkRow: store.WorkRow{
		Kind: "count", Place: "here", Runner: "r1", RunnerPlace: "here", Life: time.Minute,
	}}
	mine := workOf("x", "r1")
	mine.RunnerPlace = "here"
	is(t, []store.WorkRow{*mine})(a.Claim(t.Context(), claim))
	equal(t, claimOf(t, b, "r2", store.WorkClaim{}), nil)

	// Its runner renews it, with its progress; nobody else does.
	mine.Progress = json.RawMessage(`{"at": 2}`)
	held := []store.WorkRow{{Kind: "count", Key: "x", Runner: "r1"}}
	is(t, held)(a.Renew(t.Context(), time.Minute, []store.WorkRow{*mine}))
	rowIs(t, b, mine)
	is(t, []store.WorkRow(nil))(b.Renew(t.Context(), time.Minute, []store.WorkRow{*workOf("x", "r2")}))

	is(t, true)(b.AskStop(t.Context(), "count", "x"))
	is(t, false)(b.AskStop(t.Context(), "count", "none"))
	held[0].Stop = true
	is(t, held)(a.Renew(t.Context(), time.Minute, []store.WorkRow{*workOf("x", "r1")}))

	// Only its runner ends it, and once.
	done := store.Outcome{Result: json.RawMessage(`{"sum": 6}`)}
	is(t, false)(b.End(t.Context(), workOf("x", "r2"), done))
	is(t, true)(a.End(t.Context(), workOf("x", "r1"), done))
	is(t, false)(a.End(t.Context(), workOf("x", "r1"), done))
	is(t, false)(a.AskStop(t.Context(), "count", "x"))
	mine.Progress, mine.Stop, mine.Result = nil, true, done.Result
	rowIs(t, b, mine)
	equal(t, "work that is done is claimed", claimOf(t, b, "r2", store.WorkClaim{}), nil)

	// It is put again, and is then to be done once more.
	put(t, b, workOf("x", ""), 0)
	rowIs(t, a, workOf("x", ""))
	equal(t, claimOf(t, b, "r2", store.WorkClaim{}), []string{"x"})
	is(t, true)(b.End(t.Context(), workOf("x", "r2"), store.Outcome{}))
	testkit.FailsWith(t, second(a.Row(t.Context(), "count", "x")), store.ErrNotFound)
}

// What is put again while it is done is no longer its runner's: how the earlier one ended is not recorded.
func TestWorkThatIsPutAgainIsAnother(t *testing.T) {
	a, _, _ := twoWorks(t)
	put(t, a, workOf("x", "r1"), time.Minute)
	put(t, a, workOf("x", ""), 0)
	is(t, false)(a.End(t.Context(), workOf("x", "r1"), store.Outcome{Result: json.RawMessage(`1`)}))
	is(t, []store.WorkRow(nil))(a.Renew(t.Context(), time.Minute, []store.WorkRow{*workOf("x", "r1")}))
	equal(t, claimOf(t, a, "r1-again", store.WorkClaim{}), []string{"x"})
}

func TestWorkIsDoneWhenItIsDueAndWhereItMayBe(t *testing.T) {
	a, b, _ := twoWorks(t)
	later, here := workOf("later", ""), workOf("here", "")
	later.In, here.Place = time.Hour, "here"
	put(t, a, later, 0)
	put(t, a, here, 0)
	there := store.WorkClaim{WorkRow: store.WorkRow{Place: "there"}}
	equal(t, "work of another place is claimed", claimOf(t, b, "r1", there), nil)
	there.Place = "here"
	equal(t, claimOf(t, b, "r1", there), []string{"here"})

	open := testkit.Get(a.Open(t.Context())).Must(t)
	slices.SortFunc(open, func(x, y store.WorkRow) int { return len(x.Key) - len(y.Key) })
	equal(t, len(open), 2, open[0].Key, "", open[0].Kind, "count", open[0].Place, "", open[0].In > 59*time.Minute, true,
		open[1].Key, "here", open[1].Place, "here", open[1].Runner, "r1", open[1].In > 50*time.Second, true)

	// It is done again after a time, and its claims are counted anew unless it has failed.
	is(t, true)(a.End(t.Context(), &store.WorkRow{Kind: "count", Key: "here", Runner: "r1"},
		store.Outcome{Again: time.Millisecond, Failed: true}))
	testkit.Until(t, "it is due again", func() bool { return len(claimOf(t, b, "r2", there)) == 1 })
	equal(t, testkit.Get(a.Row(t.Context(), "count", "here")).Must(t).Claims, 2)
	is(t, true)(a.End(t.Context(), &store.WorkRow{Kind: "count", Key: "here", Runner: "r2"},
		store.Outcome{Again: time.Hour}))
	equal(t, testkit.Get(a.Row(t.Context(), "count", "here")).Must(t).Claims, 0)
	equal(t, claimOf(t, b, "r3", there), nil)
}

// What nobody does any more is taken over: at once if its runner is known to be gone or has released it, else
// when its time is over.
func TestWorkIsTakenOver(t *testing.T) {
	a, b, _ := twoWorks(t)
	put(t, a, workOf("gone", "r1"), time.Minute)
	put(t, a, workOf("lives", "r2"), time.Minute)
	put(t, a, workOf("released", "r3"), time.Minute)
	put(t, a, workOf("late", "r4"), soon)
	equal(t, claimOf(t, b, "r6", store.WorkClaim{Gone: []string{"r0", "r1"}, Limit: 1}), []string{"gone"})
	testkit.Must(t, a.Release(t.Context(), []string{"r3", "r5"}))
	equal(t, "what is late is claimed by one that waits", testkit.Get(b.Claim(t.Context(), store.WorkClaim{
		WorkRow: store.WorkRow{Kind: "count", Runner: "r6", Life: time.Minute}, Limit: 100,
	})).Must(t)[0].Key, "released")
	var taken []string
	testkit.Until(t, "the time is over", func() bool {
		taken = append(taken, claimOf(t, b, "r6", store.WorkClaim{Gone: []string{"r1"}})...)
		return len(taken) > 0
	})
	equal(t, taken, []string{"late"})
	of := func(key string) *store.WorkRow { return testkit.Get(a.Row(t.Context(), "count", key)).Must(t) }
	equal(t, of("gone").Claims, 2, of("gone").Runner, "r6", of("lives").Claims, 1, of("lives").Runner, "r2")
	equal(t, of("released").Claims, 1)
}

// Work whose time is far ahead, since the clock was set back, is its runner's for one life more.
func TestWorkAfterTheClockWasSetBack(t *testing.T) {
	a, b, _ := twoWorks(t)
	put(t, a, workOf("x", "r1"), time.Hour)
	open := testkit.Get(a.Open(t.Context())).Must(t)
	equal(t, len(open), 1, open[0].In, 0)
	equal(t, claimOf(t, b, "r2", store.WorkClaim{}), nil)
	open = testkit.Get(a.Open(t.Context())).Must(t)
	equal(t, len(open), 1, open[0].In > 50*time.Second && open[0].In <= time.Minute, true)
	is(t, 1)(lenOf(a.Renew(t.Context(), soon, []store.WorkRow{*workOf("x", "r1")})))
}

func lenOf[T any](all []T, err error) (int, error) { return len(all), err }

// Many processes claim at once: each row has one runner.
func TestWorkersClaimNoKeyTwice(t *testing.T) {
	a, b, _ := twoWorks(t)
	for i := range 60 {
		put(t, a, workOf(fmt.Sprint(i), ""), 0)
	}
	all := slices.Concat(atOnce(12, func(i int) (keys []string) {
		of := []store.Work{a, b}[i%2]
		for n := 0; len(keys) < 60; n++ {
			got, err := of.Claim(t.Context(), store.WorkClaim{Limit: 3, WorkRow: store.WorkRow{
				Kind: "count", Runner: fmt.Sprintf("r%d-%d", i, n), Life: time.Minute,
			}})
			if err != nil {
				t.Error(err)
			}
			if len(got) == 0 {
				break
			}
			keys = append(keys, xslices.Map(got, func(w store.WorkRow) string { return w.Key })...)
		}
		return keys
	})...)
	all = append(all, claimOf(t, a, "rest", store.WorkClaim{})...) // those that others had locked
	slices.Sort(all)
	equal(t, "claimed", len(all), 60, len(slices.Compact(all)), 60)
}

// A transition of a session puts rows and removes them, or neither happens.
func TestWorkOfATransition(t *testing.T) {
	a, b, s := twoWorks(t)
	w := newSession("0123abcd")
	write(t, s, w)
	mine := workOf("0123abcd/one", "r1")
	mine.Life = time.Minute
	w = moved(w, func(w *store.SessionWrite) { w.PutWork = []store.WorkRow{*mine, *workOf("\x00", "")} })
	is(t, true)(s.WriteSession(t.Context(), w))
	mine.Life = 0
	rowIs(t, b, mine)
	rowIs(t, b, workOf("\x00", ""))
	in := testkit.Get(b.Row(t.Context(), "count", mine.Key)).Must(t).In
	testkit.True(t, in > time.Second && in <= time.Minute, "a row with a runner is free in %v", in)
	in = testkit.Get(b.Row(t.Context(), "count", "\x00")).Must(t).In
	testkit.True(t, in <= 0, "a row without one is free in %v", in)

	other := moved(w, func(w *store.SessionWrite) { w.EndWork = []store.WorkRow{*workOf("0123abcd/one", "r2")} })
	testkit.FailsWith(t, second(s.WriteSession(t.Context(), other)), store.ErrWorkTaken)
	rowIs(t, b, mine)
	late := moved(w, func(w *store.SessionWrite) { w.EndWork = []store.WorkRow{*mine} })
	late.Before--
	is(t, false)(s.WriteSession(t.Context(), late))
	rowIs(t, b, mine)

	next := workOf("0123abcd/two", "r1")
	next.Life = time.Minute
	w = moved(w, func(w *store.SessionWrite) {
		w.EndWork = []store.WorkRow{*mine, *workOf("none", ""), *workOf("\x00", "")}
		w.PutWork = []store.WorkRow{*next}
	})
	is(t, true)(s.WriteSession(t.Context(), w))
	next.Life = 0
	rowIs(t, a, next)
	for _, key := range []string{mine.Key, "\x00"} {
		testkit.FailsWith(t, second(a.Row(t.Context(), "count", key)), store.ErrNotFound)
	}
}
