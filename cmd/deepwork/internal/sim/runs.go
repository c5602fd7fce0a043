//go:build unix

package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"time"
)

// A caller is a client that runs workflows of another system, and asks later how
// they went, whichever server was killed meanwhile.
type caller struct {
	agent
	runs   []*calledRun
	tokens map[string]bool // of all calls; true: nothing may have been started
}

// A calledRun is a run that a call was told of.
type calledRun struct {
	id, token string
	source    bool   // the source's id of it was told too, and is kept
	state     string // of its end, once that was told and is kept
	power     int    // how often the power had been cut then
}

func newCaller(a *agent) *caller { return &caller{agent: *a, tokens: map[string]bool{}} }

// The codes of refusals of runs, as those of the board.
var (
	runsPassing   = []string{"run_not_saved", "too_many_runs", "unknown_workflow_tool", "config_invalid", "runs_unread"}
	runsUncertain = []string{"shutting_down", "stopping", "source_away", "workflow_unknown", "workflow_cancelled"}
	runsGone      = []string{"unknown_run"}
)

func (c *caller) work(ctx context.Context) {
	defer c.hangUp()
	for ctx.Err() == nil {
		if len(c.runs) == 0 || c.random.IntN(2) == 0 {
			c.begin(ctx)
		} else {
			c.ask(ctx, c.runs[c.random.IntN(len(c.runs))])
		}
		pause(ctx, time.Duration(c.random.IntN(120))*time.Millisecond)
	}
}

// nothingStarted is what is said of a run that its source was never asked for.
var nothingStarted = regexp.MustCompile(`(?i)nothing was started|was not started`)

// goesOn is what is said of a run by a server that stops: it is to be asked about.
var goesOn = regexp.MustCompile(`goes on at its source .*execution_id '([^']+)'`)

// A runReply is what a tool tells of a run.
type runReply struct {
	ID     string          `json:"execution_id"`
	Source *string         `json:"source_execution_id"`
	State  string          `json:"state"`
	Result json.RawMessage `json:"result"`
	Error  *string         `json:"error"`
}

// begin runs a workflow. Such a call has no request_id, so it is made once.
func (c *caller) begin(ctx context.Context) {
	r, err := c.pick(ctx, nil)
	if err != nil {
		return
	}
	token, name := c.token("x"), quickWorkflow
	if c.random.IntN(3) > 0 {
		name = slowWorkflow
	}
	power := c.world.power()
	t := c.tell(ctx, r, "call_workflow_tool", map[string]any{
		"name": name, "arguments": map[string]any{"token": token, "lasts": c.random.IntN(400)},
	}, runsPassing, runsUncertain, runsGone)
	nothing := t.kind == noEffect || nothingStarted.MatchString(t.text)
	c.tokens[token] = nothing
	if id := goesOn.FindStringSubmatch(t.text); id != nil {
		c.runs = append(c.runs, &calledRun{id: id[1], token: token, power: power})
	}
	var reply runReply
	if t.kind != given || !c.reads(t, &reply) {
		return
	}
	known := &calledRun{id: reply.ID, token: token, power: power}
	c.learn(r, known, reply)
	c.runs = append(c.runs, known)
}

// ask asks how a run went.
func (c *caller) ask(ctx context.Context, known *calledRun) (over bool) {
	r, err := c.pick(ctx, nil)
	if err != nil {
		return false
	}
	t := c.tell(ctx, r, "workflow_status", map[string]any{"execution_id": known.id}, runsPassing, runsUncertain, runsGone)
	var reply runReply
	switch {
	case t.kind == goneAnswer && saysDamage(t.text) && c.world.history.hasLost(known.id):
		return true
	case t.kind == goneAnswer:
		// What was not at its source when the power failed is not worth a sync.
		if known.source || c.world.power() == known.power {
			c.world.history.fault("client %d: run %s of %s is lost: %s", c.number, known.id, known.token, t.text)
		}
		return true
	case t.kind == given && c.reads(t, &reply):
		c.learn(r, known, reply)
		return reply.State != "running"
	}
	return false
}

// learn holds what is told of a run against what was told before.
func (c *caller) learn(r *run, known *calledRun, reply runReply) {
	wrong := func(format string, args ...any) {
		c.world.history.fault("client %d: run %s of %s: %s: %+v", c.number, known.id, known.token, fmt.Sprintf(format, args...), reply)
	}
	if reply.ID != known.id {
		wrong("it is another")
	}
	// What nobody can read any more nobody is told, and nothing else either: the run is
	// lost sight of or, where what came before tells that its source has it, asked about anew.
	lost := (reply.State == "unknown" || reply.State == "running") && c.world.history.hasLost(known.id)
	if known.state != "" && reply.State != known.state && !lost && (known.source || c.world.power() == known.power) {
		wrong("it was %s, and is %s", known.state, reply.State)
	}
	switch reply.State {
	case "completed":
		var got any
		if err := json.Unmarshal(reply.Result, &got); err != nil || !reflect.DeepEqual(got, outputOf(known.token)) {
			wrong("its result is not what the source gave")
		}
	case "running":
	case "unknown":
		if known.source && !lost {
			wrong("it was at its source, and is lost sight of")
		}
	case "failed":
		if reply.Error == nil || !nothingStarted.MatchString(*reply.Error) {
			wrong("nothing fails here")
		}
		c.tokens[known.token] = true
	default:
		wrong("nobody has ended it")
	}
	// On a full disk what a source has accepted, or ended, cannot be written down.
	if !r.plan.full() {
		known.source = known.source || reply.Source != nil
		if reply.State != "running" {
			known.state = reply.State
		}
	}
}

// settle asks until every run has ended.
func (c *caller) settle(ctx context.Context) {
	until := time.Now().Add(settleTime)
	for _, known := range c.runs {
		for !c.ask(ctx, known) {
			if ctx.Err() != nil || time.Now().After(until) {
				c.world.history.fault("client %d: run %s of %s does not end", c.number, known.id, known.token)
				break
			}
			pause(ctx, 20*time.Millisecond)
		}
	}
}

// runsConfig is the part of the project's config that is for runs. They have all
// the time there is, for clocks go wrong, and few slots, so that some wait.
func runsConfig(address string) string {
	return fmt.Sprintf("workflow_tools:\n  execution_timeout: 0\n  reply_within: 150ms\n  status_interval: 20ms\n  max_concurrent_executions: 2\n  refresh_interval: 0\n  sources:\n    - {name: sim, url: \"http://%s\"}\n", address)
}

// settleTime is how long the last server has for what others left.
const settleTime = 30 * time.Second

// judgeRuns holds what was started at the source against the calls.
func (w *world) judgeRuns(callers []*caller) error {
	all, err := readExecutions(w.sourceFile())
	if err != nil {
		return fmt.Errorf("reading what the source did: %w", err)
	}
	begun := map[string]int{}
	for _, e := range all {
		begun[e.Token]++
	}
	w.result.Runs = len(begun)
	for _, c := range callers {
		for _, known := range c.runs {
			if known.state == "completed" && begun[known.token] != 1 {
				w.history.fault("client %d: run %s of %s is completed; the source has started it %d times", c.number, known.id, known.token, begun[known.token])
			}
		}
		for token, nothing := range c.tokens {
			if n := begun[token]; n > 1 || n > 0 && nothing {
				w.history.fault("client %d: the source has started %s %d times; it was told that nothing was started: %v", c.number, token, n, nothing)
			}
			delete(begun, token)
		}
	}
	for token := range begun {
		w.history.fault("the source has started %s, for which nobody has asked", token)
	}
	return nil
}
