package sqlite

import (
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// Of two processes that write without a pause, each gets at least a fifth.
func TestNoProcessStarves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	rootOf(t, openAt(t, path, time.Now))
	both := []*testkit.Child{another(t, "some", path), another(t, "some", path)}
	for _, c := range both {
		if _, err := io.WriteString(c.In, "go\n"); err != nil {
			t.Fatal(err)
		}
	}
	var made []int
	sum := 0
	for _, c := range both {
		n, err := strconv.Atoi(c.Line())
		if err != nil {
			t.Fatal(err, c.Err.String())
		}
		made, sum = append(made, n), sum+n
	}
	t.Log("tasks made:", made)
	for _, n := range made {
		if 5*n < sum {
			t.Errorf("tasks made by each process: %v", made)
		}
	}
}

// What a killed process has acknowledged is there, and the locks that it held are free.
func TestWhatAKilledProcessAcknowledgedIsThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, path, time.Now)
	p := rootOf(t, b)
	for range 3 {
		c := another(t, "say", path)
		var ids []string
		for range 50 {
			ids = append(ids, c.Line())
		}
		testkit.Must(t, c.Process.Kill())
		rest, _ := io.ReadAll(c.Out)
		for line := range strings.Lines(string(rest)) {
			if strings.HasSuffix(line, "\n") {
				ids = append(ids, strings.TrimSpace(line))
			}
		}
		for _, id := range ids {
			taskOf(t, b, id)
		}
		addTask(t, b, p, "afterwards")
	}
}

// A group is made whole or not at all.
func TestAKillInMidGroupLeavesNothingOfIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, path, time.Now)
	s := addTask(t, b, rootOf(t, b), "before")
	c := another(t, "die", path)
	if c.Wait() == nil {
		t.Fatal("the child has ended well")
	}
	if got := taskOf(t, b, s.ID); got.Title != "before" {
		t.Errorf("title %q, want %q", got.Title, "before")
	}
	addTask(t, b, rootOf(t, b), "afterwards")
}

// A process that is stopped while it has the turn, but is in no transaction, is passed over.
func TestAProcessThatIsStoppedBetweenTransactions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "board.db")
	b := openAt(t, path, time.Now)
	p := rootOf(t, b)
	end, err := b.writer.turn(new(time.Time)) // its goroutine waits
	testkit.Must(t, err)
	defer end()
	other := openAt(t, path, time.Now)
	other.patience = 400 * time.Millisecond
	addTask(t, other, p, "passes it over")
}
