package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
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

// judged judges a load again, as if the store had these sessions, and returns what kinds of faults it finds.
func judged(l *load, all []kept) (kinds []string) {
	h := newHistory()
	h.begun, h.effects = l.history.begun, l.history.effects
	for id, s := range l.history.sessions {
		again := *s
		again.ops = slices.DeleteFunc(slices.Clone(s.ops), func(o porcupine.Operation) bool { return o.ClientId == -1 })
		h.sessions[id] = &again
	}
	w := newWorld(l.root, l.dir, l.seed)
	w.history, w.saves = h, l.saves
	w.judgeKept(all, w.agrees)
	return slices.Collect(maps.Keys(h.faults))
}

// The judge finds nothing wrong with what a server has stored, and whatever was falsified afterwards.
func TestJudgeFindsWhatIsFalsified(t *testing.T) {
	t.Parallel()
	var l *load
	var all []kept
	at := -1
	for d := time.Second; at < 0; d *= 4 { // a loaded machine may not complete a session within the first
		l = loaded(t, "-connections", "3", "-depth", "3", "-duration", d.String(), "-seed", "7", "-edit", "-lose", "0.05")
		all = testkit.Get(l.kept(t.Context())).Must(t)
		if found := judged(l, all); len(found) > 0 {
			t.Fatalf("nothing was falsified, and it found %v", found)
		}
		at = slices.IndexFunc(all, func(k kept) bool {
			return l.history.sessions[k.id] != nil && k.record.Status == "completed" && len(k.record.History) == 0 && k.record.Parent != ""
		})
	}
	was := all[at]
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
		var s object
		testkit.Must(t, json.Unmarshal(was.body, &s))
		c.falsify(s)
		all[at].record = record{}
		testkit.Must(t, json.Unmarshal(testkit.Get(json.Marshal(s)).Must(t), &all[at].record))
		testkit.Contains(t, strings.Join(judged(l, all), ", "), c.want, "%s", what)
	}
	all[at] = was
	damaged, twice := slices.Clone(all), was
	damaged[at].err = io.ErrUnexpectedEOF
	twice.id, twice.err = "0badcafe", io.ErrUnexpectedEOF
	for want, all := range map[string][]kept{
		"a lost update": slices.Delete(slices.Clone(all), at, at+1), "something that was done more than once": append(slices.Clone(all), twice), "a session that cannot be read": damaged,
	} {
		testkit.Contains(t, strings.Join(judged(l, all), ", "), want)
	}
	l.history.sessions[was.id].save += 1000
	testkit.Contains(t, strings.Join(judged(l, all), ", "), wrongDefinition, "an older definition than a step began with")
	l.history.sessions[was.id].save -= 1000
	testkit.Must(t, os.WriteFile(exported(l.root, was.id), was.body[:len(was.body)-1], 0o600))
	testkit.Same(t, judged(l, all), []string{"an export that differs from its session"}, "an edited export")
	// A row that contradicts its state, deepwork check finds.
	db := testkit.Get(sql.Open("sqlite", l.boardFile())).Must(t)
	_, err := db.Exec("UPDATE workflow_sessions SET step = 's1' WHERE id = ?", was.id)
	testkit.Must(t, errors.Join(err, db.Close()))
	l.verify(t.Context(), "after a row was edited")
	testkit.True(t, len(l.history.faults) > 0, "deepwork check does not find a row that was edited")
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
		testkit.Same(t, n[unit], []float64{want}, "%s in\n%s", unit, out.String())
	}
	testkit.Contains(t, out.String(), "WRONG: a kind, 1 times; for example:\n  an example\n")
}
