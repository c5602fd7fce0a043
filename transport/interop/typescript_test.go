//go:build interop

package interop

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// typescriptWalk is what the TypeScript client sees in addition.
var typescriptWalk = []want{
	{"server", "capabilities.tools.listChanged", `true`},
	{"nothing", "text", "StateError: No active workflow session"},
	{"again", "stack.1", `nothing`},
	{"ahead", "text", "go_to_step only leads back"},
	{"task", "title", `"Fix the door"`},
	{"lost", "text", "resume one of these"},
}

// The client of the official TypeScript SDK, in the version of the lock file.
func TestClientOfTheTypeScriptSDK(t *testing.T) {
	client := func(t *testing.T, p project, told instructions) map[string]sight {
		saw := walk(t, told, node(t), filepath.Join(packages(t), "client.mjs"))
		judge(t, told, saw, append(slices.Clip(everyWalk), typescriptWalk...)...)
		if first, again := saw["started"].value(t, "begin_step.session_id"), saw["again"].value(t, "begin_step.session_id"); first != again {
			t.Errorf("the same request_id began %s and %s", first, again)
		}
		p.whole(t)
		return saw
	}
	terminated := func(t *testing.T, saw map[string]sight) {
		t.Helper()
		if end := saw["terminated"]; end.Status != 404 || end.Text != "" {
			t.Errorf("a session that was terminated answers %d, and is %q", end.Status, end.Text)
		}
	}
	t.Run("stdio", func(t *testing.T) {
		p := newProject(t)
		told := p.instructions(t)
		told.Command = p.command(t)
		client(t, p, told)
	})
	t.Run("http", func(t *testing.T) {
		p := newProject(t)
		told := p.instructions(t)
		told.URL = p.serve(t, "http")
		terminated(t, client(t, p, told))
	})
	t.Run("http with a token", func(t *testing.T) {
		p := newProject(t)
		told := p.instructions(t)
		token, file := newToken(t)
		told.URL, told.Token = p.serve(t, "http", "--token-file", file), token
		saw := client(t, p, told)
		terminated(t, saw)
		for _, at := range []string{"nobody", "stranger"} {
			if saw[at].Status != 401 || !strings.Contains(saw[at].Text, "token") {
				t.Errorf("%s: status %d, %q", at, saw[at].Status, saw[at].Text)
			}
		}
	})
}
