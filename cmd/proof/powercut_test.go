package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/state/statetest"
)

var powerCuts = flag.Int("power.cuts", 0, "at how many moments TestPowerCuts cuts the power; 0 skips it")

// After a power cut the disk holds everything that was synced, and any part of what was not: single writes
// are lost, kept or torn. Whatever part it is, `deepwork check` finds nothing, every acknowledged transition
// and task is in the database, and no session is ahead of its calls.
//
// A real server runs under strace, which logs its writes, syncs and replies in one order. Each cut is a
// moment in that log; the folder with the state is made as the disk may have had it then.
func TestPowerCuts(t *testing.T) {
	if *powerCuts == 0 {
		t.Skip("-power.cuts=12 runs it")
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed; it is on Linux only")
	}
	if err := exec.Command(strace, "-f", "-qq", "-o", os.DevNull, os.Args[0], "-test.run=^$").Run(); err != nil {
		t.Skipf("no process can be traced here: %v", err)
	}
	p := newPowered(t)
	trace := filepath.Join(p.dir, "trace")
	s := p.serve(t, strace, "-f", "-qq", "-y", "-xx", "-s", "4194304", "-e", "signal=none", "-o", trace,
		"-e", "trace=openat,write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat")
	const clients, sessions = 6, 4 // sessions of each
	var working sync.WaitGroup
	for range clients {
		working.Go(func() {
			for range sessions {
				id := sessionIn(s.call(t, 0, "", "start_workflow", map[string]any{"goal": "g", "job_name": "power", "workflow_name": "w"}))
				for step := range powerSteps / 2 {
					s.call(t, step+1, id, "finished_step", map[string]any{"session_id": id, "outputs": map[string]any{"report": "report.md"}})
				}
			}
		})
	}
	working.Wait()
	testkit.Must(t, s.close())
	log := testkit.Get(readTrace(trace, p.state)).Must(t)
	testkit.Need(t, len(log.replies) >= clients*sessions*(1+powerSteps/2), "the trace has %d replies of %d calls", len(log.replies), len(s.asked))
	seed := *simSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	dice := rand.New(rand.NewPCG(seed, 0))
	for range *powerCuts {
		at := log.first + dice.IntN(len(log.events)-log.first)
		testkit.Must(t, os.RemoveAll(p.state))
		lost := testkit.Get(log.restore(p.state, at, dice)).Must(t)
		if text, err := p.command("check").CombinedOutput(); err != nil {
			t.Errorf("seed %d, cut at event %d: deepwork check: %v\n%s", seed, at, err, text)
			continue
		}
		least, most := map[string]int{}, map[string]int{}
		for id, a := range s.asked {
			if r, answered := log.replies[id]; answered && r.at < at && a.done >= 0 {
				session := a.session
				if a.done == 0 {
					session = sessionIn(r.Result)
				}
				least[session] = max(least[session], a.done)
				most[session] = max(most[session], a.done+1)
			}
		}
		s := p.serve(t)
		for session, done := range least {
			r := s.call(t, 0, session, "get_step", map[string]any{"session_id": session})
			now, err := strconv.Atoi(strings.TrimPrefix(stepPattern.FindString(string(r)), `"step_id":"s`))
			if err != nil || now < done || now > most[session] {
				t.Errorf("seed %d, cut at event %d: session %s is at step %d (%v), at least %d were acknowledged, and at most %d begun: %s", seed, at, session, now, err, done, most[session], r)
			}
		}
		testkit.Must(t, s.close())
		t.Logf("event %d: %d sessions, %d writes lost or torn", at, len(least), lost)
	}
}

// powerSteps is the number of steps of the workflow w.
const powerSteps = 20

var stepPattern = regexp.MustCompile(`"step_id":"s\d+`)

// sessionIn returns the session that a reply names first.
func sessionIn(result json.RawMessage) string {
	return string(regexp.MustCompile(`"session_id":"([^"]+)`).FindSubmatch(result)[1])
}

// A powered is a project on a machine whose power is cut.
type powered struct {
	dir, root, state, program string
	env                       []string
}

