package config

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
	"deepwork/catalog/job"
)

// A User is the user's own config file: the keys of a project's, over which it takes precedence,
// and keys that only the user may set (catalog/trust/README.md).
type User struct {
	// TrustedFolders are absolute; the projects in them need no grant.
	TrustedFolders []string
	// Store is the URL of the PostgreSQL database that has the sessions and the board; "" means files
	// of this machine. It may have a password: it must not be in a message.
	Store string
	// WorkerProjects are the projects of a worker: their names in the store, and their folders on this
	// machine, absolute (key worker.projects).
	WorkerProjects map[string]string

	root *yaml.Node // nil if the file is empty
}

// UserFile returns the path of the user's config file, in the system's folder for such files; "" if
// there is none.
func UserFile() string {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if runtime.GOOS == "windows" {
		dir = os.Getenv("APPDATA")
	}
	if !filepath.IsAbs(dir) {
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "deepwork", FileName)
}

// ParseUser is Parse for the user's file.
func ParseUser(file string, source []byte) (*User, job.Diagnostics) {
	u := &User{}
	p := &parser{Decoder: yamltree.Decoder{Dialect: &dialect, File: file}, user: u}
	if doc := p.document(source); doc != nil && p.Faults() == 0 {
		u.root = doc
		p.config(yamltree.Self(doc), Default())
	}
	if p.Faults() > 0 {
		return nil, p.Diagnostics()
	}
	return u, nil
}

// Over returns a config overridden by the user's file. Sources, executors and projects are merged
// by name.
func (u *User) Over(c *Config) *Config {
	if u.root == nil {
		return c
	}
	n := *c
	n.Toolsets, n.Projects, n.Executors, n.WorkflowTools.Sources = nil, nil, nil, nil
	p := &parser{Decoder: yamltree.Decoder{Dialect: &dialect, File: FileName}, user: &User{}}
	p.config(yamltree.Self(u.root), &n) // without faults, since ParseUser found none
	if n.Toolsets == nil {
		n.Toolsets = c.Toolsets
	}
	n.Projects = merged(c.Projects, n.Projects, func(p Project) string { return p.Name })
	n.Executors = merged(c.Executors, n.Executors, func(e Executor) string { return e.Name })
	n.WorkflowTools.Sources = merged(c.WorkflowTools.Sources, n.WorkflowTools.Sources, func(s WorkflowSource) string { return s.Name })
	return &n
}

// merged returns the entries of both lists; those of over replace others of the same name.
func merged[E any](under, over []E, name func(E) string) []E {
	all := slices.Clone(under)
	for _, e := range over {
		if i := slices.IndexFunc(all, func(o E) bool { return name(o) == name(e) }); i >= 0 {
			all[i] = e
		} else {
			all = append(all, e)
		}
	}
	return all
}

// folders reads trusted_folders.
func (p *parser) folders(to *[]string) func(value) {
	return p.textsThat(to, func(v value, s string) (string, bool) {
		if !filepath.IsAbs(s) {
			p.fault(v, "%q is not an absolute path", clip(s))
		}
		return filepath.Clean(s), true
	})
}

// workerProjects reads worker.projects.
func (p *parser) workerProjects(v value, to *map[string]string) {
	p.Entries(v, "a mapping of the names of projects to folders", func(v value) {
		dir, ok := p.text(v)
		if ok && !filepath.IsAbs(dir) {
			p.fault(v, "%q is not an absolute path", clip(dir))
		} else if ok {
			if *to == nil {
				*to = make(map[string]string)
			}
			(*to)[v.Key.Value] = filepath.Clean(dir)
		}
	})
}

// usersOnly reads a key that only the user's own config may have. In a project's, where it may only
// be empty, the fault names the flag that also sets it, if there is one.
func (p *parser) usersOnly(name, flag string, read func(value)) yamltree.Key {
	return key(name, func(v value) {
		n := v.Target()
		switch empty := yamltree.IsNull(n) || n.Kind == yaml.SequenceNode && len(n.Content) == 0; {
		case p.user != nil:
			read(v)
		case !empty && flag != "":
			p.fault(v, "does not belong into a project: set it in your own config, %s, or with %s", UserFile(), flag)
		case !empty:
			p.fault(v, "does not belong into a project: set it in your own config, %s", UserFile())
		}
	})
}
