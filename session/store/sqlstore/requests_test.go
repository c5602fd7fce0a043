package sqlstore

import (
	"testing"

	"deepwork/session"
	"deepwork/session/store"
)

// Requests of earlier versions have only the identity of their caller.
func TestTheCallersOfRequestsOfEarlierVersions(t *testing.T) {
	for _, tt := range []struct {
		caller, channel string
		want            session.Caller
	}{
		{"local", "stdio", session.LocalCaller("stdio")},
		{"", "terminal", session.LocalCaller("terminal")},
		{"", "http", session.Caller{Channel: "http"}},
		{"eve", "http", session.Caller{Identity: "eve", Channel: "http"}},
		{"{", "http", session.Caller{Identity: "{", Channel: "http"}},
	} {
		if got := (storedRequest{store.Request{Target: "x"}, tt.caller, tt.channel}).request(); got.Caller != tt.want || got.Target != "x" {
			t.Errorf("%q over %s: %+v", tt.caller, tt.channel, got)
		}
	}
}
