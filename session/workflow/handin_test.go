package workflow

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/workflow/machine"
)

// A person sees what was handed in, what has changed since they failed it, and nothing that was not handed in.
func TestWhatAPersonJudges(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.reviewedJob()
	p.job("alpha", []testStep{{id: "one", outputs: "{report: {type: files, description: R, required: true}}", reviews: humanStep}, {id: "two"}}, map[string]string{"main": "[one, two]"})
	srv := p.open()
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	handIn := func(names string) map[string]HandedFile {
		t.Helper()
		waits(t, p.finish(c, `{"outputs":{"report":["`+strings.ReplaceAll(names, " ", `","`)+`"]}}`))
		all := map[string]HandedFile{}
		for _, f := range testkit.Get(srv.HandIn(ctx, id, "one")).Must(t).Files {
			testkit.Equal(t, f.Full, filepath.Join(p.root, f.Path), "its path")
			all[f.Path] = f
		}
		return all
	}
	answer := func(passed bool) {
		t.Helper()
		testkit.Must(t, p.atTerminal(id, "one", p.record(id).Progress("one").Question.Digest, passed, "Again"))
	}
	p.write("a.md", "one\ntwo\n")
	p.write("same.json", "{}")
	p.write("b.png", "\x89PNG\x0d\x0a\x1a\x0a0000")
	p.write("c.bin", "\x00")
	p.write("d.html", "<script>x</script>")
	p.write("big.txt", strings.Repeat("x", maxHandedText+1))
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
		if f.Kind != want.kind || (f.Note == "") != (want.note == "") || !strings.Contains(f.Note, want.note) || (f.Text != "") != (want.note == "" && f.Kind != ImageFile) || f.Diff != "" {
			t.Errorf("%s: %s, %q, %d bytes of text, want %s %q", path, f.Kind, f.Note, len(f.Text), want.kind, want.note)
		}
	}
	p.write("same.json", "[]")
	if f := testkit.Get(srv.HandIn(ctx, id, "one")).Must(t).Files[1]; f.Text != "" || !strings.Contains(f.Note, "changed after it was handed in") {
		t.Errorf("content that was not handed in: %+v", f)
	}
	testkit.Must(t, os.Remove(filepath.Join(p.root, "same.json")))
	testkit.Must(t, os.Symlink("/etc/passwd", filepath.Join(p.root, "same.json")))
	if f := testkit.Get(srv.HandIn(ctx, id, "one")).Must(t).Files[1]; f.Text != "" || !strings.Contains(f.Note, "outside the project") {
		t.Errorf("a link out of the project: %+v", f)
	}
	testkit.Must(t, os.Remove(filepath.Join(p.root, "same.json")))
	p.write("same.json", "{}")
	answer(false)
	n := len(testkit.Get(srv.records.Judged(ctx, id, "one")).Must(t))
	testkit.True(t, n != 0 && n <= 3000, "%d bytes are kept", n)

	p.write("a.md", "one\nthree\n")
	p.write("c.bin", "text now")
	p.write("new.md", "new")
	second := handIn("a.md same.json c.bin new.md")
	testkit.Equal(t, second["a.md"].Diff, "--- last review\n+++ now\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n", "the diff")
	for path, want := range map[string]string{"same.json": "as it was", "c.bin": "not known", "new.md": "is new"} {
		if f := second[path]; f.Diff != "" || !strings.Contains(f.Note, want) {
			t.Errorf("%s: %q, %q", path, f.Note, f.Diff)
		}
	}
	h := testkit.Get(srv.HandIn(ctx, id, "one")).Must(t)
	testkit.Equal(t, strings.Join(h.Gone, " "), "b.png d.html big.txt", "what is gone")
	if brief := h.Brief(); !strings.Contains(brief, "| -two\n    | +three\n") || strings.Contains(brief, " one\nthree") {
		t.Errorf("in short: %s", brief)
	}
	answer(true)
	testkit.Equal(t, p.finish(c, `{"outputs":{"report":["a.md","same.json","c.bin","new.md"]}}`).Status, machine.NextStep, "the agent's call")
}

