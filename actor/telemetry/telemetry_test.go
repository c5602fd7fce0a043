package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"
	metrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"deepwork/actor/testkit"
)

// A receiver is an exporter that answers as a receiver does.
type receiver struct {
	sdkmetric.Exporter // of temporality and aggregation
	answer             func(context.Context) error
	exports, series    int
}

func (r *receiver) Temporality(sdkmetric.InstrumentKind) metricdata.Temporality {
	return metricdata.CumulativeTemporality
}

func (r *receiver) Aggregation(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(k)
}

func (r *receiver) Export(ctx context.Context, data *metricdata.ResourceMetrics) error {
	r.exports++
	r.series = len(data.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64]).DataPoints)
	return r.answer(ctx)
}

func (r *receiver) Shutdown(context.Context) error { return nil }

// Whatever a receiver does, work does not wait for it, what is kept is bounded, there is one warning per
// minute, and the end of the process waits for a second.
func TestReceiversThatDoNotTakeMetrics(t *testing.T) {
	for name, answer := range map[string]func(context.Context) error{
		"refuses": func(context.Context) error { return errors.New("no") },
		"hangs": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "10000") // more often than it warns
			synctest.Test(t, func(t *testing.T) {
				var log testkit.Log
				to := &receiver{answer: answer}
				m := openMetrics(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, to)
				work := m.Adder("work", "")
				began := time.Now()
				for i := range 3_000 {
					work.Add(t.Context(), 1, metric.WithAttributes(attribute.Int("n", i)))
				}
				testkit.Equal(t, time.Since(began), 0, "work has waited")

				time.Sleep(10*time.Minute + time.Second/2)
				synctest.Wait()
				warnings := strings.Count(log.String(), "level=WARN")
				testkit.True(t, warnings >= 9, "%d warnings in 10 minutes, %d exports of %d series", warnings,
					to.exports, to.series)
				testkit.True(t, warnings <= 11, "%d warnings in 10 minutes, %d exports of %d series", warnings,
					to.exports, to.series)
				testkit.True(t, to.exports >= 10, "%d warnings in 10 minutes, %d exports of %d series", warnings,
					to.exports, to.series)
				testkit.True(t, to.series <= 2000, "%d warnings in 10 minutes, %d exports of %d series", warnings,
					to.exports, to.series)

				began = time.Now()
				testkit.Works(t, m.Close(t.Context()))
				took := time.Since(began)
				testkit.True(t, took <= flushing, "closing took %v", took)
			})
		})
	}
}

// A receiver gets over HTTP what Prometheus reads, when the process ends too, and nothing if metrics are off.
func TestMetricsOverOTLP(t *testing.T) {
	var got *testkit.Log
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in metrics.ExportMetricsServiceRequest
		testkit.Works(t, proto.Unmarshal(testkit.Get(io.ReadAll(r.Body)).Must(t), &in))
		fmt.Fprint(got, r.URL.Path, " ", r.Header.Get("Authorization"))
		for _, a := range in.ResourceMetrics[0].Resource.Attributes {
			if a.Key != "service.instance.id" {
				fmt.Fprintf(got, " %s=%s", a.Key, a.Value.GetStringValue())
			}
		}
		for _, x := range in.ResourceMetrics[0].ScopeMetrics[0].Metrics {
			fmt.Fprint(got, " ", x.Name)
		}
	}))
	defer server.Close()
	sent := func(o Options) string {
		got = new(testkit.Log)
		o.Service = "test"
		o.Version = "1"
		o.Logger = slog.Default()
		m := OpenMetrics(o)
		m.Gauge("queue", "", func() int { return 3 })
		Counter(m, "cost", "", func() float64 { return .5 }, attribute.String("of", "a"))
		Counter(m, "cost", "", func() int { return 2 }, attribute.String("of", "b"))
		m.Histogram("took", "", 1, 2).Record(t.Context(), 1.5)
		page := httptest.NewRecorder()
		m.Handler(slog.Default()).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
		testkit.ContainsAll(t, page.Body.String(),
			[]string{"\nqueue 3\n", "\ncost{of=\"a\"} 0.5\n", "\ncost{of=\"b\"} 2\n", "\ntook_bucket{le=\"2\"} 1\n",
				"\ngo_goroutines "})
		testkit.Works(t, m.Close(t.Context()))

		return got.String()
	}
	testkit.Equal(t, sent(Options{}), "", "it is off")
	testkit.Equal(t, sent(Options{Endpoint: server.URL + "/otlp/"}),
		"/otlp/v1/metrics  service.name=test service.version=1 queue cost took")
	for name, value := range map[string]string{"ENDPOINT": server.URL, "HEADERS": "Authorization=Basic abc"} {
		t.Setenv("OTEL_EXPORTER_OTLP_"+name, value)
	}
	t.Setenv("OTEL_SERVICE_NAME", "mine")
	testkit.Equal(t, sent(Options{}), "/v1/metrics Basic abc service.name=mine service.version=1 queue cost took")
	t.Setenv("OTEL_METRICS_EXPORTER", "none")
	testkit.Equal(t, sent(Options{Endpoint: server.URL}), "", "it is off")
}

