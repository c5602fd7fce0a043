package attempt

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/board"
)

// What a run is asked for is within its limits, each of which is allowed, or is refused by its name.
func TestArgumentsOfARun(t *testing.T) {
	for _, c := range []struct {
		a    RunWorkflowArgs
		want string // the argument that is refused, or what the run has
	}{
		{RunWorkflowArgs{}, "0 agents, 0s, resume false"},
		{RunWorkflowArgs{Parallel: new(1), MaxSeconds: new(1.5), Context: new(ContextStep)}, "1 agents, 1.5s, resume false"},
		{RunWorkflowArgs{Parallel: new(MaxParallel), MaxSeconds: new(float64(MaxRunSeconds)), Context: new(ContextResume)}, fmt.Sprintf("%d agents, %v, resume true", MaxParallel, MaxRunSeconds*time.Second)},
		{RunWorkflowArgs{MaxCostUSD: new(0.0), MaxUnknown: new(0)}, "0 agents, 0s, resume false"},
		{RunWorkflowArgs{Goal: strings.Repeat("x", board.MaxPrompt)}, "0 agents, 0s, resume false"},
		{RunWorkflowArgs{Goal: " \n"}, "goal"},
		{RunWorkflowArgs{Goal: strings.Repeat("x", board.MaxPrompt+1)}, "goal"},
		{RunWorkflowArgs{Parallel: new(0)}, "parallel"},
		{RunWorkflowArgs{Parallel: new(MaxParallel + 1)}, "parallel"},
		{RunWorkflowArgs{Context: new("other")}, "context"},
		{RunWorkflowArgs{MaxSeconds: new(0.0)}, "max_seconds"},
		{RunWorkflowArgs{MaxSeconds: new(float64(MaxRunSeconds + 1))}, "max_seconds"},
		{RunWorkflowArgs{MaxSeconds: new(math.NaN())}, "max_seconds"},
		{RunWorkflowArgs{MaxCostUSD: new(-0.01)}, "max_cost_usd"},
		{RunWorkflowArgs{MaxCostUSD: new(math.NaN())}, "max_cost_usd"},
		{RunWorkflowArgs{MaxUnknown: new(-1)}, "max_unknown"},
	} {
		if c.a.Goal == "" {
			c.a.Goal = "g"
		}
		c.a.JobName, c.a.WorkflowName = " j ", "w"
		r, err := runOf(&c.a)
		if refused, is := err.(*session.Error); is {
			testkit.Equal(t, fmt.Sprint(refused.Details["argument"]), c.want, "%v", err)
			continue
		}
		testkit.Must(t, err)
		testkit.Equal(t, fmt.Sprintf("%d agents, %v, resume %t", r.Parallel, r.MaxTime, r.Resume), c.want)
		testkit.Equal(t, r.JobName+"/"+r.WorkflowName, "j/w")
	}
	for given, want := range map[string]string{"CODER": "CODER and none", "CODER:fast": "CODER and fast", "CODER:": "CODER and ", "CODER:a:b": "CODER and a:b"} {
		name, variant := nameAndVariant(given)
		testkit.Equal(t, name+" and "+*cmp.Or(variant, new("none")), want)
	}
}

// The root has the files and the setup of attempts, another repository its own.
func TestWhatNewWorktreesGet(t *testing.T) {
	cfg := &config.Config{Projects: []config.Project{{Name: "other", Repos: []config.Repo{{Name: "shop", Copy: []string{"wrong"}}}}, {Name: "p", Repos: []config.Repo{{Name: "api", Copy: []string{"api"}}, {Name: "shop", Copy: []string{"a"}, Setup: []string{"make"}}}}}}
	cfg.Attempts.Copy, cfg.Attempts.Setup = []string{"root"}, []string{"setup"}
	for _, c := range []struct {
		p          task.Project
		repo, want string
	}{
		{task.Project{Name: "p", Root: true}, "shop", "[root] [setup]"},
		{task.Project{Name: "p"}, "shop", "[a] [make]"},
		{task.Project{Name: "p"}, "none", "[] []"},
		{task.Project{Name: "none"}, "shop", "[] []"},
	} {
		files, setup := provision(cfg, &c.p, c.repo)
		testkit.Equal(t, fmt.Sprint(files, setup), c.want, "%+v", c)
	}
}

// The part of a log that an execution wrote begins with its start and ends before that of the next.
func TestPartsOfALog(t *testing.T) {
	at := func(s int) *time.Time { return new(time.Unix(int64(s), 0)) }
	for _, c := range []struct {
		part logPart
		want string
	}{
		{logPart{}, "[1 2 3] false"},
		{logPart{began: at(2)}, "[2 3] false"},
		{logPart{until: at(2)}, "[1] false"},
		{logPart{began: at(2), until: at(3)}, "[2] false"},
		{logPart{began: at(4)}, "[] true"},
	} {
		var entries []runner.Entry
		for i := range 3 {
			entries = append(entries, runner.Entry{Index: int64(i + 1), Time: *at(i + 1)})
		}
		cut := c.part.cut(&entries)
		var left []int64
		for _, x := range entries {
			left = append(left, x.Index)
		}
		testkit.Equal(t, fmt.Sprint(left, cut), c.want)
	}
	var none []runner.Entry
	testkit.Equal(t, (&logPart{}).cut(&none), false, "nothing was cut of nothing")
}
