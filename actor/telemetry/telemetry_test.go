package telemetry

import (
	"net/http"
	"testing"
)

// A traceparent is read from the field of a request before the header of HTTP; a malformed one is ignored.
func TestReceived(t *testing.T) {
	const good, other = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-00"
	for name, is := range map[string]struct {
		meta   any
		header string
		want   string
	}{
		"field":              {good, "", good},
		"header":             {nil, other, other},
		"both":               {good, other, good},
		"neither":            {nil, "", ""},
		"no text":            {7, "", ""},
		"other flags":        {good[:53] + "03", "", good},
		"newer version":      {"01" + good[2:] + "-more", "", good},
		"more in version 00": {good + "-more", "", ""},
		"invalid version":    {"ff" + good[2:], "", ""},
		"no digits":          {"00-xbf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "", ""},
		"no trace":           {"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "", ""},
		"too short":          {good[:54], "", ""},
	} {
		if got := Text(Received(map[string]any{"traceparent": is.meta}, http.Header{"Traceparent": {is.header}})); got != is.want {
			t.Errorf("%s: got %q, want %q", name, got, is.want)
		}
	}
}
