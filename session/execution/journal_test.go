package execution

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/durable"
	"deepwork/catalog/config"
	"deepwork/catalog/remote"
	"deepwork/session"
)

func TestRecordsThatCannotBeTakenUp(t *testing.T) {
	p, root := newPlant(), newRoot(t)
	dir := filepath.Join(root, ".deepwork", "tmp", "runs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	id := func(n int) string { return fmt.Sprintf("019aa000-0000-7000-8000-00000000000%d", n) }
	text := func(n int, edit func(*record)) string {
		r := record{FormatVersion: 1, ExecutionID: id(n), Server: "0123456789abcdef", Identity: "me", State: starting, StatusSupported: true, StartedAt: time.Now()}
		if edit != nil {
			edit(&r)
		}
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	newer := fmt.Sprintf(`{"format_version": 2, "execution_id": 7, "padding": %q}`, id(4))
	for name, data := range map[string]string{
		// Whole but for its end, which a kill cut off.
		"runs_0123456789abcdef.jsonl": text(1, nil) + "\n\n" + newer + "\n" + text(2, nil)[:60],
		// With what no deepwork writes.
		"runs_00000000000000aa.jsonl": text(3, nil)[:50] + "\n" + text(5, nil) + "\n" +
			text(6, func(r *record) { r.State = "dreaming" }) + "\n" +
			text(7, func(r *record) { r.ExecutionID = "../../evil" }) + "\n" +
			text(8, func(r *record) { r.State = Running }) + "\n\x00\x00\x00\n",
		"runs_nonsense.jsonl":            text(9, nil) + "\n",
		id(9) + ".result":                "7",
		"server_0123456789abcdef.lock":   "",
		"write_0123456789abcdef_3.tmp":   "half",
		"write_nonsense.tmp":             "x",
		"server_0123456789abcdef.locked": "x",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, root, p, nil)
	for _, n := range []int{1, 5, 6, 8} { // of 6 and 8 no more is known than that they were
		if r := mustStatus(t, s.Engine, id(n)); r.State != Unknown {
			t.Errorf("%+v", r)
		}
	}
	if n := s.Stats(); n != (Stats{Kept: 4}) {
		t.Errorf("%+v", n)
	}
	f := files(t, root)
	if own := f["runs_"+s.store.server+".jsonl"]; !strings.Contains(own, newer+"\n") {
		t.Errorf("the record of a newer deepwork is gone: %s", own)
	}
	delete(f, "runs_"+s.store.server+".jsonl")
	for _, name := range []string{"damaged_runs_00000000000000aa.jsonl", "runs_nonsense.jsonl", "write_nonsense.tmp"} {
		if _, ok := f[name]; !ok {
			t.Errorf("%s is gone", name)
		}
		delete(f, name)
	}
	delete(f, "server_0123456789abcdef.locked")
	if len(f) != 0 {
		t.Errorf("there is still %v", f)
	}
	if !s.log.has("level=WARN", "newer") || !s.log.has("level=WARN", "set aside") {
		t.Error(s.log)
	}
}

// TestTheJournalIsMadeShorter: what nobody can ask about leaves it, and nothing else.
func TestTheJournalIsMadeShorter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, root := newPlant(), newRoot(t)
		s := open(t, root, p, func(w *config.WorkflowTools) { w.ExecutionTimeout = 0 })
		long := s.start(workflow(t, "long", true, script{lasts: 1000 * time.Hour}), `{}`)
		result := json.RawMessage(`"` + strings.Repeat("<", inlineLimit-2) + `"`)
		w := workflow(t, "w", false, script{answer: remote.Answer{Output: result}})
		var last *pending
		runs := func(n int) {
			for range n {
				last = s.start(w, `{}`)
				if _, err := last.wait(); err != nil {
					t.Fatal(err)
				}
			}
		}
		size := func() int64 {
			s.store.mu.Lock()
			defer s.store.mu.Unlock()
			return s.store.size
		}
		runs(30)
		time.Sleep(keepFor)
		s.store.mu.Lock()
		s.store.limit = 41 * inlineLimit
		s.store.mu.Unlock()
		runs(9)
		if n := size(); n < 39*inlineLimit || n > 41*inlineLimit {
			t.Errorf("at first it has %d bytes", n)
		}
		runs(2)
		if n := size(); n < 10*inlineLimit || n > 13*inlineLimit {
			t.Errorf("then it has %d bytes", n)
		}
		s.store.mu.Lock()
		if s.store.limit != journalLimit {
			t.Errorf("the limit is %d", s.store.limit)
		}
		s.store.mu.Unlock()
		s.stop()
		long.wait()
		s = open(t, root, p, nil)
		if r := mustStatus(t, s.Engine, last.id()); string(r.Result) != string(result) {
			t.Errorf("%d bytes", len(r.Result))
		}
		if r := mustStatus(t, s.Engine, long.id()); r.State != Running {
			t.Errorf("%+v", r)
		}
		if n := s.Stats(); n != (Stats{Running: 1, Kept: 12}) {
			t.Errorf("%+v", n)
		}
	})
}

