package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"deepwork/actor/testkit"
	"deepwork/session/attempt/transcript"
)

// The test binary is the agent and the server too: modeEnv says which.
const (
	modeEnv = "RUNNER_TEST_MODE"
	ranEnv  = "RUNNER_TEST_RAN" // a folder in which each agent that runs leaves a file
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeEnv); mode != "" {
		os.Exit(child(mode))
	}
	// A program built with -race sleeps for a second at its end, each child too.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	_ = flag.Set("test.parallel", "6") // they wait more than they compute
	goleak.VerifyTestMain(m)
}

// child is what the test binary does when it is an agent, or a server.
func child(mode string) int {
	if dir := os.Getenv(ranEnv); dir != "" && mode != "server" {
		f, err := os.CreateTemp(dir, "ran")
		if err != nil {
			panic(err)
		}
		f.Close()
	}
	mode, arg, _ := strings.Cut(mode, ":")
	switch mode {
	case "echo":
		fmt.Println("reading")
		fmt.Fprintln(os.Stderr, "to stderr")
		io.Copy(os.Stdout, os.Stdin)
	case "tell":
		wd, _ := os.Getwd()
		json.NewEncoder(os.Stdout).Encode(map[string]any{"dir": wd, "pwd": os.Getenv("PWD"), "tell": os.Getenv("TELL"),
			"shim": os.Getenv("PROCESS_DETACHED"), "args": os.Args[1:]})
	case "exit":
		fmt.Println("done")
		fmt.Println("   ")
		code, _ := strconv.Atoi(arg)
		return code
	case "connect": // twice to one host
		for range 2 {
			if r, err := http.Get("http://" + arg); err == nil {
				fmt.Println(r.Status)
				r.Body.Close()
			}
		}
	case "noread":
	case "lines":
		n, _ := strconv.Atoi(arg)
		for i := range n {
			fmt.Println("line", i)
		}
	case "flood":
		n, _ := strconv.Atoi(arg)
		block := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 1000)
		for written := 0; written < n; written += len(block) {
			if _, err := os.Stdout.Write(block); err != nil {
				return 1
			}
		}

		fmt.Print("the end, without a line break")
	case "garbage":
		b := make([]byte, 1<<20)
		for i := range b {
			b[i] = byte(i * 7 >> 3)
		}
		os.Stdout.Write(b)
		os.Stderr.Write(bytes.Repeat([]byte{0, 0xff}, 100_000))
	case "obedient", "tidy":
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM)
		testkit.Attend()
		<-end
		fmt.Println(map[string]string{"obedient": "tidied up", "tidy": "the child tidied up"}[mode])
	case "hang", "leaf", "stubborn", "orphans", "family", "tidyfamily": // some have children, in their group or away
		if mode == "leaf" || mode == "stubborn" {
			signal.Ignore(syscall.SIGTERM)
		}
		for _, child := range map[string][]string{
			"stubborn":   {"leaf"},
			"tidyfamily": {"tidy"},
			"family":     {"leaf", "away leaf"},
			"orphans":    {"leaf", "away leaf"},
		}[mode] {
			child, away := strings.CutPrefix(child, "away ")
			testkit.Spawn(away, ranEnv+"=", modeEnv+"="+child)
		}
		if mode == "orphans" {
			fmt.Println("done")
			return 0
		}
		testkit.Attend()
		testkit.Forever()
	case "server", "nested": // starts a run and reports it; a server stays, an agent ends
		var spec Spec
		if err := json.Unmarshal([]byte(os.Getenv("RUNNER_TEST_SPEC")), &spec); err != nil {
			panic(err)
		}

		os.Unsetenv(modeEnv)
		p, err := testRunner().Start(context.Background(), spec)
		fmt.Println(p != nil, err)
		if mode == "server" {
			testkit.Forever()
		}
	}

	return 0
}

func testRunner() *Runner { return &Runner{Shim: []string{os.Args[0], ShimCommand}} }

// A bench is what a test works with: folders, a hub and the runs begun.
type bench struct {
	t   *testing.T
	dir string
	hub *testkit.Hub
}

// newBench returns the bench of a test, which runs in parallel with others.
func newBench(t *testing.T) *bench {
	t.Parallel()
	return benchOf(t)
}

