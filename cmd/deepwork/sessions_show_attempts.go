package main

import (
	"fmt"
	"strings"
	"time"

	"deepwork/session/workflow/machine"
)

// printAttempts shows what external reviewers said of a step: each attempt, each
// verdict, and the content that it was about, so that a person who doubts a verdict
// can compare the files with it.
func printAttempts(detail func(format string, args ...any), attempts []*machine.Attempt) {
	for _, at := range attempts {
		switch at.State {
		case machine.AttemptOpen:
			detail("review attempt %d, open since %s: its review runs, or was cut off with its server and begins again", at.Number, stamp(at.OpenedAt))
		case machine.AttemptVoid:
			detail("review attempt, void, %s: %s", ended(at), brief(optional(at.Error)))
		default:
			told := ""
			if !at.Collected {
				told = ", no call was told of it yet"
			}
			detail("review attempt %d, %s, %s%s", at.Number, at.State, ended(at), told)
		}
		for _, v := range at.Verdicts {
			printVerdict(detail, v)
		}
		if len(at.Verdicts) == 0 {
			printHashes(detail, "  handed in", at.Files)
		}
	}
}

// printVerdict shows one verdict of an attempt.
func printVerdict(detail func(format string, args ...any), v *machine.Verdict) {
	of, came := v.RunEach, ""
	if v.TargetFile != nil {
		of += " (" + *v.TargetFile + ")"
	}
	if v.Reused {
		came = ", kept from an earlier attempt: the content is the same"
	}
	detail("  review of %s: %s, %s by %s in %s%s", of, passed(v.Passed), stamp(v.At), v.Reviewer,
		time.Duration(v.Seconds*float64(time.Second)).Round(time.Millisecond), came)
	for _, c := range v.Criteria {
		why := ""
		if text := strings.TrimSpace(optional(c.Feedback)); text != "" {
			why = " (" + text + ")"
		}
		detail("    criterion %s: %s%s", passed(c.Passed), c.Criterion, indentRest(why, "      "))
	}
	if text := strings.TrimSpace(v.Feedback); text != "" {
		detail("    feedback: %s", indentRest(text, "      "))
	}
	printHashes(detail, "    judged", v.Files)
}

func printHashes(detail func(format string, args ...any), how string, files []machine.FileHash) {
	for _, f := range files {
		detail("%s sha256:%s %s", how, f.SHA256, f.Path)
	}
}

// ended says from when to when an attempt was.
func ended(at *machine.Attempt) string {
	if at.ClosedAt == nil {
		return "since " + stamp(at.OpenedAt)
	}
	return fmt.Sprintf("%s, after %s", stamp(at.OpenedAt), at.ClosedAt.Sub(at.OpenedAt).Round(time.Millisecond))
}

func passed(ok bool) string {
	if ok {
		return "passed"
	}
	return "failed"
}

// brief is a text that may be as long as a reviewer made it; --json has it all.
func brief(text string) string { return oneLine(text, 400) }

// indentRest puts prefix before every line but the first.
func indentRest(text, prefix string) string {
	return strings.TrimPrefix(indent(text, prefix), prefix)
}
