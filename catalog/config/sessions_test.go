package config

import (
	"strings"
	"testing"
	"time"
)

func TestKeepEnded(t *testing.T) {
	for given, want := range map[string]time.Duration{"0": 0, "null": 0, "1h": time.Hour, "720h": 720 * time.Hour, "7200": 2 * time.Hour} {
		c, faults := Parse(FileName, []byte("sessions: {keep_ended: "+given+"}"))
		if len(faults) > 0 || c.Sessions.KeepEnded != want {
			t.Errorf("keep_ended %s is %v, %v", given, c, faults)
		}
	}
	for given, want := range map[string]string{"30": "expected 0 (forever) or at least 1h", "-1h": "expected 0s to", "999999h": "expected 0s to 87600h", "long": "a number of seconds"} {
		if _, faults := Parse(FileName, []byte("sessions: {keep_ended: "+given+"}")); len(faults) != 1 || !strings.Contains(faults[0].Message, want) {
			t.Errorf("keep_ended %s: %v", given, faults)
		}
	}
}
