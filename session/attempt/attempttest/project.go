// Package attempttest has what tests of attempts share: a project with a git repository, whose config has
// executors that run the test binary as the agent, and its stores in each kind of database.
package attempttest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/state"
	"deepwork/session/state/statetest"
	"deepwork/session/store"
	"deepwork/session/store/backend"
	files "deepwork/session/store/local"
	"deepwork/session/store/postgres"
	"deepwork/session/store/postgres/pgtest"
)

// Main runs the tests with files, and those that onPostgres names also with PostgreSQL. By its first
// argument, the test binary is also the shim and the agent that attempts run.
func Main(m *testing.M, onPostgres string) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "agent":
			os.Exit(Agent(os.Args[2:]))
		}
	}

	// With -race a program, and each of its children, sleeps for a second when it ends.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	for _, name := range config.ConversationEnv { // agents do not get them
		os.Setenv(name, "1")
	}

	// Ignore the git and job settings of the person who runs the tests.
	os.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	os.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	os.Setenv(config.JobsFoldersEnv, "")

	os.Exit(pgtest.Twice(onPostgres, func() int {
		dir, err := os.MkdirTemp("", "repository")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		template = filepath.Join(dir, "shop")
		return statetest.Main(m, pgtest.Leaks)
	}))
}

// template is the repository that Repo copies, once made.
var (
	template     string
	makeTemplate sync.Once
)

// A Project is a project folder with a git repository, and its config.
type Project struct {
	T      testing.TB
	Root   string
	Config atomic.Pointer[config.Config]
}

// New returns the project of a test, whose agents end with it.
func New(t testing.TB) *Project {
	t.Helper()
	root := filepath.Join(testkit.Dir(t), "shop")
	p := &Project{T: t, Root: root}
	p.Repo(root)
	p.Configure(func(*config.Config) {})
	t.Cleanup(p.EndAgents)
	return p
}

// Configure replaces the config by the tests' usual one with a change.
func (p *Project) Configure(change func(*config.Config)) {
	c := config.Default()
	agent := []string{os.Args[0], "agent"}
	c.Executors = []config.Executor{{
		Name:    "TEST",
		Command: append(agent, "first"),
		Resume:  append(agent, "resumed"),
		Env:     map[string]string{"MODE": "quick"},
		Variants: []config.Variant{
			{Name: "OTHER", Command: append(agent, "other"), Env: map[string]string{"MODE": "slow"}},
			{Name: "SAME", Env: map[string]string{"MODE": "same"}},
		},
	}, {
		Name: "ARGUMENT", Command: append(agent, "first"), Prompt: config.PromptArgument,
	}, {
		Name: "MISSING", Command: []string{"./no-such-agent"},
	}}

	change(c)
	p.Config.Store(c)
}

// Git runs git in a folder and returns what it prints.
func (p *Project) Git(dir string, args ...string) string {
	p.T.Helper()
	return testkit.Git(p.T, dir, args...)
}

// Repo makes a git repository with one commit on main.
func (p *Project) Repo(dir string) {
	p.T.Helper()
	makeTemplate.Do(func() {
		testkit.Write(p.T, filepath.Join(template, "README"), "hello\n")
		p.Git(template, "init", "-q", "-b", "main")
		p.Git(template, "add", ".")
		p.Git(template, "commit", "-q", "-m", "first")
	})
	testkit.Must(p.T, os.CopyFS(dir, os.DirFS(template)))
	testkit.Age(filepath.Join(dir, ".git", "config"))
}

// EndAgents ends all agents that a test has left running.
func (p *Project) EndAgents() {
	runs, _ := filepath.Glob(filepath.Join(state.Of(p.Root).Logs(), "attempts", "*", "runs", "*"))
	r := runner.Runner{Shim: []string{os.Args[0], runner.ShimCommand}}
	for _, dir := range runs {
		bounded, cancel := context.WithTimeout(context.Background(), time.Minute)
		if proc, err := r.Find(bounded, dir); err == nil {
			if _, err := proc.Stop(bounded, 0); err != nil {
				p.T.Errorf("an agent goes on: %v", err)
			}
		}
		cancel()
	}
}

