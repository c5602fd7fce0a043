package tool

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"deepwork/actor/telemetry"
	"deepwork/actor/xslices"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/replies"
	"deepwork/session/spans"
)

// StackLogged is the maximum number of stack entries in a log line, from the top.
const StackLogged = 20

// slowCall is the time after which the log says that a call still runs, so that a call that hangs, or ends the server,
// is in the log.
const slowCall = 10 * time.Second

// A CallLog writes the log line of a call when it ends, with the stack as it was when it began (seed
// 000, 001.1.12), and once a line if it is slow. At the level debug there is also a line when it begins.
type CallLog struct {
	logger   *slog.Logger
	metrics  *metrics
	identity string // the caller's
	Tool     string
	Counted  string // the tool's name in the metrics, if it is not Tool
	Polled   bool   // it is logged at debug, unless it fails: such calls are many
	level    slog.Level
	session  *string // as given
	began    time.Time
	stack    []replies.StackEntry // when it began, if it is logged
	outcome  string
	fault    []slog.Attr // what an error, or a panic, was
	slow     *time.Timer // nil if it is not logged

	outcomeOf func(reply any) string
	goesOn    func(reply any) bool // of a look at a task; nil means that it is a call
	waits     bool                 // it is a look, and the work goes on
}

// OtherTools is the name in the metrics of tools that other systems name: their number is unbounded.
const OtherTools = "workflow_tool"

// LookLog returns the log of a look at the task of a call. While goesOn reports that the work continues, a look is
// neither counted nor traced; the look that finds the end is.
func (s *Set) LookLog(name string, goesOn func(reply any) bool) CallLog {
	log := CallLog{Tool: name, Polled: true, outcomeOf: s.tools[name].Outcome, goesOn: goesOn}
	if !s.Has(name) {
		log.Counted = OtherTools
	}
	return log
}

// outcomeOf returns the outcome that most tools log for a reply.
func outcomeOf(reply any) string {
	if x := ExecutionOf(reply); x != nil {
		return string(x.State)
	}
	return "ok"
}

func (l *CallLog) begin(ctx context.Context, w WorkflowCaller) {
	if !l.logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	l.stack = w.StackOf(ctx, l.session)
	attrs := l.attrs(nil)
	l.slow = time.AfterFunc(slowCall-time.Since(l.began), func() {
		l.logger.LogAttrs(ctx, slog.LevelInfo, "call still runs", append(attrs, session.TookMS(time.Since(l.began)))...)
	})
	if l.logger.Enabled(ctx, slog.LevelDebug) {
		l.logger.LogAttrs(ctx, slog.LevelDebug, "call began", attrs...)
	}
}

func (l *CallLog) end(ctx context.Context, reply any) {
	took := time.Since(l.began)
	if l.slow != nil {
		l.slow.Stop()
	}
	if !l.waits {
		l.metrics.ended(ctx, l.label(), l.outcome, took)
	}
	if !l.logger.Enabled(ctx, l.level) {
		return
	}
	attrs := append(l.attrs(reply), slog.String("outcome", l.outcome), session.TookMS(took))
	l.logger.LogAttrs(ctx, l.level, "call", append(attrs, l.fault...)...)
}

// trace exports the span of the call.
func (l *CallLog) trace(span *telemetry.Call, res *mcp.CallToolResult, err error) {
	fault := ""
	if errorKind(l.outcome, res, err) != "" {
		fault = l.outcome
	}
	span.Finish(spans.Call+" "+l.label(), fault, spans.Method.String(spans.Call),
		spans.Operation.String("execute_tool"), spans.Tool.String(l.label()), spans.Outcome.String(l.outcome))
}

// failed makes the line of the call one of an error.
func (l *CallLog) failed(level slog.Level, fault ...slog.Attr) {
	l.level, l.fault = max(l.level, level), fault
}

// label returns the tool's name in the metrics: tools named by other systems are counted together,
// since their number is unbounded.
func (l *CallLog) label() string { return cmp.Or(l.Counted, l.Tool) }

