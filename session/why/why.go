// Package why says in one sentence why work stopped or waits. Packages that know fill in a Why, and Sentence makes the
// same sentence of it for pages, commands, tools and notifications.
package why

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"deepwork/catalog/jsontext"
)

// Kind says what stopped something. Of an error it is the error's code, and Said has its text.
type Kind string

// The kinds that have a sentence of their own.
const (
	Check     Kind = "check"
	Unchecked Kind = "unchecked"
	Review    Kind = "review"
	Crashed   Kind = "reviewer_crashed"
	Refused   Kind = "refused"       // by a person
	Again     Kind = "refused_again" // likewise, and the same outputs were handed in again
	Unfit     Kind = "unfit"         // outputs that are not as the step describes them
	Rounds    Kind = "rounds_used_up"
	Asks      Kind = "asks_person"  // to pass outputs
	Agent     Kind = "agent_ended"  // it failed, or did not finish its step
	Silent    Kind = "agent_silent" // it ended without having connected
	Limit     Kind = "limit"        // of the agent's provider
	Cost      Kind = "cost_reached"
	Unknown   Kind = "unknown_reached" // agents with an unknown cost
	Time      Kind = "time_reached"
	Conflict  Kind = "merge_conflict"
	Gone      Kind = "leader_gone"
	Stopped   Kind = "stopped" // by a person
	Cut       Kind = "interrupted"
	Aborted   Kind = "aborted"
	Dropped   Kind = "follow_up_dropped"
	Other     Kind = "error" // an error without a code
)

// A Why says why something stopped or waits. The zero value means that nothing is known.
type Why struct {
	Kind      Kind    `json:"kind"`
	Step      string  `json:"step,omitempty"`
	Tries     int     `json:"tries,omitempty"`     // how often it failed, or agents ended; 0 for one agent alone
	Check     string  `json:"check,omitempty"`     // the command of a check
	ExitCode  int     `json:"exit_code,omitempty"` // of the check or agent; 0 means none, -1 a signal
	Criterion string  `json:"criterion,omitempty"` // of a review that was not met
	By        string  `json:"by,omitempty"`        // the person, or the server to which an agent did not connect
	Said      string  `json:"said,omitempty"`      // about it, see Line
	Amount    float64 `json:"amount,omitempty"`    // of what a budget limits
	Most      float64 `json:"most,omitempty"`      // the budget: USD, agents or seconds
}

