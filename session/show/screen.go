package show

import (
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"deepwork/catalog/task"
	"deepwork/session"
)

// A Screen is where a command prints for people: a terminal, a file or a pipe. Everything written to it is
// made safe as by Plain, since names and paths come from the authors of the project, goals and notes from
// agents. Its methods may be called concurrently.
type Screen struct {
	to     io.Writer
	getenv func(string) string
	color  bool

	mu  sync.Mutex
	err error // of the first failed write
}

// NewScreen returns a screen that prints to a stream. It uses colors if the stream is a terminal, unless
// NO_COLOR is set or TERM is dumb.
func NewScreen(to io.Writer, getenv func(string) string) *Screen {
	_, _, ok := TerminalSize(to)
	capable := getenv("TERM") != "" || getenv("WT_SESSION") != "" // older Windows consoles print the sequences
	return &Screen{to: to, getenv: getenv, color: ok && capable && getenv("TERM") != "dumb" && getenv("NO_COLOR") == ""}
}

// Write prints a text that consists of whole characters.
func (s *Screen) Write(p []byte) (int, error) {
	EndDrawing()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.write(Plain(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Safe prints a text that Plain or Colored has already made safe.
func (s *Screen) Safe(text string) error {
	s.styled(text)
	return s.Err()
}

// styled prints a safe text that may have colors.
func (s *Screen) styled(text string) {
	EndDrawing()
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.write(text) // Err returns the error
}

func (s *Screen) write(text string) error {
	_, err := io.WriteString(s.to, text)
	if s.err == nil {
		s.err = err
	}
	return err
}

// Err returns the error of the first failed write, so that a full disk behind a redirection is not mistaken
// for success.
func (s *Screen) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Width returns the columns of the terminal, or the value of COLUMNS if set. 0 means no limit.
func (s *Screen) Width() int {
	columns, _, ok := TerminalSize(s.to)
	if columns > 0 {
		return columns
	}

	if given, err := strconv.Atoi(s.getenv("COLUMNS")); err == nil && given > 0 {
		return given
	}

	if ok {
		return 80
	}

	return 0
}

// Draws reports whether the screen is a terminal whose lines can be replaced.
func (s *Screen) Draws() bool {
	_, _, ok := TerminalSize(s.to)
	return ok && s.getenv("TERM") != "dumb" && runtime.GOOS != "windows"
}

// The styles of texts.
var (
	strong = text.Colors{text.Bold}
	faint  = text.Colors{text.Faint}
	good   = text.Colors{text.FgGreen}
	bad    = text.Colors{text.FgRed}
	busy   = text.Colors{text.FgYellow}
)

// states are the styles of the words for states.
var states = map[string]text.Colors{}

func init() {
	for _, of := range []struct {
		style text.Colors
		words string
	}{
		{good, "completed done passed succeeded merged"},
		{bad, "failed aborted stopped killed interrupted conflicts untrusted refused cancelled"},
		{busy, "active queued running waiting paused inprogress inreview blocked step_waits"},
	} {
		for word := range strings.FieldsSeq(of.words) {
			states[word] = of.style
		}
	}
	states["waiting for you"], states["waiting for a limit"] = busy, busy
}

// paint returns a safe text in a style, if the screen has colors.
func (s *Screen) paint(style text.Colors, plain string) string {
	if !s.color || len(style) == 0 || plain == "" {
		return plain
	}
	return text.Escape(plain, style.EscapeSeq())
}

// state returns a text that may begin with the word for a state, with that word in its style.
func (s *Screen) state(plain string) string {
	word, _, _ := strings.Cut(plain, " (")
	return s.paint(states[word], plain)
}

// Field prints a name and, beside it, a value of any number of lines, unless the value is empty. width is the
// space for the names of all fields.
func (s *Screen) Field(width int, name, value string) {
	value = strings.TrimSpace(Plain(value))
	if value == "" {
		return
	}

	label := fmt.Sprintf("%-*s", width, name+":")
	rest := IndentRest(Wrap(value, s.Width()-width-1), strings.Repeat(" ", width+1))
	if name == "status" || name == "state" {
		rest = s.state(rest)
	}
	s.styled(s.paint(faint, label) + " " + rest + "\n")
}

// Fields prints names and values in turn, each pair like Field.
func (s *Screen) Fields(width int, pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		s.Field(width, pairs[i], pairs[i+1])
	}
}

// Since returns how long ago a time was, such as 3m, or "" for the zero time.
func Since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return session.Ago(time.Since(t))
}

// Ago says how long ago something was, such as 3m ago.
func Ago(t time.Time) string {
	if d := time.Since(t); d >= time.Second {
		return session.Ago(d) + " ago"
	}
	return "just now"
}

// Totals sums up in one line what has run.
func Totals(t task.HistoryTotals) string {
	text := fmt.Sprintf("%d in all, %d of %d passed at the first try", t.Runs, t.FirstTry, t.Judged)
	if t.Seconds != nil {
		text += ", median " + (time.Duration(*t.Seconds * float64(time.Second))).Round(time.Second).String()
	}
	if t.USD != nil {
		text += fmt.Sprintf(", %.2f USD", *t.USD)
	}
	return text
}

// drawn is the line that Draw last showed at this process's terminal, until it is removed.
var drawn struct {
	sync.Mutex
	line string
	to   io.Writer // nil if no line is shown
}

// Draw shows a line at the end of a screen, replacing the one that it showed last, until something is printed
// on any screen. Without a terminal it does nothing.
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

// erase removes the drawn line. The caller holds the lock of drawn.
func erase() {
	if drawn.to != nil {
		_, _ = io.WriteString(drawn.to, "\r\x1b[K")
		drawn.to = nil
	}
}

// EndDrawing removes the drawn line. Code that writes to the terminal without a Screen must call it first.
func EndDrawing() {
	drawn.Lock()
	defer drawn.Unlock()
	erase()
}
