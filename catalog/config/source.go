package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/telemetry"
	"deepwork/actor/wait"
	"deepwork/catalog/internal/follow"
)

// A Source serves the config of one project and follows edits of its files: the project's own, and the
// user's, which takes precedence. Its methods may be called from any goroutine.
type Source struct {
	// Logger logs each bad edit once; nil means slog.Default. It must be set before the first call
	// of Current.
	Logger *slog.Logger
	// Approve returns which parts of the project's config are in force. Each call of Current calls it, and it
	// returns the same pointer while nothing changes. nil approves everything. It must be set before the
	// first call of Current.
	Approve func(project *Config, user *User) *Approval

	project  file[Config]
	user     file[User]
	composed atomic.Pointer[composed]
}

// composed is a config with the files from which it was made.
type composed struct {
	project  *Config
	user     *User
	approval *Approval
	result   *Config
}

// Open returns the source of a project; root must be absolute. It does not touch the disk: a bad file is an
// error of Current, not of Open.
func Open(root string) *Source {
	s := &Source{}
	path := filepath.Join(root, ".deepwork", FileName)

	// A file elsewhere may contain secrets, which messages about its errors would quote.
	s.project.open(path, Default(), func() error {
		return durable.Inside(root, path)
	}, func(data []byte) (*Config, error) {
		c, faults := Parse(FileName, data)
		return c, faults.Err()
	})
	s.user.open(UserFile(), &User{}, func() error {
		if fi, err := os.Stat(UserFile()); err == nil { // an unreadable file is reported elsewhere
			// in that case the file is ignored, whatever it says (cmd/deepwork/docs/reference/security.md)
			if fault := durable.FaultOf("it", fi); fault != "" {
				return errors.New(fault)
			}
		}
		return nil
	}, func(data []byte) (*User, error) {
		u, faults := ParseUser(FileName, data)
		return u, faults.Err()
	})

	return s
}

// Path returns the absolute path of the project's file.
func (s *Source) Path() string { return s.project.path }

// Current returns the config in the current files, including every write that ended before the call (DESIGN
// "Configuration"). If nothing changed, it costs one stat per file and does not lock. Otherwise it reads the
// file, and waits while that is being written: about 10 ms, 50 ms if it looks like half of a save, at most
// 200 ms, or until ctx ends. A bad edit is logged once, and Current returns the last good config. It also
// does so for 500 ms while the file is missing, empty, or the beginning of the last good one, as during a
// save. If there was no good content since the start, the error holds the job.Diagnostics with line and
// reason. A missing file gives the defaults.
func (s *Source) Current(ctx context.Context) (*Config, error) {
	logger := cmp.Or(s.Logger, slog.Default())
	project, err := s.project.current(ctx, logger)
	if err != nil {
		return nil, err
	}

	user, err := s.user.current(ctx, logger)
	if err != nil {
		return nil, err
	}

	approval := noApproval
	if s.Approve != nil {
		approval = s.Approve(project, user)
	}
	if c := s.composed.Load(); c != nil && c.project == project && c.user == user && c.approval == approval {
		return c.result, nil
	}
	c := &composed{project, user, approval, nil}
	if w := approval.Withheld; w != nil && w.Denied {
		c.result = approval.apply(user.Over(project)) // without what the user's own config would run in the project
		c.result.Sessions = user.Over(c.result).Sessions
	} else {
		c.result = user.Over(approval.apply(project))
	}
	if approval.Unapproved() {
		c.result.Wanted = user.Over(project)
	}

	s.composed.Store(c)
	return c.result, nil
}

// Own returns the user's own config as it is now, whatever the project's says.
func (s *Source) Own(ctx context.Context) (*User, error) {
	return s.user.current(ctx, cmp.Or(s.Logger, slog.Default()))
}

// Telemetry returns the telemetry settings of the user's current config, or the default if that has an error.
func (s *Source) Telemetry(ctx context.Context) Telemetry {
	own, err := s.Own(ctx)
	if err != nil {
		own = &User{}
	}
	return own.Over(Default()).Telemetry
}

// User returns the user's own config as Current last read it. It does not touch the disk.
func (s *Source) User() *User {
	if c := s.composed.Load(); c != nil {
		return c.user
	}
	return &User{}
}

