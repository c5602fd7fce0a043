package main

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"flag"
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
	ctx := t.Context()
	dir := t.TempDir()
	seed := seedOf()
	w := newWorld(filepath.Join(dir, "project"), dir, seed)
	w.program = testkit.Get(build(ctx, dir)).Must(t)
	testkit.Must(t, w.writeProject(loadConfig))
	where, state, err := w.machine(0, "DEEPWORK_ADDITIONAL_JOBS_FOLDERS=")
	testkit.Must(t, err)
	w.servers = []*server{where}
	serve := func(under ...string) (stop func()) {
		t.Helper()
		p := testkit.Get(w.start(ctx, true, where.env, append(under, w.program, "serve", "--path", where.root)...)).
			Must(t)
		where.process = p
		return func() {
			testkit.Works(t, p.stdio.Close())
			<-p.ended
			testkit.Works(t, p.err, "a server")
		}
	}

	trace := filepath.Join(dir, "trace")
	stop := serve(strace, "-f", "-qq", "-y", "-xx", "-s", "4194304", "-e", "signal=none", "-o", trace,
		"-e", "trace=openat,write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat")
	const clients, sessions, steps = 6, 10, 4 // sessions of each, and steps of those
	var working sync.WaitGroup
	for n := range clients {
		working.Go(func() {
			a := w.agent(n)
			for range sessions {
				begun := a.perform(ctx, input{
					Tool:     "start_workflow",
					Job:      jobName(0),
					Workflow: "chain",
					Goal:     a.token("goal "),
					Request:  a.request(),
				})
				for range steps {
					done := a.perform(ctx, a.finishing(begun.reply.Begin.Session, ""))
					testkit.True(t, done.kind == given, "%s", done.text)
				}
			}
		})
	}
	working.Wait()
	stop()
	log := readTrace(t, trace, state)
	testkit.Need(t, len(log.replies) == clients*sessions*(1+steps), "the trace has %d replies", len(log.replies))

	dice := rand.New(rand.NewPCG(seed, 0))
	for range *powerCuts {
		at := log.first + dice.IntN(len(log.events)-log.first)
		testkit.Must(t, os.RemoveAll(state))
		lost := log.restore(t, at, dice)
		if text, err := w.deepwork(ctx, where, "check").CombinedOutput(); err != nil {
			t.Errorf("seed %d, cut at event %d: deepwork check: %v\n%s", seed, at, err, text)
			continue
		}

		least := map[string]int{}
		for _, r := range log.replies {
			if r.at < at {
				least[r.session] = max(least[r.session], r.step)
			}
		}

		stop := serve()
		for id, step := range least {
			text := w.agent(0).exchange(ctx, where.current(), "get_step", map[string]any{"session_id": id}).text
			_, now, ok := positionIn([]byte(text))
			testkit.True(t, ok && (now == step || now == step+1),
				"seed %d, cut at event %d: session %s is at step %d; %d were acknowledged, and at most one more "+
					"begun: %s", seed, at, id, now, step, text)
		}
		stop()
		t.Logf("event %d: %d sessions, %d writes lost or torn", at, len(least), lost)
	}
}

var positionPattern = regexp.MustCompile(`begin_step\\*":{\\*"session_id\\*":\\*"(\w+).*?step_id\\*":\\*"s(\d+)`)

// positionIn returns the session that a reply is about, and the step that is its current one now.
func positionIn(reply []byte) (session string, step int, ok bool) {
	m := positionPattern.FindSubmatch(reply)
	if m == nil {
		return "", 0, false
	}
	step, err := strconv.Atoi(string(m[2]))
	return string(m[1]), step, err == nil
}

// A traceLog is what a server did, in its order.
type traceLog struct {
	events  []event
	replies []reached
	first   int // the event after which the first session was acknowledged
}

// A reached is what a reply acknowledges before an event: the step that a session is at.
type reached struct {
	at      int
	session string
	step    int
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
	callPattern    = regexp.MustCompile(`^(\d+) +(\w+)\((.*)\) += \d`) // that has worked
	resumedPattern = regexp.MustCompile(`^(\d+) +<\.\.\. \w+ resumed>(.*)$`)
	argPattern     = regexp.MustCompile(
		`"((?:\\x[0-9a-f]{2})*)"|(?:AT_FDCWD|(\d+))<((?:\\x[0-9a-f]{2})*)[^>]*>|([^ ,()="<>]+)`)
)

