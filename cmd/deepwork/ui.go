package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"deepwork/actor/durable"
	"deepwork/actor/process"
	"deepwork/cmd/deepwork/docs"
	"deepwork/session/board"
	"deepwork/session/show"
	"deepwork/session/state"
	"deepwork/transport"
	"deepwork/transport/page"
	"deepwork/transport/web"
)

// uiFlags are the options of deepwork ui.
type uiFlags struct {
	port     int
	anyPort  bool // no port was given
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
terminal, and stops working when the command ends.

A project has a port of its own, and another one with --read-only: an open page finds its server again
when that was restarted, and what was typed is still there. On Linux the browser stays logged in, too.
If deepwork ui runs there already, the URL that this one prints is of that. If another program has the port,
no other is taken: end that program, or give --port. To look from another machine, forward the port under the
same number: ssh -L 8765:127.0.0.1:8765 HOST deepwork ui --port 8765

Outside of a project it shows what needs you in all of your projects, at any port, and serves the pages of
those you choose, too. A project whose folder isn't the current one: --path DIR.

serve --transport http has the same pages at /.`,
		Example: `  deepwork ui
  deepwork ui --port 8765 --read-only`,
		Args: argumentCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.anyPort = !cmd.Flags().Changed("port")
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
	flags.IntVar(&f.port, "port", 0, "port to listen on; 0 is any free one (default: the project's own)")
	flags.BoolVar(&f.readOnly, "read-only", false, "show everything and change nothing")
	flags.BoolVar(&f.noOpen, "no-open", false, "print the URL and do not open it")
	f.log.register(cmd, "warn")
	return cmd
}

// ui serves pages until a signal arrives: of the project or, outside of any, of those that are chosen.
func (a *app) ui(f uiFlags) (err error) {
	root, err := a.projectRoot()
	if err != nil {
		return err
	}

	if err := byPerson(); err != nil && !f.readOnly {
		f.readOnly = true
		a.err.Prose("The pages change nothing: " + err.Error())
	}
	logger, closeLog, err := f.log.open(a.err)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()

	ctx, stop := interruptible(context.Background(), 0)
	defer stop()
	u := &ui{app: a, flags: f, logger: logger, chosen: map[string]http.Handler{}, watched: map[string]*board.Board{}}
	defer func() { err = errors.Join(err, u.close()) }()

	var pages *web.Server
	options := web.Options{Port: f.port, Secret: rand.Text(), ReadOnly: f.readOnly}
	none := canBegin(root)
	if a.path == "" && a.project == "" && needsProject(root) {
		here := root
		if none != nil {
			here = "" // such as the home folder
		}
		pages, err = transport.ListenProjects(ctx, logger, page.Chooser{
			Here:    here,
			List:    state.Projects,
			Watch:   u.watch,
			Open:    u.project,
			Help:    docs.Files,
			Version: readBuild().Version,
		}, options)
	} else if none != nil {
		return none
	} else {
		pages, err = u.listen(ctx, root, &options)
	}
	if err != nil {
		return fmt.Errorf("serving the pages: %w", err)
	}
	if pages == nil {
		if err := web.AddSecret(options.LoginFile, options.Secret); err != nil {
			return fmt.Errorf("asking the deepwork ui that runs to let a browser in: %w", err)
		}
		a.openPages(fmt.Sprintf("http://%s:%d", web.DefaultHost, options.Port), options.Secret, f.noOpen,
			"These pages are served by the deepwork ui that runs already. This URL logs in one browser, once, and "+
				"ends the login of another.")
		return nil
	}

	a.openPages(strings.TrimSuffix(pages.URL(), "/mcp"), options.Secret, f.noOpen,
		"Open this URL in a browser on this machine: it logs in one browser, once, and stops working when this "+
			"command ends (Ctrl-C).")
	if err := pages.Serve(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("serving the pages: %w", err)
	}
	return nil
}

// openPages prints the URL that logs in at a server, says what it is, and opens it where a person sees that.
func (a *app) openPages(server, secret string, noOpen bool, what string) {
	url := server + "/login?secret=" + secret
	fmt.Fprintln(a.out, url)
	a.err.Prose(what)
	if _, _, person := show.TerminalSize(a.rawOut); person && !noOpen && hasScreen(os.Getenv) {
		if err := openInBrowser(url); err != nil {
			fmt.Fprintf(a.err, "deepwork: could not open a browser (%v): open the URL yourself\n", err)
		}
	}
}

// needsProject reports whether a folder is not a project, and there are others to choose from.
func needsProject(root string) bool {
	if _, err := os.Lstat(filepath.Join(root, ".deepwork")); err == nil {
		return false
	}

	f, err := state.Find(root)
	if err == nil {
		_, err = f.ID()
	}

	if !errors.Is(err, state.ErrMissing) && !errors.Is(err, state.ErrInside) {
		return false
	}

	others, _, err := state.Projects()
	return err == nil && len(others) > 0
}

// A ui is what deepwork ui serves: the pages of a project, or of those that are chosen.
type ui struct {
	*app
	flags  uiFlags
	logger *slog.Logger

	serving *durable.FileLock // the pages at a port; nil if no other deepwork ui has to know

	mu      sync.Mutex
	chosen  map[string]http.Handler // the pages of projects, by their folders
	servers []*transport.Server
	watched map[string]*board.Board // by the folders of their projects
	done    []func() error          // for each of these
}

// project returns the pages of a project, which it opens if they are chosen for the first time.
func (u *ui) project(root string, callers *web.Login) (http.Handler, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if pages := u.chosen[root]; pages != nil {
		return pages, nil
	}

	process.Avoid(root)
	server, err := u.server(root)
	if err != nil {
		return nil, err
	}
	pages, err := server.PagesAmongOthers(callers, u.flags.readOnly)
	if err == nil {
		u.chosen[root] = pages
	}
	return pages, err
}

// watch returns the board of a project, or nil while it has no database. At the first call it opens the board as a
// command does: nothing is started or taken over.
func (u *ui) watch(root string) (*board.Board, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if b := u.watched[root]; b != nil {
		return b, nil
	}

	folder, err := state.Find(root)
	if err != nil {
		return nil, err
	}
	engine, done, err := u.engineOf(context.Background(), folder, false, nil)
	if err != nil {
		return nil, err
	}
	if !engine.Stores.Database.Exists() {
		return nil, done()
	}
	b := board.New(board.Options{
		Root:   folder.Root,
		State:  folder,
		Config: approvedConfig(folder, slog.New(slog.DiscardHandler)).Current,
		Logger: u.logger,
		Stores: engine.Stores,
		Steps:  engine.Awaiting,
	})
	u.watched[root], u.done = b, append(u.done, done)
	return b, nil
}

// place sets where the pages of a project are served: at the port that was given, or at the project's own. At any free
// port no login is kept.
func (u *ui) place(root string, o *web.Options) error {
	folder, err := state.Find(root)
	if err == nil {
		err = folder.Make()
	}
	if err != nil {
		return err
	}
	port, name, err := folder.PagesPort(u.store, u.app.project, u.flags.readOnly)
	if err != nil {
		return err
	}

	if u.flags.anyPort {
		o.Port = port
	}
	if o.Port == 0 {
		return nil
	}
	o.LoginFile = filepath.Join(folder.Pages(), fmt.Sprintf("%d-%s", o.Port, name))
	return durable.Disk{}.MakeFolder(folder.Pages(), 0o700)
}

// lockEnd ends the name of the file that the deepwork ui with this web.Options.LoginFile has locked, from after it
// listens until it ends.
const lockEnd = ".lock"

// taken reports whether a deepwork ui of this user serves the same pages at a port. Only the user can hold its lock:
// another program there is not taken for it. One that ends, or runs in a container with the same state folder, holds
// the lock, too, but does not listen here.
func taken(o *web.Options) bool {
	if locked, _ := durable.Locked(o.LoginFile + lockEnd); !locked || o.LoginFile == "" {
		return false
	}

	c, err := net.DialTimeout("tcp", net.JoinHostPort(web.DefaultHost, strconv.Itoa(o.Port)), time.Second)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// listen opens a project and its port. It returns no pages if another deepwork ui serves them at that port already.
func (u *ui) listen(ctx context.Context, root string, o *web.Options) (*web.Server, error) {
	if err := u.place(root, o); err != nil {
		return nil, err
	}

	if taken(o) {
		return nil, nil
	}

	server, err := u.server(root)
	if err != nil {
		return nil, err
	}
	pages, err := server.Listen(ctx, *o)
	if err != nil && taken(o) { // it has begun meanwhile
		return nil, nil
	}
	if err != nil && u.flags.anyPort {
		err = fmt.Errorf("port %d is this project's own, and its open pages ask whatever listens there; end that "+
			"program: %w", o.Port, err)
	}
	if err != nil || o.LoginFile == "" {
		return pages, err
	}

	inTime, cancel := context.WithTimeout(ctx, 10*time.Second) // one that ends may still hold it
	defer cancel()
	u.serving, err = durable.Lock(inTime, o.LoginFile+lockEnd)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("another deepwork ui serves these pages at its port %d, such as one in a container, or on a "+
			"machine with the same state folder: end it, or give --port", o.Port)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", o.LoginFile+lockEnd, err), pages.Close())
	}
	return pages, nil
}

// server opens a project; close closes it.
func (u *ui) server(root string) (*transport.Server, error) {
	u.app.traced(context.Background(), root, u.logger)
	server, err := transport.NewServer(transport.Options{
		ProjectRoot: root,
		Store:       u.store,
		Project:     u.app.project,
		Logger:      u.logger,
		Version:     readBuild().Version,
		Help:        docs.Files,
	})
	if err != nil {
		return nil, fmt.Errorf("opening the project: %w", err)
	}
	u.servers = append(u.servers, server)
	return server, nil
}

// close closes all projects.
func (u *ui) close() (err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.serving != nil {
		err = u.serving.Unlock()
	}
	for _, server := range u.servers {
		err = errors.Join(err, closeServer(server, u.logger, closeTimeout))
	}
	for _, done := range u.done {
		err = errors.Join(err, done())
	}
	return err
}

// hasScreen reports whether a browser that is opened here can be seen.
func hasScreen(getenv func(string) string) bool {
	switch runtime.GOOS {
	case "darwin", "windows":
		return getenv("SSH_CONNECTION") == ""
	}
	return getenv("DISPLAY") != "" || getenv("WAYLAND_DISPLAY") != ""
}

// openInBrowser opens a URL with the system's program for it. Where other users can see the arguments of programs,
// either the URL is not among them or the server knows who owns a connection.
func openInBrowser(url string) error {
	command, input := []string{"xdg-open", url}, ""
	switch runtime.GOOS {
	case "darwin":
		command, input = []string{"osascript"}, fmt.Sprintf("open location %q\n", url)
	case "windows":
		command = []string{"rundll32", "url.dll,FileProtocolHandler", url}
	}
	program, err := process.Look(command[0]) // never one of the project's own
	if err != nil {
		return err
	}
	open := exec.Command(program, command[1:]...)
	open.Stdin = strings.NewReader(input)
	show.Apart(open) // Ctrl-C must not end the browser
	if err := open.Start(); err != nil {
		return err
	}

	go func() { _ = open.Wait() }() // it may run as long as the browser
	return nil
}
