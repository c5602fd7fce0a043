package show

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"deepwork/catalog/config"
)

// Ask asks a question at the controlling terminal, whatever stdin is, and blocks until a line is typed, which
// it returns. What was typed before the question is dropped.
func Ask(question string) (answer string, err error) {
	return atTerminal(question, func(string) bool { return true })
}

// AskText is like Ask for a text of several lines, which an empty line ends.
func AskText(question string) (answer string, err error) {
	return atTerminal(question, func(line string) bool { return line == "" })
}

// atTerminal asks at the terminal, and returns the lines that are typed until the last one.
func atTerminal(question string, last func(line string) bool) (answer string, err error) {
	in, out, err := terminal()
	if err != nil {
		return "", err
	}
	defer in.Close()
	defer out.Close()
	if err := discard(in); err != nil {
		return "", fmt.Errorf("discarding what was typed before the question: %w", err)
	}

	EndDrawing()
	if _, err := fmt.Fprint(out, question); err != nil {
		return "", fmt.Errorf("asking at the terminal: %w", err)
	}

	for typed := bufio.NewReader(in); ; {
		line, err := typed.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("reading the answer: %w", err)
		}
		answer += line
		if err != nil || last(strings.TrimSpace(line)) {
			return strings.TrimSpace(answer), nil
		}
	}
}

// terminal opens the controlling terminal for reading and writing.
func terminal() (in, out *os.File, err error) {
	if in, err = os.OpenFile(terminalIn, os.O_RDWR, 0); err != nil {
		return nil, nil, fmt.Errorf("opening the terminal: %w", err)
	}
	if out, err = os.OpenFile(terminalOut, os.O_RDWR, 0); err != nil {
		in.Close()
		return nil, nil, fmt.Errorf("opening the terminal: %w", err)
	}
	return in, out, nil
}

// Page prints a text, through $PAGER or else less, if it is longer than the terminal, and reports whether it did so
// through a pager. What less has shown stays on the screen, as with git.
func (s *Screen) Page(ctx context.Context, text string) (paged bool) {
	_, lines, ok := TerminalSize(s.to)
	words, err := config.SplitCommand(cmp.Or(strings.TrimSpace(s.getenv("PAGER")), "less"))
	if ok && err == nil && strings.Count(text, "\n") >= lines {
		EndDrawing()
		pager := exec.CommandContext(ctx, words[0], words[1:]...)
		pager.Stdin = strings.NewReader(Plain(text))
		pager.Stdout = s.to
		pager.Stderr = s.to
		if s.getenv("LESS") == "" {
			pager.Env = append(os.Environ(), "LESS=FRX")
		}
		if pager.Run() == nil {
			return true
		}
	}
	s.styled(Plain(text))
	return false
}

// Edit lets the user edit a file at the terminal, with $VISUAL, $EDITOR or else vi.
func (s *Screen) Edit(ctx context.Context, path string) error {
	words, err := config.SplitCommand(
		cmp.Or(strings.TrimSpace(s.getenv("VISUAL")), strings.TrimSpace(s.getenv("EDITOR")), "vi"))
	if err != nil {
		return fmt.Errorf("reading $EDITOR: %w", err)
	}

	in, out, err := terminal()
	if err != nil {
		return err
	}
	defer in.Close()
	defer out.Close()

	editor := exec.CommandContext(ctx, words[0], append(words[1:], path)...)
	editor.Stdin, editor.Stdout, editor.Stderr = in, out, out
	if err := editor.Run(); err != nil {
		return fmt.Errorf("editing %s with %s (set EDITOR to use another program): %w", path, words[0], err)
	}

	return nil
}
