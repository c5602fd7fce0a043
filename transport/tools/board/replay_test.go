package board_test

import (
	"testing"

	"deepwork/transport/page/pagetest"
	"deepwork/transport/tools/toolstest"
)

func TestMain(m *testing.M) { toolstest.Main(m) }

// What an agent calls on the board, and what it gets.
func TestCalls(t *testing.T) {
	toolstest.Replay(t, pagetest.Project(t), []string{"board", "workflows"})
}
