package machine

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
)

// The limits of a session's texts: its inputs and outputs of type string.
const (
	MaxText       = 100_000  // characters of one text
	MaxInlineText = 4_000    // characters of a text that is stored inline; longer ones are kept by their hashes
	MaxTexts      = 16 << 20 // bytes of all texts of a session, each counted once
	maxShownText  = 200      // characters of a text in a list

	maxRepliedTexts = 1 << 20 // bytes of all unshortened texts in a reply
)

// isLong reports whether a text is kept by its hash.
func isLong(text string) bool {
	return len(text) > MaxInlineText && utf8.RuneCountInString(text) > MaxInlineText
}

// CheckText returns an error for a text that is too long. what names it, such as Output 'summary'.
func CheckText(what, text string) error {
	if n := utf8.RuneCountInString(text); n > MaxText {
		return session.Wrong(codes.ArgumentTooLarge,
			"%s has %d characters, and a text has at most %d. Shorten it, or put the details in a file and name that "+
				"in the text.", what, n, MaxText)
	}
	return nil
}

// CheckRoom returns an error if the texts of values and those of the session are too long together. s may be
// nil.
func (s *State) CheckRoom(values Outputs) error {
	kept := map[string]bool{}
	total := 0
	add := func(v *OutputValue) {
		if v.Text != nil && !kept[*v.Text] {
			kept[*v.Text] = true
			total += len(*v.Text)
		}
	}
	for i := range values {
		add(&values[i].Value)
	}

	if total == 0 {
		return nil
	}

	if s != nil {
		s.values(add)
	}
	if total > MaxTexts {
		return session.Wrong(codes.ArgumentTooLarge,
			"With '%s' the texts of this session have %d bytes together, and %d are the most. Shorten it, or abort "+
				"the session and start one whose steps hand on less.", values[len(values)-1].Key, total, MaxTexts)
	}

	return nil
}

// values calls f with each value of a state. f may change it only while the state is being made.
func (s *State) values(f func(v *OutputValue)) {
	var one func(v *OutputValue)
	one = func(v *OutputValue) {
		f(v)
		for _, of := range v.Each {
			if of != nil {
				one(of)
			}
		}
	}
	each := func(all Outputs) {
		for i := range all {
			one(&all[i].Value)
		}
	}
	steps := func(all jsontext.OrderedMap[*StepProgress]) {
		for _, p := range all {
			each(p.Value.Outputs)
			for _, a := range p.Value.Tries {
				each(a.Outputs)
			}
			if p.Value.Question != nil {
				each(p.Value.Question.Outputs)
			}
		}
	}

	each(s.Inputs)
	steps(s.StepProgress)
	for _, w := range s.History {
		steps(w.Progress)
	}
}

// longTexts returns the texts that a state keeps by hash.
func (s *State) longTexts() map[string]string {
	var all map[string]string
	s.values(func(v *OutputValue) {
		if v.Text == nil || !isLong(*v.Text) {
			return
		}
		if all == nil {
			all = map[string]string{}
		}
		all[Digest(*v.Text)] = *v.Text
	})
	return all
}

// textChanges returns the parts of long texts added since an earlier state, and the keys of removed ones.
func (s *State) textChanges(before *State) (put, gone []Part, err error) {
	now, was := s.longTexts(), before.longTexts()
	for _, hash := range slices.Sorted(maps.Keys(now)) {
		if _, kept := was[hash]; kept {
			continue
		}

		body, err := jsontext.Encode(now[hash])
		if err != nil {
			return nil, nil, err
		}
		put = append(put, Part{Kind: TextPart, Key: hash, Body: body})
	}
	for _, hash := range slices.Sorted(maps.Keys(was)) {
		if _, kept := now[hash]; !kept {
			gone = append(gone, Part{Kind: TextPart, Key: hash})
		}
	}
	return put, gone, nil
}

// setTexts fills in the texts that a decoded state refers to by hash.
func (s *State) setTexts(texts map[string]string) (err error) {
	s.values(func(v *OutputValue) {
		if v.hash == "" {
			return
		}
		text, kept := texts[v.hash]
		switch {
		case !kept:
			err = fmt.Errorf("its text %s is missing", v.hash)
		case Digest(text) != v.hash:
			err = fmt.Errorf("its text %s has another hash than its name", v.hash)
		}
		v.Text, v.hash = &text, ""
	})

	return err
}

// Shown returns a value as lists show it: a text, or the values of items, in one shortened line.
func (v OutputValue) Shown() string {
	if v.Each != nil {
		return shortened(strings.Join(v.list(), ", "))
	}
	if v.Text == nil {
		return strings.Join(v.Paths, ", ")
	}
	return shortened(*v.Text)
}

func shortened(text string) string {
	line := strings.Join(strings.Fields(jsontext.Clip(text, 4*maxShownText)), " ")
	short := jsontext.Clip(line, maxShownText)
	if n := utf8.RuneCountInString(text); short != line || n > 4*maxShownText {
		return fmt.Sprintf("%s (%d characters)", short, n)
	}
	return short
}

// Plain returns values in the form of arguments and replies: texts are plain strings.
func Plain(all Outputs) Outputs { return plainWithin(all, math.MaxInt) }

// plainWithin is Plain with a limit on the bytes of all texts; it shortens texts that exceed it.
func plainWithin(all Outputs, room int) Outputs {
	plain := slices.Clone(all)
	for i, o := range plain {
		plain[i].Value = o.Value.plain(&room)
	}
	return plain
}

// plain returns the value in the form of replies; room is how many bytes of text are left.
func (v OutputValue) plain(room *int) OutputValue {
	if v.Each != nil {
		each := slices.Clone(v.Each)
		for i, one := range each {
			if one != nil {
				each[i] = new(one.plain(room))
			}
		}
		return OutputValue{Each: each}
	}
	if v.Text == nil {
		return v
	}
	text := *v.Text
	if len(text) > *room {
		text = shortened(text)
	} else {
		*room -= len(text)
	}
	return OutputValue{Paths: []string{text}}
}
