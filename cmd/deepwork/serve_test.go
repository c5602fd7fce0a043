package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/show"
	"deepwork/session/state"
	"deepwork/session/store/postgres/pgtest"
	"deepwork/session/workflow"
	"deepwork/transport/tool"
	"deepwork/transport/web"
)

var listening = regexp.MustCompile(`msg=listening url=(\S+)`)

// serveNetwork starts a server on a free port and returns it, where it listens, and the rest of its log.
func serveNetwork(t testing.TB, root string, options ...string) (server *exec.Cmd, url string, log *bufio.Reader) {
	t.Helper()
	server = exec.CommandContext(t.Context(), "deepwork",
		append([]string{"serve", "--path", root, "--port", "0"}, options...)...)
	url, log = startServer(t, server)
	testkit.Need(t, url != "", "it does not listen")
	return server, url, log
}

// startServer starts a server, which ends with the test, and returns the URL that it listens at, if any, and
// the rest of its log.
func startServer(t testing.TB, server *exec.Cmd) (url string, log *bufio.Reader) {
	t.Helper()
	stderr := testkit.Get(server.StderrPipe()).Must(t)
	must(t, server.Start())
	t.Cleanup(func() {
		if server.ProcessState == nil {
			_ = server.Process.Kill()
			_ = server.Wait()
		}
	})
	log = bufio.NewReader(stderr)
	for before := ""; ; {
		line, err := log.ReadString('\n')
		before += line
		if err != nil {
			t.Fatalf("the server ended: %v\n%s", err, before)
		}

		if m := listening.FindStringSubmatch(line); m != nil {
			url = m[1]
		}
		if strings.Contains(line, "server started") {
			return url, log
		}
	}
}

// connectNetwork connects a client, with sessions.
func connectNetwork(t testing.TB, url, token string) *mcp.ClientSession {
	t.Helper()
	client := &http.Client{Transport: withToken{token}}
	var over mcp.Transport = &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: client}
	if strings.HasSuffix(url, "/sse") {
		over = &mcp.SSEClientTransport{Endpoint: url, HTTPClient: client}
	}
	cs := testkit.Get(mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), over,
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-06-18"})).Must(t)
	t.Cleanup(func() { cs.Close() })
	return cs
}

// newToken makes a token on the command line, and returns it and its line of the file of tokens.
func newToken(t *testing.T, name string, options ...string) (token, line string) {
	t.Helper()
	made := exec.CommandContext(t.Context(), "deepwork", append([]string{"token", "new", name}, options...)...)
	var said strings.Builder
	made.Stderr = &said
	return strings.TrimSpace(string(testkit.Get(made.Output()).Must(t))), said.String()
}

// keepingAlive keeps the connection of each of many callers.
var keepingAlive = &http.Transport{MaxIdleConnsPerHost: 256}

type withToken struct{ token string }

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.token)
	return keepingAlive.RoundTrip(r)
}

// A server over the network takes a token that token new made, works for several
// clients, and ends with exit code 0 when it is told to.
func TestServeNetwork(t *testing.T) {
	t.Parallel()
	for _, over := range []string{"http", "sse"} {
		t.Run(over, func(t *testing.T) {
			root := projectOf(t, jobText("one", "a"))
			file := filepath.Join(t.TempDir(), "tokens")
			token, line := newToken(t, "ann")
			must(t, os.WriteFile(file, []byte(line), 0o600))
			server, url, log := serveNetwork(t, root, "--transport", over, "--host", "0.0.0.0", "--token-file", file)
			url = strings.Replace(url, "0.0.0.0", "127.0.0.1", 1)
			testkit.True(t, strings.HasSuffix(url, map[string]string{"http": "/mcp", "sse": "/sse"}[over]),
				"it listens at %s", url)

			for range 2 {
				cs := connectNetwork(t, url, token)
				callTool(t, cs, "start_workflow", map[string]any{"goal": "g", "job_name": "one", "workflow_name": "w"})
				callTool(t, cs, "finished_step", map[string]any{"outputs": map[string]any{}, "step_id": "a"})
			}
			testkit.Equal(t, testkit.Get(http.Get(url)).Must(t).StatusCode, http.StatusUnauthorized, "without a token")

			if runtime.GOOS == "windows" {
				return // a process cannot be signalled there
			}

			must(t, server.Process.Signal(syscall.SIGTERM))
			rest := testkit.Get(io.ReadAll(log)).Must(t)
			testkit.Works(t, server.Wait())
			testkit.ContainsAll(t, string(rest), []string{"caller=ann", "server stopped"}, "it logged")
			testkit.True(t, !strings.Contains(string(rest), token) &&
				strings.Contains(string(rest), "deprecated") == (over == "sse"), "it logged\n%s", rest)
		})
	}
}

