package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/actor/durable"
	"deepwork/actor/xslices"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/cmd/deepwork/clients"
	"deepwork/cmd/deepwork/library"
	"deepwork/cmd/deepwork/plugin"
	"deepwork/cmd/deepwork/validate"
	"deepwork/session"
	"deepwork/session/show"
	"deepwork/session/state"
	"deepwork/transport/web"
)

// initFlags are the options of init.
type initFlags struct {
	url        string
	clients    []string
	toolsets   []string
	claudeCode bool
	replace    bool
}

// A preparation says what init does.
type preparation struct {
	server     *url.URL // nil: each client starts one
	clients    []*clients.Client
	toolsets   []string // nil: the default, or what the config has
	claudeCode bool     // install the skills and the hook, unless the plugin has them
	replace    bool     // entries of clients that start another program
}

func (a *app) initCommand() *cobra.Command {
	var f initFlags
	cmd := a.onProject("", &cobra.Command{
		Use:   "init",
		Short: "Prepare a project: .deepwork and the config of a client",
		Long: `Prepare a project: create .deepwork/ with a short config.yml, an example job, the JSON
Schema of job.yml and a .gitignore; and add the server to the project's config for a
client, by default .mcp.json, which Claude Code reads. At a terminal it asks which client
and toolsets you want, unless flags say so. Existing files and entries are kept, so init
can be repeated; an entry that starts another program, such as uvx, is replaced with
--replace only. The exit code is 1 if something could not be done.

For Claude Code it also installs skills, and a hook that tells the agent after a compaction
where it is: in .claude of the project, unless you have the plugin, which has the same.
Without a terminal it does so with --claude-code only.

Without --path the project is the current folder, unless that is inside another project:
then --path says which of them to prepare.

With --url the client connects to a server that is already running, over HTTP. If it
needs a token, the entry refers to the variable DEEPWORK_TOKEN, and init says how to
set it.`,
		Example: `  deepwork init
  deepwork init --client claude,codex --toolsets workflows,board --claude-code
  deepwork init --url http://127.0.0.1:8000/mcp`,
		Args: argumentCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := f.check(cmd); err != nil { // refuse before asking anything
				return err
			}
			if err := a.checkPlace(); err != nil {
				return err
			}
			if err := a.askInit(cmd, &f); err != nil {
				return err
			}

			p, err := f.check(cmd)
			if err != nil {
				return err
			}
			return a.init(p)
		},
	})
	cmd.Flags().StringVar(&f.url, "url", "", "connect to the server at this `URL`, such as http://127.0.0.1:8000/mcp")
	cmd.Flags().StringSliceVar(&f.clients, "client", []string{clients.All[0].Name},
		"`NAME` of the client to configure, one of "+strings.Join(clients.Names(), ", ")+"; may be repeated")
	cmd.Flags().StringSliceVar(&f.toolsets, "toolsets", config.DefaultToolsets,
		"toolsets for the config, of "+strings.Join(config.Toolsets, ", "))
	cmd.Flags().BoolVar(&f.claudeCode, "claude-code", false, "install the skills and the hook for Claude Code")
	cmd.Flags().BoolVar(&f.replace, "replace", false,
		"replace an entry of a client that starts another program or connects elsewhere")
	_ = cmd.RegisterFlagCompletionFunc("client",
		cobra.FixedCompletions(clients.Names(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("toolsets",
		cobra.FixedCompletions(config.Toolsets, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// askInit asks at a terminal for what neither flags nor the project say, and sets flags to the answers. An empty answer
// is the default.
func (a *app) askInit(cmd *cobra.Command, f *initFlags) error {
	if _, _, ok := show.TerminalSize(a.rawOut); !ok {
		return nil
	}

	settled := map[string]func() bool{
		"client":      func() bool { return false },
		"toolsets":    func() bool { return fileExists(filepath.Join(a.path, ".deepwork", config.FileName)) },
		"claude-code": func() bool { return !slices.Contains(f.clients, "claude") || plugin.Installed(a.path) },
	}

	words := map[string]string{"y": "true", "yes": "true", "n": "false", "no": "false"}
	for _, q := range []struct{ flag, question, otherwise string }{
		{"client", "Your client (" + strings.Join(clients.Names(), ", ") + ")", strings.Join(f.clients, ",")},
		{"toolsets", "Toolsets (workflows; board: tasks for agents; remote: workflows of other systems; source: " +
			"offer yours to them)", strings.Join(f.toolsets, ",")},
		{"claude-code", "Install the skills and the hook for Claude Code, in .claude (yes, no)", "yes"},
	} {
		if cmd.Flags().Changed(q.flag) || settled[q.flag]() {
			continue
		}

		answer, err := show.Ask(fmt.Sprintf("%s [%s]: ", q.question, q.otherwise))
		if err != nil {
			return nil // a terminal that is not the controlling one is no place to ask
		}
		answer = strings.Join(strings.FieldsFunc(cmp.Or(answer, q.otherwise), func(r rune) bool {
			return r == ',' || r == ' '
		}), ",")
		if err := cmd.Flags().Set(q.flag, cmp.Or(words[strings.ToLower(answer)], answer)); err != nil {
			return usagef(cmd, "%q is not yes or no", answer)
		}
	}

	return nil
}

// check returns what flags and answers ask for.
func (f *initFlags) check(cmd *cobra.Command) (p preparation, err error) {
	p = preparation{claudeCode: f.claudeCode, replace: f.replace}
	if cmd.Flags().Changed("url") {
		if fault := config.CheckServerURL(f.url); fault != "" {
			return p, usagef(cmd, "--url %s", fault)
		}
		if p.server, _ = url.Parse(f.url); strings.Trim(p.server.Path, "/") == "" { // it was checked
			return p, usagef(cmd, "--url has no path; that of a server ends in /mcp or /sse, as its log says")
		}
	}
	if len(f.clients) == 0 {
		return p, usagef(cmd, "--client is empty; name one of %s", strings.Join(clients.Names(), ", "))
	}
	for _, name := range f.clients {
		c := clients.Named(name)
		if c == nil {
			return p, usagef(cmd, "--client %q is not one of %s", name, strings.Join(clients.Names(), ", "))
		}
		if p.server != nil && !c.Speaks(p.server) {
			return p,
				usagef(cmd, "%s does not support the transport sse: give the --url of a server with --transport http",
					c.Title)
		}
		if !slices.Contains(p.clients, c) {
			p.clients = append(p.clients, c)
		}
	}
	if cmd.Flags().Changed("toolsets") {
		if len(f.toolsets) == 0 {
			return p, usagef(cmd, "--toolsets is empty; name some of %s", strings.Join(config.Toolsets, ", "))
		}
		for _, name := range f.toolsets {
			if !slices.Contains(config.Toolsets, name) {
				return p, usagef(cmd, "--toolsets %q is not one of %s", name, strings.Join(config.Toolsets, ", "))
			}
		}
		p.toolsets = f.toolsets
	}
	return p, nil
}

// init prepares the project. It prints what could not be done, and continues.
func (a *app) init(p preparation) error {
	root, err := a.givenRoot()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, ".deepwork")
	whole := true
	report := func(path, done string, err error) {
		if err != nil {
			whole = false
			if done != "left" && done != clients.Kept {
				done = "failed"
			}
			fmt.Fprintf(a.err, "deepwork: %s\n", err)
		}
		fmt.Fprintf(a.out, "%-8s %s\n", done, inline(a.display(root, path)))
	}
	for _, f := range []struct {
		name string
		lay  func(path string) (done string, err error)
	}{{"config.yml", p.layOutConfig}, {"job.schema.json", a.layOutSchema}, {".gitignore", layOutIgnores},
		{"jobs", layOutExample}} {
		path := filepath.Join(dir, f.name)
		done, err := f.lay(path)
		if err != nil {
			err = fmt.Errorf("laying out %s: %s", inline(path), inline(err.Error()))
		}
		report(path, done, err)
	}

	todo := ""
	for _, c := range p.clients {
		entry, named := c.Stdio(), false
		if p.server != nil {
			entry, named = c.HTTP(p.server, web.CanKnowPeers())
		}
		addition := entry.Whole()
		if c.ByHand != "" && p.server == nil {
			addition += fmt.Sprintf("or run: "+c.ByHand, session.InShell(root))
		}
		done, err := c.Add(root, entry, p.replace)
		report(a.byHand(root, c.Path(root), addition, done, err))
		if named {
			todo = setToken(root, p.server)
		}
	}
	if todo != "" {
		fmt.Fprintf(a.err, "deepwork: %s\n", todo)
	}
	hasPlugin := plugin.Installed(root)
	if p.claudeCode && !hasPlugin {
		plugin.Install(root, func(path, done string, err error) {
			report(a.byHand(root, path, plugin.Hooks().Whole(), done, err))
		})
	}
	if !whole {
		fmt.Fprintln(a.err, "deepwork: not everything was done, for the reasons above; init can be repeated")
		return &exitError{exitFailure}
	}
	a.nextSteps(p, hasPlugin)
	return nil
}

// setToken says how to set the variable that holds a server's token.
func setToken(root string, server *url.URL) string {
	if web.IsLoopback(server.Hostname()) {
		return fmt.Sprintf("start the client with %s set, as by\n\n  export %[1]s=\"$(deepwork token show --path "+
			"%s)\"\n\nonce the server has made your token", clients.TokenVariable, session.InShell(root))
	}
	return fmt.Sprintf("set %s, in the environment of the client, to the token that the person who runs the server "+
		"gave you", clients.TokenVariable)
}

// byHand returns a file and what was done to it. If it was left alone, the error says what to add by hand.
func (a *app) byHand(root, path, addition, done string, err error) (string, string, error) {
	if unclear, ok := errors.AsType[*clients.LeftAloneError](err); ok {
		return path, "left", fmt.Errorf("%s was left as it is: %s; add this to it by hand:\n%s",
			inline(a.display(root, path)), inline(unclear.Error()), strings.TrimSuffix(addition, "\n"))
	}
	if err != nil {
		err = fmt.Errorf("writing %s: %w", inline(path), err)
	}
	return path, done, err
}

// firstSentence is what to say to the agent after init.
const firstSentence = "Start the workflow new_job of deepwork_jobs."

// nextSteps prints what to do after init; the first sentence for the agent comes last.
func (a *app) nextSteps(p preparation, hasPlugin bool) {
	fmt.Fprintln(a.out, "\nNext:")
	step := func(format string, args ...any) { a.out.Text("  ", "- "+a.here(fmt.Sprintf(format, args...))) }
	command := firstSentence
	for _, c := range p.clients {
		step("%s", c.Start)
		if c.Name != "claude" {
			continue
		}

		command = `claude "` + firstSentence + `"`
		switch {
		case hasPlugin:
			step("you have the plugin for Claude Code: its skills and its hook are not installed again")
		case !p.claudeCode:
			step("'deepwork init --claude-code' adds skills for Claude Code, and a hook that keeps it on course " +
				"after a compaction")
		}
	}

	step("'deepwork jobs' lists the jobs, 'deepwork jobs --library' ready-made ones to add")
	step("'deepwork help config' explains the config; 'deepwork demo' shows everything at work")
	fmt.Fprintf(a.out, "\nSay to your agent, to make a job of what you do every week:\n\n  %s\n", command)
}

// configText is the config of a new project.
const configText = `# "deepwork help config" explains these keys and all others. An edit takes effect without a restart.
version: "1.0"
platforms: [%s]
toolsets: [%s]
git: {branch: name}
`

// toolsetsLine matches the only form of the key toolsets that init changes.
var toolsetsLine = regexp.MustCompile(`(?m)^toolsets: \[[a-z, ]*\]$`)

// layOutConfig writes a short config.yml. In an existing one it only changes the toolsets, if others were chosen.
func (p *preparation) layOutConfig(file string) (string, error) {
	toolsets := p.toolsets
	if toolsets == nil {
		toolsets = config.DefaultToolsets
	}
	names := strings.Join(xslices.Map(p.clients, func(c *clients.Client) string { return c.Name }), ", ")
	done, err := clients.Create(file, fmt.Appendf(nil, configText, names, strings.Join(toolsets, ", ")))
	if err != nil || done == clients.Created || p.toolsets == nil {
		return done, err
	}

	text, err := validate.ReadFile(file)
	if err != nil {
		return "", err
	}
	has, _ := config.Parse(file, text)
	if has != nil && slices.Equal(toolsets, has.Toolsets) ||
		has != nil && has.Toolsets == nil && slices.Equal(toolsets, config.DefaultToolsets) {
		return done, nil
	}

	line := "toolsets: [" + strings.Join(toolsets, ", ") + "]"
	if len(toolsetsLine.FindAll(text, -1)) != 1 {
		return "left", fmt.Errorf("it was left as it is; set this in it: %s", line)
	}
	return clients.Replaced, durable.Disk{}.Put(file, toolsetsLine.ReplaceAll(text, []byte(line)),
		durable.PutOptions{Temp: ".config.yml.*", Mode: 0o644})
}

// layOutSchema keeps an existing schema, which a person may have changed, and says if it differs from this binary's.
func (a *app) layOutSchema(file string) (string, error) {
	done, err := clients.Create(file, job.Schema())
	if there, rerr := validate.ReadFile(file); err == nil && rerr == nil && !bytes.Equal(there, job.Schema()) {
		done += "*"
		fmt.Fprintf(a.err, "deepwork: %s is not that of this version, or was changed; to renew it, remove it and run "+
			"init again\n", inline(a.display(filepath.Dir(filepath.Dir(file)), file)))
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

// layOutExample adds the example job to a jobs folder that has no job yet.
func layOutExample(jobs string) (string, error) {
	entries, err := os.ReadDir(jobs)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	if len(entries) > 0 {
		return clients.Kept, nil
	}
	return clients.Created, library.Find(library.Example).Add(filepath.Dir(filepath.Dir(jobs)))
}

// checkPlace refuses a folder that contains the state, and, without --path, one inside another project. Without --path
// it warns of the home folder.
func (a *app) checkPlace() error {
	here, err := a.givenRoot()
	dir := filepath.Join(here, ".deepwork")
	if err == nil {
		err = cmp.Or(canBegin(here), durable.Inside(here, dir))
	}
	if info, failed := os.Stat(dir); err == nil && failed == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory; move it away and run init again", dir)
	}
	if err != nil || a.path != "" {
		return err
	}

	if home, err := os.UserHomeDir(); err == nil && relative(here, home) == "." {
		fmt.Fprintln(a.err, "deepwork: warning: this is your home folder, which is rarely a project: every folder in "+
			"it would be inside this project")
	}

	if parent, why := parentProject(here); parent != "" {
		return fmt.Errorf("this folder is inside %s, %s; run deepwork init --path %s to prepare that one, or "+
			"deepwork init --path . to prepare this one", inline(parent), why, inline(relative(here, parent)))
	}

	return nil
}

// canBegin refuses a folder that contains the state, such as the home folder: no session can begin there, and as a
// project it would surround all of the user's folders.
func canBegin(root string) error {
	if _, err := state.Find(root); errors.Is(err, state.ErrInside) {
		return fmt.Errorf("no session can begin in %s; run this in a project, or name one with --path: %w",
			inline(root), err)
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
	exists := func(dir, name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	if exists(dir, ".deepwork") || exists(dir, ".git") {
		return "", ""
	}
	for above := filepath.Dir(dir); ; above = filepath.Dir(above) {
		switch {
		case exists(above, ".deepwork"):
			return above, "a project that has .deepwork"
		case exists(above, ".git"):
			return above, "a git repository"
		case above == filepath.Dir(above):
			return "", ""
		}
	}
}
