package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"deepwork/actor/wait"
)

// serveEcho is what deepwork is compared with: the bare SDK's server over streamable
// HTTP at /mcp, with one tool that gives its arguments back, and /metrics of the
// process. It serves on loopback until ctx ends.
func serveEcho(ctx context.Context) error {
	s := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
	})
	return serveMCP(ctx, s, "127.0.0.1:0")
}

// serveMCP serves over HTTP until ctx ends, and logs where, as deepwork does.
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

// startOwn starts this program with a subcommand that serves, in a child process.
func (w *world) startOwn(ctx context.Context, subcommand ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := start(ctx, command{args: append([]string{self}, subcommand...), log: filepath.Join(w.dir, subcommand[0]+".log")})
	if err == nil && p.url == "" {
		err = fmt.Errorf("the server %s has ended at once", subcommand[0])
	}
	return p, err
}

// A yardstick is what a server's throughput is measured by, per second: what the
// SDK alone can answer, and what the disk alone can take.
type yardstick struct{ echoes, writes float64 }

// ceiling is what is left if each call needs both, one after the other.
func (y yardstick) ceiling() float64 { return 1 / (1/y.echoes + 1/y.writes) }

// measureYard measures both, with as many clients and writers as the load has. What the
// clients send is what finished_step gets.
func (l *load) measureYard(ctx context.Context) (y yardstick, err error) {
	if y.writes, err = l.measureWrites(ctx); err != nil {
		return y, err
	}
	echo, err := l.startOwn(ctx, "echo")
	if err != nil {
		return y, err
	}
	defer func() { err = errors.Join(err, echo.stop()) }()
	clients := make([]*conn, l.Connections)
	for i := range clients {
		if clients[i], err = connect(ctx, echo, l.version(), false); err != nil {
			return y, err
		}
		defer clients[i].leave()
	}
	args := input{Step: "s0", Request: "finish 18b4c7c1a6f5e0d2-17-1235", Session: "0a1b2c3d"}.arguments()
	args["outputs"], args["notes"] = json.RawMessage(outputs{Report: outputPath(17)}.String()), "note 18b4c7c1a6f5e0d2-17-1234"
	y.echoes, err = perSecond(ctx, l.Connections, func(ctx context.Context, i int) error {
		_, _, err := clients[i].call(ctx, "echo", args)
		return err
	})
	return y, err
}

// version is the protocol version that the clients speak.
func (w *world) version() string {
	if w.stateless {
		return ""
	}
	return withSessions
}

// measureWrites has the writers replace files of 4 KB, each its own: a new file,
// synced, that gets the name, and the folder synced. It does not use the product's
// own package durable: a yardstick must not shrink with what it measures.
func (l *load) measureWrites(ctx context.Context) (float64, error) {
	dir := filepath.Join(l.dir, "writes")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("measuring synced writes: %w", err)
	}
	data := bytes.Repeat([]byte("0123456789abcde\n"), 256)
	return perSecond(ctx, l.Connections, func(_ context.Context, i int) error {
		path := filepath.Join(dir, fmt.Sprintf("%d.json", i))
		f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
			err = os.Rename(path+".new", path)
		}
		if err != nil || runtime.GOOS == "windows" { // where folders cannot be synced
			return err
		}
		folder, err := os.Open(dir)
		if err != nil {
			return err
		}
		return errors.Join(folder.Sync(), folder.Close())
	})
}

// perSecond has n goroutines do something again and again for 4 s, and counts.
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

// memoryOf asks a process how much memory it has, in bytes.
func memoryOf(ctx context.Context, p *process) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.url, "/mcp")+"/metrics", nil)
	if err != nil {
		return 0, fmt.Errorf("asking for the metrics: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("asking for the metrics: %w", err)
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "process_resident_memory_bytes "); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, fmt.Errorf("%s tells nothing of the memory: %s", req.URL, res.Status)
}

// settledAfter is when the memory of a server should have stopped growing.
const settledAfter = 20 * time.Second

// A memory is what a server was seen to use, second by second.
type memory struct{ samples []float64 }

