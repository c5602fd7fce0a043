package telemetry

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"deepwork/actor/testkit"
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
		testkit.Equal(t, Text(Received(map[string]any{"traceparent": is.meta}, http.Header{"Traceparent": {is.header}})), is.want, "%s", name)
	}
}

// While a receiver takes nothing, as many spans wait as may and the others cost nothing; once it takes them again, so do we,
// and what waited is there.
func TestAReceiverThatIsAway(t *testing.T) {
	for name, hangs := range map[string]bool{"refuses": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			var received atomic.Int64
			back := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var in collector.ExportTraceServiceRequest
				testkit.Works(t, proto.Unmarshal(testkit.Get(io.ReadAll(r.Body)).Must(t), &in))
				select {
				case <-back:
				default:
					if !hangs {
						http.Error(w, "no", http.StatusForbidden)
						return
					}
					<-back
				}
				received.Add(int64(len(in.ResourceSpans[0].ScopeSpans[0].Spans)))
			}))
			defer server.Close()
			defer Start(Options{Endpoint: server.URL, Service: "test"})()
			span := Span{Name: "step", Ref: Parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")}
			for range queued {
				Export(span)
			}
			testkit.Equal(t, Taken(), false)
			testkit.Equal(t, testing.AllocsPerRun(1000, func() { Export(span) }), 0, "a span that is not taken")
			close(back)
			testkit.Until(t, "all is sent", func() bool { return current.Load().waiting.Load() == 0 })
			testkit.Equal(t, received.Load(), queued)
			testkit.Equal(t, Taken(), true)
		})
	}
}

// A bad variable of the library is a warning without its value, which may be a key, and the program starts.
func TestBadVariables(t *testing.T) {
	for _, variable := range []string{"HEADERS=Authorization=sesame%zz", "PROTOCOL=grpc", "BSP_MAX_QUEUE_SIZE=-5", "BSP_MAX_EXPORT_BATCH_SIZE=-5"} {
		name, value, _ := strings.Cut(variable, "=")
		var log testkit.Log
		t.Run(name, func(t *testing.T) {
			if !strings.HasPrefix(name, "BSP") {
				name = "EXPORTER_OTLP_" + name
			}
			t.Setenv("OTEL_"+name, value)
			Start(Options{Endpoint: "http://127.0.0.1:1", Logger: slog.New(slog.NewTextHandler(&log, nil))})()
			warned := log.String()
			testkit.Equal(t, strings.Count(warned, "level=WARN"), map[bool]int{true: 0, false: 1}[strings.HasPrefix(name, "BSP")], warned)
			testkit.Equal(t, strings.Contains(warned, "sesame"), false, warned)
		})
	}
}
