//go:build !race

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// promised says what commands of README.md print, as regular expressions. All others must succeed, too.
var promised = map[string]string{
	`go run ./cmd/deepwork demo`:                         `All of it works here`,
	`deepwork init`:                                      `(?s)\.deepwork/jobs\n.*\.mcp\.json\n`,
	`deepwork jobs`:                                      `(?s)release_notes .*deepwork_jobs `,
	`deepwork validate`:                                  `2 jobs and config.yml checked: 0 errors, 0 warnings`,
	`deepwork jobs show release_notes/write_notes`:       `--- step_instructions ---\n# Write the notes`,
	`deepwork trust`:                                     `Approved\.|approved already`,
	`deepwork board start latest --executor CLAUDE_CODE`: `(?s)I have fixed the login\..*state: +completed`,
	`deepwork board merge latest --squash`:               `^merged deepwork/fix-the-login-[0-9a-f]{4} into main`,
	`deepwork board diff latest`:                         `\n\+It works on Mondays\.\n`,
	`deepwork run release_notes/write --goal "The notes of 2.0" --executor CLAUDE_CODE`: `(?s)write_notes +CLAUDE_CODE completed.*state: +completed\n`,
	`deepwork run status latest`:               `goal: +The notes of 2\.0\n`,
	`deepwork run resume latest --max-cost 10`: `the run is completed already`,
}

// unwalked are the commands of the pages that are not run here, and why.
var unwalked = map[string]string{
	`go test ./...`:          `this test is a part of it`,
	`.ci/release 1.2.3 dist`: `it reads modules from the Go proxy, and its checkout must be clean`,
	`docker run -i --rm --user "$(id -u):$(id -g)" -v "$PWD:$PWD" -w "$PWD" -v "$HOME/.local/state/deepwork:/state" NAME:1.2.3`: `it needs Docker`,
	`createuser --pwprompt deepwork && createdb --owner deepwork deepwork`:                                                      `it needs PostgreSQL`,
	`export DEEPWORK_STORE='postgres://deepwork@db.example.com/deepwork?sslmode=verify-full'`:                                   `it needs PostgreSQL`,
	`deepwork store migrate --project shop`:                                                                                     `it needs PostgreSQL`,
	`deepwork serve --project shop`:                                                                                             `it needs PostgreSQL`,
	`deepwork store status --project shop`:                                                                                      `it needs PostgreSQL`,
	`deepwork store copy --from files --to "$DEEPWORK_STORE"`:                                                                   `it needs PostgreSQL`,
	`deepwork worker --executors CLAUDE_CODE --max 2`:                                                                           `it needs PostgreSQL`,
	`deepwork serve --transport http --host 0.0.0.0 --token-file tokens --tls-cert cert.pem --tls-key key.pem`:                  `it needs a certificate`,
	`deepwork serve --transport http --token-file tokens --allowed-host deep.example.com`:                                       `it ends with the server`,
	`claude mcp add --transport http deepwork https://HOST:8000/mcp --header "Authorization: Bearer TOKEN"`:                     `it needs Claude Code`,
}

// README.md can be followed from its first line to its last by somebody who has only Go and git.
func TestReadmeWalk(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the program twice, and runs every command of README.md")
	}
	t.Parallel()
	n := newNewcomer(t)
	for _, s := range snippets(t, "sh", "json", "yaml job") {
		switch {
		case s.page != "README.md":
		case s.kind == "sh":
			for i, line := range strings.Split(strings.TrimSpace(s.text), "\n") {
				n.walk(s.at(i), line)
			}
		case s.kind == "json":
			n.connect(s.at(0), s.text)
			if said, err := n.run("git add -A && git commit -q -m deepwork"); err != nil { // as README.md says
				t.Fatal(err, said)
			}
		case s.kind == "yaml job":
			n.write(s.text)
		}
	}
	n.walk("at the end", "deepwork check")
	ci := testkit.Get(os.ReadFile(filepath.Join("..", "..", ".ci", "run"))).Must(t)
	for _, line := range []string{`go test "$patience" ./...`, `.ci/release 0.0.0-ci "$scratch/release"`} {
		if !slices.ContainsFunc(strings.Split(string(ci), "\n"), func(l string) bool { return strings.TrimSpace(l) == line }) {
			t.Errorf(".ci/run does not have %q any more: who runs that command of README.md?", line)
		}
	}
}

// Each tutorial and how-to can be followed in a project of its own, and its commands and calls print what it shows.
func TestDocsWalk(t *testing.T) {
	t.Parallel()
	followed := 0
	for _, page := range testkit.Pages(t, filepath.Join("..", "..")) {
		name, is := strings.CutPrefix(page.Path, testkit.Docs)
		if !is || !strings.HasPrefix(name, "tutorials/") && !strings.HasPrefix(name, "howto/") {
			continue
		}
		blocks := snippetsOf(page)
		if !slices.ContainsFunc(blocks, func(s snippet) bool { return s.kind == "sh" || s.kind == "console" }) {
			continue
		}
		followed++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newReader(t, page)
			for _, s := range blocks {
				n.follow(s)
			}
		})
	}
	testkit.True(t, followed >= 8, "only %d pages have commands", followed)
}
