package workflow

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/definition"
	"deepwork/session/workflow/machine"
)

// get_step says where the review of a step stands, and an agent goes on from that alone.
func TestField16_GetStepSaysWhereTheReviewStands(t *testing.T) {
	how := Reviewing{External: true, MaxTries: 3, ReplyWithin: time.Minute, Override: config.OverrideAgent}
	p, _, rev, c, _ := underReview(t, how)
	standing := func() *machine.Standing {
		return testkit.Get(c.Step(ctx, StepArgs{})).Must(t).Members[0].Review
	}
	testkit.Equal(t, standing(), nil, "before the first")
	r, now := p.finish(c, bad), standing()
	testkit.True(t, now != nil && now.State == "failed" && strings.Contains(*r.Feedback, now.Feedback) && now.TriesLeft == 2 && toJSON(t, now.Outputs) == `{"report":"bad.md"}`, "after a failed one: %s", toJSON(t, now))
	how.ReplyWithin = 20 * time.Millisecond
	rev.how.Store(&how)
	rev.set("wait", "")
	p.finish(c, good)
	testkit.Equal(t, toJSON(t, standing()), `{"verdict":"running","outputs":{"report":"good.md"},"tries_left":2}`, "while one is running")
	rev.unset("wait")
	p, _, _, c, id := underJudgement(t, humanStep)
	waits(t, p.finish(c, good))
	now = testkit.Get(c.Step(ctx, StepArgs{})).Must(t).Members[0].Review
	testkit.True(t, now != nil && now.State == "waiting_for_you" && strings.HasPrefix(now.Command, "deepwork sessions review "+id+" one") && toJSON(t, now.Outputs) == `{"report":"good.md"}`, "while a person is awaited: %s", toJSON(t, now))
}

// A server that serves the last good version of a job that no longer loads says so, with the file and its first fault.
func TestField18_TheLastGoodVersionIsSaid(t *testing.T) {
	p := simpleProject(t)
	c := p.open().Connect("local")
	notice := func() string { t.Helper(); return toJSON(t, p.start(c, "alpha", "main").Notice) }
	testkit.Equal(t, notice(), "null", "of a good job")
	file := filepath.Join(p.root, ".deepwork", "jobs", "alpha", "job.yml")
	good := string(testkit.Get(os.ReadFile(file)).Must(t))
	testkit.Write(t, file, strings.Replace(good, "steps:", "stepz:", 1))
	testkit.Contains(t, notice(), "job 'alpha' in "+filepath.Dir(file)+" does not load any more, so its last good version, 1.0.0, is used until that is corrected or the server ends. The first error: job.yml:5:1: stepz: unknown key")
	testkit.Write(t, file, good)
	testkit.Equal(t, strings.Contains(notice(), "last good"), false, "once it is corrected")
}

// What an agent can do at the limit depends on who may override a review.
func TestField18_AdviceAtTheLimit(t *testing.T) {
	for mode, want := range map[config.Override]string{
		config.OverrideAgent: "or ask the user whether to pass quality_review_override_reason.",
		config.OverrideHuman: "or ask the user whether to run `deepwork sessions override ",
		config.OverrideNever: "Change the outputs and call again, or go back with go_to_step.",
	} {
		_, _, _, c, _ := underReview(t, Reviewing{External: true, MaxTries: 1, ReplyWithin: time.Minute, Override: mode})
		for range 2 { // the second time without a review
			refused(t, refusal(t, c, bad), session.ToolError, "quality_gate_failed", want)
		}
	}
}

// An agent is told which try failed, for which files and by which criteria; what the step is called, what it does and
// where it is in the workflow; what its branch is; and that another workflow began than the one that it named.
func TestField19_RepliesSayWhatTheyAreAbout(t *testing.T) {
	p, _, _, c, _ := underReview(t)
	r := p.start(c, "alpha", "mian")
	testkit.Contains(t, toJSON(t, r.Notice), "Job 'alpha' has no workflow 'mian': its only one, 'main', was started.")
	testkit.Equal(t, r.BeginStep.BranchStatus, "suggested, and not in git")
	at := func(info *machine.StepInfo, want ...string) {
		t.Helper()
		testkit.Same(t, []string{info.Name, info.Description, info.Position}, want, "of the step")
	}
	at(r.BeginStep, "Step one", "Does one", "1 of 2")
	for i, file := range []string{"bad.md", "worse.md"} {
		r := p.finish(c, `{"outputs":{"report":"`+file+`"}}`)
		testkit.Equal(t, *r.Feedback, fmt.Sprintf("Try %d of 3. %s: %s was read\n- Not met: Is it good?\nCorrect that, then call finished_step again.", i+1, file, file))
	}
	at(testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep, "Step one", "Does one", "1 of 2")
	at(p.finish(c, good).BeginStep, "Step two", "Does two", "2 of 2")
}

// third is a third of the instructions that a reply can have, and a little more.
var third = strings.Repeat("Read this.\n", definition.MaxEntryBytes/3/11)

