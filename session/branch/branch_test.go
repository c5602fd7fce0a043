package branch

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

func TestBranchNamesAreLegalRefs(t *testing.T) {
	at := time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)
	for instance, want := range map[string]string{
		"": "2026-03-04", "acme": "acme", "q1-2026": "q1-2026", "a b\tc": "a-b-c", "..": "2026-03-04",
		"x..y": "x.y", "x.lock": "x", "x.lock.lock": "x", "-x-": "x", "a~^:?*[\\b": "a-b", "@{": "2026-03-04",
		"größe": "größe", "a/b": "a-b", ".lock": "lock", strings.Repeat("x", 300): strings.Repeat("x", 101), "\x00\xff": "2026-03-04",
	} {
		got := Name("job", "flow", &instance, at)
		testkit.Equal(t, got, "deepwork/job-flow-"+want, "%q", instance)
		testkit.Works(t, exec.Command("git", "check-ref-format", "--branch", got).Run(), "git does not take %q", got)
	}
	testkit.Equal(t, Name("job", "flow", nil, at), "deepwork/job-flow-2026-03-04")
}

func FuzzBranchName(f *testing.F) {
	f.Add("a/..b.lock")
	f.Fuzz(func(t *testing.T, s string) {
		got := refPart(s)
		for _, bad := range []string{"..", "/", " ", "~", "^", ":", "?", "*", "[", "\\", "@{", "\x7f"} {
			if strings.Contains(got, bad) {
				t.Errorf("%q gives %q, which has %q", s, got, bad)
			}
		}
		if strings.HasPrefix(got, ".") || strings.HasSuffix(got, ".") || strings.HasSuffix(got, ".lock") || strings.HasPrefix(got, "-") {
			t.Errorf("%q gives %q", s, got)
		}
	})
}
