package main

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/actor/durable"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/trust"
	"deepwork/cmd/deepwork/clients"
	"deepwork/session"
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
	replace bool
}

func (a *app) initCommand() *cobra.Command {
	var f initFlags
	cmd := a.onProject("", &cobra.Command{
		Use:   "init",
		Short: "Prepare a project: .deepwork and the config of a client",
		Long: `Prepare a project: create .deepwork/ with a config.yml that explains every key, an
example job, the JSON Schema of job.yml and a .gitignore; and add the server to the
project's config for a client, by default .mcp.json, which Claude Code reads. Existing
files and entries are kept, so init can be repeated; an entry that starts another program,
such as uvx, is replaced with --replace only. The exit code is 1 if something could not be
done.

Without --path the project is the current folder, unless that is inside another project:
then --path says which of them to prepare.

With --url the client connects to a server that is already running, over HTTP. If it
needs a token, the entry refers to the variable DEEPWORK_TOKEN, and init says how to
set it.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var server *url.URL
			if cmd.Flags().Changed("url") {
				if fault := config.CheckServerURL(f.url); fault != "" {
					return usagef(cmd, "--url %s", fault)
				}
				server, _ = url.Parse(f.url) // it was checked
			}
			if len(f.clients) == 0 {
				return usagef(cmd, "--client is empty; name one of %s", strings.Join(clients.Names(), ", "))
			}
			var chosen []*clients.Client
			for _, name := range f.clients {
				c := clients.Named(name)
				if c == nil {
					return usagef(cmd, "--client %q is not one of %s", name, strings.Join(clients.Names(), ", "))
				}
				if server != nil && !c.Speaks(server) {
					return usagef(cmd, "%s does not support the transport sse: give the --url of a server with --transport http", c.Title)
				}
				if !slices.Contains(chosen, c) {
					chosen = append(chosen, c)
				}
			}
			if err := a.checkPlace(); err != nil {
				return err
			}
			return a.init(server, f.replace, chosen...)
		},
	})
	cmd.Flags().StringVar(&f.url, "url", "", "connect to the server at this `URL`, such as http://127.0.0.1:8000/mcp")
	cmd.Flags().StringSliceVar(&f.clients, "client", []string{clients.All[0].Name}, "`NAME` of the client to configure, one of "+strings.Join(clients.Names(), ", ")+"; may be repeated")
	cmd.Flags().BoolVar(&f.replace, "replace", false, "replace an entry of a client that starts another program or connects elsewhere")
	_ = cmd.RegisterFlagCompletionFunc("client", cobra.FixedCompletions(clients.Names(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// init prepares the project for clients, of the server at a URL or, with nil, of one that each starts. It goes on
// after what could not be done, which it prints. With replace it replaces entries of clients that start another program.
func (a *app) init(server *url.URL, replace bool, chosen ...*clients.Client) error {
	root, err := a.givenRoot()
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
	whole := true
	report := func(path, done string, err error) {
		if err != nil {
			whole, done = false, cmp.Or(done, "failed")
			fmt.Fprintf(a.err, "deepwork: %s\n", err)
		}
		fmt.Fprintf(a.out, "%-8s %s\n", done, inline(a.display(root, path)))
	}
	for _, f := range []struct {
		name string
		lay  func(path string) (done string, err error)
	}{{"config.yml", layOutConfig}, {"job.schema.json", a.layOutSchema}, {".gitignore", layOutIgnores}, {"jobs", layOutExample}} {
		path := filepath.Join(dir, f.name)
		done, err := f.lay(path)
		if err != nil {
			err = fmt.Errorf("laying out %s: %s", inline(path), inline(err.Error()))
		}
		report(path, done, err)
	}
	todo := ""
	for _, c := range chosen {
		entry, named := c.Stdio(), false
		if server != nil {
			entry, named = c.HTTP(server, web.CanKnowPeers())
		}
		done, err := a.initClient(root, c, entry, replace)
		report(c.Path(root), done, err)
		if named {
			todo = setToken(root, server)
		}
	}
	if todo != "" {
		fmt.Fprintf(a.err, "deepwork: %s\n", todo)
	}
	if !whole {
		fmt.Fprintln(a.err, "deepwork: not everything was done, for the reasons above; init can be repeated")
		return &exitError{exitFailure}
	}
	a.nextSteps(root, chosen)
	return nil
}

// setToken says how to set the variable of the token of a server.
func setToken(root string, server *url.URL) string {
	if web.IsLoopback(server.Hostname()) {
		return fmt.Sprintf("start the client with %s set, as by\n\n  export %[1]s=\"$(deepwork token show --path %s)\"\n\nonce the server has made your token", clients.TokenVariable, trust.Quote(root))
	}
	return fmt.Sprintf("set %s, in the environment of the client, to the token that the person who runs the server gave you", clients.TokenVariable)
}

// initClient adds an entry to a client's config of the project. If it cannot, the error says how a person can do it.
func (a *app) initClient(root string, c *clients.Client, entry clients.Entry, replace bool) (done string, err error) {
	done, err = c.Add(root, entry, replace)
	if unclear, ok := errors.AsType[*clients.LeftAloneError](err); ok {
		text := fmt.Sprintf("%s was left as it is: %s; add this to it by hand:\n%s", inline(a.display(root, c.Path(root))), inline(unclear.Error()), entry.Whole())
		if c.ByHand != "" && entry == c.Stdio() {
			text += fmt.Sprintf("or run: "+c.ByHand+"\n", trust.Quote(root))
		}
		return "left", errors.New(strings.TrimSuffix(text, "\n"))
	}
	if err != nil {
		return "", fmt.Errorf("adding the server to %s: %w", inline(c.Path(root)), err)
	}
	return done, nil
}

// nextSteps prints what to do after init.
func (a *app) nextSteps(root string, chosen []*clients.Client) {
	fmt.Fprintln(a.out, "\nNext:")
	step := func(format string, args ...any) { a.out.Text("  ", "- "+fmt.Sprintf(format, args...)) }
	for _, c := range chosen {
		step("%s", c.Start)
	}
	step(`ask it: "Which workflows are there?"`)
	if _, err := os.Stat(filepath.Join(root, ".deepwork", "jobs", exampleJob)); err == nil {
		step("read the example in %s, and write a job of your own beside it", inline(a.display(root, filepath.Join(root, ".deepwork", "jobs", exampleJob))))
	}
	step("deepwork jobs lists the jobs; deepwork demo shows everything at work")
}

// layOutConfig writes a config.yml that explains every key.
func layOutConfig(file string) (string, error) {
	text, err := templates.ReadFile("template/config.yml")
	if err != nil {
		return "", err
	}
	return clients.Create(file, text)
}

// layOutSchema keeps an existing schema, and says if it differs from this binary's: a person may have changed it.
func (a *app) layOutSchema(file string) (string, error) {
	done, err := clients.Create(file, job.Schema())
	if there, rerr := os.ReadFile(file); err == nil && rerr == nil && !bytes.Equal(there, job.Schema()) {
		done += "*"
		fmt.Fprintf(a.err, "deepwork: %s is not that of this version, or was changed; to renew it, remove it and run init again\n", inline(a.display(filepath.Dir(filepath.Dir(file)), file)))
	}
	return done, err
}

// layOutIgnores adds the lines that a .gitignore lacks and keeps the others.
func layOutIgnores(file string) (string, error) {
	_, missing := os.Lstat(file)
	added, err := session.Ignore(file, session.Ignored())
	switch {
	case err != nil:
		return "", err
	case missing != nil:
		return clients.Created, nil
	case added:
		return clients.Extended, nil
	}
	return clients.Kept, nil
}

// layOutExample adds the example job to a jobs folder that has no job yet. It renames it into
// place, so that a running server never sees half of it.
func layOutExample(jobs string) (string, error) {
	entries, err := os.ReadDir(jobs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if len(entries) > 0 {
		return clients.Kept, nil
	}
	if err := durable.Inside(filepath.Dir(filepath.Dir(jobs)), jobs); err != nil {
		return "", err
	}
	if err := os.MkdirAll(jobs, 0o755); err != nil {
		return "", err
	}
	staged, err := os.MkdirTemp(filepath.Dir(jobs), ".init-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(staged)
	example := filepath.Join(staged, exampleJob)
	files, err := fs.Sub(templates, "template/jobs/"+exampleJob)
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(example, files); err != nil {
		return "", err
	}
	if err := os.Rename(example, filepath.Join(jobs, exampleJob)); err != nil {
		return "", err
	}
	return clients.Created, nil
}

// checkPlace refuses to make a project of a folder inside another one, unless --path says so, and warns of the home folder.
func (a *app) checkPlace() error {
	if a.path != "" {
		return nil
	}
	here, err := filepath.Abs(".")
	if err != nil {
		return fmt.Errorf("finding the current folder: %w", err)
	}
	if home, err := os.UserHomeDir(); err == nil && relative(here, home) == "." {
		fmt.Fprintln(a.err, "deepwork: warning: this is your home folder, which is rarely a project: every folder in it would be inside this project")
	}
	if parent, why := parentProject(here); parent != "" {
		return fmt.Errorf("this folder is inside %s, %s; run deepwork init --path %s to prepare that one, or deepwork init --path . to prepare this one", inline(parent), why, inline(relative(here, parent)))
	}
	return nil
}

// relative returns a folder above here as an argument.
func relative(here, above string) string {
	if rel, err := filepath.Rel(here, above); err == nil {
		return rel
	}
	return above
}

// parentProject returns the project that a folder is in, and what makes it one, or "" if the folder
// is a project itself or in none: the nearest folder above that has .deepwork or is a repository.
func parentProject(dir string) (parent, why string) {
	is := func(dir, name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	if is(dir, ".deepwork") || is(dir, ".git") {
		return "", ""
	}
	for above := filepath.Dir(dir); ; above = filepath.Dir(above) {
		switch {
		case is(above, ".deepwork"):
			return above, "a project that has .deepwork"
		case is(above, ".git"):
			return above, "a git repository"
		case above == filepath.Dir(above):
			return "", ""
		}
	}
}
