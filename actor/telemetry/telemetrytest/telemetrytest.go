// Package telemetrytest has a receiver of OTLP over HTTP for tests, and does what a program that continues a
// trace does.
package telemetrytest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"deepwork/actor/telemetry"
)

// A Span is a received span. Ids are hexadecimal.
type Span struct {
	Name, Trace, ID, Parent string
	Start, End              time.Time
	Attributes              map[string]any
	Error                   string
	Links                   []string // the ids of spans
}

// A Receiver keeps what it receives.
type Receiver struct {
	URL string // of the OTLP endpoint, without the path

	mu    sync.Mutex
	spans map[string]Span // by id; a span that is sent again replaces the earlier one
	raw   bytes.Buffer
}

// New starts a receiver for a test.
func New(t *testing.T) *Receiver {
	r := &Receiver{spans: map[string]Span{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	var data tracepb.TracesData // has the same form as the request
	if err == nil && q.URL.Path == "/v1/traces" {
		err = proto.Unmarshal(body, &data)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.raw.Write(body)
	for _, of := range data.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				got := Span{
					Name:       s.Name,
					Trace:      fmt.Sprintf("%x", s.TraceId),
					ID:         fmt.Sprintf("%x", s.SpanId),
					Parent:     fmt.Sprintf("%x", s.ParentSpanId),
					Error:      s.Status.GetMessage(),
					Start:      time.Unix(0, int64(s.StartTimeUnixNano)),
					End:        time.Unix(0, int64(s.EndTimeUnixNano)),
					Attributes: map[string]any{},
				}
				for _, a := range s.Attributes {
					got.Attributes[a.Key] = valueOf(a.Value)
				}
				for _, l := range s.Links {
					got.Links = append(got.Links, fmt.Sprintf("%x", l.SpanId))
				}
				r.spans[got.ID] = got
			}
		}
	}
}

func valueOf(v *commonpb.AnyValue) any {
	switch v := v.Value.(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_IntValue:
		return v.IntValue
	case *commonpb.AnyValue_DoubleValue:
		return v.DoubleValue
	}
	return v.String()
}

// Spans returns the received spans, by id.
func (r *Receiver) Spans() map[string]Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]Span{}
	for id, s := range r.spans {
		all[id] = s
	}
	return all
}

// Forget empties what Spans returns.
func (r *Receiver) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.spans)
}

// Raw returns all bytes that were received.
func (r *Receiver) Raw() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.raw.Bytes())
}

// Send sends a span like an agent that continues the trace in its environment, a traceparent.
func Send(ctx context.Context, url, traceparent, name string) error {
	parent := telemetry.Parse(traceparent)
	if !parent.IsValid() {
		return fmt.Errorf("no trace to continue: %q", traceparent)
	}
	trace := parent.TraceID()
	within := parent.SpanID()
	now := uint64(time.Now().UnixNano())
	id := telemetry.Derive(parent, traceparent, name).SpanID()
	span := &tracepb.Span{
		TraceId:           trace[:],
		SpanId:            id[:],
		ParentSpanId:      within[:],
		Name:              name,
		StartTimeUnixNano: now,
		EndTimeUnixNano:   now,
	}
	scope := &tracepb.ScopeSpans{Spans: []*tracepb.Span{span}}
	body, err := proto.Marshal(&tracepb.TracesData{
		ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{scope}}},
	})
	if err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/traces", bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/x-protobuf")
	reply, err := http.DefaultClient.Do(q)
	if err == nil {
		err = reply.Body.Close()
	}
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("the receiver answers %s", reply.Status)
	}
	return err
}