func newPowered(t *testing.T) *powered {
	dir := t.TempDir()
	p := &powered{dir: dir, root: filepath.Join(dir, "project")}
	p.program = testkit.Get(build(t.Context(), dir)).Must(t)
	env := testkit.Get(statetest.Write(dir, dir)).Must(t)
	for name, value := range env {
		p.env = append(p.env, name+"="+value)
	}
	p.state = filepath.Join(dir, "state")
	var job strings.Builder
	fmt.Fprintf(&job, "name: power\nversion: \"1.0.0\"\nsummary: Many steps\ncommon_job_info_provided_to_all_steps_at_runtime: None\nworkflows:\n  - {name: w, summary: W, steps: [s0")
	for n := 1; n < powerSteps; n++ {
		fmt.Fprintf(&job, ", s%d", n)
	}
	job.WriteString("]}\nsteps:\n")
	for n := range powerSteps {
		fmt.Fprintf(&job, "  - {id: s%d, name: S, description: S, instructions_file: s.md, reviews: [], outputs: {report: {type: file, required: true, description: R}}}\n", n)
	}
	for name, text := range map[string]string{".deepwork/jobs/power/job.yml": job.String(), ".deepwork/jobs/power/s.md": "Do it.\n", "report.md": "Done.\n"} {
		path := filepath.Join(p.root, filepath.FromSlash(name))
		testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return p
}

func (p *powered) command(args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	if filepath.Base(args[0]) == args[0] {
		cmd = exec.Command(p.program, append(args, "--path", p.root)...)
	}
	cmd.Env = append(os.Environ(), p.env...)
	return cmd
}

// A line is a server over stdio whose calls and replies are known by their ids.
type line struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	mu    sync.Mutex
	asked []asked // by id
	ended chan struct{}
}

// asked is a call.
type asked struct {
	session string
	done    int // steps of the session that are done if it succeeds; 0 for its start, -1 for another call
	reply   chan json.RawMessage
}

