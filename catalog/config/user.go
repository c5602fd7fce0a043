package config

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/job"
)

// A User is the user's own config file: the keys of a project's, over which it takes precedence,
// and keys that only the user may set (catalog/trust/README.md).
type User struct {
	TrustedFolders []string `yaml:"trusted_folders" own:"" each:"folder"` // absolute; the projects in them need no grant
	// Store is the URL of the PostgreSQL database that has the sessions and the board; "" means files
	// of this machine. It may have a password: it must not be in a message.
	Store string `yaml:"store" own:"--store" as:"store"`
	// WorkerProjects are the projects of a worker: their names in the store, and their folders on this
	// machine, absolute (key worker.projects).
	WorkerProjects map[string]string `yaml:"worker" own:"" as:"worker"`

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
	p := newParser(file, true)
	c := content{Config: *Default()}
	c.root = p.parse(source, &c)
	if p.Faults() > 0 {
		return nil, p.Diagnostics()
	}
	return &c.User, nil
}

// Over returns a config overridden by the user's file. Sources, executors and projects are merged
// by name.
func (u *User) Over(c *Config) *Config {
	if u.root == nil {
		return c
	}
	over := content{Config: *c}
	over.Projects, over.Executors, over.WorkflowTools.Sources = nil, nil, nil
	newParser(FileName, true).decode(u.root, &over) // without faults, since ParseUser found none
	n := &over.Config
	n.Projects = merged(c.Projects, n.Projects, func(p Project) string { return p.Name })
	n.Executors = merged(c.Executors, n.Executors, func(e Executor) string { return e.Name })
	n.WorkflowTools.Sources = merged(c.WorkflowTools.Sources, n.WorkflowTools.Sources, func(s WorkflowSource) string { return s.Name })
	// There is one reviewer: the user's replaces the project's, whichever key either has.
	if q := &n.QualityGate; len(q.AgentReviewCommand) > 0 && c.QualityGate.ReviewerExecutor != "" {
		q.ReviewerExecutor = ""
	} else if q.ReviewerExecutor != "" {
		q.AgentReviewCommand = nil
	}
	return n
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