func benchOf(t *testing.T) *bench {
	t.Helper()
	b := &bench{t, t.TempDir(), testkit.NewHub(t)}
	must(t, os.MkdirAll(b.path("ran"), 0o700))
	must(t, os.MkdirAll(b.path("work"), 0o700))
	t.Cleanup(b.nothingLeft)
	return b
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// spec makes the test binary the agent, in a mode.
func (b *bench) spec(run, mode string) Spec {
	return Spec{
		Dir: b.path(run), Log: b.path("log"), Command: []string{os.Args[0]}, Work: b.path("work"),
		Env: []string{modeEnv + "=" + mode, b.hub.Env(), ranEnv + "=" + b.path("ran"), "BENCH=" + b.dir},
	}
}

func (b *bench) start(spec Spec) *Process {
	b.t.Helper()
	return testkit.Get(testRunner().Start(b.t.Context(), spec)).Must(b.t)
}

// pid is the agent's process id, 0 if it was never started.
func (p *Process) pid() int {
	if p.started == nil {
		return 0
	}
	return p.started.PID
}

// run starts an agent and waits for its end.
func (b *bench) run(spec Spec) Exit {
	b.t.Helper()
	return b.wait(b.start(spec))
}

func (b *bench) wait(p *Process) Exit {
	b.t.Helper()
	return testkit.Get(p.Wait(b.t.Context())).Must(b.t)
}

// ran is how many agents have run.
func (b *bench) ran() int { return len(testkit.Get(os.ReadDir(b.path("ran"))).Must(b.t)) }

// log returns the entries there are, of all streams but system.
func (b *bench) log() []Entry {
	b.t.Helper()
	var said []Entry
	for after := int64(-1); ; {
		entries, next, err := Tail(b.t.Context(), b.path("log"), &after, MaxTail, 0)
		must(b.t, err)
		if len(entries) == 0 {
			return said
		}

		for i, e := range entries {
			testkit.Need(b.t, e.Index == entries[0].Index+int64(i), "entry %d has index %d",
				entries[0].Index+int64(i), e.Index)
			if e.Stream != System {
				said = append(said, e)
			}
		}

		after = next
	}
}

// texts joins what was said on one stream.
func texts(entries []Entry, stream string) string {
	var s []string
	for _, e := range entries {
		if e.Stream == stream {
			s = append(s, e.Text)
		}
	}
	return strings.Join(s, "|")
}

// next waits until a process has reported.
func (b *bench) next() *testkit.Visitor { return b.hub.Next() }

// nothingLeft fails the test if a process of it lives: each has the bench's
// folder in its environment, or as its argument.
func (b *bench) nothingLeft() {
	testkit.Until(b.t, "without processes", func() bool { return len(processesOf(b.dir)) == 0 })
}

// link makes a symbolic link, or skips the test.
func link(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Skip("no symlinks here:", err)
	}
}

var must = testkit.Must

// A link in the place of a file or folder of a run is not followed: nothing is read,
// written, emptied or run where it leads to.
func TestLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, at     string // of the link, in the bench's folder
		dir, started bool   // it leads to a folder; the agent runs regardless
	}{
		{"log folder", "log", true, false},
		{"segment", "log/00000000000000000000.jsonl", false, false},
		{"run folder", "runs/a", true, false},
		{"spec", "runs/a/spec.json", false, true}, // it is replaced
		{"spare", "runs/a/exit.spare", false, true},
		{"started", "runs/a/started.json", false, false},
		{"exit", "runs/a/exit.json", false, false},
		{"stop", "runs/a/stop.0", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			victim := b.path("victim")
			testkit.Write(t, filepath.Join(victim, "profile"), "mine\n")
			target := victim
			if !c.dir {
				target = filepath.Join(victim, "profile")
			}
			must(t, os.MkdirAll(filepath.Dir(b.path(c.at)), 0o700))
			link(t, target, b.path(c.at))
			s := b.spec("runs/a", "echo")
			p, err := testRunner().Start(t.Context(), s)
			if p != nil {
				var e Exit
				e, err = p.Wait(t.Context())
				testkit.Equal(t, err == nil && e.NotStarted == "", c.started, "%+v, %v", e, err)
			} else {
				testkit.True(t, err != nil && !c.started, "%v", err)
			}

			if c.name == "stop" {
				must(t, requestStop(s.Dir, 0))
			}
			_, _, err = Tail(t.Context(), s.Log, nil, 10, 0)
			testkit.True(t, err != nil || !strings.HasPrefix(c.at, "log"), "the log was read")
			testkit.True(t, Note(s.Log, "text") != nil || !strings.HasPrefix(c.at, "log"), "a note was written")
			testkit.Equal(t, string(testkit.Get(os.ReadFile(filepath.Join(victim, "profile"))).Must(t)), "mine\n",
				"outside")
			testkit.Equal(t, len(testkit.Get(os.ReadDir(victim)).Must(t)), 1, "files outside")
			must(t, os.RemoveAll(b.path(c.at)))
		})
	}
}

