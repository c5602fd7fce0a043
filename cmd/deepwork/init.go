package main

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/actor/durable"
	"deepwork/catalog/config"
	"deepwork/catalog/trust"
	"deepwork/transport/web"
)

// templates holds the files that init lays out under .deepwork.
//
//go:embed template
var templates embed.FS

// exampleJob is the folder of the example under template/jobs.
const exampleJob = "release_notes"

// initFlags are the options of init.
type initFlags struct {
	url     string
	clients []string
}

func (a *app) initCommand() *cobra.Command {
	var f initFlags
	cmd := a.onProject("", &cobra.Command{
		Use:   "init",
		Short: "Prepare a project: .deepwork and the config of a client",
		Long: `Prepare a project: create .deepwork/ with a config.yml that explains every key, an
example job, the JSON Schema of job.yml and a .gitignore; and add the server to the
project's config for a client, by default .mcp.json, which Claude Code reads. Existing
files and entries are kept, so init can be repeated. The exit code is 1 if something
could not be done.

Without --path the project is the current folder. If that is inside another project,
init asks which of them to prepare; without a terminal it takes the current folder.

With --url the client connects to a server that is already running, over HTTP. If it
needs a token, the entry refers to the variable DEEPWORK_TOKEN, and init says how to
set it. Your own token, for a server on this machine, is written into the file itself
if git ignores the file or there is no repository; then only you can read the file.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			server := stdioServer
			if cmd.Flags().Changed("url") {
				if fault := config.CheckServerURL(f.url); fault != "" {
					return usagef(cmd, "--url %s", fault)
				}
				server = httpServer(f.url, web.CanKnowPeers())
			}
			if len(f.clients) == 0 {
				return usagef(cmd, "--client is empty; name one of %s", strings.Join(clientNames(), ", "))
			}
			var chosen []*client
			for _, name := range f.clients {
				c := clientNamed(name)
				if c == nil {
					return usagef(cmd, "--client %q is not one of %s", name, strings.Join(clientNames(), ", "))
				}
				if u, err := url.Parse(f.url); err == nil && isSSE(u) && c.sseKey == "" {
					return usagef(cmd, "%s does not support the transport sse: give the --url of a server with --transport http", c.title)
				}
				if !slices.Contains(chosen, c) {
					chosen = append(chosen, c)
				}
			}
			if err := a.chooseProject(); err != nil {
				return err
			}
			return a.init(server, chosen...)
		},
	})
	cmd.Flags().StringVar(&f.url, "url", "", "connect to the server at this `URL`, such as http://127.0.0.1:8000/mcp")
	cmd.Flags().StringSliceVar(&f.clients, "client", []string{clients[0].name}, "`NAME` of the client to configure, one of "+strings.Join(clientNames(), ", ")+"; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("client", cobra.FixedCompletions(clientNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// init prepares the project for clients. It goes on after what could not be done, which it prints.
func (a *app) init(server serverOf, chosen ...*client) error {
	root, err := a.projectRoot()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, ".deepwork")
	if err := durable.Inside(root, dir); err != nil {
		return err
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return fmt.Errorf("%s is not a directory; move it away and run init again", dir)
	}
	config, err := templates.ReadFile("template/config.yml")
	if err != nil {
		return err
	}
	steps := []struct {
		path string
		lay  func(path string) (done string, err error)
	}{
		{filepath.Join(dir, "config.yml"), func(p string) (string, error) { return createFile(p, config) }},
		{filepath.Join(dir, "job.schema.json"), layOutSchema},
		{filepath.Join(dir, ".gitignore"), layOutIgnores},
		{filepath.Join(dir, "jobs"), layOutExample},
	}
	whole := true
	for _, s := range steps {
		done, err := s.lay(s.path)
		if err != nil {
			whole, done = false, failed
			fmt.Fprintf(a.err, "deepwork: laying out %s: %s\n", inline(s.path), inline(err.Error()))
		}
		fmt.Fprintf(a.out, "%-8s %s\n", done, inline(a.display(root, s.path)))
		if done == keptOld {
			fmt.Fprintf(a.err, "deepwork: %s is not that of this version, or was changed; to renew it, remove it and run init again\n", inline(a.display(root, s.path)))
		}
	}
	var todo []string
	for _, c := range chosen {
		done, more, err := a.initClient(root, server, c)
		if err != nil {
			whole, done = false, cmp.Or(done, failed)
			fmt.Fprintf(a.err, "deepwork: %s\n", err)
		}
		if more != "" && !slices.Contains(todo, more) {
			todo = append(todo, more)
		}
		fmt.Fprintf(a.out, "%-8s %s\n", done, inline(a.display(root, c.path(root))))
	}
	for _, more := range todo {
		fmt.Fprintf(a.err, "deepwork: %s\n", more)
	}
	if !whole {
		fmt.Fprintln(a.err, "deepwork: not everything was done, for the reasons above; init can be repeated")
		return &reportedError{}
	}
	a.nextSteps(root, chosen)
	return nil
}

// A serverOf returns the entry for a client's config of a project, one without a secret to show
// instead, and what else the user has to do, or "".
type serverOf func(root string, c *client) (entry, shown mcpEntry, todo string, err error)

func stdioServer(_ string, c *client) (entry, shown mcpEntry, todo string, err error) {
	return c.stdio(), c.stdio(), "", nil
}

// initClient adds the server to a client's config of the project. If it cannot, the error says how a
// person can do it.
func (a *app) initClient(root string, server serverOf, c *client) (done, todo string, err error) {
	file := c.path(root)
	entry, shown, todo, err := server(root, c)
	if err != nil {
		return "", "", err
	}
	done, err = c.add(root, entry)
	if unclear, ok := errors.AsType[*leftAloneError](err); ok {
		text := fmt.Sprintf("%s was left as it is: %s; add this to it by hand:\n%s", inline(a.display(root, file)), inline(unclear.reason), shown.file())
		if c.byHand != "" && !entry.required {
			text += fmt.Sprintf("or run: "+c.byHand+"\n", trust.Quote(root))
		}
		return "left", todo, errors.New(strings.TrimSuffix(text, "\n"))
	}
	if err != nil {
		return "", "", fmt.Errorf("adding the server to %s: %w", file, err)
	}
	return done, todo, nil
}

// nextSteps prints what to do after init.
func (a *app) nextSteps(root string, chosen []*client) {
	fmt.Fprintln(a.out, "\nNext:")
	step := func(format string, args ...any) { a.out.Text("  ", "- "+fmt.Sprintf(format, args...)) }
	for _, c := range chosen {
		step("%s", c.start)
	}
	step(`ask it: "Which workflows are there?"`)
	if _, err := os.Stat(filepath.Join(root, ".deepwork", "jobs", exampleJob)); err == nil {
		step("read the example in %s, and write a job of your own beside it", inline(a.display(root, filepath.Join(root, ".deepwork", "jobs", exampleJob))))
	}
	step("deepwork jobs lists the jobs; deepwork demo shows everything at work")
}
