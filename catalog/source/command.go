package source

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/process"
	"deepwork/catalog/config"
	"deepwork/catalog/jsontext"
)

// A commandWire is a source that this server runs, over stdio.
type commandWire struct {
	service *process.Service
	stray   func(line string) // receives lines of its standard output that are not messages
	cutting context.Context   // ended by cut, to end the command at once
	cut     context.CancelFunc
	ending  sync.WaitGroup
}

// startCommand starts a source in a folder; program is the path of its command's program. It logs its
// standard error at debug.
func startCommand(s *config.WorkflowSource, program, dir string, logger *slog.Logger) (*commandWire, error) {
	env := environment(os.Environ(), s.PassEnv)
	for name, value := range s.Env {
		env = append(env, name+"="+value)
	}
	service, err := process.Serve(process.Spec{
		Command: append([]string{program}, s.Command[1:]...), Dir: dir, Env: env, Grace: stopGrace,
	}, func(line string) { logger.Debug("a source writes", "line", process.Tail(line, 1000)) })
	if err != nil {
		return nil, err
	}

	level := slog.LevelWarn                                        // only once per connection at this level
	w := &commandWire{service: service, stray: func(line string) { // called by one goroutine
		logger.Log(context.Background(), level,
			"a source writes what is no message to its standard output; its standard error is the place for that",
			"line", line)
		level = slog.LevelDebug
	}}
	w.cutting, w.cut = context.WithCancel(context.Background())
	w.ending.Go(func() {
		<-w.cutting.Done()
		service.Stop(w.cutting)
	})
	return w, nil
}

// passed are the variables that every source gets; a star matches the rest of a name.
var passed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_*",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "DEEPWORK_STATE_DIR",
	// Windows
	"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "APPDATA", "LOCALAPPDATA",
	"USERPROFILE",
	"USERNAME", "HOMEDRIVE", "HOMEPATH", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PROCESSOR_ARCHITECTURE",
	"NUMBER_OF_PROCESSORS",
}

// environment returns the variables of this process that a source gets: no secrets, unless its entry asks for
// them.
func environment(all, more []string) []string {
	if slices.Contains(more, "*") {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !slices.ContainsFunc(slices.Concat(passed, more), func(p string) bool {
			if prefix, ok := strings.CutSuffix(p, "*"); ok {
				return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
			}
			return strings.EqualFold(name, p)
		})
	})
}

func (w *commandWire) transport() mcp.Transport { return w }

// Connect implements mcp.Transport.
func (w *commandWire) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := (&mcp.IOTransport{
		// the filter has its own limit
		Reader: newLineFilter(w.service.Stdout, w.stray), Writer: w.service.Stdin, MaxLineLength: -1,
	}).Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("speaking to the command: %w", err)
	}
	return rawConn{c}, nil
}

func (w *commandWire) end() { w.cut() }

func (w *commandWire) begun() {}

func (w *commandWire) leave(ctx context.Context, close func()) {
	stop := context.AfterFunc(ctx, w.cut)
	defer stop()
	w.service.Stop(w.cutting)
	close()
	w.cut()
	w.ending.Wait()
}

func (w *commandWire) reason(err error) error {
	if _, ok := errors.AsType[malformedError](err); ok {
		return err
	}

	// The pipe ends before the command does, and how the command ends is what matters.
	timer := time.NewTimer(time.Second + stopGrace)
	defer timer.Stop()
	select {
	case <-w.service.Done():
	case <-timer.C:
		return err
	}

	if ended := w.service.Err(); ended != nil {
		return fmt.Errorf("%w; %w", err, ended)
	}

	return err
}

// A malformedError describes unreadable input from a source.
type malformedError struct{ error }

// A lineFilter is the standard output of a command without the lines that are not messages, since many
// programs print greetings or logs there. A message that is not JSON ends it with an error.
type lineFilter struct {
	io.Closer
	in     *bufio.Reader
	stray  func(line string) // receives lines that are not messages
	unread []byte            // rest of the current message
}

func newLineFilter(from io.ReadCloser, stray func(string)) *lineFilter {
	return &lineFilter{Closer: from, in: bufio.NewReaderSize(from, 64<<10), stray: stray}
}

// Read implements io.Reader.
func (f *lineFilter) Read(p []byte) (int, error) {
	for len(f.unread) == 0 {
		line, err := f.line()
		if err != nil {
			return 0, err
		}
		first := jsontext.First(line)
		switch {
		case first != '{' && first != '[' || !bytes.Contains(line, []byte(`"jsonrpc"`)):
			// Some programs log objects without "jsonrpc", which may have their own id and result.
			f.stray(shown(line))
		case json.Valid(line):
			f.unread = line
		default:
			fault := json.Unmarshal(line, new(json.RawMessage))
			return 0,
				malformedError{fmt.Errorf("its answer is not JSON: %v; a message is one line without NaN or "+
					"Infinity: %q", fault, shown(line))}
		}
	}
	n := copy(p, f.unread)
	f.unread = f.unread[n:]
	return n, nil
}

func shown(line []byte) string { return process.Tail(string(line[:min(len(line), 300)]), 300) }

// line reads a line, with its line break.
func (f *lineFilter) line() (line []byte, err error) {
	for {
		part, err := f.in.ReadSlice('\n')
		if len(line)+len(part) > maxMessage {
			return nil,
				malformedError{fmt.Errorf("it sends a message of more than %d bytes, which is the maximum line length",
					maxMessage)}
		}
		line = append(line, part...)
		switch {
		case err == nil, errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
