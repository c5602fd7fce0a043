package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/session/attempt/executors"
)

// aReview is the kind of effect of a run of the reviewer.
const aReview = "review"

// An assignment tells the reviewer what to do. It is the content of the reviewed file, so that a reviewer that was
// given other outputs, or none, has nothing to do.
type assignment struct {
	token   string // unique
	verdict string
	takes   time.Duration
}

func (a assignment) String() string {
	return fmt.Sprintf("proof-review %s %s %d\n", a.token, a.verdict, a.takes.Milliseconds())
}

var assignmentPattern = regexp.MustCompile(`proof-review (\S+) (` + pass + `|` + fail + `) (\d+)\n`)

// assignmentIn finds the one assignment in a reviewer's task.
func assignmentIn(task []byte) (a assignment, err error) {
	found := assignmentPattern.FindAllSubmatch(task, -1)
	if len(found) != 1 {
		return a, fmt.Errorf("the task has %d assignments, want 1: %.500s", len(found), task)
	}
	millis, err := strconv.Atoi(string(found[0][3]))
	return assignment{string(found[0][1]), string(found[0][2]), time.Duration(millis) * time.Millisecond}, err
}

// runReviewer is the hidden subcommand reviewer, which reviews outputs: it logs in a journal that it
// begins, takes its time, logs that it has finished, and prints its verdict.
func runReviewer(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return errUsage
	}

	task, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	a, err := assignmentIn(task)
	if err != nil {
		return err
	}

	journal, err := os.OpenFile(args[0], os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer journal.Close()
	log := func(what string) error {
		_, err := fmt.Fprintf(journal, "%s %s %d\n", what, a.token, os.Getpid())
		return err
	}
	if err := errors.Join(log("begin"), wait.For(ctx, a.takes), log("finished")); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out,
		`{"passed": %t, "feedback": "", "criteria_results": [{"criterion": "good", "passed": %[1]t, "feedback": `+
			`"%s"}]}`+"\n", a.verdict == pass, a.token)
	return err
}

// reviewerFile is the journal of the reviewers.
func (l *load) reviewerFile() string { return filepath.Join(l.dir, "reviewers") }

// judgeReviewers compares the runs of the reviewer with what agents handed in: one run for each try,
// whichever servers were called, and however often. It returns how many there were.
func (l *load) judgeReviewers() (int, error) {
	did, err := readJournal(l.reviewerFile())
	if err != nil {
		return 0, err
	}
	l.history.once(aReview, did["begin"], func(_ string, e *effect) bool { return e.said != "" })

	runs := 0
	for _, ran := range did["begin"] {
		runs += len(ran)
	}
	return runs, nil
}

// runStepper is the subcommand step, the agent of a step of a run: `proof step DIR [DURATION]`. It takes a lock that no
// other agent of its step may hold, works for the duration, writes a file of its own, and finishes the step with that.
// Without a duration it works briefly, and sometimes forgets to finish. It logs what it does in DIR.
func runStepper(ctx context.Context, args []string) (err error) {
	works, forgets := rand.N(300*time.Millisecond), rand.IntN(8) == 0
	if len(args) > 1 {
		forgets = false
		if works, err = time.ParseDuration(args[1]); err != nil {
			return err
		}
	}

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

	_ = wait.For(ctx, works)
	if forgets {
		return nil
	}
	defer func() {
		if err != nil { // it stays like an agent that keeps trying: only the next leader ends it soon
			_ = wait.For(ctx, 5*time.Second)
		}
	}()

	c, err := connect(ctx, &process{
		url:   os.Getenv(config.MCPURLEnv),
		where: &server{token: os.Getenv(executors.TokenEnv)},
	}, withSessions, true)
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
