package process

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const maxTestLine = 64 << 10

// splitInBlocks returns the lines of a text that is written in blocks of random lengths, of at most size bytes.
func splitInBlocks(t *testing.T, size int, breaks bool, text string) (lines []string) {
	t.Helper()
	s := NewLines(maxTestLine, func(got [][]byte) {
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
		if len(s.rest) > maxTestLine {
			t.Fatalf("it keeps %d bytes", len(s.rest))
		}

		p = p[n:]
	}

	s.End()
	return lines
}

func TestLinesAreSplit(t *testing.T) {
	t.Parallel()
	full := strings.Repeat("f", maxTestLine)
	for _, c := range []struct {
		text            string
		without, breaks []string // the lines without their breaks, and with them
	}{
		{"a\r\n\nb\r\rc\n", []string{"a", "", "b\r\rc"}, []string{"a\r\n", "\n", "b\r\rc\n"}},
		{"a\n", []string{"a"}, []string{"a\n"}},
		{"a\r", []string{"a"}, []string{"a\r"}},
		{full + "\nx\n", []string{full, "x"}, []string{full + "\n", "x\n"}},
		{full + "f\n", []string{full, "f"}, []string{full, "f\n"}},
		{full + "\r\n" + full + full + "\n", []string{full, full, full}, []string{full, "\r\n", full, full + "\n"}},
	} {
		for _, size := range []int{1, 7, 1000, 3 * maxTestLine} {
			if size == 1 && len(c.text) > maxTestLine {
				continue // it takes long
			}
			for breaks, want := range map[bool][]string{false: c.without, true: c.breaks} {
				if got := splitInBlocks(t, size, breaks, c.text); !slices.Equal(got, want) {
					t.Errorf("%.20q in blocks of %d, breaks %t: got %d lines, %.20q, want %.20q", c.text, size, breaks,
						len(got), got, want)
				}
			}
		}
	}
}

// A line that is too long is split between characters.
func TestLongLinesAreSplitBetweenCharacters(t *testing.T) {
	t.Parallel()
	text := "first\n" + strings.Repeat("é", maxTestLine) + "\nlast" + strings.Repeat("f", maxTestLine)
	for _, size := range []int{7, 1000, 3 * maxTestLine} {
		got := splitInBlocks(t, size, false, text)
		if len(got) != 5 || got[0] != "first" {
			t.Errorf("in blocks of %d: got %d lines, %.20q; want 5, the first of them \"first\"", size, len(got), got)
		}
		if strings.Join(got, "") != strings.ReplaceAll(text, "\n", "") {
			t.Errorf("in blocks of %d: text is lost", size)
		}
		for _, line := range got {
			if len(line) > maxTestLine {
				t.Errorf("in blocks of %d: a line has %d bytes", size, len(line))
			}
			if !utf8.ValidString(line) {
				t.Errorf("in blocks of %d: a character is split in %.20q", size, line)
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