// readTrace reads a log of strace, and keeps what is about files in folder.
func readTrace(t *testing.T, path, folder string) *traceLog {
	t.Helper()
	type part struct {
		text  string
		begun int
	}
	log, unfinished := &traceLog{}, map[string]part{} // by thread
	var printed []byte
	offsets := map[string]int64{} // of files that are written without an offset
	for text := range strings.Lines(string(testkit.Get(os.ReadFile(path)).Must(t))) {
		now := part{strings.TrimRight(text, "\n"), len(log.events)}
		if m := resumedPattern.FindStringSubmatch(now.text); m != nil {
			now = part{unfinished[m[1]].text + m[2], unfinished[m[1]].begun}
		} else if cut, ok := strings.CutSuffix(now.text, " <unfinished ...>"); ok {
			unfinished[strings.Fields(cut)[0]] = part{cut, now.begun}
			continue
		}
		m := callPattern.FindStringSubmatch(now.text)
		if m == nil {
			continue
		}

		var fd string
		var args []string // others than file descriptors
		e := event{begun: now.begun}
		for _, a := range argPattern.FindAllStringSubmatch(m[3], -1) {
			switch {
			case a[2] != "":
				fd, e.path = a[2], unhex(a[3])
			case !strings.HasPrefix(a[0], "AT_FDCWD"):
				args = append(args, unhex(a[1])+a[4])
			}
		}
		switch m[2] {
		case "write":
			if fd == "1" {
				printed = append(printed, args[0]...)
				for text, rest, whole := bytes.Cut(printed, []byte("\n")); whole; text, rest, whole = bytes.Cut(printed,
					[]byte("\n")) {
					printed = rest
					if id, step, ok := positionIn(text); ok {
						log.replies = append(log.replies, reached{now.begun, id, step})
						log.first = cmp.Or(log.first, len(log.events))
					}
				}
				continue
			}
			e.call = "write"
			e.data = []byte(args[0])
			e.at = offsets[e.path]
			offsets[e.path] += int64(len(e.data))
		case "pwrite64":
			e.call = "write"
			e.data = []byte(args[0])
			e.at = testkit.Get(strconv.ParseInt(args[2], 10, 64)).Must(t)
		case "ftruncate":
			e.call, e.at = "truncate", testkit.Get(strconv.ParseInt(args[0], 10, 64)).Must(t)
		case "fsync", "fdatasync":
			e.call = "sync"
		case "openat":
			if !strings.Contains(args[1], "O_CREAT") && !strings.Contains(args[1], "O_TRUNC") {
				continue
			}
			e.call, e.path = "create", args[0]
			delete(offsets, e.path)
			if strings.Contains(args[1], "O_TRUNC") {
				e.data = []byte("truncated")
			}
		case "rename", "renameat", "renameat2":
			e.call = "rename"
			e.path = args[0]
			e.to = args[1]
		case "unlink", "unlinkat":
			e.call, e.path = "unlink", args[0]
		}
		if strings.HasPrefix(e.path, folder) && !strings.HasSuffix(e.path, "-shm") {
			log.events = append(log.events, e)
		}
	}
	return log
}

// unhex decodes \x00\x01 as strace writes it.
func unhex(text string) string {
	out, _ := hex.DecodeString(strings.ReplaceAll(text, `\x`, "")) // argPattern takes nothing else
	return string(out)
}

// A page is a file of the simulated disk.
type page struct {
	synced  []byte
	pending []int // events: writes and truncations that are not synced
}

// restore writes the files as a power cut before the event at may leave them, and returns how many writes are
// lost or torn.
func (log *traceLog) restore(t *testing.T, at int, dice *rand.Rand) (lost int) {
	now, durable := map[string]*page{}, map[string]*page{} // what a program sees, and names that are synced
	var names []func()                                     // changes of names that are not synced, in their order
	var in []string                                        // their folders
	rename := func(path string, change func()) { names, in = append(names, change), append(in, filepath.Dir(path)) }
	open := func(path string) *page {
		if now[path] == nil {
			p := &page{}
			now[path] = p
			rename(path, func() { durable[path] = p })
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
			rename(e.to, func() {
				delete(durable, e.path)
				durable[e.to] = p
			})
		case "unlink":
			delete(now, e.path)
			rename(e.path, func() { delete(durable, e.path) })
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

		testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		testkit.Must(t, os.WriteFile(path, data, 0o600))
	}

	return lost
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
