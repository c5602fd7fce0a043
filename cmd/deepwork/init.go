package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"deepwork/actor/durable"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/transport/web"
)

// templates holds the files that init lays out under .deepwork.
//
//go:embed template
var templates embed.FS

// exampleJob is the folder of the example under template/jobs.
const exampleJob = "release_notes"

func (a *app) initCommand() *cobra.Command {
	var url string
	cmd := a.onProject("", &cobra.Command{
		Use:   "init",
		Short: "Prepare a project: .deepwork and .mcp.json",
		Long: `Prepare a project: .deepwork/ with a commented config.yml, a small example job,
the JSON Schema of job.yml and a .gitignore; and the server's entry in .mcp.json.
What is there already is kept, so init can be repeated.

With --url the entry is that of a server that runs already, over HTTP. If callers of
it need a token, the entry names the variable DEEPWORK_TOKEN, and init says how to set
it. Your own token, for a server of this machine, is written into the file itself if
git ignores the file or there is no repository; only you can read it then.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("url") {
				return a.init(stdioServer)
			}
			if fault := config.CheckServerURL(url); fault != "" {
				return usagef(cmd, "--url %s", fault)
			}
			return a.init(httpServer(url, web.CanKnowPeers()))
		},
	})
	cmd.Flags().StringVar(&url, "url", "", "write the entry of the server at this `URL`, such as http://127.0.0.1:8000/mcp")
	return cmd
}

func (a *app) init(server serverOf) error {
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
	for _, s := range steps {
		done, err := s.lay(s.path)
		if err != nil {
			return fmt.Errorf("laying out %s: %w", s.path, err)
		}
		fmt.Fprintf(a.out, "%-8s %s\n", done, inline(a.display(root, s.path)))
	}
	return a.initMCP(root, server)
}

// A serverOf returns the entry for a project's .mcp.json, one without a secret to show instead, and
// what else the user has to do, or "".
type serverOf func(root, file string) (entry, shown mcpEntry, todo string, err error)

func stdioServer(_, _ string) (entry, shown mcpEntry, todo string, err error) {
	return stdioEntry, stdioEntry, "", nil
}

// initMCP adds the server to .mcp.json, or prints how a person can do it.
func (a *app) initMCP(root string, server serverOf) error {
	file := filepath.Join(root, ".mcp.json")
	entry, shown, todo, err := server(root, file)
	if err != nil {
		return err
	}
	done, err := addServer(file, entry)
	if unclear, ok := errors.AsType[*leftAloneError](err); ok {
		fmt.Fprintf(a.out, "%-8s %s\n", "left", inline(a.display(root, file)))
		fmt.Fprintf(a.err, "deepwork: %s was left as it is: %s; add this to it by hand:\n%s",
			inline(a.display(root, file)), inline(unclear.reason), shown.file())
	} else if err != nil {
		return fmt.Errorf("adding the server to %s: %w", file, err)
	} else {
		fmt.Fprintf(a.out, "%-8s %s\n", done, inline(a.display(root, file)))
	}
	if todo != "" {
		fmt.Fprintf(a.err, "deepwork: %s\n", todo)
	}
	return nil
}

// layOutSchema keeps an existing schema, and reports whether it differs from this binary's: a
// person may have changed it.
func layOutSchema(file string) (string, error) {
	schema := schemaFile()
	done, err := createFile(file, schema)
	if err != nil || done != kept {
		return done, err
	}
	if there, err := os.ReadFile(file); err == nil && !bytes.Equal(there, schema) {
		return "kept*", nil
	}
	return kept, nil
}

// layOutIgnores adds the lines that a .gitignore lacks and keeps the others.
func layOutIgnores(file string) (string, error) {
	_, missing := os.Lstat(file)
	added, err := session.Ignore(file, session.Ignored())
	switch {
	case err != nil:
		return "", err
	case missing != nil:
		return created, nil
	case added:
		return "extended", nil
	}
	return kept, nil
}

// layOutExample adds the example job to a jobs folder that has no job yet. It renames it into
// place, so that a running server never sees half of it.
func layOutExample(jobs string) (string, error) {
	entries, err := os.ReadDir(jobs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if len(entries) > 0 {
		return kept, nil
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
	if err := copyTree(templates, "template/jobs/"+exampleJob, example); err != nil {
		return "", err
	}
	if err := os.Rename(example, filepath.Join(jobs, exampleJob)); err != nil {
		return "", err
	}
	return created, nil
}

// copyTree writes the folder dir of fsys to the new folder to.
func copyTree(fsys fs.FS, dir, to string) error {
	return fs.WalkDir(fsys, dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(name, path.Clean(dir)), "/")
		target := filepath.Join(to, filepath.FromSlash(rel))
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
}
