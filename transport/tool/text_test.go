package tool

import "testing"

// A cursor of ours leads to what it was made of, and nothing else is one.
func FuzzListCursor(f *testing.F) {
	for _, s := range []string{"", "report_sales", "j/w", "\xff\x00"} {
		f.Add(s)
		f.Add(EncodeCursor(s))
	}
	f.Fuzz(func(t *testing.T, s string) {
		if after, ours := DecodeCursor(EncodeCursor(s)); !ours || after != s {
			t.Errorf("%q became %q, %v", s, after, ours)
		}
		if after, ours := DecodeCursor(s); ours {
			if again, ok := DecodeCursor(EncodeCursor(after)); !ok || again != after {
				t.Errorf("%q gives %q, and that %q", s, after, again)
			}
		}
	})
}
