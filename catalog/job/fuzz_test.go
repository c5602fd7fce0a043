package job

import (
	"reflect"
	"slices"
	"testing"

	"deepwork/actor/testkit"
)

// FuzzParse: Parse never panics, its diagnostics are bounded, and what it
// accepts it accepts again, as the same job.
func FuzzParse(f *testing.F) {
	for _, name := range validFiles(f) {
		f.Add(readFile(f, name))
	}
	for _, c := range baseRules(f) {
		f.Add(c.source)
	}
	for _, name := range []string{"billion laughs", "alias to itself", "aliases to each other"} {
		f.Add(hostiles[name].source())
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
		testkit.Need(t, len(j.Steps) != 0 && identifier(j.Name) == "" && summary(j.Summary) == "", "accepted %+v", j)
		for i := range j.Steps {
			s := &j.Steps[i]
			testkit.Need(t, (j.Format == 2 || j.Step(s.ID) == s) && (s.Call != nil || (s.Instructions == "") != (insidePath(s.InstructionsFile) != "")), "accepted step %+v", s)
		}
		for i := range j.Workflows {
			w := &j.Workflows[i]
			testkit.Need(t, j.Workflow(w.Name) == w, "accepted workflow %+v", w)
			for e, entry := range w.Entries {
				for _, id := range entry {
					s := j.Of(w.Name).Step(id)
					testkit.Need(t, s != nil && w.Find(id) == e, "accepted entry %d of %+v", e, w)
					for _, dep := range s.Dependencies {
						same := w.Form(e) != nil && w.Form(e).ForEach != nil && w.Find(dep) == e && slices.Index(entry, dep) < slices.Index(entry, id)
						testkit.Need(t, w.Find(dep) < e || same, "%q does not come after %q in %+v", id, dep, w)
					}
				}
			}
		}
	})
}
