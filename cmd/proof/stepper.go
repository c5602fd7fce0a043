package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/session/attempt/runner"
)

// runStepper is the subcommand step, the agent of a step of a run: `proof step DIR`. It holds a lock that no
// other agent of its step may hold, writes a file that is named for it, and finishes the step with that, or
// sometimes forgets to. What it does it logs in DIR.
func runStepper(ctx context.Context, args []string) (err error) {
	dir, step := args[0], os.Getenv(config.SessionEnv)+"/"+os.Getenv(config.StepEnv)
	log := func(what string) error {
		f, err := os.OpenFile(filepath.Join(dir, "agents"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(f, "%s %s %d\n", what, step, os.Getpid())
		return errors.Join(err, f.Close())
	}
	lock, err := durable.TryLock(filepath.Join(dir, strings.ReplaceAll(step, "/", "-")+".lock"))
	if err == nil && lock == nil {
		return log("beside")
	}
	defer runtime.KeepAlive(lock) // until the process ends: a file that is collected is closed
	report := reportOf(os.Getenv(config.StepEnv), os.Getpid())
	if err = errors.Join(err, log("begin"), os.WriteFile(report, nil, 0o644)); err != nil {
		return err
	}
	_ = wait.For(ctx, rand.N(300*time.Millisecond))
	if rand.IntN(8) == 0 {
		return nil
	}
	defer func() {
		if err != nil { // as an agent that keeps trying: nobody but its leader's successor ends it soon
			_ = wait.For(ctx, 5*time.Second)
		}
	}()
	c, err := connect(ctx, &process{url: os.Getenv(config.MCPURLEnv), where: &server{token: os.Getenv(runner.TokenEnv)}}, withSessions, true)
	if err != nil {
		return err
	}
	text, _, err := c.call(ctx, "finished_step", map[string]any{"outputs": map[string]any{"report": report}})
	var r struct{ Status string }
	if err == nil {
		err = json.Unmarshal([]byte(text), &r)
	}
	if err == nil && (r.Status == "next_step" || r.Status == "workflow_complete") {
		err = log("finished")
	}
	_ = wait.For(ctx, rand.N(50*time.Millisecond))
	return err
}

func reportOf(step string, pid int) string { return fmt.Sprintf("%s-%d.md", step, pid) }
