package longwork

import (
	"bufio"
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver of the project's database

	"deepwork/actor/wait"
	"deepwork/session/state/statetest"
)

//go:embed client.mjs
var clientScript []byte

// The packages of npm that the client needs, in versions that work together.
const (
	clientPackage = "@modelcontextprotocol/client"
	clientVersion = "2.4.0"
	nodeVersion   = "24.21.0"
	claudePackage = "@anthropic-ai/claude-code" // the newest
)

const (
	startWithin = time.Minute     // a process may take so long until it can be used
	endWithin   = 6 * time.Minute // a call with its work, beyond the time that the work takes
)

// A trial is one case: a project with its server, the source of a workflow and the client.
type trial struct {
	Options
	kind    string
	dir     string
	token   string          // names the work
	takes   time.Duration   // the work
	after   string          // what the client must see first: calling or answered
	moments []time.Duration // of kills, from then on
	killed  []time.Duration // the kills that have happened

	root, address string // the project; of the server over HTTP
	env           []string
	server        *exec.Cmd // over HTTP
	source        *exec.Cmd
	sights        []sight
}

// A sight is a line that the client prints.
type sight struct {
	At         string          `json:"at"`
	Text       string          `json:"text"`
	PID        int             `json:"pid"`
	Status     string          `json:"status"`
	Failed     bool            `json:"failed"`
	Same       bool            `json:"same"`
	Structured json.RawMessage `json:"structured"`
}

// install installs the client, if there are no packages yet, and returns its name and version.
func (o *Options) install(ctx context.Context) (string, error) {
	name, version := clientPackage, clientVersion
	if o.Client == "claude" {
		name, version = claudePackage, "latest"
	}
	if o.Packages == "" {
		o.Packages = filepath.Join(o.Dir, "npm")
		packages := []string{name + "@" + version}
		arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
		if runtime.GOOS == "linux" && arch != "" {
			packages = append(packages, "node-linux-"+arch+"@"+nodeVersion) // distributions are years behind
		}
		cmd := exec.CommandContext(ctx, "npm",
			append([]string{"install", "--silent", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund",
				"--prefix", o.Packages}, packages...)...)
		if said, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("installing the client: %w\n%s", err, said)
		}
	}

	var installed struct{ Version string }
	text, err := os.ReadFile(filepath.Join(o.Packages, "node_modules", filepath.FromSlash(name), "package.json"))
	if err = errors.Join(err, os.WriteFile(filepath.Join(o.Packages, "client.mjs"), clientScript, 0o644)); err == nil {
		err = json.Unmarshal(text, &installed)
	}
	return name + " " + installed.Version, err
}

// node is the interpreter among the packages, or else that of PATH.
func (t *trial) node() string {
	if all, _ := filepath.Glob(filepath.Join(t.Packages, "node_modules", "node-*", "bin", "node")); len(all) > 0 {
		return all[0]
	}
	return "node"
}

// prove makes the case and returns what is wrong.
func (t *trial) prove(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, t.takes+endWithin)
	defer cancel()
	if err := t.lay(ctx); err != nil {
		return err
	}
	defer func() {
		for _, c := range []*exec.Cmd{t.server, t.source} {
			err = errors.Join(err, end(c))
		}
	}()

	if t.Over == "http" {
		if err := t.serve(ctx); err != nil {
			return err
		}
	}

	if err := t.lead(ctx); err != nil {
		return fmt.Errorf("%w\nThe client saw %s", err, t.summary())
	}
	return t.judge(ctx)
}

const jobText = `name: long
version: "1.0.0"
summary: Long work
common_job_info_provided_to_all_steps_at_runtime: Info
workflows: [{name: review, summary: A, steps: [review]}, {name: question, summary: A, steps: [question]}, {name: ` +
	`run, summary: A, steps: [run]}]
steps:
  - {id: review, name: A, description: A, instructions_file: a.md, outputs: {report: {type: file, description: ` +
	`R}}, reviews: [{run_each: report, quality_criteria: {good: "Is it good?"}}]}
  - {id: question, name: A, description: A, instructions_file: a.md, outputs: {report: {type: file, description: ` +
	`R}}, reviews: [{run_each: report, by: human, quality_criteria: {good: "Is it good?"}}]}
  - {id: run, name: A, description: A, instructions_file: a.md, outputs: {report: {type: file, description: R}}, ` +
	`reviews: []}
`

