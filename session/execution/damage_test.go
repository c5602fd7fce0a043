package execution

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/catalog/remote"
	"deepwork/session"
)

// gone is a server of which only its journal is left.
const gone = "0123456789abcdef"

// began is when its runs did: not so long ago that they are forgotten.
var began = time.Now().UTC().Truncate(time.Microsecond)

func testID(n int) string { return fmt.Sprintf("019aa000-0000-7000-8000-00000000000%d", n) }

// written is a record of a run of that server.
func written(n int, s State, edit func(*record)) *record {
	r := &record{
		FormatVersion: 1, ExecutionID: testID(n), Server: gone, Identity: "me", Source: "plant", WorkflowID: "w", WorkflowName: "wörk",
		State: s, StatusSupported: true, StartedAt: began,
	}
	switch s {
	case waiting, starting:
	case Running:
		r.SourceExecutionID = new("x-1")
	default:
		r.EndedAt = new(r.StartedAt.Add(time.Second))
		r.Result = json.RawMessage(fmt.Sprintf(`{"n":%d,"of":"<run>"}`, n))
	}
	if edit != nil {
		edit(r)
	}
	return r
}

func encoded(t testing.TB, records ...*record) []byte {
	t.Helper()
	text, err := encode(records)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// unsealed is the line of a record as older versions wrote it.
func unsealed(t *testing.T, r *record) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// altered flips a bit of the first place where text has what.
func altered(t testing.TB, text []byte, what string) []byte {
	t.Helper()
	i := bytes.Index(text, []byte(what))
	if i < 0 {
		t.Fatalf("%s has no %s", text, what)
	}
	text = bytes.Clone(text)
	text[i+len(what)-1] ^= 1
	return text
}

// leave puts the journal of the server that is gone into a project.
func leave(t testing.TB, root string, parts ...[]byte) (dir string) {
	t.Helper()
	dir = filepath.Join(root, ".deepwork", "tmp", "runs")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "runs_"+gone+".jsonl"), bytes.Join(parts, nil), 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestTheSealIsTheLastKey: an older deepwork reads the line as it always did.
func TestTheSealIsTheLastKey(t *testing.T) {
	r := written(1, Completed, nil)
	text := encoded(t, r)
	plain := unsealed(t, r)
	body := plain[:len(plain)-len("}\n")]
	if want := fmt.Sprintf("%s,%q:%q}\n", body, "checksum", checksum(body)); string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
	// The check value of CRC-32C.
	if got := checksum([]byte("123456789")); got != "crc32c:e3069283" {
		t.Error(got)
	}
	back, err := parseRecord(bytes.TrimSpace(text))
	if err != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("%+v, %v", back, err)
	}
}

// TestNoAlteredLineIsBelieved flips each bit of a journal: what can be read of it
// then was written, what was altered is noticed, and no other line suffers.
func TestNoAlteredLineIsBelieved(t *testing.T) {
	records := []*record{written(1, starting, nil), written(2, Running, nil), written(1, Completed, nil), written(3, waiting, nil)}
	var ends []int
	for i := range records {
		ends = append(ends, len(encoded(t, records[:i+1]...)))
	}
	journal := encoded(t, records...)
	for bit := range len(journal) * 8 {
		bad := bytes.Clone(journal)
		bad[bit/8] ^= 1 << (bit % 8)
		at := 0 // the line of the bit
		for bit/8 >= ends[at] {
			at++
		}
		whole := bit/8 == ends[at]-1 // its line break
		noticed := false
		var read []*record
		for l := range lines(bad) {
			noticed = noticed || l.damaged() != nil
			if l.err == nil {
				read = append(read, l.rec)
			}
		}
		var want []*record
		for i, r := range records {
			if i != at || whole {
				want = append(want, r)
			}
		}
		if !noticed || !reflect.DeepEqual(read, want) {
			t.Fatalf("bit %d of byte %d, in record %d: noticed %v, and read %d records:\n%s", bit%8, bit/8, at, noticed, len(read), bad)
		}
	}
}

