package storetest_test

import (
	"errors"
	"slices"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
)

// Comments wait until a follow-up that has them runs: each is in one follow-up, and a queued one that
// is dropped gives its comments back.
func TestComments(t *testing.T) {
	b, _, p := newBoard(t)
	a := try(t, b, addTask(t, b, p, "one"))
	e, conversation := run(t, b)
	add := func(texts ...string) []string {
		t.Helper()
		var all []task.Comment
		for _, text := range texts {
			all = append(all, task.Comment{RepoID: "r", File: "a/b.go", Line: 7, Side: task.OldSide, Quote: "x := 1", Text: text})
		}
		ids, err := b.ChangeComments(t.Context(), a.ID, nil, all, task.Request{})
		if err != nil || len(ids) != len(texts) {
			t.Fatal(ids, err)
		}
		return ids
	}
	waits := func(when string, queued bool, want ...string) {
		t.Helper()
		all, err := b.Comments(t.Context(), a.ID)
		var got []string
		for _, c := range all {
			got = append(got, c.ID)
			equal(t, when, c.Queued, queued, c.File, "a/b.go", c.Line, 7, c.Side, task.OldSide, c.Quote, "x := 1", c.Identity, "local", c.AttemptID, a.ID)
		}
		slices.Sort(got)
		slices.Sort(want)
		testkit.Must(t, err)
		equal(t, when, got, want)
	}
	queue := func(q *task.Queued, comments ...string) error {
		_, _, err := b.Queue(t.Context(), conversation.ID, q, comments...)
		return err
	}
	words := &task.Queued{Prompt: "words"}
	one := add("one", "two")
	waits("at first", false, one...)
	fails(t, queue(words, one[0], "no such comment"), task.ErrSent)
	waits("after a refusal", false, one...)
	testkit.Must(t, queue(words))
	fails(t, queue(words, one...), task.ErrQueued)
	testkit.Must(t, errors.Join(queue(nil), queue(words, one...)))
	waits("queued", true, one...)
	fails(t, second(b.ChangeComments(t.Context(), a.ID, one[:1], nil, task.Request{})), task.ErrSent)
	testkit.Must(t, errors.Join(queue(words, one...), queue(nil))) // their own is replaced
	waits("dropped", false, one...)
	testkit.Must(t, queue(words, one...))
	more := add("three")
	next := end(t, b, e, task.Ending{State: task.Completed})
	waits("when it is to run", false, more...)
	if next == nil || next.Prompt != "words" {
		t.Fatalf("%+v", next)
	}
	e, _ = run(t, b)
	testkit.Must(t, queue(words, more...))
	end(t, b, e, task.Ending{State: task.Stopped})
	waits("after a stop", false, more...)
	fails(t, second(b.ChangeComments(t.Context(), a.ID, []string{more[0], one[0]}, nil, task.Request{})), task.ErrSent)
	waits("after a removal that is refused", false, more...)
	fails(t, second(b.AddExecution(t.Context(), conversation.ID, "p", nil, one[0])), task.ErrSent)
	latestExecution := returned(b.LatestExecution(t.Context(), a.ID)).of(t)
	equal(t, "a refused follow up added", latestExecution.ID, e.ID)
	if _, err := b.AddExecution(t.Context(), conversation.ID, "p", nil, more...); err != nil {
		t.Error(err)
	}
	waits("sent", false)
	four := add("four")
	if _, err := b.ChangeComments(t.Context(), a.ID, four, nil, task.Request{}); err != nil {
		t.Error(err)
	}
	waits("removed", false)
}

// The same request adds its comments once, and there are at most so many.
func TestCommentsAreBounded(t *testing.T) {
	b, _, p := newBoard(t)
	a := try(t, b, addTask(t, b, p, "one"))
	all := slices.Repeat([]task.Comment{{RepoID: "r", File: "f", Line: 1, Side: task.NewSide}}, task.MaxComments)
	r := task.Request{Identity: "local", Tool: "comment_attempt", RequestID: "x", ArgsDigest: "d"}
	ids, err := b.ChangeComments(t.Context(), a.ID, nil, all, r)
	again, err2 := b.ChangeComments(t.Context(), a.ID, nil, all, r)
	testkit.Must(t, err)
	equal(t, err2, nil, len(ids), len(all), ids, again)
	fails(t, second(b.ChangeComments(t.Context(), a.ID, nil, all[:1], task.Request{})), task.ErrComments)
	comments := returned(b.Comments(t.Context(), a.ID)).of(t)
	equal(t, len(comments), task.MaxComments)
}