// A first signal lets a call in flight go on, a second one ends the server at once.
func TestServeNetworkSecondSignal(t *testing.T) {
	t.Parallel()
	needSignals(t)
	root := projectOf(t, reviewedJob("one", isItGood, "a"), "o.txt", "o", "hang.sh",
		"touch reviewing\nexec sleep 100\n")
	server, url, log := serveNetwork(t, root, "--transport", "http", "--quality-gate", "sh hang.sh")
	cs := connectNetwork(t, url, "")
	callTool(t, cs, "start_workflow", map[string]any{"goal": "g", "job_name": "one", "workflow_name": "w"})
	called := make(chan struct{})
	go func() {
		defer close(called)
		_, _ = cs.CallTool(context.WithoutCancel(t.Context()), &mcp.CallToolParams{
			Name:      "finished_step",
			Arguments: map[string]any{"outputs": map[string]any{"out": "o.txt"}},
		})
	}()
	testkit.Until(t, "a review runs", func() bool { return fileExists(filepath.Join(root, "reviewing")) })

	must(t, server.Process.Signal(syscall.SIGTERM))
	for line := ""; !strings.Contains(line, "asked to stop"); { // until it has taken the signal
		line = testkit.Get(log.ReadString('\n')).Must(t)
	}

	health := strings.TrimSuffix(url, "/mcp") + "/readyz"
	testkit.Until(t, "it says that it is not ready", func() bool {
		res := testkit.Get(http.Get(health)).Must(t)
		res.Body.Close()
		return res.StatusCode == http.StatusServiceUnavailable
	})

	ended := make(chan error, 1)
	go func() {
		io.Copy(io.Discard, log)
		ended <- server.Wait()
	}()
	for again := true; again; {
		// Until the handler of the first is gone a signal is taken for it.
		_ = server.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			exit, ok := errors.AsType[*exec.ExitError](err)
			testkit.True(t, ok && !exit.Success(), "ended with %v, want a signal", err)
			again = false
		case <-time.After(10 * time.Millisecond):
		}
	}

	cs.Close()
	<-called
}

// A server that is told to stop before it listens has nothing to complain of.
func TestStopBeforeListening(t *testing.T) {
	var log bytes.Buffer
	a := &app{
		in:     strings.NewReader(""),
		out:    show.NewScreen(io.Discard, os.Getenv),
		rawOut: io.Discard,
		err:    show.NewScreen(&log, os.Getenv),
		path:   t.TempDir(),
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f := serveFlags{transport: "http", network: networkFlags{web.Options{Host: "localhost"}}}
	f.log.level, f.log.format = "info", "text"
	err := a.serveUntil(ctx, f)
	testkit.True(t, err == nil && strings.Contains(log.String(), "asked to stop"), "%v; it logged %s", err,
		log.String())
}

func needSignals(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be signalled there")
	}
}

// TestServeSignal asks a server to end while its client is still connected: it ends by itself, with exit code 0.
func TestServeSignal(t *testing.T) {
	t.Parallel()
	needSignals(t)
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		server := exec.CommandContext(t.Context(), "deepwork", "serve", "--path", t.TempDir())
		defer testkit.Get(server.StdinPipe()).Must(t).Close() // of a client that says nothing
		_, log := startServer(t, server)
		must(t, server.Process.Signal(sig))
		rest := testkit.Get(io.ReadAll(log)).Must(t)
		testkit.Works(t, server.Wait(), "after %v it logged %s", sig, rest)
		testkit.Contains(t, string(rest), "server stopped", "after %v", sig)
	}
}

