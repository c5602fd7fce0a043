package catalog

import (
	"context"
	"errors"
	"log/slog"
	"testing"
)

// A gated handler holds back what is logged until it is opened.
type gated struct {
	slog.Handler
	reached, open chan struct{}
}

func (g gated) Handle(context.Context, slog.Record) error {
	g.reached <- struct{}{}
	<-g.open
	return nil
}

// startGated starts a catalog of one bad job, whose first scan is held at the log of its fault.
func startGated(t *testing.T) (*Catalog, gated) {
	p := newProject(t)
	p.put("bad", "name: [\n")
	g := gated{slog.NewTextHandler(p.log, nil), make(chan struct{}, 1), make(chan struct{})}
	c, err := Start(Options{Root: p.root, Logger: slog.New(g)})
	must(t, err)
	<-g.reached
	return c, g
}

func TestReadersWaitForTheFirstScan(t *testing.T) {
	c, g := startGated(t)
	select {
	case <-c.Loaded():
		t.Error("loaded before the scan has ended")
	default:
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Fresh(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Fresh: %v", err)
	}
	if _, err := c.FreshJob(ended, "bad"); !errors.Is(err, context.Canceled) {
		t.Errorf("FreshJob: %v", err)
	}
	read := make(chan *Snapshot)
	go func() { read <- c.Snapshot() }()
	close(g.open)
	if s := <-read; s.Version != 1 || len(s.Errors) != 1 {
		t.Errorf("version %d, errors %v", s.Version, s.Errors)
	}
	<-c.Loaded()
	must(t, c.Close(t.Context()))
}

func TestCloseDuringTheFirstScan(t *testing.T) {
	c, g := startGated(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("it does not wait for the scan: %v", err)
	}
	close(g.open)
	must(t, c.Close(t.Context()))
	if s := c.Snapshot(); len(s.Errors) != 1 {
		t.Errorf("the snapshot is gone: %v", s.Errors)
	}
}
