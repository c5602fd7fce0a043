package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// maxEncoded bounds an encoded entry: each byte of its text may need six.
const maxEncoded = 6*MaxLine + 200

func openedLog(t *testing.T, dir string) *logFile {
	t.Helper()
	l, err := openLog(dir, notePatience)
	must(t, err)
	t.Cleanup(func() { l.close() })
	return l
}

// size is what a log takes on disk.
func size(t *testing.T, dir string) (n int64) {
	t.Helper()
	segs, err := segments(dir)
	must(t, err)
	for _, s := range segs {
		n += s.size
	}
	return n
}

func tailed(t *testing.T, dir string, after *int64, limit int) ([]Entry, int64) {
	t.Helper()
	entries, next, err := Tail(t.Context(), dir, after, limit, 0)
	must(t, err)
	return entries, next
}

func TestTail(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	if entries, next := tailed(t, dir, nil, 10); entries != nil || next != -1 {
		t.Errorf("no log: %v, %d", entries, next)
	}
	l := openedLog(t, dir)
	before := time.Now().Add(-time.Second)
	l.write(Stdout, []byte("zero"), []byte(""))
	l.write(Stderr, []byte("two \x00 \"<>&\\ \u2028 é \xff\x1b[31m"))
	l.system("three %d", 3)
	all, next := tailed(t, dir, nil, 10)
	if next != 3 || len(all) != 4 {
		t.Fatalf("%v, %d", all, next)
	}
	for i, want := range []Entry{{0, time.Time{}, Stdout, "zero"}, {1, time.Time{}, Stdout, ""}, {2, time.Time{}, Stderr, "two \x00 \"<>&\\ \u2028 é \ufffd\x1b[31m"}, {3, time.Time{}, System, "three 3"}} {
		if got := all[i]; got.Time.Before(before) || got.Index != want.Index || got.Stream != want.Stream || got.Text != want.Text {
			t.Errorf("entry %d: %+v", i, got)
		}
	}
	for _, c := range []struct {
		after *int64
		limit int
		want  []Entry
		next  int64
	}{
		{nil, 1, all[3:], 3}, {nil, 0, all[3:], 3}, {new(int64(-1)), 2, all[:2], 1}, {new(int64(-9)), 9, all, 3},
		{new(int64(1)), 10, all[2:], 3}, {new(int64(2)), 10, all[3:], 3}, {new(int64(3)), 10, nil, 3}, {new(int64(99)), 10, nil, 3},
	} {
		if got, next := tailed(t, dir, c.after, c.limit); !slices.Equal(got, c.want) || next != c.next {
			t.Errorf("after %v limit %d: %v, %d", c.after, c.limit, got, next)
		}
	}
}