// TestServeOutlivesItsClient writes to a client that is gone: that ends the
// server, but not at once, as the signal for it would.
func TestServeOutlivesItsClient(t *testing.T) {
	t.Parallel()
	needSignals(t)
	server := exec.CommandContext(t.Context(), "deepwork", "serve", "--path", t.TempDir())
	r, w, err := os.Pipe()
	must(t, err)
	defer w.Close()
	stdin := testkit.Get(server.StdinPipe()).Must(t)
	defer stdin.Close()
	var log strings.Builder
	server.Stdout, server.Stderr = w, &log
	must(t, errors.Join(server.Start(), r.Close()))
	testkit.Get(io.WriteString(stdin, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n")).Must(t)
	err = server.Wait()
	exit, ok := errors.AsType[*exec.ExitError](err)
	testkit.True(t, ok && exit.ExitCode() == 1, "ended with %v, want exit code 1", err)
	testkit.ContainsAll(t, log.String(), []string{"server stopped", "broken pipe"}, "it logged\n")
}

// TestInterruptiblePatience runs a process that is told to stop several times at
// once, as by a terminal and a wrapper: it is left the time to stop.
func TestInterruptiblePatience(t *testing.T) {
	needSignals(t)
	if os.Getenv("DEEPWORK_TEST_PATIENCE") != "" {
		ctx, stop := interruptible(context.Background(), time.Hour)
		defer stop()
		os.Stdout.WriteString("ready\n")
		<-ctx.Done()
		os.Stdout.WriteString("asked to stop\n")
		io.ReadAll(os.Stdin)
		os.Stdout.WriteString("stopped\n")
		os.Exit(0)
	}

	self := testkit.Get(os.Executable()).Must(t)
	child := exec.CommandContext(t.Context(), self, "-test.run=^TestInterruptiblePatience$")
	child.Env = append(os.Environ(), "DEEPWORK_TEST_PATIENCE=1")
	in := testkit.Get(child.StdinPipe()).Must(t)
	out := testkit.Get(child.StdoutPipe()).Must(t)
	must(t, child.Start())
	lines := bufio.NewScanner(out)
	for _, want := range []string{"ready", "asked to stop"} {
		testkit.Need(t, lines.Scan() && lines.Text() == want, "it did not say %q", want)
		for range 3 {
			must(t, child.Process.Signal(syscall.SIGTERM))
		}
	}

	in.Close()
	testkit.True(t, lines.Scan() && lines.Text() == "stopped", "it said %q, want stopped", lines.Text())
	testkit.Works(t, child.Wait(), "ended")
}

// However much hangs, a server that a signal asked to end is gone before a client that
// sent it loses patience: containers are killed after 10 s.
func TestReq005_AStopIsOverInTime(t *testing.T) {
	worst := web.StopTime + stopTimeout
	testkit.True(t, worst < 10*time.Second, "an HTTP server takes up to %v to stop", worst)
}

// TestPostgresScripts drives the command with a database, whose URL is $DB, and whose schema is $SCHEMA.
func TestPostgresScripts(t *testing.T) {
	t.Parallel()
	server, err := pgtest.Shared()
	pgtest.Need(t, err)
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/postgres",
		RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			db := server.URL()
			u := testkit.Get(url.Parse(db)).Must(t)
			e.Setenv("DB", db)
			e.Setenv("SCHEMA", u.Query().Get("schema"))
			e.Setenv("HOME", e.WorkDir)
			return setUpScript(e)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"agent":   agent,
			"exits":   exits,
			"capture": capture,
			"sql":     sqlCommand,
			"visit":   visit,
			"pg":      pgCommand(server),
		},
	})
}

