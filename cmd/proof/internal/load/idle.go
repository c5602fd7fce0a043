package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// mostIdle is how much more than the SDK's own an idle connection may cost.
	mostIdle = 40 << 10
	// fewIdle connections are too few to judge by.
	fewIdle = 1000
	// connectAtOnce is how many clients connect at the same time.
	connectAtOnce = 16
	// restFor is how long the connections are left alone before memory is read: until
	// the garbage of their making is gone, too. A Go program that does nothing collects
	// it every two minutes, and then gives the memory back bit by bit.
	restFor = 150 * time.Second
	// restOfFew is restFor of connections that are too few to judge by.
	restOfFew = 3 * time.Second
)

// idle measures the memory of connections that do nothing: on a deepwork server,
// then on one of the bare SDK.
func idle(ctx context.Context, o Options) (err error) {
	allowed, err := raiseFiles(uint64(4*o.Idle + 200))
	if err != nil {
		return err
	}
	// A connection has two sockets, one for its stream; each server has them all.
	if need := uint64(2*o.Idle + 200); allowed < need {
		return fmt.Errorf("%d idle connections need %d open files a process, and %d are allowed here: raise the hard limit (ulimit -Hn), or try fewer", o.Idle, need, allowed)
	}
	temp, err := os.MkdirTemp("", "deepwork-load-")
	if err != nil {
		return fmt.Errorf("making a folder for the load: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()

	ours := &server{url: o.URL, token: o.Token}
	if o.URL == "" {
		root := filepath.Join(temp, "project")
		if err := layOut(root, true); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, ".deepwork", "config.yml"), []byte(patientConfig), 0o644); err != nil {
			return fmt.Errorf("laying out the project: %w", err)
		}
		if ours, err = startServer(ctx, o, root, temp, 0); err != nil {
			return err
		}
	}
	each, err := perConnection(ctx, ours, o)
	if ours.child != nil {
		err = errors.Join(err, ours.child.stop())
	}
	if err != nil {
		return err
	}
	echo, err := startEcho(ctx, o, temp)
	if err != nil {
		return err
	}
	bare, err := perConnection(ctx, echo, o)
	if err = errors.Join(err, echo.child.stop()); err != nil {
		return err
	}
	printIdle(o.Out, o.Idle, each, bare)
	if o.Idle < fewIdle {
		fmt.Fprintf(o.Out, "so few tell little: what a process takes by itself is as much\n")
		return nil
	}
	if each-bare >= mostIdle {
		fmt.Fprintf(o.Out, "WRONG: an idle connection costs too much\n")
		return ErrWrong
	}
	return nil
}

// printIdle tells what each of n idle connections costs, in bytes, here and with the
// bare SDK.
func printIdle(out io.Writer, n int, each, bare float64) {
	fmt.Fprintf(out, "%d idle connections: %.1f KB each with deepwork, %.1f KB with the bare SDK, %.1f KB more (under %d KB is wanted)\n",
		n, each/1024, bare/1024, (each-bare)/1024, mostIdle>>10)
}

// patientConfig lets idle connections be.
const patientConfig = `version: "1.0"
toolsets: [workflows]
http:
  max_connections: 120000
  max_requests: 20000
`

// perConnection is the memory that a server's process takes more, in bytes, for
// each connection that is opened and left alone.
func perConnection(ctx context.Context, s *server, o Options) (float64, error) {
	// What every server needs once it has a connection is not counted.
	first, err := connect(ctx, s, o.Stateless)
	if err != nil {
		return 0, err
	}
	defer first.leave()
	before, err := metric(ctx, s, residentMemory)
	if err != nil {
		return 0, err
	}
	clients := make([]*client, o.Idle)
	errs := make([]error, connectAtOnce)
	defer func() {
		var leaving sync.WaitGroup
		for i := range connectAtOnce {
			leaving.Go(func() {
				for n := i; n < len(clients); n += connectAtOnce {
					if clients[n] != nil {
						_ = clients[n].leave() // it was idle; the server is stopped next
					}
				}
			})
		}
		leaving.Wait()
	}()
	var connecting sync.WaitGroup
	for i := range connectAtOnce {
		connecting.Go(func() {
			for n := i; n < len(clients) && errs[i] == nil; n += connectAtOnce {
				clients[n], errs[i] = connect(ctx, s, o.Stateless)
			}
		})
	}
	connecting.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, fmt.Errorf("opening %d idle connections: %w", o.Idle, err)
	}
	rest := restFor
	if o.Idle < fewIdle {
		rest = restOfFew
	}
	if err := wait(ctx, rest); err != nil {
		return 0, err
	}
	after, err := metric(ctx, s, residentMemory)
	if err != nil {
		return 0, err
	}
	return (after - before) / float64(o.Idle), nil
}
