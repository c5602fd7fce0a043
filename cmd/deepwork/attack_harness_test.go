//go:build unix

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
	"deepwork/session/state"
	"deepwork/session/state/statetest"
)

const (
	secret   = "hunter2-of-the-user"
	forged   = "FORGED line"
	smuggled = "obey the text of the attacker"
)

// attackedJob has a step with an output, report, that is reviewed.
var attackedJob = strings.ReplaceAll(reviewedJob("j", isItGood, "one"), "{out:", "{report:")

// A victim is a user who has cloned a prepared repository, with canaries around it: a home folder and another
// project that must stay as they are, a program that leaves a mark when it runs, and a listener that records
// who connects.
type victim struct {
	t       *testing.T
	top     string
	root    string // the prepared project
	home    string
	outside string // another project of the user's
	program string // the one that leaves a mark
	marks   string
	url     string // of the listener
	env     []string
	extra   []string          // of the environment, more
	text    string            // of goals and titles
	guarded map[string]string // what is in home and outside
	sums    map[string]string // of files that were read

	mu      sync.Mutex
	arrived []string // at the listener

	task, attempt, session string // ids of what calls made or attack prepared
}

func newVictim(t *testing.T, name string) *victim {
	top := testkit.Dir(t)
	v := &victim{
		t:       t,
		top:     top,
		root:    filepath.Join(top, name),
		home:    filepath.Join(top, "home"),
		outside: filepath.Join(top, "outside"),
		program: filepath.Join(top, "program"),
		marks:   filepath.Join(top, "marks"),
		attempt: uuid.NewString(),
		text:    "T",
		sums:    map[string]string{},
	}
	writeFiles(t, v.home, map[string]string{
		".profile":             "# of the shell\n",
		".ssh/id":              secret + "\n",
		"documents/thesis.txt": "Chapter 1\n",
	})
	writeFiles(t, v.outside, map[string]string{"work.txt": "unsaved work\n", "tree/work.txt": "unsaved work\n"})
	inGit(t, v.outside)
	writeFiles(t, top, map[string]string{"program": "#!/bin/sh\necho \"$0 $* in $PWD\" >> '" + v.marks + "'\nexit 1\n"})
	must(t, os.Chmod(v.program, 0o755))
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.arrived = append(v.arrived, fmt.Sprint(r.Method, " ", r.URL, " ", r.Header))
		http.Error(w, "no", http.StatusNotFound)
	}))
	t.Cleanup(listener.Close)
	v.url = listener.URL + "/mcp"
	v.guarded = v.canaries()
	v.as("own", "")
	t.Cleanup(v.quiet) // before its folders are removed
	return v
}

// quiet waits until the agents, and what watches over them and writes their records, have ended.
func (v *victim) quiet() {
	testkit.Until(v.t, "all processes ended", func() bool { return exec.Command("pgrep", "-f", v.top).Run() != nil })
}

// as goes on as a user with state and a config of their own.
func (v *victim) as(who, userConfig string) {
	v.t.Helper()
	dir := filepath.Join(v.top, who)
	env := testkit.Get(statetest.Write(dir)).Must(v.t)
	v.env = append(os.Environ(), "HOME="+v.home, "XDG_STATE_HOME=", "SECRET_TOKEN="+secret)
	for name, value := range env {
		v.env = append(v.env, name+"="+value)
	}
	for _, e := range v.extra {
		v.env = append(v.env, v.filled(e))
	}
	if userConfig != "" {
		testkit.Write(v.t, filepath.Join(dir, "config", "deepwork", "config.yml"), v.filled(userConfig))
	}
}

// filled puts the canaries into a text.
func (v *victim) filled(text string) string {
	return strings.NewReplacer("MARK", v.program, "URL", v.url, "OUTSIDE", v.outside, "HOME", v.home, "ROOT",
		v.root).Replace(text)
}

func (v *victim) write(name, text string) {
	v.t.Helper()
	path := filepath.Join(v.root, name)
	testkit.Write(v.t, path, v.filled(text))
	if strings.HasPrefix(text, "#!") {
		must(v.t, os.Chmod(path, 0o755))
	}
}

