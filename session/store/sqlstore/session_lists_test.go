package sqlstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store"
)

func sessionIDs(all []store.Session) (ids []string) {
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	return ids
}

// A list has the sessions that all conditions hold for, the one that moved last first, those of equal times by their ids.
func TestListsOfSessions(t *testing.T) {
	a, b := twoStores(t)
	add := func(id string, after time.Duration, change func(w *store.SessionWrite)) {
		w := newSession(id)
		w.UpdatedAt = began.Add(after)
		change(w)
		write(t, a, w)
	}
	add("00000001", 0, func(*store.SessionWrite) {})
	add("00000003", time.Second, func(w *store.SessionWrite) { w.Identity, w.Waiting = "ann", "{}" })
	add("00000002", time.Second, func(w *store.SessionWrite) { w.Parent = "00000001" })
	add("00000004", 2*time.Second, func(w *store.SessionWrite) { w.Status, w.Parent, w.Waiting = "completed", "00000003", "{}" })
	add("00000005", 3*time.Second, func(w *store.SessionWrite) { w.Status, w.Identity = "aborted", "ann" })
	add("00000006", time.Microsecond, func(w *store.SessionWrite) { w.AttemptID, w.Root = "a1", "/worktree" })
	lists := func(q store.SessionQuery, want ...string) {
		t.Helper()
		equal(t, fmt.Sprintf("%+v", q), sessionIDs(testkit.Get(b.ListSessions(t.Context(), q)).Must(t)), want)
	}
	all := []string{"00000005", "00000004", "00000002", "00000003", "00000006", "00000001"}
	lists(store.SessionQuery{}, all...)
	lists(store.SessionQuery{Limit: 2}, all[:2]...)
	lists(store.SessionQuery{Limit: 100}, all...)
	lists(store.SessionQuery{Identity: "ann"}, "00000005", "00000003")
	lists(store.SessionQuery{Identity: "bob"})
	lists(store.SessionQuery{Active: true}, all[2:]...)
	lists(store.SessionQuery{Ended: true}, all[:2]...)
	lists(store.SessionQuery{Active: true, Ended: true})
	lists(store.SessionQuery{Active: true, Identity: "local", Limit: 1}, "00000002")
	lists(store.SessionQuery{Attempt: new(""), Active: true}, "00000002", "00000003", "00000001")
	lists(store.SessionQuery{Attempt: new("a1")}, "00000006")
	lists(store.SessionQuery{Root: "/worktree"}, "00000006")
	lists(store.SessionQuery{Waiting: true}, "00000004", "00000003")
	lists(store.SessionQuery{Active: true, Waiting: true}, "00000003")
	lists(store.SessionQuery{Parents: []string{"00000003", "0000000f", "00000001"}}, "00000004", "00000002")
	lists(store.SessionQuery{Parents: []string{}})
	lists(store.SessionQuery{IDs: []string{"00000001", "00000005", "0000000f", "00000001", "x"}}, "00000005", "00000001")
	lists(store.SessionQuery{IDs: []string{}})
	lists(store.SessionQuery{Before: began.Add(time.Second)}, "00000006", "00000001")
	lists(store.SessionQuery{Ended: true, Before: began.Add(3 * time.Second)}, "00000004")
	write(t, b, moved(newSession("00000001"), func(w *store.SessionWrite) { w.UpdatedAt = began.Add(time.Hour) }))
	lists(store.SessionQuery{Limit: 1}, "00000001") // after it moved
}

// What a session is nested in is found to the top, or what was removed. A cycle of an import ends after one round.
func TestAncestryOfASession(t *testing.T) {
	a, b := twoStores(t)
	want := func(id string, want ...string) {
		equal(t, id, sessionIDs(testkit.Get(b.Ancestry(t.Context(), id)).Must(t)), want)
	}
	want("0000000f")
	var chain []string
	nest := func(id, parent, status string) {
		w := newSession(id)
		w.Parent, w.Status = parent, status
		write(t, a, w)
		chain = append(chain, id)
	}
	for n := range 60 {
		parent := ""
		if n > 0 {
			parent = chain[n-1]
		}
		nest(fmt.Sprintf("%08x", 60-n), parent, []string{"active", "completed", "active"}[n%3])
	}
	nest("ffff0000", "00000001", "active") // beside the others
	want("00000001", chain[:60]...)
	want("ffff0000", chain...)
	want(chain[0], chain[0])
	got := testkit.Get(a.Ancestry(t.Context(), chain[1])).Must(t)
	equal(t, "the ancestry of an ended one", len(got), 2, got[1].Status, "completed", got[1].Parent, chain[0])
	testkit.Must(t, a.RemoveSessions(t.Context(), []string{chain[1]}))
	want(chain[3], chain[2:4]...)
	nest("cccc0001", "cccc0003", "active")
	nest("cccc0002", "cccc0001", "active")
	nest("cccc0003", "cccc0002", "active")
	want("cccc0001", "cccc0002", "cccc0003", "cccc0001")
	nest("dddd0001", "dddd0001", "active")
	want("dddd0001", "dddd0001")
}

