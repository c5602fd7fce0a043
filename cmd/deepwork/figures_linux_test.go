package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/attempt/runner"
	"deepwork/session/store/postgres/pgtest"
)

// The figures of the built program, each beside what it is compared with, from
// one run:
//
//	go test -run xxx -bench . ./cmd/deepwork

func init() {
	programs["mcp-echo"] = echoServer
	programs["mcp-source"] = syncSource
	programs["mcp-reviewer"] = quickReviewer
}

// bareServer is a server of the same SDK, whose tools answer with a text made of their arguments.
func bareServer(tools map[string]func(arguments json.RawMessage) string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"}, nil)
	for name, answer := range tools {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: answer(r.Params.Arguments)}}},
					nil
			})
	}
	return s
}

// echoServer is a bare server with one tool that gives its arguments back.
func echoServer() {
	echo := map[string]func(json.RawMessage) string{"echo": func(arguments json.RawMessage) string {
		return string(arguments)
	}}
	_ = bareServer(echo).Run(context.Background(), &mcp.StdioTransport{})
}

// report reports figures, in place of the time of a round.
func report(b *testing.B, figures map[string]float64) {
	for unit, n := range figures {
		b.ReportMetric(n, unit)
	}
	b.ReportMetric(0, "ns/op")
}

// A program is a server process with a client on its stdio.
type program struct {
	*mcp.ClientSession
	pid int
}

func startProgram(b *testing.B, name string, args ...string) *program {
	b.Helper()
	cmd := exec.Command(name, args...)
	cs := testkit.Get(mcp.NewClient(&mcp.Implementation{Name: "figures", Version: "1"}, nil).
		Connect(b.Context(), &mcp.CommandTransport{Command: cmd}, nil)).Must(b)
	b.Cleanup(func() { cs.Close() })
	return &program{cs, cmd.Process.Pid}
}

// do makes one call and returns the structured reply, if it has one.
func (p *program) do(tool string, args map[string]any) (map[string]any, error) {
	res, err := p.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err == nil && res.IsError {
		err = fmt.Errorf("%s: %s", tool, resultText(res))
	}
	if err != nil {
		return nil, err
	}
	reply, _ := res.StructuredContent.(map[string]any)
	return reply, nil
}

func (p *program) start(job string) (string, error) {
	reply, err := p.do("start_workflow", map[string]any{"goal": "measure", "job_name": job, "workflow_name": "main"})
	if err != nil {
		return "", err
	}
	return reply["begin_step"].(map[string]any)["session_id"].(string), nil
}

func (p *program) finish(session string, step int) error {
	_, err := p.do("finished_step", map[string]any{
		"outputs": map[string]any{"report": "report.md"}, "session_id": session, "step_id": "s" + strconv.Itoa(step),
	})
	return err
}

// figuresProject makes a project of n jobs of 25 steps, and one of 320.
func figuresProject(b *testing.B, n int) string {
	b.Helper()
	files := map[string]string{"report.md": "# Report\n"}
	job := func(name string, steps int) {
		var ids []string
		text := ""
		for i := range steps {
			ids = append(ids, fmt.Sprintf("s%d", i))
			text += fmt.Sprintf("  - {id: s%d, name: Step %d, description: Does its part, instructions_file: "+
				"steps/s%d.md, outputs: {report: {type: file, description: The report}}, reviews: []}\n", i, i, i)
			files[fmt.Sprintf(".deepwork/jobs/%s/steps/s%d.md", name, i)] = strings.Repeat("Do this, then that.\n", 25)
		}
		head, _, _ := strings.Cut(mainJob(jobText(name, ids...)), "  - {id:")
		files[".deepwork/jobs/"+name+"/job.yml"] = head + text
	}
	for i := range n {
		job(fmt.Sprintf("job_%d", i), 25)
	}
	job("long", 320)
	root := b.TempDir()
	writeFiles(b, root, files)
	return root
}

// mainJob calls the workflow of a job main.
func mainJob(text string) string { return strings.Replace(text, "name: w,", "name: main,", 1) }

