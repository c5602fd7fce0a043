package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"deepwork/actor/process"
	"deepwork/catalog/config"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A commandWire is a source that this server runs, over stdio.
type commandWire struct {
	service *process.Service
	stray   func(line string) // receives lines of its standard output that are not messages
	cutting context.Context   // ended by cut, to end the command at once
	cut     context.CancelFunc
	ending  sync.WaitGroup
}

// startCommand starts a source in the project root, program being the path of its command's. Its
// standard error is logged at debug.
func startCommand(s *config.WorkflowSource, program, root string, logger *slog.Logger) (*commandWire, error) {
	env := environment(os.Environ(), s.PassEnv)
	for name, value := range s.Env {
		env = append(env, name+"="+value)
	}
	service, err := process.Serve(process.Spec{
		Command: append([]string{program}, s.Command[1:]...), Dir: root, Env: env, Grace: stopGrace,
	}, func(line string) { logger.Debug("a source writes", "line", process.Tail(line, 1000)) })
	if err != nil {
		return nil, err
	}
	level := slog.LevelWarn                                        // once per connection
	w := &commandWire{service: service, stray: func(line string) { // one goroutine calls it
		logger.Log(context.Background(), level, "a source writes what is no message to its standard output; its standard error is the place for that", "line", line)
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
	"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "APPDATA", "LOCALAPPDATA", "USERPROFILE",
	"USERNAME", "HOMEDRIVE", "HOMEPATH", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PROCESSOR_ARCHITECTURE", "NUMBER_OF_PROCESSORS",
}

// environment returns what a source gets of this process's: not what is secret there,
// unless its entry asks for it.
func environment(all, more []string) []string {
	if slices.Contains(more, "*") {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !slices.ContainsFunc(slices.Concat(passed, more), func(p string) bool {
			if prefix, is := strings.CutSuffix(p, "*"); is {
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
		Reader: newLineFilter(w.service.Stdout, w.stray), Writer: w.service.Stdin, MaxLineLength: -1, // the filter has one
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
	// The pipe ends before the command does; how the command ends is what matters.
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