// lay makes the project, and starts the source.
func (t *trial) lay(ctx context.Context) error {
	t.root = filepath.Join(t.dir, "project")
	own, err := statetest.Write(filepath.Join(t.dir, "user"), t.dir)
	if err != nil {
		return err
	}

	t.env = append(os.Environ(), "HOME="+t.dir, "DEEPWORK_ADDITIONAL_JOBS_FOLDERS=")
	for name, value := range own {
		t.env = append(t.env, name+"="+value)
	}

	config := fmt.Sprintf("quality_gate: {agent_review_command: [%q, reviewer, %q], default_timeout: %d}\nrun: "+
		"{retries: 5}\nexecutors:\n  WORK: {command: [%q, step, %q, %v]}\n", t.Self, t.journal(),
		int(2*t.takes.Seconds())+60, t.Self, t.dir, t.takes)
	if t.kind == "remote" {
		url := ""
		if t.source, url, err = t.start(ctx, t.Self, "source", t.journal(), "127.0.0.1:0"); err != nil {
			return err
		}
		config += fmt.Sprintf("workflow_tools:\n  status_interval: 1s\n  sources:\n    - {name: far, url: %q}\n", url)
	}

	jobs := filepath.Join(t.root, ".deepwork", "jobs", "long")
	for path, text := range map[string]string{
		filepath.Join(t.root, "report.md"): fmt.Sprintf("proof-review %s pass %d\n", t.token,
			t.takes.Milliseconds()),
		filepath.Join(t.root, ".deepwork", "config.yml"): config,
		filepath.Join(jobs, "job.yml"):                   jobText,
		filepath.Join(jobs, "a.md"):                      "Do it.\n",
	} {
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
		if err != nil {
			return err
		}
	}

	for _, args := range []string{"init -q -b main", "add .",
		"-c user.name=Proof -c user.email=proof@example.com commit -q -m first"} {
		cmd := exec.CommandContext(ctx, "git", strings.Fields(args)...)
		cmd.Dir, cmd.Env = t.root, t.env
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w\n%s", args, err, said)
		}
	}

	for { // not a port that the system may give to others: servers listen there again and again
		t.address = fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))
		if listener, err := net.Listen("tcp", t.address); err == nil {
			return listener.Close()
		}
	}
}

// journal is the file in which the reviewer, the source and the agent note their work. The subcommand step has the same
// name for it.
func (t *trial) journal() string { return filepath.Join(t.dir, "agents") }

// start starts a process that logs the URL at which it listens, and waits for that.
func (t *trial) start(ctx context.Context, argv ...string) (cmd *exec.Cmd, url string, err error) {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	log, err := os.CreateTemp(t.dir, time.Now().Format("150405.000-*.log"))
	if err != nil {
		return nil, "", err
	}
	defer log.Close()

	cmd = exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stderr = t.env, log
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	for {
		text, err := os.ReadFile(log.Name())
		if err == nil {
			_, after, listens := strings.Cut(string(text), "msg=listening")
			if listens && strings.Contains(after, "\n") {
				_, after, _ = strings.Cut(after, "url=")
				return cmd, strings.Fields(after)[0], nil
			}
			err = wait.For(ctx, 20*time.Millisecond)
		}
		if err != nil {
			return nil, "", errors.Join(fmt.Errorf("%v does not listen: %w\n%s", argv, err, text), end(cmd))
		}
	}
}

// command is the server.
func (t *trial) command() []string {
	_, port, _ := net.SplitHostPort(t.address)
	command := []string{t.Program, "serve", "--path", t.root}
	if t.Over == "http" {
		command = append(command, "--transport", "http", "--port", port)
	}
	return command
}

// serve starts the server over HTTP, always at the same address.
func (t *trial) serve(ctx context.Context) (err error) {
	t.server, _, err = t.start(ctx, t.command()...)
	return err
}

