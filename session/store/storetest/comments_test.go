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
			if c.Queued != queued || c.File != "a/b.go" || c.Line != 7 || c.Side != task.OldSide || c.Quote != "x := 1" || c.Identity != "local" || c.AttemptID != a.ID {
				t.Errorf("%s: %+v", when, c)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s %v wait, want %v %v", when, got, want, err)
		}
	}
	queue := func(q *task.Queued, comments ...string) error {
		_, _, err := b.Queue(t.Context(), conversation.ID, q, comments...)
		return err
	}
	words := &task.Queued{Prompt: "words"}
	one := add("one", "two")
	waits("at first", false, one...)
	if err := queue(words, one[0], "no such comment"); !errors.Is(err, task.ErrSent) {
		t.Error("a comment that is not there is queued:", err)
	}
	waits("after a refusal", false, one...)
	testkit.Must(t, queue(words))
	if err := queue(words, one...); !errors.Is(err, task.ErrQueued) {
		t.Error("another follow-up is replaced:", err)
	}
	testkit.Must(t, errors.Join(queue(nil), queue(words, one...)))
	waits("queued", true, one...)
	if _, err := b.ChangeComments(t.Context(), a.ID, one[:1], nil, task.Request{}); !errors.Is(err, task.ErrSent) {
		t.Error("a queued one is removed:", err)
	}
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
	if _, err := b.ChangeComments(t.Context(), a.ID, []string{more[0], one[0]}, nil, task.Request{}); !errors.Is(err, task.ErrSent) {
		t.Error(err)
	}
	waits("after a removal that is refused", false, more...)
	if _, err := b.AddExecution(t.Context(), conversation.ID, "p", nil, one[0]); !errors.Is(err, task.ErrSent) {
		t.Error("one is sent twice:", err)
	}
	if x, err := b.LatestExecution(t.Context(), a.ID); err != nil || x.ID != e.ID {
		t.Error("a refused follow-up was added", err)
	}
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
	if err != nil || err2 != nil || len(ids) != len(all) || !slices.Equal(ids, again) {
		t.Error(len(ids), len(again), err, err2)
	}
	if _, err := b.ChangeComments(t.Context(), a.ID, nil, all[:1], task.Request{}); !errors.Is(err, task.ErrComments) {
		t.Error(err)
	}
	if got, err := b.Comments(t.Context(), a.ID); err != nil || len(got) != task.MaxComments {
		t.Error(len(got), err)
	}
}
