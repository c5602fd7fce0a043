package task

import (
	"encoding/base64"
	"errors"
	"fmt"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// again is the cursor of the position that a listing begins at.
func again(l Listing) string {
	l.Limit = 1
	at, _ := ParseTime(l.CreatedAt) // fails: the cursor is another
	_, next := Cut(l, []int{1, 2}, func(int) (time.Time, string) { return at, l.ID })
	return next
}

func FuzzCursor(f *testing.F) {
	list, err := Page{}.Listing("tasks", "x", "")
	if err != nil {
		f.Fatal(err)
	}
	good := Listing{CreatedAt: "2026-03-01T11:00:00.123456Z", ID: "32616586-b283-4707-b52a-b3e56f0eb317", list: list.list}
	early := Listing{CreatedAt: "0001-01-01T00:00:00.000000Z", ID: "00000000-0000-0000-0000-000000000000", list: list.list}
	for _, l := range []Listing{good, early} {
		got, err := Page{Cursor: again(l)}.Listing("tasks", "x", "")
		if got.Limit = 0; got != l || err != nil {
			f.Errorf("%+v, want %+v; %v", got, l, err)
		}
		if _, err := (Page{Cursor: again(l)}).Listing("tasks"); !errors.Is(err, ErrCursor) {
			f.Error(err)
		}
		f.Add(again(l))
	}
	if again(good) != "MSBmYjc5Y2MwNTQ0NzEgMjAyNi0wMy0wMVQxMTowMDowMC4xMjM0NTZaIDMyNjE2NTg2LWIyODMtNDcwNy1iNTJhLWIzZTU2ZjBlYjMxNw" { // clients have such cursors
		f.Error(again(good))
	}
	f.Add("")
	f.Add("=")
	for _, text := range []string{string(list.list) + "a b", "2" + string(list.list[1:]) + good.CreatedAt + " " + good.ID, string(list.list) + "2026-02-30T11:00:00.123456Z " + good.ID} {
		f.Add(base64.RawURLEncoding.EncodeToString([]byte(text)))
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		l, err := Page{Cursor: cursor}.Listing("tasks", "x", "")
		switch {
		case err != nil:
			testkit.FailsWith(t, err, ErrCursor, "%+v", l)
		case cursor == "":
			testkit.Equal(t, l, list)
		case again(l) != cursor: // one position, one cursor
			t.Errorf("%q is %+v, which is %q", cursor, l, again(l))
		}
	})
}

func TestCycle(t *testing.T) {
	on := map[string][]string{"a": {"b", "c"}, "b": {"d"}, "c": {"d", "a"}, "d": {"e"}, "e": {"d"}}
	for id, want := range map[string][]string{"a": {"a", "c", "a"}, "b": nil, "d": {"d", "e", "d"}, "z": nil} {
		testkit.Same(t, Cycle(id, on), want, "%s", id)
	}
	testkit.Equal(t, Cyclic(on), "d", "is said to be on a cycle")
	testkit.Equal(t, Cyclic(map[string][]string{"a": {"b"}, "b": {"d"}, "d": {"e"}, "e": {"d"}}), "d", "is said to be on a cycle")
	// A graph with 2^60 ways is looked at once per task.
	wide := map[string][]string{}
	for i := range 60 {
		wide[fmt.Sprint("l", i)] = []string{fmt.Sprint("r", i+1), fmt.Sprint("l", i+1)}
		wide[fmt.Sprint("r", i)] = []string{fmt.Sprint("r", i+1), fmt.Sprint("l", i+1)}
	}
	if got, on := Cycle("l0", wide), Cyclic(wide); got != nil || on != "" {
		t.Error(got, on)
	}
}