func TestTailWaits(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, after := range []*int64{nil, new(int64(-1))} {
		wg.Go(func() {
			if entries, next, err := Tail(t.Context(), dir, after, 5, time.Minute); err != nil || len(entries) != 1 || entries[0].Text != "news" || next != 0 {
				t.Errorf("%v, %d, %v", entries, next, err)
			}
		})
	}
	must(t, Note(dir, "news"))
	wg.Wait()
	// One who is ahead of the log gets what is new.
	found := make(chan bool)
	wg.Go(func() {
		defer close(found)
		if entries, _, err := Tail(t.Context(), dir, new(int64(77)), 5, time.Minute); err != nil || len(entries) == 0 || entries[0].Index == 0 {
			t.Errorf("%v, %v", entries, err)
		}
	})
	for n, more := int64(0), true; more; {
		must(t, Note(dir, "more"))
		if n++; n > 70 {
			t.Fatal("it is not found")
		}
		select {
		case <-found:
			more = false
		case <-time.After(20 * time.Millisecond):
		}
	}
	_, end := tailed(t, dir, nil, 1)
	if entries, next, err := Tail(t.Context(), dir, &end, 5, 30*time.Millisecond); err != nil || entries != nil || next != end {
		t.Errorf("nothing new: %v, %d, %v", entries, next, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Tail(ctx, dir, &end, 5, time.Hour); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestNote(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	must(t, Note(dir, "one"))
	must(t, Note(dir, "two\nthree\n"))
	entries, _ := tailed(t, dir, nil, 10)
	if texts(entries, System) != "one|two|three" || entries[2].Index != 2 {
		t.Errorf("%v", entries)
	}
	openedLog(t, dir)
	if err := Note(dir, "four"); err == nil || !strings.Contains(err.Error(), "a run writes it now") {
		t.Error(err)
	}
}

// A log keeps 32 MiB, of which the oldest go first, and its indexes go on.
func TestLogRotates(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	l := openedLog(t, dir)
	line := bytes.Repeat([]byte("x"), 1000)
	const n = 50_000
	for i := range n {
		if l.write(Stdout, fmt.Appendf(nil, "%d %s", i, line)); i%5000 == 0 {
			if got := size(t, dir); got > MaxLogBytes {
				t.Fatalf("it has %d bytes", got)
			}
		}
	}
	if got := size(t, dir); got > MaxLogBytes || got < MaxLogBytes-segmentBytes-2000 {
		t.Errorf("it has %d bytes", got)
	}
	oldest, _ := tailed(t, dir, new(int64(-1)), 1)
	if segs, err := segments(dir); err != nil || oldest[0].Index == 0 || oldest[0].Index != segs[0].first {
		t.Errorf("the oldest is %d", oldest[0].Index)
	}
	// Every index from there on is there, whichever way it is asked for.
	for i, after := 0, oldest[0].Index-1; ; i++ {
		entries, next := tailed(t, dir, &after, 1000)
		if len(entries) == 0 {
			if after != n-1 {
				t.Errorf("it ends with %d", after)
			}
			break
		}
		for j, e := range entries {
			if e.Index != after+1+int64(j) || !strings.HasPrefix(e.Text, fmt.Sprint(e.Index, " ")) {
				t.Fatalf("entry %d after %d: %d %.20s", j, after, e.Index, e.Text)
			}
		}
		after = next
	}
	last, next := tailed(t, dir, nil, 1500)
	if len(last) > 1100 || len(last) < 900 || next != n-1 || last[0].Index != n-int64(len(last)) {
		t.Errorf("%d entries up to %d", len(last), next)
	}
	few, _ := tailed(t, dir, nil, 3)
	if len(few) != 3 || few[0].Index != n-3 {
		t.Errorf("%v", few)
	}
	must(t, l.close())
	must(t, Note(dir, "on"))
	if e, _ := tailed(t, dir, nil, 1); e[0].Index != n || e[0].Text != "on" {
		t.Errorf("%v", e)
	}
}

// Whatever a crash has left at the end, the log goes on after the last whole line.
func TestTornLog(t *testing.T) {
	for name, torn := range map[string]string{
		"half a line":   `{"index":3,"time":"2026-01-01T00:00:00Z","stream":"stdout","text":"ha`,
		"no line break": `{"index":3,"time":"2026-01-01T00:00:00Z","stream":"stdout","text":"whole"}`,
		"zeros":         strings.Repeat("\x00", 5000),
		"zero lines":    "\x00\x00\n\x00\n",
		"other":         "\n\n{}\n{\"index\":9}\n",
		"nothing":       "",
		"much":          strings.Repeat("z", 3*maxEncoded) + "\n" + strings.Repeat("y", 3*maxEncoded),
	} {
		dir := filepath.Join(t.TempDir(), "log")
		must(t, Note(dir, "0\n1\n2"))
		f, err := os.OpenFile(segmentPath(dir, 0), os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		_, err = f.WriteString(torn)
		must(t, err)
		must(t, f.Close())
		if entries, next := tailed(t, dir, nil, 10); texts(entries, System) != "0|1|2" && name != "no line break" || next != 2 {
			t.Errorf("%s: read %v, %d", name, entries, next)
		}
		must(t, Note(dir, "3"))
		entries, next := tailed(t, dir, new(int64(-1)), 10)
		if texts(entries, System) != "0|1|2|3" || next != 3 {
			t.Errorf("%s: then %v, %d", name, entries, next)
		}
	}
	// A segment that was begun and not written to.
	dir := filepath.Join(t.TempDir(), "log")
	must(t, Note(dir, "0"))
	must(t, os.WriteFile(segmentPath(dir, 1), nil, 0o600))
	if entries, next := tailed(t, dir, nil, 10); len(entries) != 1 || next != 0 {
		t.Errorf("%v, %d", entries, next)
	}
	must(t, Note(dir, "1"))
	if entries, next := tailed(t, dir, nil, 10); texts(entries, System) != "0|1" || next != 1 {
		t.Errorf("%v, %d", entries, next)
	}
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add([]byte("text"), int64(3))
	f.Add([]byte("\x00\xff\"\\\u2028"), int64(0))
	f.Fuzz(func(t *testing.T, text []byte, index int64) {
		if index < 0 {
			return
		}
		line := appendEntry(nil, Entry{index, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Stdout, string(text)})
		if bytes.Count(line, []byte("\n")) != 1 || len(text) <= MaxLine && len(line) > maxEncoded {
			t.Fatalf("%q", line)
		}
		e, err := decodeEntry(line)
		if at, ok := indexOf(line); err != nil || !ok || at != index || e.Index != index || e.Text != string(bytes.ToValidUTF8(text, nil)) && utf8.Valid(text) {
			t.Fatalf("%q: %v %v", line, e, err)
		}
		decodeEntry(text) // whatever it is, it is no panic
		indexOf(text)
	})
}
