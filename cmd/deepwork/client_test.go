package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/state"
	"deepwork/session/workflow"
	"deepwork/transport/tool"
)

// agent is the script command `agent ROOT CALLS [OPTION...]`: a real client starts
// a server on the project ROOT, with these options of serve, and makes the calls of the file CALLS one after the other,
// each a line `tool {arguments}`; a `!` in front says that it must be refused.
func agent(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) < 2, "agent ROOT CALLS [OPTION...]")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := exec.CommandContext(ctx, "deepwork", append([]string{"serve", "--path", ts.MkAbs(args[0]), "--log-level", "error"}, args[2:]...)...)
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
	server := exec.CommandContext(t.Context(), "deepwork", append([]string{"serve", "--path", root, "--log-level", "error"}, flags...)...)
	server.Stderr, server.Env = t.Output(), append(os.Environ(), env...)
	client := testkit.Get(connect(t.Context(), server)).Must(t)
	t.Cleanup(func() { client.Close() })
	return client, server
}

// askedClient is startClient with a user who answers what the server asks.
func askedClient(t *testing.T, root string, answer func(message string) *mcp.ElicitResult, flags ...string) *mcp.ClientSession {
	t.Helper()
	server := exec.CommandContext(t.Context(), "deepwork", append([]string{"serve", "--path", root, "--log-level", "error"}, flags...)...)
	server.Stderr = t.Output()
	asked := mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return answer(r.Params.Message), nil
	}}
	client := testkit.Get(mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &asked).
		Connect(t.Context(), &mcp.CommandTransport{Command: server}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-06-18"})).Must(t)
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
		ok, is := holds()
		if ok {
			return ""
		}
		return fmt.Sprintf("it is %+v", is)
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
		fmt.Fprintf(&b, "  - {id: %s, name: A, description: A, instructions_file: a.md, outputs: {}, reviews: []}\n", id)
	}
	return b.String()
}

// reviewedJob is jobText with an output of each step, out, and this list of reviews.
func reviewedJob(name, reviews string, steps ...string) string {
	return strings.ReplaceAll(jobText(name, steps...), "outputs: {}, reviews: []", "outputs: {out: {type: file, description: Out}}, reviews: "+reviews)
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
	return client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer(token)}, DisableStandaloneSSE: true, MaxRetries: -1}, nil)
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
