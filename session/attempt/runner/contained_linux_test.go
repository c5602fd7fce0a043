package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/hosts"
	"deepwork/session/contain"
)

// contained makes a shell's script a contained agent of a bench, or skips the test where that is not possible.
func (b *bench) contained(run, script string) Spec {
	b.t.Helper()
	_, err := contain.Check(context.Background())
	if _, ok := errors.AsType[*contain.Unavailable](err); ok && os.Getenv("DEEPWORK_TEST_CONTAIN_REQUIRED") == "" {
		b.t.Skip(err)
	}
	must(b.t, err)
	p := testkit.Get(contain.New(b.path("work"))).Must(b.t)
	p.Write(p.Dir)
	return Spec{Dir: b.path(run), Log: b.path("log"), Command: []string{"/bin/sh", "-c", script}, Work: p.Dir,
		Env: []string{"SECRET=1"}, Contain: p, Contained: p.String()}
}

// A contained agent gets what its plan says, reads its prompt, and what it was refused is in the log, once.
func TestAContainedRun(t *testing.T) {
	b := newBench(t)
	s := b.contained("1", `cat; pwd; echo "secret: $SECRET"; touch made; ls -A "$HOME" "`+b.dir+`"; exec "$0"`)
	s.Command = append(s.Command, s.Contain.Program(os.Args[0]))
	s.Contain.Reach(hosts.List{"good.example.com:443"})
	s.Contain.Env = append(s.Contain.Env, modeEnv+"=connect:other.example.com:8080/")
	s.Stdin = []byte("prompt\n")

	p := b.start(s)
	e := b.wait(p)
	testkit.Equal(t, e.Code, 0, "%+v", e)
	testkit.Contains(t, p.Contained(), "contained (bubblewrap ")
	out := texts(b.log(), Stdout)
	testkit.Contains(t, out, "prompt|"+b.path("work")+"|secret: |")
	testkit.Contains(t, out, "403 Forbidden|403 Forbidden")
	testkit.Lacks(t, out, []string{"ran"}) // another folder beside the working directory
	testkit.Get(os.Stat(filepath.Join(b.path("work"), "made"))).Must(t)

	entries, _, err := Tail(t.Context(), s.Log, nil, MaxTail, 0)
	must(t, err)
	said := texts(entries, System)
	testkit.Contains(t, said, "started /bin/sh as process ")
	testkit.Contains(t, said, "it is contained (bubblewrap ")
	testkit.Equal(t, strings.Count(said, "refused other.example.com:8080: it is not among the hosts that are allowed; "+
		`to allow it: contain: {allow: ["other.example.com:8080"]}`), 1, "%s", said)
}

// A contained agent is asked to end, and may clean up; nothing of one is left that was killed, or whose shim was.
func TestAContainedRunEnds(t *testing.T) {
	b := newBench(t)
	beats := func(run string) func() string {
		return func() string {
			data, _ := os.ReadFile(filepath.Join(b.path("work"), run))
			return string(data)
		}
	}
	begin := func(run, trap string) (*Process, func() string) {
		p := b.start(b.contained(run, trap+`
			setsid sh -c 'while :; do date +%s%N >`+run+`; sleep 0.05; done' &
			while :; do sleep 0.1; done`))
		beat := beats(run)
		testkit.Until(t, "it runs", func() bool { return beat() != "" })
		return p, beat
	}
	still := func(beat func() string) {
		last := beat()
		time.Sleep(200 * time.Millisecond)
		testkit.Equal(t, beat(), last, "what it has started runs on")
	}

	p, beat := begin("1", "trap 'echo tidied up; exit 7' TERM")
	e := b.stop(p, time.Minute)
	testkit.Equal(t, e.Code, 7, "%+v", e)
	testkit.True(t, e.Stopped && e.FinalMessage == "tidied up", "%+v", e)
	still(beat)

	p, beat = begin("2", "trap '' TERM")
	e = b.stop(p, 50*time.Millisecond)
	testkit.True(t, e.Stopped && e.Signal == "SIGKILL", "%+v", e)
	still(beat)

	p, beat = begin("3", "trap '' TERM")
	must(t, syscall.Kill(p.started.ShimPID, syscall.SIGKILL))
	e = b.wait(p)
	testkit.True(t, e.Interrupted, "%+v", e)
	still(beat)
}
