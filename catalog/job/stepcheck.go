package job

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// AgentLimits limit the agent of a step in runs.
type AgentLimits struct {
	// "" means the model in the executor's own settings
	Model       string        `yaml:"model" as:"model"`
	Timeout     time.Duration `yaml:"timeout" min:"1s" max:"168h"`      // 0 means no limit
	IdleTimeout time.Duration `yaml:"idle_timeout" min:"1s" max:"168h"` // 0 means no limit
}

// A StepCheck is a program that says whether a step is done: it passes with exit code 0.
type StepCheck struct {
	// without a shell
	Run []string `yaml:"run" each:"filled" nonempty:"name the program"`
	// default: the program
	Name string `yaml:"name" as:"name"`
	// 0 means DefaultCheckTimeout; see Limit
	Timeout time.Duration `yaml:"timeout" min:"1s" max:"24h"`
	// below the project's root, with slashes; "" means the root
	In string `yaml:"in" as:"folder"`
	// what the check judges; nil means everything
	Files []string `yaml:"files" is:"a list of patterns, such as [src/**]" each:"pattern"`
	// files that must not change after the step has begun
	Protect []string `yaml:"protect" is:"a list of patterns, such as [tests/**]" each:"pattern"`
	PassEnv []string `yaml:"pass_env" is:"a list of the names of environment variables" each:"variable"`
	// never: not even a person can pass over the check; "" and human mean that a person can
	Override string `yaml:"override" oneof:"human,never"`

	Ends bool // it fails no step; when it passes, it ends the rounds of a form
}

// Tags implements fieldtag.Tagger.
func (StepCheck) Tags() map[string]string {
	return map[string]string{
		"Run": `is:"a program and its arguments, as a list such as [go, test, ./...]" add:"the program and its ` +
			`arguments, such as run: [go, test, ./...]"`,
	}
}

// DefaultCheckTimeout is the time limit of a check that names none.
const DefaultCheckTimeout = 5 * time.Minute

// Limit returns how long the check may run.
func (c *StepCheck) Limit() time.Duration { return cmp.Or(c.Timeout, DefaultCheckTimeout) }

// Never reports whether nobody may pass over the check.
func (c *StepCheck) Never() bool { return c.Override == "never" }

// patterns has the regular expressions for patterns.
var patterns sync.Map

// Matches reports whether a path, with slashes, matches one of these patterns: ** stands for any folders, *
// and ? for characters within a name.
func Matches(all []string, name string) bool {
	return slices.ContainsFunc(all, func(p string) bool {
		known, ok := patterns.Load(p)
		if !ok {
			known, _ = patterns.LoadOrStore(p, compilePattern(p))
		}
		return known.(*regexp.Regexp).MatchString(name)
	})
}

func compilePattern(p string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`^`)
	for rest := path.Clean(p); rest != ""; {
		switch {
		case strings.HasPrefix(rest, "**/"):
			b.WriteString(`(?:.*/)?`)
			rest = rest[3:]
		case strings.HasPrefix(rest, "**"):
			b.WriteString(`.*`)
			rest = rest[2:]
		case rest[0] == '*':
			b.WriteString(`[^/]*`)
			rest = rest[1:]
		case rest[0] == '?':
			b.WriteString(`[^/]`)
			rest = rest[1:]
		default:
			end := strings.IndexAny(rest, "*?")
			if end < 0 {
				end = len(rest)
			}
			b.WriteString(regexp.QuoteMeta(rest[:end]))
			rest = rest[end:]
		}
	}

	b.WriteString(`$`)
	return regexp.MustCompile(`(?s)` + b.String())
}

// nameChecks gives a step's checks their names, and reports duplicates.
func (d *decoder) nameChecks(s *Step, at place) {
	seen := map[string]bool{}
	for i := range s.Checks {
		c, at := &s.Checks[i], append(slices.Clip(at), "checks", i)
		if c.Name == "" && len(c.Run) > 0 {
			c.Name = path.Base(c.Run[0])
		}
		if seen[c.Name] && c.Name != "" && !d.Full() {
			d.FaultAt(at, "is the second check of this step with the name %q: give each a name of its own, such as "+
				"name: tests", c.Name)
		}
		seen[c.Name] = true
	}
}
