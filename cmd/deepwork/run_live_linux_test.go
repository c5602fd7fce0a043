package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"deepwork/cmd/proof/tty"
	"deepwork/session/show"
)

// At a terminal a bar shows how far the run is, below the lines about its steps; it fits the terminal, and is
// gone at the end.
func TestRunAtATerminal(t *testing.T) {
	p := newRunProject(t, "", runJob("NAME", "one, [two, three]", "one", "two", "three")).inGit()
	p.plan("two await seen", "* finish")
	bar := regexp.MustCompile(`\[#*\.*\] \d of 3 steps[^\r\n]*`)
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
		var all []byte
		for buf := make([]byte, 4096); ; {
			n, err := master.Read(buf)
			if all = append(all, buf[:n]...); err != nil { // nobody has the other end open
				break
			}
			if bar.Match(all) {
				p.touch("seen")
			}
		}
		shown <- string(all)
	}()
	must(t, cmd.Wait())
	must(t, slave.Close())
	all := <-shown
	bars := bar.FindAllString(all, -1)
	if bars == nil {
		t.Fatalf("no bar is shown:\n%q", all)
	}
	for _, line := range bars {
		if n := show.Columns(line); n >= columns {
			t.Errorf("a bar of %d columns: %q", n, line)
		}
	}
	for _, step := range []string{"one", "two", "three"} {
		if !regexp.MustCompile(step + ` +STEPPER started\r\n`).MatchString(all) {
			t.Errorf("there is no line about %s:\n%q", step, all)
		}
	}
	last := all[strings.LastIndex(all, bars[len(bars)-1])+len(bars[len(bars)-1]):]
	if !strings.Contains(last, "\r\x1b[K") || !strings.Contains(last, "complete") || !strings.Contains(last, "deepwork board merge") {
		t.Errorf("after the last bar there is\n%q", last)
	}
}
