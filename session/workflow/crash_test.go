package workflow

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// crashChild is the environment variable that makes the test binary the server
// of TestAcknowledgedTransitionsSurviveKills.
const crashChild = "DEEPWORK_TEST_CRASH_ROOT"

// TestCrashChild is that server: it goes on with a session for ever, and prints
// the number of each step once its reply is there.
func TestCrashChild(t *testing.T) {
	root := os.Getenv(crashChild)
	if root == "" {
		t.Skip("is run by TestAcknowledgedTransitionsSurviveKills")
	}
	p := &project{t: t, root: root}
	c := p.open().Connect("local")
	id := os.Getenv("DEEPWORK_TEST_CRASH_SESSION")
	for {
		step, err := c.Step(ctx, StepArgs{SessionID: &id})
		testkit.Must(t, err)
		n, _ := strconv.Atoi(strings.TrimPrefix(step.BeginStep.StepID, "s"))
		if n == 30 {
			testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "s1"})))
			fmt.Printf("acknowledged %s\n", "s1")
			continue
		}
		r, err := c.Finish(ctx, FinishArgs{Outputs: json.RawMessage("{}"), StepID: &step.BeginStep.StepID})
		testkit.Must(t, err)
		fmt.Printf("acknowledged %s\n", r.BeginStep.StepID)
	}
}

// TestAcknowledgedTransitionsSurviveKills kills servers in the middle of their
// work: what was acknowledged is there, at most the one transition under way
// beside it, and a repeated call never does a step twice.
func TestAcknowledgedTransitionsSurviveKills(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	p := newProject(t)
	var steps []testStep
	var ids []string
	for i := range 31 {
		ids = append(ids, fmt.Sprintf("s%d", i))
		steps = append(steps, testStep{id: ids[i]})
	}
	p.job("alpha", steps, map[string]string{"main": "[" + strings.Join(ids, ", ") + "]"})
	srv := p.open()
	id := p.start(srv.Connect("local"), "alpha", "main").BeginStep.SessionID
	srv.stop()

	last := "s0"
	for round := range 12 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCrashChild$")
		cmd.Env = append(os.Environ(), crashChild+"="+p.root, "DEEPWORK_TEST_CRASH_SESSION="+id)
		out, err := cmd.StdoutPipe()
		testkit.Must(t, err)
		testkit.Must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		acknowledged := 0
		quota := 1 + rand.IntN(40)
		var said []string
		for lines.Scan() {
			if step, ok := strings.CutPrefix(lines.Text(), "acknowledged "); ok {
				last = step
				if acknowledged++; acknowledged == quota {
					// Somewhere within the next transition.
					time.AfterFunc(time.Duration(rand.IntN(800))*time.Microsecond, func() { cmd.Process.Kill() })
				}
			} else {
				said = append(said, lines.Text())
			}
		}
		cmd.Wait()
		if acknowledged < quota {
			t.Fatalf("round %d: the server ended without being asked: %v", round, said)
		}
		s := p.record(id)
		next := ids[(slices.Index(ids, last)+1)%len(ids)]
		if last == "s30" {
			next = "s1"
		}
		if s.CurrentStepID != last && s.CurrentStepID != next {
			t.Fatalf("round %d: acknowledged %s, the record is at %s", round, last, s.CurrentStepID)
		}
		last = s.CurrentStepID
	}
}
