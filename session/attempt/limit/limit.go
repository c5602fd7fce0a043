// Package limit knows the limits of model providers: how agents' programs report one, when it ends, and when
// to try an agent again.
//
// The words are those of Claude Code 2.1.332, Codex 0.171.0, Gemini CLI 0.61.0 and OpenCode 1.18.33, taken
// from their npm packages; of Cursor's agent, taken from public reports, since it is in no package; and of
// the providers' HTTP APIs.
package limit

import (
	"regexp"
	"strings"
	"sync"
	"time"

	"deepwork/catalog/task"
)

// reached matches the words of a limit. It includes those about a balance or a cap, which only a person can
// raise: such a limit has no end, so the tries soon lead to asking one.
var reached = compiled(`(?i)` + strings.Join([]string{
	`hit your [a-z0-9' -]{0,40}(?:limit|cap)\b`, // Claude Code, Codex, Cursor
	`\b(?:usage|session|weekly|daily|hour|requests?|opus|sonnet) limit (?:has been )?(?:reached|exceeded|hit)`,
	`\busage limit\b|UsageLimitError|usage_limit_reached`, // OpenCode, Codex
	`\brate[ _-]?limit`,                            // the APIs
	`out of (?:extra usage|usage credits|credits)`, // Claude Code, Codex
	`exhausted your (?:capacity|daily quota|quota)|exceeded your current quota|quota (?:exceeded|will reset)`, // Gemini
	`resource(?:_| has been )exhausted`,                        // Gemini, Cursor
	`free usage exceeded`,                                      // OpenCode
	`too many requests|limiting requests|requests per minute`,  // the APIs
	`\b(?:status|code|error|http)\W{1,6}(?:code\W+)?[45]29\b`,  // 429, and 529 of Anthropic
	`overloaded|\b(?:at|no) capacity\b|high (?:demand|load)\b`, // all
}, "|"))

// quotes matches a line written by a test or a compiler, which an agent's program may show on stderr.
var quotes = compiled(`(?:^|\s)(?:---\s+)?FAIL(?:ED)?\b|(?i:assert|\bexpected\b|\bwant\b.*\bgot\b|\bgot\b.*\bwant\b)|` +
	`\.(?:go|py|js|ts|tsx|rs|rb|java|c|cpp)[:(]\d`)

// compiled returns a function that compiles an expression when first needed: few processes meet a limit.
func compiled(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// lastLines is how many of the last stderr lines are read.
const lastLines = 15

// Message returns the message in which an agent's program reports a limit of its provider, or "". It prefers
// the program's own error event, and otherwise reads the last lines on stderr. What the agent itself says or
// quotes does not count.
func Message(failure, stderr string) string {
	if failure == "" {
		var lines []string
		for line := range strings.Lines(stderr) {
			if strings.TrimSpace(line) != "" && !quotes().MatchString(line) {
				lines = append(lines, line)
			}
		}
		failure = strings.Join(lines[max(0, len(lines)-lastLines):], "")
	}
	if !reached().MatchString(failure) {
		return ""
	}
	return failure
}

const (
	// Max is the longest plausible wait: Cursor's limits end with the month.
	Max                   = 32 * 24 * time.Hour
	firstPause, lastPause = time.Minute, 30 * time.Minute // between tries
)

// Row returns how many of a step's executions, newest first and created after a time, a limit ended in a row.
func Row(of []task.Execution, since time.Time) (n int) {
	for _, x := range of {
		if x.LimitedUntil == nil || x.CreatedAt.Before(since) {
			break
		}
		n++
	}
	return n
}

// Known reports whether it is known when the limit that ended an execution ends.
func Known(x *task.Execution) bool {
	return x.LimitedUntil != nil && x.EndedAt != nil && x.LimitedUntil.After(*x.EndedAt)
}

// Over returns when to try an agent again for a step whose last agent was ended by a limit, or the zero time.
// The executions are the step's, newest first; the pauses grow with the number of those created after since.
func Over(of []task.Execution, since time.Time) time.Time {
	if len(of) == 0 || of[0].LimitedUntil == nil || of[0].EndedAt == nil {
		return time.Time{}
	}

	until, row := *of[0].LimitedUntil, Row(of, since)
	if row == 0 || row == 1 && Known(&of[0]) {
		return until
	}
	if earliest := of[0].EndedAt.Add(min(firstPause<<min(row-1, 10), lastPause)); earliest.After(until) {
		return earliest
	}
	return until
}
