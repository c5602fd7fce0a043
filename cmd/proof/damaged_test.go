package main

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/cmd/proof/fault"
	"deepwork/cmd/proof/tty"
)

// The database is damaged after servers were killed in the middle of their work. Each call and command that needs
// it is refused with its path and with what to do, and leaves it as it is. It cannot be set aside while a server
// has it open. Then it can, and what every session had acknowledged comes back from the exports.
func TestADamagedDatabase(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("people answer at terminals, which are made only on Linux")
	}
	for name, damage := range map[string]func(data []byte) []byte{
		"overwritten": func(data []byte) []byte { return append(bytes.Repeat([]byte{0x5a}, 4096), data[4096:]...) },
		"cut off":     func(data []byte) []byte { return data[:len(data)/2] },
		"emptied":     func([]byte) []byte { return bytes.Repeat([]byte{0}, 512) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			damaged(t, damage)
		})
	}
}

func damaged(t *testing.T, damage func(data []byte) []byte) {
	s := newSimulation(t.TempDir(), *simSeed, 0, 4)
	ctx := t.Context()
	testkit.Must(t, os.MkdirAll(s.root, 0o755))
	testkit.Must(t, s.build(ctx))
	testkit.Must(t, s.writeProject(loadConfig))
	s.servers = []*server{{http: true}, {number: 1, http: true}}
	t.Cleanup(func() { testkit.Must(t, s.killRunning()) })
	serve := func() {
		t.Helper()
		for _, at := range s.servers {
			testkit.Must(t, s.run(ctx, at, fault.Plan{Tied: true}))
		}
	}
	serve()
	working, done := context.WithTimeout(ctx, time.Second)
	defer done()
	var clients sync.WaitGroup
	s.rove(working, &clients, 1)
	clients.Go(func() { // in the middle of calls
		<-working.Done()
		testkit.Must(t, s.killRunning())
	})
	clients.Wait()
	// What was committed and not acknowledged is seen by a call, which writes the export.
	serve()
	a := s.agent(s.clients * 2)
	a.lose = 0
	for _, id := range s.history.known() {
		a.perform(ctx, input{Tool: "get_step", Session: id})
	}
	testkit.Must(t, s.killRunning())
	serve() // servers that only read
	for _, at := range s.servers {
		a.exchange(ctx, at.current(), "get_step", map[string]any{"session_id": s.history.known()[0]})
	}

	db := testkit.Get(sql.Open("sqlite", "file:"+s.boardFile())).Must(t)
	testkit.Get(db.Exec("PRAGMA wal_checkpoint(TRUNCATE)")).Must(t)
	testkit.Must(t, db.Close())
	data := damage(testkit.Get(os.ReadFile(s.boardFile())).Must(t))
	testkit.Must(t, os.WriteFile(s.boardFile(), data, 0o600))

	remedied := func(what, text string, err bool) {
		t.Helper()
		testkit.True(t, err && strings.Contains(text, s.boardFile()) && strings.Contains(text, "--set-aside"), "%s is not refused with the path and what to do: %v, %s", what, err, text)
	}
	command := func(args ...string) (string, bool) {
		text, err := s.deepwork(ctx, s.servers[0], args...).CombinedOutput()
		return string(text), err != nil
	}
	text, failed := command("check", "--set-aside")
	testkit.True(t, failed, "it was set aside while servers have it open: %s", text)
	testkit.Must(t, s.killRunning())
	serve()
	id := s.history.known()[0]
	p := s.servers[0].current()
	for _, in := range []input{
		{Tool: "start_workflow", Job: jobName(0), Workflow: "short", Goal: "g", Request: "r"}, {Tool: "get_step", Session: id},
		{Tool: "finished_step", Session: id, Outputs: a.outputs()}, {Tool: "go_to_step", Session: id, Step: "s0"}, {Tool: "abort_workflow", Session: id, Text: "x"},
	} {
		answer := a.exchange(ctx, p, in.Tool, in.arguments())
		remedied(in.Tool, answer.text, answer.code == "store_damaged")
	}
	for _, args := range [][]string{{"sessions", "list"}, {"sessions", "show", id}, {"sessions", "prune"}, {"check"}} {
		text, failed := command(args...)
		remedied(strings.Join(args, " "), text, failed)
	}
	testkit.True(t, bytes.Equal(testkit.Get(os.ReadFile(s.boardFile())).Must(t), data), "the damaged database was touched")
	testkit.Must(t, s.killRunning())

	text, failed = command("check", "--set-aside")
	testkit.Need(t, !failed, "check --set-aside: %s", text)
	printed, screen, err := tty.Run(s.deepwork(ctx, s.servers[0], "sessions", "import", "--all"), "", "yes")
	testkit.Need(t, err == nil, "sessions import --all: %v\n%s\n%s", err, printed, screen)
	for _, id := range s.history.known() {
		s.history.add(-1, id, input{Tool: "import"}, s.history.now(), "imported", s.history.now())
	}
	serve()
	for _, id := range s.history.known() {
		a.perform(ctx, input{Tool: "get_step", Session: id})
	}
	for _, p := range s.running() {
		s.stop(p)
	}
	n := testkit.Get(s.judge(ctx, s.agrees)).Must(t)
	s.verify(ctx, "at the end")
	_, what := s.history.found()
	testkit.True(t, what == "" && n >= len(s.history.known()), "%d sessions of %d:\n%s", n, len(s.history.known()), what)
	aside := testkit.Get(os.ReadDir(stateOf(s.root).Dir)).Must(t)
	testkit.True(t, slices.ContainsFunc(aside, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "board.db.damaged-") }), "the damaged database is not there: %v", aside)
}