// attrs returns the attributes of a line; reply is the call's, or nil.
func (l *CallLog) attrs(reply any) []slog.Attr {
	attrs := make([]slog.Attr, 0, 8)
	attrs = append(attrs, slog.String("tool", l.Tool), slog.String("caller", l.identity))
	if id := l.sessionOf(reply); id != "" {
		attrs = append(attrs, slog.String("session", jsontext.Clip(id, 200)))
	}
	return append(attrs, stackAttr(l.stack))
}

// sessionOf returns the session that a call is about: the one that it started, the one that was given,
// or the innermost of its caller, or "".
func (l *CallLog) sessionOf(reply any) string {
	started, ok := reply.(*replies.Start)
	switch {
	case ok && started != nil && started.SessionID != "":
		return started.SessionID
	case l.session != nil:
		return *l.session
	case len(l.stack) > 0:
		return l.stack[len(l.stack)-1].SessionID
	}
	return ""
}

// stackAttr returns the workflows in progress, bottom first; for a deep stack its depth and the
// top.
func stackAttr(stack []replies.StackEntry) slog.Attr {
	top := stack[max(0, len(stack)-StackLogged):]
	names := xslices.Map(top, func(e replies.StackEntry) string { return e.Workflow })
	if len(top) < len(stack) {
		return slog.Group("stack", slog.Int("depth", len(stack)), slog.Any("top", names))
	}
	return slog.Any("stack", names)
}

// InFlight tracks the running tool calls, so that a server that stops can wait for them and name
// those that did not end.
type InFlight struct {
	mu         sync.Mutex
	calls      map[*CallLog]struct{}
	byIdentity map[string]int // by identity
}

// begin records a call until the returned function is called.
func (f *InFlight) begin(l *CallLog) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls, f.byIdentity = map[*CallLog]struct{}{}, map[string]int{}
	}
	f.calls[l] = struct{}{}
	f.byIdentity[l.identity]++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.calls, l)
		f.byIdentity[l.identity]--
		if f.byIdentity[l.identity] == 0 {
			delete(f.byIdentity, l.identity)
		}
	}
}

// Len returns the number of running calls.
func (f *InFlight) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

// Of returns the number of running calls of an identity.
func (f *InFlight) Of(identity string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byIdentity[identity]
}

// Names returns the tool, the caller and the age of each call.
func (f *InFlight) Names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for l := range f.calls {
		out = append(out, fmt.Sprintf("%s of %s (for %v)", l.Tool, l.identity,
			time.Since(l.began).Round(time.Millisecond)))
	}
	slices.Sort(out)
	return out
}

// metrics are the counters of a set.
type metrics struct {
	calls, errors metric.Int64Counter
	took          metric.Float64Histogram

	mu    sync.RWMutex
	known map[[3]string]*series
}

// A series has the options of one counter or histogram. They are made once, since making them allocates.
type series struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func newMetrics(m *telemetry.Metrics) *metrics {
	return &metrics{
		calls: m.Adder("deepwork_calls_total",
			"Tool calls that ended, by tool and outcome (ok, a status, or the code of the refusal)."),
		took: m.Histogram("deepwork_call_duration_seconds", "How long tool calls took, by tool and outcome.",
			.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 120),
		errors: m.Adder("deepwork_call_errors_total",
			"Tool calls that were refused (the agent's to correct), broken (ours) or cancelled."),
		known: map[[3]string]*series{},
	}
}

// series returns the series of a tool with one more label.
func (m *metrics) series(tool, label, value string) *series {
	key := [3]string{tool, label, value}
	m.mu.RLock()
	s := m.known[key]
	m.mu.RUnlock()
	if s == nil {
		set := metric.WithAttributeSet(attribute.NewSet(attribute.String("tool", tool), attribute.String(label, value)))
		s = &series{[]metric.AddOption{set}, []metric.RecordOption{set}}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.known[key] = s
	}

	return s
}

// ended counts a call.
func (m *metrics) ended(ctx context.Context, tool, outcome string, took time.Duration) {
	s := m.series(tool, "outcome", outcome)
	m.calls.Add(ctx, 1, s.add...)
	m.took.Record(ctx, took.Seconds(), s.record...)
}
