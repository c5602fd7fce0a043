package job

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// formsExample is the workflow of the example of forms.
func formsExample(t *testing.T, edits ...string) *Workflow {
	t.Helper()
	source := strings.NewReplacer(edits...).Replace(string(testkit.Get(os.ReadFile("testdata/valid/forms.yml")).Must(t)))
	j, faults := Parse("/job", FileName, []byte(source))
	testkit.Need(t, j != nil, "%v", faults)
	return j.Workflow("migrate")
}

func TestFormsInWords(t *testing.T) {
	var said []string
	w := formsExample(t)
	for _, p := range w.Parts() {
		form := ""
		if p.Form != nil {
			first, after := w.Span(p.Form)
			form = fmt.Sprintf("%s (%d to %d): ", p.Form, first, after)
		}
		said = append(said, form+fmt.Sprint(p.Entries))
	}
	testkit.Same(t, said, []string{
		"[[list_endpoints]]",
		"for each of endpoints, 4 at once (1 to 2): [[port] [verify measure] [workflow:note]]",
		`if output needs_docs is "yes" (2 to 3): [[write_docs]]`,
		`if input mode is one of "careful", "1", "true" (3 to 5): [[read_all] [workflow:other_job/audit]]`,
		`in rounds until output state is not "broken", at most 5 (5 to 6): [[fix]]`,
		"for each of endpoints, 4 at once (6 to 7): [[tidy]]",
		"[[workflow:publish]]",
	})
	testkit.Equal(t, (&Condition{Run: []string{"go", "test"}}).String(), "go test passes")
	for text, want := range map[string]string{"yes": "true false true", " yes ": "true false true", "no": "false true false", "b": "false true true"} {
		got := fmt.Sprint((&Condition{Is: new("yes")}).Holds(text), (&Condition{IsNot: new(" yes")}).Holds(text), (&Condition{In: []string{"yes ", "b"}}).Holds(text))
		testkit.Equal(t, got, want, "%q", text)
	}
}

// An item that has a worktree of its own ends with its merge, and others can be worked on at the same time.
func TestIsolatedItems(t *testing.T) {
	w := formsExample(t)
	isolated := w.Isolated()
	testkit.Same(t, isolated.Entries[6], Entry{"tidy", "merge:tidy"})
	testkit.Same(t, isolated.Entries[1], w.Entries[1], "without isolation")
	testkit.Same(t, w.Entries[6], Entry{"tidy"}, "the workflow itself")
	testkit.Same(t, isolated.Isolated().Entries, isolated.Entries, "twice")
	var merges, shared, before []bool
	for i := range w.Entries {
		merges, shared, before = append(merges, isolated.Form(i).Merges()), append(shared, isolated.Shared(i)), append(before, w.Shared(i))
	}
	testkit.Same(t, merges, []bool{false, false, false, false, false, false, true, false})
	testkit.Same(t, shared, []bool{false, true, false, false, false, false, false, false})
	testkit.Same(t, before, []bool{false, true, false, false, false, false, true, false})
	testkit.Equal(t, IsMerge("merge:tidy[1]") && !IsMerge("tidy"), true)
	alone := formsExample(t, "at_once: 4", "at_once: 1", "steps: [tidy]", "steps: [tidy], at_once: 1")
	testkit.True(t, alone.Shared(1) && !alone.Shared(6), "of items one after the other, only groups share the folder")
	testkit.True(t, w.Form(-1) == nil && w.Form(len(w.Forms)) == nil, "there is a form outside of the workflow")
}

func TestEditsOfForms(t *testing.T) {
	w := formsExample(t)
	for _, c := range []struct {
		old, now string
		same     bool
	}{
		{"Moves one module", "Moves it", true}, {"steps: [port, [verify, measure],", "steps: [port, verify, measure,", false}, {"at_once: 4", "at_once: 5", false},
		{"title: {value: Moved}", "title: {value: Ported}", false}, {"at_most: 5", "at_most: 6", false},
	} {
		testkit.Equal(t, w.SameForms(formsExample(t, c.old, c.now)), c.same, "%s", c.now)
	}
}

func TestIDsOfItems(t *testing.T) {
	for id, want := range map[string]string{"port[3]": "port 3 true", "port": "port 0 false", "port[03]": "port[03] 0 false", "port[-1]": "port[-1] 0 false", "port[x]": "port[x] 0 false", "port[1": "port[1 0 false", "port[0]": "port 0 true"} {
		step, index, item := SplitItem(id)
		testkit.Equal(t, fmt.Sprint(step, " ", index, " ", item), want)
		testkit.Equal(t, !item || Item(step, index) == id, true)
	}
}

func TestDefaultsOfSteps(t *testing.T) {
	testkit.Equal(t, (&Step{ID: "a"}).Ref()+" "+(&Step{ID: "a", Workflow: "w"}).Ref(), "a w/a")
	testkit.Equal(t, (&StepCheck{}).Limit()+(&StepCheck{Timeout: time.Second}).Limit(), DefaultCheckTimeout+time.Second)
	testkit.Equal(t, (&StepCheck{Override: "never"}).Never() && !(&StepCheck{Override: "human"}).Never(), true)
	s := &Step{Reviews: []Review{{RunEach: "a", ByHuman: true}, {RunEach: "b"}}, Outputs: []Output{{Name: "x"}, {Name: "y"}}}
	testkit.Equal(t, s.ReviewsBy(true)[0].RunEach+s.ReviewsBy(false)[0].RunEach+s.Output("y").Name, "aby")
	testkit.Equal(t, s.HasSchema(), false)
	s.Outputs[1].Schema.File = "s.json"
	testkit.Equal(t, s.HasSchema(), true)
	testkit.True(t, s.Output("z") == nil, "there is an output z")
}
