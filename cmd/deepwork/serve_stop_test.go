package main

import (
	"testing"
	"time"

	"deepwork/transport/web"
)

// However much hangs, a server that a signal asked to end is gone before a client that
// sent it loses patience: containers are killed after 10 s.
func TestReq005_AStopIsOverInTime(t *testing.T) {
	if worst := web.StopTime + stopTimeout; worst >= 10*time.Second {
		t.Errorf("an HTTP server takes up to %v to stop", worst)
	}
}
