package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// yardTime is for how long each of the two is measured, before the load and
	// after it.
	yardTime = 4 * time.Second
	// yardWrite is the size of a synced write, which is that of a session file.
	yardWrite = 4 << 10
)

// A yardstick is what a server's throughput is measured by, a second: what the
// SDK alone can answer, and what the disk alone can take.
type yardstick struct{ echoes, writes float64 }

// ceiling is what is left where each call needs both, one after the other.
func (y yardstick) ceiling() float64 { return 1 / (1/y.echoes + 1/y.writes) }

// measureYard measures both, with as many clients and writers as the load has.
func measureYard(ctx context.Context, o Options, folder string) (y yardstick, err error) {
	if y.writes, err = measureWrites(ctx, folder, o.Connections); err != nil {
		return y, err
	}
	echo, err := startEcho(ctx, o, folder)
	if err != nil {
		return y, err
	}
	y.echoes, err = measureEchoes(ctx, echo, o)
	return y, errors.Join(err, echo.child.stop())
}

// measureEchoes has the clients call the echo tool with what finished_step gets.
func measureEchoes(ctx context.Context, echo *server, o Options) (float64, error) {
	clients := make([]*client, o.Connections)
	for i := range clients {
		c, err := connect(ctx, echo, o.Stateless)
		if err != nil {
			return 0, err
		}
		defer c.leave()
		clients[i] = c
	}
	args := map[string]any{
		"outputs": json.RawMessage(`{"report":"` + outputPath(17) + `"}`), "notes": "note 18b4c7c1a6f5e0d2-17-1234", "step_id": stepPlan,
		"request_id": "finish 18b4c7c1a6f5e0d2-17-1235", "session_id": "0a1b2c3d",
	}
	return perSecond(ctx, o.Connections, func(ctx context.Context, i int) error {
		_, err := clients[i].call(ctx, echoTool, args)
		return err
	})
}

// measureWrites has the writers replace files of 4 KB, each its own: a new file,
// synced, that gets the name, and the folder synced. It does not use the product's
// own package durable: a yardstick must not shrink with what it measures.
func measureWrites(ctx context.Context, folder string, writers int) (float64, error) {
	dir := filepath.Join(folder, "writes")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("measuring synced writes: %w", err)
	}
	data := bytes.Repeat([]byte("0123456789abcde\n"), yardWrite/16)
	return perSecond(ctx, writers, func(_ context.Context, i int) error {
		path := filepath.Join(dir, fmt.Sprintf("%d.json", i))
		if err := writeSynced(path+".new", data); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
		return syncFolder(dir)
	})
}

func writeSynced(path string, data []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}

// perSecond has n goroutines do something again and again, and counts.
func perSecond(ctx context.Context, n int, do func(ctx context.Context, i int) error) (float64, error) {
	var done atomic.Int64
	errs := make([]error, n)
	began := time.Now()
	until := began.Add(yardTime)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for time.Now().Before(until) && ctx.Err() == nil {
				if errs[i] = do(ctx, i); errs[i] != nil {
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return 0, fmt.Errorf("measuring: %w", err)
	}
	return float64(done.Load()) / took.Seconds(), nil
}
