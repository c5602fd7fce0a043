package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/jsontext"
	"deepwork/session/board"
	"deepwork/session/workflow/machine"
)

// words are the states, and the values of arguments, that people read in other words than agents.
var words = map[string]string{
	"todo": "to do", "inprogress": "in progress", "inreview": "in review",
	"agent": "one agent, all of it", "server": "the server, with an agent for each step",
	"merge": "merge commit", "squash": "one commit", "rebase": "its commits, rebased",
	"step": "each step begins one", "resume": "one goes through the steps that follow one another",
}

// word returns a state, or a value of an argument, as people read it.
func word(state any) string {
	text := fmt.Sprint(state)
	if w, is := words[text]; is {
		return w
	}
	return board.State(text).Words()
}

// heading returns a text that begins with a capital.
func heading(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// server returns who runs a session, without the time that "pid 12 on host since …" ends with.
func server(owner string) string {
	who, _, _ := strings.Cut(owner, " since ")
	return strings.Replace(who, "pid ", "process ", 1)
}

// reliesOn says in a sentence what a finished step relies on, if its reviews were not overridden.
func reliesOn(e *machine.Evidence) string {
	if e.Imported {
		own := *e
		own.Imported = false
		return "Imported, where it says: " + reliesOn(&own)
	}
	switch e.Kind {
	case machine.ByReviewer:
		return "Passed by the reviewer " + e.Reviewer
	case machine.BySelf:
		return "Reviewed by the agent itself, which was given the criteria for exactly these outputs"
	case machine.Passed:
		return "Passed by a person: " + e.Identity + " over " + e.Channel + remark(e)
	case machine.PassedIn:
		return "Passed by a person, as the client of " + e.Identity + " says" + remark(e)
	case machine.ByOverride: // of the other reviews of a step that a person has passed
		return "Overridden by the agent"
	case machine.Unreviewed:
		return "Not reviewed: the server ran without reviews"
	}
	return "None of its reviews is of the outputs that were submitted"
}

// remark returns what a person said who passed a step, and what its other reviews rely on.
func remark(e *machine.Evidence) string {
	text := ""
	if e.Reason != "" {
		text = ": " + jsontext.Clip(e.Reason, 2000)
	}
	if e.Others != nil {
		text += ". Its other reviews: " + reliesOn(e.Others)
	}
	return text
}

// took returns how long something lasted.
func took(from time.Time, to *time.Time) string {
	d := to.Sub(from)
	switch {
	case d < time.Second:
		return "less than a second"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

// paragraphs splits a text at blank lines.
func paragraphs(text string) []string {
	all := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n")
	return slices.DeleteFunc(all, func(p string) bool { return strings.TrimSpace(p) == "" })
}