// syncedWriter makes synced atomic writes of 4 KB: a file, its fsync, a rename, the folder's fsync.
func syncedWriter(b *testing.B) func(name string) error {
	b.Helper()
	dir := testkit.Get(os.Open(b.TempDir())).Must(b)
	b.Cleanup(func() { dir.Close() })
	data := slices.Repeat([]byte("0123456789abcdef"), 256)
	return func(name string) error {
		path := filepath.Join(dir.Name(), name)
		f, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.Write(data)
		return cmp.Or(err, f.Sync(), os.Rename(path+".tmp", path), dir.Sync())
	}
}

// together runs n callers until each has made count calls, and returns the time of one call of all of them together.
func together(b *testing.B, n, count int, call func(caller, i int) error) time.Duration {
	b.Helper()
	begin := time.Now()
	var wg sync.WaitGroup
	for c := range n {
		wg.Go(func() {
			for i := range count {
				if err := call(c, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begin) / time.Duration(n*count)
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Nanoseconds()) / 1e3
}

// BenchmarkFinishedStepStdio is the call that everything is about, durable, through stdio, on workflows of 25
// steps, with 100 jobs loaded. Wanted with 1 caller: at most the time of an echo and 1.2 writes (ratio 1);
// with 16 callers on one connection: at least 1.1 of the throughput of an echo followed by a write. Rounds of
// each are interleaved.
func BenchmarkFinishedStepStdio(b *testing.B) {
	built := goBuild(b, "deepwork", ".")
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			root := figuresProject(b, 100)
			server := startProgram(b, built, "serve", "--path", root)
			echo := startProgram(b, "mcp-echo")
			write := syncedWriter(b)
			sessions := make([]string, callers)
			steps := make([]int, callers)
			finish := func(c, _ int) error {
				steps[c]++
				return server.finish(sessions[c], steps[c]-1)
			}
			args := map[string]any{
				"outputs":    map[string]any{"report": "report.md"},
				"session_id": "01234567",
				"step_id":    "s1",
			}
			var e, wr, f []time.Duration
			for b.Loop() {
				for c := range callers {
					sessions[c], steps[c] = testkit.Get(server.start(fmt.Sprintf("job_%d", c))).Must(b), 0
				}
				e = append(e, together(b, callers, 25, func(int, int) error {
					_, err := echo.do("echo", args)
					return err
				}))
				wr = append(wr, together(b, callers, 25, func(c, _ int) error { return write(strconv.Itoa(c)) }))
				f = append(f, together(b, callers, 25, finish))
			}
			te := median(e)
			tw := median(wr)
			tf := median(f)
			report(b, map[string]float64{"echo-µs": te, "write-µs": tw, "step-µs": tf})
			if callers == 1 {
				b.ReportMetric(tf/(te+1.2*tw), "of-allowed(<=1)")
			} else {
				// Throughputs are 1/t: 1/(1/e+1/w) is 1/(te+tw).
				b.ReportMetric((te+tw)/tf, "of-ideal(>=1.1)")
			}
			b.ReportMetric(residentMB(b, server.pid), "server-MB(<40)")
		})
	}
}

// residentMB is a process's resident set.
func residentMB(b *testing.B, pid int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0 // not on this system
	}
	pages := testkit.Get(strconv.Atoi(strings.Fields(string(data))[1])).Must(b)
	return float64(pages*os.Getpagesize()) / 1e6
}

// BenchmarkLateStep compares steps around the 10th and the 300th of one workflow. Wanted: at most twice.
func BenchmarkLateStep(b *testing.B) {
	server := startProgram(b, "deepwork", "serve", "--path", figuresProject(b, 1))
	var early, late []time.Duration
	for b.Loop() {
		id := testkit.Get(server.start("long")).Must(b)
		for i := range 311 {
			begin := time.Now()
			must(b, server.finish(id, i))
			switch took := time.Since(begin); {
			case i >= 5 && i < 15:
				early = append(early, took)
			case i >= 295 && i < 305:
				late = append(late, took)
			}
		}
		testkit.Get(server.do("abort_workflow", map[string]any{"explanation": "measured"})).Must(b)
	}
	report(b, map[string]float64{
		"step10-µs":  median(early),
		"step300-µs": median(late),
		"ratio(<=2)": median(late) / median(early),
	})
}

