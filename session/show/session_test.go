package show

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/jsontext"
	"deepwork/session/workflow/machine"
)

func TestReviewerAsTyped(t *testing.T) {
	for pinned, want := range map[string]string{`["./review.sh","--strict"]`: "./review.sh --strict", "self": "self", "": ""} {
		testkit.Equal(t, asTyped(pinned), want, "%q", pinned)
	}
}

type failing []error

func (f *failing) Write([]byte) (int, error) {
	err := (*f)[0]
	*f = (*f)[1:]
	return 0, err
}

// A full disk behind a redirection is not mistaken for success, whatever is printed after.
func TestTheFirstFailedWriteIsTold(t *testing.T) {
	first, then := errors.New("disk full"), errors.New("closed")
	s := NewScreen(&failing{first, then}, func(string) string { return "" })
	_, err := fmt.Fprint(s, "x")
	testkit.Equal(t, err, first)
	testkit.Equal(t, s.Safe("y"), first)
}

func TestItemsRoundsAndWorkflowsAreShown(t *testing.T) {
	steps := jsontext.OrderedMap[*machine.StepProgress]{}
	for _, p := range []*machine.StepProgress{
		{StepID: "port[0]", Dropped: &machine.Override{Identity: "ann", Reason: "obsolete"}},
		{StepID: "fix", Round: &machine.Round{Number: 2}},
		{StepID: "workflow:publish", Child: "12345678", Outputs: machine.Outputs{{Key: "page", Value: machine.OutputValue{Each: []*machine.OutputValue{nil, {Paths: []string{"b.md"}}}}}}},
	} {
		steps = steps.Set(p.StepID, p)
	}
	var b strings.Builder
	Session(NewScreen(&b, func(string) string { return "" }), &machine.State{StepProgress: steps})
	for _, want := range []string{"port[0]: its item was dropped", "by ann: obsolete", "round 2", "session 12345678", "output page: b.md"} {
		testkit.Contains(t, b.String(), want)
	}
}