func TestRemovingSessions(t *testing.T) {
	a, b := twoStores(t)
	testkit.Must(t, a.RemoveSessions(t.Context(), nil))
	key := func(n int) store.Key { return store.Key{byte(n), byte(n >> 8), 1} }
	var ids []string
	for n := range 600 { // more than are removed at once
		ids = append(ids, fmt.Sprintf("%08x", n))
		if n > 5 && n < 590 {
			continue
		}
		w := newSession(ids[n])
		w.Put, w.Request, w.Began = []store.SessionPart{{Kind: "step", Key: "one", Body: ids[n]}}, new(key(n)), &store.Review{Step: "one", Runner: "r", Life: time.Minute}
		w.Status = []string{"completed", "active"}[n%2]
		write(t, a, w)
	}
	for _, n := range []int{1, 2, 3, 100, 590, 591, 600} { // a list of many ids
		equal(t, len(testkit.Get(b.ListSessions(t.Context(), store.SessionQuery{IDs: ids[:n]})).Must(t)), min(n, 6)+max(0, n-590))
	}
	testkit.Must(t, b.RemoveSessions(t.Context(), ids))
	equal(t, "are left", sessionIDs(testkit.Get(a.ListSessions(t.Context(), store.SessionQuery{})).Must(t)), []string{"00000001", "00000003", "00000005", "0000024f", "00000251", "00000253", "00000255", "00000257"})
	for n, want := range map[int]bool{0: false, 1: true, 598: false, 599: true} {
		equal(t, n, testkit.Get(a.FindRequest(t.Context(), key(n))).Must(t) != "", want, len(testkit.Get(a.Reviews(t.Context(), ids[n])).Must(t)) == 1, want)
	}
	// Another session with the id of one that was removed has nothing of it, and its call may be made again.
	w := newSession(ids[0])
	w.Request = new(key(0))
	write(t, b, w)
	reads(t, a, w)
}

func TestASessionMovesItsAttempt(t *testing.T) {
	path, c := newPath(t)
	b, other := openAt(t, path, c.now), open(t, path, c.now)
	a, p := b.db.Sessions(), rootOf(t, b)
	attempt := func() string { return try(t, b, addTask(t, b, p, "one")).ID }
	position := func(attempt string, want ...string) {
		t.Helper()
		got := testkit.Get(b.Attempt(t.Context(), attempt)).Must(t)
		var have []string
		for _, p := range []*string{got.WorkflowSessionID, got.WorkflowStatus, got.WorkflowStep} {
			if p != nil {
				have = append(have, *p)
			}
		}
		equal(t, have, want)
	}
	begin := func(id, attempt, parent, workflow string) *store.SessionWrite {
		t.Helper()
		w := newSession(id)
		w.AttemptID, w.Parent, w.Workflow = attempt, parent, workflow
		write(t, a, w)
		return w
	}
	abort := func(w *store.SessionWrite) { w.Status = "aborted" }
	plain := attempt()
	position(plain)
	first := begin("00000001", plain, "", "main")
	position(plain, "00000001", "active", "one")
	next := moved(first, func(w *store.SessionWrite) { w.Step = "two" })
	write(t, other.Sessions(), next)
	position(plain, "00000001", "active", "two")
	refused(t, a, moved(first, func(w *store.SessionWrite) { w.Step = "late" }), nil)
	position(plain, "00000001", "active", "two")
	refused(t, a, moved(next, func(w *store.SessionWrite) {
		w.Step, w.Verdict = "late", &store.Review{Step: "two", Runner: "r1"}
	}), store.ErrReviewTaken)
	position(plain, "00000001", "active", "two")
	nested := begin("00000002", plain, "00000001", "main") // not the outermost one
	position(plain, "00000001", "active", "two")
	write(t, a, moved(nested, abort))
	position(plain, "00000001", "active", "two")
	begin("00000003", plain, "", "later")
	position(plain, "00000003", "active", "one")
	write(t, a, moved(next, abort)) // a later workflow counts
	position(plain, "00000003", "active", "one")
	ending := attempt()
	write(t, a, moved(begin("00000004", ending, "", "main"), abort))
	position(ending, "00000004", "aborted", "one")
	byName := testkit.Get(b.CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "named", JobName: new("alpha"), WorkflowName: new("build")}, task.Request{})).Must(t)
	named := try(t, b, byName).ID
	outer := begin("00000011", named, "", "main") // not the one that the task names
	position(named)
	counted := begin("00000012", named, "00000011", "build")
	position(named, "00000012", "active", "one")
	inner := begin("00000013", named, "00000012", "main")
	within := begin("00000014", named, "00000013", "build") // nested in the same workflow
	position(named, "00000012", "active", "one")
	write(t, a, moved(within, func(w *store.SessionWrite) { w.Status = "completed" }), moved(inner, abort))
	position(named, "00000012", "active", "one")
	end(t, b, testkit.Get(b.LatestExecution(t.Context(), named)).Must(t), task.Ending{State: task.Completed, Task: task.InReview})
	equal(t, "the task is, when its agent has ended early", taskOf(t, b, byName.ID).Status, task.InProgress)
	write(t, a, moved(counted, func(w *store.SessionWrite) { w.Step, w.Status = "last", "completed" }), moved(outer, abort))
	position(named, "00000012", "completed", "last")
	equal(t, "the task is, once its workflow is complete", taskOf(t, b, byName.ID).Status, task.InReview)
	// A run records its own position.
	run := led(t, b, p, "run").ID
	begin("00000021", run, "", "main")
	position(run)
	// A session goes on when its attempt was deleted.
	gone := addTask(t, b, p, "deleted")
	of := try(t, b, gone)
	kept := begin("00000031", of.ID, "", "main")
	testkit.Must(t, errors.Join(second(b.Stop(t.Context(), testkit.Get(b.LatestExecution(t.Context(), of.ID)).Must(t).ID)), b.DeleteTask(t.Context(), gone.ID)))
	last := moved(kept, abort)
	write(t, other.Sessions(), last)
	reads(t, a, last)
}

