package catalog

import (
	"fmt"
	"slices"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/job"
)

// A served is an entry that won its directory's name.
type served struct {
	*entry
	twin *entry // the one that has the same job name and comes first, or nil
}

// assemble makes the snapshot of what the folders hold: the first folder that
// has a directory's name wins, broken or not; of two jobs with one name the
// later is an error (DESIGN "Jobs").
func assemble(folders []*folder, version uint64) *Snapshot {
	list := winners(folders)
	s := &Snapshot{
		Version: version,
		Jobs:    make([]*job.Job, 0, len(list)),
		Errors:  []LoadError{},
		byName:  make(map[string]*job.Job, 2*len(list)),
		errs:    make(map[string]*LoadError),
	}
	for _, e := range list {
		if e.good != nil && e.twin == nil {
			s.Jobs = append(s.Jobs, e.good)
			s.byName[e.good.Name] = e.good
		}
		if faults := e.allFaults(); len(faults) > 0 {
			s.Errors = append(s.Errors, LoadError{JobName: e.name, JobDir: e.dir, Diagnostics: faults})
		}
	}
	// Names come before directory names, whosever they are.
	for _, e := range list {
		if _, taken := s.byName[e.name]; !taken && e.good != nil && e.twin == nil {
			s.byName[e.name] = e.good
		}
	}
	for i := range s.Errors {
		s.errs[s.Errors[i].JobName] = &s.Errors[i]
	}
	for _, e := range list {
		if e.good == nil || e.twin != nil || len(e.faults) == 0 {
			continue
		}
		if _, taken := s.errs[e.good.Name]; !taken {
			s.errs[e.good.Name] = s.errs[e.name]
		}
	}
	return s
}

// winners returns the entries that are jobs and not shadowed, in order.
func winners(folders []*folder) []served {
	var list []served
	count := 0
	for _, f := range folders {
		count += len(f.entries)
	}
	list = make([]served, 0, count)
	taken := make(map[string]struct{}, count)
	alive := make(map[string]*entry, count) // job name -> the first that has it and is on disk
	for _, f := range folders {
		for _, e := range f.entries {
			if !e.isJob() {
				continue
			}
			if _, shadowed := taken[e.name]; shadowed {
				continue
			}
			taken[e.name] = struct{}{}
			list = append(list, served{entry: e})
			if e.good != nil && e.phase != vanished {
				if _, ok := alive[e.good.Name]; !ok {
					alive[e.good.Name] = e
				}
			}
		}
	}
	// A directory that was renamed is seen twice for a moment: the one that is
	// gone gives way at once, and is no fault of the other.
	gone := make(map[string]*entry)
	out := list[:0]
	for _, s := range list {
		if s.good != nil {
			first := alive[s.good.Name]
			if s.phase == vanished {
				if first != nil || gone[s.good.Name] != nil {
					continue
				}
				gone[s.good.Name] = s.entry
			} else if first != s.entry {
				s.twin = first
			}
		}
		out = append(out, s)
	}
	return out
}

// allFaults is what Errors says of the entry.
func (s served) allFaults() job.Diagnostics {
	if s.twin == nil {
		return s.faults
	}
	line, column := namePosition(s.good.Source)
	faults := slices.Clone(s.faults)
	return append(faults, job.Diagnostic{
		File: job.FileName, Line: line, Column: column, Path: "name",
		Message: fmt.Sprintf("%q is the name of the job in %s too, which comes first; rename one of the two (this one is in %s)",
			s.good.Name, s.twin.dir, s.dir),
	})
}

// namePosition finds where a definition says its name; 0, 0: not found.
func namePosition(source []byte) (line, column int) {
	var doc yaml.Node
	if yaml.Unmarshal(source, &doc) != nil || len(doc.Content) == 0 {
		return 0, 0
	}
	top := doc.Content[0].Content
	for i := 0; i+1 < len(top); i += 2 {
		if top[i].Value == "name" {
			return top[i+1].Line, top[i+1].Column
		}
	}
	return 0, 0
}

// sameView tells whether readers would find no difference between two snapshots.
func sameView(a, b *Snapshot) bool {
	return slices.Equal(a.Jobs, b.Jobs) && slices.EqualFunc(a.Errors, b.Errors, sameError)
}

func sameError(a, b LoadError) bool {
	return a.JobName == b.JobName && a.JobDir == b.JobDir && slices.Equal(a.Diagnostics, b.Diagnostics)
}
