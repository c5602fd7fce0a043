package main

import (
	"bytes"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"deepwork/session/state/statetest"
)

// TestMain makes this test binary the command proof for the child processes that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"echo", "source", "step", "reviewer"}, os.Args[1]) {
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
	t.Parallel()
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"--duration 3s --connections 8 --depth 3 --edit --servers 2 --lose 0.05", 0, []string{
			`(?m)^8 connections, stacks 3 deep, 2 servers`, `(?m)^finished_step +[0-9]+ `,
			`(?m)^all is well: no call failed, and the store has what was acknowledged`}},
		{"--duration 2s --connections 4 --depth 2 --stateless --lose 0.05", 0, []string{
			`(?m)^ +[0-9.]+ transitions +acknowledged$`, `(?m)^all is well`}},
		{"--idle 20 --duration 1s", 0, []string{`(?m)^ +[0-9.-]+ idle-KB +each of 20 idle connections with deepwork`, `(?m)^ +[0-9.-]+ more-KB `}},
		{"--servers 3", 2, []string{`^proof: --servers is 1 to 2`}},
		{"--calls 5", 2, []string{`--calls, --store and --machines need --alternate`}},
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

// Calls that go to two servers in turn are refused nothing that one server alone would not have refused, and
// nothing is done twice.
func TestAlternate(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("people answer at terminals, which are made only on Linux")
	}
	var out bytes.Buffer
	code := run(t.Context(), strings.Fields("load --alternate --connections 8 --review 400ms --calls 200"), &out, &out)
	for _, want := range []string{`(?m)^ +0\.00 refused `, `(?m)^ +[1-9][0-9]*\.00 reviews +by the reviewer$`, `(?m)^ +[1-9][0-9]*\.00 decisions `, `(?m)^all is well`} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no %s", want)
		}
	}
	if code != 0 || t.Failed() {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}