// BenchmarkProcessStart is from the start of the built binary to the answer to
// initialize, with 100 jobs. Wanted: under 50 ms.
func BenchmarkProcessStart(b *testing.B) {
	root := figuresProject(b, 100)
	built := goBuild(b, "deepwork", ".")
	var all []time.Duration
	for b.Loop() {
		cmd := exec.Command(built, "serve", "--path", root)
		in := testkit.Get(cmd.StdinPipe()).Must(b)
		out := testkit.Get(cmd.StdoutPipe()).Must(b)
		begin := time.Now()
		must(b, cmd.Start())
		io.WriteString(in,
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",`+
				`"capabilities":{},"clientInfo":{"name":"figures","version":"1"}}}`+"\n")
		testkit.Get(bufio.NewReader(out).ReadString('\n')).Must(b)
		all = append(all, time.Since(begin))
		in.Close()
		must(b, cmd.Wait())
	}
	report(b, map[string]float64{"ms(<50)": median(all) / 1e3})
}

// BenchmarkHook is from the start of `deepwork hook compact` to its end, in a project with 1,000 sessions in progress,
// each time beside `deepwork version`. Wanted: at most twice the time.
func BenchmarkHook(b *testing.B) {
	root := figuresProject(b, 1)
	built := goBuild(b, "deepwork", ".")
	server := startProgram(b, built, "serve", "--path", root)
	for range 1000 {
		testkit.Get(server.start("job_0")).Must(b)
	}

	timed := func(stdin string, args ...string) (time.Duration, string) {
		cmd := exec.Command(built, args...)
		cmd.Stdin = strings.NewReader(stdin)
		begin := time.Now()
		out := testkit.Get(cmd.Output()).Must(b)
		return time.Since(begin), string(out)
	}
	var hook, version []time.Duration
	for b.Loop() {
		took, said := timed(fmt.Sprintf(`{"cwd":%q}`, root), "hook", "compact")
		testkit.Contains(b, said, "is at step s0", "the hook says")
		hook = append(hook, took)
		took, _ = timed("", "version")
		version = append(version, took)
	}
	report(b, map[string]float64{
		"hook-µs":         median(hook),
		"version-µs":      median(version),
		"of-version(<=2)": median(hook) / median(version),
	})
}

// syncSource is a source with one synchronous workflow, which echoes, of the bare SDK: over stdio, or, called
// with "http", over streamable HTTP at the URL that it writes to its standard output, until its standard
// input ends.
func syncSource() {
	s := bareServer(map[string]func(json.RawMessage) string{
		"workflows-list-tool": func(json.RawMessage) string {
			return `[{"id":"w-echo","name":"echo","description":"Gives back what it gets.","executionType":"sync",
			"inputSchema":{"type":"object","properties":{"customer":{"type":"string"}},"required":["customer"]}}]`
		},
		"workflows-execute-tool": func(arguments json.RawMessage) string { return string(lookup(arguments, "input")) },
	})

	if len(os.Args) < 2 {
		_ = s.Run(context.Background(), &mcp.StdioTransport{})
		return
	}

	both := map[bool]http.Handler{}
	for _, stateless := range []bool{true, false} {
		both[stateless] = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server {
			return s
		}, &mcp.StreamableHTTPOptions{Stateless: stateless})
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		both[r.Header.Get("Mcp-Protocol-Version") >= newest].ServeHTTP(w, r)
	}))
	fmt.Printf("%s/mcp\n", web.URL)
	bufio.NewReader(os.Stdin).ReadByte()
}

// The protocol versions that calls are measured in.
const (
	withSessions = "2025-11-25"
	newest       = "2026-07-28"
)

