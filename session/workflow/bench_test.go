package workflow

import (
	"fmt"
	"testing"

	"deepwork/actor/testkit"

	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// The figures of transitions and lists, each beside a reference of the same run. Run them with
//
//	go test -run xxx -bench . ./session/workflow

// BenchmarkResumable is get_workflows in a project with 20,000 sessions, active ones, and ended ones that are
// newer than the active ones. Wanted: under 10 ms.
func BenchmarkResumable(b *testing.B) {
	for _, ended := range []bool{false, true} {
		b.Run(fmt.Sprintf("ended=%v", ended), func(b *testing.B) {
			p := newProject(b)
			p.simple("alpha")
			srv := p.open()
			c := srv.Connect("local")
			id := p.start(c, "alpha", "main").BeginStep.SessionID
			c.Close()
			s := p.record(id)
			for n := range 20_000 {
				next := *s
				next.SessionID = fmt.Sprintf("%08x", n)
				if ended && n >= keptListed {
					next.Status, next.CompletedAt = machine.Completed, &s.StartedAt
				}
				testkit.Must(b, testkit.Get(srv.records.Write(ctx, nil, store.Session{Root: p.root}, &next, &store.SessionWrite{})).Err())
			}
			c = srv.Connect("local")
			for b.Loop() {
				if r, err := c.GetWorkflows(ctx); err != nil || len(r.Resumable) != keptListed {
					b.Fatalf("%s, %v", toJSON(b, r), err)
				}
			}
		})
	}
}
