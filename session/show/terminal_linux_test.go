package show

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"deepwork/actor/testkit"
)

// atTheTerminal is what the child of TestATerminal does, at a terminal of 30 columns and 4 lines.
func atTheTerminal(t *testing.T) {
	s := NewScreen(os.Stdout, os.Getenv)
	testkit.Equal(t, s.Width(), 30)
	for _, line := range []string{"1 of 2", "1 of 2", "2 of 2, which is cut where the screen ends"} {
		s.Draw(line)
	}

	EndDrawing()
	fmt.Println("drawn")
	s.Draw("asking")
	fmt.Printf("answer %q\n", testkit.Get(Ask("Name? ")).Must(t))
	fmt.Printf("text %q\n", testkit.Get(AskText("Why? ")).Must(t))
	s.Draw("paging")
	testkit.Equal(t, s.Page(t.Context(), "a\nb\nc\n"), false) // fits
	testkit.Equal(t, s.Page(t.Context(), "a\nb\nc\nd\n"), true)
	s.Fail("deepwork", "no such job")
	s.Judge("9 jobs: ", true, "well")
	s.Judge("9 jobs, 8 of which have no steps: ", false, "not well")
	s.Field(6, "state", "failed (by ann)")
	path := filepath.Join(t.TempDir(), "notes")
	testkit.Works(t, s.Edit(t.Context(), path))
	testkit.Equal(t, string(testkit.Get(os.ReadFile(path)).Must(t)), "edited\n")

	dumb := NewScreen(os.Stdout, func(name string) string {
		return map[string]string{"TERM": "dumb", "PAGER": "false", "VISUAL": "false", "EDITOR": "true"}[name]
	})
	dumb.Draw("not at a dumb terminal")
	testkit.Equal(t, dumb.Page(context.Background(), "a\nb\nc\nd\n"), false) // the pager failed
	testkit.Fails(t, dumb.Edit(t.Context(), path), "with false (set EDITOR to use another program)")
	dumb.Judge("9 jobs: ", true, "well")
	testkit.True(t, s.Draws(), "what a dumb terminal shows")
	testkit.True(t, s.color, "what a dumb terminal shows")
	testkit.True(t, !dumb.Draws(), "what a dumb terminal shows")
	testkit.True(t, !dumb.color, "what a dumb terminal shows")
}

// What a person sees at a terminal: lines that are replaced, questions whose answers were not typed before
// them, long texts in a pager, and colors.
func TestATerminal(t *testing.T) {
	if os.Getenv("AT_TERMINAL") != "" {
		atTheTerminal(t)
		return
	}

	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	defer terminal.Close()
	fd := int(terminal.Fd())
	testkit.Must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	testkit.Must(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 4, Col: 30}))
	number := testkit.Get(unix.IoctlGetInt(fd, unix.TIOCGPTN)).Must(t)
	side := testkit.Get(os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)).Must(t)
	testkit.Get(terminal.WriteString("typed before\n")).Must(t)
	c := exec.Command(os.Args[0], "-test.run=^TestATerminal$")
	c.Env = append(os.Environ(), "AT_TERMINAL=1", "TERM=xterm", "NO_COLOR=", "LESS=", "VISUAL=",
		`PAGER=sh -c "echo paged with $LESS; cat"`,
		`EDITOR=sh -c 'echo edited >> "$0"'`)
	c.Stdin, c.Stdout, c.Stderr = side, side, side
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	testkit.Must(t, c.Start())
	side.Close()
	types := map[string]string{"Name? ": " ann \n", "Why? ": "one\ntwo\n\n"}
	seen, buf := "", make([]byte, 4096)
	for {
		n, err := terminal.Read(buf)
		seen += string(buf[:n])
		for question, answer := range types {
			if strings.HasSuffix(seen, question) {
				delete(types, question)
				testkit.Get(terminal.WriteString(answer)).Must(t)
			}
		}
		if err != nil { // the child has ended
			break
		}
	}
	testkit.Works(t, c.Wait(), "%s", seen)
	seen, _, _ = strings.Cut(seen, "PASS")
	testkit.Golden(t, "testdata/terminal.txt",
		strings.ReplaceAll(strings.ReplaceAll(seen, "\x1b", "ESC"), "\r", "CR"), *update)
}