// What a stored Spec says is not what is run, and a log elsewhere is not written.
func TestAStoredSpecIsNotRun(t *testing.T) {
	b := newBench(t)
	s := b.spec("runs/a", "echo")
	must(t, os.MkdirAll(s.Dir, 0o700))
	planted := s
	planted.Command, planted.Log = []string{"sh", "-c", "touch " + b.path("planted")}, b.path("elsewhere/log")
	must(t, writeJSON(s.Dir, specFile, &planted))
	e := b.wait(b.start(s))
	testkit.True(t, e.Code == 0 && e.NotStarted == "", "%+v", e)
	testkit.True(t, !exists(b.dir, "planted") && !exists(b.dir, "elsewhere"), "what was stored was run")

	planted.Dir = b.path("runs/b")
	e = b.wait(b.start(planted))
	testkit.True(t, strings.Contains(e.NotStarted, "opening the log") && !exists(b.dir, "planted"), "%+v", e)
}

// maxEncoded bounds an encoded entry: each byte of its text may need six, and two more as base64.
const maxEncoded = 8*MaxLine + 200

func openedLog(t *testing.T, dir string) *logFile {
	t.Helper()
	l := testkit.Get(openLog(dir, notePatience)).Must(t)
	t.Cleanup(func() { l.close() })
	return l
}

// size is what a log takes on disk.
func size(t *testing.T, dir string) (n int64) {
	t.Helper()
	for _, s := range testkit.Get(segments(dir)).Must(t) {
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
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "log")
	entries, next := tailed(t, dir, nil, 10)
	testkit.True(t, entries == nil && next == -1, "no log: %v, %d", entries, next)

	l := openedLog(t, dir)
	before := time.Now().Add(-time.Second)
	l.write(Stdout, []byte("zero"), []byte(""))
	l.write(Stderr, []byte("two \x00 \"<>&\\ \u2028 é \xff\x1b[31m"))
	l.system("three %d", 3)
	all, next := tailed(t, dir, nil, 10)
	testkit.Need(t, next == 3 && len(all) == 4, "%v, %d", all, next)

	for i, want := range []Entry{{Index: 0, Stream: Stdout, Text: "zero"}, {Index: 1, Stream: Stdout}, {
		Index:  2,
		Stream: Stderr,
		Text:   "two \x00 \"<>&\\ \u2028 é \ufffd\x1b[31m",
	}, {Index: 3, Stream: System, Text: "three 3"}} {
		got := all[i]
		testkit.True(t, !got.Time.Before(before), "entry %d: %+v", i, got)
		testkit.Equal(t, got.Index, want.Index, "entry %d: %+v", i, got)
		testkit.Equal(t, got.Stream, want.Stream, "entry %d: %+v", i, got)
		testkit.Equal(t, got.Text, want.Text, "entry %d: %+v", i, got)
	}
	for _, c := range []struct {
		after *int64
		limit int
		want  []Entry
		next  int64
	}{
		{nil, 1, all[3:], 3}, {nil, 0, all[3:], 3}, {new(int64(-1)), 2, all[:2], 1}, {new(int64(-9)), 9, all, 3},
		{new(int64(1)), 10, all[2:], 3}, {new(int64(2)), 10, all[3:], 3}, {new(int64(3)), 10, nil, 3},
		{new(int64(99)), 10, nil, 3},
	} {
		got, next := tailed(t, dir, c.after, c.limit)
		testkit.True(t, slices.Equal(got, c.want) && next == c.next, "after %v limit %d: %v, %d", c.after, c.limit,
			got, next)
	}
}

