package board_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"deepwork/session/state/statetest"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/tools/toolstest"
)

var update = flag.Bool("update", false, "write the replies")

func TestMain(m *testing.M) { os.Exit(statetest.Main(m, goleak.Find)) }

// What an agent calls on the board, and what it gets.
func TestCalls(t *testing.T) {
	toolstest.Replay(t, pagetest.Project(t), []string{"board", "workflows"}, *update)
}
