package cursor

import "testing"

// A cursor of a list leads to what it was made of, and nothing else is one.
func FuzzCursor(f *testing.F) {
	const list List = "workflow:"
	if list.Encode("j/w") != "d29ya2Zsb3c6ai93" { // clients have such cursors
		f.Error(list.Encode("j/w"))
	}
	for _, s := range []string{"", "report_sales", "\xff\x00", list.Encode("j/w"), list.Encode("j/w") + "\n",
		List("other:").Encode("j/w")} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, s string) {
		if after, ok := list.Decode(list.Encode(s)); !ok || after != s {
			t.Errorf("%q became %q, %v", s, after, ok)
		}
		if after, ok := list.Decode(s); ok && list.Encode(after) != s {
			t.Errorf("%q gives %q, whose cursor is another", s, after)
		}
	})
}
