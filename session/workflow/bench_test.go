package workflow

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/presence"
	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/local"
	"deepwork/session/workflow/machine"
)

// The figures of transitions, sessions and stacks. Run them with
//
//	go test -run xxx -bench . ./session/workflow

// memory keeps sessions in memory: everything but the disk. Those that nobody
// uses are bytes, as they would be on disk; where they differ in their ids
// alone, they share them, so that it is not the stand-in for the disk that fills
// the memory in which transitions are measured.
type memory struct {
	mu   sync.RWMutex
	cold map[string]*[]byte        // by id: the body of one that was only created
	body *[]byte                   // the one that was kept last
	hot  map[string]*machine.State // saved since they were created
}

func newMemory() *memory {
	return &memory{cold: map[string]*[]byte{}, hot: map[string]*machine.State{}}
}

// idHere is replaced in a body by its session's id.
const idHere = "<session>"

func (r *memory) Server() string { return "this" }

// withoutSync returns stores whose records are written without any fsync.
func withoutSync(f *state.Folder) *store.Stores {
	return &store.Stores{Members: presence.New(presence.Options{Dir: f.Servers()}), Records: func(o store.RecordOptions) (store.Records, error) {
		return local.Open(f, local.Options{NoSync: true, Keys: o.Keys})
	}}
}

func (r *memory) Sealer() durable.Sealer { return nil }
func (r *memory) Alive(s string) bool    { return s == "this" }
func (r *memory) Describe(string) string { return "" }
func (r *memory) Create(s *machine.State) error {
	body, err := s.Encode()
	if err != nil {
		return err
	}
	body = bytes.ReplaceAll(body, []byte(s.SessionID), []byte(idHere))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cold[s.SessionID] != nil || r.hot[s.SessionID] != nil {
		return store.ErrExists
	}
	if r.body == nil || !bytes.Equal(*r.body, body) {
		r.body = &body
	}
	r.cold[s.SessionID] = r.body
	return nil
}
func (r *memory) Save(s *machine.State) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hot[s.SessionID] = s
	return nil
}
func (r *memory) FindRequest(store.Key) ([]string, error) { return nil, nil }
func (r *memory) Forget(string)                           {}
func (r *memory) Release(s *machine.State) error          { return r.Save(s) }
func (r *memory) Load(id string) (*machine.State, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if s := r.hot[id]; s != nil {
		return s, nil
	}
	if body := r.cold[id]; body != nil {
		return machine.Decode(id, bytes.ReplaceAll(*body, []byte(idHere), []byte(id)))
	}
	return nil, unknownSession(id)
}
func (r *memory) Peek(id string) (*machine.State, error) { return r.Load(id) }
func (r *memory) Update(id string, change func(*machine.State) (*machine.State, error)) (*machine.State, error) {
	s, err := r.Load(id)
	if err != nil {
		return nil, err
	}
	next, err := change(s)
	if err != nil || next == nil {
		return s, err
	}
	return next, r.Save(next)
}
func (r *memory) Active(context.Context, string) iter.Seq2[string, error] {
	return func(func(string, error) bool) {}
}
func (r *memory) NoteActive(*machine.State)          {}
func (r *memory) PutDefinition(string, []byte) error { return nil }
func (r *memory) Definition(string) ([]byte, error)  { return nil, store.ErrNotFound }
func (r *memory) Close(context.Context) error        { return nil }

// fixed is a definition that never changes, with its texts in memory.
type fixed struct {
	def   *machine.Definition
	texts machine.Instructions
}

func newFixed(def *machine.Definition) fixed {
	texts := machine.Instructions{}
	for _, st := range def.Job.Steps {
		texts[st.ID] = "Do it."
	}
	return fixed{def, texts}
}

func (d fixed) Current(context.Context, *machine.State) (*machine.Definition, error) {
	return d.def, nil
}
func (d fixed) Texts(*machine.Definition, job.Entry) (machine.Instructions, error) {
	return d.texts, nil
}
func (d fixed) KeptTexts(machine.DefinitionRef, job.Entry) (machine.Instructions, error) {
	return nil, nil
}
func (d fixed) Kept(machine.DefinitionRef) (*machine.Definition, error) { return d.def, nil }
func (d fixed) Keep(def *machine.Definition, _ machine.Instructions) (*machine.Definition, error) {
	return def, nil
}