// BenchmarkSyncCall compares a call of a synchronous workflow through the server with the same call made to the source
// directly, each in turn, so that whatever else the machine does weighs on both. Client, server and source
// are processes of their own. times-direct is to be at most 2.5 (seed 003).
func BenchmarkSyncCall(b *testing.B) {
	for name, version := range map[string]string{"sessions": withSessions, "newest": newest} {
		connect := func(b *testing.B, over mcp.Transport) *mcp.ClientSession {
			cs := testkit.Get(mcp.NewClient(&mcp.Implementation{Name: "figures", Version: "1"},
				nil).Connect(b.Context(), over, &mcp.ClientSessionOptions{ProtocolVersion: version})).Must(b)
			b.Cleanup(func() { cs.Close() })
			return cs
		}
		command := func(args ...string) mcp.Transport {
			return &mcp.CommandTransport{Command: exec.Command(args[0], args[1:]...)}
		}
		b.Run("stdio/"+name, func(b *testing.B) {
			root := syncProject(b, "command: [mcp-source]")
			compareSync(b, connect(b, command("mcp-source")),
				connect(b, command("deepwork", "serve", "--path", root, "--log-level", "warn")))
		})
		b.Run("http/"+name, func(b *testing.B) {
			source := startSource(b)
			_, served, log := serveNetwork(b, syncProject(b, "url: "+source), "--transport", "http")
			go io.Copy(io.Discard, log) // one that nobody reads would stop it
			compareSync(b, connect(b, &mcp.StreamableClientTransport{Endpoint: source}),
				connect(b, &mcp.StreamableClientTransport{Endpoint: served}))
		})
	}
}

// syncProject is a project with one source.
func syncProject(b *testing.B, how string) string {
	root := b.TempDir()
	writeFiles(b, root, map[string]string{".deepwork/config.yml": "workflow_tools:\n  sources:\n    - name: " +
		"bench\n      " + how + "\n"})
	return root
}

// startSource starts the source over HTTP, which ends with its stdin, and returns its URL.
func startSource(b *testing.B) string {
	b.Helper()
	cmd := exec.Command("mcp-source", "http")
	out := testkit.Get(cmd.StdoutPipe()).Must(b)
	in := testkit.Get(cmd.StdinPipe()).Must(b)
	must(b, cmd.Start())
	b.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	url := testkit.Get(bufio.NewReader(out).ReadString('\n')).Must(b)
	return strings.TrimSpace(url)
}

func compareSync(b *testing.B, direct, through *mcp.ClientSession) {
	one := func(cs *mcp.ClientSession, name, args string) (time.Duration, error) {
		began := time.Now()
		res, err := cs.CallTool(b.Context(), &mcp.CallToolParams{Name: name, Arguments: json.RawMessage(args)})
		if err == nil && res.IsError {
			err = errors.New(res.Content[0].(*mcp.TextContent).Text)
		}
		return time.Since(began), err
	}
	const args = `{"customer":"ada"}`
	testkit.Until(b, "the source is connected", func() bool {
		_, err := one(through, "echo", args)
		return err == nil
	})

	var there, here time.Duration
	for b.Loop() {
		for _, call := range []struct {
			cs         *mcp.ClientSession
			name, args string
			took       *time.Duration
		}{{direct, "workflows-execute-tool", `{"workflow_id":"w-echo","input":` + args + `}`, &there},
			{through, "echo", args, &here}} {
			took := testkit.Get(one(call.cs, call.name, call.args)).Must(b)
			*call.took += took
		}
	}
	b.ReportMetric(float64(here)/float64(there), "times-direct")
	b.ReportMetric(float64(there.Nanoseconds())/float64(b.N), "ns-direct")
	b.ReportMetric(float64(here.Nanoseconds())/float64(b.N), "ns-through")
}

