package record

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/store"
)

// memory has the sessions of a project as a store has them.
type memory struct {
	store.Sessions
	records     map[string]*store.SessionRecord
	definitions map[string][]byte
	fault       error
}

func (m *memory) WriteSession(_ context.Context, w *store.SessionWrite) (bool, error) {
	r := m.records[w.ID]
	if r == nil {
		r = &store.SessionRecord{}
	}
	if w.Before != -1 && r.Revision != w.Before {
		return false, m.fault
	}
	next := &store.SessionRecord{Session: w.Session, Frame: w.Frame}
	for _, p := range r.Parts {
		if !slices.ContainsFunc(slices.Concat(w.Put, w.Gone), func(o store.SessionPart) bool {
			return o.Kind == p.Kind && o.Key == p.Key
		}) {
			next.Parts = append(next.Parts, p)
		}
	}
	next.Parts = append(next.Parts, w.Put...)
	m.records[w.ID] = next
	return true, m.fault
}

func (m *memory) ReadSession(_ context.Context, id string, known int64) (*store.SessionRecord, error) {
	r := m.records[id]
	switch {
	case m.fault != nil:
		return nil, m.fault
	case r == nil:
		return nil, store.ErrNotFound
	case r.Revision == known:
		return &store.SessionRecord{Session: r.Session}, nil
	}
	return r, nil
}

func (m *memory) ListSessions(_ context.Context, q store.SessionQuery) (all []store.Session, err error) {
	for id, r := range m.records {
		if q.IDs == nil || slices.Contains(q.IDs, id) {
			all = append(all, r.Session)
		}
	}
	slices.SortFunc(all, func(a, b store.Session) int { return strings.Compare(a.ID, b.ID) })
	return all, m.fault
}

func (m *memory) Definition(_ context.Context, hash string) ([]byte, error) {
	if data := m.definitions[hash]; data != nil {
		return data, nil
	}
	return nil, store.ErrNotFound
}

const source = "name: alpha\nversion: \"1.0.0\"\nsummary: s\ncommon_job_info_provided_to_all_steps_at_runtime: " +
	"c\nworkflows: [{name: main, summary: m, steps: [a, b]}]\nsteps:\n" +
	"  - {id: a, name: n, description: d, instructions: i, outputs: {}, reviews: []}\n  - {id: b, name: n, " +
	"description: d, instructions: i, outputs: {}, reviews: []}\n"

// project is a project with one session, 0000000a, at its first step.
func project(t *testing.T) (*memory, *Store, *machine.Definition) {
	t.Helper()
	j, faults := job.Parse("/job", "job.yml", []byte(source))
	testkit.Need(t, j != nil, "%v", faults)
	def := machine.Define(j, "main")

	b := machine.Bundle{
		JobDir:       "/job",
		Workflow:     "main",
		Source:       source,
		Instructions: map[string]string{"a": "i", "b": "i"},
	}

	data, hash, err := b.Encode()
	testkit.Must(t, err)
	def.Ref, def.Data = machine.DefinitionRef{Hash: hash, Source: j.Hash, JobDir: "/job"}, data
	m := &memory{records: map[string]*store.SessionRecord{}, definitions: map[string][]byte{hash: data}}
	r := Of(m, testkit.Dir(t))
	begun(t, r, def, machine.NewSession{SessionID: "0000000a"})
	return m, r, def
}

func begun(t *testing.T, r *Store, def *machine.Definition, n machine.NewSession) *machine.State {
	t.Helper()
	n.Goal = "g"
	n.Identity = "ann"
	n.At = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	n.Call.Tool = machine.ToolStart
	s, _, err := machine.Begin(def, n)
	testkit.Must(t, err)
	put(t, r, nil, s)
	return s
}

func put(t *testing.T, r *Store, before, next *machine.State) {
	t.Helper()
	testkit.Need(t, testkit.Get(r.Write(t.Context(), before, store.Session{Root: "/p"}, next, &store.SessionWrite{})).
		Must(t), "another process was faster")
}

