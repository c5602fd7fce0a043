package export

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/definition"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/record"
	"deepwork/session/state"
	"deepwork/session/store"
)

// rows are the sessions and definitions of a store.
type rows struct {
	store.Sessions
	all     map[string]store.Session
	defined map[string][]byte
	fault   error
}

func (r *rows) ListSessions(_ context.Context, q store.SessionQuery) (all []store.Session, err error) {
	for id, row := range r.all {
		if q.IDs == nil || slices.Contains(q.IDs, id) {
			all = append(all, row)
		}
	}
	return all, nil
}

func (r *rows) Definition(_ context.Context, hash string) ([]byte, error) {
	return r.defined[hash], map[bool]error{true: store.ErrNotFound}[r.defined[hash] == nil]
}

func (r *rows) ReadSession(context.Context, string, int64) (*store.SessionRecord, error) {
	return nil, r.fault
}

func (r *rows) WriteSession(_ context.Context, w *store.SessionWrite) (bool, error) {
	if _, there := r.all[w.ID]; there {
		return false, store.ErrExists
	}
	r.all[w.ID] = w.Session
	return true, r.fault
}

const jobSource = "name: alpha\nversion: \"1.0.0\"\nsummary: s\ncommon_job_info_provided_to_all_steps_at_runtime: " +
	"c\nworkflows: [{name: main, summary: m, steps: [a, b]}]\nsteps:\n" +
	"  - {id: a, name: n, description: d, instructions: i, outputs: {}, reviews: []}\n  - {id: b, name: n, " +
	"description: d, instructions: i, outputs: {}, reviews: []}\n"