// pgCommand is pg STATEMENT: @ is the schema and a dot.
func pgCommand(server *pgtest.Server) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		db, err := sql.Open("pgx", server.At(""))
		ts.Check(err)
		defer db.Close()
		_, err = db.Exec(strings.ReplaceAll(args[0], "@", ts.Getenv("SCHEMA")+"."))
		ts.Check(err)
	}
}

// A server starts although its database is away: it is not ready, refuses calls, and recovers.
func TestServeWithoutItsDatabase(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	must(t, pg.Stop())
	root := projectOf(t, jobText("one", "a"))
	inGit(t, root)
	_, url, log := serveNetwork(t, root, "--transport", "http", "--store", pg.URL(), "--project", "shop")
	go io.Copy(io.Discard, log)
	ready := func() (int, string) {
		r := testkit.Get(http.Get(strings.TrimSuffix(url, "/mcp") + "/readyz")).Must(t)
		defer r.Body.Close()
		return r.StatusCode, string(testkit.Get(io.ReadAll(r.Body)).Must(t))
	}
	status, text := ready()
	testkit.True(t, status == http.StatusServiceUnavailable && strings.Contains(text, "store"),
		"without its database it is ready: %d %s", status, text)

	client := connectNetwork(t, url, "")
	start := func() *mcp.CallToolResult {
		r := testkit.Get(client.CallTool(t.Context(), &mcp.CallToolParams{
			Name:      "start_workflow",
			Arguments: map[string]any{"goal": "g", "job_name": "one", "workflow_name": "w"},
		})).Must(t)
		return r
	}
	r := start()
	testkit.True(t, r.IsError && strings.Contains(resultText(r), "Waiting: The store"),
		"a call without the database: %s", resultText(r))

	must(t, pg.Start())
	testkit.Until(t, "it is ready", func() bool {
		status, _ := ready()
		return status == http.StatusOK
	})
	r = start()
	testkit.True(t, !r.IsError, "a call when the database is back: %s", resultText(r))
}

// agent is the script command `agent ROOT CALLS [OPTION...]`: a real client starts
// a server on the project ROOT, with these options of serve, and makes the calls of the file CALLS one after the other,
// each a line `tool {arguments}`; a `!` in front says that it must be refused.
func agent(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) < 2, "agent ROOT CALLS [OPTION...]")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := exec.CommandContext(ctx, "deepwork",
		append([]string{"serve", "--path", ts.MkAbs(args[0]), "--log-level", "error"}, args[2:]...)...)
	var log bytes.Buffer
	server.Stderr = &log
	server.Env = append(os.Environ(), config.JobsFoldersEnv+"=", "CI=") // as the scripts run
	for _, name := range []string{state.Env, "XDG_CONFIG_HOME", "APPDATA"} {
		server.Env = append(server.Env, name+"="+ts.Getenv(name))
	}
	session, err := connect(ctx, server)
	if err != nil {
		time.Sleep(time.Second) // for its last words
		ts.Fatalf("connecting: %v\n%s", err, log.String())
	}
	for line := range strings.Lines(ts.ReadFile(args[1])) {
		line, refused := strings.CutPrefix(strings.TrimSpace(line), "!")
		tool, arguments, _ := strings.Cut(strings.TrimSpace(line), " ")
		if tool == "" {
			continue
		}
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
		if err != nil {
			ts.Fatalf("%s: %v", line, err)
		}
		ts.Logf("-> %s\n<- %s", line, resultText(result))
		if result.IsError != refused {
			ts.Fatalf("%s: refused: %v", line, result.IsError)
		}
	}
	ts.Check(session.Close())
	if log.Len() > 0 {
		ts.Fatalf("the server logged errors:\n%s", log.String())
	}
}

func connect(ctx context.Context, server *exec.Cmd) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	return client.Connect(ctx, &mcp.CommandTransport{Command: server, TerminateDuration: 10 * time.Second}, nil)
}