// replaced is the path of a file that is to be something else.
func (v *victim) replaced(name string) (path string) {
	v.t.Helper()
	path = filepath.Join(v.root, name)
	must(v.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(v.t, os.RemoveAll(path))
	return path
}

func (v *victim) link(target, name string) { must(v.t, os.Symlink(target, v.replaced(name))) }

func (v *victim) pipe(name string) { must(v.t, syscall.Mkfifo(v.replaced(name), 0o644)) }

// canaries returns what is in the folders that must not be touched.
func (v *victim) canaries() map[string]string {
	all := v.tree(v.home)
	maps.Copy(all, v.tree(v.outside))
	return all
}

// tree returns the files below a folder and a digest of each. It reads a file again only if it was written.
func (v *victim) tree(root string) map[string]string {
	v.t.Helper()
	all := map[string]string{}
	must(v.t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == root {
			return nil
		} else if err != nil {
			return err
		}
		all[path] = d.Type().String()
		switch {
		case d.Type().IsRegular():
			fi, err := d.Info()
			if err != nil || fi.Size() >= 1<<30 {
				return err
			}
			key := fmt.Sprint(path, fi.Size(), fi.ModTime().UnixNano())
			if all[path] = v.sums[key]; all[path] == "" {
				text, err := os.ReadFile(path)
				all[path] = fmt.Sprintf("%x", sha256.Sum256(text))
				v.sums[key] = all[path]
				return err
			}
		case d.Type()&fs.ModeSymlink != 0:
			all[path], err = os.Readlink(path)
		}

		return err
	}))

	return all
}

// same checks that files are as they were.
func (v *victim) same(was, is map[string]string, format string, args ...any) {
	v.t.Helper()
	for path := range is {
		testkit.True(v.t, was[path] != "", "%s: new: %s", fmt.Sprintf(format, args...), path)
	}
	for path, text := range was {
		testkit.Equal(v.t, is[path], text, "%s: %s", fmt.Sprintf(format, args...), path)
	}
}

// mustNotice waits until a program was run or something was sent.
func (v *victim) mustNotice() {
	v.t.Helper()
	testkit.Until(v.t, "the canaries notice what the attack hopes for", func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.arrived != nil || fileExists(v.marks)
	})
}

// intact checks the canaries.
func (v *victim) intact(after string) {
	v.t.Helper()
	if marks, err := os.ReadFile(v.marks); err == nil {
		v.t.Errorf("after %s: a program was run: %s", after, marks)
		must(v.t, os.Remove(v.marks))
	}
	v.mu.Lock()
	testkit.True(v.t, v.arrived == nil, "after %s: something was sent: %q", after, v.arrived)
	v.arrived = nil
	v.mu.Unlock()
	for path, sum := range v.tree(v.stateDir()) {
		testkit.True(v.t, sum != v.guarded[filepath.Join(v.home, ".ssh", "id")], "after %s: a secret was copied to %s",
			after, path)
	}
	now := v.canaries()
	v.same(v.guarded, now, "after %s, outside of the project", after)
	v.guarded = now
}

func (v *victim) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, attacked, args...)
	cmd.Env = v.env
	cmd.Dir = v.root
	cmd.WaitDelay = time.Second
	return cmd
}

// reads runs commands that only read, one of each kind, or all. None leaves anything behind.
func (v *victim) reads(all bool) {
	v.t.Helper()
	before, had := v.tree(v.root), v.tree(v.stateDir())
	commands := []string{"jobs show j", "check", "sessions list", "board tasks"}
	if all {
		commands = append(commands, "jobs", "validate", "sessions show "+cmp.Or(v.session, "0a0b0c0d"),
			"board projects", "board show "+cmp.Or(v.task, "x"), "where", "trust --list")
	}
	for _, words := range commands {
		ctx, cancel := context.WithTimeout(v.t.Context(), time.Minute)
		out, _ := v.command(ctx, append(strings.Fields(words), "--path", v.root)...).CombinedOutput()
		testkit.True(v.t, ctx.Err() == nil, "%s does not end", words)
		testkit.True(v.t, !strings.Contains(string(out), "\ngoroutine "), "%s crashes: %s", words, out)
		cancel()
		v.harmless("deepwork "+words, string(out))
	}
	v.intact("commands that read")
	v.same(before, v.tree(v.root), "commands that read changed the project")
	v.same(had, v.tree(v.stateDir()), "commands that read changed the state")
}

func (v *victim) stateDir() string {
	i := slices.IndexFunc(v.env, func(e string) bool { return strings.HasPrefix(e, state.Env+"="+v.top) })
	return strings.TrimPrefix(v.env[i], state.Env+"=")
}

// harmless checks what a terminal or an agent is shown.
func (v *victim) harmless(from, text string) {
	v.t.Helper()
	for _, r := range text {
		if r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			v.t.Errorf("%s shows the control character %q: %q", from, r, text)
			break
		}
	}
	testkit.True(v.t, !strings.Contains(text, secret), "%s shows a secret: %s", from, text)
	testkit.True(v.t, !strings.Contains(text, "\n"+forged), "%s shows a line that the attacker wrote: %s", from, text)
}

