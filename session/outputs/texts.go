package outputs

import (
	"unicode/utf8"

	"deepwork/session"
	"deepwork/session/codes"
)

// The limits of a session's texts: its inputs and outputs of type string.
const (
	MaxText       = 100_000  // characters of one text
	MaxInlineText = 4_000    // characters of a text that is stored inline; longer ones are kept by their hashes
	MaxTexts      = 16 << 20 // bytes of all texts of a session, each counted once
	maxShownText  = 200      // characters of a text in a list

	MaxReplied = 1 << 20 // bytes of all texts of a reply that are not shortened
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

// CheckRoom returns an error if the texts of values and those that a session has already are too long together. kept
// calls add with each value of the session; nil means that there is none.
func CheckRoom(values Map, kept func(add func(*Value))) error {
	known := map[string]bool{}
	total := 0
	add := func(v *Value) {
		if v.Text != nil && !known[*v.Text] {
			known[*v.Text] = true
			total += len(*v.Text)
		}
	}
	for i := range values {
		add(&values[i].Value)
	}

	if total == 0 {
		return nil
	}

	if kept != nil {
		kept(add)
	}
	if total > MaxTexts {
		return session.Wrong(codes.ArgumentTooLarge,
			"With '%s' the texts of this session have %d bytes together, and %d are the most. Shorten it, or abort "+
				"the session and start one whose steps hand on less.", values[len(values)-1].Key, total, MaxTexts)
	}

	return nil
}
