package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"deepwork/session/state/statetest"
)

// TestMain makes this test binary the command proof for the echo servers that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "echo" || os.Args[1] == "source" || os.Args[1] == "step") {
		main()
	}
	dir, err := os.MkdirTemp("", "proof-")
	if err != nil {
		panic(err)
	}
	buildIn = dir
	code := statetest.Main(m)
	os.RemoveAll(dir)
	os.Exit(code)
}

// What the subcommand load prints and how it ends: with two servers on one project, an
// editor at work and replies that get lost; with the newest protocol; with connections
// that do nothing; and if it is called wrongly.
func TestLoad(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"--duration 3s --connections 8 --depth 3 --edit --servers 2 --lose 0.05", 0, []string{
			`(?m)^8 connections, stacks 3 deep, 2 servers`, `(?m)^finished_step +[0-9]+ `,
			`(?m)^all is well: no call failed, and every file contains what was acknowledged`}},
		{"--duration 2s --connections 4 --depth 2 --stateless --lose 0.05", 0, []string{
			`(?m)^ +[0-9.]+ transitions +acknowledged$`, `(?m)^all is well`}},
		{"--idle 20 --duration 1s", 0, []string{`(?m)^ +[0-9.-]+ idle-KB +each of 20 idle connections with deepwork`, `(?m)^ +[0-9.-]+ more-KB `}},
		{"--servers 3", 2, []string{`^proof: --servers is 1 or 2`}},
		{"--lose 0.9", 2, []string{`--lose is 0 to 0.5`}},
		{"now", 2, []string{`takes no arguments, found "now"`}},
	} {
		var out bytes.Buffer
		if code := run(t.Context(), append([]string{"load"}, strings.Fields(c.args)...), &out, &out); code != c.code {
			t.Errorf("%s: exit code %d, want %d", c.args, code, c.code)
		}
		for _, want := range c.want {
			if !regexp.MustCompile(want).MatchString(out.String()) {
				t.Errorf("%s: no %s in\n%s", c.args, want, out.String())
			}
		}
	}
}
