package main

import (
	"strings"
	"syscall"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/session/store/postgres/pgtest"
)

// A run whose board is in a database survives its leader: with a group and a workflow in it, no finished step
// is done again.
func TestRunOnPostgres(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "first, [a, b, c], last", "first", "a", "b", "c", "last"), runJob("NAME", "x, y", "x outputs: {}", "y outputs: {}")).inGit()
	p.env = []string{config.StoreEnv + "=" + pgtest.URL(t), config.ProjectEnv + "=shop"}
	testkit.Git(t, p.root, "checkout", "-q", "--detach")
	refused := p.begin()
	refused.exits(1)
	testkit.True(t, strings.Contains(refused.err.String(), "no branch is checked out"), "without a branch: %s", &refused.err)
	testkit.Git(t, p.root, "checkout", "-q", "main")
	refused = p.begin("--in-place")
	refused.exits(2)
	testkit.True(t, strings.Contains(refused.err.String(), "leave --in-place out"), "in place: %s", &refused.err)
	p.plan(`b:1 start {"job_name":"job1","workflow_name":"w","goal":"The inner one"}`, "b:1 await a.done", "b:1 child x", "b:1 touch half", "b:1 await never",
		"a finish", "a touch a.done", "c:1 await never", "* finish")
	r := p.begin()
	p.awaits("c", 1)
	p.appears("half")
	must(t, r.cmd.Process.Signal(syscall.SIGKILL))
	_ = r.cmd.Wait()
	p.resume().exits(0)
	var counted []string
	for _, step := range []string{"first", "a", "b", "c", "x", "y", "last"} {
		counted = append(counted, step+strings.Repeat("+", len(p.recorded("begin", step))))
	}
	testkit.Equal(t, strings.Join(counted, " "), "first+ a+ b++ c++ x y+ last+", "the steps were begun so often")
	s := p.status()
	testkit.True(t, s.State == "completed" && len(s.Steps) == 8, "%+v", s)
	p.clean()
}
