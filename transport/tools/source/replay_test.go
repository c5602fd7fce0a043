package source_test

import (
	"testing"

	"deepwork/transport/page/pagetest"
	"deepwork/transport/tools/toolstest"
)

func TestMain(m *testing.M) { toolstest.Main(m) }

// What another server calls, and what it gets.
func TestReq003_6_1_TheServerIsASourceItself(t *testing.T) {
	toolstest.Replay(t, pagetest.Project(t), []string{"workflows", "source"})
}
