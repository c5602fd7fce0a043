package show

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/jedib0t/go-pretty/v6/text"
)

// drawn is the line that Draw showed last at the terminal of this process, until it is removed.
var drawn struct {
	sync.Mutex
	line string
	to   io.Writer // nil if none is shown
}

// Draw shows a line at the end of a screen, in place of the one that it showed last, until anything is
// printed on any screen. Without a terminal it shows nothing.
func (s *Screen) Draw(line string) {
	if !s.Draws() {
		return
	}
	drawn.Lock()
	defer drawn.Unlock()
	if line == drawn.line && drawn.to != nil {
		return
	}
	erase()
	drawn.line, drawn.to = line, s.to
	_, _ = io.WriteString(s.to, s.paint(faint, text.Trim(Inline(line), max(s.Width()-1, 0))))
}

// erase removes the line that was drawn. The caller holds drawn.
func erase() {
	if drawn.to != nil {
		_, _ = io.WriteString(drawn.to, "\r\x1b[K")
		drawn.to = nil
	}
}

// EndDrawing removes the line that was drawn. Code that writes to the terminal without a Screen calls it first.
func EndDrawing() {
	drawn.Lock()
	defer drawn.Unlock()
	erase()
}

// Ask asks a question at the controlling terminal, whatever stdin is, and returns the line that is typed; what was
// typed before does not count. It blocks until then.
func Ask(question string) (answer string, err error) {
	in, err := os.OpenFile(terminalIn, os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("opening the terminal: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(terminalOut, os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("opening the terminal: %w", err)
	}
	defer out.Close()
	if err := discard(in); err != nil {
		return "", fmt.Errorf("discarding what was typed before the question: %w", err)
	}
	EndDrawing()
	if _, err := fmt.Fprint(out, question); err != nil {
		return "", fmt.Errorf("asking at the terminal: %w", err)
	}
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("reading the answer: %w", err)
	}
	return strings.TrimSpace(line), nil
}