// The changes are to the hand-in that a person failed last; if nobody did, to the last one, whoever refused it, beside
// the whole content. What is kept for that is dropped when the session ends.
func TestWhatAHandInIsComparedWith(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.personJob(bothStep)
	srv, rev := p.reviewed()
	rev.how.Store(&Reviewing{External: true, MaxTries: 9, ReplyWithin: time.Minute})
	c := srv.Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	handIn := func(text string) *machine.FinishReply {
		t.Helper()
		p.write("r.md", text+"\n")
		return p.finish(c, `{"outputs":{"report":"r.md"}}`)
	}
	shows := func(text, since, diff string) {
		t.Helper()
		waits(t, handIn(text))
		h := testkit.Get(srv.HandIn(ctx, id, "one")).Must(t)
		testkit.Equal(t, h.Since(), since, text)
		testkit.Equal(t, h.Files[0].Diff, diff, text)
		testkit.Equal(t, strings.Contains(h.Brief(), "| "+text), !h.Judged, "the content, in short")
	}
	answer := func(step string, passed bool) {
		t.Helper()
		testkit.Must(t, p.atTerminal(id, step, p.record(id).Progress(step).Question.Digest, passed, "Again"))
	}
	const from = "--- last %s\n+++ now\n@@ -1,1 +1,1 @@\n-%s\n+%s\n"
	handIn("CONTENT OF bad.md")
	shows("second", "last hand-in", fmt.Sprintf(from, "hand-in", "CONTENT OF bad.md", "second"))
	shows("third", "last hand-in", fmt.Sprintf(from, "hand-in", "second", "third"))
	answer("one", false)
	handIn("third")
	handIn("CONTENT OF worse.md")
	shows("fifth", "last review", fmt.Sprintf(from, "review", "third", "fifth"))
	answer("one", true)
	testkit.Equal(t, handIn("fifth").Status, machine.NextStep, "the agent's call")
	testkit.Must(t, testkit.Get(c.GoTo(ctx, GoToArgs{StepID: "one"})).Err())
	shows("sixth", "last hand-in", fmt.Sprintf(from, "hand-in", "fifth", "sixth"))
	testkit.Must(t, srv.AbortFor(ctx, id, "enough"))
	testkit.Equal(t, testkit.Get(srv.records.Judged(ctx, id, "one")).Must(t), "", "what is kept of a session that has ended")
}

// What a client shows is bounded, however much was handed in.
func TestAHandInInShortIsBounded(t *testing.T) {
	t.Parallel()
	h := &HandIn{Files: make([]HandedFile, 1000)}
	for i := range h.Files {
		h.Files[i] = HandedFile{FileHash: machine.FileHash{Path: strings.Repeat("p", 200)}, Text: strings.Repeat(strings.Repeat("x", 3000)+"\n", 50)}
	}
	n := len(h.Brief())
	testkit.True(t, n <= 2*maxBrief+10, "%d bytes", n)
}

// A person who edits what was handed in judges it as it is then, unless more than a person judges it.
func TestAPersonHandsInWhatTheyEdited(t *testing.T) {
	t.Parallel()
	for name, reviews := range map[string]string{"a person alone": humanStep, "a reviewer, too": bothStep} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			p.personJob(reviews)
			srv, rev := p.reviewed()
			c := srv.Connect("local")
			id := p.start(c, "alpha", "main").BeginStep.SessionID
			waits(t, p.finish(c, `{"outputs":{"report":"good.md"}}`))
			before := p.record(id).Progress("one").Question.Digest
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
			testkit.Equal(t, p.finish(c, `{"outputs":{"report":"good.md"}}`).Status, machine.NextStep, "the agent's call")
		})
	}
}
