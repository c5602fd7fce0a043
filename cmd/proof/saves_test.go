package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
)

// What is saved is a job, and what its texts say of their save is found again.
func TestTextsTellTheirSave(t *testing.T) {
	j, faults := job.Parse("/j", job.FileName, []byte(jobText("load_2", 15)))
	if j == nil || len(j.Workflows) != len(workflows) {
		t.Fatal(faults)
	}
	if j.CommonInfo != infoText(15) || saveIn(j.CommonInfo) != 15 {
		t.Errorf("the common info is %q", j.CommonInfo)
	}
	if got := j.Steps[0].Outputs[0].Description; got != outputText("s0", 15) {
		t.Errorf("an output is %q", got)
	}
	whole := instructionsText("load_2", "s0")
	if !isInstructions("load_2", "s0", whole+"\n\nMore.") {
		t.Error("instructions are not found to be whole")
	}
	if isInstructions("load_2", "s0", whole[:len(whole)-5]) {
		t.Error("half of the instructions are taken for whole")
	}
}

// Half of what an editor writes is no job: else nobody could tell it from a save.
func TestHalfASaveIsNoJob(t *testing.T) {
	text := jobText("load_0", 3)
	for n := 1; n <= strings.Index(text, infoKey); n += 3 {
		if j, _ := job.Parse("/j", job.FileName, []byte(text[:n])); j != nil {
			t.Fatalf("the first %d of %d bytes are a job:\n%s", n, len(text), text[:n])
		}
	}
}

func TestSavesFindWhatIsMixed(t *testing.T) {
	b := newWorld("", "", 0).saves
	for range 3 {
		b.begin(0)
		b.end(0)
	}
	b.begin(0)
	info := func() stepInfo {
		i := stepInfo{Step: "s0", Info: infoText(3), Instructions: instructionsText("load_0", "s0")}
		i.Outputs = append(i.Outputs, struct {
			Name        string `json:"name"`
			Description string `json:"description"`
		}{"report", outputText("s0", 3)})
		i.Outputs = append(i.Outputs, i.Outputs[0])
		return i
	}
	serve := func(save int) func(*stepInfo) {
		return func(i *stepInfo) { i.Info, i.Outputs[0].Description = infoText(save), outputText("s0", save) }
	}
	for last := range 4 {
		if n, err := b.step(0, last, info()); n != 3 || err != nil {
			t.Fatalf("save %d, %v", n, err)
		}
	}
	for what, change := range map[string]func(*stepInfo){
		"the info of another save":      func(i *stepInfo) { i.Info = infoText(4) },
		"an output of another save":     func(i *stepInfo) { i.Outputs[0].Description = outputText("s0", 4) },
		"half of the instructions":      func(i *stepInfo) { i.Instructions = i.Instructions[:100] },
		"no instructions":               func(i *stepInfo) { i.Instructions = "" },
		"another step":                  func(i *stepInfo) { i.Step = "s1" },
		"half of the info":              func(i *stepInfo) { i.Info = i.Info[:12] },
		"an older save than had ended":  serve(2),
		"a save that was never written": serve(5),
	} {
		i := info()
		change(&i)
		if _, err := b.step(0, b.last(0), i); err == nil {
			t.Errorf("%s was not found", what)
		}
	}
	i := info()
	if serve(4)(&i); b.last(0) != 3 {
		t.Errorf("save %d has ended", b.last(0))
	} else if n, err := b.step(0, 3, i); n != 4 || err != nil {
		t.Errorf("one that goes on may be served: save %d, %v", n, err)
	}
}

// edited is a project with its jobs.
func edited(t *testing.T) *load {
	t.Helper()
	l := newLoad(io.Discard)
	l.root = t.TempDir()
	testkit.Must(t, l.writeProject(""))
	return l
}

// However a file is saved, it then has what the saves have.
func TestEveryWayOfSavingSaves(t *testing.T) {
	l := edited(t)
	for range 5 { // each after each other one
		for _, w := range slices.Concat(roughWays, wholeWays) {
			testkit.Must(t, l.save(0, w))
			data, err := os.ReadFile(l.jobFile(0))
			if err != nil {
				t.Fatalf("%s: %v", w.name, err)
			}
			sum := sha256.Sum256(data)
			if n := l.saves.of(hex.EncodeToString(sum[:])); n != l.saves.begun[0] {
				t.Errorf("%s: the file has save %d of %d:\n%s", w.name, n, l.saves.begun[0], data)
			}
		}
	}
}

// wholeWays never leave a reader without the whole of a save.
func TestWholeWaysNeverTakeAFileAway(t *testing.T) {
	l := edited(t)
	path := l.jobFile(0)
	for _, w := range wholeWays {
		done, torn := make(chan struct{}), make(chan bool)
		go func() {
			seen := false
			for {
				data, err := os.ReadFile(path)
				seen = seen || err != nil || !strings.Contains(string(data), infoKey)
				select {
				case <-done:
					torn <- seen
					return
				default:
				}
			}
		}()
		for range 100 {
			testkit.Must(t, l.save(0, w))
		}
		close(done)
		if <-torn {
			t.Errorf("%s took the file away", w.name)
		}
	}
}
