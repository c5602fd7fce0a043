package postgres

import (
	"time"

	"deepwork/session/store"
)

const id = "0123abcd"

func sessionsOf(s *Store) store.Sessions { return s.Database().Sessions() }

// transition is a transition of a session to a revision; revision 1 begins it.
func transition(id string, revision int64) *store.SessionWrite {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := &store.SessionWrite{Before: revision - 1, Frame: "{}", Session: store.Session{ID: id, Revision: revision, Root: "/srv/shop",
		Job: "alpha", Workflow: "main", Step: "one", Status: "active", Identity: "local", StartedAt: at, UpdatedAt: at.Add(time.Duration(revision) * time.Second)}}
	if revision == 1 {
		w.Before = -1
	}
	return w
}