// Refused returns what is wrong with the files as Current last read them, with line and reason, while an
// earlier content stays in use. nil means that the files themselves are in use, or none is. It does not touch
// the disk, and never blocks.
func (s *Source) Refused() error {
	return errors.Join(s.project.refused(), s.user.refused())
}

// WorkflowTools configures the tools made from the workflows of other systems (key workflow_tools;
// seed 003, requirement 4).
type WorkflowTools struct {
	Enabled bool `yaml:"enabled"` // default true
	// path.Match globs on a workflow's name; none means all
	Include []string `yaml:"include" each:"glob"`
	Exclude []string `yaml:"exclude" each:"glob"`
	// prefixed to every tool's name: at most 32 letters, digits, '_' and '-'
	Prefix string `yaml:"prefix" as:"prefix"`
	// default 5 min; 0 means only on request or notification
	RefreshInterval time.Duration `yaml:"refresh_interval" min:"100ms" zero:"never"`
	// 0 means none; nil means 5 min, or none if an agent or a person performs the steps
	ExecutionTimeout *time.Duration `yaml:"execution_timeout"`
	// 0 means that a call waits for the end; nil means 0, or 50 s if an agent or a person performs the steps
	ReplyWithin    *time.Duration `yaml:"reply_within"`
	StatusInterval time.Duration  `yaml:"status_interval" min:"10ms"`                    // default 2 s
	MaxConcurrent  int            `yaml:"max_concurrent_executions" min:"1" max:"10000"` // default 10
	KeepToolsFor   time.Duration  `yaml:"keep_tools_for"`                                // default 1 min
	// for a failed query; default 3
	RetryAttempts int              `yaml:"retry_attempts" max:"10000"`
	ExposeJobs    bool             `yaml:"expose_jobs"` // default false
	Sources       []WorkflowSource `yaml:"sources" is:"a list of sources, each with a name and a command or a url"`
}

// A WorkflowSource is an MCP server that offers workflows: either a command to run or a URL.
type WorkflowSource struct {
	// 1 to 64 letters, digits, '.', '_' and '-'
	Name    string   `yaml:"name" as:"source name" unique:"" add:"a name"`
	Command []string `yaml:"command" as:"command"` // run in the project root, over stdio
	// in addition to the variables that every source gets
	Env map[string]string `yaml:"env" keys:"variable" each:"one line"`
	// names of more variables to pass from the server; "*" means all
	PassEnv []string `yaml:"pass_env" each:"variable"`
	URL     string   `yaml:"url" as:"server url"` // streamable HTTP
	// may contain ${NAME}, replaced from the environment at each connection
	Headers map[string]string `yaml:"headers" keys:"header" each:"one line"`
	// ExecutionTimeout is the source's own timeout; nil means WorkflowTools.ExecutionTimeout.
	ExecutionTimeout *time.Duration `yaml:"execution_timeout"`
	ListTool         string         `yaml:"list_tool" as:"tool" default:"workflows-list-tool"`
	ExecuteTool      string         `yaml:"execute_tool" as:"tool" default:"workflows-execute-tool"`
	StatusTool       string         `yaml:"status_tool" as:"tool" default:"workflows-status-tool"`
	CancelTool       string         `yaml:"cancel_tool" as:"tool" default:"workflows-cancel-tool"`
	// path.Match globs for the names of its tools that become tools here
	Tools []string `yaml:"tools" each:"glob"`
}

var variable = regexp.MustCompile(`\$\{([^}]*)\}`)

// Secrets returns the names of the environment variables that no reviewer, agent or setup command gets: those
// used in headers of sources, and those of the telemetry receiver.
func (c *Config) Secrets() []string {
	all := telemetry.Secrets()
	for _, s := range c.WorkflowTools.Sources {
		for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
			for _, m := range variable.FindAllStringSubmatch(s.Headers[name], -1) {
				all = append(all, m[1])
			}
		}
	}
	return all
}

// CheckServerURL returns what is wrong with the URL of an MCP server, or "". The text does not contain the
// URL, which may have a password.
func CheckServerURL(s string) string {
	u, err := url.Parse(s)
	if err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		err = errors.New("it must begin with http:// or https:// and a host")
	}
	if err == nil && u.User != nil {
		err = errors.New("it has a user or password in it; give them in headers, from the environment")
	}
	if err != nil {
		return "is not the URL of a server: " + strings.ReplaceAll(err.Error(), cmp.Or(s, "\x00"), "…")
	}

	return ""
}