// BenchmarkIdleOnPostgres counts the transactions of a server with the board, over HTTP, to which nobody speaks.
// Wanted: at most 5 per second.
func BenchmarkIdleOnPostgres(b *testing.B) {
	database := pgtest.New(b, "autovacuum=off") // whose transactions are not of the server
	b.Setenv(config.StoreEnv, database.URL())
	b.Setenv(config.ProjectEnv, "shop")
	root := figuresProject(b, 1)
	inGit(b, root)
	server := exec.CommandContext(b.Context(), goBuild(b, "deepwork", "."), "serve", "--path", root, "--port", "0",
		"--transport", "http", "--toolsets", "workflows,remote,board")
	_, log := startServer(b, server)
	go io.Copy(io.Discard, log)
	db := testkit.Get(sql.Open("pgx", database.At(""))).Must(b)
	defer db.Close()
	commits := func() (n float64) {
		time.Sleep(5 * time.Second) // the database counts what was done before
		must(b, db.QueryRowContext(b.Context(),
			`SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan(&n))
		return n
	}
	for b.Loop() {
		began, before := time.Now(), commits()
		time.Sleep(30 * time.Second)
		after := commits()
		b.ReportMetric((after-before)/(time.Since(began)-5*time.Second).Seconds(), "transactions/s(<=5)")
	}
	b.ReportMetric(0, "ns/op")
}

// quickReviewer is a reviewer program that takes 50 ms and passes. It keeps count of
// how many of it run, by a file each in REVIEWER_DIR.
func quickReviewer() {
	dir := os.Getenv("REVIEWER_DIR")
	mine := filepath.Join(dir, fmt.Sprint("running_", os.Getpid()))
	os.WriteFile(mine, nil, 0o600)
	running, _ := filepath.Glob(filepath.Join(dir, "running_*"))
	os.WriteFile(filepath.Join(dir, fmt.Sprintf("peak_%03d", len(running))), nil, 0o600)
	io.Copy(io.Discard, os.Stdin)
	time.Sleep(50 * time.Millisecond)
	fmt.Println(`{"passed": true, "feedback": "fine"}`)
	os.Remove(mine)
}

// BenchmarkReviews has 200 sessions ask for a review at once, with 4 workers and a reviewer of 50 ms. Wanted:
// all done in at most 1.3 times the ideal, 200/4 times the reviewer's own measured time, never more than 4 at
// once, and get_workflows answered meanwhile in at most 3 times its idle median.
func BenchmarkReviews(b *testing.B) {
	const sessions, workers = 200, 4
	root := b.TempDir()
	counts := b.TempDir()
	writeFiles(b, root, map[string]string{
		"report.md": "# Report\n", ".deepwork/jobs/reviewed/a.md": "Do it.\n",
		".deepwork/jobs/reviewed/job.yml": strings.Replace(mainJob(reviewedJob("reviewed", isItGood, "s0")), "{out:",
			"{report:", 1),
		".deepwork/config.yml": fmt.Sprintf("version: \"1.0\"\nquality_gate:\n  agent_review_command: mcp-reviewer\n "+
			" max_concurrent_reviews: %d\n", workers),
	})
	b.Setenv("REVIEWER_DIR", counts)
	server := startProgram(b, "deepwork", "serve", "--path", root)
	list := func() time.Duration {
		begin := time.Now()
		testkit.Get(server.do("get_workflows", map[string]any{})).Must(b)
		return time.Since(begin)
	}
	var own, idle, busy []time.Duration
	var ratios []float64
	for b.Loop() {
		// The reviewer's own time, with as many at once as will be.
		for range 3 {
			own = append(own, together(b, workers, 3, func(int, int) error {
				return exec.Command("mcp-reviewer").Run()
			})*workers)
		}

		ids := make([]string, sessions)
		for i := range ids {
			ids[i] = testkit.Get(server.start("reviewed")).Must(b)
		}

		for range 50 { // with the stack it has meanwhile, too
			idle = append(idle, list())
		}

		begin := time.Now()
		var wg sync.WaitGroup
		for _, id := range ids {
			wg.Go(func() { testkit.Works(b, server.finish(id, 0)) })
		}

		done := make(chan struct{})
		go func() {
			wg.Wait()
			close(done)
		}()
		for waiting := true; waiting; {
			select {
			case <-done:
				waiting = false
			case <-time.After(20 * time.Millisecond):
				busy = append(busy, list())
			}
		}

		ideal := median(own) * sessions / workers
		ratios = append(ratios, float64(time.Since(begin).Microseconds())/ideal)
	}

	peaks, _ := filepath.Glob(filepath.Join(counts, "peak_*"))
	slices.Sort(peaks)
	most := 0
	fmt.Sscanf(filepath.Base(peaks[len(peaks)-1]), "peak_%d", &most)
	slices.Sort(ratios)
	report(b, map[string]float64{"of-ideal(<=1.3)": ratios[len(ratios)/2], "at-once(<=4)": float64(most),
		"reviewer-ms": median(own) / 1e3, "idle-list-µs": median(idle), "busy-list(<=3)": median(busy) / median(idle)})
}

// goBuild builds a program of the project as it is released. The test binary has more code, which takes longer to start
// and more memory.
func goBuild(b testing.TB, name, source string) string {
	b.Helper()
	built := filepath.Join(b.TempDir(), name)
	build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-o", built, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	testkit.Need(b, err == nil, "%v\n%s", err, out)
	return built
}

// quickProject makes a project in git with the workflow job0/main of n steps, and the executor QUICK.
func quickProject(b testing.TB, n int, quick, config string) string {
	b.Helper()
	var ids []string
	workflow := ""
	for i := range n {
		ids = append(ids, fmt.Sprintf("s%d outputs: {}", i))
		workflow += fmt.Sprintf("s%d, ", i)
	}

	root := filepath.Join(b.TempDir(), "shop")
	writeFiles(b, root, map[string]string{
		"README":                      "hello\n",
		".deepwork/jobs/job0/job.yml": mainJob(runJob("job0", workflow, ids...)),
		".deepwork/jobs/job0/a.md":    "Do it.",
		".deepwork/config.yml":        fmt.Sprintf("executors:\n  QUICK: {command: [%q]}\n%s", quick, config),
	})
	inGit(b, root)
	return root
}

// BenchmarkRunSteps compares a run of 100 steps, whose agents do nothing but finish them, with the sum of
// what it cannot do without: such agents, each started by its shim, that finish the steps of a session of
// a server, one after the other. Wanted: at most 1.2.
func BenchmarkRunSteps(b *testing.B) {
	const steps = 100
	built, quick := goBuild(b, "deepwork", "."), goBuild(b, "quick", "./testdata/quick")
	root := quickProject(b, steps, quick, "")
	_, url, log := serveNetwork(b, root, "--transport", "http")
	go io.Copy(io.Discard, log)
	server := &program{ClientSession: connectNetwork(b, url, "")}
	env := func(id string, i int) []string {
		return []string{config.MCPURLEnv + "=" + url, config.SessionEnv + "=" + id,
			fmt.Sprintf("%s=s%d", config.StepEnv, i)}
	}
	each := func(one func(id string, i int) error) time.Duration {
		b.Helper()
		id := testkit.Get(server.start("job0")).Must(b)
		began := time.Now()
		for i := range steps {
			must(b, one(id, i))
		}
		return time.Since(began)
	}

	top := b.TempDir()
	shims := runner.Runner{Shim: []string{built, runner.ShimCommand}}
	var bare, shimmed, run []time.Duration
	for b.Loop() {
		bare = append(bare, each(func(id string, i int) error {
			cmd := exec.CommandContext(b.Context(), quick)
			cmd.Env = append(os.Environ(), env(id, i)...)
			return cmd.Run()
		}))
		shimmed = append(shimmed, each(func(id string, i int) error {
			dir := filepath.Join(top, fmt.Sprintf("%s-%d", id, i))
			p, err := shims.Start(b.Context(), runner.Spec{
				Dir:     dir,
				Log:     filepath.Join(top, fmt.Sprintf("%s-%d-log", id, i)),
				Command: []string{quick},
				Work:    root,
				Env:     env(id, i),
			})
			if err != nil {
				return err
			}
			exit, err := p.Wait(b.Context())
			if err == nil && exit.Code != 0 {
				err = fmt.Errorf("%+v", exit)
			}
			return err
		}))
		cmd := exec.CommandContext(b.Context(), built, "run", "job0/main", "--goal", "Nothing", "--executor", "QUICK",
			"--json", "--path", root)
		cmd.Env = process.With(os.Environ(), "DEEPWORK_ADDITIONAL_JOBS_FOLDERS=")
		began := time.Now()
		out, err := cmd.CombinedOutput()
		run = append(run, time.Since(began))
		testkit.Need(b, err == nil && bytes.Count(out, []byte(`"step_ended"`)) == steps, "%v\n%s", err, out)
	}
	ms := func(d []time.Duration) float64 { return median(d) / 1e3 / steps }
	report(b, map[string]float64{"bare-ms": ms(bare), "shim-ms": ms(shimmed),
		"run-ms": ms(run), "ratio(<=1.2)": ms(run) / ms(shimmed), "of-bare": ms(run) / ms(bare)})
}

// What starts an agent or a check ends before the packages are initialized that it does not need: they take
// far longer than it.
func TestWhatStartsAgentsAndChecksNeedsLittle(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{runner.ShimCommand, t.TempDir()}, {process.ContainCommand}, {"-test.run=^$"}} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
		cmd.Env = process.With(os.Environ(), "GODEBUG=inittrace=1")
		// contain-process is told of no command
		trace, _ := cmd.CombinedOutput()
		// what follows is not collected at once
		trace, _, _ = bytes.Cut(trace, []byte("init deepwork/cmd/deepwork/early "))
		testkit.Contains(t, string(trace), "init os/signal ")

		for _, late := range []string{"net/http", "github.com/santhosh-tekuri/jsonschema/v6",
			"deepwork/catalog/config"} {
			testkit.True(t, !bytes.Contains(trace, []byte("init "+late+" ")), "%s initializes %s", args[0], late)
		}
	}
}

// BenchmarkShimStart compares the start of the shim of an agent, as far as it is the same for all, with
// that of a Go program that does nothing. Wanted: at most 2. What a Go program of this size needs before
// its first own statement takes most of it.
func BenchmarkShimStart(b *testing.B) {
	built, empty := goBuild(b, "deepwork", "."), goBuild(b, "empty", "./testdata/empty")
	dir := b.TempDir() // has nothing to run
	timed := func(program string, args ...string) time.Duration {
		began := time.Now()
		must(b, exec.CommandContext(b.Context(), program, args...).Run())
		return time.Since(began)
	}
	var bare, shim []time.Duration
	for b.Loop() {
		bare = append(bare, timed(empty))
		shim = append(shim, timed(built, runner.ShimCommand, dir))
	}
	report(b, map[string]float64{
		"empty-ms":   median(bare) / 1e3,
		"shim-ms":    median(shim) / 1e3,
		"ratio(<=2)": median(shim) / median(bare),
	})
}

// BenchmarkRunMemory compares the memory of a server after it has led 50 runs with that after 10. Wanted: at most 1.1.
func BenchmarkRunMemory(b *testing.B) {
	built := goBuild(b, "deepwork", ".")
	root := quickProject(b, 3, goBuild(b, "quick", "./testdata/quick"), "")
	var ratios, tens, fifties []float64
	for b.Loop() {
		server := startProgram(b, built, "serve", "--path", root, "--toolsets", "board")
		var used []float64
		for range 50 {
			awaitRun(b, server.ClientSession,
				startRun(b, server.ClientSession, map[string]any{
					"job_name":      "job0",
					"workflow_name": "main",
					"goal":          "Nothing",
					"executor":      "QUICK",
				}))
			used = append(used, residentMB(b, server.pid))
		}
		server.Close()
		tens, fifties = append(tens, used[9]), append(fifties, used[49])
		ratios = append(ratios, used[49]/used[9])
	}
	report(b, map[string]float64{
		"growth(<=1.1)": slices.Max(ratios),
		"ten-MB":        slices.Max(tens),
		"fifty-MB":      slices.Max(fifties),
	})
}
