package workflow

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/store"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/workflow/machine"
)

// silentOwner is asked, and does not answer.
type silentOwner struct{ store.Requests }

func (silentOwner) Ask(context.Context, store.Request) (json.RawMessage, error) {
	return nil, store.ErrNotAnswered
}

func TestArchive(t *testing.T) {
	p := newProject(t)
	a, err := OpenArchive(p.state(), p.stores(), nil)
	testkit.Must(t, err)
	if list, err := a.List(ctx); err != nil || len(list) != 0 {
		t.Errorf("an empty project has %v, %v", list, err)
	}
	if _, err := os.Stat(filepath.Join(p.root, ".deepwork")); err == nil {
		t.Error("reading made a folder")
	}
	p.simple("alpha")
	p.write("r.md", "x")
	srv := p.open()
	c := srv.Connect("local")
	done := p.start(c, "alpha", "main").BeginStep.SessionID
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	p.finish(c, `{"outputs":{"report":"r.md"}}`)
	open := p.start(c, "alpha", "main").BeginStep.SessionID

	list, err := a.List(ctx)
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	if i := list[0]; i.SessionID != open || i.Status != "active" || i.Step != "one" || !i.OwnerAlive || !strings.Contains(i.OwnerText, "pid") || i.Identity != "local" {
		t.Errorf("listed %+v", i)
	}
	if i := list[1]; i.SessionID != done || i.Status != "completed" || i.OwnerAlive {
		t.Errorf("listed %+v", i)
	}
	raw, err := a.Show(ctx, done)
	var shown machine.State
	if err != nil || json.Unmarshal(raw, &shown) != nil || shown.SessionID != done || shown.Status != machine.Completed {
		t.Errorf("shown %s, %v", raw, err)
	}
	_, err = a.Show(ctx, "../../x")
	refused(t, err, session.ToolError, "bad_session_id")
	silent := silentOwner{}
	refused(t, a.Abort(ctx, open, "r", silent), session.StateError, "session_owned", "pid", "not answered yet")
	refused(t, a.Abort(ctx, done, "r", silent), session.StateError, "session_ended")
	srv.stop()
	testkit.Must(t, a.Abort(ctx, open, "by hand", silent))
	if s := p.record(open); s.Status != machine.Aborted || *s.AbortReason != "by hand" {
		t.Errorf("record %s", toJSON(t, s))
	}
	if ids, n, err := a.Prune(ctx, time.Now().Add(-time.Hour), false); err != nil || len(ids) != 0 || n != 0 {
		t.Errorf("pruned %v, %d definitions, %v", ids, n, err)
	}
	for _, dryRun := range []bool{true, false} {
		if ids, n, err := a.Prune(ctx, time.Now().Add(time.Hour), dryRun); err != nil || len(ids) != 2 || n != 0 {
			t.Errorf("pruned %v, %d definitions, %v", ids, n, err)
		}
	}
	if !pgtest.OnPostgres() {
		pruneDefinitions(t, p, a)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// pruneDefinitions prunes the definitions in files that no session of p needs, once they are too old to
// be those of a session that is being started.
func pruneDefinitions(t *testing.T, p *project, a *Archive) {
	t.Helper()
	kept, err := os.ReadDir(p.state().Definitions())
	if err != nil || len(kept) == 0 {
		t.Fatalf("the definitions are %v, %v", kept, err)
	}
	for _, d := range kept {
		old := time.Now().Add(-3 * time.Hour)
		testkit.Must(t, os.Chtimes(filepath.Join(p.state().Definitions(), d.Name()), old, old))
	}
	if ids, n, err := a.Prune(t.Context(), time.Now().Add(-720*time.Hour), false); err != nil || len(ids) != 0 || n != len(kept) {
		t.Errorf("pruned %v, %d definitions of %d, %v", ids, n, len(kept), err)
	}
}
