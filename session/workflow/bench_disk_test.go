package workflow

import (
	"fmt"
	"strings"
	"testing"
)

func BenchmarkFinishDurable(b *testing.B) {
	p := newProject(b)
	var steps []testStep
	var ids []string
	for i := range 25 {
		ids = append(ids, fmt.Sprintf("s%d", i))
		steps = append(steps, testStep{id: ids[i], outputs: oneFile})
	}
	p.job("alpha", steps, map[string]string{"main": "[" + strings.Join(ids, ", ") + "]"})
	p.write("r.md", "x")
	c := p.open().Connect("local")
	id := ""
	n := 0
	for b.Loop() {
		if n%25 == 0 {
			b.StopTimer()
			id = p.start(c, "alpha", "main").BeginStep.SessionID
			b.StartTimer()
		}
		n++
		if _, err := c.Finish(ctx, FinishArgs{Outputs: outputs("report", "r.md"), SessionID: &id}); err != nil {
			b.Fatal(err)
		}
	}
}