// A record has the trace of its context, also beside attributes that its logger adds.
func TestLogsNameTheirTrace(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(LogHandler(slog.NewTextHandler(&out,
		&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))).With("a", 1)
	log.InfoContext(t.Context(), "none")
	log.InfoContext(trace.ContextWithSpanContext(t.Context(),
		trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{0xab, 15: 1}})), "one")
	testkit.Equal(t, out.String(),
		"level=INFO msg=none a=1\nlevel=INFO msg=one a=1 trace_id=ab000000000000000000000000000001\n")
}

// A traceparent is read from the field of a request before the header of HTTP; a malformed one is ignored.
func TestReceived(t *testing.T) {
	const good, other = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-00"
	for name, tt := range map[string]struct {
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
		"no version":         {"zz" + good[2:], "", ""},
		"capitals":           {strings.ToUpper(good), "", ""},
		"no trace":           {"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "", ""},
		"too short":          {good[:54], "", ""},
	} {
		testkit.Equal(t, Text(Received(map[string]any{"traceparent": tt.meta},
			http.Header{"Traceparent": {tt.header}})), tt.want, "%s", name)
	}
}

// While a receiver takes nothing, as many spans wait as may and the others cost nothing; once it takes them
// again, so do we, and what waited is there.
func TestAReceiverThatIsAway(t *testing.T) {
	for name, hangs := range map[string]bool{"refuses": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			var received atomic.Int64
			back, asked := make(chan struct{}), make(chan struct{}, 1000)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var in collector.ExportTraceServiceRequest
				testkit.Works(t, proto.Unmarshal(testkit.Get(io.ReadAll(r.Body)).Must(t), &in))
				select {
				case <-back:
				default:
					asked <- struct{}{}
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
			testkit.True(t, !Taken() && Parent(trace.ContextWithSpanContext(t.Context(), span.Ref)).Equal(span.Ref),
				"spans are taken, or begin elsewhere")
			testkit.Equal(t, testing.AllocsPerRun(1000, func() { Export(span) }), 0, "a span that is not taken")

			<-asked
			close(back)
			testkit.Until(t, "all is sent", func() bool { return current.Load().waiting.Load() == 0 })
			testkit.Equal(t, received.Load(), queued)
			testkit.Equal(t, Taken(), true)
		})
	}
}

// A bad variable of the library is a warning without its value, which may be a key, and the program starts.
func TestBadVariables(t *testing.T) {
	for _, variable := range []string{"HEADERS=Authorization=sesame%zz", "PROTOCOL=grpc", "BSP_MAX_QUEUE_SIZE=-5",
		"BSP_MAX_EXPORT_BATCH_SIZE=-5"} {
		name, value, _ := strings.Cut(variable, "=")
		var log testkit.Log
		t.Run(name, func(t *testing.T) {
			if !strings.HasPrefix(name, "BSP") {
				name = "EXPORTER_OTLP_" + name
			}
			t.Setenv("OTEL_"+name, value)
			Start(Options{Endpoint: "http://127.0.0.1:1", Logger: slog.New(slog.NewTextHandler(&log, nil))})()
			warned := log.String()
			testkit.Equal(t, strings.Count(warned, "level=WARN"),
				map[bool]int{true: 0, false: 1}[strings.HasPrefix(name, "BSP")], warned)
			testkit.Equal(t, strings.Contains(warned, "sesame"), false, warned)
		})
	}
}
