package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"deepwork/actor/wait"
)

// serveEcho serves the baseline: the bare SDK's server over streamable HTTP at /mcp, with one tool
// that returns its arguments, and /metrics of the process, on loopback until ctx ends.
func serveEcho(ctx context.Context) error {
	s := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
		})
	return serveMCP(ctx, s, "127.0.0.1:0")
}

// serveMCP serves over HTTP until ctx ends, and logs the URL as deepwork does.
func serveMCP(ctx context.Context, s *mcp.Server, address string) error {
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	mux.Handle("/metrics", promhttp.Handler())

	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "msg=listening url=http://%s/mcp\n", listener.Addr())

	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}

	return nil
}

// startOwn starts a serving subcommand of this program in a child process.
func (w *world) startOwn(ctx context.Context, subcommand ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := w.start(ctx, false, nil, append([]string{self}, subcommand...)...)
	if err == nil && p.url == "" {
		err = fmt.Errorf("the server %s has ended at once", subcommand[0])
	}
	return p, err
}

// measureCeiling returns the throughput to compare with, per second: what the SDK alone can answer
// and the disk alone can write, if each call needs both in sequence. There are as many clients and
// writers as the load has, and the clients send the input of finished_step.
func (l *load) measureCeiling(ctx context.Context) (float64, error) {
	writes, err := l.measureWrites(ctx)
	if err != nil {
		return 0, err
	}

	var echoes float64
	err = l.beside(ctx, func(echo *process) error {
		clients := make([]*conn, l.connections)
		for i := range clients {
			if clients[i], err = connect(ctx, echo, l.version, false); err != nil {
				return err
			}
			defer clients[i].leave()
		}

		args := input{Step: "s0", Request: "finish 18b4c7c1a6f5e0d2-17-1235", Session: "0a1b2c3d"}.arguments()
		args["outputs"], args["notes"] = json.RawMessage(outputs{Report: outputPath(17)}.String()),
			"note 18b4c7c1a6f5e0d2-17-1234"
		echoes, err = perSecond(ctx, l.connections, func(ctx context.Context, i int) error {
			_, _, err := clients[i].call(ctx, "echo", args)
			return err
		})
		return err
	})
	l.number(echoes, "echoes/s", "e, of the bare SDK")
	l.number(writes, "writes/s", "w, synced")
	return 1 / (1/echoes + 1/writes), err
}

// beside calls do with a server of the bare SDK.
func (w *world) beside(ctx context.Context, do func(echo *process) error) error {
	echo, err := w.startOwn(ctx, "echo")
	if err != nil {
		return err
	}
	return errors.Join(do(echo), echo.stop())
}

// measureWrites measures writers that each replace their own file of 4 KB: a new file is synced and
// renamed, and the folder synced. It does not use the package durable, which must not change its
// own baseline.
func (l *load) measureWrites(ctx context.Context) (float64, error) {
	dir := filepath.Join(l.dir, "writes")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("measuring synced writes: %w", err)
	}

	data := bytes.Repeat([]byte("0123456789abcde\n"), 256)
	return perSecond(ctx, l.connections, func(_ context.Context, i int) error {
		path := filepath.Join(dir, fmt.Sprintf("%d.json", i))
		f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
			err = os.Rename(path+".new", path)
		}
		if folder, oerr := os.Open(dir); oerr == nil {
			_ = folder.Sync() // not supported by every system
			err = errors.Join(err, folder.Close())
		}

		return err
	})
}

// perSecond runs n goroutines that repeat f for 4 s, and counts.
func perSecond(ctx context.Context, n int, do func(ctx context.Context, i int) error) (float64, error) {
	var done atomic.Int64
	began := time.Now()
	all, ctx := errgroup.WithContext(ctx)
	for i := range n {
		all.Go(func() error {
			for time.Since(began) < 4*time.Second {
				if err := cmp.Or(ctx.Err(), do(ctx, i)); err != nil {
					return err
				}
				done.Add(1)
			}
			return nil
		})
	}

	if err := all.Wait(); err != nil {
		return 0, fmt.Errorf("measuring: %w", err)
	}
	return float64(done.Load()) / time.Since(began).Seconds(), nil
}

var residentBytes = regexp.MustCompile(`(?m)^process_resident_memory_bytes (\S+)$`)

// memoryOf asks a process for its memory use, in bytes.
func memoryOf(p *process) (float64, error) {
	res, err := http.Get(strings.TrimSuffix(p.url, "/mcp") + "/metrics")
	if err != nil {
		return 0, fmt.Errorf("asking for the metrics: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	m := residentBytes.FindSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("%s reports no memory: %s, %w", p.url, res.Status, cmp.Or(err, io.EOF))
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

// watchMemory returns a server's memory in MB, in each second, until ctx ends.
func (l *load) watchMemory(ctx context.Context, s *server) (samples []float64) {
	for {
		if p := s.current(); p != nil {
			bytes, err := memoryOf(p)
			if err != nil {
				l.history.fault("metrics that cannot be had", "%v", err)
				return samples
			}
			samples = append(samples, bytes/(1<<20))
		}
		if wait.For(ctx, time.Second) != nil {
			return samples
		}
	}
}

// settledAfter is when the memory of a server should stop growing.
const settledAfter = 20 * time.Second

// growth returns the memory after the first 20 s and at the end, each the mean of five seconds;
// settled is false if there are too few samples.
func growth(samples []float64) (then, end float64, settled bool) {
	at, last := int(settledAfter/time.Second), len(samples)
	if last <= at+10 {
		return 0, 0, false
	}

	mean := func(some []float64) (sum float64) {
		for _, x := range some {
			sum += x
		}
		return sum / float64(len(some))
	}
	return mean(samples[at-2 : at+3]), mean(samples[last-5:]), true
}

// measureIdle measures the memory of idle connections: on a deepwork server, then on one of the
// bare SDK.
func (l *load) measureIdle(ctx context.Context) error {
	each, err := l.perConnection(ctx, l.servers[0].process)
	if err != nil {
		return err
	}
	return l.beside(ctx, func(echo *process) error {
		bare, err := l.perConnection(ctx, echo)
		l.number(each, "idle-KB", fmt.Sprintf("each of %d idle connections with deepwork", l.idle))
		l.number(bare, "bare-KB", "each with the bare SDK")
		l.number(each-bare, "more-KB", "each with deepwork above that")
		return err
	})
}

// perConnection returns the memory that a server's process needs, in KB, for each connection that
// is opened and left idle. It waits until the garbage of opening them is collected: an idle Go
// program does that every two minutes.
func (l *load) perConnection(ctx context.Context, p *process) (float64, error) {
	var before float64
	for n := range 1 + l.idle {
		c, err := connect(ctx, p, l.version, false)
		if err != nil {
			return 0, fmt.Errorf("opening idle connection %d: %w", n, err)
		}
		defer c.leave()
		if n == 0 { // do not count what every server needs for its first connection
			if before, err = memoryOf(p); err != nil {
				return 0, err
			}
		}
	}

	if err := wait.For(ctx, l.duration); err != nil {
		return 0, err
	}

	after, err := memoryOf(p)
	return (after - before) / 1024 / float64(l.idle), err
}
