package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"deepwork/session/show"
)

// What a name has that is not seen, or moves the text around it, is shown as an escape.
func TestPlainShowsWhatIsNotSeen(t *testing.T) {
	for _, r := range "\x00\x1b\x7f\u0085\u00ad\u034f\u061c\u115f\u1160\u17b4\u180e\u200b\u200d\u200e\u2028\u2029\u202e\u2060\u2065\u2069\u2800\u3164\ufeff\uffa0\ufff0\ue000\U000e0001\U000e0041\U000e0100\U0010fffd" {
		text := "a" + string(r) + "b"
		got := plain(text)
		if strings.ContainsRune(got, r) || !strings.HasPrefix(got, `a\u`) {
			t.Errorf("%U is shown as %q", r, got)
		}
		var back string
		if err := json.Unmarshal([]byte(`"`+got+`"`), &back); err != nil || back != text {
			t.Errorf("%U is %q in JSON: %v", r, back, err)
		}
	}
	for _, text := range []string{"Größe 漢字 ключ العربية", "a\nb\tc", "\u00a0\u3000", "❤️ 👍🏽 ✓ → e\u0301",
		"👩\u200d💻 🏳️\u200d🌈 👩🏽\u200d⚕️ می\u200cخواهم क्\u200dष"} {
		if got := plain(text); got != text {
			t.Errorf("%q is shown as %q", text, got)
		}
	}
	for _, text := range []string{"\u200d", "👩\u200d", "\u200d💻", "👩\u200dx", "1\u200d+", "a\u200dم", "\xff\u200d"} {
		if got := plain(text); strings.ContainsAny(got, "\u200c\u200d") {
			t.Errorf("%+q is shown as %+q: a joiner that joins nothing is not seen", text, got)
		}
	}
	if got := inline("a\r\nb\tc\rd"); got != `a\nb\tc\u000dd` {
		t.Errorf("a name with newlines is shown as %q", got)
	}
}

// A newline in a name does not make the rest of an error look like another message.
func TestAnErrorAtExitIsOneMessage(t *testing.T) {
	var b strings.Builder
	a := &app{err: show.NewScreen(&b, os.Getenv)}
	a.report(&fs.PathError{Op: "open", Path: "x\u2028\ndeepwork: all is well", Err: errors.New("no")})
	if got, want := b.String(), "deepwork: open x\\u2028\n  deepwork: all is well: no\n"; got != want {
		t.Errorf("it is %q, not %q", got, want)
	}
}
