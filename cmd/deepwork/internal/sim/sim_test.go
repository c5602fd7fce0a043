//go:build unix

package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/anishathalye/porcupine"
)

// one is an operation that was made while no other was.
func one(at int64, in input, out string) porcupine.Operation {
	return porcupine.Operation{Input: in, Call: 2 * at, Output: out, Return: 2*at + 1}
}

var (
	start  = input{Tool: "start_workflow", Workflow: "groups"}
	look   = input{Tool: "get_step"}
	finish = func(step string) input { return input{Tool: "finished_step", Step: step} }
	back   = func(step string) input { return input{Tool: "go_to_step", Step: step} }
	abort  = input{Tool: "abort_workflow", Text: "enough"}
)

// The model knows what a session may do, and takes nothing else.
func TestModel(t *testing.T) {
	begun := []porcupine.Operation{one(1, start, "begin s0"), one(2, finish("s0"), "begin s1")}
	for name, c := range map[string]struct {
		ops []porcupine.Operation
		ok  bool
	}{
		"looked":                        {[]porcupine.Operation{one(3, look, "at s1 done s0")}, true},
		"an acknowledged step lost":     {[]porcupine.Operation{one(3, look, "at s0 done ")}, false},
		"a step repeated":               {[]porcupine.Operation{one(3, finish("s0"), "begin s1"), one(4, look, "at s1 done s0")}, true},
		"a step done twice":             {[]porcupine.Operation{one(3, finish("s0"), "!step_finished")}, false},
		"members in any order":          {[]porcupine.Operation{one(3, finish("s3"), "pending s1,s2"), one(4, finish("s1"), "pending s2"), one(5, finish("s2"), "begin s4")}, true},
		"a member forgotten":            {[]porcupine.Operation{one(3, finish("s3"), "pending s1,s2"), one(4, finish("s1"), "pending s2,s3")}, false},
		"the primary alone":             {[]porcupine.Operation{one(3, finish(""), "begin s4"), one(4, finish("s2"), "!group_moved_on")}, true},
		"a lost step that was done":     {[]porcupine.Operation{one(3, finish(""), lost), one(4, look, "at s4 done s0,s1")}, true},
		"a lost step that was not":      {[]porcupine.Operation{one(3, finish(""), lost), one(4, look, "at s1 done s0")}, true},
		"a lost step that was, and not": {[]porcupine.Operation{one(3, finish(""), lost), one(4, look, "at s4 done s0,s1"), one(5, look, "at s1 done s0")}, false},
		"back":                          {[]porcupine.Operation{one(3, back("s0"), "back to s0 clears s0,s1,s2,s3"), one(4, finish("s0"), "begin s1")}, true},
		"ahead":                         {[]porcupine.Operation{one(3, back("s4"), "!step_ahead")}, true},
		"aborted, and again":            {[]porcupine.Operation{one(3, abort, "aborted s1"), one(4, abort, "aborted s1"), one(5, look, "!session_ended aborted")}, true},
		"aborted, and it goes on":       {[]porcupine.Operation{one(3, abort, "aborted s1"), one(4, look, "at s1 done s0")}, false},
		"answered and forgotten":        {[]porcupine.Operation{one(3, finish(""), forgotten), one(4, look, "at s1 done s0")}, false},
	} {
		if got := porcupine.CheckOperations(model, append(begun[:2:2], c.ops...)); got != c.ok {
			t.Errorf("%s: %v, and is to be %v", name, got, c.ok)
		}
	}
}

// What was synced survives a loss of power, what was not does not: neither content
// nor names.
func TestPowerCut(t *testing.T) {
	for _, keepNames := range []bool{false, true} {
		t.Run(fmt.Sprint(keepNames), func(t *testing.T) {
			dir, path := t.TempDir(), filepath.Join(t.TempDir(), "ledger")
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			l, err := openLedger(path)
			must(err)
			write := func(name, text string) {
				must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
				must(l.created(filepath.Join(dir, name)))
			}
			sync := func(begin func(string) (func(error) error, error), what string, failed error) {
				done, err := begin(what)
				must(err)
				if err := done(failed); err != failed {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"both.json", "torn.json", "failed.json"} {
				write(name, name+" 1")
				if name != "torn.json" {
					sync(l.syncing, filepath.Join(dir, name), nil)
				}
			}
			sync(l.naming, dir, nil)
			must(os.WriteFile(filepath.Join(dir, "failed.json"), []byte("failed.json 2"), 0o600)) // in place
			sync(l.syncing, filepath.Join(dir, "failed.json"), os.ErrInvalid)
			write("late.json", "late.json 1")
			sync(l.syncing, filepath.Join(dir, "late.json"), nil)
			sync(l.naming, dir, os.ErrInvalid)
			must(os.Rename(filepath.Join(dir, "both.json"), filepath.Join(dir, "moved.json")))
			must(l.file.Close())

			must(powerCut([]string{dir}, path, keepNames, true))
			want := map[string]string{"both.json": "both.json 1", "torn.json": "torn.", "failed.json": "failed.json 1"}
			if keepNames {
				want["late.json"] = "late.json 1"
				want["moved.json"] = want["both.json"]
				delete(want, "both.json")
			}
			check := func() {
				t.Helper()
				names, err := namesOf(dir)
				must(err)
				if len(names) != len(want) {
					t.Errorf("there are %v, and are to be %v", names, want)
				}
				for name, text := range want {
					got, err := os.ReadFile(filepath.Join(dir, name))
					if err != nil || string(got) != text {
						t.Errorf("%s holds %q, and is to hold %q (%v)", name, got, text, err)
					}
				}
			}
			check()
			// From there everything is on disk.
			must(powerCut([]string{dir}, path, false, true))
			check()
		})
	}
}

// A journal loses a run's last record with a byte of it, and with no other byte.
func TestLosing(t *testing.T) {
	const a, b = "019aa000-0000-7000-8000-00000000000a", "019aa000-0000-7000-8000-00000000000b"
	line := func(id string) string { return `{"execution_id":"` + id + `","result":"\n"}` + "\n" }
	journal := line(a) + line(b) + line(a) + line(a)[:60]
	for at := range len(journal) {
		n, rest := at/len(line(a)), at%len(line(a))
		want := ""
		if rest < len(line(a))-1 { // else it is the line break
			want = []string{"", b, a, ""}[n]
		}
		if got := losing([]byte(journal), at); got != want {
			t.Fatalf("byte %d of line %d: %q, and is to be %q", rest, n, got, want)
		}
	}
}
