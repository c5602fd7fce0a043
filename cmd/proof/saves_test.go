package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	whole := instructionsText("load_2", "s0", 7)
	if !isInstructions("load_2", "s0", saveIn(whole), whole+"\n\nMore.") {
		t.Error("instructions are not found to be whole")
	}
	if isInstructions("load_2", "s0", 7, strings.Replace(whole, "end of save 7", "end of save 8", 1)) {
		t.Error("instructions of two saves are taken for whole")
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

func TestSavesKnowWhatMayBeServed(t *testing.T) {
	b := newSaves()
	save := func(rough, ends bool) {
		b.begin(1, 0, rough)
		if ends {
			b.end(1, 0)
		}
	}
	served := func(m mark, n int) error { return b.served(m, 0, n) }
	save(false, true)
	old := b.mark(1)
	save(false, true)
	m := b.mark(1)
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
		if err := served(c.m, c.number); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	save(false, false) // whole at any moment
	if served(m, 3) != nil || served(m, 1) == nil {
		t.Error("while a save goes on that leaves the file whole, it and the one before may be served")
	}
	save(true, false)
	if served(b.mark(1), 1) != nil {
		t.Error("while the content is away, a server that may not have read the last one serves what it has")
	}
}

func TestSavesFindWhatIsMixed(t *testing.T) {
	b := newSaves()
	for file := range b.names {
		b.begin(0, file, false)
		b.begin(0, file, false)
		b.end(0, file)
	}
	info := func() stepInfo {
		i := stepInfo{Step: "s0", Info: infoText(2), Instructions: instructionsText("load_0", "s0", 2)}
		i.Outputs = append(i.Outputs, struct {
			Name        string `json:"name"`
			Description string `json:"description"`
		}{"report", outputText("s0", 2)})
		i.Outputs = append(i.Outputs, i.Outputs[0])
		return i
	}
	if n, err := b.step(b.mark(0), info()); n != 2 || err != nil {
		t.Fatalf("save %d, %v", n, err)
	}
	for what, change := range map[string]func(*stepInfo){
		"the info of another save":      func(i *stepInfo) { i.Info = infoText(1) },
		"an output of another save":     func(i *stepInfo) { i.Outputs[0].Description = outputText("s0", 1) },
		"old instructions":              func(i *stepInfo) { i.Instructions = instructionsText("load_0", "s0", 1) },
		"half of the instructions":      func(i *stepInfo) { i.Instructions = i.Instructions[:100] },
		"no instructions":               func(i *stepInfo) { i.Instructions = "" },
		"another step":                  func(i *stepInfo) { i.Step = "s1" },
		"half of the info":              func(i *stepInfo) { i.Info = i.Info[:12] },
		"a save that was never written": func(i *stepInfo) { i.Info = infoText(3); i.Outputs[0].Description = outputText("s0", 3) },
	} {
		i := info()
		change(&i)
		if _, err := b.step(b.mark(0), i); err == nil {
			t.Errorf("%s was not found", what)
		}
	}
}

// edited is a project with its jobs.
func edited(t *testing.T) *load {
	t.Helper()
	l := newLoad(io.Discard)
	l.root = t.TempDir()
	if err := l.writeJobs(); err != nil {
		t.Fatal(err)
	}
	return l
}

// However a file is saved, what stands there then is what the saves have.
func TestEveryWayOfSavingSaves(t *testing.T) {
	l := edited(t)
	for range 5 { // each after each other one
		for _, w := range ways {
			if err := l.save(0, 0, w); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(filepath.Join(jobDir(l.root, jobName(0)), "job.yml"))
			if err != nil {
				t.Fatalf("%s: %v", w.name, err)
			}
			sum := sha256.Sum256(data)
			if n := l.saves.of(hex.EncodeToString(sum[:])); n != l.saves.files[0][0].begun {
				t.Errorf("%s: what stands there is save %d of %d:\n%s", w.name, n, l.saves.files[0][0].begun, data)
			}
		}
	}
}

// A way that is not rough never leaves a reader without the whole of a save.
func TestOnlyRoughWaysTakeAFileAway(t *testing.T) {
	l := edited(t)
	path := filepath.Join(jobDir(l.root, jobName(0)), "job.yml")
	for _, w := range ways {
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
			if err := l.save(0, 0, w); err != nil {
				t.Fatal(err)
			}
		}
		close(done)
		if <-torn && !w.rough {
			t.Errorf("%s took the file away, and is not said to be rough", w.name)
		}
	}
}

// A job that was away for longer than servers wait excuses the calls of that time, and
// no others.
func TestAnEditorThatIsHeldUp(t *testing.T) {
	l := edited(t)
	slow := func(d time.Duration) way {
		return way{"slow", true, func(path, text string, _ int) error { time.Sleep(d); return writeWhole(path, text, 0) }}
	}
	before, other := l.saves.mark(0), l.saves.mark(1)
	if err := l.save(0, 0, slow(0)); err != nil {
		t.Fatal(err)
	}
	if l.saves.wasAway(before) {
		t.Skip("the machine stands still")
	}
	if err := l.save(0, 0, slow(awayFor+time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if !l.saves.wasAway(before) || l.saves.wasAway(other) || l.saves.wasAway(l.saves.mark(0)) {
		t.Error("the calls of that time are not told from others")
	}
}
