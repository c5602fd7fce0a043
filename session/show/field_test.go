package show

import (
	"bytes"
	"testing"

	"deepwork/actor/testkit"
)

// Escape sequences are left out, and colors stay where they are shown.
func TestField13_EscapeSequencesAreLeftOut(t *testing.T) {
	for text, want := range map[string]string{
		"a \x1b[1;31mred\x1b[0m word":                     "a red word",
		"\x1b]8;;https://example.com\x07link\x1b]8;;\x07": "link",
		"\x1b[2J\x1b[H\x1bc\x1b(B":                        "",
		"\x1b\x1b[31m[31m":                                "[31m",
		"\u009b31m \b":                                    `\u009b31m \u0008`,
		"one\r\ntwo\r":                                    "one\ntwo" + `\u000d`,
	} {
		testkit.Equal(t, Plain(text), want, "%q", text)
	}
	var to bytes.Buffer
	text := "a \x1b[1;38;5;9mred\x1b[m word\x1b[8m\x1b[2J\x1b[31;8m!"
	s := &Screen{to: &to}
	testkit.Equal(t, s.Colored(text), "a red word!")
	s.color = true
	testkit.Equal(t, s.Colored(text), "a \x1b[1;38;5;9mred\x1b[m word!\x1b[0m")
	testkit.Equal(t, s.Colored("plain"), "plain")
}
