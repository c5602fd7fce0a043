package main

import (
	"testing"
)

// What a reply says of its definition is of one save, and of none that is too old.
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