// watch samples a server's memory until ctx ends.
func (l *load) watch(ctx context.Context, s *server, m *memory) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if p, _ := s.current(); p != nil {
			bytes, err := memoryOf(ctx, p)
			if err != nil && ctx.Err() == nil {
				l.history.fault("metrics that cannot be had", "%v", err)
			}
			if err != nil {
				return
			}
			m.samples = append(m.samples, bytes)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// figures returns the memory after the first 20 s and at the end, each the mean of five
// seconds; settled is false if the load was too short to tell.
func (m *memory) figures() (then, end float64, settled bool) {
	around := func(at int) (mean float64) {
		some := m.samples[max(0, min(at-2, len(m.samples))):max(0, min(at+3, len(m.samples)))]
		for _, s := range some {
			mean += s / float64(len(some))
		}
		return mean
	}
	at, last := int(settledAfter/time.Second), len(m.samples)-1
	if settled = last >= at+10; !settled {
		at = last / 2
	}
	return around(at), around(last - 2), settled
}

const (
	mostIdle      = 40 << 10 // how much more than the SDK's own an idle connection may cost
	fewIdle       = 1000     // connections are too few to judge by
	connectAtOnce = 16       // clients connect at the same time
	// restFor is how long the connections are left alone before memory is read: until
	// the garbage of their making is gone, too. A Go program that does nothing collects
	// it every two minutes, and then gives the memory back bit by bit.
	restFor   = 150 * time.Second
	restOfFew = 3 * time.Second // restFor, of connections that are too few to judge by
)

// idle measures the memory of connections that do nothing: on a deepwork server,
// then on one of the bare SDK.
func (l *load) idle(ctx context.Context) error {
	l.Servers = 1
	if err := errors.Join(layOut(l.root, loadConfig(time.Hour)), l.startServers(ctx)); err != nil {
		return err
	}
	each, err := l.perConnection(ctx, l.servers[0].process)
	if err = errors.Join(err, l.stopServers()); err != nil {
		return err
	}
	echo, err := l.startOwn(ctx, "echo")
	if err != nil {
		return err
	}
	bare, err := l.perConnection(ctx, echo)
	if err = errors.Join(err, echo.stop()); err != nil {
		return err
	}
	l.figures["idle-KB"], l.figures["bare-KB"], l.figures["more-KB"] = each/1024, bare/1024, (each-bare)/1024
	fmt.Fprintf(l.out, "%d idle connections: %.1f KB each with deepwork, %.1f KB with the bare SDK, %.1f KB more (under %d KB is wanted)\n",
		l.Idle, each/1024, bare/1024, (each-bare)/1024, mostIdle>>10)
	switch {
	case l.Idle < fewIdle:
		fmt.Fprintf(l.out, "so few tell little: what a process takes by itself is as much\n")
	case each-bare >= mostIdle:
		fmt.Fprintf(l.out, "WRONG: an idle connection costs too much\n")
		return errWrong
	}
	return nil
}

// perConnection is the memory that a server's process takes more, in bytes, for
// each connection that is opened and left alone.
func (l *load) perConnection(ctx context.Context, p *process) (float64, error) {
	// What every server needs once it has a connection is not counted.
	first, err := connect(ctx, p, l.version(), false)
	if err != nil {
		return 0, err
	}
	defer first.leave()
	before, err := memoryOf(ctx, p)
	if err != nil {
		return 0, err
	}
	clients := make([]*conn, l.Idle)
	each := func(do func(n int) error) error {
		var all errgroup.Group
		all.SetLimit(connectAtOnce)
		for n := range clients {
			all.Go(func() error { return do(n) })
		}
		return all.Wait()
	}
	defer each(func(n int) error {
		if clients[n] == nil {
			return nil
		}
		return clients[n].leave() // it was idle; the server is stopped next
	})
	if err := each(func(n int) (err error) {
		clients[n], err = connect(ctx, p, l.version(), false)
		return err
	}); err != nil {
		return 0, fmt.Errorf("opening %d idle connections: %w", l.Idle, err)
	}
	rest := restFor
	if l.Idle < fewIdle {
		rest = restOfFew
	}
	if err := wait.For(ctx, rest); err != nil {
		return 0, err
	}
	after, err := memoryOf(ctx, p)
	return (after - before) / float64(l.Idle), err
}