// end kills a process like a crash, and waits for its end.
func end(c *exec.Cmd) error {
	if c == nil || c.ProcessState != nil {
		return nil
	}

	err := c.Process.Kill()
	_ = c.Wait() // it was killed
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// A call is one of a tool.
type call struct {
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
}

// calls returns the call of the case, and the arguments of start_workflow that come first; nil means none.
func (t *trial) calls() (start map[string]any, long call) {
	switch t.kind {
	case "run":
		return nil, call{"run_workflow", map[string]any{
			"job_name":      "long",
			"workflow_name": "run",
			"goal":          t.token,
			"executor":      "WORK",
			"wait":          true,
			"request_id":    t.token,
		}}
	case "remote":
		return nil, call{"call_workflow_tool", map[string]any{
			"name":      "sim_slow",
			"arguments": map[string]any{"token": t.token, "lasts": t.takes.Milliseconds()},
		}}
	}
	return map[string]any{"job_name": "long", "workflow_name": t.kind, "goal": t.token, "request_id": t.token},
		call{"finished_step", map[string]any{"step_id": t.kind, "outputs": map[string]any{"report": "report.md"}}}
}

// task is what the client of the SDK is told.
func (t *trial) task() (string, error) {
	start, long := t.calls()
	task := map[string]any{
		"kind":  t.kind,
		"era":   t.Era,
		"takes": t.takes.Milliseconds(),
		"token": t.token,
		"start": start,
		"call":  long,
	}
	if t.Over == "http" {
		task["url"] = t.url()
	} else {
		task["command"] = t.command()
	}

	text, err := json.Marshal(task)
	return string(text), err
}

// serverPID is the file in which a server that Claude Code starts over stdio notes its process.
func (t *trial) serverPID() string { return filepath.Join(t.dir, "server.pid") }

func (t *trial) url() string { return "http://" + t.address + "/mcp" }

// A client makes the call.
type client struct {
	seen <-chan sight // closed when it has ended
	// called when it has the result and the server was killed again: it looks for the result once more, and
	// ends
	again func() error
	wait  func() error // for its end
	kill  func() error // ends it at once
}

// lead lets the client make its call while the server is killed, and once more when the call has its result.
func (t *trial) lead(ctx context.Context) error {
	start := t.typescript
	if t.Client == "claude" {
		start = t.claude
	}
	c, err := start(ctx)
	if err != nil {
		return err
	}
	defer c.kill()

	var began time.Time
	var kill <-chan time.Time
	pid := 0
	next := func() {
		kill = nil
		if len(t.moments) > 0 {
			kill = time.After(time.Until(began.Add(t.moments[0])))
			t.moments = t.moments[1:]
		}
	}
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("there is no result: %w", ctx.Err())
		case <-kill:
			t.killed = append(t.killed, time.Since(began).Round(time.Millisecond))
			if err := t.kill(ctx, pid); err != nil {
				return err
			}
			next()
		case s, ok := <-c.seen:
			if !ok {
				return c.wait()
			}

			t.sights = append(t.sights, s)
			if s.At == t.after && began.IsZero() {
				began = time.Now()
				next()
			}

			switch s.At {
			case "server":
				pid = s.PID
			case "done":
				kill = nil
				if err := errors.Join(t.kill(ctx, pid), c.again()); err != nil {
					return err
				}
			}
		}
	}
}

// typescript starts the client that is written with the official SDK.
func (t *trial) typescript(ctx context.Context) (*client, error) {
	task, err := t.task()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, t.node(), filepath.Join(t.Packages, "client.mjs"), task)
	cmd.Env, cmd.WaitDelay = t.env, time.Second
	log, err := os.Create(filepath.Join(t.dir, "client.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}

	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}

	seen := make(chan sight)
	go watch(ctx, out, seen)
	return &client{seen,
		func() error {
			_, err := io.WriteString(in, "again\n")
			return err
		},
		func() error {
			if err := cmd.Wait(); err != nil {
				said, _ := os.ReadFile(log.Name())
				return fmt.Errorf("the client: %w\n%.3000s", err, said)
			}
			return nil
		},
		func() error { return end(cmd) },
	}, nil
}

// watch sends what the client prints; it closes the channel at the end.
func watch(ctx context.Context, out io.Reader, seen chan<- sight) {
	defer close(seen)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var s sight
		if json.Unmarshal(lines.Bytes(), &s) != nil {
			s = sight{At: "odd", Text: lines.Text()}
		}

		select {
		case seen <- s:
		case <-ctx.Done():
			return
		}
	}
}

// kill kills the server, and starts it again; over stdio the client restarts it.
func (t *trial) kill(ctx context.Context, pid int) error {
	if t.Over == "stdio" {
		if text, err := os.ReadFile(t.serverPID()); err == nil {
			pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		p, err := os.FindProcess(pid)
		if err == nil {
			err = p.Kill()
		}

		if errors.Is(err, os.ErrProcessDone) {
			return nil
		}

		return err
	}

	return errors.Join(end(t.server), t.serve(ctx))
}

// found returns what the client last saw under a name, and how often it saw it.
func (t *trial) found(at string) (last sight, times int) {
	for _, s := range t.sights {
		if s.At == at {
			last = s
			times++
		}
	}
	return last, times
}

// summary says what the client saw.
func (t *trial) summary() string {
	var words []string
	for _, s := range t.sights {
		switch s.At {
		case "lost", "odd":
			words = append(words, fmt.Sprintf("%s (%.80s)", s.At, strings.ReplaceAll(s.Text, "\n", " ")))
		case "done":
			words = append(words, s.At+" "+s.Status)
			if strings.Contains(string(s.Structured), `"state":"unknown"`) {
				words = append(words, "what the source did is unknown")
			}
		case "server":
		default:
			words = append(words, s.At)
		}
	}
	return strings.Join(words, ", ")
}

// query reads numbers and texts of one row of the database.
func (t *trial) query(ctx context.Context, query string, into ...any) error {
	all, err := filepath.Glob(filepath.Join(t.dir, "user", "state", "projects", "*", "board.db"))
	if err != nil || len(all) != 1 {
		return fmt.Errorf("the project has %d databases: %w", len(all), err)
	}
	db, err := sql.Open("sqlite", "file:"+all[0]+"?mode=ro&_pragma=busy_timeout(10000)")
	if err != nil {
		return err
	}
	defer db.Close()
	return db.QueryRowContext(ctx, query).Scan(into...)
}
