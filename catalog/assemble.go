package catalog

import (
	"fmt"
	"slices"

	"deepwork/catalog/internal/follow"
	"deepwork/catalog/job"
)

// A served is an entry that is served under its directory's name.
type served struct {
	*entry
	duplicate *entry // the first entry with the same job name, or nil
	bundled   bool   // a copy of a bundled job that does not load: only its errors are shown
}

// assemble builds a snapshot of the folders. Of jobs with the same directory name, the first is served,
// broken or not; of two jobs with the same name, the later is an error (DESIGN "Jobs").
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
		if e.Good != nil && e.duplicate == nil {
			s.Jobs = append(s.Jobs, e.Good)
			s.byName[e.Good.Name] = e.Good
		}
		if faults := e.allFaults(); len(faults) > 0 {
			s.Errors = append(s.Errors, LoadError{JobName: e.name, JobDir: e.dir, Diagnostics: faults})
		}
	}

	// Names take precedence over directory names, even over those of other jobs.
	for _, e := range list {
		if _, taken := s.byName[e.name]; !taken && e.Good != nil && e.duplicate == nil {
			s.byName[e.name] = e.Good
		}
	}

	for i := range s.Errors {
		s.errs[s.Errors[i].JobName] = &s.Errors[i]
	}

	for _, e := range list {
		if e.Good == nil || e.duplicate != nil || len(e.faults()) == 0 {
			continue
		}
		if _, taken := s.errs[e.Good.Name]; !taken {
			s.errs[e.Good.Name] = s.errs[e.name]
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
	alive := make(map[string]*entry, count) // job name -> the first job on disk with that name
	for _, f := range folders {
		for _, e := range f.entries {
			if _, shadowed := taken[e.name]; shadowed || e.Good == nil && e.Bad == nil {
				continue // without a job.yml it does not claim its directory's name
			}
			if e.Good == nil && !f.standard && bundles(folders, e.name) {
				list = append(list, served{entry: e, bundled: true})
				continue
			}
			taken[e.name] = struct{}{}
			list = append(list, served{entry: e})
			if e.Good != nil && e.Phase != follow.Vanished {
				if _, ok := alive[e.Good.Name]; !ok {
					alive[e.Good.Name] = e
				}
			}
		}
	}

	// A renamed directory is briefly seen under both names: the entry that is gone yields at once, and does
	// not cause an error in the other.
	gone := make(map[string]*entry)
	out := list[:0]
	for _, s := range list {
		if s.Good != nil {
			first := alive[s.Good.Name]
			if s.Phase == follow.Vanished {
				if first != nil || gone[s.Good.Name] != nil {
					continue
				}
				gone[s.Good.Name] = s.entry
			} else if first != s.entry {
				s.duplicate = first
			}
		}

		out = append(out, s)
	}
	return out
}

// bundles reports whether the program brings a job of this name that loads.
func bundles(folders []*folder, name string) bool {
	return slices.ContainsFunc(folders, func(f *folder) bool {
		e := f.entry(name)
		return f.standard && e != nil && e.Good != nil
	})
}

// allFaults returns the errors in the file, and the error in its name.
func (s served) allFaults() job.Diagnostics {
	if s.bundled {
		return append(job.Diagnostics{{File: job.FileName, Line: 1, Column: 1, Message: fmt.Sprintf(
			"this copy of the bundled job does not load, so the bundled one is used: delete the folder %s", s.dir)}},
			s.faults()...)
	}
	if s.duplicate == nil {
		return s.faults()
	}
	return append(slices.Clone(s.faults()), s.Good.NameFault(job.FileName, fmt.Sprintf(
		"%q is the name of the job in %s too, which comes first; rename one of the two (this one is in %s)",
		s.Good.Name, s.duplicate.dir, s.dir)))
}

func sameError(a, b LoadError) bool {
	return a.JobName == b.JobName && a.JobDir == b.JobDir && slices.Equal(a.Diagnostics, b.Diagnostics)
}