// TestTheEndOfAJournalIsTornOrAltered: what a kill cuts off is no damage.
func TestTheEndOfAJournalIsTornOrAltered(t *testing.T) {
	first := encoded(t, written(1, Completed, nil))
	journal := append(bytes.Clone(first), encoded(t, written(2, Completed, nil))...)
	for n := len(first); n < len(journal); n++ {
		all := latest(journal[:n])
		if len(all) != 1 || all[0].damaged() != nil || all[0].rec.ExecutionID != testID(1) {
			t.Fatalf("cut to %d bytes: %+v", n, all)
		}
	}
	all := latest(append(journal[:len(journal)-1:len(journal)-1], '\v'))
	if len(all) != 2 || all[1].damaged() == nil || all[1].err != nil || all[1].rec.ExecutionID != testID(2) {
		t.Errorf("%+v", all)
	}
}

// TestARunWhoseRecordIsDamagedIsTold: by what else is known of it, or as unknown;
// never by what stands in the damaged record.
func TestARunWhoseRecordIsDamagedIsTold(t *testing.T) {
	line := func(s State) []byte { return encoded(t, written(1, s, nil)) }
	bad := func(s State) []byte { return altered(t, line(s), `"workflow_name":"w`) }
	garbage := []byte("\x00\x01{\n")
	for name, c := range map[string]struct {
		journal [][]byte
		state   State
		words   string // of its error
	}{
		"its end":                            {[][]byte{line(starting), altered(t, line(Completed), `"n":1`)}, Unknown, "altered"},
		"its end, that is no JSON now":       {[][]byte{line(starting), altered(t, line(Completed), `"n"`)}, Unknown, "altered"},
		"all that there is":                  {[][]byte{altered(t, line(Completed), `"n":1`)}, Unknown, "altered"},
		"all that there is, twice":           {[][]byte{bad(starting), bad(Completed)}, Unknown, "altered"},
		"its state":                          {[][]byte{line(starting), altered(t, line(Failed), `"state":"f`)}, Unknown, "altered"},
		"when it began":                      {[][]byte{altered(t, line(Completed), `"started_at`)}, Unknown, "altered"},
		"its seal":                           {[][]byte{line(starting), altered(t, line(Completed), `"checksum"`)}, Unknown, "is not known"},
		"the name of its seal":               {[][]byte{line(starting), altered(t, line(Completed), `,"check`)}, Unknown, "is not known"},
		"its version":                        {[][]byte{line(starting), bytes.Replace(line(Completed), []byte(`"format_version":1`), []byte(`"format_version":3`), 1)}, Unknown, "altered"},
		"that it began, where it has ended":  {[][]byte{bad(starting), line(Completed)}, Completed, ""},
		"something after its end":            {[][]byte{line(Completed), bad(Completed)}, Completed, ""},
		"that it began, and it waited":       {[][]byte{line(waiting), bad(starting)}, Unknown, "may be of this run"},
		"something while it waited":          {[][]byte{line(waiting), garbage}, Unknown, "may be of this run"},
		"another id while it waited":         {[][]byte{line(waiting), altered(t, line(starting), `"execution_id":"019aa000-0000-7000-8000-000000000001`)}, Unknown, "may be of this run"},
		"something before it waited":         {[][]byte{garbage, bad(waiting), line(waiting)}, Failed, "nothing was started"},
		"that it waited":                     {[][]byte{bad(waiting), line(starting)}, Unknown, "before the source had answered"},
		"its end, and its source knows it":   {[][]byte{line(starting), line(Running), bad(Completed)}, Completed, ""},
		"what its source has accepted":       {[][]byte{line(starting), bad(Running)}, Unknown, "altered"},
		"a line break":                       {[][]byte{line(starting), line(Completed)[:len(line(Completed))-1], []byte("*")}, Completed, ""},
		"a line break before its end":        {[][]byte{bytes.ReplaceAll(line(waiting), []byte("\n"), []byte("J")), line(Completed)}, Completed, ""},
		"a line break that came in between":  {[][]byte{line(starting), bytes.ReplaceAll(line(Completed), []byte("<run>"), []byte("<\nrun>"))}, Unknown, "is not known"},
		"a line that was torn in the middle": {[][]byte{line(starting), line(Completed)[:100], []byte("\n")}, Unknown, "is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p, root := newPlant(), newRoot(t)
				result := fmt.Sprintf(`{"n":%d,"of":"<run>"}`, 1)
				p.jobs["x-1"] = &job{answer: remote.Answer{Output: json.RawMessage(result)}}
				// Another run of the same journal, around it.
				journal := append([][]byte{encoded(t, written(2, starting, nil))}, c.journal...)
				journal = append(journal, []byte("\n"), encoded(t, written(2, Completed, nil)))
				leave(t, root, journal...)
				// A server that took it up is itself taken up: what was found out stays.
				for range 2 {
					s := open(t, root, p, nil)
					time.Sleep(time.Second)
					r := mustStatus(t, s.Engine, testID(1))
					if r.State != c.state || r.WorkflowName != "wörk" && r.State != Unknown || r.EndedAt == nil {
						t.Errorf("%+v", r)
					}
					if (r.Error == nil) != (c.words == "") || c.words != "" && !strings.Contains(*r.Error, c.words) {
						t.Errorf("it says %v", r.Error)
					}
					if c.state == Completed && string(r.Result) != result || c.state == Unknown && r.Result != nil {
						t.Errorf("its result is %s", r.Result)
					}
					if r := mustStatus(t, s.Engine, testID(2)); r.State != Completed || string(r.Result) != `{"n":2,"of":"<run>"}` {
						t.Errorf("the other one: %+v", r)
					}
					s.stop()
				}
				if len(p.started) != 0 {
					t.Error("something was started")
				}
				aside := files(t, root)["damaged_runs_"+gone+".jsonl"]
				if want := string(bytes.Join(journal, nil)); aside != want {
					t.Errorf("set aside is %q, want %q", aside, want)
				}
			})
		})
	}
}