// reviewsAre checks the reviews in progress of a session; Life is not read.
func reviewsAre(t testing.TB, s store.Sessions, id string, want ...store.Review) {
	t.Helper()
	got := testkit.Get(s.Reviews(t.Context(), id)).Must(t)
	slices.SortFunc(got, func(a, b store.Review) int { return len(a.Step) - len(b.Step) })
	equal(t, "the reviews are", got, want)
}

func expired(t testing.TB, s store.Sessions, id string) {
	t.Helper()
	testkit.Until(t, "the review is over", func() bool {
		all, err := s.Reviews(t.Context(), id)
		return err == nil && len(all) > 0 && !slices.ContainsFunc(all, func(r store.Review) bool { return !r.Over })
	})
}

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
	renewed := func(id, step, runner string, done int, life time.Duration, want bool) {
		t.Helper()
		is(t, want)(b.RenewReview(t.Context(), id, store.Review{Step: step, Runner: runner, Done: done, Life: life}))
	}
	renewed(w.ID, "one", "r1", 2, time.Minute, true)
	renewed(w.ID, "one", "r2", 2, time.Minute, false)
	renewed(w.ID, "three", "r1", 2, time.Minute, false)
	renewed("0000000f", "one", "r1", 2, time.Minute, false)
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
	renewed(w.ID, "one", "r1", 2, time.Minute, false)
	// A transition that makes a review pointless ends it, whoever runs it.
	over := moved(late, func(w *store.SessionWrite) { w.Reviewed = []string{"second", "none"} })
	write(t, a, over)
	reviewsAre(t, b, w.ID)
	// When the time of a review is over, it can be taken up, by a transition too, and its earlier runner has lost it.
	w = newSession("0123abce")
	w.Began = &store.Review{Step: "one", Runner: "r1", Total: 3, Life: 10 * time.Millisecond}
	write(t, a, w)
	expired(t, b, w.ID)
	renewed(w.ID, "one", "r1", 1, time.Minute, true)
	reviewsAre(t, b, w.ID, store.Review{Step: "one", Runner: "r1", Total: 3, Done: 1})
	renewed(w.ID, "one", "r1", 2, 0, true)
	expired(t, b, w.ID)
	renewed(w.ID, "one", "r1", 2, time.Hour, true) // as if the clock was set back since
	reviewsAre(t, b, w.ID, store.Review{Step: "one", Runner: "r1", Total: 3, Done: 2, Over: true})
	taken := moved(w, func(w *store.SessionWrite) {
		w.Began = &store.Review{Step: "one", Runner: "r2", Total: 3, Life: time.Minute}
	})
	write(t, b, taken)
	reviewsAre(t, a, w.ID, store.Review{Step: "one", Runner: "r2", Total: 3})
	renewed(w.ID, "one", "r1", 3, time.Minute, false)
	verdict := func(runner string) *store.SessionWrite {
		return moved(taken, func(w *store.SessionWrite) { w.Verdict = &store.Review{Step: "one", Runner: runner} })
	}
	refused(t, a, verdict("r1"), store.ErrReviewTaken)
	write(t, b, verdict("r2"))
	reviewsAre(t, a, w.ID)
	// A runner that ends leaves its reviews, in all sessions, and no others.
	var ids []string
	for _, runner := range []string{"r1", "r2", "r1"} {
		w := newSession(fmt.Sprintf("%08x", len(ids)))
		ids = append(ids, w.ID)
		w.Began = &store.Review{Step: "one", Runner: runner, Life: time.Minute}
		write(t, a, w)
	}
	testkit.Must(t, errors.Join(a.LeaveReviews(t.Context(), "r1"), a.LeaveReviews(t.Context(), "nobody")))
	for i, id := range ids {
		reviewsAre(t, b, id, store.Review{Step: "one", Runner: []string{"r1", "r2", "r1"}[i], Over: i != 1})
	}
}