func TestTailWaits(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "log")
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, after := range []*int64{nil, new(int64(-1))} {
		wg.Go(func() {
			entries, next, err := Tail(t.Context(), dir, after, 5, time.Minute)
			testkit.Works(t, err)
			testkit.Equal(t, next, 0)

			var texts []string
			for _, e := range entries {
				texts = append(texts, e.Text)
			}
			testkit.Same(t, texts, []string{"news"})
		})
	}
	must(t, Note(dir, "news"))
	wg.Wait()

	// One who is ahead of the log gets what is new.
	found := make(chan bool)
	wg.Go(func() {
		defer close(found)
		entries, _, err := Tail(t.Context(), dir, new(int64(77)), 5, time.Minute)
		testkit.Works(t, err)
		testkit.True(t, len(entries) != 0, "nothing is found")
		for _, e := range entries {
			testkit.True(t, e.Index != 0, "what was there is found: %+v", e)
		}
	})

	for n, more := int64(0), true; more; {
		must(t, Note(dir, "more"))
		n++
		testkit.Need(t, n <= 70, "it is not found")

		select {
		case <-found:
			more = false
		case <-time.After(20 * time.Millisecond):
		}
	}
	_, end := tailed(t, dir, nil, 1)
	entries, next, err := Tail(t.Context(), dir, &end, 5, 30*time.Millisecond)
	testkit.Need(t, err == nil, "nothing new: %v, %d, %v", entries, next, err)
	testkit.Need(t, entries == nil, "nothing new: %v, %d, %v", entries, next, err)
	testkit.Equal(t, next, end, "nothing new: %v, %d, %v", entries, next, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = Tail(ctx, dir, &end, 5, time.Hour)
	testkit.True(t, errors.Is(err, context.Canceled), "%v", err)
}

func TestNote(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "log")
	must(t, errors.Join(Note(dir, "one"), Note(dir, "two\nthree\n")))
	entries, _ := tailed(t, dir, nil, 10)
	testkit.Equal(t, texts(entries, System), "one|two|three")
	openedLog(t, dir)
	testkit.Fails(t, Note(dir, "four"), "a run writes it now")
}

// A log keeps 32 MiB, of which the oldest go first, and its indexes go on.
func TestLogRotates(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "log")
	l := openedLog(t, dir)
	line := bytes.Repeat([]byte("x"), 1000)
	const n = 50_000
	for i := range n {
		l.write(Stdout, fmt.Appendf(nil, "%d %s", i, line))
		if i%5000 == 0 {
			testkit.Need(t, size(t, dir) <= MaxLogBytes, "it has %d bytes", size(t, dir))
		}
	}
	testkit.True(t, size(t, dir) <= MaxLogBytes && size(t, dir) >= MaxLogBytes-segmentBytes-2000, "it has %d bytes",
		size(t, dir))

	oldest, _ := tailed(t, dir, new(int64(-1)), 1)
	testkit.True(t, oldest[0].Index != 0 && oldest[0].Index == testkit.Get(segments(dir)).Must(t)[0].first,
		"the oldest is %d", oldest[0].Index)

	// Every index from there on is there, whichever way it is asked for.
	for i, after := 0, oldest[0].Index-1; ; i++ {
		entries, next := tailed(t, dir, &after, 1000)
		if len(entries) == 0 {
			testkit.Equal(t, after, n-1, "it ends with")
			break
		}
		for j, e := range entries {
			testkit.Need(t, e.Index == after+1+int64(j) && strings.HasPrefix(e.Text, fmt.Sprint(e.Index, " ")),
				"entry %d after %d: %d %.20s", j, after, e.Index, e.Text)
		}
		after = next
	}
	last, next := tailed(t, dir, nil, 1500)
	testkit.Need(t, len(last) <= 1100, "%d entries up to %d", len(last), next)
	testkit.Need(t, len(last) >= 900, "%d entries up to %d", len(last), next)
	testkit.Equal(t, next, n-1, "%d entries up to %d", len(last), next)
	testkit.Equal(t, last[0].Index, n-int64(len(last)), "%d entries up to %d", len(last), next)

	few, _ := tailed(t, dir, nil, 3)
	testkit.True(t, len(few) == 3 && few[0].Index == n-3, "%v", few)
	must(t, errors.Join(l.close(), Note(dir, "on")))
	e, _ := tailed(t, dir, nil, 1)
	testkit.True(t, e[0].Index == n && e[0].Text == "on", "%v", e)
}