// TestARunThatCannotBeToldFromDamage: its id is what was damaged. It is not said
// that it was never started.
func TestARunThatCannotBeToldFromDamage(t *testing.T) {
	for _, what := range []string{`"execution_id":"019aa`, `"execution_id`, `"identity`, `{`} {
		root := newRoot(t)
		leave(t, root, altered(t, encoded(t, written(1, Completed, nil)), what))
		for range 2 { // also when it was set aside long ago
			s := open(t, root, newPlant(), nil)
			_, err := s.Status(t.Context(), "me", testID(1))
			wantCode(t, err, session.StateError, "unknown_run", "damaged_runs_"+gone, "before you start it again")
			_, err = s.Status(t.Context(), "me", "x-1")
			wantCode(t, err, session.ToolError, "invalid_execution_id", "damaged_runs_"+gone)
			s.stop()
		}
	}
	s := open(t, newRoot(t), newPlant(), nil)
	s.start(workflow(t, "w", false, script{}), `{}`).wait()
	if _, err := s.Status(t.Context(), "me", testID(1)); strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("nothing is damaged: %v", err)
	}
	// It is set aside by who asks.
	leave(t, filepath.Dir(filepath.Dir(filepath.Dir(s.store.dir))), altered(t, encoded(t, written(1, Completed, nil)), `"identity`))
	_, err := s.Status(t.Context(), "me", testID(1))
	wantCode(t, err, session.StateError, "unknown_run", "damaged_runs_"+gone)
	// Not a file at all.
	name := "runs_" + gone + ".jsonl"
	if err := os.Mkdir(filepath.Join(s.store.dir, name), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = s.Status(t.Context(), "me", testID(1))
	wantCode(t, err, session.StateError, "unknown_run", ", "+name)
}

// TestADamagedRecordThatDoesNotFit is no reason to take up nothing.
func TestADamagedRecordThatDoesNotFit(t *testing.T) {
	root := newRoot(t)
	long := bytes.Replace(encoded(t, written(1, starting, nil)), []byte(`"me"`), []byte(`"`+strings.Repeat("m", recordLimit)+`"`), 1)
	leave(t, root, long, encoded(t, written(2, Completed, nil)))
	s := open(t, root, newPlant(), nil)
	if r := mustStatus(t, s.Engine, testID(2)); r.State != Completed || s.Stats().Kept != 1 {
		t.Errorf("%+v, %+v", r, s.Stats())
	}
}

// TestDamageInTwoJournals: a server was killed while it took up another's runs, and
// what it wrote is damaged.
func TestDamageInTwoJournals(t *testing.T) {
	for name, c := range map[string]struct {
		older, newer []byte
		state        State
	}{
		"of one that waited": {encoded(t, written(1, waiting, nil)), altered(t, encoded(t, written(1, Failed, nil)), `"workflow_name":"w`), Unknown},
		"of one that ended":  {encoded(t, written(1, Completed, nil)), altered(t, encoded(t, written(1, Completed, nil)), `"workflow_name":"w`), Completed},
		"the older":          {altered(t, encoded(t, written(1, waiting, nil)), `"workflow_name":"w`), encoded(t, written(1, Failed, nil)), Failed},
	} {
		for _, other := range []string{"00000000000000aa", "ff000000000000ff"} { // before and after
			root := newRoot(t)
			dir := leave(t, root, c.older)
			if err := os.WriteFile(filepath.Join(dir, "runs_"+other+".jsonl"), c.newer, 0o600); err != nil {
				t.Fatal(err)
			}
			s := open(t, root, newPlant(), nil)
			if r := mustStatus(t, s.Engine, testID(1)); r.State != c.state {
				t.Errorf("%s: %+v", name, r)
			}
			s.stop()
		}
	}
}

