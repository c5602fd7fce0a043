package config

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
)

// A User is the user's own config file: the keys of a project's config, over which it takes precedence, and
// keys that only the user may set (cmd/deepwork/docs/reference/security.md).
type User struct {
	// absolute paths; projects in these folders need no grant
	TrustedFolders []string `yaml:"trusted_folders" own:"" each:"folder"`
	// Store is the URL of the PostgreSQL database with the sessions and the board; "" means files of this
	// machine. It may contain a password, so no message may show it.
	Store string `yaml:"store" own:"--store" as:"store"`
	// WorkerProjects are the projects of a worker (key worker.projects): their names in the store, and the
	// absolute paths of their folders on this machine.
	WorkerProjects map[string]string `yaml:"worker" own:"" as:"worker"`

	root *yaml.Node // nil if the file is empty
}

// UserFile returns the path of the user's config file, in the system's folder for such files, or "" if there
// is no such folder.
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

// Over returns a config overridden by the user's file. Sources, executors and projects are merged by name.
func (u *User) Over(c *Config) *Config {
	if u.root == nil {
		return c
	}

	over := content{Config: *c}
	over.Projects = nil
	over.Executors = nil
	over.WorkflowTools.Sources = nil
	newParser(FileName, true).decode(u.root, &over) // ParseUser has found no errors
	n := &over.Config
	n.Projects = merged(c.Projects, n.Projects, func(p Project) string { return p.Name })
	n.Executors = merged(c.Executors, n.Executors, func(e Executor) string { return e.Name })
	n.WorkflowTools.Sources = merged(c.WorkflowTools.Sources, n.WorkflowTools.Sources, func(s WorkflowSource) string {
		return s.Name
	})

	// There is only one reviewer: the user's replaces the project's, whichever key either uses.
	if q := &n.QualityGate; len(q.AgentReviewCommand) > 0 && c.QualityGate.ReviewerExecutor != "" {
		q.ReviewerExecutor = ""
	} else if q.ReviewerExecutor != "" {
		q.AgentReviewCommand = nil
	}
	return n
}

// merged returns the entries of both lists; entries in over replace those with the same name.
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

// An Approval says which parts of a project's config are in force (cmd/deepwork/docs/reference/security.md).
// Parts that run a program, connect to something or reach outside the project need the user's approval.
type Approval struct {
	// Use is the project's config whose programs and connections are in force: the current one, an earlier
	// one that was approved, or nil for none.
	Use *Config
	// Withheld is what is not in force; nil means that everything is.
	Withheld *Withheld
	// Files are the files in the project that approved commands name, by paths relative to its root, with
	// slashes, and the approved SHA-256 of each. There is one map for each approval of this config; they
	// differ if a script was changed in between. nil means that no check is needed.
	Files []map[string]string
}

// Withheld is what a project's config asks for without the user's approval.
type Withheld struct {
	Asked  []Asked
	Denied bool   // the user refused, including what their own config would run here
	Kept   bool   // earlier, approved values stay in force
	Fault  string // why it cannot be approved until that is corrected, or ""
	// Changed are the config's files and keys that differ from the last approval; nil if there was none.
	Changed []string
}

// Asked is one thing that a project's config asks for.
type Asked struct {
	Key string // as in the file: workflow_tools.sources.ci
	// Text is the command or URL, for messages.
	Text string
}

// AgentsKey is the key of what every project asks for: to start agents in it.
const AgentsKey = "agents"

// ReviewerKey is the key for running the user's own reviewer, which AgentsKey includes.
const ReviewerKey = "reviewer"

// SourcesKey is the prefix of the keys of sources.
const SourcesKey = "workflow_tools.sources."

// Plain reports whether the config asks only for the start of agents.
func (w *Withheld) Plain() bool { return len(w.Asked) == 1 && w.Asked[0].Key == AgentsKey }

// Since says what has changed since the last approval, as the end of a sentence followed by the beginning of
// another, or returns "".
func (w *Withheld) Since() string {
	if len(w.Changed) == 0 {
		return ""
	}
	return ". Changed since the last approval: " + jsontext.Clip(strings.Join(w.Changed, ", "), 500)
}

// Of returns what was asked for under a key or, if that ends in a dot, under the first key with that prefix.
// A nil Withheld has nothing.
func (w *Withheld) Of(key string) (Asked, bool) {
	if w == nil {
		return Asked{}, false
	}

	for _, a := range w.Asked {
		if a.Key == key || strings.HasSuffix(key, ".") && strings.HasPrefix(a.Key, key) {
			return a, true
		}
	}
	return Asked{}, false
}

// WithheldSources returns the sources of workflows in the project's config that are not in force at all
// because the user has not approved them.
func (c *Config) WithheldSources() (all []Asked) {
	if c.Approval == nil || c.Approval.Withheld == nil || !c.WorkflowTools.Enabled {
		return nil
	}

	for _, a := range c.Approval.Withheld.Asked {
		name, ok := strings.CutPrefix(a.Key, SourcesKey)
		if ok && !slices.ContainsFunc(c.WorkflowTools.Sources, func(s WorkflowSource) bool { return s.Name == name }) {
			all = append(all, a)
		}
	}
	return all
}

// Unapproved reports whether the user has not approved the folder. Then nothing starts in it, not even
// programs in the user's own config.
func (a *Approval) Unapproved() bool { return a != nil && a.Withheld != nil && a.Use == nil }

// noApproval is the approval if nobody needs to be asked.
var noApproval = &Approval{}

// apply returns the project's config with only what is in force.
func (a *Approval) apply(project *Config) *Config {
	if a == noApproval {
		return project
	}

	c := *project
	c.Approval = a
	if a.Use == project {
		return &c
	}
	from := a.Use
	from = cmp.Or(from, Default())
	c.QualityGate.AgentReviewCommand, c.QualityGate.ReviewerExecutor = from.QualityGate.AgentReviewCommand,
		from.QualityGate.ReviewerExecutor
	c.WorkflowTools.Sources = from.WorkflowTools.Sources
	c.Projects, c.Executors = from.Projects, from.Executors
	c.Attempts.Worktrees = from.Attempts.Worktrees
	c.Attempts.Copy = from.Attempts.Copy
	c.Attempts.Setup = from.Attempts.Setup
	c.Attempts.PushTo = from.Attempts.PushTo
	c.Attempts.AutoStart = from.Attempts.AutoStart
	c.Attempts.Contain = from.Attempts.Contain.with(c.Attempts.Contain.strictness())
	c.Run.Contain = from.Run.Contain.with(c.Run.Contain.strictness())
	c.Run.Executor = from.Run.Executor
	c.Git.Branch = from.Git.Branch
	// Removed sessions are gone for good, so without approval only longer times count.
	if keep := from.Sessions.KeepEnded; keep == 0 || 0 < c.Sessions.KeepEnded && c.Sessions.KeepEnded < keep {
		c.Sessions.KeepEnded = keep
	}
	return &c
}