// callTool makes a call that must succeed and returns the reply's JSON.
func callTool(t *testing.T, client *mcp.ClientSession, tool string, args any) json.RawMessage {
	t.Helper()
	result := testkit.Get(client.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})).Must(t)
	testkit.Need(t, !result.IsError, "%s was refused: %s", tool, resultText(result))
	return json.RawMessage(resultText(result))
}

// codeOf returns the code of a refused call, or "".
func codeOf(r *mcp.CallToolResult) string {
	e, _ := r.Meta[tool.ErrorMeta].(map[string]any)
	code, _ := e["code"].(string)
	return code
}

// startClient starts a server on the project and connects a client to it. Both end with the test, if not before.
func startClient(t *testing.T, root string, flags ...string) (*mcp.ClientSession, *exec.Cmd) {
	t.Helper()
	return startAs(t, nil, root, flags...)
}

// startAs is startClient with more environment.
func startAs(t *testing.T, env []string, root string, flags ...string) (*mcp.ClientSession, *exec.Cmd) {
	t.Helper()
	server := exec.CommandContext(t.Context(), "deepwork",
		append([]string{"serve", "--path", root, "--log-level", "error"}, flags...)...)
	server.Stderr, server.Env = t.Output(), append(os.Environ(), env...)
	client := testkit.Get(connect(t.Context(), server)).Must(t)
	t.Cleanup(func() { client.Close() })
	return client, server
}

// askedClient is startClient with a user who answers what the server asks.
func askedClient(
	t *testing.T, root string, answer func(message string) *mcp.ElicitResult, flags ...string,
) *mcp.ClientSession {
	t.Helper()
	server := exec.CommandContext(t.Context(), "deepwork",
		append([]string{"serve", "--path", root, "--log-level", "error"}, flags...)...)
	server.Stderr = t.Output()
	asked := mcp.ClientOptions{ElicitationHandler: func(
		_ context.Context, r *mcp.ElicitRequest,
	) (*mcp.ElicitResult, error) {
		return answer(r.Params.Message), nil
	}}
	client := testkit.Get(mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &asked).
		Connect(t.Context(), &mcp.CommandTransport{Command: server},
			&mcp.ClientSessionOptions{ProtocolVersion: "2025-06-18"})).Must(t)
	t.Cleanup(func() { client.Close() })
	return client
}

// beginSession starts the workflow w of a job and returns the id of its session.
func beginSession(t *testing.T, client *mcp.ClientSession, job, goal string) string {
	t.Helper()
	started := callTool(t, client, "start_workflow", workflow.StartArgs{Goal: goal, JobName: job, WorkflowName: "w"})
	return strings.Trim(string(lookup(started, "begin_step.session_id")), `"`)
}

// commandOn runs a command on a project and returns what it prints.
func commandOn(t *testing.T, root string, args ...string) (string, error) {
	out, err := exec.CommandContext(t.Context(), "deepwork", append(args, "--path", root)...).CombinedOutput()
	return string(out), err
}

// mustPrint runs a command on a project that must succeed, and returns what it prints.
func mustPrint(t *testing.T, root string, args ...string) string {
	t.Helper()
	out, err := commandOn(t, root, args...)
	testkit.Need(t, err == nil, "%v: %v\n%s", args, err, out)
	return out
}

// fails runs a command on a project that must fail and say all of wants.
func fails(t *testing.T, root string, args []string, wants ...string) {
	t.Helper()
	out, err := commandOn(t, root, args...)
	testkit.Fails(t, err, "", "%q", args)
	testkit.ContainsAll(t, strings.Join(strings.Fields(out), " "), wants, "%q", args)
}

// projectOf makes a project with a job called one, and other files: names and texts in turn.
func projectOf(t *testing.T, job string, more ...string) (root string) {
	t.Helper()
	root = testkit.Dir(t)
	files := map[string]string{".deepwork/jobs/one/job.yml": job, ".deepwork/jobs/one/a.md": "Do it.\n"}
	for pair := range slices.Chunk(more, 2) {
		files[pair[0]] = pair[1]
	}
	writeFiles(t, root, files)
	return root
}