func TestASessionIsReadAsItWasWritten(t *testing.T) {
	m, r, def := project(t)
	first := testkit.Get(r.Read(t.Context(), "0000000a", nil)).Must(t)
	testkit.Equal(t, first.Row.Definition+first.Row.Job+first.Row.Workflow+first.Row.Step+first.Row.Root,
		def.Ref.Hash+"alphamaina/p")
	testkit.Equal(t, testkit.Get(r.Read(t.Context(), "0000000a", first.State)).Must(t), nil, "it has not moved")

	next, _ := first.State.Abort(machine.Call{Tool: machine.ToolAbort, RequestID: new("q")}, "why",
		first.State.StartedAt)
	w := &store.SessionWrite{}
	testkit.Must(t, Fill(w, first.State, first.Row, next))
	testkit.Equal(t, *w.Request, Request{"ann", machine.ToolAbort, "q"}.Key())
	testkit.Equal(t, w.Before, first.State.Revision)
	testkit.Equal(t, w.Status, "aborted")
	testkit.Equal(t, w.Waiting, "")
	put(t, r, first.State, next)
	again := testkit.Get(r.Read(t.Context(), "0000000a", first.State)).Must(t)
	testkit.Equal(t, string(testkit.Get(again.State.Encode()).Must(t)), string(testkit.Get(next.Encode()).Must(t)))
	testkit.Equal(t, fmt.Sprint(r.Revision("0000000a"), r.Revision("0000000b")), fmt.Sprint(next.Revision, -1))
	testkit.True(t, !testkit.Get(r.Write(t.Context(), first.State, first.Row, next, &store.SessionWrite{})).Must(t),
		"another process was not faster")
	testkit.Equal(t, r.Figures(), Figures{Started: 1, Aborted: 1}, "what was written is counted")

	// The write of a call has its request, and no later one has.
	requested := begun(t, r, def, machine.NewSession{SessionID: "0000000c", Call: machine.Call{RequestID: new("q")}})
	for before, want := range map[*machine.State]bool{nil: true, requested: false} {
		w := &store.SessionWrite{}
		is := requested
		if before != nil {
			is = before.Next(before.UpdatedAt)
		}
		testkit.Must(t, Fill(w, before, store.Session{}, is))
		testkit.Equal(t, w.Request != nil, want, "%+v", w)
	}
	testkit.True(t, string(Defining(def).Define.Data) == string(def.Data) &&
		Defining(&machine.Definition{}).Define == nil, "a definition is stored once")

	for a, b := range map[Request]Request{{"a", "bc", "d"}: {"ab", "c", "d"}, {"a", "b", "cd"}: {"a", "bc", "d"}} {
		testkit.True(t, a.Key() != b.Key(), "%+v and %+v have one key", a, b)
	}

	m.records["0000000a"].Revision++
	testkit.Fails(t, testkit.Get(r.Read(t.Context(), "0000000a", nil)).Err(), "its row has revision")
}

// What may wait for a person is in the row of a session.
func TestWhatWaitsForAPerson(t *testing.T) {
	_, r, _ := project(t)
	s := testkit.Get(r.Read(t.Context(), "0000000a", nil)).Must(t).State
	at := s.StartedAt
	s.Pinned = &machine.Pinned{Override: config.OverrideHuman, Pin: true}
	handed := func(with judging.Kind) *machine.State {
		return s.Submit("a", new(judging.Submission).To(with, nil, at), "", at)
	}
	reviewed := func(passed bool) *machine.State {
		n := handed(judging.ByReviewer)
		v := &judging.Verdict{Kind: judging.ByReviewer, Passed: passed}
		return n.Submit("a", n.Progress("a").Handed().To("", []*judging.Verdict{v}, at), "", at)
	}
	failed := reviewed(false)
	void := failed.Submit("a", new(judging.Submission).To(judging.ByReviewer, nil, at), "", at)
	void = void.End("a", void.Progress("a").Handed().ID, &judging.Void{Why: "it hung"}, at)
	answered := testkit.Get(handed(judging.ByPerson).Answer("a", "", machine.Answer{At: at})).Must(t)
	granted := testkit.Get(failed.Grant("a", judging.Override{At: at})).Must(t)
	ended, _ := failed.Abort(machine.Call{Tool: machine.ToolAbort}, "why", at)
	for name, c := range map[string]struct {
		of   *machine.State
		want string
	}{
		"nothing":  {s, ""},
		"passed":   {reviewed(true), ""},
		"granted":  {granted, ""},
		"ended":    {ended, ""},
		"void":     {void, ""},
		"failed":   {failed, `"given":true,"failed":"2026-01-01T00:00:00Z","reviews":1`},
		"answered": {answered, `"given":true,"failed":"2026-01-01T00:00:00Z","reviews":1`},
		"asked":    {handed(judging.ByPerson), `"asked":"2026-01-01T00:00:00Z"`},
		"shown":    {handed(judging.BySelf), `"shown":"2026-01-01T00:00:00Z"`},
	} {
		got := RowOf(store.Session{}, c.of).Waiting
		testkit.Equal(t, got != "", c.want != "", "%s", name)
		testkit.Contains(t, got, c.want, "%s", name)
		w := WaitingIn(store.Session{Waiting: got})
		testkit.True(t, got == "" || len(w.Steps) == 1 && w.Steps[0].ID == "a" && w.Pin &&
			w.Override == config.OverrideHuman, "%s is read as %+v", name, w)
	}
	testkit.Same(t, WaitingIn(store.Session{Waiting: "{"}).Steps, nil)
}

