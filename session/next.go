package session

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"deepwork/actor/xslices"
)

// A Text is what is wrong, or worth knowing, in words for all audiences. It keeps the values in them, such as
// ids, apart until it is shown.
type Text []phrase

type phrase struct {
	format string
	args   []any
}

// A worded error has values in its text, too.
type worded interface {
	error
	In(word func(string) string) string
}

// Say returns the text that fmt.Sprintf makes of a format and values.
func Say(format string, args ...any) Text {
	if false {
		_ = fmt.Sprintf(format, args...) // has vet check the formats of Say and its callers
	}
	return Text{{format, args}}
}

// In returns the text, with the values in it worded by word.
func (t Text) In(word func(string) string) string {
	return strings.Join(xslices.Map(t, func(p phrase) string {
		args := slices.Clone(p.args)
		for i, a := range args {
			switch a := a.(type) {
			case string:
				args[i] = word(a)
			case Text:
				args[i] = a.In(word)
			case error:
				if w, ok := errors.AsType[worded](a); ok {
					args[i] = w.In(word)
				}
			}
		}
		return fmt.Sprintf(p.format, args...)
	}), " ")
}

func (t Text) String() string { return t.In(asIs) }

// MarshalText returns the text with all values as they are.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText makes text the only phrase of t.
func (t *Text) UnmarshalText(text []byte) error {
	*t = Text{{format: strings.ReplaceAll(string(text), "%", "%%")}}
	return nil
}

func asIs(value string) string { return value }

// A Step is something to do next: a call of a tool or, without one, what only a person can do.
type Step struct {
	Do      string         `json:"do,omitempty"` // after "to", or as an order: "stop it"; "" if only agents are told
	Tool    string         `json:"tool,omitempty"`
	Args    map[string]any `json:"arguments,omitempty"`
	Told    string         `json:"told,omitempty"`    // the sentence for agents; "" means one made of the others
	Command string         `json:"command,omitempty"` // of deepwork, for people; "" means that of the tool
}

// An Audience words errors for those who read them.
type Audience struct {
	Value func(string) string // words a value, such as an id
	Step  func(Step) string   // says a step in a sentence, or returns "" to leave it out
}

// The audiences of session: agents, and those of a text that is stored, which agents and people read.
var (
	Agents = Audience{asIs, func(s Step) string {
		switch {
		case s.Told != "":
			return s.Told
		case s.Tool == "":
			return "Ask the user to " + s.Do + "."
		}
		text := "To " + s.Do + ", call " + s.Tool
		for i, name := range slices.Sorted(maps.Keys(s.Args)) {
			text += fmt.Sprint([]string{" with ", ", "}[min(i, 1)], name, ": ", s.Args[name])
		}
		return text + "."
	}}
	Anyone = Audience{asIs, func(s Step) string {
		if s.Tool == "" && s.Do != "" {
			return "A person can " + s.Do + "."
		}
		return ""
	}}
)

// Order words a step of a person for them.
func Order(s Step) string { return strings.ToUpper(s.Do[:1]) + s.Do[1:] + "." }

// For returns the error's message and next steps, as its audience is told them.
func (e *Error) For(a Audience) string {
	all := []string{e.Message.In(a.Value)}
	for _, s := range e.Steps {
		if text := a.Step(s); text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, " ")
}