// TestATornLineHarmsNoOther: a line that was not written whole, by a disk that
// was full, say.
func TestATornLineHarmsNoOther(t *testing.T) {
	p, root := newPlant(), newRoot(t)
	s := open(t, root, p, nil)
	a := s.start(workflow(t, "a", false, script{}), `{}`)
	a.wait()
	s.store.mu.Lock()
	if _, err := s.store.file.WriteString(`{"format_version":1,"exec`); err != nil {
		t.Error(err)
	}
	s.store.torn = true
	s.store.mu.Unlock()
	b := s.start(workflow(t, "b", false, script{}), `{}`)
	b.wait()
	s.stop()
	s = open(t, root, p, nil)
	for _, c := range []*pending{a, b} {
		if r := mustStatus(t, s.Engine, c.id()); r.State != Completed {
			t.Errorf("%+v", r)
		}
	}
}

// TestAFullDiskLeavesNoHalfLine: a line of which only a part could be written goes,
// so that nobody takes the journal for damaged.
func TestAFullDiskLeavesNoHalfLine(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open to append cannot be cut off there")
	}
	p, root := newPlant(), newRoot(t)
	s := open(t, root, p, nil)
	s.start(workflow(t, "a", false, script{}), `{}`).wait()
	var full atomic.Bool
	s.store.mu.Lock()
	s.store.disk.Carry = func(op durable.Op, do func() error) error {
		if op.Do == durable.OpWrite && full.Load() {
			_, err := op.File.Write(op.Data[:len(op.Data)/2])
			return errors.Join(err, syscall.ENOSPC)
		}
		return do()
	}
	s.store.mu.Unlock()
	full.Store(true)
	_, err := s.call(t.Context(), "me", workflow(t, "b", false, script{}), json.RawMessage(`{}`), nil)
	if session.CodeOf(err) != "run_not_saved" {
		t.Errorf("it was not refused: %v", err)
	}
	full.Store(false)
	c := s.start(workflow(t, "c", false, script{}), `{}`)
	c.wait()
	for l := range lines([]byte(files(t, root)["runs_"+s.store.server+".jsonl"])) {
		if l.err != nil {
			t.Errorf("%s: %v", l.raw, l.err)
		}
	}
	s.stop()
	if r := mustStatus(t, open(t, root, p, nil).Engine, c.id()); r.State != Completed {
		t.Errorf("%+v", r)
	}
}

// TestARunIsInTwoJournals: a server was killed while it took up another's runs.
func TestARunIsInTwoJournals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, root := newPlant(), newRoot(t)
		s := open(t, root, p, nil)
		ended := s.start(workflow(t, "w", false, script{}), `{}`)
		ended.wait()
		runs := s.start(workflow(t, "v", true, script{lasts: time.Hour}), `{}`)
		synctest.Wait()
		s.stop()
		runs.wait()
		data := files(t, root)["runs_"+s.store.server+".jsonl"]
		older, _, _ := strings.Cut(data, "\n") // ended, when it had just started
		for name, text := range map[string]string{"runs_00000000000000aa.jsonl": older + "\n", "runs_ff000000000000ff.jsonl": data} {
			if err := os.WriteFile(filepath.Join(s.store.dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s = open(t, root, p, nil)
		if n := s.Stats(); n != (Stats{Running: 1, Kept: 2}) {
			t.Errorf("%+v", n)
		}
		if r := mustStatus(t, s.Engine, ended.id()); r.State != Completed {
			t.Errorf("%+v", r)
		}
	})
}

func TestTheFolderIsRemovedWhileAServerRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, root := newPlant(), newRoot(t)
		s := open(t, root, p, nil)
		w := workflow(t, "w", true, script{lasts: 10 * time.Second})
		c := s.start(w, `{}`)
		synctest.Wait()
		if err := os.RemoveAll(filepath.Join(root, ".deepwork")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.wait(); err != nil {
			t.Fatal(err)
		}
		d := s.start(w, `{}`)
		synctest.Wait()
		if other := open(t, root, p, nil); other.Stats().Running != 0 {
			t.Error("a server that lives was taken for gone")
		}
		if _, err := d.wait(); err != nil {
			t.Fatal(err)
		}
		if f := files(t, root); len(f) != 1 {
			t.Errorf("there is %v", f)
		}
	})
}