func TestSessionsThatCannotBeRead(t *testing.T) {
	m, r, _ := project(t)
	read := func(id string) error { return testkit.Get(r.Read(t.Context(), id, nil)).Err() }
	testkit.Fails(t, read("0000000b"), "Session '0000000b' not found in this project.")
	testkit.Write(t, filepath.Join(r.root, ".deepwork/tmp/session_0000000b.json"), "{}")
	testkit.Fails(t, read("0000000b"), "`deepwork sessions import "+
		session.InShell(filepath.Join(r.root, ".deepwork/tmp/session_0000000b.json"))+"` makes it a session")
	testkit.True(t, !strings.Contains(read("0000000b").Error(), "--adopt"), "the project has sessions")

	kept := m.records
	m.records = map[string]*store.SessionRecord{}
	testkit.Fails(t, read("0000000c"), "`deepwork where --adopt OLD-PATH` takes over")
	testkit.True(t, !strings.Contains(read("0000000c").Error(), "sessions import"), "it has no file")
	m.records = kept
	for fault, code := range map[error]string{
		task.ErrDamaged:   codes.StoreDamaged,
		errors.New("odd"): codes.SessionUnreadable,
		store.ErrBusy:     codes.StoreBusy,
	} {
		m.fault = fmt.Errorf("reading: %w", fault)
		testkit.Equal(t, session.CodeOf(read("0000000a")), code, "%v", fault)
		testkit.Equal(t, session.CodeOf(NotSaved("0000000a", m.fault)),
			strings.Replace(code, codes.SessionUnreadable, codes.NotSaved, 1), "%v", fault)
	}
	m.fault, m.records["0000000a"].Frame = nil, "{"
	testkit.Fails(t, read("0000000a"), "cannot be read")

	testkit.Must(t, os.RemoveAll(r.root))
	testkit.Equal(t, session.CodeOf(read("0000000b")), codes.ProjectGone)
}

