package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
)

// jobs convert asks at the terminal before it writes, and any answer but yes leaves the file as it is.
func TestConvertAsks(t *testing.T) {
	root := t.TempDir()
	const old = "name: old\nversion: \"0.3.0\"\nsummary: Old\ndescription: Be careful.\nsteps: [{id: a, name: A, description: A, instructions: A, outputs: [a.md]}]\n"
	file := filepath.Join(root, ".deepwork", "jobs", "old", job.FileName)
	writeFiles(t, filepath.Dir(file), map[string]string{job.FileName: old})
	for _, c := range []struct{ answer, says string }{{"no", "nothing was written"}, {"yes", "Wrote "}} {
		out, screen, err := typing(t, c.answer, "sh", "-c", `deepwork jobs convert --path "$1" 2>&1`, "sh", root)
		if !strings.Contains(screen, "Write 1 converted job? Type yes: ") || !strings.Contains(out, c.says) || (err == nil) != (c.answer == "yes") {
			t.Errorf("%s: printed %q, asked %q, %v", c.answer, out, screen, err)
		}
		now, rerr := os.ReadFile(file)
		must(t, rerr)
		changed := string(now) != old
		testkit.True(t, changed == (c.answer == "yes"), "%s: the file is %q", c.answer, now)
	}
}