func TestFilesBecomeSessions(t *testing.T) {
	root := testkit.Dir(t)
	j, faults := job.Parse("/job", "job.yml", []byte(jobSource))
	testkit.Need(t, j != nil, "%v", faults)
	def := machine.Define(j, "main")

	b := machine.Bundle{
		JobDir:       "/job",
		Workflow:     "main",
		Source:       jobSource,
		Instructions: map[string]string{"a": "i", "b": "i"},
	}

	data, hash, err := b.Encode()
	testkit.Must(t, err)
	def.Ref = machine.DefinitionRef{Hash: hash, Source: j.Hash, JobDir: "/job"}
	r := &rows{
		all:     map[string]store.Session{"0000000a": {ID: "0000000a", Status: "active", Identity: "ann"}},
		defined: map[string][]byte{hash: data},
	}
	records := record.Of(r, root)
	f := &state.Folder{Root: root}
	files := &Files{Own: f, Revision: records.Revision, Logger: slog.New(slog.DiscardHandler)}
	t.Cleanup(files.Close)
	entered, now := 0, time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	m := &Importer{
		Folder:      f,
		Records:     records,
		Definitions: &definition.Store{Records: records},
		Files:       files,
		Now:         func() time.Time { return now },
		Enter: func(context.Context) error {
			entered++
			return nil
		},
	}
	testkit.Same(t, testkit.Get(m.All()).Must(t), nil, "without a folder")

	file := func(id string, edit func(s *machine.State)) string {
		s, _, err := machine.Begin(def, machine.NewSession{
			SessionID: id,
			Goal:      "g",
			Identity:  "ann",
			At:        now.Add(-time.Hour),
			Call:      machine.Call{Tool: machine.ToolStart},
		})
		testkit.Must(t, err)
		if edit != nil {
			edit(s)
		}
		path := filepath.Join(f.Tmp(), state.ExportName(id))
		testkit.Write(t, path, string(testkit.Get(s.Encode()).Must(t)))
		return path
	}
	child := file("0000000b", func(s *machine.State) { s.ParentSessionID = new("0000000c") })
	parent, there := file("0000000c", nil), file("0000000a", nil)
	orphan := file("0000000d", func(s *machine.State) { s.ParentSessionID, s.CalledAs = new("00000009"), "a" })
	odd := file("0000000e", func(s *machine.State) { s.AbortReason = new("x") })
	ended := file("0000000f", func(s *machine.State) {
		s.Status = machine.Completed
		s.CompletedAt = new(now)
		s.Definition = machine.DefinitionRef{Hash: "lost"}
	})
	lost := file("00000010", func(s *machine.State) { s.Definition = machine.DefinitionRef{Hash: "lost"} })
	copied, large := filepath.Join(root, "copy.json"), filepath.Join(root, "large.json")
	testkit.WriteAll(t, root, map[string]string{"copy.json": `""`, "large.json": strings.Repeat(" ", MaxExportBytes+1)})
	testkit.Equal(t, len(testkit.Get(m.All()).Must(t)), 7)
	found := testkit.Get(m.Examine(t.Context(),
		[]string{child, parent, orphan, there, odd, ended, lost, copied, large, parent, root,
			filepath.Join(root, "none")})).Must(t)
	var said []string
	for _, i := range found {
		said = append(said, strings.ReplaceAll(
			fmt.Sprintf("%s: %v", strings.TrimSuffix(filepath.Base(i.Path), ".json"), i.Err), root, "ROOT"))
	}
	for n, want := range []string{"session_0000000b: <nil>", "session_0000000c: <nil>", "session_0000000d: <nil>",
		"session_0000000a: session 0000000a is in the project already (active)",
		"session_0000000e: it was not written by deepwork, or was edited: it is active, and has an end",
		"session_0000000f: <nil>",
		"session_00000010: StateError: Session '00000010' cannot go on: its definition is not stored here",
		"copy: it is not the file of a session", "large: it has 67108865 bytes, and 67108864 are the most",
		"session_0000000c: session 0000000c is in ROOT", filepath.Base(root) + ": ", "none: "} {
		testkit.True(t, strings.HasPrefix(said[n], want) && (found[n].Err == nil) == strings.HasSuffix(want, "<nil>"),
			"%q, want %q", said[n], want)
	}
	testkit.Equal(t, testkit.Get(m.Import(t.Context(), found)).Must(t), 4)
	testkit.Equal(t, entered, 1)

	nested := r.all["0000000b"]
	testkit.Same(t, []string{nested.Parent, r.all["0000000d"].Parent, nested.Root, r.all["0000000f"].Status},
		[]string{"0000000c", "", root, "completed"})

	made, err := m.Import(t.Context(), found[1:2])
	testkit.True(t, made == 0 && session.CodeOf(err) == codes.SessionExists, "again: %d, %v", made, err)
	r.all, r.fault = map[string]store.Session{}, store.ErrPending
	testkit.Fails(t, testkit.Get(m.Import(t.Context(), found[1:2])).Err(),
		"whether session 0000000c is in the project now is not known")

	for text, want := range map[string]string{
		"":                          "not the file of a session",
		`{"session_id":"x"}`:        "it has no session_id",
		`{"session_id":"0000000a"}`: "format_version",
	} {
		testkit.Fails(t, testkit.Get(Decode([]byte(text))).Err(), want, "%s", text)
	}
}

func TestClaims(t *testing.T) {
	at := new(time.Now())
	by := func(kind judging.Kind, passed bool) []*judging.Verdict {
		return []*judging.Verdict{{Kind: kind, Passed: passed}}
	}
	asked := func(verdicts ...*judging.Verdict) []*judging.Submission {
		u := new(judging.Submission).To(judging.ByPerson, nil, *at)
		if verdicts != nil {
			u = u.To("", verdicts, *at)
		}
		return []*judging.Submission{u}
	}
	s := &machine.State{}
	for _, p := range []*machine.StepProgress{
		{
			StepID:      "a",
			CompletedAt: at,
			Submissions: []*judging.Submission{
				{Verdicts: by(judging.ByReviewer, true)},
				{Verdicts: by(judging.ByReviewer, true), Void: &judging.Void{}},
				{Verdicts: by(judging.ByProgram, false)},
				{Verdicts: by(judging.ByPerson, false)},
				{Verdicts: by(judging.ByPerson, true)}, // which finished the step
			},
		},
		{StepID: "b", Overrides: []judging.Override{{}, {}}, Granted: &judging.Override{}},
		{StepID: "c", Submissions: asked(by(judging.ByPerson, true)...)},
		{StepID: "d", Submissions: asked()},
	} {
		s.StepProgress = s.StepProgress.Set(p.StepID, p)
	}
	testkit.Same(t, ClaimOf(s), Claim{Steps: 1, Reviews: 1, Decisions: 5})
}
