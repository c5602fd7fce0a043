package task

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// What a task may be, and what its changes make of it.
func TestTasksAreChecked(t *testing.T) {
	for _, c := range []struct {
		change TaskChange
		lead   string
		fault  string // "" for none
	}{
		{TaskChange{Title: new("Other"), Status: new(Done), Priority: new(High)}, "", ""},
		{TaskChange{Title: new(" \t")}, "", "the title is blank"},
		{TaskChange{Status: new(Status("open"))}, "",
			`status "open" is not one of [todo inprogress inreview done cancelled]`},
		{TaskChange{Priority: new(Priority("urgent"))}, AgentLeads, `priority "urgent" is not low, normal or high`},
		{TaskChange{JobName: new("j")}, "", "workflow_name is missing"},
		{TaskChange{WorkflowName: new("w")}, "", "job_name is missing"},
		{TaskChange{JobName: new("j"), WorkflowName: new("w"), Inputs: json.RawMessage(`{"a":1}`)}, ServerLeads, ""},
		{TaskChange{}, ServerLeads, "names no workflow"},
		{TaskChange{JobName: new("j"), WorkflowName: new("w")}, "nobody", `lead "nobody" is not one of agent, server`},
		{TaskChange{JobName: new(""), WorkflowName: new("")}, AgentLeads, ""},
	} {
		err := c.change.Apply(&Task{Title: "Title", Status: Todo, Priority: Low, Lead: c.lead})
		testkit.Equal(t, errors.Is(err, ErrInvalid), c.fault != "", "%+v: %v", c.change, err)
		testkit.Contains(t, fmt.Sprint(err), cmp.Or(c.fault, "<nil>"))
	}

	was := Task{
		Title:        "Title",
		Description:  new("d"),
		Status:       Todo,
		JobName:      new("j"),
		WorkflowName: new("w"),
		Inputs:       json.RawMessage("{}"),
		Labels:       []string{"a"},
		Priority:     Normal,
	}
	now := was
	testkit.Must(t, TaskChange{}.Apply(&now))
	testkit.Same(t, now, was, "unchanged")

	none := ""
	testkit.Must(t, TaskChange{
		Description:  &none,
		JobName:      &none,
		WorkflowName: &none,
		Inputs:       json.RawMessage{},
		Labels:       []string{},
	}.Apply(&now))
	testkit.Same(t, now, Task{Title: "Title", Status: Todo, Labels: []string{}, Priority: Normal}, "cleared")
}

func TestErrorsNameTheirSubject(t *testing.T) {
	err := error(&BlockedError{"7", []Blocker{{"8", "Build", InReview}, {"9", "", ""}}})
	testkit.FailsWith(t, err, ErrBlocked)
	testkit.Equal(t, err.Error(), `task 7 depends on tasks that are not done: 8 ("Build", inreview), 9`)
	err = Missing("task", "7")
	testkit.FailsWith(t, err, ErrNotFound)
	testkit.Equal(t, err.Error(), `task "7": not found`)
	testkit.Equal(t, errors.Is(err, ErrInvalid), false)
}

func TestStatesAreOpenOrHaveEnded(t *testing.T) {
	for state, open := range map[AttemptState]bool{
		Waiting:     true,
		Starting:    true,
		Running:     true,
		Completed:   false,
		Failed:      false,
		Stopped:     false,
		Interrupted: false,
	} {
		testkit.Equal(t, state.Open(), open, "%s", state)
		testkit.Equal(t, state.Ended(), !open, "%s", state)
	}
	testkit.Equal(t, AttemptState("").Open() || AttemptState("").Ended(), false)

	made, unmade := AttemptRepo{BaseCommit: new("c")}, AttemptRepo{}
	testkit.Equal(t, (&Attempt{Repos: []AttemptRepo{made, made}}).Made(), true)
	testkit.Equal(t, (&Attempt{Repos: []AttemptRepo{made, unmade}}).Made(), false)
}

func TestPlaces(t *testing.T) {
	here := Place{"0a", "host", "/p"}
	for other, want := range map[Place]bool{
		{"0a", "renamed", "/p"}: true,
		{"0a", "host", "/q"}:    false,
		{"0b", "host", "/p"}:    false,
	} {
		testkit.Equal(t, other.Is(here), want, "%v", other)
		testkit.Equal(t, other.Elsewhere(here), !want, "%v", other)
		testkit.Equal(t, other.Key() == here.Key(), want, "%v", other)
	}
	testkit.Equal(t, Place{}.Elsewhere(here), false, "of one machine")
	testkit.Equal(t, here.Describe(), "host (0a), in /p")
}

