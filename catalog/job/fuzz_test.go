package job

import (
	"reflect"
	"testing"
)

// FuzzParse: Parse never panics, its diagnostics are bounded, and what it
// accepts it accepts again, as the same job.
func FuzzParse(f *testing.F) {
	for _, name := range validFiles(f) {
		f.Add(readFile(f, name))
	}
	for _, c := range ruleCases(f) {
		f.Add(c.source)
	}
	for _, name := range []string{"billion laughs", "alias to itself", "aliases to each other"} {
		f.Add(hostile[name]())
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		j, ds := Parse("/d", FileName, source)
		checkBounded(t, j, ds)
		if j == nil {
			return
		}
		if again, ds := Parse(j.Dir, FileName, j.Source); ds != nil || !reflect.DeepEqual(j, again) {
			t.Fatalf("parsed again, the job differs: %v", ds)
		}
		// What the rest of the program relies on without checking.
		if len(j.Steps) == 0 || identifier(j.Name) != "" || summary(j.Summary) != "" {
			t.Fatalf("accepted %+v", j)
		}
		for i := range j.Steps {
			s := &j.Steps[i]
			if (j.Format != 2 && j.Step(s.ID) != s) || (s.Instructions == "") == (insidePath(s.InstructionsFile) != "") {
				t.Fatalf("accepted step %+v", s)
			}
		}
		for i := range j.Workflows {
			w := &j.Workflows[i]
			if j.Workflow(w.Name) != w {
				t.Fatalf("accepted workflow %+v", w)
			}
			for e, entry := range w.Entries {
				for _, id := range entry {
					s := j.Of(w.Name).Step(id)
					if s == nil || w.Find(id) != e {
						t.Fatalf("accepted entry %d of %+v", e, w)
					}
					for _, dep := range s.Dependencies {
						if w.Find(dep) >= e {
							t.Fatalf("%q does not come after %q in %+v", id, dep, w)
						}
					}
				}
			}
		}
	})
}
