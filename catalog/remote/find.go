package remote

import "deepwork/catalog/config"

// A Found is what the name in a call may mean.
type Found struct {
	Tool *Tool // nil means none, or several

	// If Tool is nil: the tools that would have the name if no others shared it, by
	// name, and the workflows that had it and whose sources are away, with the reasons.
	Candidates []*Tool
	Gone       []Skipped
}

// goneTools are the workflows of a source that is away for so long that they are not
// listed any more.
type goneTools struct {
	source    string
	err       error
	workflows []*offered
	settings  config.WorkflowTools // whose filters and prefix apply
}

// An index holds the names that tools do not have, but would have if others came or
// went.
type index struct {
	plain map[string][]*Tool
	long  map[string][]*Tool
	gone  map[string][]Skipped
}

// Find returns what a name means (seed 003, 6.4). A tool is found under its name, and
// under the name with its id, which it has, or would have beside others of its name,
// so that callers can always use that. The first call for a name that is no tool's
// costs some milliseconds with thousands of tools. It never blocks and may be called
// from any goroutine.
func (s *Snapshot) Find(name string) Found {
	if t := s.Tool(name); t != nil {
		return Found{Tool: t}
	}
	s.known.Do(s.learn)
	long := s.index.long[name]
	if len(long) == 1 && len(s.index.plain[name]) == 0 && len(s.index.gone[name]) == 0 {
		return Found{Tool: long[0]}
	}
	candidates := s.index.plain[name]
	if len(candidates) == 0 {
		candidates = long
	}
	return Found{Candidates: candidates, Gone: s.index.gone[name]}
}

// learn makes the index.
func (s *Snapshot) learn() {
	s.index = index{plain: make(map[string][]*Tool), long: make(map[string][]*Tool), gone: make(map[string][]Skipped)}
	for _, t := range s.Tools {
		s.index.plain[t.plain] = append(s.index.plain[t.plain], t)
		for _, name := range longNames(t.plain, &t.Workflow) {
			s.index.long[name] = append(s.index.long[name], t)
		}
	}
	for _, g := range s.gone {
		why := Skipped{Source: g.source, Reason: g.err.Error()}
		for _, w := range g.workflows {
			if !wanted(w.Name, g.settings.Include, g.settings.Exclude) {
				continue
			}
			why.Workflow = w.ID
			plain := plainName(g.settings.Prefix, &w.Workflow)
			for _, name := range append(longNames(plain, &w.Workflow), plain) {
				s.index.gone[name] = append(s.index.gone[name], why)
			}
		}
	}
}

// longNames returns the names of a tool that shares its plain one: with its id, and
// with a digest after that.
func longNames(plain string, w *Workflow) []string {
	long := withID(plain, w)
	return []string{long, withDigest(long, w)}
}
