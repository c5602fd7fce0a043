package source_test

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

// What another server calls, and what it gets.
func TestReq003_6_1_TheServerIsASourceItself(t *testing.T) {
	toolstest.Replay(t, pagetest.Project(t), []string{"workflows", "source"}, *update)
}