// A file follows edits of one config file, whose content is a *T. Its methods may be called from any
// goroutine.
type file[T any] struct {
	path    string
	format  follow.Format[T]
	state   atomic.Pointer[follow.File[T]]
	turn    chan struct{} // capacity 1, never closed: full while a call reads the file
	missing *T            // the content to use if the file is missing
}

// open returns a file for a path. It does not touch the disk. refuse is the Refuse of follow.Format.
func (s *file[T]) open(path string, missing *T, refuse func() error, parse func(data []byte) (*T, error)) {
	s.path = path
	s.missing = missing
	s.turn = make(chan struct{}, 1)
	s.format = follow.Format[T]{Limit: MaxBytes, Grace: follow.SaveBound, Refuse: refuse, Unreadable: s.unreadable,
		Parse: func(data []byte) (*T, error) {
			c, err := parse(data)
			if err != nil {
				return nil, s.refusal(err)
			}
			return c, nil
		}}
	s.state.Store(&follow.File[T]{Track: follow.Track{Path: follow.Path(path)}})
}

// current returns the current content; see Source.Current.
func (s *file[T]) current(ctx context.Context, logger *slog.Logger) (*T, error) {
	if f := s.state.Load(); !s.stale(f) {
		return s.result(f)
	}

	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for %s to be read: %w", s.path, ctx.Err())
	}

	for left := follow.Bound; ; {
		old := s.state.Load()
		if !s.stale(old) {
			return s.result(old)
		}
		f := old.Look(&s.format)
		s.log(logger, old.Bad, f)
		s.state.Store(f)
		if f.Phase != follow.Moving || left <= 0 {
			return s.result(f)
		}
		pause := min(time.Until(f.Due), left)
		if err := wait.For(ctx, pause); err != nil {
			return nil, fmt.Errorf("waiting for %s, which is being written: %w", s.path, err)
		}
		left -= max(pause, time.Millisecond)
	}
}

func (s *file[T]) stale(f *follow.File[T]) bool { return f.Stale() || f.Awake(time.Now()) }

func (s *file[T]) result(f *follow.File[T]) (*T, error) {
	switch {
	case f.Good != nil:
		return f.Good, nil
	case f.Bad != nil:
		return nil, f.Bad
	case f.Phase == follow.Moving:
		return nil, s.refusal(errBeingWritten)
	}
	return s.missing, nil
}

var errBeingWritten = errors.New("it is being written all the time; call again when that is over")

// refused returns what is wrong with the file as last read, while an earlier content stays in use.
func (s *file[T]) refused() error {
	if f := s.state.Load(); f.Good != nil && f.Bad != nil {
		return errors.Unwrap(f.Bad)
	}
	return nil
}

func (s *file[T]) unreadable(st follow.Stamp, err error) error {
	switch {
	case st.Kind != follow.Regular:
		err = errors.New("it is not a file that can be read")
	case st.Size > MaxBytes:
		err = fmt.Errorf("it has %d bytes, more than the %d that are read", st.Size, MaxBytes)
	default:
		if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
			err = pathErr.Err // the message already contains the path
		}
	}

	return s.refusal(err)
}

// refusal returns the error of calls while the file is not used. It wraps the reason.
func (s *file[T]) refusal(reason error) error {
	return fmt.Errorf("the configuration %s is not valid; correct it and call again: %w", s.path, reason)
}

// log logs a bad edit, and the end of that, once each.
func (s *file[T]) log(logger *slog.Logger, was error, f *follow.File[T]) {
	switch {
	case f.Bad != nil && (was == nil || was.Error() != f.Bad.Error()):
		what := "configuration refused; the last good one stays in use"
		if f.Good == nil {
			what = "configuration refused; calls are, too, until it is corrected"
		}
		logger.Error(what, "file", s.path, "error", errors.Unwrap(f.Bad))
	case f.Bad == nil && was != nil:
		logger.Info("configuration is good again", "file", s.path)
	}
}
