package load

import (
	"strings"
	"testing"

	"deepwork/catalog/job"
	"deepwork/session/workflow"
)

// What is saved is a job, and what its texts say of their save is found again.
func TestTextsTellTheirSave(t *testing.T) {
	for _, group := range []int{1, 4} {
		text := jobText("load_2", group, 15) + appendedText(16) + appendedText(17)
		j, faults := job.Parse("/j", job.FileName, []byte(text))
		if j == nil || len(j.Workflows) != 1 || len(j.Workflows[0].Entries) != 3 {
			t.Fatalf("group of %d: %v", group, faults)
		}
		base, last, ok := parseInfo("load_2", j.CommonInfo)
		if base != 15 || last != 17 || !ok {
			t.Errorf("it is said to be save %d, of %d (%v)", last, base, ok)
		}
		if got := j.Steps[0].Outputs[0].Description; got != outputText(stepPlan, 15) {
			t.Errorf("an output is %q", got)
		}
		if j.Summary != summaryText("load_2", 15) {
			t.Errorf("the summary is %q", j.Summary)
		}
	}
	for _, torn := range []string{"", "load_2 as written by save 1", "load_2 as written by save 1.\nAppended by save 3.", "load_2 as written by save 1.\nAppended by sa"} {
		if _, _, ok := parseInfo("load_2", torn); ok {
			t.Errorf("%q is taken for whole", torn)
		}
	}
	whole := instructionsText("load_2", stepPlan, 7)
	if n, ok := parseInstructions("load_2", stepPlan, whole+"\n\nMore."); n != 7 || !ok {
		t.Errorf("instructions are of save %d (%v)", n, ok)
	}
	if _, ok := parseInstructions("load_2", stepPlan, strings.Replace(whole, "end of save 7", "end of save 8", 1)); ok {
		t.Error("instructions of two saves are taken for whole")
	}
}

// Half of what an editor writes is no job: else nobody could tell it from a save.
func TestHalfASaveIsNoJob(t *testing.T) {
	text := jobText("load_0", 2, 3)
	for n := 1; n <= strings.Index(text, infoKey); n++ {
		if j, _ := job.Parse("/j", job.FileName, []byte(text[:n])); j != nil {
			t.Fatalf("the first %d of %d bytes are a job:\n%s", n, len(text), text[:n])
		}
	}
}

func TestBookKnowsWhatMayBeServed(t *testing.T) {
	save := func(b *book, rough, ends bool) {
		b.begin(1, 0, 0, func(n int) string { return jobText("load_1", 1, n) }, rough)
		if ends {
			b.end(1, 0)
		}
	}
	b := newBook(1, 2)
	save(b, false, true)
	old := b.mark(1, 0)
	save(b, false, true)
	m := b.mark(1, 0)
	for _, c := range []struct {
		what   string
		m      mark
		number int
		ok     bool
	}{
		{"the last one", m, 2, true},
		{"an older one than had ended", m, 1, false},
		{"an older one, to a call that began before", old, 1, true},
		{"one that was never written", m, 3, false},
	} {
		if err := b.served(c.m, 0, c.number); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	save(b, false, false) // whole at any moment
	if b.served(m, 0, 3) != nil || b.served(m, 0, 1) == nil {
		t.Error("while a save goes on that leaves the file whole, it and the one before may be served")
	}
	save(b, true, false)
	other := b.mark(1, 1)
	if b.served(other, 0, 1) != nil {
		t.Error("while the content is away, a server that may not have read the last one serves what it has")
	}
	if b.served(b.mark(1, 0), 0, 2) == nil {
		t.Error("one that has told of save 3 must not go back")
	}
}

func TestBookFindsWhatIsMixed(t *testing.T) {
	b := newBook(1, 1)
	for file := range b.files[0] {
		b.begin(0, file, 0, func(n int) string { return "" }, false)
		b.begin(0, file, 0, func(n int) string { return "" }, false)
		b.end(0, file)
	}
	info := func() *workflow.StepInfo {
		return &workflow.StepInfo{
			StepID: stepPlan, CommonJobInfo: infoText("load_0", 2, 2) + "\n", Instructions: instructionsText("load_0", stepPlan, 2),
			ExpectedOutputs: []workflow.ExpectedOutput{{Name: "report", Description: outputText(stepPlan, 2)}},
		}
	}
	if n, err := b.step(b.mark(0, 0), info(), stepPlan); n != 2 || err != nil {
		t.Fatalf("save %d, %v", n, err)
	}
	for what, change := range map[string]func(*workflow.StepInfo){
		"the info of another save":         func(i *workflow.StepInfo) { i.CommonJobInfo = infoText("load_0", 1, 1) },
		"an output of another save":        func(i *workflow.StepInfo) { i.ExpectedOutputs[0].Description = outputText(stepPlan, 1) },
		"old instructions":                 func(i *workflow.StepInfo) { i.Instructions = instructionsText("load_0", stepPlan, 1) },
		"half of the instructions":         func(i *workflow.StepInfo) { i.Instructions = i.Instructions[:100] },
		"no instructions":                  func(i *workflow.StepInfo) { i.Instructions = "" },
		"another step":                     func(i *workflow.StepInfo) { i.StepID = stepWrap },
		"an append that was never written": func(i *workflow.StepInfo) { i.CommonJobInfo = infoText("load_0", 1, 2) },
	} {
		i := info()
		change(i)
		if _, err := b.step(b.mark(0, 0), i, stepPlan); err == nil {
			t.Errorf("%s was not found", what)
		}
	}
}

// A list tells which save wrote a file, and not what was appended since: it is no
// proof that what is being appended was served.
func TestBookBelievesAListNoMoreThanItSays(t *testing.T) {
	b := newBook(1, 1)
	text := func(n int) string { return jobText("load_1", 1, n) }
	b.begin(1, 0, 0, text, false)
	b.end(1, 0)
	b.begin(1, 0, 0, text, false)
	b.end(1, 0)
	b.begin(1, 0, 2, text, false) // an append to 2 goes on
	if err := b.listed(b.mark(1, 0), summaryText("load_1", 2)); err != nil {
		t.Fatal(err)
	}
	if err := b.served(b.mark(1, 0), 0, 2); err != nil {
		t.Errorf("what is appended need not be there yet: %v", err)
	}
	b.end(1, 0)
	if err := b.listed(b.mark(1, 0), summaryText("load_1", 2)); err != nil {
		t.Errorf("what was appended to: %v", err)
	}
	if b.listed(b.mark(1, 0), summaryText("load_1", 1)) == nil || b.served(b.mark(1, 0), 0, 1) == nil {
		t.Error("one that is older than what was served")
	}
}
