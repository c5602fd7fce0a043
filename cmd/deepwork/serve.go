package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"deepwork/catalog/config"
	"deepwork/cmd/deepwork/clients"
	"deepwork/cmd/deepwork/docs"
	"deepwork/session"
	"deepwork/session/show"
	"deepwork/transport"
	"deepwork/transport/web"
)

// closeTimeout is how long the parts of a server may take to stop, after the transport's grace period for calls in
// flight.
const closeTimeout = 5 * time.Second

// stopTimeout replaces it after a signal: the sender kills a process that takes longer, clients of
// stdio after some 2 s, containers after 10.
const stopTimeout = 2 * time.Second

// stopPatience is how long a stdio server that was asked to stop ignores further signals: its client's wrapper (npx, a
// shell) forwards a signal that the terminal has already sent, and the server stops within that time anyway. A network
// server gives its calls 5 s; a second signal from the person who started it ends it at once.
const stopPatience = 3 * time.Second

const transportStdio = "stdio"

// transports are the values of --transport.
var transports = []string{transportStdio, web.SSE, web.HTTP}

// serveFlags are the options of seed 001 "Server CLI Options", and our own.
type serveFlags struct {
	transport      string
	network        networkFlags
	qualityGate    string
	noQualityGate  bool
	externalRunner string
	override       string
	pin            bool
	toolsets       []string
	platform       string // of the Python DeepWork; has no effect
	log            logFlags
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	cmd := a.onProject("", &cobra.Command{
		Use:   "serve",
		Short: "Run the MCP server",
		Long: `Run the MCP server of a project, and log to stderr.

With --transport stdio, the default, it speaks MCP with one client on stdin and
stdout, and ends when stdin ends. With http (streamable HTTP, at /mcp) or sse (at
/sse; deprecated in MCP, so use http for clients that have it) many clients connect to
--host and --port; the log says "listening" with the URL. With http the web UI of the
project is at /; see also "deepwork ui". Both have /healthz, /readyz and /metrics.
Callers from other machines, through a proxy, and other users of this machine need a
bearer token: see "deepwork token new". On macOS and Windows, which do not report who
owns a connection, you need one too: see "deepwork token show".

Without --path, and with "--path .", it serves the project around the current directory,
else the one of the client (CLAUDE_PROJECT_DIR).

On SIGINT or SIGTERM it finishes the calls in flight (with http and sse within 5 s),
stops its reviewers, and ends within 10 s. A second signal ends it at once; with stdio
only one that comes more than 3 s after the first.`,
		Example: `  deepwork serve
  deepwork serve --transport http --port 8000`,
		Args: argumentCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			return a.serve(f)
		},
	})
	flags := cmd.Flags()
	flags.StringVar(&f.transport, "transport", "stdio",
		"how clients connect: "+strings.Join(transports, ", ")+" (deprecated: sse)")
	f.network.register(cmd)
	flags.StringVar(&f.qualityGate, "quality-gate", "", "`command` that reviews outputs (overrides the config)")
	flags.BoolVar(&f.noQualityGate, "no-quality-gate", false,
		"finish steps without reviews (wins over every other setting)")
	flags.StringVar(&f.externalRunner, "external-runner", "",
		"who reviews: claude (default: as configured, else a subagent that the agent asks)")
	flags.StringVar(&f.override, "override", "",
		"who may override a review: "+strings.Join(config.Overrides, ", ")+" (default: as configured, else agent)")
	flags.BoolVar(&f.pin, "pin", false, "sessions keep to the reviewer and the criteria that they began with")
	flags.StringSliceVar(&f.toolsets, "toolsets", nil, "toolsets to offer, from "+strings.Join(config.Toolsets, ",")+
		" (default: as configured, else "+strings.Join(config.DefaultToolsets, ",")+")")
	flags.StringVar(&f.platform, "platform", "",
		"accepted for configs that other versions of DeepWork wrote, and ignored")
	_ = flags.MarkHidden("platform")

	_ = cmd.RegisterFlagCompletionFunc("transport",
		cobra.FixedCompletions(transports, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("external-runner",
		cobra.FixedCompletions(transport.ExternalRunners, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("override",
		cobra.FixedCompletions(config.Overrides, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("toolsets",
		cobra.FixedCompletions(config.Toolsets, cobra.ShellCompDirectiveNoFileComp))
	f.log.register(cmd, "info")
	return cmd
}

// check refuses invalid flags before anything is started.
func (f *serveFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	switch {
	case !slices.Contains(transports, f.transport):
		return usagef(cmd, "--transport %q is not offered; there is %s", f.transport, strings.Join(transports, ", "))
	case f.externalRunner != "" && f.externalRunner != "claude":
		return usagef(cmd, "--external-runner %q is not one of claude", f.externalRunner)
	case given("quality-gate") && strings.TrimSpace(f.qualityGate) == "":
		return usagef(cmd, "--quality-gate needs a command; --no-quality-gate turns reviews off")
	case given("override") && !slices.Contains(config.Overrides, f.override):
		return usagef(cmd, "--override %q is not one of %s", f.override, strings.Join(config.Overrides, ", "))
	case f.externalRunner != "" && f.qualityGate != "":
		return usagef(cmd, "--external-runner and --quality-gate both name a reviewer; give one of them")
	case given("toolsets") && len(f.toolsets) == 0:
		return usagef(cmd, "--toolsets is empty; give one or more of %s", strings.Join(config.Toolsets, ", "))
	}
	for _, set := range f.toolsets {
		if !slices.Contains(config.Toolsets, set) {
			return usagef(cmd, "--toolsets: %q is not one of %s", set, strings.Join(config.Toolsets, ", "))
		}
	}
	if err := f.network.check(cmd, f.transport); err != nil {
		return err
	}
	return f.log.check(cmd)
}

// serve runs the server until a signal arrives or, with stdio, stdin ends.
func (a *app) serve(f serveFlags) error {
	patience := stopPatience
	if f.transport != transportStdio {
		patience = 0
	}
	ctx, stop := interruptible(context.Background(), patience)
	defer stop()
	defer surviveBrokenPipes()()
	return a.serveUntil(ctx, f)
}

// serveUntil is serve until ctx ends, which a signal does.
func (a *app) serveUntil(ctx context.Context, f serveFlags) (err error) {
	root, notice, refusal, err := a.servedRoot()
	if err != nil {
		return err
	}

	logger, closeLog, err := f.log.open(a.err)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()

	a.traced(ctx, root, logger)
	version := readBuild().Version
	server, err := transport.NewServer(transport.Options{
		ProjectRoot:        root,
		Notice:             notice,
		Refusal:            refusal,
		EnableQualityGate:  new(!f.noQualityGate),
		ExternalRunner:     f.externalRunner,
		QualityGateCommand: f.qualityGate,
		Override:           config.Override(f.override),
		Pin:                f.pin,
		Toolsets:           f.toolsets,
		Store:              a.store,
		Project:            a.project,
		Logger:             logger,
		Version:            version,
		Help:               docs.Files,
	})
	if err != nil {
		return fmt.Errorf("starting the server: %w", err)
	}
	run, err := a.openTransport(ctx, server, f, logger)
	if err != nil && ctx.Err() != nil {
		logger.Info("asked to stop before it served")
		return closeServer(server, logger, stopTimeout)
	}
	if err != nil {
		return errors.Join(err, closeServer(server, logger, closeTimeout))
	}
	if f.platform != "" {
		logger.Info("--platform is ignored: every client is served alike", "platform", f.platform)
	}
	logger.Info("server started", "root", root, "transport", f.transport, "version", version, "pid", os.Getpid())
	if f.transport == web.SSE {
		logger.Warn("the transport sse is deprecated in MCP: use --transport http for clients that have it")
	}
	defer context.AfterFunc(ctx, func() {
		logger.Info("asked to stop: finishing the calls in flight")
	})()

	serveErr := run(ctx)
	if ctx.Err() == nil {
		return errors.Join(serveErr, closeServer(server, logger, closeTimeout))
	}

	// After a signal, stopping is no error: parts that did not stop in time are named, and end with the process.
	if serveErr != nil && !errors.Is(serveErr, context.Canceled) {
		logger.Error("not everything stopped in time", "error", serveErr)
	}
	if err := closeServer(server, logger, stopTimeout); err != nil {
		logger.Error("not everything stopped in time", "error", err)
	}
	return nil
}

// openTransport opens the transport and returns the function that serves it until ctx ends.
func (a *app) openTransport(
	ctx context.Context, server *transport.Server, f serveFlags, logger *slog.Logger,
) (run func(context.Context) error, err error) {
	if f.transport != transportStdio {
		f.network.Transport = f.transport
		listening, err := server.Listen(ctx, f.network.Options)
		if err != nil {
			return nil, fmt.Errorf("starting the server: %w", err)
		}
		logger.Info("listening", "url", listening.URL())
		a.sayWaiting(listening.URL())
		return listening.Serve, nil
	}
	return func(ctx context.Context) error {
		a.sayWaiting("")
		return server.ServeStdio(ctx, inStream(a.in), outStream(a.rawOut))
	}, nil
}

// closeServer stops the parts of the server within a time and reports those that did not stop.
func closeServer(server *transport.Server, logger *slog.Logger, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := server.Close(ctx); err != nil {
		return fmt.Errorf("stopping the server: %w", err)
	}
	logger.Info("server stopped")
	return nil
}

// interruptible returns a context that the first SIGINT or SIGTERM cancels. A signal after patience
// has no handler any more and ends the process at once; one before that is ignored: a wrapper (npx,
// a shell) forwards a signal that the terminal has already sent.
func interruptible(parent context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(patience, stop) })
	return ctx, stop
}

// surviveBrokenPipes makes a write to a client that is gone return an error instead of ending the
// process: the server stops properly and ends its reviewers. The signal is caught, not ignored,
// since children inherit ignored signals. The returned function undoes it.
func surviveBrokenPipes() (undo func()) {
	unread := make(chan os.Signal, 1)
	signal.Notify(unread, syscall.SIGPIPE)
	return func() { signal.Stop(unread) }
}

// inStream returns stdin for a transport. On Linux a pipe is opened a second time in non-blocking mode, which does not
// affect others that share the pipe: a thread blocked in a read keeps its processor for a while, and with it the
// message that it has just read.
func inStream(r io.Reader) io.ReadCloser {
	if file, ok := r.(*os.File); ok && runtime.GOOS == "linux" {
		if fi, err := file.Stat(); err == nil && fi.Mode()&os.ModeNamedPipe != 0 {
			again, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(file.Fd())), os.O_RDONLY|syscall.O_NONBLOCK, 0)
			if err == nil {
				return again
			}
		}
	}
	return io.NopCloser(r)
}

// outStream gives a stream the Close that transports require.
func outStream(w io.Writer) io.WriteCloser {
	if c, ok := w.(io.WriteCloser); ok {
		return c
	}
	return struct {
		io.Writer
		io.Closer
	}{w, io.NopCloser(nil)}
}

// sayWaiting tells a person who started a server at a terminal what it waits for, and how to connect
// a client. url is "" for a server on stdin and stdout.
func (a *app) sayWaiting(url string) {
	if _, _, ok := show.TerminalSize(a.in); !ok {
		return
	}

	waits := "Waiting for an MCP client on stdin. There is nothing to type here: a client starts this command " +
		"itself. To have one do that, end this with Ctrl-C, run the following, and start the client:"
	command := "deepwork init"
	if a.path != "" {
		command += " --path " + session.InShell(a.path)
	}
	if url != "" {
		waits = "Waiting for clients at " + url +
			". To connect one, run this in another terminal, and then start the client:"
		command += " --url " + url
	}
	a.err.Prose(waits)
	a.err.Text("", fmt.Sprintf("\n  %s [--client %s]\n", command, strings.Join(clients.Names(), "|")))
}

// networkFlags are the flags of serve for http and sse.
type networkFlags struct{ web.Options }

// networkOnly lists their names.
var networkOnly = []string{"host", "port", "token-file", "tls-cert", "tls-key", "allowed-host", "allowed-origin",
	"base-path", "read-only"}

func (f *networkFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Host, "host", web.DefaultHost,
		"address to listen on; if it is not loopback, callers need a token")
	flags.IntVar(&f.Port, "port", 8000, "port to listen on; 0 picks a free one")
	flags.StringVar(&f.TokenFile, "token-file", "",
		"`file` of lines name:sha256[:group[:rights]], each a token of a caller; read again when it changes")
	flags.StringVar(&f.TLSCert, "tls-cert", "", "PEM `file` of the certificate chain, for https")
	flags.StringVar(&f.TLSKey, "tls-key", "", "PEM `file` of its key")
	flags.StringSliceVar(&f.AllowedHosts, "allowed-host", nil,
		"`name` to accept as Host, in addition to the address of the server; needs tokens")
	flags.StringSliceVar(&f.AllowedOrigins, "allowed-origin", nil,
		"`origin` of web pages that may call the server, such as https://app.example.com")
	flags.StringVar(&f.BasePath, "base-path", "",
		"`path` below which a proxy serves the server, such as /deepwork, if it does not send X-Forwarded-Prefix")
	flags.BoolVar(&f.ReadOnly, "read-only", false,
		"the pages at / cannot change anything (http); agents are not affected")
}

