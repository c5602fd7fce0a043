package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/show"
	"deepwork/session/state"
)

// TestInitWritesTheTokenWhereNobodyElseReadsIt has init write the entry of a server that does not
// know whose a connection is: with the token where git does not keep the file, with a variable where
// it may.
func TestInitWritesTheTokenWhereNobodyElseReadsIt(t *testing.T) {
	t.Setenv("DEEPWORK_STATE_DIR", t.TempDir())
	const others = "{\n  \"mcpServers\": {\n    \"other\": {\"command\": \"x\"}\n  }\n}\n"
	for _, tt := range []struct {
		name, ignored string
		repo, link    bool
		there         string
		secret        bool
		todo          string
	}{
		{name: "no repository", secret: true},
		{name: "beside another server", there: others, secret: true},
		{name: "ignored", repo: true, ignored: ".mcp.json", secret: true},
		{name: "would be kept", repo: true, todo: "git keeps"},
		{name: "kept though ignored", repo: true, ignored: ".mcp.json", there: others, todo: "git keeps"},
		{name: "a symlink", link: true, there: others, todo: "is a symlink"},
		{name: "another entry", there: `{"mcpServers": {"deepwork": {"command": "mine"}}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			file := filepath.Join(root, ".mcp.json")
			write := func(name, text string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if tt.repo {
				testkit.Git(t, root, "init", "-q")
				write(".gitignore", tt.ignored+"\n")
			}
			switch {
			case tt.link:
				write("shared.json", tt.there)
				if err := os.Symlink("shared.json", file); err != nil {
					t.Skip(err)
				}
			case tt.there != "":
				write(".mcp.json", tt.there)
			}
			if tt.repo && tt.there != "" {
				testkit.Git(t, root, "add", "-f", ".mcp.json")
			}
			var out, errs strings.Builder
			a := &app{out: show.NewScreen(&out, os.Getenv), err: show.NewScreen(&errs, os.Getenv), path: root}
			for range 2 { // init can be repeated
				if err := a.init(httpServer("http://127.0.0.1:8000/mcp", false), clientNamed("claude")); (err != nil) != (tt.name == "another entry") {
					t.Fatal(err)
				}
			}
			folder, err := state.Find(root)
			if err != nil {
				t.Fatal(err)
			}
			token, err := folder.Token(false)
			if err != nil {
				t.Fatal("the token was not made:", err)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case strings.Contains(string(text), token) != tt.secret || tt.secret && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
				t.Errorf("%v %s", info.Mode(), text)
			case tt.todo != "" && !strings.Contains(string(text), `"Bearer ${DEEPWORK_TOKEN}"`):
				t.Errorf("the variable is not named: %s", text)
			case !strings.Contains(errs.String(), tt.todo) || tt.todo != "" && !strings.Contains(errs.String(), "deepwork token show"):
				t.Errorf("it says %s", errs.String())
			case strings.Contains(out.String()+errs.String(), token):
				t.Errorf("the token is shown: %s %s", out.String(), errs.String())
			case tt.name == "another entry" && (string(text) != tt.there || !strings.Contains(errs.String(), "another entry")):
				t.Errorf("%s %s", text, errs.String())
			}
		})
	}
}
