package attempt

import (
	"encoding/json"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session/attempt/transcript"
)

// The agents of one run have the prices of their own executors, also those whose programs report totals
// of a conversation and no model.
func TestLedgerOfARunWithTwoExecutors(t *testing.T) {
	l := &ledger{of: &config.Config{Prices: map[string]config.Price{"DEAR": {Input: 10}, "CHEAP": {Input: 1}}}, threads: map[string]*thread{}}
	for i, x := range []struct {
		executor, thread string
		input            int64 // in all
	}{{"DEAR", "a", 1e6}, {"CHEAP", "b", 1e6}, {"DEAR", "a", 2e6}, {"CHEAP", "b", 3e6}} {
		usage, err := json.Marshal(transcript.Usage{Models: map[string]transcript.Tokens{"": {Input: x.input}}, Thread: x.thread})
		testkit.Must(t, err)
		l.add(task.Use{Seq: int64(i + 1), AttemptID: "run", Executor: x.executor, Usage: usage})
	}
	if l.sum.USD != 23 || l.sum.Unknown != 0 {
		t.Errorf("they cost %v USD, want 23; %d unknown", l.sum.USD, l.sum.Unknown)
	}
}
