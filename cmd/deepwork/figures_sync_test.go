package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/store/postgres/pgtest"
)

// syncSource is a source with one synchronous workflow, which echoes, of the bare SDK:
// over stdio, or, called with "http", over streamable HTTP at the URL that it writes
// to its standard output, until its standard input ends.
func syncSource() {
	s := mcp.NewServer(&mcp.Implementation{Name: "source", Version: "1"}, nil)
	add := func(name string, answer func(arguments json.RawMessage) (string, error)) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			text, err := answer(r.Params.Arguments)
			if err != nil {
				return nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
		})
	}
	add("workflows-list-tool", func(json.RawMessage) (string, error) {
		return `[{"id":"w-echo","name":"echo","description":"Gives back what it gets.","executionType":"sync",
			"inputSchema":{"type":"object","properties":{"customer":{"type":"string"}},"required":["customer"]}}]`, nil
	})
	add("workflows-execute-tool", func(arguments json.RawMessage) (string, error) {
		var in struct {
			Input json.RawMessage `json:"input"`
		}
		err := json.Unmarshal(arguments, &in)
		return string(in.Input), err
	})
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "mcp-source:", err)
			os.Exit(1)
		}
	}
	if len(os.Args) < 2 {
		fail(s.Run(context.Background(), &mcp.StdioTransport{}))
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fail(err)
	both := map[bool]http.Handler{}
	for _, stateless := range []bool{true, false} {
		both[stateless] = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: stateless})
	}
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		both[r.Header.Get("Mcp-Protocol-Version") >= newest].ServeHTTP(w, r)
	}), ReadHeaderTimeout: 10 * time.Second}
	fmt.Printf("http://%s/mcp\n", l.Addr())
	go func() {
		bufio.NewReader(os.Stdin).ReadByte()
		web.Close()
	}()
	if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		fail(err)
	}
}

// The protocol versions that calls are measured in.
const (
	withSessions = "2025-11-25"
	newest       = "2026-07-28"
)

// BenchmarkSyncCall compares a call of a synchronous workflow through the server with
// the same call made to the source directly, each in turn, so that whatever else the
// machine does weighs on both. Client, server and source are processes of their own.
// times-direct is to be at most 2.5 (seed 003).
func BenchmarkSyncCall(b *testing.B) {
	for name, version := range map[string]string{"sessions": withSessions, "newest": newest} {
		connect := func(b *testing.B, over mcp.Transport) *mcp.ClientSession {
			cs := testkit.Get(mcp.NewClient(&mcp.Implementation{Name: "figures", Version: "1"}, nil).Connect(b.Context(), over, &mcp.ClientSessionOptions{ProtocolVersion: version})).Must(b)
			b.Cleanup(func() { cs.Close() })
			return cs
		}
		command := func(args ...string) mcp.Transport {
			return &mcp.CommandTransport{Command: exec.Command(args[0], args[1:]...)}
		}
		b.Run("stdio/"+name, func(b *testing.B) {
			root := syncProject(b, "command: [mcp-source]")
			compareSync(b, connect(b, command("mcp-source")), connect(b, command("deepwork", "serve", "--path", root, "--log-level", "warn")))
		})
		b.Run("http/"+name, func(b *testing.B) {
			source := startSource(b)
			_, served, log := serveNetwork(b, syncProject(b, "url: "+source), "--transport", "http")
			go io.Copy(io.Discard, log) // one that nobody reads would stop it
			compareSync(b, connect(b, &mcp.StreamableClientTransport{Endpoint: source}), connect(b, &mcp.StreamableClientTransport{Endpoint: served}))
		})
	}
}

// syncProject is a project with one source.
func syncProject(b *testing.B, how string) string {
	root := b.TempDir()
	writeFiles(b, root, map[string]string{".deepwork/config.yml": "workflow_tools:\n  sources:\n    - name: bench\n      " + how + "\n"})
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
	// The source is connected in the background.
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, err := one(through, "echo", args)
		if err == nil {
			break
		}
		testkit.Need(b, !time.Now().After(end), "%v", err)
	}
	var there, here time.Duration
	for b.Loop() {
		for _, call := range []struct {
			cs         *mcp.ClientSession
			name, args string
			took       *time.Duration
		}{{direct, "workflows-execute-tool", `{"workflow_id":"w-echo","input":` + args + `}`, &there}, {through, "echo", args, &here}} {
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
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."}, {"commit", "-q", "-m", "first"}} {
		testkit.Git(b, root, args...)
	}
	server := exec.CommandContext(b.Context(), builtProgram(b), "serve", "--path", root, "--port", "0", "--transport", "http", "--toolsets", "workflows,remote,board")
	_, log := startServer(b, server)
	go io.Copy(io.Discard, log)
	db := testkit.Get(sql.Open("pgx", database.At(""))).Must(b)
	defer db.Close()
	commits := func() (n float64) {
		time.Sleep(5 * time.Second) // the database counts what was done before
		must(b, db.QueryRowContext(b.Context(), `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan(&n))
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

// BenchmarkReviews has 200 sessions ask for a review at once, with 4 workers and
// a reviewer of 50 ms. Wanted: all done in at most 1.3 times the ideal, 200/4
// times the reviewer's own measured time, never more than 4 at once, and
// get_workflows answered meanwhile in at most 3 times its idle median.
func BenchmarkReviews(b *testing.B) {
	const sessions, workers = 200, 4
	root := b.TempDir()
	counts := b.TempDir()
	writeFiles(b, root, map[string]string{
		"report.md":                      "# Report\n",
		".deepwork/jobs/reviewed/one.md": "Do it.\n",
		".deepwork/jobs/reviewed/job.yml": `name: reviewed
version: "1.0.0"
summary: A reviewed step
common_job_info_provided_to_all_steps_at_runtime: Nothing.
steps:
  - id: s0
    name: One
    description: The step
    instructions_file: one.md
    outputs: {report: {type: file, description: The report}}
    reviews:
      - run_each: step
        quality_criteria: {good: "Is it good?"}
workflows:
  - {name: main, summary: All of it, steps: [s0]}
`,
		".deepwork/config.yml": fmt.Sprintf("version: \"1.0\"\nquality_gate:\n  agent_review_command: mcp-reviewer\n  max_concurrent_reviews: %d\n", workers),
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
			var err error
			if ids[i], err = server.start("reviewed"); err != nil {
				b.Fatal(err)
			}
		}
		for range 50 { // with the stack it has meanwhile, too
			idle = append(idle, list())
		}
		begin := time.Now()
		var wg sync.WaitGroup
		for _, id := range ids {
			wg.Go(func() {
				testkit.Works(b, server.finish(id, 0))
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
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
	b.ReportMetric(ratios[len(ratios)/2], "of-ideal(<=1.3)")
	b.ReportMetric(float64(most), "at-once(<=4)")
	b.ReportMetric(median(own)/1e3, "reviewer-ms")
	b.ReportMetric(median(idle), "idle-list-µs")
	b.ReportMetric(median(busy)/median(idle), "busy-list(<=3)")
	b.ReportMetric(0, "ns/op")
}