// TestDamageInTheJournalOfAServerThatLives: the others say what they cannot know;
// it itself goes by what it has in memory, and gives no result that it cannot read.
func TestDamageInTheJournalOfAServerThatLives(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, root := newPlant(), newRoot(t)
		a, b := open(t, root, p, nil), open(t, root, p, nil)
		runs := a.start(workflow(t, "v", true, script{lasts: time.Hour}), `{}`)
		synctest.Wait()
		only := a.start(workflow(t, "only", false, script{lasts: time.Hour}), `{}`) // one record
		synctest.Wait()
		ended := a.start(workflow(t, "w", false, script{answer: remote.Answer{Output: json.RawMessage(`"seven"`)}}), `{}`)
		ended.wait()
		path := a.store.journalPath(a.store.server)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text = altered(t, altered(t, text, `"seven`), `"workflow_name":"only`)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := mustStatus(t, b.Engine, only.id()); r.State != Unknown || !strings.Contains(*r.Error, "that server runs") {
			t.Errorf("%+v", r)
		}
		if r := mustStatus(t, b.Engine, ended.id()); r.State != Unknown || r.Result != nil || !strings.Contains(*r.Error, "that server runs") {
			t.Errorf("%+v", r)
		}
		if r := mustStatus(t, b.Engine, runs.id()); r.State != Running || !strings.Contains(*r.Error, "that server runs") {
			t.Errorf("%+v", r)
		}
		_, err = b.Status(t.Context(), "me", testID(1))
		wantCode(t, err, session.StateError, "unknown_run", filepath.Base(path))
		if r := mustStatus(t, a.Engine, ended.id()); r.State != Completed || string(r.Result) != `"seven"` {
			t.Errorf("%+v", r)
		}
		a.kept.mu.Lock()
		a.kept.lighten(a.kept.entries[ended.id()])
		a.kept.mu.Unlock()
		if r := mustStatus(t, a.Engine, ended.id()); r.Result != nil || r.Error == nil || !strings.Contains(*r.Error, "no longer be read") {
			t.Errorf("%+v", r)
		}
		// Made shorter, it still has all that there is.
		a.store.mu.Lock()
		a.store.shorten()
		a.store.mu.Unlock()
		a.stop()
		runs.wait()
		if r := mustStatus(t, b.Engine, ended.id()); r.State != Unknown || !strings.Contains(*r.Error, "altered") {
			t.Errorf("%+v", r)
		}
		if r := mustStatus(t, b.Engine, runs.id()); r.State != Running || b.Stats().Running != 1 {
			t.Errorf("%+v, %+v", r, b.Stats())
		}
	})
}