// Whatever a crash has left at the end, the log goes on after the last whole line.
func TestTornLog(t *testing.T) {
	t.Parallel()
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
		f := testkit.Get(os.OpenFile(segmentPath(dir, 0), os.O_WRONLY|os.O_APPEND, 0)).Must(t)
		testkit.Get(f.WriteString(torn)).Must(t)
		must(t, f.Close())
		entries, next := tailed(t, dir, nil, 10)
		testkit.True(t, (texts(entries, System) == "0|1|2" || name == "no line break") && next == 2, "%s: read %v, %d",
			name, entries, next)
		must(t, Note(dir, "3"))
		entries, next = tailed(t, dir, new(int64(-1)), 10)
		testkit.Equal(t, texts(entries, System), "0|1|2|3", "%s", name)
		testkit.Equal(t, next, 3, "%s", name)
	}

	// A segment that was begun and not written to.
	dir := filepath.Join(t.TempDir(), "log")
	must(t, errors.Join(Note(dir, "0"), os.WriteFile(segmentPath(dir, 1), nil, 0o600)))
	entries, next := tailed(t, dir, nil, 10)
	testkit.True(t, len(entries) == 1 && next == 0, "%v, %d", entries, next)
	must(t, Note(dir, "1"))
	entries, next = tailed(t, dir, nil, 10)
	testkit.True(t, texts(entries, System) == "0|1" && next == 1, "%v, %d", entries, next)
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add([]byte("text"), int64(3))
	f.Add([]byte("\x00\xff\"\\\u2028"), int64(0))
	f.Fuzz(func(t *testing.T, text []byte, index int64) {
		if index < 0 {
			return
		}
		line := appendEntry(nil, newEntry(index, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Stdout, text))
		testkit.Need(t, bytes.Count(line, []byte("\n")) == 1 && (len(text) > MaxLine || len(line) <= maxEncoded),
			"%q", line)

		e, err := decodeEntry(line)
		at, ok := indexOf(line)
		testkit.Need(t, err == nil, "%q: %v %v", line, e, err)
		testkit.Need(t, ok, "%q: %v %v", line, e, err)
		testkit.Need(t, at == index, "%q: %v %v", line, e, err)
		testkit.Need(t, e.Index == index, "%q: %v %v", line, e, err)
		testkit.Need(t, (bytes.Equal(e.Bytes(), text) || bytes.HasPrefix(text, []byte("\n"))), "%q: %v %v",
			line, e, err)

		decodeEntry(text) // whatever it is, it is no panic
		indexOf(text)
	})
}

func TestFinal(t *testing.T) {
	lines := func(stream string, texts ...string) (es []Entry) {
		for _, text := range texts {
			es = append(es, Entry{Stream: stream, Text: text})
		}
		return es
	}

	long := strings.Repeat("é", MaxFinal+5)
	big := `{"type":"result","subtype":"success","result":"` + strings.Repeat("x", 3*MaxLine) + `"}`
	for name, c := range map[string]struct {
		entries []Entry
		want    string
	}{
		"nothing":  {nil, ""},
		"plain":    {append(lines(Stdout, "one", " two ", "", "  "), lines(Stderr, "oops")...), "two"},
		"stderr":   {append(lines(Stdout, " "), lines(Stderr, "oops", "")...), "oops"},
		"system":   {lines(System, "started"), ""},
		"too long": {lines(Stdout, long), strings.Repeat("é", MaxFinal)},
		"binary":   {lines(Stdout, "a\xffb"), "a\ufffdb"},
		"claude": {lines(Stdout, `{"type":"assistant","message":{"content":[{"type":"text","text":"Hm"}]}}`,
			`{"type":"result","subtype":"success","is_error":false,"result":"All\ndone.","session_id":"x"}`, "bye"),
			"All\ndone."},
		"codex": {lines(Stdout, `{"type":"item.completed","item":{"id":"0","type":"agent_message","text":"First"}}`,
			`{"type":"item.completed","item":{"id":"2","type":"agent_message","text":"Last"}}`,
			`{"type":"turn.completed","usage":{"input_tokens":1}}`), "Last"},
		"gemini stream": {lines(Stdout, `{"type":"message","role":"user","content":"do it"}`,
			`{"type":"message","role":"assistant","content":"I will. ","delta":true}`,
			`{"type":"tool_use","tool_name":"t","tool_id":"1","parameters":{}}`,
			`{"type":"message","role":"assistant","content":"It is ","delta":true}`,
			`{"type":"message","role":"assistant","content":"done.","delta":true}`,
			`{"type":"result","status":"success","stats":{}}`), "It is done."},
		"gemini json": {lines(Stdout, `{"session_id":"x","response":"Fine","stats":{}}`), "Fine"},
		"opencode": {lines(Stdout, `{"type":"step_start","part":{"type":"step-start"}}`,
			`{"type":"text","sessionID":"s","part":{"type":"text","text":"Ready"}}`,
			`{"type":"step_finish","part":{"type":"step-finish"}}`), "Ready"},
		"split": {lines(Stdout, big[:MaxLine], big[MaxLine:2*MaxLine], big[2*MaxLine:3*MaxLine],
			big[3*MaxLine:]), strings.Repeat("x", MaxFinal)},
		"no words": {lines(Stdout, `{"type":"result","subtype":"error_during_execution","is_error":true}`),
			`{"type":"result","subtype":"error_during_execution","is_error":true}`},
		"other json":   {lines(Stdout, `{"result":[1]}`), `{"result":[1]}`},
		"broken json":  {lines(Stdout, `{"type":"result","result":`), `{"type":"result","result":`},
		"other shapes": {lines(Stdout, `{"type":"item.completed","item":"text"}`, "end"), "end"},
	} {
		s, e := newSummary(), Exit{}
		for _, entry := range c.entries {
			s.line(entry.Stream, []byte(entry.Text))
		}
		s.put(&e)
		testkit.Equal(t, e.FinalMessage, c.want, "%s", name)
	}
}

