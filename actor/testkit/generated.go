package testkit

import (
	"os"
	"strings"
	"testing"
)

// Generated checks that a page, from a heading on, is what a test generates from the program; the part above
// it is written by hand. With update it writes that part. renew is the command that does so.
func Generated(t *testing.T, file, heading, want string, update bool, renew string) {
	t.Helper()
	data := string(Get(os.ReadFile(file)).Must(t))
	head, got, found := strings.Cut(data, "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", file, heading)
	}
	if update {
		Must(t, os.WriteFile(file, []byte(head+"\n"+heading+"\n"+want), 0o644))
		return
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		if i >= len(gotLines) || i >= len(wantLines) || gotLines[i] != wantLines[i] {
			t.Fatalf("%s is stale from line %d on; %s renews it", file, strings.Count(head, "\n")+3+i, renew)
		}
	}
}
