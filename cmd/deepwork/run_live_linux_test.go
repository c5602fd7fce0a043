package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"deepwork/cmd/proof/tty"
	"deepwork/session/show"
)

// At a terminal the steps are drawn in place, no line is wider than the terminal, and at the end each step is
// on the screen once.
func TestRunAtATerminal(t *testing.T) {
	p := newRunProject(t, "", runJob("NAME", "one, [two, three]", "one", "two", "three")).inGit()
	const columns = 60
	master, slave, err := tty.Open(columns, 20)
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	cmd := exec.CommandContext(t.Context(), "deepwork", "run", "job0/w", "--goal", "ship it", "--executor", "STEPPER", "--path", p.root)
	cmd.Env = append(os.Environ(), "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	must(t, cmd.Start())
	shown := make(chan string, 1)
	go func() {
		var all bytes.Buffer
		_, _ = all.ReadFrom(master) // until nobody has the other end open
		shown <- all.String()
	}()
	must(t, cmd.Wait())
	must(t, slave.Close())
	all := <-shown
	if !strings.Contains(all, "A\r") {
		t.Fatalf("nothing was drawn again:\n%q", all)
	}
	at := strings.LastIndex(all, "A\r") // the last drawing, and what follows
	for _, step := range []string{"one", "two", "three"} {
		if n := strings.Count(all[at:], step+" "); n != 1 {
			t.Errorf("%s is shown %d times at the end:\n%q", step, n, all[at:])
		}
	}
	if !strings.Contains(all[at:], "job0/w  complete") || !strings.Contains(all[at:], "deepwork board merge") {
		t.Errorf("the end is\n%q", all[at:])
	}
	for line := range strings.SplitSeq(all, "\n") {
		if drawn, is := strings.CutSuffix(strings.TrimSuffix(line, "\r"), "\x1b[K"); is {
			if i := strings.LastIndex(drawn, "\r"); i >= 0 {
				drawn = drawn[i+1:]
			}
			if show.Columns(drawn) >= columns {
				t.Errorf("a line of %d columns: %q", show.Columns(drawn), drawn)
			}
		}
	}
}