// A group whose instructions are more than a reply can have does not begin; when the files are shorter the same call goes on. One that
// began and has too much text by now is read as it began, and get_step says why.
func TestAGroupWithTooMuchText(t *testing.T) {
	p := newProject(t).alpha("[first, [a, b, c]]", testStep{id: "first"}, testStep{id: "a"}, testStep{id: "b"}, testStep{id: "c"})
	for _, id := range []string{"a", "b", "c"} {
		p.write(".deepwork/jobs/alpha/steps/"+id+".md", third)
	}
	_, c, _ := p.begin()
	refused(t, refusal(t, c, `{"outputs":{}}`), session.ToolError, "instructions_too_large", "a, b, c", "nothing has moved", fmt.Sprint(definition.MaxEntryBytes))
	testkit.Equal(t, testkit.Get(c.Step(ctx, StepArgs{})).Must(t).BeginStep.StepID, "first", "the step")
	p.write(".deepwork/jobs/alpha/steps/c.md", "Little.")
	began := p.finish(c, `{"outputs":{}}`)
	testkit.True(t, len(began.ConcurrentSteps) == 2 && strings.HasPrefix(began.BeginStep.Instructions, third[:len(third)-1]), "the group did not begin")
	p.write(".deepwork/jobs/alpha/steps/c.md", third)
	r := testkit.Get(c.Step(ctx, StepArgs{})).Must(t)
	testkit.Equal(t, r.ConcurrentSteps[1].Instructions, "Little.")
	testkit.ContainsAll(t, toJSON(t, r.Notice), []string{"those the step began with", fmt.Sprint(definition.MaxEntryBytes)})
	testkit.True(t, !strings.Contains(*r.Notice, "nil"), "the notice is %s", *r.Notice)
}

// manyJobs is a snapshot of n jobs.
func manyJobs(n, description int) *catalog.Snapshot {
	snap := &catalog.Snapshot{}
	for i := range n {
		j := &job.Job{Name: fmt.Sprintf("job_%05d", i), Summary: strings.Repeat("s", 200), Workflows: []job.Workflow{{Name: "main", Summary: strings.Repeat("w", 200)}}}
		if description > 0 {
			j.Description = new(strings.Repeat("d", description))
		}
		snap.Jobs = append(snap.Jobs, j)
	}
	return snap
}

// get_workflows of any number of jobs is bounded: descriptions go first, then jobs, and the notice says which and where they are.
func TestGetWorkflowsIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		snapshot *catalog.Snapshot
		listed   int
		words    []string
	}{
		"all of it":         {manyJobs(1000, 2000), 1000, nil},
		"long descriptions": {manyJobs(1000, 20_000), 1000, []string{"descriptions of the jobs are left out", "job.yml"}},
		"10,000 jobs":       {manyJobs(8000, 0), 8000, nil},
		"too many jobs":     {manyJobs(20_000, 10), -1, []string{"descriptions", "of 20000 jobs are listed", "`deepwork jobs`"}},
	} {
		enc := testkit.Get(encodeJobs(c.snapshot, nil)).Must(t)
		var jobs []machine.JobInfo
		testkit.Must(t, json.Unmarshal(enc.Jobs, &jobs))
		testkit.True(t, len(enc.Jobs) <= jobsBytes && (len(jobs) == c.listed || c.listed < 0) && len(jobs) >= 1000, "%s: %d jobs in %d bytes", name, len(jobs), len(enc.Jobs))
		testkit.Equal(t, c.words == nil, enc.Notice == nil, "%s: the notice is %v", name, enc.Notice)
		testkit.ContainsAll(t, toJSON(t, enc.Notice), c.words, name)
		for i, j := range jobs {
			testkit.Need(t, j.Name == c.snapshot.Jobs[i].Name && len(j.Workflows) == 1 && (len(c.words) == 0 || j.Description == nil), "%s: job %d is %+v", name, i, j)
		}
	}
}

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

// The changes are shown against the last hand-in that a person failed. If no person failed one, they are shown against the
// last hand-in, beside the whole content. What is kept for that is dropped when the session ends.
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
	whole := (&HandIn{Files: []HandedFile{{Text: strings.Repeat("x\n", maxBriefLines)}}}).Brief()
	testkit.True(t, strings.Count(whole, "| x\n") == maxBriefLines && !strings.Contains(whole, "…"), "a file that is shown whole: %s", whole)
}

// The criteria are those of the job as it was when the outputs were handed in, though the session began with others.
func TestAPersonSeesTheCriteriaOfTheQuestion(t *testing.T) {
	p, _, _, c, id := underJudgement(t, humanStep)
	p.reviewedJob(strings.Replace(humanStep, "Would you sign it?", "Would you publish it?", 1))
	waits(t, p.finish(c, good))
	testkit.Contains(t, testkit.Get(p.command(Reviewing{}).HandIn(ctx, id, "one")).Must(t).Brief(), "Would you publish it?")
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
				testkit.True(t, session.CodeOf(err) == codes.OutputsChanged && rev.calls() == 1 && !strings.Contains(err.Error(), "finished_step"), "for a person, a sentence that names a tool is left out: %v", err)
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
