package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"deepwork/actor/wait"
)

// aReview is the kind of effect of a run of the reviewer.
const aReview = "review"

// An assignment is what the reviewer is to do about outputs. It is the content of their file, so that a
// reviewer that was given other outputs, or none, has nothing to do.
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
	_, err = fmt.Fprintf(out, `{"passed": %t, "feedback": "", "criteria_results": [{"criterion": "good", "passed": %[1]t, "feedback": "%s"}]}`+"\n", a.verdict == pass, a.token)
	return err
}

// reviewerFile is the journal of the reviewers.
func (l *load) reviewerFile() string { return filepath.Join(l.dir, "reviewers") }

// judgeReviewers compares the runs of the reviewer with what agents handed in: one run for each attempt,
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
