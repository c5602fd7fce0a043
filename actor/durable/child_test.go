package durable

import (
	"os"
	"os/exec"
	"testing"

	"deepwork/actor/testkit"
)

const (
	childEnv   = "DEEPWORK_TEST_DIE_AT"
	newContent = "the new content"
)

// TestMain makes of this binary the child that dieAt starts.
func TestMain(m *testing.M) {
	if point := os.Getenv(childEnv); point != "" {
		d := Disk{Carry: func(op Op, do func() error) error {
			if point == "before "+op.Do {
				os.Exit(3)
			}
			err := do()
			if point == "after "+op.Do {
				os.Exit(3)
			}
			return err
		}}
		if err := d.Put(os.Args[1], []byte(newContent), PutOptions{Temp: "a.new"}); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// dieAt has its own process put newContent and end at a point.
func dieAt(t *testing.T, point, path string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], path)
	cmd.Env = append(os.Environ(), childEnv+"="+point)
	out, err := cmd.CombinedOutput()
	testkit.Need(t, len(out) <= 0, "the child said %s", out)
	return err
}
