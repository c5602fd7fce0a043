package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
)

// Metrics are the instruments of one server. Their names and labels follow Prometheus, which reads them from
// Handler. An OTLP receiver, if there is one, gets the same values every minute.
type Metrics struct {
	meter    metric.Meter
	provider *sdkmetric.MeterProvider
	registry *prometheus.Registry
}

// LocalMetrics returns metrics that no receiver gets.
func LocalMetrics() *Metrics { return openMetrics(Options{}, nil) }

// OpenMetrics returns metrics, and sends them to a receiver if the options or the environment name one. Close
// must be called. An unusable receiver only causes a warning.
func OpenMetrics(o Options) *Metrics {
	if !o.names("METRICS") {
		return openMetrics(o, nil)
	}

	// Sums count from the start, so one that does not arrive need not be sent again.
	options := []otlpmetrichttp.Option{otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{})}
	if o.Endpoint != "" {
		options = append(options, otlpmetrichttp.WithEndpointURL(strings.TrimSuffix(o.Endpoint, "/")+"/v1/metrics"))
	}
	to, err := otlpmetrichttp.New(context.Background(), options...)
	if err != nil {
		o.Logger.Warn("metrics are not sent", "error", err)
		return openMetrics(o, nil)
	}
	return openMetrics(o, to)
}

// openMetrics returns metrics that an exporter gets; nil means no exporter.
func openMetrics(o Options, to sdkmetric.Exporter) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	scraped, err := exporter.New(exporter.WithRegisterer(m.registry), exporter.WithoutScopeInfo(),
		exporter.WithoutTargetInfo(),
		exporter.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithoutSuffixes))
	if err != nil {
		panic(err) // cannot fail: the only collector of its registry
	}
	options := []sdkmetric.Option{sdkmetric.WithReader(scraped), sdkmetric.WithExemplarFilter(exemplar.AlwaysOffFilter)}
	if to != nil {
		o.report()
		// A machine's processes must be distinguished, or their sums would replace each other.
		options = append(options,
			sdkmetric.WithResource(o.resource(attribute.String("service.instance.id", uuid.NewString()))),
			sdkmetric.WithReader(sdkmetric.NewPeriodicReader(to)))
	}
	m.provider = sdkmetric.NewMeterProvider(options...)
	m.meter = m.provider.Meter("deepwork/actor/telemetry")
	return m
}

// Close sends what was not sent yet, and ends the export. It takes at most a second.
func (m *Metrics) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushing)
	defer cancel()
	_ = m.provider.Shutdown(ctx) // a receiver that does not answer has already caused a warning
	return nil
}

// Gauge adds a value that is read when it is scraped or sent.
func (m *Metrics) Gauge(name, help string, value func() int) {
	g, _ := m.meter.Int64ObservableGauge(name, metric.WithDescription(help)) // fails only for a bad name
	_, _ = m.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		to.ObserveInt64(g, int64(value()))
		return nil
	}, g)
}

// Counter is like Gauge for a value that only grows. Several counters with one name must differ in their
// labels.
func Counter[N int | uint64 | float64](m *Metrics, name, help string, value func() N, labels ...attribute.KeyValue) {
	set := metric.WithAttributeSet(attribute.NewSet(labels...))
	c, _ := m.meter.Float64ObservableCounter(name, metric.WithDescription(help))
	_, _ = m.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		to.ObserveFloat64(c, float64(value()), set)
		return nil
	}, c)
}

// Adder returns a counter to which callers add.
func (m *Metrics) Adder(name, help string) metric.Int64Counter {
	c, _ := m.meter.Int64Counter(name, metric.WithDescription(help))
	return c
}

// Histogram returns the distribution of a value, given the upper bounds of its buckets.
func (m *Metrics) Histogram(name, help string, bounds ...float64) metric.Float64Histogram {
	h, _ := m.meter.Float64Histogram(name, metric.WithDescription(help), metric.WithExplicitBucketBoundaries(bounds...))
	return h
}

// Handler serves the metrics to Prometheus, with those of the process.
func (m *Metrics) Handler(logger *slog.Logger) http.Handler {
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(prometheus.Gatherers{m.registry, process}, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		MaxRequestsInFlight: 4,
		Timeout:             10 * time.Second,
	})
}
