package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/actor/process"
	"deepwork/cmd/deepwork/docs"
	"deepwork/session/show"
	"deepwork/transport"
	"deepwork/transport/web"
)

// uiFlags are the options of deepwork ui.
type uiFlags struct {
	port     int
	readOnly bool
	noOpen   bool
	log      logFlags
}

func (a *app) uiCommand() *cobra.Command {
	var f uiFlags
	cmd := a.onProject("", &cobra.Command{
		Use:   "ui",
		Short: "Open a project in the browser: what is running, sessions, the board",
		Long: `Serve the pages of a project on this machine, and print their URL: what is running and what
needs you, sessions, the task board, jobs, sources. In a graphical session the URL is
opened in your browser. Other servers of the project may run at the same time, here or, with
a shared store, elsewhere. The URL logs in one browser, once, as the person at this
terminal, and stops working when the command ends. To look from another machine, forward the port under
the same number: ssh -L 8765:127.0.0.1:8765 HOST deepwork ui --port 8765 --path DIR

serve --transport http has the same pages at /.`,
		Example: `  deepwork ui
  deepwork ui --port 8765 --read-only`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.port < 0 || f.port > 65535 {
				return usagef(cmd, "--port %d is not a port: it is 0 to 65535", f.port)
			}
			if err := f.log.check(cmd); err != nil {
				return err
			}
			return a.ui(f)
		},
	})
	flags := cmd.Flags()
	flags.IntVar(&f.port, "port", 0, "port to listen on (default: a free one)")
	flags.BoolVar(&f.readOnly, "read-only", false, "show everything and change nothing")
	flags.BoolVar(&f.noOpen, "no-open", false, "print the URL and do not open it")
	f.log.register(cmd, "warn")
	return cmd
}

// ui serves the pages until a signal arrives.
func (a *app) ui(f uiFlags) (err error) {
	root, err := a.projectRoot()
	if err != nil {
		return err
	}
	logger, closeLog, err := f.log.open(a.err)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	ctx, stop := interruptible(context.Background(), 0)
	defer stop()
	server, err := transport.NewServer(transport.Options{ProjectRoot: root, Store: a.store, Project: a.project, Logger: logger, Version: readBuild().Version, Help: docs.Files})
	if err != nil {
		return fmt.Errorf("opening the project: %w", err)
	}
	defer func() { err = errors.Join(err, closeServer(server, logger, closeTimeout)) }()
	secret := rand.Text()
	pages, err := server.Listen(ctx, web.Options{Port: f.port, Secret: secret, ReadOnly: f.readOnly})
	if err != nil {
		return fmt.Errorf("serving the pages: %w", err)
	}
	url := strings.TrimSuffix(pages.URL(), "/mcp") + "/login?secret=" + secret
	fmt.Fprintln(a.out, url)
	a.err.Prose("Open this URL in a browser on this machine: it logs in one browser, once, and stops working when this command ends (Ctrl-C).")
	if _, _, person := show.TerminalSize(a.rawOut); person && !f.noOpen && hasScreen(os.Getenv) {
		if err := openInBrowser(url); err != nil {
			fmt.Fprintf(a.err, "deepwork: could not open a browser (%v): open the URL yourself\n", err)
		}
	}
	if err := pages.Serve(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("serving the pages: %w", err)
	}
	return nil
}

// hasScreen reports whether a browser that is opened here can be seen.
func hasScreen(getenv func(string) string) bool {
	switch runtime.GOOS {
	case "darwin", "windows":
		return getenv("SSH_CONNECTION") == ""
	}
	return getenv("DISPLAY") != "" || getenv("WAYLAND_DISPLAY") != ""
}

// openInBrowser opens a URL with the program of this system for that. Where other users see the arguments
// of programs, the URL is not among them, or the server knows whose a connection is.
func openInBrowser(url string) error {
	command, input := []string{"xdg-open", url}, ""
	switch runtime.GOOS {
	case "darwin":
		command, input = []string{"osascript"}, fmt.Sprintf("open location %q\n", url)
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler", url}
	}
	program, err := process.Look(command[0]) // not one of the project
	if err != nil {
		return err
	}
	open := exec.Command(program, command[1:]...)
	open.Stdin = strings.NewReader(input)
	show.Apart(open) // Ctrl-C here does not end a browser that it has started
	if err := open.Start(); err != nil {
		return err
	}
	go func() { _ = open.Wait() }() // it may last as long as the browser
	return nil
}
