package workflow

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/store"
	"deepwork/session/workflow/machine"
)

// at opens a server of another machine, as far as the stores are concerned.
func at(place task.Place) func(*Options) { return func(o *Options) { o.Place = &place } }

// A session that goes on at another machine says which of its files are not there, and does not
// take them for lost. The record has the place where each step's outputs were delivered.
func TestASessionThatMovesToAnotherMachineSaysWhereItsFilesAre(t *testing.T) {
	p := newProject(t)
	p.job("j", []testStep{{id: "one", outputs: oneFile}, {id: "two", outputs: oneFile}, {id: "three", outputs: oneFile}}, map[string]string{"main": "[one, two, three]"})
	p.write("one.md", "1")
	p.write("two.md", "2")
	p.write("three.md", "3")
	ctx := context.Background()
	first, second := task.Place{MachineID: "aaaaaaaa", MachineName: "red", Root: "/home/red/p"}, task.Place{MachineID: "bbbbbbbb", MachineName: "blue", Root: "/home/blue/p"}

	s1 := p.open(at(first))
	c1 := s1.Connect("local")
	id := p.start(c1, "j", "main").BeginStep.SessionID
	p.finish(c1, `{"outputs": {"report": "one.md"}}`)
	if r, err := c1.Step(ctx, StepArgs{}); err != nil || r.CompletedSteps[0].Machine != "" {
		t.Fatalf("on its own machine: %+v, %v", r, err)
	}
	s1.stop()
	testkit.Must(t, os.Remove(filepath.Join(p.root, "one.md"))) // the other machine does not have it

	c2 := p.open(at(second)).Connect("local")
	r, err := c2.Step(ctx, StepArgs{SessionID: &id})
	testkit.Must(t, err)
	if len(r.CompletedSteps) != 1 || r.CompletedSteps[0].Machine != "red (aaaaaaaa), in /home/red/p" {
		t.Errorf("completed steps %+v", r.CompletedSteps)
	}
	p.finish(c2, `{"outputs": {"report": "two.md"}}`)
	end := p.finish(c2, `{"outputs": {"report": "three.md"}}`)
	if s := *end.Summary; strings.Contains(s, "no longer there") || !strings.Contains(s, "step 'one' are on the machine red (aaaaaaaa), in /home/red/p.") || strings.Contains(s, "step 'two'") {
		t.Errorf("summary %q", s)
	}
	var kept struct {
		Place    task.Place `json:"place"`
		Progress map[string]struct {
			Place task.Place `json:"place"`
		} `json:"step_progress"`
	}
	err = json.Unmarshal([]byte(toJSON(t, p.record(id))), &kept)
	if err != nil || kept.Place != second || kept.Progress["one"].Place != first || kept.Progress["three"].Place != second {
		t.Errorf("the record has %+v, %v", kept, err)
	}
}

// A checkout on another machine may have another path than the one where the session began: its own files are
// reviewed there.
func TestACheckoutOfAnotherPathIsReviewed(t *testing.T) {
	p := newProject(t)
	p.reviewedJob()
	first, rev := p.reviewed()
	id := p.start(first.Connect("local"), "alpha", "main").BeginStep.SessionID
	second := p.reopen(rev, at(task.Place{MachineID: "bbbbbbbb", MachineName: "blue", Root: p.root}))
	second.records.Sessions = began{second.records.Sessions, "/home/red/p"}
	if r := p.finish(second.Connect("local"), `{"outputs":{"report":"good.md"},"session_id":"`+id+`"}`); r.Status != machine.NextStep {
		t.Errorf("reply %s", toJSON(t, r))
	}
}

// began is a store whose sessions began in a folder that is not on this machine.
type began struct {
	store.Sessions
	root string
}

func (b began) ReadSession(ctx context.Context, id string, known int64) (*store.SessionRecord, error) {
	r, err := b.Sessions.ReadSession(ctx, id, known)
	if r != nil {
		r.Root = b.root
	}
	return r, err
}