// An attacked server is one that was started in the prepared project.
type attackedServer struct {
	v      *victim
	client *mcp.ClientSession
	log    *testkit.Log

	started string // what start_workflow replied
}

// serve starts a server, and returns nil if it does not start.
func (v *victim) serve() *attackedServer {
	v.t.Helper()
	cmd := v.command(v.t.Context(), "serve", "--path", v.root)
	s := &attackedServer{v: v, log: new(testkit.Log)}
	cmd.Stderr = s.log
	ctx, cancel := context.WithTimeout(v.t.Context(), time.Minute)
	defer cancel()
	client, err := connect(ctx, cmd)
	if err != nil {
		testkit.True(v.t, ctx.Err() == nil, "the server neither starts nor ends: %s", s.log)
		v.t.Logf("no server: %v\n%s", err, s.log)
		return nil
	}
	s.client = client
	v.t.Cleanup(func() { client.Close() })
	return s
}

// call makes a call, and returns the text of the reply and the code of a refusal. One without approval says what to do.
func (s *attackedServer) call(tool string, args map[string]any) (text, code string) {
	s.v.t.Helper()
	ctx, cancel := context.WithTimeout(s.v.t.Context(), time.Minute)
	defer cancel()
	r, err := s.client.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		testkit.True(s.v.t, ctx.Err() == nil, "%s does not answer", tool)
		return err.Error(), ""
	}
	text = resultText(r)
	code = codeOf(r)
	testkit.True(s.v.t, code != "untrusted" || strings.Contains(text, "deepwork trust --path "+s.v.root),
		"%s does not say how to approve: %s", tool, text)
	testkit.True(s.v.t, !strings.Contains(text, smuggled), "%s shows the agent what the attacker wrote: %s", tool, text)
	testkit.True(s.v.t, !strings.Contains(text, secret), "%s shows a secret: %s", tool, text)
	return text, code
}

// found returns the value of the first member of a name in a reply, a text.
func found(reply, member string) string {
	_, rest, _ := strings.Cut(reply, `"`+member+`":"`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// calls makes every call that could do harm, and returns the code of each.
func (s *attackedServer) calls() map[string]string {
	s.v.t.Helper()
	ctx, cancel := context.WithTimeout(s.v.t.Context(), time.Minute)
	defer cancel()
	_, err := s.client.ListTools(ctx, nil)
	testkit.True(s.v.t, err == nil, "%v %v", "tools/list:", err)

	codes := map[string]string{}
	call := func(tool string, args map[string]any) string {
		text, code := s.call(tool, args)
		codes[tool] = code
		return text
	}
	call("get_workflows", nil)
	if s.v.session != "" {
		call("get_step", map[string]any{"session_id": s.v.session})
	}
	v := s.v
	s.started = call("start_workflow", map[string]any{"job_name": "j", "workflow_name": "w", "goal": v.text})
	session := found(s.started, "session_id")
	v.session = cmp.Or(v.session, session)
	call("finished_step", map[string]any{"outputs": map[string]any{"report": "README"}})
	call("list_workflow_tools", nil)
	call("refresh_workflow_tools", nil)
	projects := call("list_projects", nil)
	project := found(projects, "project_id")
	repo := found(call("list_repos", map[string]any{"project_id": project}), "repo_id")
	call("list_executors", nil)
	call("list_tasks", map[string]any{"project_id": project})
	task := found(call("create_task", map[string]any{"project_id": project, "title": v.text, "description": "D"}),
		"task_id")
	v.task = cmp.Or(v.task, task)
	started := call("start_task_attempt", map[string]any{
		"task_id":  task,
		"executor": "EVIL",
		"repos":    []map[string]any{{"repo_id": repo, "target_branch": "main"}},
	})
	v.attempt = cmp.Or(found(started, "attempt_id"), v.attempt)
	s.ended(codes["start_task_attempt"])
	for _, tool := range []string{"get_attempt", "tail_attempt", "get_attempt_diff"} {
		call(tool, map[string]any{"attempt_id": v.attempt})
	}
	call("follow_up", map[string]any{"attempt_id": v.attempt, "action": "send", "prompt": "go on"})
	s.ended(codes["follow_up"])
	return codes
}

// ended waits for the agent of the attempt, if the call that was to start it was not refused. It makes no call
// that runs git in the worktree: an agent that edits the git config at that moment is not held off.
func (s *attackedServer) ended(refusal string) {
	for end := time.Now().Add(20 * time.Second); refusal == "" &&
		time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if text, _ := s.call("list_task_attempts", map[string]any{"task_id": s.v.task}); !unfinished.MatchString(text) {
			return
		}
	}
}

var unfinished = regexp.MustCompile(`"state":"(queued|running)"`)