// A page has at most as many rows as its limit, and a cursor for the rest.
func TestLists(t *testing.T) {
	for limit, want := range map[int]int{-1: 1, 0: 1, 7: 7, 100_000: 100_000, 100_001: 100_000} {
		testkit.Equal(t, testkit.Get(Page{Limit: limit}.Listing("tasks")).Must(t).Limit, want, "a limit of %d", limit)
	}

	at := func(n int) (time.Time, string) { return time.Unix(int64(n), 0), "32616586-b283-4707-b52a-b3e56f0eb317" }
	l := testkit.Get(Page{Limit: 2}.Listing("tasks")).Must(t)
	rows, next := Cut(l, []int{9, 8}, at)
	testkit.Same(t, rows, []int{9, 8})
	testkit.Equal(t, next, "", "all were read")
	rows, next = Cut(l, []int{9, 8, 7}, at)
	testkit.Same(t, rows, []int{9, 8})
	l = testkit.Get(Page{Limit: 2, Cursor: next}.Listing("tasks")).Must(t)
	testkit.Equal(t, l.CreatedAt+" "+l.ID, "1970-01-01T00:00:08.000000Z 32616586-b283-4707-b52a-b3e56f0eb317")
}

// firstCursor is the cursor of the position that a listing begins at.
func firstCursor(l Listing) string {
	l.Limit = 1
	at, _ := ParseTime(l.CreatedAt) // fails: the cursor is another
	_, next := Cut(l, []int{1, 2}, func(int) (time.Time, string) { return at, l.ID })
	return next
}

func FuzzCursor(f *testing.F) {
	list, err := Page{}.Listing("tasks", "x", "")
	testkit.Must(f, err)
	good := Listing{
		CreatedAt: "2026-03-01T11:00:00.123456Z",
		ID:        "32616586-b283-4707-b52a-b3e56f0eb317",
		list:      list.list,
	}
	early := Listing{
		CreatedAt: "0001-01-01T00:00:00.000000Z",
		ID:        "00000000-0000-0000-0000-000000000000",
		list:      list.list,
	}
	for _, l := range []Listing{good, early} {
		got, err := Page{Cursor: firstCursor(l)}.Listing("tasks", "x", "")
		got.Limit = 0
		testkit.Equal(f, got, l, "%v", err)
		testkit.FailsWith(f, testkit.Get(Page{Cursor: firstCursor(l)}.Listing("tasks")).Err(), ErrCursor)
		f.Add(firstCursor(l))
	}

	// clients have such cursors
	testkit.Equal(f, firstCursor(good),
		"MSBmYjc5Y2MwNTQ0NzEgMjAyNi0wMy0wMVQxMTowMDowMC4xMjM0NTZaIDMyNjE2NTg2LWIyODMtNDcwNy1iNTJhLWIzZTU2ZjBlYjMxNw")
	f.Add("")
	f.Add("=")
	for _, text := range []string{string(list.list) + "a b", "2" + string(list.list[1:]) + good.CreatedAt + " " +
		good.ID, string(list.list) + "2026-02-30T11:00:00.123456Z " + good.ID} {
		f.Add(base64.RawURLEncoding.EncodeToString([]byte(text)))
	}

	f.Fuzz(func(t *testing.T, cursor string) {
		l, err := Page{Cursor: cursor}.Listing("tasks", "x", "")
		switch {
		case err != nil:
			testkit.FailsWith(t, err, ErrCursor, "%+v", l)
		case cursor == "":
			testkit.Equal(t, l, list)
		default: // one position, one cursor
			testkit.Equal(t, firstCursor(l), cursor)
		}
	})
}

func TestCycle(t *testing.T) {
	on := map[string][]string{"a": {"b", "c"}, "b": {"d"}, "c": {"d", "a"}, "d": {"e"}, "e": {"d"}}
	for id, want := range map[string][]string{"a": {"a", "c", "a"}, "b": nil, "d": {"d", "e", "d"}, "z": nil} {
		testkit.Same(t, Cycle(id, on), want, "%s", id)
	}
	testkit.Equal(t, Cyclic(on), "d", "is said to be on a cycle")
	testkit.Equal(t, Cyclic(map[string][]string{"a": {"b"}, "b": {"d"}, "d": {"e"}, "e": {"d"}}), "d",
		"is said to be on a cycle")

	// A graph with 2^60 ways is looked at once per task.
	wide := map[string][]string{}
	for i := range 60 {
		wide[fmt.Sprint("l", i)] = []string{fmt.Sprint("r", i+1), fmt.Sprint("l", i+1)}
		wide[fmt.Sprint("r", i)] = []string{fmt.Sprint("r", i+1), fmt.Sprint("l", i+1)}
	}
	testkit.Same(t, Cycle("l0", wide), nil)
	testkit.Equal(t, Cyclic(wide), "")
}