// Sentence returns the sentence, or "" for the zero value.
func (w Why) Sentence() string {
	text := w.what()
	switch {
	case text == "":
		text = w.Said
	case w.Kind == Dropped:
		text += ": " + strconv.Quote(w.Said)
	case w.Said != "":
		text += ": " + w.Said
	}
	if text == "" {
		return ""
	}

	if w.Kind == Silent {
		text = strings.TrimSuffix(text, ".") + "; the last one never connected to the MCP server " + w.By +
			", which its program must know ('deepwork help tutorials/run')"
	}
	if w.Step != "" {
		text = "Step " + w.Step + ": " + text
	} else {
		first, size := utf8.DecodeRuneInString(text)
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	if !strings.ContainsAny(text[len(text)-1:], ".!?") && !strings.HasSuffix(text, "…") {
		text += "."
	}
	return text
}

// what says what happened, or returns "" if Said says it.
func (w Why) what() string {
	number := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
	switch w.Kind {
	case Check:
		name := "its checks"
		if w.Check != "" {
			name = "check `" + w.Check + "`"
		}
		return name + " failed" + times(w.Tries) + w.code()
	case Unchecked:
		return "its checks could not be run"
	case Review:
		text := "its review failed" + times(w.Tries)
		if w.Criterion != "" {
			text += ", on " + strconv.Quote(w.Criterion)
		}
		return text
	case Crashed:
		return "its reviewer gave no verdict"
	case Refused:
		return "a person (" + w.By + ") did not pass its outputs"
	case Again:
		return "a person (" + w.By + ") did not pass its outputs, and the same ones were handed in again"
	case Unfit:
		return "its outputs were not accepted"
	case Rounds:
		return "its rounds are used up, and a person has to say how it goes on"
	case Asks:
		return "a person has to pass its outputs"
	case Agent, Silent:
		return w.agents()
	case Limit:
		if w.Tries == 0 {
			return "a limit of the agent's provider ended it"
		}
		return fmt.Sprintf("a limit of its agent's provider ended %d agents in a row; resume the run when the limit "+
			"is over", w.Tries)
	case Cost:
		return fmt.Sprintf("its agents have cost %s USD, and its budget is %s USD", number(w.Amount), number(w.Most))
	case Unknown:
		have := "have"
		if w.Amount == 1 {
			have = "has"
		}
		return fmt.Sprintf("%s of its agents %s ended with an unknown cost, and at most %s may", number(w.Amount), have,
			number(w.Most))
	case Time:
		return fmt.Sprintf("it has reached its time limit of %v", time.Duration(w.Most*float64(time.Second)))
	case Conflict:
		return "its merge has conflicts"
	case Gone:
		return "the process that led it is gone"
	case Stopped:
		return "it was stopped"
	case Cut:
		return "it was interrupted"
	case Aborted:
		return "the workflow was aborted"
	case Dropped:
		return "the follow-up that was queued was dropped"
	}
	return ""
}

// agents says how the agents of a step, or an agent alone, ended.
func (w Why) agents() string {
	const unfinished = " without finishing it"
	code := w.code()
	switch {
	case w.Tries > 1:
		return fmt.Sprintf("%d agents ended%s%s", w.Tries, unfinished, code)
	case w.Tries == 0:
		return "the agent ended" + code
	case code != "":
		code += ","
	}
	return "its agent ended" + code + unfinished
}

// code says with which exit code something ended.
func (w Why) code() string {
	text := " with exit code " + strconv.Itoa(w.ExitCode)
	switch {
	case w.ExitCode == 0:
		return ""
	case w.ExitCode < 0:
		text = " by a signal"
	}
	if w.Tries > 1 {
		return ", last" + text
	}
	return text
}

// times says how often something happened, if more than once.
func times(n int) string {
	words := []string{"three", "four", "five", "six", "seven", "eight", "nine", "ten"}
	switch {
	case n < 2:
		return ""
	case n == 2:
		return " twice"
	case n-3 < len(words):
		return " " + words[n-3] + " times"
	}
	return fmt.Sprintf(" %d times", n)
}

// maxLine limits Line, in characters.
const maxLine = 500

// Line returns the first line of a text for people. Of JSON, which programs print for other programs, only the message
// in it remains.
func Line(text string) string {
	text = strings.TrimSpace(text)
	var v any
	if strings.IndexAny(text, "{[") == 0 && json.Unmarshal([]byte(text), &v) == nil {
		return Line(message(v))
	}
	for line := range strings.Lines(text) {
		if line = readable(strings.TrimSpace(line)); strings.ContainsFunc(line, word) {
			return jsontext.Clip(line, maxLine)
		}
	}
	return ""
}

func word(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// beginsJSON matches the beginning of an object, or of an array of texts or objects.
var beginsJSON = regexp.MustCompile(`[{[]\s*["{]`)

// readable returns a line with the message of an object of JSON in its place, or without a part of one.
func readable(line string) string {
	found := beginsJSON.FindStringIndex(line)
	if found == nil {
		if strings.HasPrefix(line, `"`) && strings.Contains(line, `":`) {
			return "" // from the middle of an object
		}
		return line
	}

	var v any
	at := found[0]
	_ = json.NewDecoder(strings.NewReader(line[at:])).Decode(&v) // one that is cut off has no message
	before, said := strings.TrimRight(line[:at], "[ "), Line(message(v))
	if said == "" {
		return strings.TrimRight(before, ": ")
	}
	return strings.TrimSpace(before + " " + said)
}

// message returns what a value of JSON says to people, or "".
func message(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any:
		for _, one := range v {
			if said := message(one); said != "" {
				return said
			}
		}
	case map[string]any:
		for _, key := range []string{"message", "msg", "error", "errors", "result", "detail", "reason", "title", "text",
			"content"} {
			if said := message(v[key]); said != "" {
				return said
			}
		}
	}
	return ""
}