// sessionFile is the file of a session in a project.
func sessionFile(root, id string) string {
	return filepath.Join(root, ".deepwork", "tmp", "session_"+id+".json")
}

// ownUser makes what the test starts that of a user with this config and no state yet.
func ownUser(t *testing.T, config string) {
	for _, e := range userEnv(t, config) {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
}

// userEnv is the environment of such a user.
func userEnv(t *testing.T, config string) []string {
	dir := t.TempDir()
	if config != "" {
		writeFiles(t, dir, map[string]string{"config/deepwork/config.yml": config})
	}
	configs := filepath.Join(dir, "config")
	return []string{state.Env + "=" + filepath.Join(dir, "state"), "XDG_CONFIG_HOME=" + configs, "APPDATA=" + configs}
}

// eventually waits until something holds, and says what is if it never does.
func eventually(t testing.TB, holds func() (bool, any)) {
	t.Helper()
	testkit.Eventually(t, func() string {
		ok, got := holds()
		if ok {
			return ""
		}
		return fmt.Sprintf("it is %+v", got)
	})
}

func readAll(path ...string) string {
	text, _ := os.ReadFile(filepath.Join(path...))
	return string(text)
}

func glob(path ...string) []string {
	all, _ := filepath.Glob(filepath.Join(path...))
	return all
}

var writeFiles = testkit.WriteAll

// inGit makes a folder a git repository whose first commit has these files, or all.
func inGit(t testing.TB, root string, files ...string) {
	t.Helper()
	testkit.Git(t, root, "init", "-q", "-b", "main")
	testkit.Git(t, root, append([]string{"add"}, append(files, ".")[:max(1, len(files))]...)...)
	testkit.Git(t, root, "commit", "-q", "-m", "first")
}

// jobText is a valid job.yml whose one workflow, w, has these steps.
func jobText(name string, steps ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nversion: \"1.0.0\"\nsummary: A job\n", name)
	b.WriteString("common_job_info_provided_to_all_steps_at_runtime: Info\n")
	fmt.Fprintf(&b, "workflows:\n  - {name: w, summary: W, steps: [%s]}\nsteps:\n", strings.Join(steps, ", "))
	for _, id := range steps {
		fmt.Fprintf(&b, "  - {id: %s, name: A, description: A, instructions_file: a.md, outputs: {}, reviews: []}\n",
			id)
	}
	return b.String()
}

// reviewedJob is jobText with an output of each step, out, and this list of reviews.
func reviewedJob(name, reviews string, steps ...string) string {
	return strings.ReplaceAll(jobText(name, steps...), "outputs: {}, reviews: []",
		"outputs: {out: {type: file, description: Out}}, reviews: "+reviews)
}

// isItGood is a list of one review of a step.
const isItGood = `[{run_each: step, quality_criteria: {good: "Is it good?"}}]`

var must = testkit.Must

// resultText returns the text of a result: of a reply, its structured content in the server's order of keys.
func resultText(r *mcp.CallToolResult) (text string) {
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			text += t.Text
		}
	}
	return text
}

// lookup returns the value at a path of keys in JSON, which is null if it is missing.
func lookup(raw json.RawMessage, path string) json.RawMessage {
	for key := range strings.SplitSeq(path, ".") {
		var object map[string]json.RawMessage
		_ = json.Unmarshal(raw, &object)
		if raw = object[key]; raw == nil {
			return json.RawMessage("null")
		}
	}
	return raw
}

// dialStep connects to the server of a run.
func dialStep(ctx context.Context, url, token string) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil)
	return client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint:             url,
		HTTPClient:           &http.Client{Transport: bearer(token)},
		DisableStandaloneSSE: true,
		MaxRetries:           -1,
	}, nil)
}

// bearer sends a token with each request, unless it is "".
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if b != "" {
		r.Header.Set("Authorization", "Bearer "+string(b))
	}
	return http.DefaultTransport.RoundTrip(r)
}
