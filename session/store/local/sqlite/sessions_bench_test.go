package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/store"
)

// transition is the transition of a session of 25 steps to a revision: it ends a step, begins the next one
// and stores its reply.
func transition(id string, revision int64) *store.SessionWrite {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(revision) * time.Second)
	text := strings.Repeat("step wrote output.md; ", 60)
	w := &store.SessionWrite{Before: revision - 1, Frame: text[:1<<10], Session: store.Session{ID: id, Revision: revision, Root: "/srv/shop",
		Job: "alpha", Workflow: "main", Step: "one", Status: "active", Identity: "local", StartedAt: at, UpdatedAt: at}}
	if revision == 1 {
		w.Before = -1
	}
	step := revision % 25
	w.Put = []store.SessionPart{
		{Kind: "step", Key: fmt.Sprint(step), Position: step, Body: text[:300]}, {Kind: "step", Key: fmt.Sprint(step + 1), Position: step + 1, Body: text[:100]},
		{Kind: "reply", Key: fmt.Sprint(revision), Position: revision, Body: text[:1200]},
	}
	w.Gone = []store.SessionPart{{Kind: "reply", Key: fmt.Sprint(revision - 2)}}
	return w
}

// BenchmarkTransition measures one transition after the other, and beside it a write of 4 KB that is synced.
func BenchmarkTransition(b *testing.B) {
	dir := b.TempDir()
	board := openAt(b, filepath.Join(dir, "board.db"), noon)
	sessions := board.Sessions()
	f, err := os.Create(filepath.Join(dir, "plain"))
	testkit.Must(b, err)
	defer f.Close()
	page := make([]byte, 4<<10)
	var moved, written time.Duration
	for n := int64(1); b.Loop(); n++ { // in turns, so that both meet the same machine
		begun := time.Now()
		if ok, err := sessions.WriteSession(b.Context(), transition("0123abcd", n)); !ok || err != nil {
			b.Fatal(ok, err)
		}
		moved += time.Since(begun)
		begun = time.Now()
		if _, err := f.WriteAt(page, n%64*int64(len(page))); err != nil {
			b.Fatal(err)
		}
		testkit.Must(b, f.Sync())
		written += time.Since(begun)
	}
	b.ReportMetric(float64(moved.Microseconds())/float64(b.N), "µs/transition")
	b.ReportMetric(float64(written.Microseconds())/float64(b.N), "µs/write")
	b.ReportMetric(float64(moved)/float64(written), "ratio")
}

// BenchmarkReadSession reads a session whose revision is known, and a whole one.
func BenchmarkReadSession(b *testing.B) {
	board := openAt(b, filepath.Join(b.TempDir(), "board.db"), noon)
	sessions := board.Sessions()
	for n := range int64(25) {
		testkit.Must(b, second(sessions.WriteSession(b.Context(), transition("0123abcd", n+1))))
	}
	for name, known := range map[string]int64{"known": 25, "whole": -1} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r, err := sessions.ReadSession(b.Context(), "0123abcd", known)
				if err != nil || r.Revision != 25 {
					b.Fatal(r, err)
				}
			}
		})
	}
}