// TestALongResultThatIsAlteredIsNotGiven: it is still JSON.
func TestALongResultThatIsAlteredIsNotGiven(t *testing.T) {
	root := newRoot(t)
	s := open(t, root, newPlant(), nil)
	long := json.RawMessage(`"` + strings.Repeat("x", inlineLimit) + `"`)
	c := s.start(workflow(t, "w", false, script{answer: remote.Answer{Output: long}}), `{}`)
	c.wait()
	s.stop()
	s = open(t, root, newPlant(), nil)
	if r := mustStatus(t, s.Engine, c.id()); string(r.Result) != string(long) {
		t.Errorf("%d bytes; %v", len(r.Result), r.Error)
	}
	path := filepath.Join(s.store.dir, c.id()+".result")
	if err := os.WriteFile(path, altered(t, long, "xx"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := mustStatus(t, s.Engine, c.id()); r.Result != nil || r.State != Completed || !strings.Contains(*r.Error, "no longer be read") {
		t.Errorf("%+v", r)
	}
	wantFault(t, root, path, "its checksum does not match")
}

// TestLinesOfOlderVersionsAreRead: they have no checksum.
func TestLinesOfOlderVersionsAreRead(t *testing.T) {
	root := newRoot(t)
	dir := leave(t, root, unsealed(t, written(1, starting, nil)), unsealed(t, written(1, Completed, nil)),
		unsealed(t, written(2, Completed, func(r *record) { r.Result, r.ResultKept = nil, true })))
	if err := os.WriteFile(filepath.Join(dir, testID(2)+".result"), []byte(`"long"`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, root, newPlant(), nil)
	if r := mustStatus(t, s.Engine, testID(1)); r.State != Completed || string(r.Result) != `{"n":1,"of":"<run>"}` {
		t.Errorf("%+v", r)
	}
	if r := mustStatus(t, s.Engine, testID(2)); r.State != Completed || string(r.Result) != `"long"` {
		t.Errorf("%+v", r)
	}
	if f := files(t, root); len(f) != 2 {
		t.Errorf("there is %v", f)
	}
	for l := range lines([]byte(files(t, root)["runs_"+s.store.server+".jsonl"])) {
		if sealed, err := verify(l.raw); !sealed || err != nil {
			t.Errorf("%s: %v", l.raw, err)
		}
	}
}

// TestInspectTellsOfAlteredRecords, of each in its place.
func TestInspectTellsOfAlteredRecords(t *testing.T) {
	root := newRoot(t)
	good := encoded(t, written(1, Completed, nil))
	dir := leave(t, root, good, altered(t, encoded(t, written(2, Completed, nil)), `"n":2`), good[:len(good)-1], []byte("*"), good)
	path := filepath.Join(dir, "runs_"+gone+".jsonl")
	wantFault(t, root, path, "record 2 cannot be read: its checksum does not match")
	wantFault(t, root, path, "the line break behind record 3 was altered")
}

func wantFault(t *testing.T, root, path, what string) {
	t.Helper()
	report, err := Inspect(t.Context(), root, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		if f.Where == path && !f.Note && strings.Contains(f.What, what) {
			return
		}
	}
	t.Errorf("there is no fault %q of %s in %+v", what, path, report.Findings)
}

// FuzzLines: whatever a journal holds, what is read of it as sealed was sealed so,
// and one bit makes no record another one.
func FuzzLines(f *testing.F) {
	for _, s := range []State{waiting, Running, Completed} {
		text := encoded(f, written(1, s, nil), written(2, s, nil))
		f.Add(text, []byte(`{"a":[1,"x"]}`), uint32(99))
		f.Add(altered(f, text, `"checksum"`), []byte("7"), uint32(7000))
		f.Add(bytes.Replace(text, []byte("\n"), []byte("*"), 1), []byte("null"), uint32(0))
	}
	f.Add([]byte(sealHead+sumHead+"00000000"+sealTail+"\n"), []byte(sealHead), uint32(1))
	f.Add([]byte("{}\n\n\r\n{"), []byte(`"\n{"`), uint32(1<<31))
	f.Fuzz(func(t *testing.T, journal, result []byte, bit uint32) {
		for l := range lines(journal) {
			if len(l.raw) == 0 || l.rec != nil && !isID(l.rec.ExecutionID) {
				t.Errorf("%q is read as %+v", l.raw, l)
			}
			if l.err != nil || !bytes.Contains(l.raw, []byte(`"checksum":`)) {
				continue
			}
			if n := len(l.raw) - sealSize; n < 0 || string(l.raw[n:]) != `,"checksum":"`+checksum(l.raw[:n])+`"}` {
				t.Errorf("%q is believed", l.raw)
			}
		}
		for _, l := range latest(journal) {
			if l.rec != nil && l.err == nil {
				encoded(t, l.rec)
			}
		}
		if !json.Valid(result) || len(result) > inlineLimit {
			return
		}
		first, second := written(1, Completed, func(r *record) { r.Result = result }), written(2, Running, nil)
		whole := encoded(t, first, second)
		at := int(bit) % (8 * len(whole))
		bad := bytes.Clone(whole)
		bad[at/8] ^= 1 << (at % 8)
		want := map[string]string{testID(1): string(encoded(t, first)), testID(2): string(encoded(t, second))}
		noticed := false
		for l := range lines(bad) {
			noticed = noticed || l.damaged() != nil
			if l.err == nil && want[l.rec.ExecutionID] != string(encoded(t, l.rec)) {
				t.Errorf("bit %d makes %q of it", at, l.raw)
			}
		}
		if !noticed {
			t.Errorf("bit %d is not noticed: %q", at, bad)
		}
	})
}
