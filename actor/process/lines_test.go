package process

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLinesAreSplit(t *testing.T) {
	t.Parallel()
	const maxLine = 64 << 10
	breaks := false
	split := func(size int, text string) (lines []string) {
		s := NewLines(maxLine, func(got [][]byte) {
			for _, line := range got {
				lines = append(lines, string(line))
			}
		})
		s.Breaks = breaks
		for p := []byte(text); len(p) > 0; {
			n := min(len(p), 1+rand.N(size))
			block := bytes.Clone(p[:n])
			s.Write(block)
			for i := range block {
				block[i] = '!' // what was given is not used any more
			}
			if len(s.rest) > maxLine {
				t.Fatalf("it keeps %d bytes", len(s.rest))
			}
			p = p[n:]
		}
		s.End()
		return lines
	}
	long := strings.Repeat("é", maxLine)
	full := strings.Repeat("f", maxLine)
	for _, size := range []int{1, 7, 1000, 3 * maxLine} {
		if got := strings.Join(split(size, "a\r\n\nb\r\rc\n"), "|"); got != "a||b\r\rc" {
			t.Errorf("%d: %q", size, got)
		}
		if size == 1 {
			continue
		}
		got := split(size, "first\n"+long+"\nlast"+full)
		if strings.Join(got, "") != "first"+long+"last"+full || got[0] != "first" || len(got) != 5 {
			t.Errorf("%d: %d lines", size, len(got))
		}
		for _, line := range got {
			if len(line) > maxLine || !utf8.ValidString(line) {
				t.Errorf("%d: a line of %d bytes, %t", size, len(line), utf8.ValidString(line))
			}
		}
		if got := split(size, full+"\nx\n"); len(got) != 2 {
			t.Errorf("%d: a full line is %d", size, len(got))
		}
		if got := split(size, full+"\r\n"+full+full+"\n"); len(got) != 3 {
			t.Errorf("%d: full lines are %d", size, len(got))
		}
	}
	breaks = true
	for _, size := range []int{1, 7, 3 * maxLine} {
		for text, want := range map[string][]string{"a\r\n\nb\r\rc": {"a\r\n", "\n", "b\r\rc"}, "a\n": {"a\n"}, "a\r": {"a\r"}, full + "\nx\n": {full + "\n", "x\n"}, full + "f\n": {full, "f\n"}} {
			if got := split(size, text); (size > 1 || len(text) < maxLine) && !slices.Equal(got, want) {
				t.Errorf("%d: %.20q is %.20q", size, text, got)
			}
		}
	}
}

func TestWithChangesAnEnvironment(t *testing.T) {
	got := With([]string{"A=1", "B=2", "C=3"}, "B", "D=4", "a=5")
	if !slices.Equal(got, []string{"A=1", "C=3", "D=4", "a=5"}) {
		t.Errorf("it is %v", got)
	}
}