// loop is a workflow of n steps without outputs.
func loop(b testing.TB, n int) *machine.Definition {
	b.Helper()
	src := "name: alpha\nversion: \"1.0.0\"\nsummary: s\ncommon_job_info_provided_to_all_steps_at_runtime: c\nsteps:\n"
	var ids []string
	for i := range n {
		ids = append(ids, "s"+strconv.Itoa(i))
		src += "  - {id: " + ids[i] + ", name: n, description: d, instructions_file: i.md, outputs: {}, reviews: []}\n"
	}
	src += "workflows:\n  - {name: main, summary: s, steps: [" + strings.Join(ids, ", ") + "]}\n"
	j, faults := job.Parse("/job", "job.yml", []byte(src))
	if j == nil {
		b.Fatal(faults)
	}
	return &machine.Definition{Job: j, Workflow: &j.Workflows[0], Ref: machine.DefinitionRef{Hash: "h", Source: j.Hash, JobDir: "/job"}}
}

func memoryEngine(b testing.TB, def *machine.Definition, idle time.Duration) *Engine {
	b.Helper()
	e, err := Open(ctx, Options{Root: b.TempDir(), records: newMemory(), definitions: newFixed(def), IdleAfter: idle})
	testkit.Must(b, err)
	b.Cleanup(func() { e.Close(ctx) })
	return e
}

// beginMany makes sessions on connections of a hundred each, and returns their ids.
func beginMany(b testing.TB, e *Engine, def *machine.Definition, n int) (*Conn, []string) {
	b.Helper()
	ids := make([]string, n)
	at := e.now() // the same for all, so that their records are alike
	var c *Conn
	for i := range n {
		if i%100 == 0 {
			c = e.Connect("local")
		}
		s, _, err := e.create(def, machine.NewSession{Goal: "g", Identity: "local", Owner: e.records.Server(), At: at, Call: machine.Call{Tool: machine.ToolStart}, Texts: machine.Instructions{}})
		testkit.Must(b, err)
		ids[i] = s.SessionID
		testkit.Must(b, errOf(c.target(ctx, &ids[i])))
	}
	return c, ids
}

// BenchmarkPassivatedSessions returns what 100,000 active sessions cost that
// nobody uses, in memory and to wake. Wanted: under 100 MB resident, under 1 ms
// and a file read.
func BenchmarkPassivatedSessions(b *testing.B) {
	const n = 100_000
	def := loop(b, 25)
	dir := b.TempDir()
	e, err := Open(ctx, Options{Root: b.TempDir(), definitions: newFixed(def), IdleAfter: 50 * time.Millisecond,
		records: noSync(b, dir)})
	testkit.Must(b, err)
	defer e.Close(ctx)
	before := resident(b)
	c, ids := beginMany(b, e, def, n)
	for e.sessions.Len() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	debug.FreeOSMemory()
	after := resident(b)
	i := 0
	var read time.Duration // of the bare file of another one, which is asleep as well
	for b.Loop() {
		b.StopTimer()
		begun := time.Now()
		testkit.Must(b, errOf(os.ReadFile(filepath.Join(dir, ".deepwork", "tmp", "session_"+ids[(i+n/2)%n]+".json"))))
		read += time.Since(begun)
		b.StartTimer()
		testkit.Must(b, errOf(c.Step(ctx, StepArgs{SessionID: &ids[i%n]})))
		i += 7919
	}
	b.ReportMetric(float64(read.Nanoseconds())/float64(b.N), "read-ns")
	b.ReportMetric(float64(after)/1e6, "MB-resident")
	b.ReportMetric(float64(after-before)/n, "B/session")
}

