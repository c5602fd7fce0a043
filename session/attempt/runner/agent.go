package runner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"deepwork/actor/process"
	"deepwork/session/attempt/transcript"
	"deepwork/session/contain"
)

const (
	// stopLook is how often a shim checks for a request to stop.
	stopLook = 50 * time.Millisecond
	// groupLook is how often a group that was asked to end is checked.
	groupLook = 10 * time.Millisecond
)

// An agent is a program that has been started. Only one goroutine may use it.
type agent struct {
	child    *process.Child
	log      *logFile
	out, err *process.Lines
	box      *contain.Box // in which it runs, nil if it is not contained

	mu      sync.Mutex
	summary *summary // guarded by mu
}

// startAgent starts the command of a Spec, or returns why it cannot.
func startAgent(spec *Spec, log *logFile) (a *agent, why string) {
	a = &agent{log: log, summary: newSummary()}
	a.out, a.err = a.lines(Stdout), a.lines(Stderr)
	start := process.Spec{Command: spec.Command, Dir: spec.Work, Stdin: spec.Stdin, Descendants: true}
	if spec.Contain != nil {
		var err error
		refused := contain.Once(func(r contain.Refusal) { log.system("%s", r.Note()) })
		if a.box, err = spec.Contain.Open(spec.Command, refused); err != nil {
			return nil, err.Error()
		}
		start.Command, start.Env, start.Files, start.Dir = a.box.Command, a.box.Env, a.box.Files, "/"
	} else {
		for _, kv := range spec.Env {
			// The program is looked up in the agent's own PATH.
			if path, ok := strings.CutPrefix(kv, "PATH="); ok {
				os.Setenv("PATH", path)
			}
		}
		start.Env = process.With(append(os.Environ(), "PWD="+spec.Work), spec.Env...)
	}

	child, err := process.Spawn(start, a.out, a.err)
	if err != nil && a.box != nil {
		a.box.Close()
	}
	if errors.Is(err, exec.ErrNotFound) {
		return nil,
			fmt.Sprintf("the program %q is not in PATH; install it, or name another command for this executor in the "+
				"config", spec.Command[0])
	} else if err != nil {
		return nil, err.Error()
	}
	a.child = child
	return a, ""
}

// lines writes a stream to the log, no faster than the disk allows; a faster agent blocks in its writes.
func (a *agent) lines(stream string) *process.Lines {
	lines := process.NewLines(MaxLine, func(lines [][]byte) {
		a.log.write(stream, lines...)
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, line := range lines {
			a.summary.line(stream, bytes.TrimRight(line, "\r\n"))
		}
	})
	lines.Breaks = true
	return lines
}

// watch waits until the agent ends. It ends the agent if a stop is requested, or if its start could not be
// recorded.
func (a *agent) watch(dir string, recorded error) (e Exit) {
	var killAt time.Time // zero: the agent was not asked to end
	if recorded != nil {
		a.log.system("its start could not be recorded, and so it is ended: %v", recorded)
		killAt = time.Now()
	}

	exited, killed := a.child.Exited(), false
	for {
		grace, asked := requestedStop(dir)
		if asked && (!e.Stopped || time.Now().Add(grace).Before(killAt)) {
			e.Stopped, killAt = true, time.Now().Add(grace)
			a.child.Terminate()
		}

		pause := stopLook
		if !killAt.IsZero() {
			if left := time.Until(killAt); left > 0 {
				pause = min(pause, left)
			} else if !killed {
				killed = true
				a.child.Kill()
			}
		}
		if exited == nil {
			if killAt.IsZero() || killed || !a.child.Alive() {
				break
			}
			pause = groupLook // its children get the rest of the grace period
		}
		select {
		case <-exited:
			exited, e.EndedAt = nil, time.Now().UTC()
			e.Code, e.Signal = a.child.Exit()
		case <-time.After(pause):
		}
	}

	if a.child.Close() {
		a.log.system("something that it has started does not end, or holds its output open")
		e.Left = true
	}
	if a.box != nil {
		a.box.Close()
	}

	a.out.End()
	a.err.End()
	a.summary.put(&e)
	return e
}

// MaxFinal is the maximum length of a final message, in characters; longer ones are cut off at the end.
const MaxFinal = 4000

// maxStderr limits the last lines on stderr in an Exit, in bytes.
const maxStderr = 2000

// A summary has what an Exit says about a program's lines: its final message, its last lines on stderr, and
// its usage. The final message is the program's own answer or else its last nonblank line, preferably on
// stdout. Its memory is bounded.
type summary struct {
	lastOut, lastErr []byte // the last nonblank lines
	stderr           []byte // at most 2*MaxLine plus one line
	reader           transcript.Reader
}

func newSummary() *summary { return &summary{reader: transcript.Reader{Split: MaxLine}} }

// line takes one line, or one piece of a line, of a stream.
func (s *summary) line(stream string, text []byte) {
	switch stream {
	case Stdout:
		s.reader.Line(text, func(transcript.Message) {})
		keep(&s.lastOut, text)
	case Stderr:
		keep(&s.lastErr, text)
		if s.stderr = append(append(s.stderr, text...), '\n'); len(s.stderr) > 2*MaxLine {
			s.stderr = append(s.stderr[:0], s.stderr[len(s.stderr)-2*maxStderr:]...)
		}
	}
}

// put completes an Exit.
func (s *summary) put(e *Exit) {
	s.reader.End(func(transcript.Message) {})
	for _, text := range [][]byte{s.lastErr, s.lastOut, []byte(s.reader.Answer())} {
		if text := clip(text); text != "" {
			e.FinalMessage = text
		}
	}

	e.Stderr, e.Failure = process.Tail(string(s.stderr), maxStderr), clip([]byte(s.reader.Failure()))
	e.Usage, e.Conversation = s.reader.Usage(), s.reader.Conversation()
}

// clip makes a text displayable: valid UTF-8, trimmed, and not too long.
func clip(text []byte) string {
	s := []rune(strings.TrimSpace(string(bytes.ToValidUTF8(text, []byte(string(utf8.RuneError))))))
	return strings.TrimSpace(string(s[:min(len(s), MaxFinal)]))
}

// keep makes a line the last one, unless it is blank.
func keep(last *[]byte, line []byte) {
	if len(bytes.TrimSpace(line)) > 0 {
		*last = append((*last)[:0], line[:min(len(line), utf8.UTFMax*MaxFinal+utf8.UTFMax)]...)
	}
}
