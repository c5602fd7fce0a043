package workflow

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/export"
	"deepwork/session/workflow/machine"
)

// A person sees what was handed in, what has changed since they failed it, and nothing that was not handed in.
func TestWhatAPersonJudges(t *testing.T) {
	p := newProject(t).alpha("[one, two]", testStep{id: "one", outputs: "{report: {type: files, description: R, required: true}}", reviews: humanStep}, testStep{id: "two"})
	srv, c, id := p.begin()
	shown := func() *HandIn { t.Helper(); return testkit.Get(srv.HandIn(ctx, id, "one")).Must(t) }
	handIn := func(names string) map[string]HandedFile {
		t.Helper()
		waits(t, p.finish(c, `{"outputs":{"report":["`+strings.ReplaceAll(names, " ", `","`)+`"]}}`))
		all := map[string]HandedFile{}
		for _, f := range shown().Files {
			testkit.Equal(t, f.Full, filepath.Join(p.root, f.Path), "its path")
			all[f.Path] = f
		}
		return all
	}
	answer := func(passed bool) {
		t.Helper()
		testkit.Must(t, p.atTerminal(id, "one", p.question(id, "one").Digest, passed, "Again"))
	}
	testkit.WriteAll(t, p.root, map[string]string{"a.md": "one\ntwo\n", "same.json": "{}", "b.png": "\x89PNG\x0d\x0a\x1a\x0a0000", "c.bin": "\x00",
		"d.html": "<script>x</script>", "big.txt": strings.Repeat("x", maxHandedText+1)})
	testkit.Must(t, os.Truncate(filepath.Join(p.root, "big.txt"), 100<<20))
	first := handIn("a.md same.json b.png c.bin d.html big.txt")
	for path, want := range map[string]struct {
		kind FileKind
		note string
	}{
		"a.md": {MarkdownFile, ""}, "same.json": {JSONFile, ""}, "b.png": {ImageFile, ""}, "d.html": {CodeFile, ""},
		"c.bin": {BinaryFile, "not text"}, "big.txt": {BinaryFile, "too large"},
	} {
		f := first[path]
		testkit.True(t, f.Kind == want.kind && (f.Note == "") == (want.note == "") && strings.Contains(f.Note, want.note) && (f.Text != "") == (want.note == "" && f.Kind != ImageFile) && f.Diff == "",
			"%s: %s, %q, %d bytes of text, want %s %q", path, f.Kind, f.Note, len(f.Text), want.kind, want.note)
	}
	hidden := func(note string) {
		t.Helper()
		f := shown().Files[1]
		testkit.True(t, f.Text == "" && strings.Contains(f.Note, note), "%+v, want %s", f, note)
	}
	same := filepath.Join(p.root, "same.json")
	p.write("same.json", "[]")
	hidden("changed after it was handed in")
	testkit.Must(t, os.Remove(same))
	testkit.Must(t, os.Symlink("/etc/passwd", same))
	hidden("outside the project")
	testkit.Must(t, os.Remove(same))
	p.write("same.json", "{}")
	answer(false)
	n := len(testkit.Get(srv.records.Judged(ctx, id, "one")).Must(t))
	testkit.True(t, n != 0 && n <= 3000, "%d bytes are kept", n)

	testkit.WriteAll(t, p.root, map[string]string{"a.md": "one\nthree\n", "c.bin": "text now", "new.md": "new"})
	second := handIn("a.md same.json c.bin new.md")
	testkit.Equal(t, second["a.md"].Diff, "--- last review\n+++ now\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n", "the diff")
	for path, want := range map[string]string{"same.json": "as it was", "c.bin": "not known", "new.md": "is new"} {
		f := second[path]
		testkit.True(t, f.Diff == "" && strings.Contains(f.Note, want), "%s: %q, %q", path, f.Note, f.Diff)
	}
	testkit.Equal(t, strings.Join(shown().Gone, " "), "b.png d.html big.txt", "what is gone")
	brief := shown().Brief()
	testkit.True(t, strings.Contains(brief, "| -two\n    | +three\n") && !strings.Contains(brief, " one\nthree"), "in short: %s", brief)
	answer(true)
	says(t, p.finish(c, `{"outputs":{"report":["a.md","same.json","c.bin","new.md"]}}`), machine.NextStep)
}