func TestInspect(t *testing.T) {
	m, r, def := project(t)
	change := func(id string, edit func(s *machine.State)) {
		s := testkit.Get(r.Read(t.Context(), id, nil)).Must(t).State
		n := s.Next(s.UpdatedAt)
		edit(n)
		put(t, r, s, n)
	}

	look := func() (all []string) {
		i := &Inspection{Behind: func(r *Record) string {
			return map[bool]string{true: "/p/" + r.State.SessionID[7:] + ".json"}[r.State.SessionID > "0000000a" &&
				r.State.Revision > 0]
		}}
		rows := testkit.Get(r.List(t.Context(), store.SessionQuery{})).Must(t)
		testkit.Must(t, r.Inspect(t.Context(), append(rows, store.Session{ID: "gone"}), i))
		for _, f := range i.Report.Findings {
			all = append(all, fmt.Sprintf("%s: %s (%t)", f.Where, f.What, f.Note))
		}
		there, readable := i.Found("0000000a")
		gone, _ := i.Found("gone")
		testkit.Same(t, []any{gone, there, readable, i.Len()},
			[]any{false, true, m.records["0000000a"].Frame != "{", len(rows)})

		slices.Sort(all)
		return all
	}
	begun(t, r, def, machine.NewSession{
		SessionID: "0000000b",
		Parent:    new("0000000a"),
		Call:      machine.Call{RequestID: new("q")},
	})
	asked := &machine.StepProgress{
		StepID:    "a",
		StartedAt: time.Unix(1, 0),
		Submissions: []*judging.Submission{
			{ID: 1, Turns: []judging.Turn{{With: judging.ByPerson, At: time.Unix(1, 0)}}},
		},
	}
	change("0000000a", func(s *machine.State) { s.StepProgress = slices.Clone(s.StepProgress).Set("a", asked) })

	// by a version that counted tries that passed
	m.records["0000000a"].Waiting = strings.Replace(m.records["0000000a"].Waiting, `"asked"`, `"reviews":2,"asked"`, 1)
	testkit.Same(t, look(), nil)

	begun(t, r, def, machine.NewSession{SessionID: "0000000c", Call: machine.Call{RequestID: new("q")}})
	change("0000000a", func(s *machine.State) { s.ParentSessionID = new("0000000b") })
	change("0000000b", func(s *machine.State) { s.UpdatedAt = s.StartedAt.Add(-1) })
	change("0000000b", func(s *machine.State) { s.UpdatedAt = s.StartedAt.Add(-1) })
	change("0000000c", func(s *machine.State) { s.Definition.Hash = "" })
	m.records["0000000c"].Goal = "another"
	testkit.Same(t, look(), []string{
		"/p/b.json: 2 files in .deepwork/tmp (b.json, c.json) differ from the sessions, which are in the database: " +
			"they were edited, or could not be written (true)",
		"session 0000000a: sessions are nested in a circle: 0000000a in 0000000b in 0000000a (false)",
		"session 0000000b: the times of 1 session run backwards: the clock was set back while they were worked on " +
			"(true)",
		"session 0000000c: it names no definition (false)", "session 0000000c: its row contradicts its state (false)",
		"session 0000000c: session 0000000c and session 0000000b were begun by one call, that with request_id \"q\" " +
			"(false)",
	})

	delete(m.records, "0000000c")
	change("0000000a", func(s *machine.State) { s.ParentSessionID = nil })
	change("0000000b", func(s *machine.State) { s.UpdatedAt, s.Identity = s.StartedAt, "bob" })
	m.definitions[def.Ref.Hash] = append(slices.Clone(def.Data), ' ')
	behind := "/p/b.json: 1 file in .deepwork/tmp differ from the sessions, which are in the database: they were " +
		"edited, or could not be written (true)"
	unusable := func(why string) []string {
		return []string{behind, "session 0000000a: its definition " + def.Ref.Hash + " cannot be used: " + why +
			" (false)", "session 0000000b: its definition " + def.Ref.Hash + " cannot be used: " + why + " (false)",
			`session 0000000b: session 0000000b of "bob" is nested in session 0000000a of "ann" (false)`}
	}
	testkit.Same(t, look(), unusable("its content has another hash than its name"))
	delete(m.definitions, def.Ref.Hash)
	testkit.Same(t, look(), unusable("it is not there"))
	m.definitions[def.Ref.Hash] = def.Data
	m.records["0000000a"].Frame = "{"
	found := look()
	testkit.Need(t, len(found) == 2, "%q", found)
	testkit.True(t, strings.HasPrefix(found[1], "session 0000000a: it cannot be read: "), "%q", found)
	testkit.True(t, !strings.Contains(found[1], "Session '"), "%q", found)
}

// What a transition changes is counted once; what it leaves is not.
func TestFigures(t *testing.T) {
	r, at := &Store{}, time.Unix(1, 0)
	state := func(status machine.SessionStatus, steps ...*machine.StepProgress) *machine.State {
		s := &machine.State{Status: status}
		for _, p := range steps {
			s.StepProgress = s.StepProgress.Set(p.StepID, p)
		}
		return s
	}
	asked := func(id int64) []*judging.Submission {
		return []*judging.Submission{{ID: id, Turns: []judging.Turn{{With: judging.ByPerson, At: at}}}}
	}
	answered := []*judging.Submission{asked(1)[0].To("", []*judging.Verdict{{Kind: judging.ByPerson}}, at)}
	a, b := &machine.StepProgress{StepID: "a", CompletedAt: &at, QualityTries: 1}, &machine.StepProgress{StepID: "b"}
	states := []*machine.State{nil,
		state(machine.Active, &machine.StepProgress{StepID: "a"}),
		state(machine.Active, a, b),
		state(machine.Active, a, &machine.StepProgress{StepID: "b", FailedChecks: 1, Submissions: asked(1)}),
		state(machine.Active, a, &machine.StepProgress{StepID: "b", FailedChecks: 1, Submissions: answered}),
		state(machine.Active, a, &machine.StepProgress{
			StepID:       "b",
			FailedChecks: 1,
			Submissions:  append(answered, asked(2)...),
		}),
		state(machine.Active, b), // a is cleared, and b begins again
		state(machine.Completed, &machine.StepProgress{StepID: "b", CompletedAt: &at}),
	}
	for i, next := range states[1:] {
		r.Count(states[i], next)
	}
	r.Count(states[1], state(machine.Aborted))
	testkit.Equal(t, r.Figures(), Figures{Started: 1, Completed: 1, Aborted: 1, Steps: 2, Tries: 2, Asked: 2})
}
