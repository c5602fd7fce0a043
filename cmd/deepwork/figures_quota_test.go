package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/transport/web"
)

// flooder is an identity that has as many requests in flight as its quota allows, whose bodies do not
// come, and sends 16 more every 50 ms, which are refused.
type flooder struct {
	url, token string
	refused    atomic.Int64
}

// begin returns when the quota is used up.
func (f *flooder) begin(b *testing.B) (end func()) {
	b.Helper()
	to, err := url.Parse(f.url)
	must(b, err)
	var slow []net.Conn
	for range config.Default().HTTP.Quotas.Requests {
		conn, err := net.Dial("tcp", to.Host)
		must(b, err)
		slow = append(slow, conn)
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n", to.Path, to.Host, f.token)
	}
	ctx, cancel := context.WithCancel(b.Context())
	client := &http.Client{Transport: withToken{f.token}}
	post := func() (status int, err error) {
		r, err := http.NewRequestWithContext(ctx, "POST", f.url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		if err != nil {
			return 0, err
		}
		reply, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		defer reply.Body.Close()
		_, err = io.Copy(io.Discard, reply.Body)
		return reply.StatusCode, err
	}
	// The server reads the requests, and notices closed connections, in its own time.
	f.await(b, len(slow))
	var sending sync.WaitGroup
	for range 16 {
		sending.Go(func() {
			for tick := time.Tick(50 * time.Millisecond); ctx.Err() == nil; <-tick {
				switch status, err := post(); {
				case ctx.Err() != nil:
				case err != nil || status != http.StatusTooManyRequests:
					b.Errorf("beyond the quota: %d, %v", status, err)
					return
				default:
					f.refused.Add(1)
				}
			}
		})
	}
	return func() {
		cancel()
		sending.Wait()
		for _, conn := range slow {
			conn.Close()
		}
		f.await(b, 0)
	}
}

// await waits until the server has n requests in flight.
func (f *flooder) await(b *testing.B, n int) {
	b.Helper()
	metrics, want := strings.TrimSuffix(f.url, "/mcp")+"/metrics", fmt.Sprintf("\ndeepwork_http_requests_in_flight %d\n", n)
	client := &http.Client{Transport: withToken{f.token}}
	testkit.Until(b, fmt.Sprintf("%d requests in flight", n), func() bool {
		reply, err := client.Get(metrics)
		must(b, err)
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		must(b, err)
		return strings.Contains(string(text), want)
	})
}

// newTokens returns a file of tokens and the tokens, one for each identity.
func newTokens(b *testing.B, names ...string) (file string, tokens []string) {
	b.Helper()
	var lines []string
	for _, name := range names {
		token, line, err := web.NewToken(config.Token{Name: name})
		must(b, err)
		lines, tokens = append(lines, line), append(tokens, token)
	}
	file = filepath.Join(b.TempDir(), "tokens")
	must(b, os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600))
	return file, tokens
}

// compare returns the 99th percentile, in milliseconds, of the durable steps of a client while nothing
// else is going on, and while what begin starts is. Rounds of each are interleaved.
func compare(b *testing.B, other *program, begin func() (end func())) (quiet, disturbed float64) {
	b.Helper()
	var without, with []time.Duration
	for b.Loop() {
		id, err := other.start("long")
		must(b, err)
		next := 0
		round := func(times []time.Duration) []time.Duration {
			for range 20 {
				began := time.Now()
				must(b, other.finish(id, next))
				times, next = append(times, time.Since(began)), next+1
			}
			return times
		}
		for range 7 {
			without = round(without)
			end := begin()
			with = round(with)
			end()
		}
		if _, err := other.do("abort_workflow", map[string]any{"explanation": "measured"}); err != nil {
			b.Fatal(err)
		}
	}
	p99 := func(times []time.Duration) float64 {
		slices.Sort(times)
		return float64(times[len(times)*99/100].Nanoseconds()) / 1e6
	}
	return p99(without), p99(with)
}

// BenchmarkQuota compares the durable steps of one identity over HTTP while another one is quiet with
// those while it uses its quota of requests and sends more than that.
// Wanted: the 99th percentile at most doubles.
func BenchmarkQuota(b *testing.B) {
	file, tokens := newTokens(b, "flooder", "other")
	_, url, log := serveNetwork(b, figuresProject(b, 1), "--transport", "http", "--token-file", file)
	go io.Copy(io.Discard, log)
	flood, other := &flooder{url: url, token: tokens[0]}, &program{ClientSession: connectNetwork(b, url, tokens[1])}

	quiet, flooded := compare(b, other, func() func() { return flood.begin(b) })
	b.ReportMetric(quiet, "quiet-ms")
	b.ReportMetric(flooded, "flooded-ms")
	b.ReportMetric(flooded/quiet, "ratio(<=2)")
	b.ReportMetric(float64(flood.refused.Load()), "refused")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkShare compares the durable steps of one identity over HTTP while another one is quiet with
// those while it makes durable steps by 64 callers without a pause, which its quotas allow.
// Wanted: the 99th percentile at most doubles.
func BenchmarkShare(b *testing.B) {
	file, tokens := newTokens(b, "busy", "other")
	_, url, log := serveNetwork(b, figuresProject(b, 1), "--transport", "http", "--token-file", file)
	go io.Copy(io.Discard, log)
	other := &program{ClientSession: connectNetwork(b, url, tokens[1])}
	var callers []*program
	for range 64 {
		callers = append(callers, &program{ClientSession: connectNetwork(b, url, tokens[0])})
	}
	var made atomic.Int64
	busy := func() (end func()) {
		var working sync.WaitGroup
		ctx, cancel := context.WithCancel(b.Context())
		for _, c := range callers {
			working.Go(func() {
				for ctx.Err() == nil {
					id, err := c.start("long")
					for step := 0; err == nil && ctx.Err() == nil && step < 200; step++ {
						err = c.finish(id, step)
						made.Add(1)
					}
					if _, ended := c.do("abort_workflow", map[string]any{"explanation": "measured"}); err == nil {
						err = ended
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		return func() { cancel(); working.Wait() }
	}
	var took time.Duration
	quiet, shared := compare(b, other, func() func() {
		end, begin := busy(), time.Now()
		return func() { took += time.Since(begin); end() }
	})
	b.ReportMetric(quiet, "quiet-ms")
	b.ReportMetric(shared, "shared-ms")
	b.ReportMetric(shared/quiet, "ratio(<=2)")
	b.ReportMetric(float64(made.Load())/took.Seconds(), "busy-steps/s")
	b.ReportMetric(0, "ns/op")
}
