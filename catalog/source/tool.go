// Package source is the catalog of workflows that other systems offer: it keeps a connection to each MCP
// server that the config names as a source, asks it for its workflows, and publishes them as an immutable
// snapshot of tools (seed 003; DESIGN "Dynamic tools").
//
// Each source has a goroutine that connects, queries and reconnects. Only that goroutine replaces what is
// known about the source (an immutable offer). One actor applies the config and makes the snapshot of all
// offers. What a source sends is untrusted: it is limited, checked and named before it reaches others.
// Connections and calls use the MCP SDK; sdk_test.go checks its undocumented behavior that this package
// relies on.
package source

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Workflow is a workflow that a source offers, checked, with defaults for what was missing (seed 003, 3.3
// and 6.1). It is immutable.
type Workflow struct {
	Source      string // the source's name in the config
	ID          string // unique at its source; at most 1,024 bytes
	Name        string // as the source gave it; at most 256 characters
	Description string // at most 8,000 characters
	Category    string // default "workflow"
	Version     string // default "1.0.0"
	// an object schema that model APIs accept; the schema of any object if the source gave no usable one
	InputSchema json.RawMessage
	Adapted     *Adaptation     // how InputSchema differs from the source's own; nil if it does not
	Async       bool            // default true
	Metadata    json.RawMessage // an object, or nil
	Performer   Performer       // from Metadata

	tool string // of the source, which the config names and this is; or ""
}

// A Performer says who must perform the steps of a workflow at its source while it is executed.
type Performer string

// The values of Performer; "" means nobody: the source executes it.
const (
	ByAgent  Performer = "agent"
	ByPerson Performer = "person"
)

// A Tool is a workflow under the name with which it is called. It is immutable. A tool that is the same in
// two successive snapshots has the same pointer.
type Tool struct {
	Name string // ^[A-Za-z0-9_-]{1,64}$; unique in the snapshot, and not reserved
	Workflow
	Away string // why its source is unreachable, or ""
	// Changed is when its description or input schema last changed, since this process first
	// listed it; zero means never.
	Changed time.Time

	plain  string // its name if no other tool shared that
	origin *offered
	check  func(json.RawMessage) error
}

// Check returns what is wrong with the arguments of a call, with its location, or nil (seed 003, 2.5). Empty
// arguments and null count as an empty object. It never blocks and may be called from any goroutine.
func (t *Tool) Check(arguments json.RawMessage) error {
	err := t.check(arguments)
	if err == nil || t.Adapted == nil {
		return err
	}

	for _, listed := range slices.Sorted(maps.Keys(t.Adapted.Renamed)) {
		if name := t.Adapted.Renamed[listed]; strings.Contains(err.Error(), name) {
			err = fmt.Errorf("%w (%q is %s in the listed schema)", err, name, listed)
		}
	}
	return err
}

// Original returns the arguments of a call with the names in the source's own schema.
func (t *Tool) Original(arguments json.RawMessage) json.RawMessage {
	if t.Adapted == nil || len(t.Adapted.Renamed) == 0 {
		return arguments
	}
	return t.Adapted.original(arguments, t.Adapted.own)
}

// A Skipped is a workflow that is not offered, or a source that is not available, with the reason.
type Skipped struct {
	Source   string `json:"source" jsonschema:"name of the source; empty: config.yml"`
	Workflow string `json:"workflow" jsonschema:"id or name of the workflow; empty: the whole source"`
	Reason   string `json:"reason" jsonschema:"why"`
}

// A SourceState is the state of a source.
type SourceState struct {
	Name      string
	Connected bool
	Err       error // why it is not connected, or why its last query failed
	Workflows int   // number of workflows that it offers
}

// A Snapshot is the offer of all sources at one moment. It is immutable.
type Snapshot struct {
	Tools   []*Tool // by name
	Skipped []Skipped
	Sources []SourceState // in the config's order

	gone []Skipped // names of tools, current or former, whose sources are away too long to be listed
}

// Tool returns the tool of this name, or nil.
func (s *Snapshot) Tool(name string) *Tool {
	i, ok := slices.BinarySearchFunc(s.Tools, name, func(t *Tool, name string) int {
		return strings.Compare(t.Name, name)
	})
	if !ok {
		return nil
	}
	return s.Tools[i]
}

// Find explains a name that no tool has. It returns the tools that would have it if no others shared it, by
// name, and the sources that are away and had a tool of that name, with the reasons (seed 003, 6.4).
func (s *Snapshot) Find(name string) (candidates []*Tool, gone []Skipped) {
	for _, t := range s.Tools {
		if t.plain == name {
			candidates = append(candidates, t)
		}
	}

	for _, g := range s.gone {
		if g.Workflow == name {
			gone = append(gone, g)
		}
	}
	return candidates, gone
}

// A Report lists the changes of a refresh, by tool name.
type Report struct {
	Added   []string
	Removed []string
	Changed []string // in description, schema or other data, but not in whether their source is away
	Skipped []Skipped

	// Silent has the sources that returned no new list, in the config's order, with the reasons: they are
	// away, refused, or did not answer in time. Their tools are unchanged.
	Silent []Skipped
}

// compare returns what changed from one snapshot to another.
func compare(old, now *Snapshot) Report {
	r := Report{Added: []string{}, Removed: []string{}, Changed: []string{}, Skipped: now.Skipped}
	for _, t := range now.Tools {
		switch was := old.Tool(t.Name); {
		case was == nil:
			r.Added = append(r.Added, t.Name)
		case was.origin != t.origin:
			r.Changed = append(r.Changed, t.Name)
		}
	}
	for _, t := range old.Tools {
		if now.Tool(t.Name) == nil {
			r.Removed = append(r.Removed, t.Name)
		}
	}
	return r
}
