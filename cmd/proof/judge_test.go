package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"deepwork/actor/testkit"
)

// loaded is a load that is over, on a project that is still there.
func loaded(t *testing.T, args ...string) *load {
	t.Helper()
	l := newLoad(io.Discard)
	testkit.Must(t, l.flags().Parse(args))
	testkit.Must(t, l.valid())
	l.dir = t.TempDir()
	if err := l.run(t.Context()); err != nil {
		t.Fatal(err, l.history.faults)
	}
	return l
}

// judged judges the project of a load again, and returns what kinds of faults it finds.
func judged(t *testing.T, l *load) (kinds []string) {
	t.Helper()
	h := newHistory()
	h.begun, h.effects = l.history.begun, l.history.effects
	for id, s := range l.history.sessions {
		again := *s
		again.ops = slices.DeleteFunc(slices.Clone(s.ops), func(o porcupine.Operation) bool { return o.ClientId == -1 })
		h.sessions[id] = &again
	}
	w := newWorld(l.root, l.dir, l.seed)
	w.history, w.saves = h, l.saves
	if _, err := w.judge(); err != nil {
		t.Fatal(err)
	}
	return slices.Collect(maps.Keys(h.faults))
}

// The judge finds nothing wrong with what a server has written, and whatever was
// falsified afterwards.
func TestJudgeFindsWhatIsFalsified(t *testing.T) {
	var l *load
	id := ""
	for d := time.Second; id == ""; d *= 4 { // a loaded machine may not complete a session within the first
		l = loaded(t, "-connections", "3", "-depth", "3", "-duration", d.String(), "-seed", "7", "-edit", "-lose", "0.05")
		if found := judged(t, l); len(found) > 0 {
			t.Fatalf("nothing was falsified, and it found %v", found)
		}
		for _, s := range slices.Sorted(maps.Keys(l.history.sessions)) {
			if r, err := readRecord(l.root, s); err != nil {
				t.Fatal(err)
			} else if r.Status == "completed" && len(r.History) == 0 && r.Parent != "" {
				id = s
			}
		}
	}
	const impossible = "a history that cannot have come about"
	type object = map[string]any
	step := func(s object, id string) object { return s["step_progress"].(object)[id].(object) }
	unfinish := func(p object) { p["completed_at"], p["outputs"], p["notes"] = nil, object{}, nil }
	for what, c := range map[string]struct {
		falsify func(s object)
		want    string
	}{
		"a last update that is lost":     {func(s object) { s["status"] = "active"; unfinish(step(s, "s5")) }, impossible},
		"outputs of another call":        {func(s object) { step(s, "s0")["outputs"] = object{"report": "load_outputs/other.md"} }, impossible},
		"notes of another call":          {func(s object) { step(s, "s2")["notes"] = "other" }, impossible},
		"a step that was never finished": {func(s object) { unfinish(step(s, "s1")) }, impossible},
		"a session that ended otherwise": {func(s object) { s["status"], s["abort_reason"] = "aborted", "why not" }, impossible},
		"a step back that nobody took": {func(s object) {
			s["history"] = []object{{"from_step": "s5", "to_step": "s0", "step_progress": object{}}}
		}, impossible},
		"a definition that was never written": {func(s object) { s["definition"].(object)["source"] = strings.Repeat("0", 64) }, wrongDefinition},
		"another goal":                        {func(s object) { s["goal"] = "another" }, "a session that is another than was started"},
		"a review that nobody overrode":       {func(s object) { delete(step(s, "s5"), "evidence") }, "a step with reviews that rests on something else"},
		"another parent":                      {func(s object) { s["parent_session_id"] = "0badcafe" }, "a session that is another than was started"},
	} {
		path := sessionFile(l.root, id)
		kept, err := os.ReadFile(path)
		testkit.Must(t, err)
		var s object
		testkit.Must(t, json.Unmarshal(kept, &s))
		c.falsify(s)
		text, err := json.Marshal(s)
		testkit.Must(t, err)
		for _, data := range [][]byte{text, kept} {
			testkit.Must(t, os.WriteFile(path, data, 0o600))
			if found := judged(t, l); slices.Contains(found, c.want) != bytes.Equal(data, text) {
				t.Errorf("%s: it found %v", what, found)
			}
		}
	}
	for what, c := range map[string]struct {
		falsify func(path string) error
		undo    func(path string) error
		want    string
	}{
		"a file that is gone": {func(p string) error { return os.Rename(p, p+".away") }, func(p string) error { return os.Rename(p+".away", p) }, "a lost update"},
		"a session that was started twice": {func(p string) error {
			data, err := os.ReadFile(p)
			return errors.Join(err, os.WriteFile(sessionFile(l.root, "0badcafe"), data, 0o600))
		}, func(string) error { return os.Remove(sessionFile(l.root, "0badcafe")) }, "something that was done more than once"},
		"a file that is set aside": {func(string) error {
			return os.WriteFile(filepath.Join(l.root, ".deepwork", "tmp", "damaged_session_0badcafe_x"), nil, 0o600)
		}, func(string) error {
			return os.Remove(filepath.Join(l.root, ".deepwork", "tmp", "damaged_session_0badcafe_x"))
		}, "a file that cannot be read"},
		"an older definition than a step began with": {func(string) error { l.history.sessions[id].save += 1000; return nil },
			func(string) error { l.history.sessions[id].save -= 1000; return nil }, wrongDefinition},
	} {
		testkit.Must(t, c.falsify(sessionFile(l.root, id)))
		if found := judged(t, l); !slices.Contains(found, c.want) {
			t.Errorf("%s: it found %v", what, found)
		}
		testkit.Must(t, c.undo(sessionFile(l.root, id)))
	}
	// What a file holds that does not fit its checksum, deepwork check finds.
	data, err := os.ReadFile(sessionFile(l.root, id))
	testkit.Must(t, err)
	altered := bytes.Replace(data, []byte("load_outputs/"), []byte("load_output_/"), 1)
	for what, data := range map[string][]byte{"altered": altered, "cut off": altered[:len(data)-1]} {
		l.history.faults = map[string][]string{}
		testkit.Must(t, os.WriteFile(sessionFile(l.root, id), data, 0o600))
		if l.verify(t.Context(), "after a file was "+what); len(l.history.faults) == 0 {
			t.Errorf("a file that was %s is not found", what)
		}
	}
}

// The report has every figure, of a load and of what it is compared with.
func TestReport(t *testing.T) {
	var out bytes.Buffer
	l := newLoad(&out)
	l.took, l.checked = time.Minute, 41
	for s := range 61 {
		l.memory = append(l.memory, float64(40+s/8))
	}
	for i := range 200 {
		l.history.took["finished_step"] = append(l.history.took["finished_step"], time.Duration(1+i/150*29)*time.Millisecond)
	}
	l.history.fault("a kind", "an %s", "example")
	l.report(20)
	n := numbers{}
	n.read(out.String())
	for unit, want := range map[string]float64{"checked": 41, "wrong": 1, "transitions": 200, "settled-MB": 42, "end-MB": 47, "p99/p50": 30, "of-ceiling": 0.17} {
		if got := n[unit]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %v, want %v, in\n%s", unit, got, want, out.String())
		}
	}
	if !strings.Contains(out.String(), "WRONG: a kind, 1 times; for example:\n  an example\n") {
		t.Errorf("what is wrong is not there:\n%s", out.String())
	}
}
