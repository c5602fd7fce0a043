package load

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/session/workflow"
	"deepwork/transport"
	"deepwork/transport/web"
)

// A loaded project has been under a small load, and its server is gone.
func loaded(t *testing.T) *run {
	t.Helper()
	o, err := Options{Connections: 3, Depth: 3, Group: 2, Sessions: 24, Duration: time.Minute, Seed: 7, Edit: true, Lose: 0.05, Out: io.Discard}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	r := &run{Options: o, root: t.TempDir(), wrong: wrong{newWrongs()}, book: newBook(o.Group, 1), ledger: newLedger(o.Group)}
	if err := layOut(r.root, true); err != nil {
		t.Fatal(err)
	}
	e := &editor{root: r.root, book: r.book, wrong: r.wrong}
	if err := e.layOut(); err != nil {
		t.Fatal(err)
	}
	r.archive, err = workflow.OpenArchive(r.root, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.archive.Close() })
	url, stop := serve(t, r.root)
	r.servers = []*server{{url: url}}
	r.work(t.Context(), e)
	stop()
	for _, w := range r.bag.all() {
		t.Errorf("%s, %d times: %s", w.Kind, w.Count, w.Example)
	}
	return r
}

// serve has a server on a project, until stop is called.
func serve(t *testing.T, root string) (url string, stop func()) {
	t.Helper()
	reviews := false
	serving, err := transport.NewServer(transport.Options{ProjectRoot: root, Logger: slog.New(slog.DiscardHandler), EnableQualityGate: &reviews, Toolsets: []string{"workflows"}})
	if err != nil {
		t.Fatal(err)
	}
	listening, err := serving.Listen(t.Context(), web.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- listening.Serve(ctx) }()
	return listening.URL(), func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := serving.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// judged judges the files and returns the kinds of what is wrong.
func judged(t *testing.T, r *run) []string {
	t.Helper()
	bag := newWrongs()
	if _, err := (&judge{root: r.root, ledger: r.ledger, book: r.book, wrong: wrong{bag}}).run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, w := range bag.all() {
		t.Logf("%s: %s", w.Kind, w.Example)
		kinds = append(kinds, w.Kind)
	}
	return kinds
}

// write writes a session file as a server would: with a checksum that is right.
func write(t *testing.T, root string, s *workflow.State) {
	t.Helper()
	body, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	body = body[:len(body)-2]
	sum := sha256.Sum256(body)
	body = fmt.Appendf(body, ",\n  \"checksum\": \"sha256:%s\"\n}", hex.EncodeToString(sum[:]))
	if err := os.WriteFile(sessionFile(root, s.SessionID), body, 0o600); err != nil {
		t.Fatal(err)
	}
}

func sessionFile(root, id string) string {
	return filepath.Join(workflow.TmpDir(root), "session_"+id+".json")
}

// The judge finds nothing wrong with what a server has written, and whatever was
// falsified afterwards.
func TestJudgeFindsWhatIsFalsified(t *testing.T) {
	r := loaded(t)
	if found := judged(t, r); len(found) > 0 {
		t.Fatalf("nothing was falsified, and it found %v", found)
	}
	var completed *workflow.State
	for _, a := range r.ledger.accounts {
		s, err := r.archive.Read(a.id)
		if err != nil {
			t.Fatal(err)
		}
		if s.Status == workflow.Completed && len(s.History) == 0 {
			completed = s
		}
	}
	if completed == nil {
		t.Fatal("no session was completed")
	}
	id := completed.SessionID
	step := func(s *workflow.State, id string) *workflow.StepProgress {
		p, _ := s.StepProgress.Get(id)
		return p
	}
	back := func(s *workflow.State) { // as if the last step had not been finished
		s.Status, s.CompletedAt = workflow.Active, nil
		p := step(s, stepWrap)
		p.CompletedAt, p.Outputs, p.Notes = nil, nil, nil
	}
	for _, c := range []struct {
		what    string
		falsify func(s *workflow.State)
		want    string
	}{
		{"a last update that is lost", back, wrongLost},
		{"outputs of another call", func(s *workflow.State) {
			step(s, stepPlan).Outputs[0].Value.Paths = []string{"load_outputs/other.md"}
		}, wrongLost},
		{"notes of another call", func(s *workflow.State) { step(s, "part_2").Notes = new("other") }, wrongLost},
		{"a step that was never finished", func(s *workflow.State) {
			p := step(s, "part_1")
			p.CompletedAt, p.Outputs, p.Notes = nil, nil, nil
		}, wrongLost},
		{"a session that ended otherwise", func(s *workflow.State) { s.Status, s.AbortReason = workflow.Aborted, new("why not") }, wrongLost},
		{"a step back that nobody took", func(s *workflow.State) {
			s.History = []*workflow.Withdrawal{{From: stepWrap, To: stepPlan}}
		}, wrongDoubled},
		{"steps in another order", func(s *workflow.State) {
			p, w := step(s, stepPlan), step(s, stepWrap)
			p.CompletedAt, w.CompletedAt = w.CompletedAt, p.CompletedAt
		}, wrongOrder},
		{"a definition that was never written", func(s *workflow.State) { s.Definition.Source = strings.Repeat("0", 64) }, wrongDefinition},
		{"another goal", func(s *workflow.State) { s.Goal = "another" }, wrongRecord},
		{"another parent", func(s *workflow.State) { s.ParentSessionID = new("0badcafe") }, wrongRecord},
	} {
		t.Run(c.what, func(t *testing.T) {
			s, err := r.archive.Read(id)
			if err != nil {
				t.Fatal(err)
			}
			kept, err := os.ReadFile(sessionFile(r.root, id))
			if err != nil {
				t.Fatal(err)
			}
			defer os.WriteFile(sessionFile(r.root, id), kept, 0o600)
			c.falsify(s)
			write(t, r.root, s)
			if found := judged(t, r); !slices.Contains(found, c.want) {
				t.Errorf("it found %v, not %q", found, c.want)
			}
		})
	}

	t.Run("an older definition than a step began with", func(t *testing.T) {
		for _, a := range r.ledger.accounts {
			if a.id == id {
				defer func(served int) { a.served = served }(a.served)
				a.served = len(r.book.files[a.job][0].saves) + 1
			}
		}
		if found := judged(t, r); !slices.Contains(found, wrongDefinition) {
			t.Errorf("it found %v", found)
		}
	})
	t.Run("a file that is gone", func(t *testing.T) {
		away := sessionFile(r.root, id) + ".away"
		if err := os.Rename(sessionFile(r.root, id), away); err != nil {
			t.Fatal(err)
		}
		defer os.Rename(away, sessionFile(r.root, id))
		if found := judged(t, r); !slices.Equal(found, []string{wrongLost}) {
			t.Errorf("it found %v", found)
		}
	})
	t.Run("a file that was altered", func(t *testing.T) {
		kept, err := os.ReadFile(sessionFile(r.root, id))
		if err != nil {
			t.Fatal(err)
		}
		defer os.WriteFile(sessionFile(r.root, id), kept, 0o600)
		if err := os.WriteFile(sessionFile(r.root, id), kept[:len(kept)-30], 0o600); err != nil {
			t.Fatal(err)
		}
		if found := judged(t, r); !slices.Contains(found, wrongFile) {
			t.Errorf("it found %v", found)
		}
	})
	t.Run("a session that was started twice", func(t *testing.T) {
		s, err := r.archive.Read(id)
		if err != nil {
			t.Fatal(err)
		}
		s.SessionID = "0badcafe"
		write(t, r.root, s)
		defer os.Remove(sessionFile(r.root, s.SessionID))
		if found := judged(t, r); !slices.Equal(found, []string{wrongUnasked}) {
			t.Errorf("it found %v", found)
		}
	})
	t.Run("two owners", func(t *testing.T) {
		s, err := r.archive.Read(id)
		if err != nil {
			t.Fatal(err)
		}
		defer func(sightings []sighting) { r.ledger.sightings = sightings }(r.ledger.sightings)
		r.ledger.saw(id, 0, s.Owner)
		if found := judged(t, r); len(found) > 0 {
			t.Errorf("of one owner it found %v", found)
		}
		s.Owner = "0123456789abcdef" // while server 1 had it in use
		r.ledger.saw(id, 0, s.Owner)
		if found := judged(t, r); !slices.Equal(found, []string{wrongOwners}) {
			t.Errorf("it found %v", found)
		}
	})
	t.Run("two servers that are one owner", func(t *testing.T) {
		defer func(sightings []sighting) { r.ledger.sightings = sightings }(r.ledger.sightings)
		r.ledger.sightings = []sighting{{id, 0, "0123456789abcdef"}, {id, 1, "0123456789abcdef"}}
		if found := judged(t, r); !slices.Equal(found, []string{wrongOwners}) {
			t.Errorf("it found %v", found)
		}
	})
	t.Run("a step that two calls finished", func(t *testing.T) {
		for _, a := range r.ledger.accounts {
			if a.id == id {
				defer func(events []*event) { a.events = events }(a.events)
				again := *a.events[0]
				again.notes = "of another server"
				a.events = append([]*event{&again}, a.events...)
			}
		}
		if found := judged(t, r); !slices.Equal(found, []string{wrongDoubled}) {
			t.Errorf("it found %v", found)
		}
	})
	t.Run("a last call that was never answered", func(t *testing.T) {
		for _, a := range r.ledger.accounts {
			if a.id == id {
				last := a.events[len(a.events)-1]
				defer func(at time.Time) { last.acked = at }(last.acked)
				last.acked = time.Time{}
			}
		}
		s, err := r.archive.Read(id)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := os.ReadFile(sessionFile(r.root, id))
		if err != nil {
			t.Fatal(err)
		}
		defer os.WriteFile(sessionFile(r.root, id), kept, 0o600)
		if found := judged(t, r); len(found) > 0 {
			t.Errorf("it was made, and %v was found", found)
		}
		back(s)
		write(t, r.root, s)
		if found := judged(t, r); len(found) > 0 {
			t.Errorf("it was not made, and %v was found", found)
		}
	})
}

// A model refuses what no session can have done.
func TestModelKnowsTheRules(t *testing.T) {
	finish := func(steps ...string) (out []event) {
		for _, s := range steps {
			out = append(out, event{did: didFinish, step: s})
		}
		return out
	}
	for what, c := range map[string]struct {
		events []event
		ok     bool
	}{
		"all of it":          {finish(stepPlan, "part_2", "part_1", stepWrap), true},
		"a step twice":       {finish(stepPlan, "part_1", "part_1"), false},
		"out of turn":        {finish("part_1"), false},
		"after the end":      {finish(stepPlan, "part_1", "part_2", stepWrap, stepPlan), false},
		"after an abort":     {append([]event{{did: didAbort}}, finish(stepPlan)...), false},
		"back and again":     {append(append(finish(stepPlan, "part_1"), event{did: didGoTo, step: stepPlan}), finish(stepPlan, "part_1", "part_2")...), true},
		"back to what comes": {[]event{{did: didGoTo, step: stepWrap}}, false},
	} {
		m := newModel(2)
		var err error
		for _, e := range c.events {
			if err = m.apply(&e); err != nil {
				break
			}
		}
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The report tells each kind of what is wrong once, with how often and an example.
func TestWrongsAreCounted(t *testing.T) {
	w := wrong{newWrongs()}
	w.add("rare", "x")
	w.add("often", "first")
	w.add("often", "second")
	all := w.bag.all()
	got := map[string]int{}
	for _, k := range all {
		got[k.Kind] = k.Count
	}
	if !maps.Equal(got, map[string]int{"rare": 1, "often": 2}) || all[0].Example != "first" {
		t.Errorf("%+v", all)
	}
}
