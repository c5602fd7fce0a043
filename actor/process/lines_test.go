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

	long, full := strings.Repeat("é", maxLine), strings.Repeat("f", maxLine)
	for _, size := range []int{1, 7, 1000, 3 * maxLine} {
		breaks = false
		is := func(text string, want ...string) {
			t.Helper()
			if got := split(size, text); (size > 1 || len(text) < maxLine) && !slices.Equal(got, want) {
				t.Errorf("%d: %.20q is %d lines, %.20q", size, text, len(got), got)
			}
		}
		is("a\r\n\nb\r\rc\n", "a", "", "b\r\rc")
		is(full+"\nx\n", full, "x")
		is(full+"\r\n"+full+full+"\n", full, full, full)
		if size > 1 {
			got := split(size, "first\n"+long+"\nlast"+full)
			bad := func(line string) bool { return len(line) > maxLine || !utf8.ValidString(line) }
			if strings.Join(got, "") != "first"+long+"last"+full || got[0] != "first" || len(got) != 5 ||
				slices.ContainsFunc(got, bad) {
				t.Errorf("%d: %d lines", size, len(got))
			}
		}

		breaks = true
		is("a\r\n\nb\r\rc", "a\r\n", "\n", "b\r\rc")
		is("a\n", "a\n")
		is("a\r", "a\r")
		is(full+"\nx\n", full+"\n", "x\n")
		is(full+"f\n", full, "f\n")
	}
}

func TestWithChangesAnEnvironment(t *testing.T) {
	got := With([]string{"A=1", "B=2", "C=3"}, "B", "D=4", "a=5")
	if !slices.Equal(got, []string{"A=1", "C=3", "D=4", "a=5"}) {
		t.Errorf("it is %v", got)
	}
}
