package transport

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/run"
)

// An agent of a run may work on its step for longer than other clients may be silent: its connection ends when it does.
func TestAgentsOfRunsMayBeSilent(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, textJob("", "text"))
	write(t, root, map[string]string{".deepwork/config.yml": "http: {idle_timeout: 20ms}\n"})
	w := &workplace{grants: map[string]*grant{}, dir: filepath.Join(t.TempDir(), "mcp"), root: root, attempt: &task.Attempt{}, logger: slog.New(slog.DiscardHandler), who: session.LocalCaller("")}
	defer func() { testkit.Works(t, w.opened.close(context.Background())) }()
	testkit.Works(t, w.open(t.Context(), Options{ProjectRoot: root, Toolsets: []string{"workflows"}, StandardJobs: fstest.MapFS{}, AdditionalJobs: []string{}}))
	agent, end, err := w.Admit(run.Grant{Execution: "e", Session: "0a1b2c3d", Step: "text"})
	testkit.Works(t, err)
	token := ""
	for _, env := range agent.Env {
		if value, is := strings.CutPrefix(env, runner.TokenEnv+"="); is {
			token = value
		}
	}
	c := httpClient(t, token)
	header := open(t, c, w.web)
	time.Sleep(300 * time.Millisecond)
	r := send(t, c, "POST", w.web.URL(), `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, header)
	testkit.Contains(t, r.body, "finished_step", "%d", r.status)
	end()
	send(t, c, "POST", w.web.URL(), `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`, header).is(t, 401)
}