// Stores returns the stores of one of the project's servers, nil if the tests run with files.
func (p *Project) Stores() *store.Stores {
	if !pgtest.OnPostgres() {
		return nil
	}
	at := Here
	at.Root = p.Root
	return StoresIn(p.Root, at)
}

// StoresWith returns the stores of a server, with its database wrapped by between.
func (p *Project) StoresWith(between func(store.Database) store.Database) *store.Stores {
	stores := p.Stores()
	if stores == nil {
		stores = files.Stores(state.Of(p.Root), false, nil)
	}
	p.T.Cleanup(func() { testkit.Must(p.T, stores.Close(context.Background())) })
	copied := *stores
	copied.Database = between(stores.Database)
	return &copied
}

// SchemaURL returns the URL of the schema with this name.
func SchemaURL(name string) string {
	server, err := pgtest.Shared()
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256([]byte(name))
	return server.At("test_" + hex.EncodeToString(sum[:8]))
}

// OpenIn opens the schema with this name for a process that counts as the only one at its place.
func OpenIn(name string, at task.Place) *postgres.Store {
	s, err := postgres.Open(postgres.Options{URL: SchemaURL(name), Project: "shop",
		Repository: postgres.Repository{Remote: "https://example.com/shop.git"}, Machine: at.MachineID, Root: at.Root})
	if err != nil {
		panic(err)
	}
	return s
}

// StoresIn returns the stores of a process at a place, in the schema with this name.
func StoresIn(name string, at task.Place) *store.Stores {
	return backend.Of(OpenIn(name, at), session.NewMember(state.Of(at.Root), nil), &at, "shop")
}

// Here is the machine of tests that need only one.
var Here = task.Place{MachineID: "0a1b2c3d", MachineName: "here"}

// Refused checks that an error is one for agents, has this code, and mentions these values.
func Refused(t testing.TB, err error, kind session.Kind, code string, mentions ...string) {
	t.Helper()
	e, ok := errors.AsType[*session.Error](err)
	if !ok {
		t.Errorf("not refused with %s, but: %v", code, err)
		return
	}
	if e.Kind != kind || e.Code != code {
		t.Errorf("refused as %s %s; expected %s %s: %v", e.Kind, e.Code, kind, code, err)
	}

	for _, m := range mentions {
		if !strings.Contains(e.Error(), m) {
			t.Errorf("%s does not mention %q: %s", code, m, err)
		}
	}
}

// Wrong is like Refused for an error about an argument, whose name it must mention, and whose value if there
// is one.
func Wrong(t testing.TB, err error, code string, mentions ...string) {
	t.Helper()
	Refused(t, err, session.ToolError, code, mentions...)
	e, ok := errors.AsType[*session.Error](err)
	if !ok {
		return
	}
	if argument, _ := e.Details["argument"].(string); argument == "" {
		t.Errorf("%s names no argument: %v", code, e.Details)
	}
	if _, given := e.Details["value"]; !given && !strings.HasPrefix(code, "missing_") {
		t.Errorf("%s names no value: %v", code, e.Details)
	}
}

// Times checks that texts are present times in the format of replies.
func Times(t testing.TB, times ...string) {
	t.Helper()
	for _, s := range times {
		at, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Errorf("got %q, want a time in RFC 3339", s)
			continue
		}
		if !strings.HasSuffix(s, "Z") {
			t.Errorf("got %q, want a time in UTC, which ends with Z", s)
		}
		if time.Since(at) > time.Hour {
			t.Errorf("got %q, want a time within the last hour", s)
		}
	}
}

// JSON returns a reply as failing tests print it.
func JSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}