// BenchmarkTransitionInMemory is ask, decide, publish, reply: a finished_step
// but for the disk, through the connection and the session's actor. Wanted:
// under 5 µs, whatever the number of sessions.
func BenchmarkTransitionInMemory(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(200)) // as `deepwork serve` has it
	for _, sessions := range []int{10, 100_000} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			def := loop(b, 25)
			e := memoryEngine(b, def, 200*time.Millisecond)
			_, ids := beginMany(b, e, def, sessions)
			id := ids[len(ids)-1]
			c := e.Connect("local") // with that session alone, whatever the others have
			testkit.Must(b, errOf(c.target(ctx, &id)))
			for e.sessions.Len() > 0 { // until nobody but this one is awake
				time.Sleep(10 * time.Millisecond)
			}
			runtime.GC()
			empty := FinishArgs{Outputs: json.RawMessage("{}"), SessionID: &id}
			who, err := c.caller(ctx, machine.ToolFinish, nil, empty)
			testkit.Must(b, err)
			b.ReportAllocs()
			n := 0
			ctx, cancel := context.WithTimeout(ctx, 50*time.Second) // an ask has a deadline
			defer cancel()
			for b.Loop() {
				// The last step is never finished: back to the first.
				if n++; n%25 == 0 {
					testkit.Must(b, errOf(c.GoTo(ctx, GoToArgs{StepID: "s0", SessionID: &id})))
					e.records.(*memory).hot[id].History = nil
					continue
				}
				testkit.Must(b, errOf(c.finish(ctx, who, empty, time.Now())))
			}
		})
	}
}

// noSync are real files that are not synced, since 100,000 of them are only to be there.
func noSync(b testing.TB, dir string) records {
	b.Helper()
	r, err := openRecords(state.Of(dir), withoutSync(state.Of(dir)), false, nil)
	testkit.Must(b, err)
	return r
}

// resident reads the process's resident set.
func resident(b testing.TB) int64 {
	b.Helper()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip("the resident set is read from /proc")
	}
	pages, err := strconv.ParseInt(strings.Fields(string(data))[1], 10, 64)
	testkit.Must(b, err)
	return pages * int64(os.Getpagesize())
}

// BenchmarkStackDepth is a get_step beside the encoding of the stack field that
// its reply carries: the call must not grow faster than the field.
func BenchmarkStackDepth(b *testing.B) {
	for _, depth := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			def := loop(b, 2)
			e := memoryEngine(b, def, time.Minute)
			c := e.Connect("local")
			var parent *string
			for range depth {
				s, _, err := e.create(def, machine.NewSession{Goal: "g", Identity: "local", Owner: "this", Parent: parent, At: e.now(), Call: machine.Call{Tool: machine.ToolStart}, Texts: machine.Instructions{}})
				testkit.Must(b, err)
				testkit.Must(b, errOf(c.target(ctx, &s.SessionID)))
				parent = &s.SessionID
			}
			var field time.Duration
			n := 0
			for b.Loop() {
				r, err := c.Step(ctx, StepArgs{})
				testkit.Must(b, err)
				t := time.Now()
				testkit.Must(b, errOf(json.Marshal(r.Stack)))
				field += time.Since(t)
				n++
			}
			b.ReportMetric(float64(field.Nanoseconds())/float64(n), "ns-of-it-stack-field")
		})
	}
}

// BenchmarkResumable is the first get_workflows of a server in a project with 20,000 session files, and
// those that follow: of active sessions, and of ended ones that are all newer than the active ones.
func BenchmarkResumable(b *testing.B) {
	for _, ended := range []bool{false, true} {
		b.Run(fmt.Sprintf("ended=%v", ended), func(b *testing.B) {
			p := newProject(b)
			p.simple("alpha")
			p.write("r.md", "x")
			srv := p.open()
			c := srv.Connect("local")
			s := p.record(p.start(c, "alpha", "main").BeginStep.SessionID)
			p.finish(c, `{"outputs":{"report":"r.md"}}`)
			c.Close()
			srv.stop()
			files, err := openRecords(p.state(), withoutSync(p.state()), false, nil)
			testkit.Must(b, err)
			for n := range 20_000 {
				next := *s
				next.SessionID, next.Owner = fmt.Sprintf("%08x", n), ""
				testkit.Must(b, files.Create(&next))
				if ended && n >= keptListed {
					next.Status, next.CompletedAt = machine.Completed, &s.StartedAt
					testkit.Must(b, files.Save(&next))
				}
			}
			testkit.Must(b, files.Close(ctx))
			list := func(c *Conn) {
				if r, err := c.GetWorkflows(ctx); err != nil || len(r.Resumable) != keptListed {
					b.Fatalf("%s, %v", toJSON(b, r), err)
				}
			}
			b.Run("first", func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					srv := p.open()
					c := srv.Connect("local")
					b.StartTimer()
					list(c)
					b.StopTimer()
					srv.stop()
					b.StartTimer()
				}
			})
			c = p.open().Connect("local")
			list(c)
			b.Run("next", func(b *testing.B) {
				for b.Loop() {
					list(c)
				}
			})
		})
	}
}
