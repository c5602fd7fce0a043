package source

import (
	"strings"

	"deepwork/catalog/config"
)

// A Found is what the name of a call may mean.
type Found struct {
	Tool *Tool // nil means none, or several

	// If Tool is nil: the tools that would have the name if no others shared it, by
	// name, and the workflows that had it and whose sources are away, with the reasons.
	Candidates []*Tool
	Gone       []Skipped
}

// goneTools are the workflows of a source that has been away too long to be listed.
type goneTools struct {
	source    string
	err       error
	workflows []*offered
	settings  config.WorkflowTools // whose filters and prefix apply
}

// Find returns what a name means (seed 003, 6.4). A tool is found by its name, and by the name with
// its id, which it has, or would have if it shared its name, so that callers can always use that.
// It never blocks and may be called from any goroutine.
func (s *Snapshot) Find(name string) Found {
	if t := s.Tool(name); t != nil {
		return Found{Tool: t}
	}
	var f Found
	var long []*Tool
	for _, t := range s.Tools {
		if t.plain == name {
			f.Candidates = append(f.Candidates, t)
		} else if isLongName(name, t.plain, &t.Workflow) {
			long = append(long, t)
		}
	}
	for _, g := range s.gone {
		for _, w := range g.workflows {
			plain := plainName(g.settings.Prefix, &w.Workflow)
			if wanted(w.Name, g.settings.Include, g.settings.Exclude) && (plain == name || isLongName(name, plain, &w.Workflow)) {
				f.Gone = append(f.Gone, Skipped{Source: g.source, Workflow: w.ID, Reason: g.err.Error()})
			}
		}
	}
	switch {
	case len(f.Candidates) > 0:
	case len(long) == 1 && len(f.Gone) == 0:
		return Found{Tool: long[0]}
	default:
		f.Candidates = long
	}
	return f
}

// isLongName reports whether a name is that of a tool which shares its plain one: with its id, or
// with a digest after that.
func isLongName(name, plain string, w *Workflow) bool {
	const always = maxToolName - 1 - maxIDSuffix - 9 // how much of a plain name a long one has at least
	if !strings.HasPrefix(name, plain[:min(len(plain), always)]) {
		return false // avoids the cost of the other checks
	}
	long := withID(plain, w)
	return name == long || name == withDigest(long, w)
}
