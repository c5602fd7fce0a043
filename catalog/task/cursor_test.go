package task

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestCursorsOfOtherListsAreRefused(t *testing.T) {
	b, _, p := newBoard(t)
	if err := b.SyncProjects(t.Context(), []ProjectSpec{root, {Name: "other", Repos: []RepoSpec{{Name: "a", Path: abs("a")}}}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		addTask(t, b, p, "x")
	}
	_, _, tasks, err := b.Tasks(t.Context(), p.ID, "", Page{Limit: 1})
	if err != nil || tasks == "" {
		t.Fatal(err)
	}
	_, _, projects, err := b.Projects(t.Context(), Page{Limit: 1})
	if err != nil || projects == "" {
		t.Fatal(err)
	}
	list, _, _, err := b.Projects(t.Context(), Page{Limit: 9})
	if err != nil || len(list) != 2 {
		t.Fatal(err)
	}
	other := list[0].ID
	if other == p.ID {
		other = list[1].ID
	}
	for what, err := range map[string]error{
		"status":   last(b.Tasks(t.Context(), p.ID, Todo, Page{Limit: 1, Cursor: tasks})),
		"project":  last(b.Tasks(t.Context(), other, "", Page{Limit: 1, Cursor: tasks})),
		"tasks":    last(b.Tasks(t.Context(), p.ID, "", Page{Limit: 1, Cursor: projects})),
		"projects": last(b.Projects(t.Context(), Page{Limit: 1, Cursor: tasks})),
		"repos":    last(b.Repos(t.Context(), p.ID, Page{Limit: 1, Cursor: tasks})),
		"attempts": second(b.TaskAttempts(t.Context(), p.ID, Page{Limit: 1, Cursor: tasks})),
		"garbage":  last(b.Projects(t.Context(), Page{Limit: 1, Cursor: "garbage"})),
		"long":     last(b.Projects(t.Context(), Page{Limit: 1, Cursor: strings.Repeat("ä", 10_000)})),
	} {
		if !errors.Is(err, ErrCursor) || !strings.Contains(err.Error(), "the cursor that this list's last page came with") || len(err.Error()) > 500 {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func last[T any](_ []T, _ int, _ string, err error) error { return err }

func FuzzCursor(f *testing.F) {
	list := scope("tasks", "x", "")
	good := position{"2026-03-01T11:00:00.123456Z", "32616586-b283-4707-b52a-b3e56f0eb317"}
	f.Add(good.encode(list))
	f.Add(first.encode(list))
	f.Add("")
	f.Add("=")
	for _, text := range []string{"1 " + list + " a b", "2 " + list + " " + good.createdAt + " " + good.id, "1  2026-02-30T11:00:00.123456Z " + good.id} {
		f.Add(base64.RawURLEncoding.EncodeToString([]byte(text)))
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		p, err := decode(cursor, list)
		switch {
		case err != nil:
			if !errors.Is(err, ErrCursor) || p != (position{}) {
				t.Errorf("%+v %v", p, err)
			}
		case cursor == "":
			if p != first {
				t.Errorf("%+v", p)
			}
		case p.encode(list) != cursor: // one position, one cursor
			t.Errorf("%q is %+v, which is %q", cursor, p, p.encode(list))
		}
	})
}

func TestCursorRoundTrip(t *testing.T) {
	for i, p := range []position{
		{"2026-03-01T11:00:00.123456Z", "32616586-b283-4707-b52a-b3e56f0eb317"},
		{"0001-01-01T00:00:00.000000Z", "00000000-0000-0000-0000-000000000000"},
	} {
		list := scope("tasks", fmt.Sprint(i))
		if got, err := decode(p.encode(list), list); got != p || err != nil {
			t.Errorf("%+v, want %+v; %v", got, p, err)
		}
		if _, err := decode(p.encode(list), scope("tasks")); !errors.Is(err, ErrCursor) {
			t.Error(err)
		}
	}
}