func TestNothingIsStartedThatCannotBeWrittenDown(t *testing.T) {
	p, root := newPlant(), newRoot(t)
	s := open(t, root, p, nil)
	if err := os.WriteFile(filepath.Join(root, ".deepwork"), nil, 0o600); err != nil { // in the folder's place
		t.Fatal(err)
	}
	_, err := s.call(t.Context(), "me", workflow(t, "w", false, script{}), nil, nil)
	wantCode(t, err, session.StateError, "run_not_saved", ".deepwork")
	if n := s.Stats(); n != (Stats{}) || p.started["w"] != 0 {
		t.Errorf("%+v, started %d", n, p.started["w"])
	}
}

func TestFilesAreForTheUserAlone(t *testing.T) {
	root := newRoot(t)
	s := open(t, root, newPlant(), nil)
	if _, err := os.Stat(filepath.Join(root, ".deepwork")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("made before the first run: %v", err)
	}
	c := s.start(workflow(t, "w", false, script{}), `{"password":"hunter2"}`)
	c.wait()
	fi, err := os.Stat(s.store.journalPath(s.store.server))
	if err != nil || fi.Mode().Perm() != 0o600 && os.PathSeparator == '/' {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	for name, data := range files(t, root) {
		if strings.Contains(data, "hunter2") {
			t.Errorf("the arguments stand in %s", name)
		}
	}
	if data, err := os.ReadFile(filepath.Join(s.store.dir, ".gitignore")); err != nil || string(data) != "*\n" {
		t.Errorf("%q, %v", data, err)
	}
	s.stop()
	entries, err := filepath.Glob(filepath.Join(s.store.dir, "server_*"))
	if err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func FuzzRecord(f *testing.F) {
	const id = "019aa000-0000-7000-8000-000000000009"
	f.Add([]byte(`{"format_version":1,"execution_id":"` + id + `","server":"0123456789abcdef","state":"running","status_supported":true,"source_execution_id":"x","started_at":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"format_version":1,"execution_id":"` + id + `","server":"0123456789abcdef","state":"completed","ended_at":"2026-01-02T03:04:05Z","result":{"a":1},"started_at":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"format_version":9}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseRecord(data)
		if err != nil {
			return
		}
		run := r.run()
		if !isID(run.ExecutionID) || r.State == Running && r.StatusSupported && r.SourceExecutionID == nil {
			t.Errorf("%+v", r)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseRecord(text)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := json.Marshal(again); err != nil || string(b) != string(text) {
			t.Errorf("%s became %s", text, b)
		}
	})
}

// TestATornLineSpoilsNoOther: a disk that takes half of a line, or cannot sync,
// makes the call fail that wrote it; what was written before and what is written
// after is there.
func TestATornLineSpoilsNoOther(t *testing.T) {
	s := openStore(filepath.Join(t.TempDir(), "tmp", "runs"), nil, slog.New(slog.DiscardHandler), func(string) bool { return true })
	id := func(n int) string { return fmt.Sprintf("019aa000-0000-7000-8000-00000000000%d", n) }
	save := func(n int) error {
		return s.append(t.Context(), true, false, &record{
			FormatVersion: 1, ExecutionID: id(n), Server: s.server, Identity: "me", State: starting, StartedAt: time.Now(),
		})
	}
	broken := errors.New("the disk is broken")
	failing := ""
	s.disk.Carry = func(op durable.Op, do func() error) error {
		if op.Do != failing {
			return do()
		}
		if op.Do == durable.OpWrite {
			if _, err := op.File.Write(op.Data[:len(op.Data)/2]); err != nil {
				return err
			}
		}
		return broken
	}
	for n, c := range []struct {
		fail string
		kept bool
	}{{"", true}, {durable.OpWrite, false}, {"", true}, {durable.OpSync, true}, {"", true}} {
		failing = c.fail
		if err := save(n); errors.Is(err, broken) != (c.fail != "") || err != nil && !strings.Contains(err.Error(), s.dir) {
			t.Errorf("record %d: %v", n, err)
		}
		failing = ""
		if _, err := s.last(id(n)); (err == nil) != c.kept {
			t.Errorf("record %d is read: %v", n, err)
		}
	}
	for _, n := range []int{0, 2, 4} {
		if _, err := s.last(id(n)); err != nil {
			t.Errorf("record %d is gone: %v", n, err)
		}
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}