// serve starts a server, perhaps under another program.
func (p *powered) serve(t *testing.T, under ...string) *line {
	t.Helper()
	cmd := p.command(append(under, p.program, "serve", "--path", p.root)...)
	in := testkit.Get(cmd.StdinPipe()).Must(t)
	out := testkit.Get(cmd.StdoutPipe()).Must(t)
	testkit.Must(t, cmd.Start())
	l := &line{cmd: cmd, in: in, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		for lines := bufio.NewReader(out); ; {
			text, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var m response
			if json.Unmarshal(text, &m) == nil && m.ID != nil {
				l.mu.Lock()
				to := l.asked[*m.ID].reply
				l.mu.Unlock()
				to <- m.Result
			}
		}
	}()
	l.ask(t, asked{done: -1}, "initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "power", "version": "1"}})
	l.write(t, map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	return l
}

// A response is a JSON-RPC response.
type response struct {
	ID     *int            `json:"id"`
	Result json.RawMessage `json:"result"`
	at     int             // the event
}

func (l *line) ask(t *testing.T, a asked, method string, params any) json.RawMessage {
	a.reply = make(chan json.RawMessage, 1)
	l.mu.Lock()
	id := len(l.asked)
	l.asked = append(l.asked, a)
	l.mu.Unlock()
	l.write(t, map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	select {
	case r := <-a.reply:
		return r
	case <-l.ended:
		t.Error("the server has ended")
		return nil
	}
}

// call calls a tool, and fails the test if it is refused.
func (l *line) call(t *testing.T, done int, session, tool string, arguments map[string]any) json.RawMessage {
	t.Helper()
	r := l.ask(t, asked{session: session, done: done}, "tools/call", map[string]any{"name": tool, "arguments": arguments})
	testkit.True(t, bytes.Contains(r, []byte(`"session_id":"`)) && !bytes.Contains(r, []byte(`"isError":true`)), "%s: %s", tool, r)
	return r
}

func (l *line) write(t *testing.T, message any) {
	data := testkit.Get(json.Marshal(message)).Must(t)
	l.mu.Lock()
	defer l.mu.Unlock()
	testkit.Works(t, testkit.Get(l.in.Write(append(data, '\n'))).Err())
}

func (l *line) close() error {
	return errors.Join(l.in.Close(), l.cmd.Wait())
}

// A traceLog is what a server did, in its order.
type traceLog struct {
	events  []event
	replies map[int]response
	first   int // the event after which the first session was acknowledged
}

// An event is a system call that has ended and that matters to the disk.
type event struct {
	call  string // "write", "truncate", "sync", "create", "rename", "unlink"
	path  string
	to    string // of a rename
	at    int64  // the offset of a write, or the size of a truncate
	data  []byte
	begun int // the number of events that had ended when it began
}

var (
	callPattern    = regexp.MustCompile(`^(\d+) +(\w+)\((.*)$`)
	resumedPattern = regexp.MustCompile(`^(\d+) +<\.\.\. (\w+) resumed>(.*)$`)
	argPattern     = regexp.MustCompile(`"((?:\\x[0-9a-f]{2})*)"|(AT_FDCWD|\d+)<((?:\\x[0-9a-f]{2})*)[^>]*>|([^ ,()="<>]+)`)
)

// readTrace reads a log of strace, and keeps what is about files in folder.
func readTrace(path, folder string) (*traceLog, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	log := &traceLog{replies: map[int]response{}}
	type part struct {
		text  string
		begun int
	}
	begun := map[string]part{} // by thread
	var printed []byte
	offsets := map[string]int64{} // of files that are written without an offset
	for lines := bufio.NewReaderSize(file, 1<<20); ; {
		text, err := lines.ReadString('\n')
		if err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		now := part{strings.TrimRight(text, "\n"), len(log.events)}
		if m := resumedPattern.FindStringSubmatch(now.text); m != nil {
			now = part{begun[m[1]].text + m[3], begun[m[1]].begun}
		} else if cut, unfinished := strings.CutSuffix(now.text, " <unfinished ...>"); unfinished {
			begun[strings.Fields(cut)[0]] = part{cut, now.begun}
			continue
		}
		m := callPattern.FindStringSubmatch(now.text)
		if m == nil {
			continue
		}
		i := strings.LastIndex(m[3], ") ")
		if i < 0 {
			continue
		}
		result := strings.TrimPrefix(strings.TrimLeft(m[3][i+1:], " "), "= ")
		if strings.HasPrefix(result, "-") || strings.HasPrefix(result, "?") {
			continue
		}
		var args []string
		for _, a := range argPattern.FindAllStringSubmatch(m[3][:i], -1) {
			switch {
			case a[2] != "":
				args = append(args, a[2]+" "+unhex(a[3]))
			case a[4] != "":
				args = append(args, a[4])
			default:
				args = append(args, unhex(a[1]))
			}
		}
		if len(args) == 0 {
			continue
		}
		_, at, _ := strings.Cut(args[0], " ") // the path of a file descriptor
		e := event{path: at, begun: now.begun}
		switch m[2] {
		case "write":
			if strings.HasPrefix(args[0], "1 ") {
				printed = append(printed, args[1]...)
				for {
					text, rest, whole := bytes.Cut(printed, []byte("\n"))
					if !whole {
						break
					}
					printed = rest
					r := response{at: now.begun}
					if json.Unmarshal(text, &r) == nil && r.ID != nil {
						log.replies[*r.ID] = r
						if log.first == 0 && bytes.Contains(r.Result, []byte("session_id")) {
							log.first = len(log.events)
						}
					}
				}
				continue
			}
			e.call, e.data, e.at = "write", []byte(args[1]), offsets[at]
			offsets[at] += int64(len(e.data))
		case "pwrite64":
			e.call, e.data = "write", []byte(args[1])
			e.at, err = strconv.ParseInt(args[3], 10, 64)
		case "ftruncate":
			e.call = "truncate"
			e.at, err = strconv.ParseInt(args[1], 10, 64)
		case "fsync", "fdatasync":
			e.call = "sync"
		case "openat":
			if !strings.Contains(args[2], "O_CREAT") && !strings.Contains(args[2], "O_TRUNC") {
				continue
			}
			e.call, e.path = "create", args[1]
			delete(offsets, e.path)
			if strings.Contains(args[2], "O_TRUNC") {
				e.data = []byte("truncated")
			}
		case "rename":
			e.call, e.path, e.to = "rename", args[0], args[1]
		case "renameat", "renameat2":
			e.call, e.path, e.to = "rename", args[1], args[3]
		case "unlink":
			e.call, e.path = "unlink", args[0]
		case "unlinkat":
			e.call, e.path = "unlink", args[1]
		}
		if err != nil {
			return nil, fmt.Errorf("%.300s: %w", now.text, err)
		}
		if strings.HasPrefix(e.path, folder) && !strings.HasSuffix(e.path, "-shm") {
			log.events = append(log.events, e)
		}
	}
	return log, nil
}

// unhex decodes \x00\x01 as strace writes it.
func unhex(text string) string {
	out := make([]byte, 0, len(text)/4)
	for i := 0; i+4 <= len(text); i += 4 {
		n, _ := strconv.ParseUint(text[i+2:i+4], 16, 8)
		out = append(out, byte(n))
	}
	return string(out)
}

// A page is a file of the simulated disk.
type page struct {
	synced  []byte
	pending []int // events: writes and truncations that are not synced
}

// restore writes the files as a power cut before the event at may leave them, and returns how many
// writes are lost or torn.
func (log *traceLog) restore(folder string, at int, dice *rand.Rand) (lost int, err error) {
	now := map[string]*page{}     // what a program sees
	durable := map[string]*page{} // names that are synced
	var names []func()            // changes of names that are not synced, in their order
	var in []string               // their folders
	open := func(path string) *page {
		if now[path] == nil {
			p := &page{}
			now[path] = p
			names, in = append(names, func() { durable[path] = p }), append(in, filepath.Dir(path))
		}
		return now[path]
	}
	for i, e := range log.events[:at] {
		switch e.call {
		case "create":
			if p := open(e.path); e.data != nil {
				p.pending = append(p.pending, i)
			}
		case "write", "truncate":
			p := open(e.path)
			p.pending = append(p.pending, i)
		case "rename":
			p := now[e.path]
			if p == nil {
				continue // a folder, or what was there before
			}
			delete(now, e.path)
			now[e.to] = p
			names, in = append(names, func() { delete(durable, e.path); durable[e.to] = p }), append(in, filepath.Dir(e.to))
		case "unlink":
			delete(now, e.path)
			names, in = append(names, func() { delete(durable, e.path) }), append(in, filepath.Dir(e.path))
		case "sync":
			if p := now[e.path]; p != nil { // a file: what was written before the sync began
				k := len(p.pending)
				for k > 0 && p.pending[k-1] >= e.begun {
					k--
				}
				for _, w := range p.pending[:k] {
					p.synced = log.events[w].apply(p.synced, len(log.events[w].data))
				}
				p.pending = slices.Clone(p.pending[k:])
				continue
			}
			last := -1 // a folder: its names, and those before them, since names are journaled in order
			for k := range names {
				if in[k] == e.path {
					last = k
				}
			}
			for _, change := range names[:last+1] {
				change()
			}
			names, in = names[last+1:], in[last+1:]
		}
	}
	for _, change := range names[:dice.IntN(len(names)+1)] {
		change()
	}
	for path, p := range durable {
		data := p.synced
		for _, w := range p.pending {
			e := log.events[w]
			switch keep := dice.IntN(3); {
			case keep == 0:
				lost++
			case keep == 1 && len(e.data) > 512 && e.call == "write":
				data = e.apply(data, 512*dice.IntN(len(e.data)/512))
				lost++
			default:
				data = e.apply(data, len(e.data))
			}
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return lost, err
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return lost, err
		}
	}
	return lost, nil
}

// apply returns the content of a file after the first n bytes of a write, or after another event.
func (e event) apply(data []byte, n int) []byte {
	size := len(data)
	switch e.call {
	case "create":
		return nil
	case "truncate":
		size = int(e.at)
	case "write":
		size = max(size, int(e.at)+n)
	}
	out := make([]byte, size)
	copy(out, data)
	if e.call == "write" {
		copy(out[e.at:], e.data[:n])
	}
	return out
}
