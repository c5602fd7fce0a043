package page_test

import (
	"net/http"
	"net/http/httptrace"
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

// firstByte returns a page's time to its first byte.
func (b *browser) firstByte(path string) time.Duration {
	r := testkit.Get(http.NewRequestWithContext(b.t.Context(), "GET", b.at+path, nil)).Must(b.t)
	var sent, first time.Time
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent = time.Now() }, GotFirstResponseByte: func() { first = time.Now() }}
	res := testkit.Get(b.Do(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))).Must(b.t)
	res.Body.Close()
	testkit.Need(b.t, res.StatusCode == http.StatusOK, "%s: %s", path, res.Status)
	return first.Sub(sent)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// How long pages take to their first byte with 1,000 sessions and 10,000 tasks, beside those of a project that has
// nothing to show, in turns; cold is the first request after a start.
func BenchmarkPages(b *testing.B) {
	root := pagetest.Project(b)
	s := serve(b, root, web.Options{})
	fill(pagetest.Connect(b, s.url, ""), 1000, 10_000)
	s.stop()
	full, empty := serve(b, root, web.Options{}).browser(b), serve(b, pagetest.Project(b), web.Options{}).browser(b)
	b.ReportMetric(ms(full.firstByte("/")), "cold-ms")
	for name, path := range map[string]string{"now": "/", "history": "/history", "filtered": "/history?state=done&q=goal", "board": "/board", "jobs": "/jobs", "job": "/jobs/trip"} {
		b.Run(name, func(b *testing.B) {
			full.firstByte(path)
			empty.firstByte(path)
			var shown, nothing []time.Duration
			for b.Loop() {
				shown, nothing = append(shown, full.firstByte(path)), append(nothing, empty.firstByte(path))
			}
			slices.Sort(shown)
			slices.Sort(nothing)
			b.ReportMetric(ms(shown[len(shown)/2]), "median-ms")
			b.ReportMetric(ms(nothing[len(shown)/2]), "empty-ms")
			b.ReportMetric(float64(shown[len(shown)/2])/float64(nothing[len(shown)/2]), "by-empty(<=4)")
		})
	}
}