// check refuses flags that cannot be combined.
func (f *networkFlags) check(cmd *cobra.Command, over string) error {
	given := cmd.Flags().Changed
	for _, name := range networkOnly {
		if over == transportStdio && given(name) {
			return usagef(cmd, "--%s goes with a network transport; leave it out with --transport %s", name, over)
		}
	}

	for i, name := range f.AllowedHosts {
		var err error
		if f.AllowedHosts[i], err = config.HostName(name); err != nil {
			return usagef(cmd, "--allowed-host %q %v", name, err)
		}
	}

	for i, name := range f.AllowedOrigins {
		var err error
		if f.AllowedOrigins[i], err = config.Origin(name); err != nil {
			return usagef(cmd, "--allowed-origin %q %v", name, err)
		}
	}

	base, valid := web.BasePath(f.BasePath)
	if !valid {
		return usagef(cmd, "--base-path %q is not a path such as /deepwork: it begins with a slash, and has letters, "+
			"digits and . _ ~ -", f.BasePath)
	}
	f.BasePath = base
	switch {
	case f.ReadOnly && over != web.HTTP:
		return usagef(cmd, "--read-only is about the pages at /, which only --transport %s has", web.HTTP)
	case f.Port < 0 || f.Port > 65535:
		return usagef(cmd, "--port %d is not a port: it is 0 to 65535", f.Port)
	case strings.TrimSpace(f.Host) == "":
		return usagef(cmd, "--host is empty; give an address, or 0.0.0.0 for all of this machine's")
	case given("token-file") && f.TokenFile == "":
		return usagef(cmd, "--token-file is empty; give the path of a file")
	case (f.TLSCert == "") != (f.TLSKey == ""):
		return usagef(cmd, "--tls-cert and --tls-key go together; give both or neither")
	}

	return nil
}
