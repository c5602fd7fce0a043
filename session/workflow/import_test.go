package workflow

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/export"
	"deepwork/session/state"
	"deepwork/session/workflow/machine"
)

// What an export says that reviewers and people decided is kept for people to read. A step that is not finished
// is reviewed again, by both.
func TestImportedDecisionsPassNothing(t *testing.T) {
	from := newProject(t)
	from.personJob(bothStep)
	srv, rev := from.reviewed()
	c := srv.Connect("local")
	id := from.start(c, "alpha", "main").BeginStep.SessionID
	waits(t, from.finish(c, `{"outputs":{"report":"good.md"}}`))
	testkit.Must(t, srv.ReviewFor(ctx, id, "one", from.record(id).Progress("one").Question.Digest, machine.Answer{Passed: true, Identity: "ann", Channel: session.ChannelTerminal}))
	child := from.start(c, "alpha", "main").BeginStep.SessionID
	srv.stop()

	p := newProject(t)
	p.personJob(bothStep)
	for _, of := range []string{id, child} {
		text := testkit.Get(os.ReadFile(filepath.Join(from.state().Tmp(), state.ExportName(of)))).Must(t)
		p.write(filepath.Join(".deepwork", "tmp", state.ExportName(of)), string(text))
	}
	srv = p.reopen(rev)
	paths := testkit.Get(srv.Importer().All()).Must(t)
	all := testkit.Get(srv.Importer().Examine(ctx, append(paths, paths[0]))).Must(t)
	testkit.Need(t, len(all) == 3 && all[0].Err == nil && all[1].Err == nil && all[2].Err != nil && all[0].AsNow, "examined %+v, %+v, %+v", all[0], all[1], all[2])
	i := slices.IndexFunc(all, func(i *export.Import) bool { return i.State.SessionID == id })
	if got, want := export.ClaimOf(all[i].State), (export.Claim{Reviews: 1, Decisions: 1}); got != want {
		t.Errorf("it claims %+v, want %+v", got, want)
	}
	if n, err := srv.Importer().Import(ctx, all); n != 2 || err != nil {
		t.Fatalf("imported %d: %v", n, err)
	}

	now, calls := p.record(id), rev.calls()
	one := now.Progress("one")
	testkit.True(t, now.ImportedAt != nil && one.Question == nil && one.Newest().Imported && one.Newest().State == machine.TryPassed, "imported as %s", toJSON(t, now))
	if up := p.record(child).ParentSessionID; up == nil || *up != id {
		t.Errorf("the session that was nested in it has the parent %v", up)
	}
	waits(t, p.finish(srv.Connect("local"), `{"session_id":"`+id+`","outputs":{"report":"good.md"}}`))
	if rev.calls() != calls+1 {
		t.Errorf("the reviewer was called %d times more, want once", rev.calls()-calls)
	}
	r := testkit.Get(srv.Inspect(ctx)).Must(t)
	testkit.True(t, len(r.Findings) == 0, "inspected: %+v", r.Findings)
	again, err := srv.Importer().Examine(ctx, paths)
	testkit.True(t, err == nil && again[0].Err != nil && strings.Contains(again[0].Err.Error(), "in the project already"), "examined again: %+v, %v", again, err)
}

// Evidence of a finished step stays, and says that it was imported; an override that was granted and what the
// agent was shown for its own review are gone.
func TestImportedEvidenceIsMarked(t *testing.T) {
	t.Parallel()
	from := newProject(t)
	from.job("alpha", []testStep{{id: "one", outputs: oneFile, reviews: reviewedStep}, {id: "two", outputs: oneFile, reviews: reviewedStep}}, map[string]string{"main": "[one, two]"})
	from.write("good.md", "good")
	srv := from.open()
	c := srv.Connect("local")
	id := from.start(c, "alpha", "main").BeginStep.SessionID
	from.finish(c, `{"outputs":{"report":"good.md"}}`)
	from.finish(c, `{"outputs":{"report":"good.md"},"quality_review_override_reason":"reviewed"}`)
	from.finish(c, `{"outputs":{"report":"good.md"}}`)
	testkit.Must(t, srv.OverrideFor(ctx, id, "two", machine.Override{Identity: "ann", Reason: "fine"}))
	data := testkit.Get(os.ReadFile(filepath.Join(from.state().Tmp(), state.ExportName(id)))).Must(t)
	was := testkit.Get(export.Decode(data)).Must(t)
	two := was.Progress("two")
	testkit.Need(t, two.Shown != nil && two.Granted != nil, "exported %s", data)
	now := was.Imported(srv.now())
	if e := now.Progress("one").Evidence; e == nil || e.Kind != machine.BySelf || !e.Imported {
		t.Errorf("the evidence is %+v", e)
	}
	two = now.Progress("two")
	testkit.True(t, two.Shown == nil && two.Granted == nil, "it goes on with %s", toJSON(t, two))
	testkit.True(t, !was.Progress("one").Evidence.Imported && was.ImportedAt == nil, "the state that was decoded has changed")
}
