package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/cmd/proof/tty"
	"deepwork/session/show"
)

// At a terminal a line that moves shows how far the run is, which steps run, for how long, and what their agent said
// last, below the lines about its steps; it fits the terminal, and is gone at the end.
func TestRunAtATerminal(t *testing.T) {
	t.Parallel()
	p := newRunProject(t, "", runJob("NAME", "one, [two, three]", "one", "two", "three")).inGit()
	p.plan("two say looking around", "two await seen", "* finish")
	bar := regexp.MustCompile(`[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] \[#*\.*\] \d of 3 steps[^\r\n\x1b]*`)
	whole := regexp.MustCompile(`\[######\.{4}\] 2 of 3 steps, two \d+s: looking around`)
	const columns = 80
	master, slave, err := tty.Open(columns, 20)
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "deepwork", "run", "job0/w", "--goal", "ship it", "--executor", "STEPPER", "--path", p.root)
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
			if whole.Match(all) && len(spinners(bar.FindAllString(string(all), -1))) > 2 {
				p.touch("seen")
			}
		}
		shown <- string(all)
	}()
	err = cmd.Wait()
	must(t, slave.Close())
	all := <-shown
	testkit.Need(t, err == nil, "%v:\n%q", err, all)
	bars := bar.FindAllString(all, -1)
	testkit.Need(t, bars != nil, "no bar is shown:\n%q", all)
	for _, line := range bars {
		n := show.Columns(line)
		testkit.True(t, n < columns, "a bar of %d columns: %q", n, line)
	}
	for _, step := range []string{"one", "two", "three"} {
		testkit.True(t, regexp.MustCompile(step+` +STEPPER started\r\n`).MatchString(all), "there is no line about %s:\n%q", step, all)
	}
	last := all[strings.LastIndex(all, bars[len(bars)-1])+len(bars[len(bars)-1]):]
	testkit.True(t, strings.Contains(last, "\r\x1b[K") && strings.Contains(last, "complete") && strings.Contains(last, "deepwork board merge"), "after the last bar there is\n%q", last)
}

// spinners are the different characters with which lines that move begin.
func spinners(lines []string) map[rune]bool {
	all := map[rune]bool{}
	for _, line := range lines {
		for _, r := range line {
			all[r] = true
			break
		}
	}
	return all
}