// The changes are to the hand-in that a person failed last; if nobody did, to the last one, whoever refused it, beside
// the whole content. What is kept for that is dropped when the session ends.
func TestWhatAHandInIsComparedWith(t *testing.T) {
	p, srv, _, c, id := underJudgement(t, bothStep, Reviewing{External: true, MaxTries: 9, ReplyWithin: time.Minute})
	handIn := func(text string) *machine.FinishReply {
		t.Helper()
		p.write("r.md", text+"\n")
		return p.finish(c, `{"outputs":{"report":"r.md"}}`)
	}
	shows := func(of, was, text string) {
		t.Helper()
		waits(t, handIn(text))
		h := testkit.Get(srv.HandIn(ctx, id, "one")).Must(t)
		testkit.Equal(t, h.Since(), "last "+of, text)
		testkit.Equal(t, h.Files[0].Diff, fmt.Sprintf("--- last %s\n+++ now\n@@ -1,1 +1,1 @@\n-%s\n+%s\n", of, was, text), text)
		testkit.Equal(t, strings.Contains(h.Brief(), "| "+text), !h.Judged, "the content, in short")
	}
	answer := func(passed bool) {
		t.Helper()
		testkit.Must(t, p.atTerminal(id, "one", p.question(id, "one").Digest, passed, "Again"))
	}
	handIn("CONTENT OF bad.md")
	shows("hand-in", "CONTENT OF bad.md", "second")
	shows("hand-in", "second", "third")
	answer(false)
	handIn("third")
	handIn("CONTENT OF worse.md")
	shows("review", "third", "fifth")
	answer(true)
	says(t, handIn("fifth"), machine.NextStep)
	testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "one"})))
	shows("hand-in", "fifth", "sixth")
	testkit.Must(t, srv.AbortFor(ctx, id, "enough"))
	testkit.Equal(t, testkit.Get(srv.records.Judged(ctx, id, "one")).Must(t), "", "what is kept of a session that has ended")
}

func TestAHandInInShortIsBounded(t *testing.T) {
	h := &HandIn{Files: slices.Repeat([]HandedFile{{FileHash: machine.FileHash{Path: strings.Repeat("p", 200)}, Text: strings.Repeat(strings.Repeat("x", 3000)+"\n", 50)}}, 1000)}
	n := len(h.Brief())
	testkit.True(t, n <= 2*maxBrief+10, "%d bytes", n)
}

// A person who edits what was handed in judges it as it is then, unless more than a person judges it.
func TestAPersonHandsInWhatTheyEdited(t *testing.T) {
	for name, reviews := range map[string]string{"a person alone": humanStep, "a reviewer, too": bothStep} {
		t.Run(name, func(t *testing.T) {
			p, _, rev, c, id := underJudgement(t, reviews)
			waits(t, p.finish(c, good))
			before := p.question(id, "one").Digest
			p.write("good.md", "good, and edited")
			terminal := p.command(Reviewing{Override: config.OverrideHuman})
			err := terminal.HandInAgain(ctx, id, "one")
			if reviews == bothStep {
				testkit.True(t, session.CodeOf(err) == codes.OutputsChanged && rev.calls() == 1, "%v", err)
				return
			}
			testkit.Must(t, err)
			h := testkit.Get(terminal.HandIn(ctx, id, "one")).Must(t)
			testkit.True(t, h.Digest != before && h.Files[0].Text == "good, and edited", "%+v", h)
			testkit.Equal(t, len(testkit.Get(terminal.ToReview(ctx)).Must(t)), 1, "what waits")
			testkit.Must(t, terminal.ReviewFor(ctx, id, "one", h.Digest, machine.Answer{Passed: true, Identity: "local", Channel: session.ChannelTerminal}))
			says(t, p.finish(c, good), machine.NextStep)
		})
	}
}

// What an export says that reviewers and people decided is kept for people to read. A step that is not finished is reviewed again, by both.
func TestImportedDecisionsPassNothing(t *testing.T) {
	from, srv, rev, c, id := underJudgement(t, bothStep)
	waits(t, from.finish(c, good))
	testkit.Must(t, srv.ReviewFor(ctx, id, "one", from.question(id, "one").Digest, machine.Answer{Passed: true, Identity: "ann", Channel: session.ChannelTerminal}))
	child := from.start(c, "alpha", "main").BeginStep.SessionID
	srv.stop()
	p := newProject(t).reviewedJob(bothStep)
	srv = p.reopen(rev)
	all := p.importFrom(from, srv, id, child)
	testkit.True(t, all[0].Err == nil && all[1].Err == nil && all[0].AsNow, "examined %+v, %+v", all[0], all[1])
	i := slices.IndexFunc(all, func(i *export.Import) bool { return i.State.SessionID == id })
	testkit.Equal(t, export.ClaimOf(all[i].State), export.Claim{Reviews: 1, Decisions: 1})
	now, calls := p.record(id), rev.calls()
	one := now.Progress("one")
	testkit.True(t, now.ImportedAt != nil && one.Question == nil && one.Newest().Imported && one.Newest().State == machine.TryPassed, "imported as %s", toJSON(t, now))
	testkit.Equal(t, toJSON(t, p.record(child).ParentSessionID), `"`+id+`"`, "the parent of the session that was nested in it")
	waits(t, p.finish(srv.Connect("local"), `{"session_id":"`+id+`","outputs":{"report":"good.md"}}`))
	testkit.Equal(t, rev.calls()-calls, 1, "calls of the reviewer")
	testkit.Same(t, testkit.Get(srv.Inspect(ctx)).Must(t).Findings, nil, "findings")
	again := testkit.Get(srv.Importer().Examine(ctx, testkit.Get(srv.Importer().All()).Must(t))).Must(t)
	testkit.Fails(t, again[0].Err, "in the project already", "examined again")
}