// An exit has the last lines on stderr, without colors, and the usage that an agent reports, also in a
// line that is logged in pieces.
func TestSummary(t *testing.T) {
	t.Parallel()
	s := newSummary()
	for i := range 100_000 {
		s.line(Stderr, fmt.Appendf(nil, "warning %d", i))
	}
	s.line(Stderr, []byte("\x1b[31mno network\x1b[0m"))
	result := `{"type":"result","subtype":"success","result":"` + strings.Repeat("x", 2*MaxLine) +
		`","total_cost_usd":0.5,"num_turns":2,"modelUsage":{"m":{"inputTokens":3,"outputTokens":4}}}`
	for ; len(result) > MaxLine; result = result[MaxLine:] {
		s.line(Stdout, []byte(result[:MaxLine]))
	}
	s.line(Stdout, []byte(result))
	var e Exit
	s.put(&e)
	lines := strings.Split(e.Stderr, "\n")
	testkit.Need(t, len(e.Stderr) <= maxStderr, "%q", e.Stderr)
	testkit.Need(t, len(lines) >= 10, "%q", e.Stderr)
	testkit.Equal(t, lines[len(lines)-2], "warning 99999")
	testkit.Equal(t, lines[len(lines)-1], "no network")
	testkit.Same(t, e.Usage, &transcript.Usage{
		Models: map[string]transcript.Tokens{"m": {Input: 3, Output: 4}},
		USD:    new(0.5),
		Turns:  2,
	})
	testkit.True(t, cap(s.stderr) <= 8*MaxLine, "%d bytes of stderr are kept", cap(s.stderr))
}

// There is room for any exit in the space that is reserved for it.
func TestRoomForAnExit(t *testing.T) {
	t.Parallel()
	s := newSummary()
	s.line(Stderr, []byte(strings.Repeat("<", 2*maxStderr)))
	for i := range 100 {
		s.line(Stdout, fmt.Appendf(nil,
			`{"type":"assistant","message":{"id":"%d","model":"%d%s","usage":{"input_tokens":%d}}}`, i, i,
			strings.Repeat("<", 300), 1<<49))
	}
	s.line(Stdout, fmt.Appendf(nil, `{"type":"result","result":%q}`, strings.Repeat("<", MaxFinal)))
	var e Exit
	s.put(&e)
	data, err := json.Marshal(&e)
	testkit.Need(t, err == nil, "%d bytes, %v", len(data), err)
	testkit.Need(t, len(data) <= spareSize, "%d bytes, %v", len(data), err)
	testkit.Need(t, len(data) >= spareSize/2, "%d bytes, %v", len(data), err)
	testkit.True(t, len(e.Usage.Models) >= 16, "%d bytes, %v", len(data), err)
}
